package log

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Nothing is cleaned from the first open transaction on, nor what is not replicated, nor young.
func TestCleanRange(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		do     func(*Log)
		from   int64
		to     int64
	}{
		{name: "all closed segments", to: 9},
		{name: "the high watermark", do: func(l *Log) { l.high.Store(7) }, to: 6},
		{name: "an open transaction", do: func(l *Log) { l.first.Store(5) }, to: 3},
		{name: "min.compaction.lag.ms", change: func(o *Options) { o.MinCompactionLagMs = 6 }, to: 6},
		{name: "none is old enough", change: func(o *Options) { o.MinCompactionLagMs = 1000 }},
		{name: "from the checkpoint", do: func(l *Log) { l.dir.saveCleaned(l, 3) }, from: 3, to: 9},
		{name: "a checkpoint within a segment", do: func(l *Log) { l.dir.saveCleaned(l, 4) }, from: 4, to: 9},
		{name: "a checkpoint above the end", do: func(l *Log) { l.dir.saveCleaned(l, 100) }, to: 9},
		{name: "a checkpoint below the start", do: func(l *Log) { l.dir.saveCleaned(l, 1); l.DeleteRecords(5) }, from: 5, to: 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, l := cleanBox(t, c.change)
			for range 3 {
				putAll(t, l, kv{"a", "1"}, kv{"b", "1"}, kv{"c", "1"})
				b.advance(5 * time.Millisecond)
				roll(t, l)
			}
			putAll(t, l, kv{"a", "2"})
			if c.do != nil {
				c.do(l)
			}
			job, err := l.cleanable(&b.o, l.m.nowMs())
			if err != nil {
				t.Fatal(err)
			}
			if c.to == 0 && job == nil {
				return
			}
			if job == nil || job.from != c.from || job.to != c.to {
				t.Fatalf("%+v, want [%d, %d)", job, c.from, c.to)
			}
			if at, known := l.dir.cleanedUpTo(l); known && at != c.from {
				t.Fatalf("the checkpoint says %d", at)
			}
		})
	}
}

func TestCleanWaitsForTheDirtyRatio(t *testing.T) {
	b, l := cleanBox(t, func(o *Options) { o.MinCleanableDirtyRatio = 0.5 })
	putAll(t, l, kv{"a", "1"}, kv{"b", "1"}, kv{"c", "1"})
	roll(t, l)
	clean(b.m)
	cleaned := func(want int64) {
		t.Helper()
		if at, _ := l.dir.cleanedUpTo(l); at != want {
			t.Fatalf("cleaned up to %d, want %d", at, want)
		}
	}
	cleaned(3)
	putAll(t, l, kv{"a", "2"})
	roll(t, l)
	clean(b.m)
	cleaned(3)
	b.o.MaxCompactionLagMs = 1000
	clean(b.m)
	cleaned(3)
	b.advance(1001 * time.Millisecond)
	if c := clean(b.m); c.delay != 1 {
		t.Fatalf("delay %d", c.delay)
	}
	cleaned(4)
}

// A topic with max.compaction.lag.ms has its segments closed in time.
func TestMaxCompactionLagRolls(t *testing.T) {
	for _, compact := range []bool{true, false} {
		b, l := cleanBox(t, func(o *Options) { o.MaxCompactionLagMs, o.CleanupCompact = 1000, compact })
		putAll(t, l, kv{"a", "1"})
		b.advance(1001 * time.Millisecond)
		putAll(t, l, kv{"a", "2"})
		if got := len(l.segments()) == 2; got != compact {
			t.Fatalf("compact %v: %d segments", compact, len(l.segments()))
		}
	}
}

// A map that is full ends the part that is cleaned, and the next round goes on there.
func TestCleanWithAFullMap(t *testing.T) {
	b, l := cleanBox(t, nil)
	const n = 100
	for i := range n {
		putAll(t, l, kv{fmt.Sprint(i % 50), fmt.Sprint(i)})
		if i%10 == 9 {
			roll(t, l)
		}
	}
	small := someCleaner
	small.DedupeBytes = 20 * slotBytes // 18 keys
	cleanWith(b.m, small)
	if at, _ := l.dir.cleanedUpTo(l); at != n {
		t.Fatalf("cleaned up to %d", at)
	}
	got := readAll(t, l, 0)
	if len(got) != 50 {
		t.Fatalf("%d records: %v", len(got), got)
	}
	for i := range int64(50) {
		if got[50+i] != fmt.Sprint(50+i) {
			t.Fatalf("offset %d is %q", 50+i, got[50+i])
		}
	}
	small.DedupeBytes = slotBytes
	cleanWith(b.m, small)
	if !strings.Contains(b.lines(), "log.cleaner.dedupe.buffer.size") {
		t.Fatal(b.lines())
	}
}
