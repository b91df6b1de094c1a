package api

import (
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"testing"

	"ottla/broker/auth"
	"ottla/broker/registry"
	"ottla/protocol"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// oldCommit commits offsets of topic t by version 0, from partition 0 on.
func (h *groupHouse) oldCommit(group, metadata string, offsets ...int64) []int16 {
	h.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = "t"
	for n, offset := range offsets {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata = int32(n), offset, &metadata
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	var codes []int16
	for _, p := range askGroups[*kmsg.OffsetCommitResponse](h, 0, req).Topics[0].Partitions {
		codes = append(codes, p.ErrorCode)
	}
	return codes
}

type oldOffset struct {
	Code   int16
	Offset int64
}

// oldFetch asks for partitions of a topic by a version.
func (h *groupHouse) oldFetch(version int16, group, topic string, partitions ...int32) []oldOffset {
	h.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	rt := kmsg.NewOffsetFetchRequestTopic()
	rt.Topic, rt.Partitions = topic, partitions
	req.Topics = append(req.Topics, rt)
	var got []oldOffset
	for _, p := range askGroups[*kmsg.OffsetFetchResponse](h, version, req).Topics[0].Partitions {
		if p.Metadata == nil || *p.Metadata != "" {
			h.t.Errorf("metadata %v", p.Metadata)
		}
		got = append(got, oldOffset{p.ErrorCode, p.Offset})
	}
	return got
}

func (h *groupHouse) node(path string) string {
	data, _, err := h.api.Tree.Get(path, nil)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestOffsetsOfVersion0: what Kafka 3.9 answers when it keeps offsets in ZooKeeper.
func TestOffsetsOfVersion0(t *testing.T) {
	h := newGroupHouse(t) // no coordinator is needed
	unknown := oldOffset{kerr.UnknownTopicOrPartition.Code, -1}
	same(t, "nothing is kept", h.oldFetch(0, "g", "t", 0, 1), []oldOffset{unknown, unknown})
	same(t, "commit", h.oldCommit("g", "note", 5, 1<<40, 7), []int16{0, 0, kerr.UnknownTopicOrPartition.Code})
	same(t, "node", h.node("/consumers/g/offsets/t/1"), "1099511627776")
	same(t, "fetch", h.oldFetch(0, "g", "t", 1, 0, 2, -1), []oldOffset{{0, 1 << 40}, {0, 5}, unknown, unknown})
	same(t, "another group", h.oldFetch(0, "h", "t", 0), []oldOffset{unknown})
	same(t, "another topic", h.oldFetch(0, "g", "missing", 0), []oldOffset{unknown})
	same(t, "commit -1", h.oldCommit("g", "", -1), []int16{0})
	same(t, "fetch -1", h.oldFetch(0, "g", "t", 0), []oldOffset{{0, -1}})
	large := strings.Repeat("ä", 4097)
	same(t, "metadata that is too long", h.oldCommit("g", large, 9), []int16{kerr.OffsetMetadataTooLarge.Code})
	same(t, "metadata of the longest", h.oldCommit("g", large[2:], 9), []int16{0})
	same(t, "fetch", h.oldFetch(0, "g", "t", 0), []oldOffset{{0, 9}})
	for _, group := range []string{"", ".."} { // there is no such path
		same(t, "commit of group "+group, h.oldCommit(group, "", 9), []int16{kerr.UnknownServerError.Code})
		same(t, "fetch of group "+group, h.oldFetch(0, group, "t", 0), []oldOffset{{kerr.UnknownServerError.Code, -1}})
	}

	if _, err := h.api.Tree.Set("/consumers/g/offsets/t/0", []byte("17"), registry.AnyVersion); err != nil { // as such a consumer does
		t.Fatal(err)
	}
	same(t, "what a consumer wrote", h.oldFetch(0, "g", "t", 0), []oldOffset{{0, 17}})
	if _, err := h.api.Tree.Set("/consumers/g/offsets/t/0", []byte("seven"), registry.AnyVersion); err != nil {
		t.Fatal(err)
	}
	same(t, "what is no number", h.oldFetch(0, "g", "t", 0, 1), []oldOffset{{kerr.UnknownServerError.Code, -1}, {0, 1 << 40}})
	same(t, "and is replaced", h.oldCommit("g", "", 18), []int16{0})

	h.lead()
	same(t, "the coordinator has no part in it", h.oldFetch(1, "g", "t", 0), []oldOffset{{0, -1}})
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = "g", -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Offset, rp.Timestamp = 30, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	same(t, "commit of version 1", askGroups[*kmsg.OffsetCommitResponse](h, 1, req).Topics[0].Partitions[0].ErrorCode, 0)
	same(t, "version 1", h.oldFetch(1, "g", "t", 0), []oldOffset{{0, 30}})
	same(t, "version 0", h.oldFetch(0, "g", "t", 0), []oldOffset{{0, 18}})
}

// TestOffsetsOfVersion0Frames: frames of 0.8.2.2 (SimpleConsumer against its own brokers) with their answers.
func TestOffsetsOfVersion0Frames(t *testing.T) {
	h := newGroupHouse(t)
	addTopic(h.api.Meta, "old1-none", [16]byte{4}, 4)
	for _, x := range [][2]string{
		{"0008000000000009000465726173000b6f6c64312d73696d706c650000000100096f6c64312d6e6f6e650000000100000002000000000000002800056e6f746530",
			"000000090000000100096f6c64312d6e6f6e6500000001000000020000"},
		{"000900000000000b000465726173000b6f6c64312d73696d706c650000000100096f6c64312d6e6f6e650000000100000002",
			"0000000b0000000100096f6c64312d6e6f6e6500000001000000020000000000000028" + "00000000"},
		{"000900000000000c000465726173000b6f6c64312d73696d706c650000000100096f6c64312d6e6f6e650000000100000003",
			"0000000c0000000100096f6c64312d6e6f6e650000000100000003ffffffffffffffff" + "00000003"},
	} {
		frame, err := hex.DecodeString(x[0])
		if err != nil {
			t.Fatal(err)
		}
		reply, err := h.peer.Handle(t.Context(), frame)
		if err != nil {
			t.Fatal(err)
		}
		same(t, x[0], hex.EncodeToString(answerOf(reply)), x[1])
	}
}

// answerOf is an answer without its length.
func answerOf(reply protocol.Reply) []byte {
	var got []byte
	for _, p := range reply.Answer.Parts {
		got = append(got, p.Bytes...)
	}
	return got[4:]
}

// allBut lets everybody do everything with all but one resource.
type allBut auth.Resource

func (a allBut) Authorize(_ auth.Principal, _ net.Addr, _ auth.Operation, r auth.Resource) bool {
	return r != auth.Resource(a)
}

func TestOffsetsOfVersion0Refused(t *testing.T) {
	h := newGroupHouse(t)
	for r, want := range map[auth.Resource]int16{
		{Type: auth.Group, Name: "g"}: kerr.GroupAuthorizationFailed.Code,
		{Type: auth.Topic, Name: "t"}: kerr.TopicAuthorizationFailed.Code,
	} {
		h.api.Authorizer = allBut(r)
		same(t, "commit", h.oldCommit("g", "", 5), []int16{want})
		same(t, "fetch", h.oldFetch(0, "g", "t", 0, 1), []oldOffset{{want, -1}, {want, -1}})
	}
	if got := h.node("/consumers/g"); got != "no node: /consumers/g" {
		t.Errorf("something is kept: %s", got)
	}
}

// brokenTree fails every call that offsets need.
type brokenTree struct {
	registry.Tree
	err error
}

func (b brokenTree) Group(func(registry.Tree) error) error { return b.err }
func (b brokenTree) GetAll([]string, *registry.Watcher) ([]registry.Node, error) {
	return nil, b.err
}

func TestOffsetsOfVersion0WithoutATree(t *testing.T) {
	h := newGroupHouse(t)
	for err, want := range map[error]int16{
		registry.ErrConnectionLoss: kerr.RequestTimedOut.Code, registry.ErrFull: kerr.KafkaStorageError.Code, errors.New("what is this"): kerr.UnknownServerError.Code,
	} {
		h.api.Tree = brokenTree{h.api.Tree, err}
		same(t, "commit", h.oldCommit("g", "", 5, 6, 7), []int16{want, want, kerr.UnknownTopicOrPartition.Code})
		same(t, "fetch", h.oldFetch(0, "g", "t", 0, 7), []oldOffset{{want, -1}, {kerr.UnknownTopicOrPartition.Code, -1}})
	}
}
