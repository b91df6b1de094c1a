package log

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

func TestAppendAndRead(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	l := b.log()
	if c, err := l.Read(0, 10, 100, true); err != nil || c.Range != nil {
		t.Fatalf("read of an empty log: %v, %v", c, err)
	}
	changed := l.Changed()
	a := appendTo(t, l, values(5, "a", "b", "c"))
	if a.First != 0 || a.Last != 2 || a.AppendTime != -1 || a.Start != 0 || a.Count != 3 || a.Duplicate || a.MustFlush {
		t.Errorf("first append: %+v", a)
	}
	select {
	case <-changed:
	default:
		t.Error("an append does not wake")
	}
	a = appendTo(t, l, values(6, "d"))
	if a.First != 3 || a.Last != 3 || l.End() != 4 {
		t.Errorf("second append: %+v, end %d", a, l.End())
	}
	for _, again := range []func() *Log{b.log, b.restart, b.kill} {
		l := again()
		for from := range int64(4) {
			wantValues(t, l, from, []string{"a", "b", "c", "d"}[from:]...)
		}
		for _, from := range []int64{-1, 5} {
			if _, err := l.Read(from, 100, 100, true); !errors.Is(err, ErrOffsetOutOfRange) {
				t.Errorf("read at %d: %v", from, err)
			}
		}
	}
	if b.m.Log("t", 1) != nil || b.m.Log("t", 0) == nil {
		t.Error("Log finds the wrong logs")
	}
}

// TestReadBounds asks for every range with every limit in bytes.
func TestReadBounds(t *testing.T) {
	b := newBox(t, vfs.NewMemory(), func(o *Options) { o.SegmentBytes = 1000; o.IndexIntervalBytes = 100 })
	b.start()
	l := b.log()
	var sizes []int // of the batch of each offset
	for i := range 40 {
		n := 1 + i%3
		batch := values(int64(i), strings.Split(strings.Repeat("x", n), "")...)
		for range n {
			sizes = append(sizes, len(batch))
		}
		appendTo(t, l, batch)
	}
	if n := len(l.segments()); n < 3 {
		t.Fatalf("%d segments", n)
	}
	end := l.End()
	for from := range end + 1 {
		for limit := range end + 2 {
			for _, most := range []int{0, 1, 150, 1 << 20} {
				for _, whole := range []bool{false, true} {
					c, err := l.Read(from, limit, most, whole)
					if err != nil {
						t.Fatal(err)
					}
					checkChunk(t, c, from, min(limit, end), most, whole, sizes)
				}
			}
		}
	}
}

func checkChunk(t *testing.T, c Chunk, from, limit int64, most int, whole bool, sizes []int) {
	t.Helper()
	if from >= limit {
		if c.Range != nil {
			t.Fatalf("a chunk for [%d, %d)", from, limit)
		}
		return
	}
	if c.Range == nil {
		if (most > 0 || whole) && c.First.Last < limit && c.First.Size > 0 {
			t.Fatalf("no chunk for [%d, %d), %d bytes", from, limit, most)
		}
		return
	}
	defer c.Range.Release()
	if c.First.Base > from || c.First.Last < from || c.First.Size != sizes[from] || c.First.Magic != 2 {
		t.Fatalf("[%d, %d): first entry %+v", from, limit, c.First)
	}
	n := c.Range.Len()
	if bound := max(most, c.First.Size); n > int64(bound) || !whole && n > int64(most) || whole && n < int64(c.First.Size) {
		t.Fatalf("[%d, %d): %d bytes of at most %d", from, limit, n, most)
	}
	b := make([]byte, n)
	if got, err := c.Range.ReadAt(b, 0); int64(got) != n || err != nil {
		t.Fatalf("read %d of %d: %v", got, n, err)
	}
	for batch := range record.All(b) {
		if batch.LastOffset() >= limit {
			t.Fatalf("[%d, %d) has offset %d", from, limit, batch.LastOffset())
		}
	}
}

func TestRoll(t *testing.T) {
	start := time.UnixMilli(1_700_000_000_000)
	at := func(i int64) int64 { return start.UnixMilli() + i }
	for name, c := range map[string]struct {
		change func(*Options)
		do     func(b *box, l *Log)
		bases  []int64
	}{
		"by size": {
			func(o *Options) { o.SegmentBytes = 200 },
			func(b *box, l *Log) {
				for i := range 5 {
					appendTo(t, l, values(at(int64(i)), strings.Repeat("x", 50)))
				}
			}, []int64{0, 1, 2, 3, 4},
		},
		"by record time": { // the fixture segments: 10 s apart, 60 s
			func(o *Options) { o.SegmentMs = 60_000 },
			func(b *box, l *Log) {
				for i := range 20 {
					appendTo(t, l, values(at(int64(i)*10_000), "x"))
				}
			}, []int64{0, 7, 14},
		},
		"by clock without timestamps": {
			func(o *Options) { o.SegmentMs = 60_000 },
			func(b *box, l *Log) {
				for range 4 {
					appendTo(t, l, values(-1, "x"))
					b.advance(30 * time.Second)
				}
			}, []int64{0, 3},
		},
		"by full index": {
			func(o *Options) { o.SegmentIndexBytes = 36; o.IndexIntervalBytes = 10 },
			func(b *box, l *Log) {
				for i := range 8 {
					appendTo(t, l, values(at(int64(i)), strings.Repeat("x", 50)))
				}
			}, []int64{0, 3, 6},
		},
		"restart between": {
			func(o *Options) { o.SegmentMs = 60_000 },
			func(b *box, l *Log) {
				appendTo(t, l, values(at(0), "x"))
				l = b.restart()
				appendTo(t, l, values(at(60_000), "x"))
				l = b.kill()
				appendTo(t, l, values(at(60_001), "x"))
			}, []int64{0, 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, vfs.NewCrashable(), c.change)
			b.start()
			c.do(b, b.log())
			l := b.log()
			var bases []int64
			for _, s := range l.segments() {
				bases = append(bases, s.base)
			}
			if !slices.Equal(bases, c.bases) {
				t.Errorf("segments %v, want %v", bases, c.bases)
			}
			for _, base := range bases[1:] {
				if !exists(b.fs, l.path(offsetName(base, snapshotSuffix))) {
					t.Errorf("no snapshot at %d", base)
				}
			}
		})
	}
}

func TestOffsetOverflowRolls(t *testing.T) {
	b := newBox(t, vfs.NewMemory(), nil)
	b.start()
	l := b.log()
	follower := func(base int64) {
		t.Helper()
		if _, err := l.AppendAsFollower(batchOf(record.BuilderOptions{BaseOffset: base}, rec{1, "x"})); err != nil {
			t.Fatal(err)
		}
	}
	follower(0)
	follower(math.MaxInt32)
	follower(math.MaxInt32 + 1)
	if n := len(l.segments()); n != 2 {
		t.Errorf("%d segments", n)
	}
	if got := readAll(t, l, 5); len(got) != 2 {
		t.Errorf("read %v", got)
	}
}

// TestTimes follows offs-1, offs-2, offs-4 and offs-6.
func TestTimes(t *testing.T) {
	type look struct{ time, offset, found int64 }
	for name, c := range map[string]struct {
		batches [][]byte
		looks   []look
		max     look
	}{
		"between records": {
			[][]byte{plain(rec{2, ""}, rec{4, ""}, rec{6, ""}, rec{8, ""})},
			[]look{{2, 0, 2}, {3, 1, 4}, {5, 2, 6}, {7, 3, 8}, {8, 3, 8}, {9, -1, -1}, {0, 0, 2}}, look{0, 3, 8},
		},
		"compressed": {
			[][]byte{batchOf(record.BuilderOptions{Codec: record.Zstd}, rec{5, ""}, rec{9, ""}, rec{7, ""})},
			[]look{{6, 1, 9}, {9, 1, 9}, {10, -1, -1}}, look{0, 1, 9},
		},
		"one by one": {
			[][]byte{values(5, ""), values(9, ""), values(7, "")},
			[]look{{6, 1, 9}, {5, 0, 5}, {10, -1, -1}}, look{0, 1, 9},
		},
		"backwards": {
			[][]byte{values(100, ""), values(50, ""), values(99, ""), values(10, "")},
			[]look{{60, 0, 100}, {100, 0, 100}, {101, -1, -1}}, look{0, 0, 100},
		},
		"none": {nil, []look{{0, -1, -1}}, look{0, -1, -1}},
	} {
		for _, options := range []func(*Options){
			nil,
			func(o *Options) { o.SegmentBytes = 100 },
			func(o *Options) { o.IndexIntervalBytes = 0 },
		} {
			t.Run(name, func(t *testing.T) {
				b := newBox(t, vfs.NewCrashable(), options)
				b.start()
				l := b.log()
				for _, batch := range c.batches {
					appendTo(t, l, slices.Clone(batch))
				}
				check := func() {
					t.Helper()
					for _, k := range c.looks {
						offset, time, epoch, found, err := l.OffsetForTime(k.time, l.End())
						if err != nil || offset != k.offset || time != k.found || found != (k.offset >= 0) || found && epoch != 0 {
							t.Errorf("time %d: offset %d, time %d, epoch %d, %v, %v", k.time, offset, time, epoch, found, err)
						}
					}
					offset, time, _, _, err := l.MaxTimestamp(l.End())
					if err != nil || offset != c.max.offset || time != c.max.found {
						t.Errorf("largest: offset %d, time %d, %v", offset, time, err)
					}
				}
				check()
				l = b.restart()
				check()
				l = b.kill()
				check()
				if len(c.batches) == 0 {
					return
				}
				if _, err := l.DeleteRecords(0); err != nil {
					t.Fatal(err)
				}
				if _, _, _, found, _ := l.OffsetForTime(c.looks[0].time, c.looks[0].offset); found {
					t.Error("found at the limit")
				}
				appendTo(t, l, values(1000, "later"))
				if err := l.TruncateTo(l.End() - 1); err != nil {
					t.Fatal(err)
				}
				check()
			})
		}
	}
}

func TestLogAppendTime(t *testing.T) {
	b := newBox(t, vfs.NewMemory(), func(o *Options) { o.LogAppendTime = true })
	b.start()
	l := b.log()
	a := appendTo(t, l, values(1, "a", "b"))
	now := b.clock().UnixMilli()
	if a.AppendTime != now {
		t.Errorf("append time %d, want %d", a.AppendTime, now)
	}
	if offset, time, _, found, _ := l.OffsetForTime(2, l.End()); offset != 0 || time != now || !found {
		t.Errorf("offset %d, time %d, %v", offset, time, found)
	}
}

// TestAppendStamps follows prod-4: the stored epoch is the leader's, and the checksum holds.
func TestAppendStamps(t *testing.T) {
	b := newBox(t, vfs.NewMemory(), nil)
	b.start()
	l := b.log()
	for i, epoch := range []int32{0, 7, -1} {
		batch := batchOf(record.BuilderOptions{LeaderEpoch: epoch}, rec{1, "x"})
		if _, err := l.Append(Append{Records: batch, Epoch: 7, RequestVersion: 9}); err != nil {
			t.Fatal(err)
		}
		c, err := l.Read(int64(i), l.End(), 1000, true)
		if err != nil || c.First.Epoch != 7 || c.First.Base != int64(i) {
			t.Errorf("stored %+v, %v", c.First, err)
		}
		c.Range.Release()
	}
	readAll(t, l, 0)
	if l.LastEpoch() != 7 || l.EpochAt(0) != 7 {
		t.Errorf("epoch %d", l.LastEpoch())
	}
}

func TestRefused(t *testing.T) {
	b := newBox(t, vfs.NewMemory(), func(o *Options) { o.SegmentBytes = 300; o.MaxMessageBytes = 1000 })
	b.start()
	l := b.log()
	bad := values(1, "x")
	bad[len(bad)-1]++
	for name, c := range map[string]struct {
		records []byte
		err     error
	}{
		"checksum":            {bad, record.ErrCorrupt},
		"above max.message":   {values(1, strings.Repeat("x", 1000)), record.ErrTooLarge},
		"larger than segment": {values(1, strings.Repeat("x", 300)), ErrTooLarge},
	} {
		if _, err := l.Append(Append{Records: c.records, RequestVersion: 9}); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l.End() != 0 || l.Size() != 0 {
		t.Errorf("end %d, size %d", l.End(), l.Size())
	}
}

func TestFollower(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 400 })
	b.start()
	l := b.log()
	at := func(base int64, epoch int32, vs ...string) []byte {
		var recs []rec
		for _, v := range vs {
			recs = append(recs, rec{1, v})
		}
		return batchOf(record.BuilderOptions{BaseOffset: base, LeaderEpoch: epoch}, recs...)
	}
	data := slices.Concat(at(0, 1, "a", "b"), at(2, 1, "c"), at(3, 2, "d"))
	cut := at(4, 2, "e")
	a, err := l.AppendAsFollower(append(slices.Clone(data), cut[:len(cut)-1]...))
	if err != nil || a.First != 0 || a.Last != 3 || a.Count != 4 {
		t.Fatalf("%+v, %v", a, err)
	}
	if _, err := l.AppendAsFollower(at(3, 2, "x")); !errors.Is(err, ErrUnexpectedOffset) {
		t.Errorf("append below the end: %v", err)
	}
	bad := at(4, 2, "e")
	bad[len(bad)-2]++
	if _, err := l.AppendAsFollower(bad); !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("wrong checksum: %v", err)
	}
	if a, err := l.AppendAsFollower(cut[:20]); err != nil || a.Count != 0 {
		t.Errorf("half a batch: %+v, %v", a, err)
	}
	if _, err := l.AppendAsFollower(at(10, 4, "k")); err != nil { // a hole, of compaction
		t.Fatal(err)
	}
	for range 2 {
		if l.End() != 11 || l.LastEpoch() != 4 {
			t.Fatalf("end %d, epoch %d", l.End(), l.LastEpoch())
		}
		got := readAll(t, l, 0)
		if len(got) != 5 || got[10] != "k" || len(readAll(t, l, 5)) != 1 {
			t.Fatalf("read %v", got)
		}
		l = b.kill()
	}
	type end struct {
		epoch  int32
		offset int64
	}
	for epoch, want := range map[int32]end{-1: {-1, -1}, 0: {0, 0}, 1: {1, 3}, 2: {2, 10}, 3: {2, 10}, 4: {4, 11}, 5: {-1, -1}} {
		if e, o := l.EpochEnd(epoch); (end{e, o}) != want {
			t.Errorf("end of epoch %d: %d, %d", epoch, e, o)
		}
	}
}

func TestDeletePartition(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	l := b.log()
	appendTo(t, l, idempotent(1, 0, 0, 1))
	changed := l.Changed()
	c, err := l.Read(0, 1, 1000, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.m.Delete("t", 0); err != nil {
		t.Fatal(err)
	}
	<-changed
	if _, err := l.Append(Append{Records: values(1, "x"), RequestVersion: 9}); !errors.Is(err, ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if n, err := c.Range.ReadAt(make([]byte, 5), 0); n != 5 || err != nil {
		t.Errorf("a reader lost its bytes: %v", err)
	}
	c.Range.Release()
	if b.m.Log("t", 0) != nil || b.m.Delete("t", 0) != nil {
		t.Error("still there")
	}
	id := [16]byte{2}
	l, err = b.m.Create("t", 0, id)
	if err != nil || l.End() != 0 || l.TopicID() != id {
		t.Fatalf("the next one: %v, %v", l, err)
	}
	if _, err := b.m.Create("t", 0, [16]byte{3}); !errors.Is(err, ErrTopicID) {
		t.Errorf("create with another id: %v", err)
	}
	appendTo(t, l, idempotent(1, 0, 1, 1)) // store-5: the producer goes on
	if _, err := l.Append(Append{Records: idempotent(1, 0, 3, 1), RequestVersion: 9}); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Errorf("gap: %v", err)
	}
	b.close()
	list, _ := b.fs.ReadDir(dataDir)
	gone := 0
	for _, e := range list {
		if _, _, kind := parseDirName(e.Name()); kind == dirDeleted {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("%d directories wait for their removal", gone)
	}
	b.o.FileDeleteDelayMs = 0
	b.start()
	if l := b.m.Log("t", 0); l == nil || l.End() != 1 || l.TopicID() != id {
		t.Errorf("after a restart %v", l)
	}
}
