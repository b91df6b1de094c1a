package log

import (
	"errors"
	"fmt"
	"testing"

	"ottla/log/vfs"
)

func TestTruncate(t *testing.T) {
	for target := range int64(12) {
		t.Run(fmt.Sprint(target), func(t *testing.T) {
			b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 250; o.IndexIntervalBytes = 50 })
			b.start()
			l := b.log()
			for i := range 5 {
				if _, err := l.Append(Append{Records: values(int64(10*i), "a", "b"), Epoch: int32(i), RequestVersion: 9}); err != nil {
					t.Fatal(err)
				}
			}
			l.SetHighWatermark(10)
			if err := l.Flush(10); err != nil {
				t.Fatal(err)
			}
			if err := l.TruncateTo(target); err != nil {
				t.Fatal(err)
			}
			end := min(target/2*2, 10)
			high := end
			check := func() {
				t.Helper()
				if l.End() != end || l.HighWatermark() != high || l.Flushed() > end {
					t.Fatalf("end %d, high watermark %d, flushed %d; want %d", l.End(), l.HighWatermark(), l.Flushed(), end)
				}
				if l.LastEpoch() != int32(end/2-1) {
					t.Fatalf("epoch %d", l.LastEpoch())
				}
				if got := readAll(t, l, 0); len(got) != int(end) {
					t.Fatalf("read %v", got)
				}
				offset, _, _, found, _ := l.OffsetForTime(10*(end/2-1), l.End())
				if end > 0 && (!found || offset != end-2) || end == 0 && found {
					t.Fatalf("last time at %d, %v", offset, found)
				}
			}
			check()
			l, high = b.kill(), 0
			check()
			for i := range 4 {
				a := appendTo(t, l, values(int64(100+i), "new"))
				if a.First != end+int64(i) {
					t.Fatalf("appended at %d", a.First)
				}
			}
			l = b.restart()
			if got := readAll(t, l, 0); len(got) != int(end)+4 {
				t.Fatalf("read %v", got)
			}
			if offset, _, _, _, _ := l.OffsetForTime(102, l.End()); offset != end+2 {
				t.Fatalf("new time at %d", offset)
			}
		})
	}
}

func TestTruncateFully(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 250 })
	b.start()
	l := b.log()
	for range 5 {
		appendTo(t, l, idempotent(1, 0, int32(l.End()), 2))
	}
	if err := l.TruncateFully(100); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if l.Start() != 100 || l.End() != 100 || l.HighWatermark() != 100 || l.Size() != 0 || l.LastEpoch() != -1 || len(l.Producers()) != 0 {
			t.Fatalf("[%d, %d) of %d bytes, epoch %d", l.Start(), l.End(), l.Size(), l.LastEpoch())
		}
		l = b.kill()
	}
	appendTo(t, l, values(1, "x"))
	l = b.restart()
	wantValues(t, l, 100, "x")
}

func TestDeleteRecords(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 200; o.RetentionMs = -1 })
	b.start()
	l := b.log()
	for range 5 {
		appendTo(t, l, values(1, "a", "b"))
	}
	for _, c := range []struct {
		to, low int64
		err     error
	}{{5, 5, nil}, {3, 5, nil}, {99, 0, ErrOffsetOutOfRange}, {-2, 0, ErrOffsetOutOfRange}, {-1, 10, nil}} {
		low, err := l.DeleteRecords(c.to)
		if !errors.Is(err, c.err) || err == nil && (low != c.low || l.Start() != c.low) {
			t.Errorf("delete to %d: %d, %v", c.to, low, err)
		}
	}
	if _, err := l.Read(9, 10, 100, true); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("read below the start: %v", err)
	}
	if n, err := l.retain(); err != nil || n != 2 {
		t.Errorf("retention deleted %d, %v", n, err)
	}
	if l = b.restart(); l.Start() != 10 || l.End() != 10 {
		t.Errorf("after a restart [%d, %d)", l.Start(), l.End())
	}
	if a := appendTo(t, l, values(1, "x")); a.First != 10 || a.Start != 10 {
		t.Errorf("append after: %+v", a)
	}
}
