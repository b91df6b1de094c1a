package group

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"ottla/coordinator"
	"ottla/protocol/record"
)

// sink is a Store that keeps nothing but what it is made with.
type sink struct {
	log []record.Batch
	end int64
}

func (s *sink) Append(_ context.Context, _, _ int32, data []byte) (int64, func(context.Context) error, error) {
	base := s.end
	s.end += record.Batch(data).NextOffset()
	return base, nil, nil
}

func (s *sink) Load(context.Context, int32, int32) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, b := range s.log {
			if !yield(b, nil) {
				return
			}
		}
	}
}

func benchCoordinator(b testing.TB, s *sink) *Coordinator {
	o := Defaults()
	o.InitialRebalanceDelay = 0
	c := New(Config{Store: s, Options: func() *Options { return o }, Partitions: func() int32 { return 1 }, Now: time.Now})
	b.Cleanup(c.Close)
	c.Led(0, 1)
	if err := c.TopicsDeleted(context.Background(), nil); err != nil { // it waits for the load
		b.Fatal(err)
	}
	return c
}

// benchMember joins a group of its own.
func benchMember(b testing.TB, c *Coordinator, group string) (id string, generation int32) {
	r := JoinRequest{Group: group, Client: Client{"c", "/127.0.0.1"}, ProtocolType: "consumer", Protocols: consumerProtocols("t"),
		Session: 30 * time.Minute, Rebalance: time.Minute}
	a := c.Join(context.Background(), r)
	if a.Err != nil {
		b.Fatal(a.Err)
	}
	if got := c.Sync(context.Background(), SyncRequest{Group: group, MemberID: a.MemberID, Generation: a.Generation}); got.Err != nil {
		b.Fatal(got.Err)
	}
	return a.MemberID, a.Generation
}

func benchCommit(group, id string, generation int32) CommitRequest {
	return CommitRequest{Group: group, MemberID: id, Generation: generation, Retention: -1,
		Topics: []CommitTopic{{Name: "topic", Partitions: []CommitPartition{{Offset: 1, LeaderEpoch: -1, Time: -1}}}}}
}

// BenchmarkCommit is a member's OffsetCommit of one partition, from the request to its answer.
func BenchmarkCommit(b *testing.B) {
	c := benchCoordinator(b, &sink{})
	id, generation := benchMember(b, c, "g")
	r := benchCommit("g", id, generation)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Commit(context.Background(), r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHeartbeat is that of a member of a classic group.
func BenchmarkHeartbeat(b *testing.B) {
	c := benchCoordinator(b, &sink{})
	id, generation := benchMember(b, c, "g")
	r := HeartbeatRequest{Group: "g", MemberID: id, Generation: generation}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Heartbeat(context.Background(), r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoad is the loading of a shard of offset records: of few keys that were committed often, of keys that come once
// each, and of batches of a single record.
func BenchmarkLoad(b *testing.B) {
	const records = 200_000
	for _, is := range []struct{ keys, batch int }{{1000, 100}, {records, 100}, {1000, 1}} {
		keys, batch := is.keys, is.batch
		b.Run(fmt.Sprintf("keys=%d/batch=%d", keys, batch), func(b *testing.B) {
			s := &sink{}
			for at := 0; at < records; at += batch {
				builder := record.NewBuilder(nil, record.BuilderOptions{BaseOffset: int64(at)})
				for i := range batch {
					n := (at + i) % keys
					r := offsetRecord(place{fmt.Sprintf("group-%d", n/100), "topic", int32(n % 100)}, offset{at: int64(at), expires: -1, committed: startOfTime})
					builder.Add(startOfTime, r.Key, r.Value)
				}
				s.log = append(s.log, builder.Finish())
			}
			b.ReportAllocs()
			for b.Loop() {
				c := benchCoordinator(b, s)
				if got, err := c.Fetch(context.Background(), FetchRequest{Group: "group-0", MemberEpoch: -1}); err != nil || len(got[0].Partitions) != 100 {
					b.Fatalf("after the load: %v, %v", got, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
		})
	}
}

var _ coordinator.Store = (*sink)(nil)

// BenchmarkSweep looks through offsets of which none has expired, as a shard does every offsets.retention.check.interval.ms
// while it serves nobody.
func BenchmarkSweep(b *testing.B) {
	const keys = 200_000
	o := Defaults()
	m := NewMachine(func() *Options { return o }, nil)
	for n := range keys {
		m.keepOffset(place{fmt.Sprintf("group-%d", n/100), "topic", int32(n % 100)}, offset{expires: -1, committed: startOfTime})
	}
	now := coordinator.Instant{Wall: startOfTime}
	b.ReportAllocs()
	for b.Loop() {
		if out := m.Sweep(now); len(out.Records) > 0 {
			b.Fatalf("%d records", len(out.Records))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/offset")
}
