package integration

import (
	"bytes"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var producePitfalls = []pitfall{
	{"prod-1", withoutAcks}, {"prod-2", resentBatches}, {"prod-3", sequencesWrap}, {"prod-4", leaderEpochsOfBatches}, {"prod-5", logAppendTime},
	{"prod-6", timestampsAhead}, {"prod-7", codecs}, {"prod-8", epochBumps}, {"prod-9", largeBatches},
}

func withoutAcks(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1)
	req := produceOf(topic, 0, newBatch(nil, values("v")...))
	req.Acks = 0
	for range 3 {
		w.write(w.frame(req, 9))
		equal(p, "error of Metadata behind it", w.metadata(topic).Topics[0].ErrorCode, 0) // an answer to Produce would be read as this one
	}
	equal(p, "log end", w.end(topic), 3)
	req.Topics[0].Partitions[0].Partition = 7 // closing is the only way left to tell
	w.write(w.frame(req, 9))
	w.wantClosed("Produce without acks to a missing partition")
}

func resentBatches(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1)
	id, epoch := w.producerID()
	one := func(sequence int32) []byte {
		return newBatch(from(id, epoch, sequence), sample{value: []byte{byte(sequence)}})
	}
	send := func(what string, sequence int32, code int16, offset int64) {
		p.Helper()
		got := w.produce(topic, one(sequence))
		equal(p, "error of "+what, got.ErrorCode, code)
		equal(p, "base offset of "+what, got.BaseOffset, offset)
	}
	for sequence := range int32(3) {
		send("the first batches", sequence, 0, int64(sequence))
	}
	send("a resend", 1, 0, 1)
	for sequence := int32(3); sequence < 7; sequence++ {
		send("more batches", sequence, 0, int64(sequence))
	}
	send("a resend of the fifth last", 2, 0, 2)
	send("a resend older than that", 1, 45, -1)
	send("a gap", 8, 45, -1)
	equal(p, "log end", w.end(topic), 7)
}

func sequencesWrap(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1)
	send := func(id int64, epoch int16, sequence int32, n int) kmsg.ProduceResponseTopicPartition {
		p.Helper()
		return w.produce(topic, newBatch(from(id, epoch, sequence), make([]sample, n)...))
	}
	a, ae := w.producerID()
	b, be := w.producerID()
	for _, x := range []struct {
		id       int64
		epoch    int16
		sequence int32
		n        int
		offset   int64
	}{{a, ae, 1<<31 - 1, 1, 0}, {a, ae, 0, 1, 1}, {b, be, 1<<31 - 2, 3, 2}, {b, be, 1, 1, 5}} {
		got := send(x.id, x.epoch, x.sequence, x.n)
		equal(p, fmt.Sprintf("error of sequence %d", x.sequence), got.ErrorCode, 0)
		equal(p, "base offset", got.BaseOffset, x.offset)
	}
	c, ce := w.producerID()
	equal(p, "error of a negative sequence", send(c, ce, -1, 1).ErrorCode, 87)
	equal(p, "log end", w.end(topic), 6)
}

func leaderEpochsOfBatches(p *pit) {
	check := func(p *pit, addr, topic string, first int64) {
		w := dialWire(p, addr)
		for _, epoch := range []int32{0, 7, -1} {
			w.stored(topic, newBatch(func(b *kmsg.RecordBatch) { b.PartitionLeaderEpoch = epoch }, values("v")...))
		}
		kept := batchesIn(p, w.fetch(topic, first, 0).RecordBatches)
		equal(p, "stored batches", len(kept), 3)
		for i, b := range kept {
			equal(p, "stored leader epoch", b.PartitionLeaderEpoch, w.leaderEpoch(topic))
			equal(p, "stored offset", b.FirstOffset, first+int64(i))
		}
	}
	p.part("first leader", func(p *pit) {
		topic, _ := p.topic(p.dial(), 1)
		check(p, p.broker(), topic, 0)
	})
	p.part("after kill -9", func(p *pit) { // which raises the epoch
		b := p.process()
		topic, _ := p.topic(dialWire(p, b.Addr()), 1)
		check(p, b.Addr(), topic, 0)
		before := dialWire(p, b.Addr()).leaderEpoch(topic)
		b.Restart()
		check(p, b.Addr(), topic, 3)
		if after := dialWire(p, b.Addr()).leaderEpoch(topic); after <= before {
			p.Errorf("leader epoch %d after the restart, was %d", after, before)
		}
	})
}

func logAppendTime(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1, "message.timestamp.type", "LogAppendTime")
	for i, edit := range []func(*kmsg.RecordBatch){nil, gzipped} {
		before := time.Now().UnixMilli()
		got := w.produce(topic, newBatch(edit, sample{at: 1}, sample{at: 2}))
		equal(p, "error", got.ErrorCode, 0)
		if at := got.LogAppendTime; at < before || at > time.Now().UnixMilli() {
			p.Errorf("log_append_time %d, want the time of the append, from %d on", at, before)
		}
		kept := batchesIn(p, w.fetch(topic, got.BaseOffset, 0).RecordBatches)[0]
		equal(p, "stored largest time", kept.MaxTimestamp, got.LogAppendTime)
		equal(p, "stored type of time", kept.Attributes&8, 8)
		r := consume(p, p.broker(), topic, 2*i+2)[2*i+1]
		equal(p, "time that a consumer sees", r.Timestamp.UnixMilli(), got.LogAppendTime)
		equal(p, "type of time that a consumer sees", r.Attrs.TimestampType(), 1)
	}
	topic, _ = p.topic(w, 1, "retention.ms", "-1")
	got := w.produce(topic, newBatch(nil, sample{at: 1}))
	equal(p, "error with CreateTime", got.ErrorCode, 0)
	equal(p, "log_append_time with CreateTime", got.LogAppendTime, -1)
	equal(p, "stored time with CreateTime", batchesIn(p, w.fetch(topic, 0, 0).RecordBatches)[0].MaxTimestamp, 1)
}

func timestampsAhead(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1, "message.timestamp.after.max.ms", "60000")
	now := time.Now().UnixMilli()
	for _, edit := range []func(*kmsg.RecordBatch){nil, gzipped} {
		got := w.produce(topic, newBatch(edit, sample{at: now}, sample{at: now + 86400000}, sample{at: now}))
		equal(p, "error", got.ErrorCode, 32)
		equal(p, "base offset", got.BaseOffset, -1)
		equal(p, "record_errors", len(got.ErrorRecords), 1)
		equal(p, "index in record_errors", got.ErrorRecords[0].RelativeOffset, 1)
	}
	equal(p, "log end", w.end(topic), 0)
	equal(p, "error of a record 30 s ahead", w.produce(topic, newBatch(nil, sample{at: now + 30000})).ErrorCode, 0)
	topic, _ = p.topic(w, 1, "retention.ms", "-1") // by default there is no limit, as up to Kafka 3.9; 4.0's is one hour
	equal(p, "error of a record 2 hours ahead by default", w.produce(topic, newBatch(nil, sample{at: now + 7200000})).ErrorCode, 0)
	equal(p, "error of a record 50 minutes ahead by default", w.produce(topic, newBatch(nil, sample{at: now + 3000000})).ErrorCode, 0)
	equal(p, "error of a record of 1970 by default", w.produce(topic, newBatch(nil, sample{at: 1})).ErrorCode, 0)
}

func codecs(p *pit) {
	w := p.dial()
	value := bytes.Repeat([]byte("abc"), 1000)
	names := []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"}
	stores := func(codec kgo.CompressionCodec, setting string) int16 {
		p.Helper()
		topic, _ := p.topic(w, 1, "compression.type", setting)
		cl, err := kgo.NewClient(kgo.SeedBrokers(p.broker()), kgo.ProducerBatchCompression(codec))
		if err != nil {
			p.Fatal(err)
		}
		defer cl.Close()
		if err := cl.ProduceSync(p.Context(), &kgo.Record{Topic: topic, Value: value}).FirstErr(); err != nil {
			p.Fatalf("compression.type=%s: %v", setting, err)
		}
		equal(p, "the value read is the one written", bytes.Equal(consume(p, p.broker(), topic, 1)[0].Value, value), true)
		return batchesIn(p, w.fetch(topic, 0, 0).RecordBatches)[0].Attributes & 7
	}
	all := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range all {
		equal(p, names[i]+" under producer", stores(codec, "producer"), int16(i))
		equal(p, names[i]+" under gzip", stores(codec, "gzip"), 1)
		equal(p, names[i]+" under uncompressed", stores(codec, "uncompressed"), 0)
	}
	for i, name := range names {
		equal(p, "gzip under "+name, stores(all[1], name), int16(i))
	}
}

func epochBumps(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1)
	id, epoch := w.producerID()
	send := func(what string, bump int16, sequence int32, code int16) {
		p.Helper()
		equal(p, "error of "+what, w.produce(topic, newBatch(from(id, epoch+bump, sequence), values("v")...)).ErrorCode, code)
	}
	for sequence := range int32(3) {
		send("the first epoch", 0, sequence, 0)
	}
	send("sequence 0 after a bump", 1, 0, 0)
	send("sequence 5 after a bump", 2, 5, 45)
	send("the first epoch again", 0, 3, 47)
	send("the epoch before the refused bump", 1, 1, 0)
	equal(p, "log end", w.end(topic), 5)
}

func largeBatches(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1, "max.message.bytes", "1000")
	frame := len(newBatch(nil, sample{value: make([]byte, 500)})) - 500
	sized := func(n int) []byte {
		b := newBatch(nil, sample{value: make([]byte, n-frame)})
		equal(p, "size of a batch", len(b), n)
		return b
	}
	equal(p, "error of 2000 bytes", w.produce(topic, sized(2000)).ErrorCode, 10)
	equal(p, "error of 1001 bytes", w.produce(topic, sized(1001)).ErrorCode, 10)
	equal(p, "error of 1000 bytes", w.produce(topic, sized(1000)).ErrorCode, 0)
	equal(p, "error of 2000 bytes compressed", w.produce(topic, newBatch(gzipped, sample{value: make([]byte, 2000)})).ErrorCode, 0)
	equal(p, "log end", w.end(topic), 2)
}
