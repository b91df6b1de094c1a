package txn

import (
	"context"
	"iter"
	"runtime"
	"testing"
	"time"

	"ottla/protocol/record"
)

// sink is a log that keeps nothing, and whose markers are written at once.
type sink struct{ end int64 }

func (s *sink) Append(_ context.Context, _, _ int32, data []byte) (int64, func(context.Context) error, error) {
	base := s.end
	s.end += record.Batch(data).NextOffset()
	return base, nil, nil
}

func (*sink) Load(context.Context, int32, int32) iter.Seq2[[]byte, error] {
	return func(func([]byte, error) bool) {}
}

func (*sink) WriteMarker(_ context.Context, m Marker) []error {
	return make([]error, len(m.Partitions))
}

// BenchmarkTransaction is one by transaction.version 2: a partition is added, the end is decided, and the next waits until
// the marker is noted.
func BenchmarkTransaction(b *testing.B) {
	s := &sink{}
	o := Defaults()
	o.Version = 2
	last := int64(0)
	c := New(Config{Store: s, Markers: s, Options: func() *Options { return o }, Partitions: func() int32 { return 1 }, Now: time.Now,
		ProducerIDs: func(context.Context) (int64, error) { last++; return last, nil }})
	b.Cleanup(c.Close)
	c.Led(0, 1)
	for len(c.Unloaded(0)) > 0 {
		runtime.Gosched()
	}
	ctx := context.Background()
	p, err := c.Init(ctx, InitRequest{ID: "id", Timeout: 60_000})
	if err != nil {
		b.Fatal(err)
	}
	partitions := []Partition{{"topic", 0}}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Add(ctx, AddRequest{ID: "id", Producer: p.ID, Epoch: p.Epoch, Partitions: partitions, Version: 2, Patience: time.Second}); err != nil {
			b.Fatal(err)
		}
		if p, err = c.End(ctx, EndRequest{ID: "id", Producer: p.ID, Epoch: p.Epoch, Commit: true, Version: 2, NewProducerID: -1}); err != nil {
			b.Fatal(err)
		}
	}
}
