package integration

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestOffsetsOfVersion0: what OffsetCommit v0 has kept is there after kill -9, apart from the offsets of later
// versions.
func TestOffsetsOfVersion0(t *testing.T) {
	t.Parallel()
	b := Start(t)
	if b.External() {
		t.Skip("Kafka does not serve it without a ZooKeeper")
	}
	w := dialWire(t, b.Addr())
	equal(t, "create", w.createTopic("t", 2, 1, false, 5).ErrorCode, 0)
	commit := func(version int16, offset int64) int16 {
		return w.commit(version, "g", -1, "", nil, "t", offset)[0]
	}
	fetched := func(version int16, partition int32) [2]int64 {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = "g"
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = "t", []int32{partition}
		req.Topics = append(req.Topics, rt)
		p := ask[*kmsg.OffsetFetchResponse](w, req, version).Topics[0].Partitions[0]
		return [2]int64{p.Offset, int64(p.ErrorCode)}
	}
	equal(t, "commit of version 0", commit(0, 7), int16(0))
	equal(t, "another", commit(0, 8), 0)
	w.coordinator("g", 0)
	equal(t, "commit of version 1", commit(1, 9), 0)
	for range 2 {
		equal(t, "version 0", fetched(0, 0), [2]int64{8, 0})
		equal(t, "version 0, nothing", fetched(0, 1), [2]int64{-1, int64(kerr.UnknownTopicOrPartition.Code)})
		equal(t, "version 1", fetched(1, 0), [2]int64{9, 0})
		equal(t, "version 1, nothing", fetched(1, 1), [2]int64{-1, 0})
		b.Restart()
		w = dialWire(t, b.Addr())
		w.coordinator("g", 0)
	}
}
