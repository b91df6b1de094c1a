package api

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"ottla/broker/auth"
	"ottla/broker/metadata"
	"ottla/broker/quota"
	"ottla/broker/registry"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/protocol"
	"ottla/protocol/record"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupHouse is an API with a group coordinator whose log is in memory, and topic t of two
// partitions. Requests go through Peer.Handle as bytes.
type groupHouse struct {
	t    testing.TB
	api  *API
	peer *Peer
	logs *groupLogs
}

var groupTopicID = metadata.ID{1, 2, 3}

func newGroupHouse(t testing.TB) *groupHouse {
	t.Helper()
	meta := metadata.NewHolder()
	o := group.Defaults()
	o.InitialRebalanceDelay = 0
	h := &groupHouse{t: t, logs: &groupLogs{logs: map[int32][]record.Batch{}}}
	groups := group.New(group.Config{
		Store: h.logs, Topics: topicsInPicture{meta}, Options: func() *group.Options { return o }, Now: time.Now,
		Partitions: func() int32 {
			if topic := meta.Load().Topics[group.Topic]; topic != nil {
				return int32(len(topic.Partitions))
			}
			return 0
		},
	})
	t.Cleanup(groups.Close)
	txns := txn.New(txn.Config{
		Store: h.logs, Topics: topicsInPicture{meta}, Options: txn.Defaults, Now: time.Now,
		Partitions: func() int32 {
			if topic := meta.Load().Topics[txn.Topic]; topic != nil {
				return int32(len(topic.Partitions))
			}
			return 0
		},
	})
	t.Cleanup(txns.Close)
	tree := registry.OpenMemory()
	t.Cleanup(func() { tree.Close() })
	api := &API{Tree: tree, Logger: slog.New(slog.DiscardHandler), Now: time.Now, BrokerID: 1, Meta: meta, Groups: groups, Txns: txns, Enroller: txns,
		Authorizer: auth.AllowAll{}, Quota: quota.Unlimited{}, Metrics: NewMetrics(nil)}
	api.bind(routes())
	h.api = api
	addTopic(meta, "t", groupTopicID, 2)
	h.peer = api.Open(protocol.Conn{Listener: "PLAINTEXT", Local: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 9092},
		Remote: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5}})
	return h
}

// lead makes the internal topic and loads its shards.
func (h *groupHouse) lead() *groupHouse {
	if err := h.api.Groups.EnsureTopic(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	for p := range int32(50) {
		h.api.Groups.Led(p, 0)
	}
	for len(h.api.Groups.Unloaded(0)) > 0 {
		runtime.Gosched()
	}
	return h
}

func addTopic(meta *metadata.Holder, name string, id metadata.ID, partitions int) {
	pic := *meta.Load()
	topics, ids := map[string]*metadata.Topic{}, map[metadata.ID]*metadata.Topic{}
	for n, t := range pic.Topics {
		topics[n], ids[t.ID] = t, t
	}
	t := &metadata.Topic{Name: name, ID: id}
	for range partitions {
		t.Partitions = append(t.Partitions, metadata.Partition{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}})
	}
	topics[name], ids[id] = t, t
	pic.Topics, pic.ByID = topics, ids
	pic.Brokers = []metadata.Broker{{ID: 1, Endpoints: []metadata.Endpoint{{Listener: "PLAINTEXT", Port: 9092}}}}
	meta.Store(&pic)
}

type topicsInPicture struct{ meta *metadata.Holder }

func (m topicsInPicture) EnsureTopic(_ context.Context, name string, partitions int32, _ int16, _ map[string]string) error {
	addTopic(m.meta, name, metadata.ID{9}, int(partitions))
	return nil
}

// groupLogs is a coordinator.Store in memory.
type groupLogs struct {
	mu   sync.Mutex
	logs map[int32][]record.Batch
	err  error
}

func (s *groupLogs) Append(_ context.Context, shard, _ int32, data []byte) (int64, func(context.Context) error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, nil, s.err
	}
	b := record.Batch(data)
	if old := s.logs[shard]; len(old) > 0 {
		b.SetBaseOffset(old[len(old)-1].NextOffset())
	}
	s.logs[shard] = append(s.logs[shard], b)
	return b.BaseOffset(), nil, nil
}

func (s *groupLogs) Load(_ context.Context, shard, _ int32) iter.Seq2[[]byte, error] {
	s.mu.Lock()
	all := slices.Clone(s.logs[shard])
	s.mu.Unlock()
	return func(yield func([]byte, error) bool) {
		for _, b := range all {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// askGroups sends a request in a version and returns its answer.
func askGroups[S kmsg.Response](h *groupHouse, version int16, req kmsg.Request) S {
	h.t.Helper()
	req.SetVersion(version)
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("c"))
	frame := f.AppendRequest(nil, req, 77)[4:]
	reply, err := h.peer.Handle(h.t.Context(), frame)
	if err != nil {
		h.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	var got []byte
	for _, p := range reply.Answer.Parts {
		got = append(got, p.Bytes...)
	}
	if n := binary.BigEndian.Uint32(got); int(n) != len(got)-4 {
		h.t.Fatalf("frame of %d bytes says %d", len(got)-4, n)
	}
	got = got[8:]
	resp := req.ResponseKind()
	if req.IsFlexible() {
		got = got[1:]
	}
	if err := resp.ReadFrom(got); err != nil {
		h.t.Fatalf("%s v%d: answer: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	return resp.(S)
}

func same[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s: %s", what, d)
	}
}

func TestFindCoordinatorVersions(t *testing.T) {
	for version := range int16(7) {
		h := newGroupHouse(t)
		for _, kind := range []int8{0, 1, 2, 3} {
			if version == 0 && kind > 0 {
				continue
			}
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKey, req.CoordinatorKeys, req.CoordinatorType = "g", []string{"g", "h"}, kind
			resp := askGroups[*kmsg.FindCoordinatorResponse](h, version, req)
			codes := map[int8]int16{0: 0, 1: 0, 2: kerr.InvalidRequest.Code, 3: kerr.InvalidRequest.Code}
			if version < 4 {
				same(t, "error", resp.ErrorCode, codes[kind])
				if kind < 2 {
					same(t, "node", resp.NodeID, 1)
					same(t, "host by which the client came", resp.Host, "10.0.0.1")
					same(t, "port", resp.Port, 9092)
					if version > 0 {
						same(t, "message", *resp.ErrorMessage, "NONE")
					}
				} else {
					same(t, "node", resp.NodeID, -1)
					same(t, "port", resp.Port, -1)
				}
				continue
			}
			same(t, "keys", len(resp.Coordinators), 2)
			for i, c := range resp.Coordinators {
				same(t, "key", c.Key, req.CoordinatorKeys[i])
				same(t, "error", c.ErrorCode, codes[kind])
				same(t, "a message with an error alone", *c.ErrorMessage != "", kind > 1)
			}
		}
	}
}

// joinAndSync makes a group of one member, in every version of JoinGroup and SyncGroup.
func joinAndSync(h *groupHouse, version int16, id string) (member string, generation int32) {
	h.t.Helper()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = id, 10000, 20000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{0, 0, 0, 0, 0, 1, 0, 1, 't', 0xff, 0xff, 0xff, 0xff}
	join.Protocols = append(join.Protocols, p)
	jr := askGroups[*kmsg.JoinGroupResponse](h, version, join)
	if version >= 4 {
		same(h.t, "first join", jr.ErrorCode, kerr.MemberIDRequired.Code)
		same(h.t, "generation of an error", jr.Generation, -1)
		join.MemberID = jr.MemberID
		jr = askGroups[*kmsg.JoinGroupResponse](h, version, join)
	}
	same(h.t, "join", jr.ErrorCode, 0)
	same(h.t, "leader", jr.LeaderID, jr.MemberID)
	same(h.t, "protocol", *jr.Protocol, "range")
	same(h.t, "members", len(jr.Members), 1)
	same(h.t, "metadata", jr.Members[0].ProtocolMetadata, p.Metadata)
	if version >= 7 {
		same(h.t, "protocol type", *jr.ProtocolType, "consumer")
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = id, jr.MemberID, jr.Generation
	a := kmsg.NewSyncGroupRequestGroupAssignment()
	a.MemberID, a.MemberAssignment = jr.MemberID, []byte("all")
	sync.GroupAssignment = append(sync.GroupAssignment, a)
	syncVersion := min(version, 5)
	if syncVersion == 5 {
		bad := askGroups[*kmsg.SyncGroupResponse](h, 5, sync)
		same(h.t, "sync without a protocol", bad.ErrorCode, kerr.InconsistentGroupProtocol.Code)
		sync.ProtocolType, sync.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	}
	sr := askGroups[*kmsg.SyncGroupResponse](h, syncVersion, sync)
	same(h.t, "sync", sr.ErrorCode, 0)
	same(h.t, "assignment", string(sr.MemberAssignment), "all")
	return jr.MemberID, jr.Generation
}

func TestGroupOverTheWire(t *testing.T) {
	h := newGroupHouse(t).lead()
	for version := range int16(10) {
		id := "g" + string('0'+rune(version))
		member, generation := joinAndSync(h, version, id)

		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Group, beat.MemberID, beat.Generation = id, member, generation
		same(t, "heartbeat", askGroups[*kmsg.HeartbeatResponse](h, min(version, 4), beat).ErrorCode, 0)
		beat.Generation++
		same(t, "heartbeat of another generation", askGroups[*kmsg.HeartbeatResponse](h, min(version, 4), beat).ErrorCode, kerr.IllegalGeneration.Code)

		desc := kmsg.NewPtrDescribeGroupsRequest()
		desc.Groups, desc.IncludeAuthorizedOperations = []string{id, "none"}, true
		dv := min(version, 6)
		dr := askGroups[*kmsg.DescribeGroupsResponse](h, dv, desc)
		same(t, "state", dr.Groups[0].State, "Stable")
		same(t, "client host", dr.Groups[0].Members[0].ClientHost, "/127.0.0.1")
		same(t, "assignment", string(dr.Groups[0].Members[0].MemberAssignment), "all")
		same(t, "state of none", dr.Groups[1].State, "Dead")
		if dv >= 3 {
			same(t, "operations", dr.Groups[0].AuthorizedOperations, 3400)
		}
		if dv >= 6 {
			same(t, "error of none", dr.Groups[1].ErrorCode, kerr.GroupIDNotFound.Code)
			same(t, "its message", *dr.Groups[1].ErrorMessage, "Group none not found.")
		} else {
			same(t, "error of none", dr.Groups[1].ErrorCode, 0)
		}

		del := kmsg.NewPtrDeleteGroupsRequest()
		del.Groups = []string{id}
		same(t, "delete", askGroups[*kmsg.DeleteGroupsResponse](h, min(version, 3), del).Groups[0].ErrorCode, kerr.NonEmptyGroup.Code)

		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.MemberID = id, "wrong"
		for range 2 {
			m := kmsg.NewLeaveGroupRequestMember()
			m.MemberID = leave.MemberID
			leave.Members = []kmsg.LeaveGroupRequestMember{m}
			lr := askGroups[*kmsg.LeaveGroupResponse](h, min(version, 5), leave)
			got := lr.ErrorCode
			if version >= 3 {
				same(t, "error of all", lr.ErrorCode, 0)
				got = lr.Members[0].ErrorCode
			}
			if leave.MemberID == "wrong" {
				same(t, "leave of a stranger", got, kerr.UnknownMemberID.Code)
			} else {
				same(t, "leave", got, 0)
			}
			leave.MemberID = member
		}
		list := kmsg.NewPtrListGroupsRequest()
		lr := askGroups[*kmsg.ListGroupsResponse](h, min(version, 5), list)
		i := slices.IndexFunc(lr.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return g.Group == id })
		same(t, "protocol type", lr.Groups[i].ProtocolType, "consumer")
		if version >= 4 {
			same(t, "state", lr.Groups[i].GroupState, "Empty")
		}
		if version >= 5 {
			same(t, "type", lr.Groups[i].GroupType, "classic")
		}
		same(t, "delete", askGroups[*kmsg.DeleteGroupsResponse](h, min(version, 3), del).Groups[0].ErrorCode, 0)
	}
}

// offsetsOverTheWire commits partition 0, an unknown partition and an unknown topic.
func TestOffsetsOverTheWire(t *testing.T) { // group-13
	h := newGroupHouse(t).lead()
	for version := range int16(11) {
		id := "o" + string('a'+rune(version))
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group = id
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic, topic.TopicID = "t", groupTopicID
		for n, offset := range []int64{5, -1, 6} {
			if offset < 0 {
				continue
			}
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = int32(n), offset, 3, kmsg.StringPtr("m")
			topic.Partitions = append(topic.Partitions, p)
		}
		missing := topic
		missing.Topic, missing.TopicID = "missing", [16]byte{8}
		req.Topics = append(req.Topics, topic, missing)
		resp := askGroups[*kmsg.OffsetCommitResponse](h, version, req)
		same(t, "partition that exists", resp.Topics[0].Partitions[0].ErrorCode, 0)
		same(t, "one that does not", resp.Topics[0].Partitions[1].ErrorCode, kerr.UnknownTopicOrPartition.Code)
		unknown := kerr.UnknownTopicOrPartition.Code
		if version >= 10 {
			unknown = kerr.UnknownTopicID.Code
			same(t, "topic id", resp.Topics[0].TopicID, [16]byte(groupTopicID))
		}
		same(t, "topic that does not exist", resp.Topics[1].Partitions[0].ErrorCode, unknown)

		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Group = id
		ft := kmsg.NewOffsetFetchRequestTopic()
		ft.Topic, ft.Partitions = "t", []int32{0, 1}
		fetch.Topics = append(fetch.Topics, ft)
		fg := kmsg.NewOffsetFetchRequestGroup()
		fg.Group = id
		fgt := kmsg.NewOffsetFetchRequestGroupTopic()
		fgt.Topic, fgt.TopicID, fgt.Partitions = "t", groupTopicID, []int32{0, 1}
		fgm := fgt
		fgm.Topic, fgm.TopicID = "missing", [16]byte{8}
		fg.Topics = append(fg.Topics, fgt, fgm)
		every := kmsg.NewOffsetFetchRequestGroup()
		every.Group = id
		fetch.Groups = append(fetch.Groups, fg, every)
		fr := askGroups[*kmsg.OffsetFetchResponse](h, version, fetch)
		if version < 8 {
			ps := fr.Topics[0].Partitions
			same(t, "offset", ps[0].Offset, 5)
			same(t, "metadata", *ps[0].Metadata, map[bool]string{true: "m", false: ""}[version > 0])
			same(t, "none", ps[1].Offset, -1)
			none := int16(0)
			if version == 0 {
				none = kerr.UnknownTopicOrPartition.Code
			}
			same(t, "error of none", ps[1].ErrorCode, none)
			if version >= 5 {
				same(t, "leader epoch", ps[0].LeaderEpoch, map[bool]int32{true: 3, false: -1}[version >= 6])
			}
			if version >= 2 {
				fetch.Topics = nil
				all := askGroups[*kmsg.OffsetFetchResponse](h, version, fetch)
				same(t, "all topics", len(all.Topics), 1)
				same(t, "all partitions", len(all.Topics[0].Partitions), 1)
				fetch.Group = "nobody"
				same(t, "all topics of an unknown group", len(askGroups[*kmsg.OffsetFetchResponse](h, version, fetch).Topics), 0)
			}
			continue
		}
		same(t, "groups", len(fr.Groups), 2)
		same(t, "offset", fr.Groups[0].Topics[0].Partitions[0].Offset, 5)
		same(t, "none", fr.Groups[0].Topics[0].Partitions[1].Offset, -1)
		same(t, "offset of a topic that does not exist", fr.Groups[0].Topics[1].Partitions[0].Offset, -1)
		if version >= 10 {
			same(t, "its error", fr.Groups[0].Topics[1].Partitions[0].ErrorCode, kerr.UnknownTopicID.Code)
			same(t, "topic id", fr.Groups[1].Topics[0].TopicID, [16]byte(groupTopicID))
		}
		same(t, "all", fr.Groups[1].Topics[0].Partitions[0].Offset, 5)
	}
}

func TestOffsetsOfAGroupThatIsElsewhere(t *testing.T) {
	h := newGroupHouse(t) // nothing is led
	for version := int16(1); version < 11; version++ {
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Group = "g"
		ft := kmsg.NewOffsetFetchRequestTopic()
		ft.Topic, ft.Partitions = "t", []int32{0}
		fetch.Topics = append(fetch.Topics, ft)
		fg := kmsg.NewOffsetFetchRequestGroup()
		fg.Group = "g"
		fetch.Groups = append(fetch.Groups, fg)
		fr := askGroups[*kmsg.OffsetFetchResponse](h, version, fetch)
		got := fr.ErrorCode
		switch {
		case version < 2:
			got = fr.Topics[0].Partitions[0].ErrorCode
		case version >= 8:
			got = fr.Groups[0].ErrorCode
		}
		same(t, "error", got, kerr.NotCoordinator.Code)
	}
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group = "g"
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "t"
	topic.Partitions = append(topic.Partitions, kmsg.NewOffsetCommitRequestTopicPartition())
	commit.Topics = append(commit.Topics, topic)
	same(t, "commit", askGroups[*kmsg.OffsetCommitResponse](h, 8, commit).Topics[0].Partitions[0].ErrorCode, kerr.NotCoordinator.Code)
	h.lead()
	h.logs.err = errors.New("what is this")
	same(t, "commit that fails for no known reason", askGroups[*kmsg.OffsetCommitResponse](h, 8, commit).Topics[0].Partitions[0].ErrorCode, kerr.UnknownServerError.Code)
}

func TestOffsetDeleteOverTheWire(t *testing.T) {
	h := newGroupHouse(t).lead()
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = "g"
	topic := kmsg.NewOffsetDeleteRequestTopic()
	topic.Topic = "t"
	for _, n := range []int32{0, 7} {
		p := kmsg.NewOffsetDeleteRequestTopicPartition()
		p.Partition = n
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	same(t, "unknown group", askGroups[*kmsg.OffsetDeleteResponse](h, 0, req).ErrorCode, kerr.GroupIDNotFound.Code)
	member, generation := joinAndSync(h, 9, "g")
	resp := askGroups[*kmsg.OffsetDeleteResponse](h, 0, req)
	same(t, "subscribed", resp.Topics[0].Partitions[0].ErrorCode, kerr.GroupSubscribedToTopic.Code)
	same(t, "no such partition", resp.Topics[0].Partitions[1].ErrorCode, kerr.UnknownTopicOrPartition.Code)
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = "g", member
	askGroups[*kmsg.LeaveGroupResponse](h, 0, leave)
	resp = askGroups[*kmsg.OffsetDeleteResponse](h, 0, req)
	same(t, "nobody reads it", resp.Topics[0].Partitions[0].ErrorCode, 0)
	same(t, "generation", generation, 1)
}

func TestJavaHost(t *testing.T) {
	for addr, host := range map[string]string{
		"127.0.0.1:1": "/127.0.0.1", "[::1]:1": "/0:0:0:0:0:0:0:1", "[::ffff:10.0.0.1]:1": "/10.0.0.1", "[fe80::1:ab]:1": "/fe80:0:0:0:0:0:1:ab",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		same(t, addr, javaHost(a), host)
	}
	same(t, "no address", javaHost(nil), "/")
	same(t, "a pipe", javaHost(&net.UnixAddr{Name: "pipe"}), "/pipe")
}
