package integration

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var offsetPitfalls = []pitfall{
	{"offs-1", timeBetweenRecords}, {"offs-2", timeAfterTheLast}, {"offs-3", offsetsUnderIsolation},
	{"offs-4", maxTimestamp}, {"offs-5", tieredOffsets}, {"offs-6", timesGoBackwards},
}

var metadataPitfalls = []pitfall{{"meta-1", nullAndEmptyTopics}, {"meta-2", lookUpCreates}, {"meta-3", useAfterCreation}}

// layout is how records lie in the log: each in a batch of its own, or all in one.
type layout struct {
	edit  func(*kmsg.RecordBatch)
	apart bool
}

var layouts = []layout{{nil, true}, {nil, false}, {gzipped, true}, {gzipped, false}}

func (w *wire) timed(topic string, l layout, times ...int64) {
	w.Helper()
	var all []sample
	for _, at := range times {
		if l.apart {
			w.stored(topic, newBatch(l.edit, sample{value: []byte("v"), at: at}))
		}
		all = append(all, sample{value: []byte("v"), at: at})
	}
	if !l.apart {
		w.stored(topic, newBatch(l.edit, all...))
	}
}

// listVersions calls f with each announced version of ListOffsets from a version on.
func (w *wire) listVersions(from int16, f func(v int16)) {
	w.Helper()
	low, high := w.announced(kmsg.ListOffsets)
	for v := max(low, from); v <= high; v++ {
		f(v)
	}
}

func timeBetweenRecords(p *pit) {
	w := p.dial()
	for _, l := range layouts {
		topic, _ := p.topic(w, 1, "retention.ms", "-1")
		w.timed(topic, l, 2, 4, 6, 8)
		w.listVersions(1, func(v int16) {
			for at, offset := range map[int64]int64{1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 7: 3, 8: 3} {
				equal(p, fmt.Sprintf("v%d at %d", v, at), w.list(topic, at, 0, v), spot{0, offset, offset*2 + 2})
			}
			equal(p, "end", w.list(topic, -1, 0, v), spot{0, 4, -1})
			equal(p, "start", w.list(topic, -2, 0, v), spot{0, 0, -1})
		})
	}
}

func timeAfterTheLast(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1, "retention.ms", "-1")
	later := time.Now().Add(time.Hour).UnixMilli()
	w.listVersions(1, func(v int16) { equal(p, "on an empty log", w.list(topic, 1, 0, v), spot{0, -1, -1}) })
	w.timed(topic, layout{apart: true}, 2, 4)
	w.listVersions(1, func(v int16) {
		equal(p, "just after", w.list(topic, 5, 0, v), spot{0, -1, -1})
		equal(p, "long after", w.list(topic, later, 0, v), spot{0, -1, -1})
	})
}

func offsetsUnderIsolation(p *pit) {
	p.needsTransactions()
	w := p.dial()
	topic, _ := p.topic(w, 1, "retention.ms", "-1")
	w.timed(topic, layout{apart: true}, 1000, 1001, 1002, 1003, 1004)
	txn := p.txnWriter(topic)
	equal(p, "offset of the open record", txn.add(sample{value: []byte("open"), at: 2000}), 5)
	w.timed(topic, layout{apart: true}, 3000)
	w.listVersions(2, func(v int16) {
		equal(p, "end, committed", w.list(topic, -1, 1, v), spot{0, 5, -1})
		equal(p, "end, uncommitted", w.list(topic, -1, 0, v), spot{0, 7, -1})
		equal(p, "time of the open record, committed", w.list(topic, 2000, 1, v), spot{0, -1, -1})
		equal(p, "time of the open record, uncommitted", w.list(topic, 2000, 0, v), spot{0, 5, 2000})
		equal(p, "time of a record before, committed", w.list(topic, 1004, 1, v), spot{0, 4, 1004})
	})
	txn.finish(true)
}

func maxTimestamp(p *pit) {
	w := p.dial()
	for _, l := range layouts {
		topic, _ := p.topic(w, 1, "retention.ms", "-1")
		w.listVersions(7, func(v int16) { equal(p, "on an empty log", w.list(topic, -3, 0, v), spot{0, -1, -1}) })
		w.timed(topic, l, 5, 9, 7)
		w.listVersions(7, func(v int16) { equal(p, fmt.Sprintf("v%d", v), w.list(topic, -3, 0, v), spot{0, 1, 9}) })
	}
}

func tieredOffsets(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1)
	for range 3 {
		w.stored(topic, newBatch(nil, values("v")...))
	}
	w.listVersions(8, func(v int16) { equal(p, "earliest local", w.list(topic, -4, 0, v), spot{0, 0, -1}) })
	w.listVersions(9, func(v int16) { equal(p, "latest tiered", w.list(topic, -5, 0, v), spot{0, -1, -1}) })
	w.listVersions(11, func(v int16) { equal(p, "earliest to be tiered", w.list(topic, -6, 0, v), spot{0, -1, -1}) })
	for at, since := range map[int64]int16{-3: 7, -4: 8, -5: 9, -6: 11, -7: 99} {
		w.listVersions(1, func(v int16) {
			if v < since {
				equal(p, fmt.Sprintf("%d in v%d", at, v), w.list(topic, at, 0, v), spot{35, -1, -1})
			}
		})
	}
}

func timesGoBackwards(p *pit) {
	look := func(p *pit, addr, topic string) {
		w := dialWire(p, addr)
		w.listVersions(7, func(v int16) {
			equal(p, "60", w.list(topic, 60, 0, v), spot{0, 0, 100})
			equal(p, "10", w.list(topic, 10, 0, v), spot{0, 0, 100})
			equal(p, "101", w.list(topic, 101, 0, v), spot{0, -1, -1})
			equal(p, "-3", w.list(topic, -3, 0, v), spot{0, 0, 100})
		})
	}
	p.part("in one segment", func(p *pit) {
		w := p.dial()
		topic, _ := p.topic(w, 1, "retention.ms", "-1")
		w.timed(topic, layout{apart: true}, 100, 50, 99, 10)
		look(p, p.broker(), topic)
	})
	p.part("in several segments", func(p *pit) {
		w := p.dial()
		topic, _ := p.topic(w, 1, "retention.ms", "-1", "segment.bytes", "1048576")
		for _, at := range []int64{100, 50, 99, 10} {
			w.stored(topic, newBatch(nil, sample{value: make([]byte, 600<<10), at: at}))
		}
		look(p, p.broker(), topic)
	})
	p.part("after kill -9 and a stop", func(p *pit) {
		b := p.process()
		w := dialWire(p, b.Addr())
		topic, _ := p.topic(w, 1, "retention.ms", "-1")
		w.timed(topic, layout{apart: true}, 100, 50, 99, 10)
		b.Restart()
		look(p, b.Addr(), topic)
		b.Stop()
		b.Start()
		look(p, b.Addr(), topic)
	})
}

func nullAndEmptyTopics(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1)
	_, high := w.announced(kmsg.Metadata)
	listed := func(m *kmsg.MetadataResponse) (n int) {
		for _, t := range m.Topics {
			if t.Topic != nil && *t.Topic == topic {
				n++
			}
		}
		return n
	}
	for v := int16(0); v <= high; v++ {
		all := kmsg.NewPtrMetadataRequest() // null; an empty list in v0
		got := ask[*kmsg.MetadataResponse](w, all, v)
		equal(p, fmt.Sprintf("v%d, null: times that the topic is listed", v), listed(got), 1)
		equal(p, "brokers", len(got.Brokers), 1)
		if v == 0 {
			continue
		}
		got = ask[*kmsg.MetadataResponse](w, metadataOf(false), v)
		equal(p, fmt.Sprintf("v%d, empty: topics", v), len(got.Topics), 0)
		equal(p, "brokers", len(got.Brokers), 1)
		if v < 4 { // which say nothing of creation
			continue
		}
		unknown := p.name()
		got = ask[*kmsg.MetadataResponse](w, metadataOf(false, unknown), v)
		equal(p, fmt.Sprintf("v%d, unknown: topics", v), len(got.Topics), 1)
		equal(p, "name", *got.Topics[0].Topic, unknown)
		equal(p, "error", got.Topics[0].ErrorCode, 3)
		equal(p, "partitions", len(got.Topics[0].Partitions), 0)
	}
}

func lookUpCreates(p *pit) {
	w := p.dial("num.partitions=3")
	missing := p.name()
	_, high := w.announced(kmsg.Metadata)
	for v := int16(4); v <= high; v++ {
		equal(p, "error without creation", ask[*kmsg.MetadataResponse](w, metadataOf(false, missing), v).Topics[0].ErrorCode, 3)
	}
	for _, t := range ask[*kmsg.MetadataResponse](w, kmsg.NewPtrMetadataRequest(), 9).Topics {
		equal(p, "the topic is there", *t.Topic == missing, false)
	}
	eventually(p, "the topic is created", patience, func() bool {
		got := ask[*kmsg.MetadataResponse](w, metadataOf(true, missing), 9).Topics[0]
		if got.ErrorCode != 0 && got.ErrorCode != 3 && got.ErrorCode != 5 {
			p.Fatalf("error while it is created: %d", got.ErrorCode)
		}
		if got.ErrorCode == 0 {
			equal(p, "partitions", len(got.Partitions), 3)
		}
		return got.ErrorCode == 0
	})
}

// useAfterCreation: one broker has nobody to wait for, so a topic works from the answer on.
func useAfterCreation(p *pit) {
	p.part("created", func(p *pit) {
		w := p.dial()
		for range 100 {
			topic, id := p.topic(w, 1)
			got := w.metadata(topic).Topics[0]
			equal(p, "error of Metadata", got.ErrorCode, 0)
			equal(p, "error of the partition", got.Partitions[0].ErrorCode, 0)
			equal(p, "topic id", got.TopicID, id)
			equal(p, "error of Produce", w.produce(topic, newBatch(nil, values("v")...)).ErrorCode, 0)
		}
	})
	p.part("by a producer", func(p *pit) {
		ctx, stop := context.WithTimeout(p.Context(), patience)
		defer stop()
		for range 10 {
			cl, err := kgo.NewClient(kgo.SeedBrokers(p.broker()), kgo.AllowAutoTopicCreation())
			if err != nil {
				p.Fatal(err)
			}
			topic := p.name()
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
				p.Errorf("produce to a missing name: %v", err)
			}
			cl.Close()
			equal(p, "log end", p.dial().end(topic), 1)
		}
	})
}
