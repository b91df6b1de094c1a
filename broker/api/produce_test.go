package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"ottla/broker/metadata"
	"ottla/broker/replica"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestProduceInEveryVersion(t *testing.T) {
	h := newStorageHouse(t)
	id := h.topic("t", 1)
	for v := int16(0); v <= 13; v++ {
		records := batchOf(record.BuilderOptions{}, 1000, "a", "b")
		if v < 3 {
			magic := int8(0)
			if v == 2 {
				magic = 1
			}
			var err error
			if records, err = record.DownConvert(records, magic, 0); err != nil {
				t.Fatal(err)
			}
		}
		req := produceOf(v, "t", 0, records)
		if v >= 13 {
			req.Topics[0].Topic, req.Topics[0].TopicID = "", id
		}
		resp := h.answerTo(req)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.BaseOffset != int64(v)*2 || p.LogAppendTime != -1 || p.LogStartOffset != 0 {
			t.Errorf("version %d: %+v", v, p)
		}
		resp.Version = v
		if raw := resp.AppendTo(nil); len(raw) == 0 {
			t.Errorf("version %d: nothing to send", v)
		}
	}
	if got := h.get(fetchOf(11, "t", id, 0)).Topics[0].Partitions[0]; len(values(t, got.RecordBatches)) != 28 || got.HighWatermark != 28 {
		t.Errorf("%d records, watermark %d", len(values(t, got.RecordBatches)), got.HighWatermark)
	}
}

func TestProduceRefusals(t *testing.T) {
	h := newStorageHouse(t)
	id := h.topic("t", 2)
	h.topic("__consumer_offsets", 1)
	good := func() []byte { return batchOf(record.BuilderOptions{}, 1000, "a") }
	txn := func() []byte {
		return batchOf(record.BuilderOptions{Producer: &record.ProducerInfo{ID: 5, Transactional: true}}, 1000, "a")
	}
	name := "txn"
	for what, x := range map[string]struct {
		req  *kmsg.ProduceRequest
		want int16
	}{
		"null records":                {produceOf(9, "t", 0, nil), kerr.InvalidRecord.Code},
		"no batch":                    {produceOf(9, "t", 0, []byte{}), kerr.InvalidRecord.Code},
		"two batches":                 {produceOf(9, "t", 0, append(good(), good()...)), kerr.InvalidRecord.Code},
		"missing topic":               {produceOf(9, "u", 0, good()), kerr.UnknownTopicOrPartition.Code},
		"missing partition":           {produceOf(9, "t", 2, good()), kerr.UnknownTopicOrPartition.Code},
		"negative partition":          {produceOf(9, "t", -1, good()), kerr.UnknownTopicOrPartition.Code},
		"missing topic id":            {produceOf(13, "", 0, good()), kerr.UnknownTopicID.Code},
		"internal topic":              {produceOf(9, "__consumer_offsets", 0, good()), kerr.InvalidTopicException.Code},
		"acks":                        {produceOf(9, "t", 0, good()), kerr.InvalidRequiredAcks.Code},
		"transaction without id":      {produceOf(9, "t", 0, txn()), kerr.TransactionalIDAuthorizationFailed.Code},
		"transaction, no coordinator": {produceOf(9, "t", 0, txn()), kerr.NotEnoughReplicas.Code},
		"transactional id alone":      {produceOf(9, "t", 0, good()), 0},
		"bad checksum":                {produceOf(9, "t", 0, good()), kerr.CorruptMessage.Code},
		"old format, new version":     {produceOf(9, "t", 0, good()), kerr.InvalidRecord.Code},
	} {
		switch what {
		case "acks":
			x.req.Acks = 2
		case "transaction, no coordinator", "transactional id alone":
			x.req.TransactionID = &name
		case "bad checksum":
			x.req.Topics[0].Partitions[0].Records[40] ^= 1
		case "old format, new version":
			old, err := record.DownConvert(good(), 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			x.req.Topics[0].Partitions[0].Records = old
		}
		// A good partition beside it, before and after.
		before, after := produceOf(9, "t", 1, good()).Topics[0], produceOf(9, "t", 1, good()).Topics[0]
		before.TopicID, after.TopicID = id, id
		x.req.Topics = append(append([]kmsg.ProduceRequestTopic{before}, x.req.Topics...), after)
		resp := h.answerTo(x.req)
		if len(resp.Topics) != 3 {
			t.Fatalf("%s: %d topics", what, len(resp.Topics))
		}
		p := resp.Topics[1].Partitions[0]
		if p.ErrorCode != x.want {
			t.Errorf("%s: %d, want %d", what, p.ErrorCode, x.want)
		}
		if x.want != 0 && (p.BaseOffset != -1 || p.LogAppendTime != -1) {
			t.Errorf("%s: offset %d, append time %d", what, p.BaseOffset, p.LogAppendTime)
		}
		if what == "acks" || what == "transaction without id" {
			continue
		}
		for _, i := range []int{0, 2} {
			if c := resp.Topics[i].Partitions[0].ErrorCode; c != 0 {
				t.Errorf("%s: the partition beside it got %d", what, c)
			}
		}
	}
}

func TestProduceNamesBadRecords(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1, "cleanup.policy", "compact")
	b := record.NewBuilder(nil, record.BuilderOptions{})
	b.Add(1000, []byte("k"), []byte("a"))
	b.Add(1000, nil, []byte("b"))
	p := h.answerTo(produceOf(9, "t", 0, b.Finish())).Topics[0].Partitions[0]
	if p.ErrorCode != kerr.InvalidRecord.Code || len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 1 || p.ErrorMessage == nil {
		t.Errorf("%+v", p)
	}
}

func TestProduceWithoutAcks(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1, "flush.messages", "1")
	send := func(partition int32) error {
		req := produceOf(9, "t", partition, batchOf(record.BuilderOptions{}, 1000, "a"))
		req.Acks = 0
		resp, wait, err := h.produce(context.Background(), h.peer, req)
		if resp != nil || wait != nil {
			t.Fatal("an answer that nobody asked for")
		}
		return err
	}
	if err := send(0); err != nil {
		t.Fatal(err)
	}
	if l := h.Logs.Log("t", 0); l.End() != 1 || l.Flushed() != 1 {
		t.Errorf("end %d, flushed %d", l.End(), l.Flushed())
	}
	if err := send(7); !errors.Is(err, errUnansweredProduce) {
		t.Errorf("a failed one: %v", err)
	}
}

func TestProduceToAnotherBroker(t *testing.T) {
	h := newStorageHouse(t)
	h.picture("far", metadata.ID{9}, 1, 2)
	for v := int16(3); v <= 12; v++ {
		resp := h.answerTo(produceOf(v, "far", 0, batchOf(record.BuilderOptions{}, 1000, "a")))
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Errorf("version %d: %d", v, p.ErrorCode)
		}
		leader := int32(-1)
		if v >= 10 {
			leader = 2
			if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 2 || resp.Brokers[0].Host != "two" || resp.Brokers[0].Port != 9093 {
				t.Errorf("version %d: brokers %+v", v, resp.Brokers)
			}
		} else if resp.Brokers != nil {
			t.Errorf("version %d: brokers %+v", v, resp.Brokers)
		}
		if p.CurrentLeader.LeaderID != leader {
			t.Errorf("version %d: leader %d, want %d", v, p.CurrentLeader.LeaderID, leader)
		}
	}
	h.topic("t", 1)
	resp := h.answerTo(produceOf(12, "t", 0, batchOf(record.BuilderOptions{}, 1000, "a")))
	if l := resp.Topics[0].Partitions[0].CurrentLeader; l.LeaderID != -1 || l.LeaderEpoch != -1 {
		t.Errorf("leader of a success: %+v", l)
	}
}

func TestProduceTwiceToOnePartition(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1)
	req := produceOf(9, "t", 0, batchOf(record.BuilderOptions{}, 1000, "a"))
	req.Topics = append(req.Topics, produceOf(9, "t", 0, batchOf(record.BuilderOptions{}, 1000, "b")).Topics...)
	resp := h.answerTo(req)
	if a, b := resp.Topics[0].Partitions[0].BaseOffset, resp.Topics[1].Partitions[0].BaseOffset; a != 0 || b != 1 {
		t.Errorf("offsets %d and %d", a, b)
	}
}

func TestProduceTimesOut(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 2)
	h.Replicas.Apply([]replica.State{{Topic: "t", ID: h.name["t"], Partition: 1, Leader: 1, LeaderEpoch: 1, ISR: []int32{1, 2}, Replicas: []int32{1, 2}}})
	req := produceOf(9, "t", 0, batchOf(record.BuilderOptions{}, 1000, "a"))
	req.Topics = append(req.Topics, produceOf(9, "t", 1, batchOf(record.BuilderOptions{}, 1000, "a")).Topics...)
	req.TimeoutMillis = 1
	resp := h.answerTo(req)
	if a, b := resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[1].Partitions[0].ErrorCode; a != 0 || b != kerr.RequestTimedOut.Code {
		t.Errorf("codes %d and %d", a, b)
	}
}

// TestProducedRecordsOutliveTheFrame: the buffer of a request is used for the next one.
func TestProducedRecordsOutliveTheFrame(t *testing.T) {
	h := newStorageHouse(t)
	id := h.topic("t", 1)
	frame := batchOf(record.BuilderOptions{Producer: &record.ProducerInfo{ID: 7}}, 1000, "first")
	h.answerTo(produceOf(9, "t", 0, frame))
	clear(frame)
	if got := values(t, h.get(fetchOf(11, "t", id, 0)).Topics[0].Partitions[0].RecordBatches); fmt.Sprint(got) != "[first]" {
		t.Errorf("read %q", got)
	}
}

func BenchmarkProduce(b *testing.B) {
	h := newStorageHouse(b)
	h.topic("t", 1)
	records := batchOf(record.BuilderOptions{}, 1000, string(make([]byte, 1000)))
	req := produceOf(9, "t", 0, records)
	b.ReportAllocs()
	for b.Loop() {
		record.Batch(records).SetBaseOffset(0)
		h.answerTo(req)
	}
}
