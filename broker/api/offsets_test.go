package api

import (
	"context"
	"slices"
	"testing"

	"ottla/broker/metadata"
	"ottla/broker/replica"
	"ottla/log"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func appendOf(b []byte) log.Append { return log.Append{Records: b, Origin: record.Coordinator} }

type spot struct {
	code         int16
	offset, time int64
}

func listOf(v int16, topic string, at int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = v
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.MaxNumOffsets = at, 2
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (h *storageHouse) list(req *kmsg.ListOffsetsRequest) kmsg.ListOffsetsResponseTopicPartition {
	h.t.Helper()
	resp, err := h.listOffsets(context.Background(), h.peer, req)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.Topics[0].Partitions[0]
}

func TestListOffsets(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1)
	h.topic("empty", 1)
	for _, at := range []int64{100, 50, 99, 10} {
		h.answerTo(produceOf(9, "t", 0, batchOf(record.BuilderOptions{}, at, "v")))
	}
	for v := int16(1); v <= 11; v++ {
		since := func(first int16, s spot) spot {
			if v < first {
				return spot{kerr.UnsupportedVersion.Code, -1, -1}
			}
			return s
		}
		for _, x := range []struct {
			topic string
			at    int64
			want  spot
		}{
			{"t", -1, spot{0, 4, -1}},
			{"t", -2, spot{0, 0, -1}},
			{"t", 60, spot{0, 0, 100}},
			{"t", 101, spot{0, -1, -1}},
			{"t", -3, since(7, spot{0, 0, 100})},
			{"t", -4, since(8, spot{0, 0, -1})},
			{"t", -5, since(9, spot{0, -1, -1})},
			{"t", -6, since(11, spot{0, -1, -1})},
			{"t", -7, spot{kerr.UnsupportedVersion.Code, -1, -1}},
			{"empty", 1, spot{0, -1, -1}},
			{"empty", -1, spot{0, 0, -1}},
			{"empty", -3, since(7, spot{0, -1, -1})},
			{"missing", -1, spot{kerr.UnknownTopicOrPartition.Code, -1, -1}},
		} {
			p := h.list(listOf(v, x.topic, x.at))
			if got := (spot{p.ErrorCode, p.Offset, p.Timestamp}); got != x.want {
				t.Errorf("version %d, %s at %d: %v, want %v", v, x.topic, x.at, got, x.want)
			}
		}
		if p := h.list(listOf(v, "t", 60)); p.LeaderEpoch != 0 {
			t.Errorf("version %d: leader epoch %d", v, p.LeaderEpoch)
		}
	}
	twice := listOf(5, "t", -1)
	twice.Topics = append(twice.Topics, listOf(5, "t", -2).Topics...)
	if p := h.list(twice); p.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("a partition named twice: %d", p.ErrorCode)
	}
	epoch := listOf(5, "t", -1)
	for current, want := range map[int32]int16{0: 0, 1: kerr.UnknownLeaderEpoch.Code, -1: 0} {
		epoch.Topics[0].Partitions[0].CurrentLeaderEpoch = current
		if p := h.list(epoch); p.ErrorCode != want {
			t.Errorf("epoch %d: %d, want %d", current, p.ErrorCode, want)
		}
	}
}

func TestListOffsetsOfTheOldestClients(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1)
	h.store("t", 0, "a", "b", "c")
	for _, x := range []struct {
		at    int64
		count int32
		code  int16
		want  []int64
	}{{-1, 2, 0, []int64{3, 0}}, {-1, 1, 0, []int64{3}}, {-2, 2, 0, []int64{0}}, {999, 2, 0, nil}, {-3, 2, kerr.UnsupportedVersion.Code, nil}} {
		req := listOf(0, "t", x.at)
		req.Topics[0].Partitions[0].MaxNumOffsets = x.count
		if p := h.list(req); p.ErrorCode != x.code || !slices.Equal(p.OldStyleOffsets, x.want) || p.OldStyleOffsets == nil {
			t.Errorf("%d, %d: %+v, want %v", x.at, x.count, p, x.want)
		}
	}
}

func TestOffsetNotAvailable(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1)
	lead := func(epoch int32) {
		h.Replicas.Apply([]replica.State{{Topic: "t", ID: h.name["t"], Leader: 1, LeaderEpoch: epoch, PartitionEpoch: epoch, ISR: []int32{1, 2}, Replicas: []int32{1, 2}}})
	}
	lead(1)
	p, err := h.Replicas.Leader("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Append(t.Context(), appendOf(batchOf(record.BuilderOptions{}, 5, "a")), 1); err != nil {
		t.Fatal(err)
	}
	lead(2)
	for v := int16(1); v <= 11; v++ {
		want := kerr.OffsetNotAvailable.Code
		if v < 5 {
			want = kerr.LeaderNotAvailable.Code
		}
		if p := h.list(listOf(v, "t", -1)); p.ErrorCode != want {
			t.Errorf("version %d: %d, want %d", v, p.ErrorCode, want)
		}
		if p := h.list(listOf(v, "t", -2)); p.ErrorCode != 0 {
			t.Errorf("version %d, start: %d", v, p.ErrorCode)
		}
	}
}

func TestDeleteRecords(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1)
	h.topic("compacted", 1, "cleanup.policy", "compact")
	h.topic("both", 1, "cleanup.policy", "compact,delete")
	h.topic("__consumer_offsets", 1)
	for _, topic := range []string{"t", "compacted", "both"} {
		h.store(topic, 0, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	}
	for _, x := range []struct {
		topic string
		to    int64
		code  int16
		low   int64
	}{
		{"t", 5, 0, 5}, {"t", 3, 0, 5}, {"t", 99, kerr.OffsetOutOfRange.Code, -1}, {"t", -2, kerr.OffsetOutOfRange.Code, -1}, {"t", -1, 0, 10},
		{"compacted", 1, kerr.PolicyViolation.Code, -1}, {"both", 1, 0, 1},
		{"missing", 0, kerr.UnknownTopicOrPartition.Code, -1}, {"__consumer_offsets", 0, kerr.InvalidTopicException.Code, -1},
	} {
		req := kmsg.NewPtrDeleteRecordsRequest()
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = x.topic
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Offset = x.to
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, wait, err := h.deleteRecords(t.Context(), h.peer, req)
		if err != nil || wait != nil {
			t.Fatal(err)
		}
		if p := resp.Topics[0].Partitions[0]; p.ErrorCode != x.code || p.LowWatermark != x.low {
			t.Errorf("%s to %d: %d, low watermark %d; want %d, %d", x.topic, x.to, p.ErrorCode, p.LowWatermark, x.code, x.low)
		}
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1)
	h.store("t", 0, "a", "b")
	h.Replicas.Apply([]replica.State{{Topic: "t", ID: h.name["t"], Leader: 1, LeaderEpoch: 3, PartitionEpoch: 1, ISR: []int32{1}, Replicas: []int32{1}}})
	h.store("t", 0, "c")
	for _, x := range []struct {
		topic          string
		current, epoch int32
		code           int16
		found          int32
		end            int64
	}{
		{"t", -1, 0, 0, 0, 2}, {"t", 3, 2, 0, 0, 2}, {"t", -1, 3, 0, 3, 3}, {"t", -1, 4, 0, -1, -1},
		{"t", 2, 0, kerr.FencedLeaderEpoch.Code, -1, -1}, {"t", 4, 0, kerr.UnknownLeaderEpoch.Code, -1, -1},
		{"u", -1, 0, kerr.UnknownTopicOrPartition.Code, -1, -1},
	} {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = 4
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = x.topic
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.CurrentLeaderEpoch, rp.LeaderEpoch = x.current, x.epoch
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := h.offsetForLeaderEpoch(t.Context(), h.peer, req)
		if err != nil {
			t.Fatal(err)
		}
		if p := resp.Topics[0].Partitions[0]; p.ErrorCode != x.code || p.LeaderEpoch != x.found || p.EndOffset != x.end {
			t.Errorf("%+v: %+v", x, p)
		}
	}
}

func TestInitProducerID(t *testing.T) {
	h := newStorageHouse(t)
	name, none := "txn", ""
	ask := func(change func(*kmsg.InitProducerIDRequest)) *kmsg.InitProducerIDResponse {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version = 5
		change(req)
		resp, err := h.initProducerID(t.Context(), h.peer, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	seen := map[int64]bool{}
	for range 10 { // over several blocks
		resp := ask(func(*kmsg.InitProducerIDRequest) {})
		if resp.ErrorCode != 0 || resp.ProducerEpoch != 0 || seen[resp.ProducerID] {
			t.Fatalf("%+v", resp)
		}
		seen[resp.ProducerID] = true
	}
	if resp := ask(func(r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch = 1000, 3 }); resp.ErrorCode != 0 || seen[resp.ProducerID] {
		t.Errorf("with an id: %+v", resp)
	}
	for what, x := range map[string]struct {
		change func(*kmsg.InitProducerIDRequest)
		want   int16
	}{
		"id without epoch":       {func(r *kmsg.InitProducerIDRequest) { r.ProducerID = 5 }, kerr.InvalidRequest.Code},
		"epoch without id":       {func(r *kmsg.InitProducerIDRequest) { r.ProducerEpoch = 5 }, kerr.InvalidRequest.Code},
		"empty transactional id": {func(r *kmsg.InitProducerIDRequest) { r.TransactionalID = &none }, kerr.InvalidRequest.Code},
		"transactional id":       {func(r *kmsg.InitProducerIDRequest) { r.TransactionalID, r.TransactionTimeoutMillis = &name, 1000 }, kerr.NotCoordinator.Code},
		"timeout":                {func(r *kmsg.InitProducerIDRequest) { r.TransactionalID, r.TransactionTimeoutMillis = &name, 900001 }, kerr.InvalidTransactionTimeout.Code},
		"no timeout":             {func(r *kmsg.InitProducerIDRequest) { r.TransactionalID, r.TransactionTimeoutMillis = &name, 0 }, kerr.InvalidTransactionTimeout.Code},
	} {
		if resp := ask(x.change); resp.ErrorCode != x.want || resp.ProducerID != -1 {
			t.Errorf("%s: %+v, want %d", what, resp, x.want)
		}
	}
}

func TestDescribeProducers(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1)
	h.answerTo(produceOf(9, "t", 0, batchOf(record.BuilderOptions{Producer: &record.ProducerInfo{ID: 7, Epoch: 2}}, 1000, "a", "b")))
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = "t", []int32{0, 1}
	req.Topics = append(req.Topics, rt)
	resp, err := h.describeProducers(t.Context(), h.peer, req)
	if err != nil {
		t.Fatal(err)
	}
	known, missing := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1]
	if len(known.ActiveProducers) != 1 || missing.ErrorCode != kerr.UnknownTopicOrPartition.Code || missing.ActiveProducers == nil {
		t.Fatalf("%+v", resp.Topics[0])
	}
	if a := known.ActiveProducers[0]; a.ProducerID != 7 || a.ProducerEpoch != 2 || a.LastSequence != 1 || a.CurrentTxnStartOffset != -1 || a.CoordinatorEpoch != -1 {
		t.Errorf("%+v", a)
	}
}

func TestDescribeLogDirs(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 2)
	h.topic("u", 1)
	h.store("t", 0, "a")
	size := h.Logs.Log("t", 0).Size()
	ask := func(topics []kmsg.DescribeLogDirsRequestTopic) map[replica.Key]int64 {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = topics
		resp, err := h.describeLogDirs(t.Context(), h.peer, req)
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Dirs) != 1 || resp.Dirs[0].ErrorCode != 0 || resp.Dirs[0].Dir != "/data" {
			t.Fatalf("%+v", resp)
		}
		got := map[replica.Key]int64{}
		for _, dt := range resp.Dirs[0].Topics {
			for _, p := range dt.Partitions {
				got[replica.Key{Topic: dt.Topic, Partition: p.Partition}] = p.Size
			}
		}
		return got
	}
	one := func(topic string) []kmsg.DescribeLogDirsRequestTopic {
		rt := kmsg.NewDescribeLogDirsRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		return []kmsg.DescribeLogDirsRequestTopic{rt}
	}
	if got := ask(nil); len(got) != 3 || size == 0 || got[replica.Key{Topic: "t"}] != size || got[replica.Key{Topic: "u"}] != 0 {
		t.Errorf("all: %v", got)
	}
	if got := ask(one("t")); len(got) != 1 || got[replica.Key{Topic: "t"}] != size {
		t.Errorf("one: %v", got)
	}
	if got := ask(one("missing")); len(got) != 0 {
		t.Errorf("missing: %v", got)
	}
	if got := ask([]kmsg.DescribeLogDirsRequestTopic{}); len(got) != 0 {
		t.Errorf("none: %v", got)
	}
}

func TestLeaderOfNobody(t *testing.T) {
	h := newStorageHouse(t)
	if id, epoch := h.leaderOf("u", 0); id != -1 || epoch != -1 {
		t.Errorf("leader %d epoch %d of a missing topic", id, epoch)
	}
	h.picture("headless", metadata.ID{8}, 1, -1)
	if _, ok := h.leaderNode(h.peer, -1); ok {
		t.Error("nobody is somewhere")
	}
}
