package integration

import (
	"fmt"
	"path/filepath"
	"testing"
)

const cleanedFile = "cleaner-offset-checkpoint"

// TestInternalTopicsAreCompacted: what the coordinators wrote is compacted like any topic, and they load it
// afterwards as if nothing had been.
func TestInternalTopicsAreCompacted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	settings := []string{few, "transaction.state.log.num.partitions=1", "log.cleaner.backoff.ms=1", "log.cleaner.min.cleanable.ratio=0", "log.segment.delete.delay.ms=0"}
	h := reopen(t, dir, nil, settings...)
	equal(t, "create", h.create("t", 50, 1), 0)
	h.coordinated("g")
	h.transactional()
	const id = "some transactions"
	first := h.initProducer(id, 60000)
	equal(t, "producer", first.ErrorCode, 0)
	for _, topic := range []string{"__consumer_offsets", "__transaction_state"} {
		h.alter(forTopic, topic, "internal.segment.bytes=8000")
	}
	epoch := first.ProducerEpoch
	for i := range 5 {
		equal(t, "commit", h.commit("g", "t", fmt.Sprint("metadata ", i), 50), 0)
	}
	h.alter(forTopic, "__transaction_state", "internal.segment.bytes=200")
	for range 5 {
		p := h.initProducer(id, 60000)
		equal(t, "producer", p.ErrorCode, 0)
		equal(t, "epoch", p.ProducerEpoch, epoch+1)
		epoch = p.ProducerEpoch
	}
	for topic, at := range map[string]int64{"__consumer_offsets": 100, "__transaction_state": 5} {
		eventually(t, topic+" is compacted", patience, func() bool { return h.checkpoint(cleanedFile, topic) >= at })
	}
	if b := h.batchAt("__consumer_offsets", 0); b == nil || b.FirstOffset < 50 {
		t.Errorf("the first commits are there: %+v", b)
	}
	h.shut()
	h = reopen(t, dir, nil, settings...)
	defer h.shut()
	h.coordinated("g")
	h.transactional()
	equal(t, "committed offset", h.committed("g", "t"), 5)
	p := h.initProducer(id, 60000)
	equal(t, "producer after it", p.ErrorCode, 0)
	equal(t, "its id", p.ProducerID, first.ProducerID)
	equal(t, "its epoch", p.ProducerEpoch, epoch+1)
	eventually(t, "nothing is left of cleaning", patience, func() bool { return len(h.files("__consumer_offsets", ".cleaned")) == 0 })
}
