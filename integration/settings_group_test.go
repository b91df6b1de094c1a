package integration

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"ottla/broker/registry"
	"ottla/compat"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinRequest joins a group of consumers; version 3 is not sent away to come back with a member id.
func joinRequest(group string, sessionMs int32) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = group, sessionMs, 60000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	req.Protocols = append(req.Protocols, p)
	return req
}

func (h *house) join(group string, sessionMs int32) *kmsg.JoinGroupResponse {
	h.Helper()
	return ask[*kmsg.JoinGroupResponse](h.wire, joinRequest(group, sessionMs), 3)
}

// commit commits offset 5 of partitions of a topic for a group without members.
func (h *house) commit(group, topic, metadata string, partitions int) int16 {
	h.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	for p := range int32(partitions) {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata = p, 5, &metadata
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.OffsetCommitResponse](h.wire, req, 7).Topics[0].Partitions[0].ErrorCode
}

func (h *house) committed(group, topic string) int64 {
	h.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	rt := kmsg.NewOffsetFetchRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.OffsetFetchResponse](h.wire, req, 7).Topics[0].Partitions[0].Offset
}

// coordinated waits until the broker coordinates the group.
func (h *house) coordinated(group string) {
	h.Helper()
	eventually(h, "a coordinator", patience, func() bool { return findCoordinator(h, 0, group) == 0 })
	eventually(h, "its group", patience, func() bool {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{group}
		return ask[*kmsg.DescribeGroupsResponse](h.wire, req, 4).Groups[0].ErrorCode == 0
	})
}

// few makes the topic of offsets small.
const few = "offsets.topic.num.partitions=1"

func seeInitialRebalanceDelay(t *testing.T) {
	h := open(t, few, "group.initial.rebalance.delay.ms=0")
	h.coordinated("g")
	equal(t, "join", h.join("g", 30000).ErrorCode, 0)
	h = open(t, few, "group.initial.rebalance.delay.ms=200")
	h.coordinated("g")
	begun := time.Now()
	equal(t, "join", h.join("g", 30000).ErrorCode, 0)
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("answered after %v", took)
	}
}

func seeSessionTimeouts(t *testing.T) {
	h := open(t, few, "group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000", "group.max.session.timeout.ms=2000")
	h.coordinated("g")
	for _, x := range []struct {
		ms   int32
		code int16
	}{{999, 26}, {1000, 0}, {2000, 0}, {2001, 26}} {
		equal(t, fmt.Sprintf("session timeout of %d ms", x.ms), h.join(fmt.Sprint("g", x.ms), x.ms).ErrorCode, x.code)
	}
}

func seeGroupMaxSize(t *testing.T) {
	h := open(t, few, "group.initial.rebalance.delay.ms=0", "group.max.size=1")
	h.coordinated("g")
	equal(t, "the first", h.join("g", 30000).ErrorCode, 0)
	equal(t, "the second", h.join("g", 30000).ErrorCode, 81)
}

func seeOffsetMetadata(t *testing.T) {
	h := open(t, few, "offset.metadata.max.bytes=10")
	h.topic("t")
	h.coordinated("g")
	equal(t, "10 letters", h.commit("g", "t", "0123456789", 1), 0)
	equal(t, "11 letters", h.commit("g", "t", "0123456789x", 1), 12)
}

func seeOffsetsRetention(t *testing.T) {
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	h := reopen(t, filepath.Join(t.TempDir(), "data"), now, few, "offsets.retention.minutes=1", "offsets.retention.check.interval.ms=10")
	defer h.shut()
	h.topic("t")
	h.coordinated("g")
	equal(t, "commit", h.commit("g", "t", "", 1), 0)
	equal(t, "offset", h.committed("g", "t"), 5)
	ahead.Store(int64(2 * time.Minute))
	eventually(t, "the offset is forgotten", patience, func() bool { return h.committed("g", "t") == -1 })
}

func seeOffsetsTopic(t *testing.T) {
	h := open(t, "offsets.topic.num.partitions=1", "offsets.topic.compression.codec=1")
	h.topic("t")
	h.coordinated("g")
	equal(t, "commit", h.commit("g", "t", "", 1), 0)
	equal(t, "partitions", len(h.metadata("__consumer_offsets").Topics[0].Partitions), 1)
	equal(t, "codec", record.Batch(h.fetchFrom("__consumer_offsets", 11).RecordBatches).Codec(), record.Gzip)

	h = open(t, "offsets.topic.num.partitions=3")
	h.coordinated("g")
	equal(t, "partitions", len(h.metadata("__consumer_offsets").Topics[0].Partitions), 3)

	h = open(t, few, "offsets.topic.segment.bytes=1048576")
	equal(t, "create", h.create("t", 50, 1), 0)
	h.coordinated("g")
	text := make([]byte, 4000)
	for i := range text {
		text[i] = byte('a' + rand.IntN(26))
	}
	for range 6 { // 200 KB each
		equal(t, "commit", h.commit("g", "t", string(text), 50), 0)
	}
	equal(t, "segments", len(h.files("__consumer_offsets", ".log")), 2)
}

// seeReplication has a second broker in the registry, for which the replicas of a coordinator's topic are made.
func seeReplication(t *testing.T, coordinator int8, topic, setting string) {
	for replicas := 1; replicas <= 2; replicas++ {
		dir := filepath.Join(t.TempDir(), "data")
		reopen(t, dir, nil).shut()
		tree, err := registry.OpenFile(filepath.Join(dir, "ottla.registry"))
		if err != nil {
			t.Fatal(err)
		}
		node := compat.BrokerNode{JMXPort: -1, Endpoints: []compat.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "localhost", Port: 1}}}
		if _, err := tree.Create(compat.PathBroker(2), node.Encode(), registry.Persistent); err != nil {
			t.Fatal(err)
		}
		if err := tree.Close(); err != nil {
			t.Fatal(err)
		}
		h := reopen(t, dir, nil, few, fmt.Sprintf("%s=%d", setting, replicas))
		findCoordinator(h, coordinator, "x")
		equal(t, "replicas", len(h.metadata(topic).Topics[0].Partitions[0].Replicas), replicas)
		h.shut()
	}
}

func findCoordinator(h *house, of int8, key string) int16 {
	h.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey = of, key
	return ask[*kmsg.FindCoordinatorResponse](h.wire, req, 2).ErrorCode
}
