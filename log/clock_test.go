package log

import (
	"testing"
	"time"

	"ottla/log/vfs"
)

// TestRetentionAndTheClock: the broker's clock may jump and clients may stamp what they like; what is
// deleted follows from both as in UnifiedLog.deleteRetentionMsBreachedSegments. Each record is a segment
// of its own, an hour is kept.
func TestRetentionAndTheClock(t *testing.T) {
	const hour = 3600_000
	type step struct {
		jump   time.Duration // of the clock, before
		append []int64       // timestamps, from the clock as it is then, in hours
		start  int64         // of the log after retention
	}
	for name, c := range map[string]struct {
		logAppend bool
		steps     []step
	}{
		"forward": {false, []step{{0, []int64{0, 0}, 0}, {59 * time.Minute, nil, 0}, {2 * time.Hour, nil, 2}}},
		"backward, nothing goes, and back again": {false, []step{{0, []int64{0, 0}, 0}, {-1000 * time.Hour, nil, 0}, {0, []int64{0}, 0},
			{1000 * time.Hour, nil, 0}, {2 * time.Hour, nil, 3}}},
		"backward, what is stamped then is old when the clock is right again": {false, []step{{0, []int64{0}, 0}, {-9 * time.Hour, []int64{0}, 0},
			{9 * time.Hour, []int64{0}, 0}, {61 * time.Minute, nil, 3}}},
		"a future stamp holds what follows": {false, []step{{0, []int64{5, -9, -9}, 0}, {5 * time.Hour, nil, 0}, {61 * time.Minute, nil, 3}}},
		"behind the future stamp":           {false, []step{{0, []int64{-9, 5, -9}, 1}}},
		"stamped by the broker":             {true, []step{{0, []int64{500, -500}, 0}, {61 * time.Minute, nil, 2}}},
		"stamped by a broker that was in the future": {true, []step{{24 * time.Hour, []int64{0}, 0}, {-24 * time.Hour, []int64{0}, 0},
			{2 * time.Hour, nil, 0}, {24 * time.Hour, nil, 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, vfs.NewMemory(), func(o *Options) {
				o.SegmentBytes, o.RetentionMs, o.LogAppendTime = 80, hour, c.logAppend
			})
			b.start()
			l := b.log()
			for i, s := range c.steps {
				b.advance(s.jump)
				for _, at := range s.append {
					appendTo(t, l, values(b.clock().UnixMilli()+at*hour, "x"))
				}
				if _, err := l.retain(); err != nil {
					t.Fatal(err)
				}
				if l.Start() != s.start {
					t.Fatalf("step %d: the log starts at %d, want %d", i, l.Start(), s.start)
				}
				end := l.End()
				if l = b.restart(); l.Start() != s.start || l.End() != end {
					t.Fatalf("step %d, after a restart: [%d, %d), want [%d, %d)", i, l.Start(), l.End(), s.start, end)
				}
			}
			b.close()
		})
	}
}

// TestRollAndTheClock: a segment ends by the stamps of its records where they have any, and by the
// clock where they have none (LogSegment.timeWaitedForRoll).
func TestRollAndTheClock(t *testing.T) {
	const hour = 3600_000
	for name, c := range map[string]struct {
		jump  time.Duration
		times []int64 // hours from the start; -1: none
		left  string
	}{
		"by stamps":                     {0, []int64{1, 2, 3, 4}, "0 2"},
		"the past does not end one":     {0, []int64{5, 1, 2, 6}, "0"},
		"a jump of the clock alone":     {100 * time.Hour, []int64{1, 1, 1}, "0"},
		"without stamps, by the clock":  {100 * time.Hour, []int64{-1, -1, -1}, "0 1 2"},
		"without stamps, backward":      {-100 * time.Hour, []int64{-1, -1, -1}, "0"},
		"a future stamp ends one, once": {0, []int64{1, 100, 100, 1}, "0 1"},
	} {
		b := newBox(t, vfs.NewMemory(), func(o *Options) { o.SegmentMs = hour + hour/2 })
		b.start()
		l := b.log()
		for _, at := range c.times {
			stamp := int64(noTime)
			if at >= 0 {
				stamp = startMs + at*hour
			}
			appendTo(t, l, values(stamp, "x"))
			b.advance(c.jump)
		}
		if bases(l) != c.left {
			t.Errorf("%s: segments %s, want %s", name, bases(l), c.left)
		}
		b.close()
	}
}

// TestDeletedRecordsKeepTheirReaders: who reads what DeleteRecords takes away reads on; who asks for it
// later is told that it is out of range.
func TestDeletedRecordsKeepTheirReaders(t *testing.T) {
	b := newBox(t, vfs.NewMemory(), func(o *Options) { o.SegmentBytes, o.FileDeleteDelayMs = 80, 0 })
	b.start()
	l := b.log()
	for range 3 {
		appendTo(t, l, values(startMs, "x"))
	}
	c, err := l.Read(0, 3, 1000, true)
	if err != nil {
		t.Fatal(err)
	}
	if start, err := l.DeleteRecords(3); err != nil || start != 3 {
		t.Fatal(start, err)
	}
	if _, err := l.retain(); err != nil {
		t.Fatal(err)
	}
	b.m.doDelayed()
	if bases(l) != "2" || exists(b.fs, l.path(offsetName(0, logSuffix))) {
		t.Errorf("segments %s", bases(l))
	}
	buf := make([]byte, c.Range.Len())
	if n, err := c.Range.ReadAt(buf, 0); n != len(buf) {
		t.Errorf("the reader got %d of %d, %v", n, len(buf), err)
	}
	c.Range.Release()
	if _, err := l.Read(0, 3, 1000, true); err == nil {
		t.Error("deleted records are read")
	}
	l = b.restart()
	if l.Start() != 3 || l.End() != 3 {
		t.Errorf("after a restart [%d, %d)", l.Start(), l.End())
	}
	b.close()
}
