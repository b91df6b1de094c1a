package api

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ottla/broker/metadata"
	"ottla/broker/replica"
	"ottla/protocol"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestFetchInEveryVersion(t *testing.T) {
	h := newStorageHouse(t)
	id := h.topic("t", 3)
	h.store("t", 1, "a", "b")
	h.store("t", 1, "c")
	for v := int16(0); v <= 18; v++ {
		req := fetchOf(v, "t", id, 0, 1, 2)
		req.Topics[0].Partitions[2].FetchOffset = 5
		resp := h.get(req)
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 3 || v < 13 && resp.Topics[0].Topic != "t" || v >= 13 && resp.Topics[0].TopicID != id {
			t.Fatalf("version %d: %+v", v, resp)
		}
		empty, full, bad := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1], resp.Topics[0].Partitions[2]
		if empty.ErrorCode != 0 || empty.RecordBatches == nil || len(empty.RecordBatches) != 0 || empty.HighWatermark != 0 {
			t.Errorf("version %d: empty partition: %+v", v, empty)
		}
		if bad.ErrorCode != kerr.OffsetOutOfRange.Code || bad.RecordBatches == nil || bad.HighWatermark != -1 {
			t.Errorf("version %d: offset out of range: %+v", v, bad)
		}
		if full.ErrorCode != 0 || full.HighWatermark != 3 || fmt.Sprint(values(t, full.RecordBatches)) != "[a b c]" {
			t.Errorf("version %d: %+v", v, full)
		}
		magic := int8(2)
		if v < 2 {
			magic = 0
		} else if v < 4 {
			magic = 1
		}
		for b := range record.All(full.RecordBatches) {
			if b.Magic() != magic {
				t.Errorf("version %d: magic %d, want %d", v, b.Magic(), magic)
			}
		}
		if v >= 4 && (full.LastStableOffset != 3 || full.AbortedTransactions != nil) || v >= 5 && full.LogStartOffset != 0 || v >= 11 && full.PreferredReadReplica != -1 {
			t.Errorf("version %d: %+v", v, full)
		}
		if v >= 4 {
			req := fetchOf(v, "t", id, 1)
			req.IsolationLevel = 1
			if p := h.get(req).Topics[0].Partitions[0]; p.AbortedTransactions == nil || len(values(t, p.RecordBatches)) != 3 {
				t.Errorf("version %d: read committed: %+v", v, p)
			}
		}
	}
}

func TestFetchOfUnknownTopics(t *testing.T) {
	h := newStorageHouse(t)
	id := h.topic("t", 1)
	h.store("t", 0, "a")
	one := func(req *kmsg.FetchRequest) int16 { return h.get(req).Topics[0].Partitions[0].ErrorCode }
	if c := one(fetchOf(12, "u", id, 0)); c != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("unknown topic: %d", c)
	}
	if c := one(fetchOf(12, "t", id, 1)); c != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("unknown partition: %d", c)
	}
	if c := one(fetchOf(13, "", metadata.ID{99}, 0)); c != kerr.UnknownTopicID.Code {
		t.Errorf("unknown topic id: %d", c)
	}
	h.picture("t", metadata.ID{77}, 1, 1) // made anew, and the replica here is the old one still
	if c := one(fetchOf(13, "", metadata.ID{77}, 0)); c != kerr.InconsistentTopicID.Code {
		t.Errorf("another topic's id: %d", c)
	}
	// An unknown partition beside a known one does not end the wait, nor is it left out.
	req := fetchOf(12, "t", id, 0)
	req.Topics = append(fetchOf(12, "u", id, 0).Topics, req.Topics...)
	if got := h.get(req); len(got.Topics) != 2 || got.Topics[0].Topic != "t" || got.Topics[1].Partitions[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("%+v", got)
	}
}

func TestFetchFromAnotherBroker(t *testing.T) {
	h := newStorageHouse(t)
	id := metadata.ID{9}
	h.picture("far", id, 1, 2)
	for v := int16(12); v <= 18; v++ {
		resp := h.get(fetchOf(v, "far", id, 0))
		p := resp.Topics[0].Partitions[0]
		leader, brokers := int32(-1), 0
		if v >= 16 {
			leader, brokers = 2, 1
		}
		if p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != leader || len(resp.Brokers) != brokers {
			t.Errorf("version %d: %+v, brokers %v", v, p, resp.Brokers)
		}
	}
}

// A tool that compares replicas asks followers as well; other clients of its time must not.
func TestFetchByADebuggingConsumer(t *testing.T) {
	h := newStorageHouse(t)
	id := h.topic("t", 1)
	h.store("t", 0, "a", "b")
	state := replica.State{Topic: "t", ID: id, Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, ISR: []int32{1, 2}, Replicas: []int32{1, 2}}
	for k, err := range h.Replicas.Apply([]replica.State{state}) {
		t.Fatal(k, err)
	}
	for v := range int16(15) { // from 15 on the id has another place
		for _, by := range []int32{-1, -2} {
			req := fetchOf(v, "t", id, 0)
			req.ReplicaID = by
			p := h.get(req).Topics[0].Partitions[0]
			if may := by == -2 || v >= 11; may && (p.ErrorCode != 0 || len(values(t, p.RecordBatches)) != 2) || !may && p.ErrorCode != kerr.NotLeaderForPartition.Code {
				t.Errorf("version %d by %d: %d, %d bytes", v, by, p.ErrorCode, len(p.RecordBatches))
			}
		}
	}
}

func TestFetchOfZstd(t *testing.T) {
	h := newStorageHouse(t)
	id := h.topic("t", 1, "compression.type", "zstd")
	h.store("t", 0, "a")
	for v := int16(0); v <= 12; v++ {
		want := int16(0)
		if v < 10 {
			want = kerr.UnsupportedCompressionType.Code
		}
		if p := h.get(fetchOf(v, "t", id, 0)).Topics[0].Partitions[0]; p.ErrorCode != want || p.RecordBatches == nil {
			t.Errorf("version %d: %d, want %d", v, p.ErrorCode, want)
		}
	}
	producer := h.topic("p", 1)
	h.answerTo(produceOf(9, "p", 0, batchOf(record.BuilderOptions{Codec: record.Zstd}, 1000, "a")))
	for _, v := range []int16{0, 2} {
		if p := h.get(fetchOf(v, "p", producer, 0)).Topics[0].Partitions[0]; p.ErrorCode != kerr.UnsupportedCompressionType.Code {
			t.Errorf("version %d of a zstd batch: %d", v, p.ErrorCode)
		}
	}
}

// sessionFetch is an incremental fetch.
func sessionFetch(v int16, id, epoch int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionID, req.SessionEpoch, req.MinBytes, req.MaxBytes = v, id, epoch, 1, 50<<20
	return req
}

func TestFetchSession(t *testing.T) {
	for _, v := range []int16{7, 11, 12, 13, 18} {
		synctest.Test(t, func(t *testing.T) {
			h := newStorageHouse(t)
			id := h.topic("t", 2)
			full := fetchOf(v, "t", id, 0, 1)
			full.SessionEpoch = 0
			got := h.get(full)
			if got.ErrorCode != 0 || got.SessionID == 0 || len(got.Topics[0].Partitions) != 2 {
				t.Fatalf("full fetch: %+v", got)
			}
			session := got.SessionID

			next := sessionFetch(v, session, 1)
			next.MaxWaitMillis = 1000
			begun := time.Now()
			if got = h.get(next); got.ErrorCode != 0 || got.SessionID != session || len(got.Topics) != 0 || time.Since(begun) != time.Second {
				t.Fatalf("empty fetch: %+v after %v", got, time.Since(begun))
			}

			next.SessionEpoch, next.MaxWaitMillis = 2, 15000
			begun = time.Now()
			done := make(chan *kmsg.FetchResponse)
			go func() {
				resp, err := h.fetched(t.Context(), next)
				if err != nil {
					t.Error(err)
				}
				done <- resp
			}()
			synctest.Wait()
			h.store("t", 1, "a")
			if got = <-done; time.Since(begun) != 0 || len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 || got.Topics[0].Partitions[0].Partition != 1 {
				t.Fatalf("woken fetch: %+v after %v", got, time.Since(begun))
			}

			h.store("t", 0, "b")
			if got = h.get(sessionFetch(v, session, 9)); got.ErrorCode != kerr.InvalidFetchSessionEpoch.Code {
				t.Errorf("wrong epoch: %d", got.ErrorCode)
			}
			if got = h.get(sessionFetch(v, session^1<<20, 3)); got.ErrorCode != kerr.FetchSessionIDNotFound.Code {
				t.Errorf("unknown session: %d", got.ErrorCode)
			}
			if got = h.get(sessionFetch(v, session, 3)); len(got.Topics) == 0 {
				t.Error("the session did not outlive wrong requests")
			}
		})
	}
}

func TestFetchChecksEpochs(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1)
	h.Replicas.Apply([]replica.State{{Topic: "t", ID: h.name["t"], Leader: 1, LeaderEpoch: 5, PartitionEpoch: 1, ISR: []int32{1}, Replicas: []int32{1}}})
	for _, x := range []struct {
		epoch int32
		want  int16
	}{{5, 0}, {6, kerr.UnknownLeaderEpoch.Code}, {4, kerr.FencedLeaderEpoch.Code}, {-1, 0}} {
		full := fetchOf(11, "t", metadata.ID{}, 0)
		full.Topics[0].Partitions[0].CurrentLeaderEpoch = x.epoch
		if c := h.get(full).Topics[0].Partitions[0].ErrorCode; c != x.want {
			t.Errorf("epoch %d: %d, want %d", x.epoch, c, x.want)
		}
		start := fetchOf(11, "t", metadata.ID{}, 0)
		start.SessionEpoch = 0
		full.SessionID, full.SessionEpoch = h.get(start).SessionID, 1
		got := h.get(full)
		if got.ErrorCode != 0 || (x.want != 0) != (len(got.Topics) == 1) || x.want != 0 && got.Topics[0].Partitions[0].ErrorCode != x.want {
			t.Errorf("epoch %d in a session: %+v", x.epoch, got)
		}
	}
}

func TestFetchSizes(t *testing.T) {
	h := newStorageHouse(t)
	id := h.topic("t", 20)
	all := make([]int32, 20)
	for n := range all {
		all[n] = int32(n)
		h.store("t", int32(n), string(make([]byte, 50_000)))
		h.store("t", int32(n), string(make([]byte, 50_000)))
	}
	for _, v := range []int16{4, 11, 18} {
		req := fetchOf(v, "t", id, all...)
		req.MaxBytes = 500_000
		total := 0
		for _, p := range h.get(req).Topics[0].Partitions {
			total += len(p.RecordBatches)
		}
		if total == 0 || total > 500_000 {
			t.Errorf("version %d: %d bytes", v, total)
		}
		req.MaxBytes = 1
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].PartitionMaxBytes = 1
		}
		for i, p := range h.get(req).Topics[0].Partitions {
			if n := len(values(t, p.RecordBatches)); i == 0 && n != 1 || i > 0 && len(p.RecordBatches) != 0 {
				t.Errorf("version %d: partition %d has %d records, %d bytes", v, i, n, len(p.RecordBatches))
			}
		}
	}
	req := fetchOf(1, "t", id, 0, 1)
	for i := range req.Topics[0].Partitions {
		req.Topics[0].Partitions[i].PartitionMaxBytes = 1
	}
	for i, p := range h.get(req).Topics[0].Partitions {
		if len(values(t, p.RecordBatches)) != 1 {
			t.Errorf("version 1: partition %d has %d bytes", i, len(p.RecordBatches))
		}
	}
}

// TestFetchSkipsWhatOldClientsCannotSee: a client of the old formats goes on behind markers.
func TestFetchSkipsWhatOldClientsCannotSee(t *testing.T) {
	h := newStorageHouse(t)
	id := h.topic("t", 1)
	p, err := h.Replicas.Leader("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	h.store("t", 0, "a")
	appendMarker(t, p)
	h.store("t", 0, "b")
	req := fetchOf(3, "t", id, 0)
	req.Topics[0].Partitions[0].FetchOffset = 1
	req.Topics[0].Partitions[0].PartitionMaxBytes = 1
	if got := values(t, h.get(req).Topics[0].Partitions[0].RecordBatches); fmt.Sprint(got) != "[b]" {
		t.Errorf("read %q", got)
	}
	req.Topics[0].Partitions[0].FetchOffset = 3
	if got := h.get(req).Topics[0].Partitions[0]; got.ErrorCode != 0 || len(got.RecordBatches) != 0 {
		t.Errorf("%+v", got)
	}
}

func BenchmarkFetch(b *testing.B) {
	h := newStorageHouse(b)
	id := h.topic("t", 1)
	h.store("t", 0, string(make([]byte, 10_000)))
	req := fetchOf(18, "t", id, 0)
	b.ReportAllocs()
	for b.Loop() {
		a, err := h.fetchWhole(context.Background(), fetchHeader, req)
		if err != nil {
			b.Fatal(err)
		}
		a.Release()
	}
}

// BenchmarkIdleSession is an incremental fetch of a thousand partitions with nothing new.
func BenchmarkIdleSession(b *testing.B) {
	h := newStorageHouse(b)
	all := make([]int32, 1000)
	for n := range all {
		all[n] = int32(n)
	}
	id := h.topic("t", len(all))
	full := fetchOf(18, "t", id, all...)
	full.SessionEpoch = 0
	session := h.get(full).SessionID
	epoch := int32(0)
	b.ReportAllocs()
	for b.Loop() {
		epoch++
		a, err := h.fetchWhole(context.Background(), fetchHeader, sessionFetch(18, session, epoch))
		if err != nil {
			b.Fatal(err)
		}
		a.Release()
	}
}

var fetchHeader = protocol.Header{Key: 1, Version: 18, Flexible: true}

// appendMarker writes an abort marker, as a transaction coordinator does.
func appendMarker(t *testing.T, p *replica.Partition) {
	t.Helper()
	b := record.NewBuilder(nil, record.BuilderOptions{Control: true, Producer: &record.ProducerInfo{ID: 4, Sequence: -1, Transactional: true}})
	b.Add(1000, []byte{0, 0, 0, 0}, []byte{0, 0, 0, 0, 0, 0})
	if _, _, err := p.Append(context.Background(), appendOf(b.Finish()), 1); err != nil {
		t.Fatal(err)
	}
}
