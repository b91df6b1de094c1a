package log

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"ottla/protocol/record"
)

// benchLog is a log on a real disk with large segments.
func benchLog(tb testing.TB, change func(*Options)) *Log {
	tb.Helper()
	o := *DefaultOptions()
	o.TimestampAfterMaxMs = 1 << 60
	if change != nil {
		change(&o)
	}
	m, err := OpenManager(ManagerOptions{Dirs: []string{tb.TempDir()}, TopicOptions: func(string) *Options { return &o }})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() })
	l, err := m.Create("bench", 0, [16]byte{1})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func batchOfSize(records, bytes int) []byte {
	var recs []rec
	for range records {
		recs = append(recs, rec{startMs, strings.Repeat("x", bytes)})
	}
	return plain(recs...)
}

// TestAllocations: none per record, a constant few per request.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	few, many := batchOfSize(1, 100), batchOfSize(1000, 100)
	for name, b := range map[string][]byte{"one record": few, "a thousand records": many} {
		l := benchLog(t, nil)
		if n := testing.AllocsPerRun(200, func() {
			b := record.Batch(b)
			b.SetBaseOffset(0)
			if _, err := l.Append(Append{Records: b, RequestVersion: 9}); err != nil {
				t.Fatal(err)
			}
			l.SetHighWatermark(l.End())
		}); n > 2 {
			t.Errorf("append of %s allocates %v times", name, n)
		}
		from := int64(0)
		if n := testing.AllocsPerRun(100, func() {
			c, err := l.Read(from, l.End(), 1<<20, true)
			if err != nil || c.Range == nil {
				t.Fatal(err)
			}
			from = c.First.Last + 1
			c.Range.Release()
		}); n > 2 {
			t.Errorf("read of %s allocates %v times", name, n)
		}
	}
	l := benchLog(t, nil)
	seq := int32(0)
	batches := make([][]byte, 300)
	for i := range batches {
		batches[i] = idempotent(1, 0, seq, 10)
		seq += 10
	}
	i := 0
	if n := testing.AllocsPerRun(200, func() {
		if _, err := l.Append(Append{Records: batches[i], RequestVersion: 9}); err != nil {
			t.Fatal(err)
		}
		i++
	}); n > 2 {
		t.Errorf("idempotent append allocates %v times", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []struct{ records, bytes int }{{1, 100}, {1, 1024}, {16, 1024}, {1000, 100}, {64, 16384}} {
		b.Run(fmt.Sprintf("%dx%d", size.records, size.bytes), func(b *testing.B) {
			l := benchLog(b, func(o *Options) { o.MaxMessageBytes = 16 << 20; o.RetentionBytes = 0; o.FileDeleteDelayMs = 0 })
			batch := record.Batch(batchOfSize(size.records, size.bytes))
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				batch.SetBaseOffset(0)
				if _, err := l.Append(Append{Records: batch, RequestVersion: 9}); err != nil {
					b.Fatal(err)
				}
				l.SetHighWatermark(l.End())
				if len(l.segments()) > 2 {
					b.StopTimer()
					l.retain()
					b.StartTimer()
				}
			}
		})
	}
}

// BenchmarkRead finds ranges at the end of the log, from its beginning on, and anywhere.
func BenchmarkRead(b *testing.B) {
	l := benchLog(b, nil)
	batch := record.Batch(batchOfSize(16, 1024))
	for range 10_000 {
		batch.SetBaseOffset(0)
		if _, err := l.Append(Append{Records: batch, RequestVersion: 9}); err != nil {
			b.Fatal(err)
		}
	}
	end := l.End()
	at := map[string]func(i int64) int64{
		"tail":     func(int64) int64 { return end - 16 },
		"anywhere": func(i int64) int64 { return i * 7919 % end },
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range at {
			if !yield(n) {
				return
			}
		}
	}) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := int64(0)
			for b.Loop() {
				c, err := l.Read(at[name](i), end, 1<<20, true)
				if err != nil || c.Range == nil {
					b.Fatal(err)
				}
				c.Range.Release()
				i++
			}
		})
	}
}

// BenchmarkFlush is 64 producers, each of whom waits for the fsync of its record.
func BenchmarkFlush(b *testing.B) {
	l := benchLog(b, func(o *Options) { o.FlushMessages = 1 })
	var n atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		batch := record.Batch(batchOfSize(1, 100))
		for pb.Next() {
			batch.SetBaseOffset(0)
			a, err := l.Append(Append{Records: batch, RequestVersion: 9})
			if err == nil {
				err = l.Flush(a.Last + 1)
			}
			if err != nil {
				b.Error(err)
				return
			}
			n.Add(1)
		}
	})
}

// BenchmarkPartitions makes partitions, writes a record to each, stops and starts again.
func BenchmarkPartitions(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		dir := b.TempDir()
		open := func() *Manager {
			m, err := OpenManager(ManagerOptions{Dirs: []string{dir}})
			if err != nil {
				b.Fatal(err)
			}
			if err := m.Load(); err != nil {
				b.Fatal(err)
			}
			return m
		}
		m := open()
		for i := range int32(n) {
			l, err := m.Create("t", i, [16]byte{1})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := l.Append(Append{Records: values(startMs, "x"), RequestVersion: 9}); err != nil {
				b.Fatal(err)
			}
		}
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
		m = open()
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
