package integration

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var storePitfalls = []pitfall{
	{"store-1", killAndDamage}, {"store-2", dedupAcrossRestarts}, {"store-3", retentionByTimestamps},
	{"store-4", tombstonesStay}, {"store-5", topicRecreated}, {"store-6", fetchFromAHole}, {"store-7", minimumInSync},
}

func killAndDamage(p *pit) {
	b := p.process()
	w := dialWire(p, b.Addr())
	topic, _ := p.topic(w, 1, "index.interval.bytes", "200", "segment.bytes", "1048576")
	busy, _ := p.topic(w, 1)
	const n = 60
	base := time.Now().UnixMilli() - 100000
	at := func(i int) int64 { return base + int64(i)*10 }
	value := make([]byte, 30<<10) // two segments
	for i := range n {
		w.stored(topic, newBatch(nil, sample{value: value, at: at(i)}))
	}

	ctx, stop := context.WithCancel(p.Context())
	defer stop()
	var load sync.WaitGroup
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.DefaultProduceTopic(busy), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	if err != nil {
		p.Fatal(err)
	}
	first := make(chan struct{})
	load.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_ = cl.ProduceSync(ctx, kgo.SliceRecord(make([]byte, 500))) // fails when the broker is killed, as it should
			if i == 20 {
				close(first)
			}
		}
	})
	select {
	case <-first:
	case <-time.After(patience):
		p.Fatal("no load after all that time")
	}
	b.Kill()
	stop()
	load.Wait()
	cl.Close()

	dir := filepath.Join(b.Dir(), topic+"-0")
	var last string
	entries, err := os.ReadDir(dir)
	if err != nil {
		p.Fatal(err)
	}
	segments := 0
	for _, e := range entries { // ascending, so the last segment comes last
		path := filepath.Join(dir, e.Name())
		switch filepath.Ext(path) {
		case ".log":
			last = path
			segments++
		case ".index", ".timeindex":
			info, err := e.Info()
			if err != nil {
				p.Fatal(err)
			}
			junk := make([]byte, info.Size())
			_, _ = rand.Read(junk)
			if err := os.WriteFile(path, junk, 0o644); err != nil {
				p.Fatal(err)
			}
		}
	}
	equal(p, "there are several segments", segments > 1, true)
	info, err := os.Stat(last)
	if err != nil {
		p.Fatal(err)
	}
	if err := os.Truncate(last, info.Size()-10); err != nil {
		p.Fatal(err)
	}
	b.Start()

	w = dialWire(p, b.Addr())
	equal(p, "log end", w.end(topic), n-1)
	for i, r := range consume(p, b.Addr(), topic, n-1) {
		equal(p, "offset", r.Offset, int64(i))
		equal(p, "timestamp", r.Timestamp.UnixMilli(), at(i))
		equal(p, "bytes", len(r.Value), len(value))
		equal(p, "look-up by time", w.list(topic, at(i)-5, 0, 7), spot{0, int64(i), at(i)})
		equal(p, "first offset of a fetch", batchesIn(p, w.fetch(topic, int64(i), 0).RecordBatches)[0].FirstOffset, int64(i))
	}
	next := w.produce(topic, newBatch(nil, values("x")...))
	equal(p, "error of Produce after it", next.ErrorCode, 0)
	equal(p, "offset of Produce after it", next.BaseOffset, n-1)
}

func dedupAcrossRestarts(p *pit) {
	restarts := func(restart func(*Broker)) func(*pit) {
		return func(p *pit) {
			b := p.process()
			w := dialWire(p, b.Addr())
			topic, _ := p.topic(w, 1)
			id, epoch := w.producerID()
			send := func(sequence int32) kmsg.ProduceResponseTopicPartition {
				p.Helper()
				return w.produce(topic, newBatch(from(id, epoch, sequence), sample{value: []byte{byte(sequence)}}))
			}
			for sequence := range int32(5) {
				equal(p, "error", send(sequence).ErrorCode, 0)
			}
			restart(b)
			w = dialWire(p, b.Addr())
			again := send(4)
			equal(p, "error of the resend", again.ErrorCode, 0)
			equal(p, "offset of the resend", again.BaseOffset, 4)
			equal(p, "log end after it", w.end(topic), 5)
			equal(p, "error of a gap", send(6).ErrorCode, 45)
			next := send(5)
			equal(p, "error of the next", next.ErrorCode, 0)
			equal(p, "offset of the next", next.BaseOffset, 5)
			fresh, _ := w.producerID()
			equal(p, "the id is given out again", fresh == id, false)
		}
	}
	p.part("stop", restarts(func(b *Broker) { b.Stop(); b.Start() }))
	p.part("kill -9", restarts((*Broker).Restart))
}

func retentionByTimestamps(p *pit) {
	w := p.dial("log.retention.check.interval.ms=20", "log.initial.task.delay.ms=0")
	now := time.Now().UnixMilli()
	settings := []string{"retention.ms", "60000", "segment.bytes", "1048576"}
	seconds, _ := p.topic(w, 1, settings...)
	ahead, _ := p.topic(w, 1, append(settings, "message.timestamp.after.max.ms", "9223372036854775807")...)
	fresh, _ := p.topic(w, 1, settings...)
	large := func(at int64) []byte { return newBatch(nil, sample{value: make([]byte, 600<<10), at: at}) }
	w.stored(ahead, large(now+3*365*24*3600*1000), large(now/1000), large(now/1000))
	w.stored(fresh, newBatch(nil, sample{at: now / 1000}, sample{at: now}))
	w.stored(seconds, large(now/1000), large(now/1000), large(now/1000))
	eventually(p, "records stamped in seconds are removed", patience, func() bool { return w.start(seconds) == 3 })
	equal(p, "log end", w.end(seconds), 3)
	equal(p, "offset after the removal", w.produce(seconds, newBatch(nil, sample{at: now / 1000})).BaseOffset, 3)
	eventually(p, "that one is removed", patience, func() bool { return w.start(seconds) == 4 })
	// Between two further removals lies a whole round of checks over all topics.
	for end := int64(5); end <= 6; end++ {
		w.stored(seconds, newBatch(nil, sample{at: now / 1000}))
		eventually(p, "the next is removed too", patience, func() bool { return w.start(seconds) == end })
	}
	equal(p, "log start of records stamped ahead", w.start(ahead), 0)
	equal(p, "log start with one fresh record in the segment", w.start(fresh), 0)
}

func topicRecreated(p *pit) {
	w := p.dial()
	topic, id := p.topic(w, 1)
	producer, epoch := w.producerID()
	send := func(sequence int32) kmsg.ProduceResponseTopicPartition {
		p.Helper()
		return w.produce(topic, newBatch(from(producer, epoch, sequence), sample{value: []byte{byte(sequence)}}))
	}
	for sequence := range int32(3) {
		equal(p, "error", send(sequence).ErrorCode, 0)
	}
	equal(p, "error of DeleteTopics", w.deleteTopic(topic), 0)
	again := w.createTopic(topic, 1, 1, false, 7)
	equal(p, "error of CreateTopics", again.ErrorCode, 0)
	equal(p, "the topic id is the old one", again.TopicID == id, false)
	equal(p, "topic id in Metadata", w.metadata(topic).Topics[0].TopicID, again.TopicID)
	equal(p, "log end of the new topic", w.end(topic), 0)
	next := send(3)
	equal(p, "error of the next sequence", next.ErrorCode, 0)
	equal(p, "offset of the next sequence", next.BaseOffset, 0)
	equal(p, "error of a gap after it", send(5).ErrorCode, 45)
	for v := int16(13); v <= 18; v++ {
		got := ask[*kmsg.FetchResponse](w, fetchOf(topic, id, 0), v).Topics[0]
		equal(p, "error of a fetch by the old id", got.Partitions[0].ErrorCode, 100)
		equal(p, "id in its answer", got.TopicID, id)
	}
}

// minimumInSync is the part of one broker: the minimum counts at most the replicas that there are.
func minimumInSync(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1, "min.insync.replicas", "2")
	got := w.produce(topic, newBatch(nil, values("x")...))
	equal(p, "error", got.ErrorCode, 0)
	equal(p, "offset", got.BaseOffset, 0)
	equal(p, "high watermark", w.end(topic), 1)
	equal(p, "high watermark told by Fetch", w.fetch(topic, 0, 0).HighWatermark, 1)
}

// drained reads what a topic has from an offset on, fetch by fetch, as a consumer with the isolation level.
func (w *wire) drained(topic string, offset int64, isolation int8) (all []*kgo.Record) {
	w.Helper()
	end := w.list(topic, -1, isolation, 7).offset
	for offset < end {
		raw := w.fetch(topic, offset, isolation).RecordBatches
		batchesIn(w, raw) // their checksums
		before := offset
		for b := range record.All(raw) {
			for r, err := range record.Records(b, 0) {
				if err != nil {
					w.Fatal(err)
				}
				if r.Offset >= offset {
					all = append(all, &kgo.Record{Offset: r.Offset, Key: r.Key, Value: r.Value})
				}
			}
			offset = b.NextOffset()
		}
		if offset == before {
			break
		}
	}
	return all
}

// shapeOf says what records are there.
func shapeOf(all []*kgo.Record) string {
	var s []string
	for _, r := range all {
		s = append(s, fmt.Sprintf("%d %s=%s", r.Offset, r.Key, r.Value))
	}
	return strings.Join(s, ", ")
}

const cleanedAtOnce = "log.cleaner.backoff.ms=1"

// closeSegment appends a filler that begins a segment.
func closeSegment(w *wire, topic string) {
	w.stored(topic, newBatch(nil, sample{key: []byte("filler"), value: make([]byte, 600<<10)}))
}

func tombstonesStay(p *pit) {
	w := p.dial(cleanedAtOnce)
	topic, _ := p.topic(w, 1, "cleanup.policy", "compact", "delete.retention.ms", "1500", "min.cleanable.dirty.ratio", "0.01", "segment.bytes", "1048576")
	key := func(k string, v []byte) []byte { return newBatch(nil, sample{key: []byte(k), value: v}) }
	w.stored(topic, key("k", []byte("v")), key("k", nil), key("a", []byte("1")), key("b", []byte("2")))
	equal(p, "error of a record without key", w.produce(topic, newBatch(nil, values("x")...)).ErrorCode, 87)
	has := func(offset int64) bool {
		all := w.drained(topic, 0, 0)
		return len(all) > 0 && all[0].Offset == offset
	}
	closeSegment(w, topic)
	closeSegment(w, topic)
	eventually(p, "the old value is removed", patience, func() bool { return !has(0) })
	first := time.Now()
	equal(p, "the tombstone is there", has(1), true)
	eventually(p, "the tombstone is removed", patience, func() bool { closeSegment(w, topic); return !has(1) })
	if d := time.Since(first); d < 1300*time.Millisecond {
		p.Errorf("the tombstone is gone after %v", d)
	}
	equal(p, "first survivors", shapeOf(w.drained(topic, 0, 0)[:2]), "2 a=1, 3 b=2")
	equal(p, "log start", w.start(topic), 0)
}

func fetchFromAHole(p *pit) {
	w := p.dial(cleanedAtOnce)
	topic, _ := p.topic(w, 1, "cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01", "segment.bytes", "1048576")
	for i := range 4 {
		for _, k := range []string{"a", "b"} {
			w.stored(topic, newBatch(nil, sample{key: []byte(k), value: fmt.Append(nil, k, i)}))
		}
	}
	closeSegment(w, topic)
	closeSegment(w, topic)
	eventually(p, "offsets 0 to 5 are removed", patience, func() bool { return w.drained(topic, 0, 0)[0].Offset == 6 })
	for from := range int64(7) {
		equal(p, fmt.Sprintf("first records from %d", from), shapeOf(w.drained(topic, from, 0)[:2]), "6 a=a3, 7 b=b3")
	}
	equal(p, "log start", w.start(topic), 0)
}
