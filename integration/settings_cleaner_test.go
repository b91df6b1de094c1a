package integration

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// cleaning has the cleaner work all the time, and compacted a topic whose batches have a segment each.
var (
	cleaning  = []string{"log.cleaner.backoff.ms=1"}
	separate  = []string{"cleanup.policy=compact", "internal.segment.bytes=80"}
	compacted = append([]string{"min.cleanable.dirty.ratio=0"}, separate...)
)

// put appends records of one key each; with "" as the value they are tombstones.
func (h *house) put(topic string, keyvalues ...string) {
	h.Helper()
	for i := 0; i < len(keyvalues); i += 2 {
		s := sample{key: []byte(keyvalues[i])}
		if v := keyvalues[i+1]; v != "" {
			s.value = []byte(v)
		}
		h.store(topic, newBatch(nil, s))
	}
}

// batchAt is the first batch at or after an offset, nil if there is none.
func (h *house) batchAt(topic string, offset int64) *kmsg.RecordBatch {
	h.Helper()
	req := fetchRequest(topic, 1)
	req.Topics[0].Partitions[0].FetchOffset = offset
	all := batchesIn(h, ask[*kmsg.FetchResponse](h.wire, req, 11).Topics[0].Partitions[0].RecordBatches)
	if len(all) == 0 {
		return nil
	}
	return &all[0]
}

// has says whether a topic has the record with an offset. Each batch had one.
func (h *house) has(topic string, offset int64) bool {
	h.Helper()
	b := h.batchAt(topic, offset)
	return b != nil && b.FirstOffset == offset && b.NumRecords > 0
}

// cleanRound waits until the cleaner has looked at all topics once, and cleaned those that are dirty: then it
// deletes old records of topics that are compacted.
func (h *house) cleanRound() {
	h.Helper()
	topic := fresh("clean-round")
	h.topic(topic, "cleanup.policy=compact,delete", "retention.ms=1", "min.cleanable.dirty.ratio=1")
	for next := range int64(2) { // between the two there is a whole round
		h.store(topic, newBatch(nil, sample{key: []byte("a"), at: 1000}))
		eventually(h, "old records are deleted", patience, func() bool { return h.start(topic) == next+1 })
	}
}

// compactedNow sees whether a record goes for which there is a later one, some milliseconds later.
func compactedNow(h *house, topic string) bool {
	h.put(topic, "a", "1", "a", "2", "b", "1")
	begun := nowMs()
	eventually(h, "the clock goes on", patience, func() bool { return nowMs() > begun+2 })
	h.put(topic, "b", "1")
	h.cleanRound()
	return !h.has(topic, 0)
}

// compactedAgain sees whether a small part of a log being dirty is enough. By default half of it has to be:
// the log is brought to where it has just been cleaned.
func compactedAgain(h *house, topic string) bool {
	const n = 16
	for i := range n {
		h.put(topic, fmt.Sprint(i), "1")
	}
	next := int64(n)
	for next < n+2 || h.has(topic, n) {
		h.put(topic, "mark", "1")
		h.cleanRound()
		next++
	}
	h.put(topic, "a", "1", "a", "2", "b", "1")
	h.cleanRound()
	return !h.has(topic, next)
}

func tombstoneGone(h *house, topic string) bool {
	h.put(topic, "a", "1", "a", "", "b", "1")
	eventually(h, "the topic is compacted", patience, func() bool { return !h.has(topic, 0) })
	for range 2 {
		h.put(topic, "b", "2", "c", "1", "d", "1", "e", "1", "f", "1", "b", "3", "c", "2", "d", "2", "e", "2", "f", "2")
		h.cleanRound()
	}
	return !h.has(topic, 1)
}

// seeCleanerStart sees a topic compacted by a broker that was started with on, and not with off.
func seeCleanerStart(t *testing.T, setting, on, off string) {
	for _, value := range []string{on, off} {
		h := open(t, append(append([]string{setting + "=" + value}, cleaning...), tasks...)...)
		h.topic("t", compacted...)
		h.put("t", "a", "1", "a", "2", "b", "1")
		if value == on {
			eventually(t, "the topic is compacted", patience, func() bool { return !h.has("t", 0) })
			continue
		}
		h.round()
		equal(t, "the record is there", h.has("t", 0), true)
	}
}

// seeCleaner sees a setting of the cleaner keep a topic from being compacted, until it is changed.
func seeCleaner(t *testing.T, setting, never, again string) {
	for _, broker := range []string{"", "1"} {
		settings := append([]string{setting + "=" + never}, tasks...)
		if setting != "log.cleaner.backoff.ms" {
			settings = append(settings, cleaning...)
		}
		h := open(t, settings...)
		h.topic("t", compacted...)
		h.put("t", "a", "1", "a", "2", "b", "1")
		h.round()
		equal(t, "the record is there", h.has("t", 0), true)
		h.alter(forBroker, broker, setting+"="+again)
		eventually(t, "the topic is compacted", patience, func() bool { return !h.has("t", 0) })
	}
}
