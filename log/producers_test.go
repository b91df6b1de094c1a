package log

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// TestIdempotence follows prod-2, prod-3 and prod-8, and store-2 over both kinds of restart.
func TestIdempotence(t *testing.T) {
	type step struct {
		records []byte
		first   int64
		err     error
	}
	steps := func(name string, list ...step) {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, vfs.NewCrashable(), nil)
			b.start()
			l := b.log()
			for i, s := range list {
				switch string(s.records) {
				case "restart":
					l = b.restart()
					continue
				case "kill":
					l = b.kill()
					continue
				}
				end := l.End()
				a, err := l.Append(Append{Records: s.records, RequestVersion: 9})
				if !errors.Is(err, s.err) || err == nil && a.First != s.first {
					t.Errorf("step %d: %+v, %v; want %d, %v", i, a, err, s.first, s.err)
				}
				if (err != nil || a.Duplicate) && l.End() != end {
					t.Errorf("step %d appended something", i)
				}
				l.SetHighWatermark(l.End())
			}
		})
	}
	one := func(seq int32) []byte { return idempotent(1, 0, seq, 1) }
	steps("repeats and gaps",
		step{one(0), 0, nil}, step{one(1), 1, nil}, step{one(2), 2, nil}, step{one(1), 1, nil}, step{one(0), 0, nil},
		step{one(3), 3, nil}, step{one(4), 4, nil}, step{one(5), 5, nil}, step{one(0), 0, ErrOutOfOrderSequence},
		step{one(1), 1, nil}, step{one(7), 0, ErrOutOfOrderSequence}, step{one(6), 6, nil})
	steps("wrap",
		step{one(math.MaxInt32), 0, nil}, step{one(0), 1, nil}, step{one(math.MaxInt32), 0, nil},
		step{idempotent(2, 0, math.MaxInt32-1, 3), 2, nil}, step{idempotent(2, 0, 1, 1), 5, nil},
		step{idempotent(2, 0, math.MaxInt32-1, 3), 2, nil}, step{idempotent(2, 0, math.MaxInt32, 2), 0, ErrOutOfOrderSequence})
	steps("epochs",
		step{one(0), 0, nil}, step{idempotent(1, 1, 0, 1), 1, nil}, step{idempotent(1, 2, 5, 1), 0, ErrOutOfOrderSequence},
		step{idempotent(1, 1, 1, 1), 2, nil}, step{one(1), 0, ErrInvalidProducerEpoch})
	steps("unknown producer begins anywhere", step{one(17), 0, nil}, step{one(18), 1, nil}, step{one(17), 0, nil})
	steps("restarts",
		step{one(0), 0, nil}, step{one(1), 1, nil}, step{one(2), 2, nil}, step{one(3), 3, nil}, step{one(4), 4, nil},
		step{[]byte("restart"), 0, nil}, step{one(4), 4, nil}, step{one(6), 0, ErrOutOfOrderSequence}, step{one(5), 5, nil},
		step{[]byte("kill"), 0, nil}, step{one(4), 4, nil}, step{one(5), 5, nil}, step{one(7), 0, ErrOutOfOrderSequence}, step{one(6), 6, nil})
	two := func(seq int32) []byte { return idempotent(2, 3, seq, 2) }
	steps("all in flight repeated after a restart", // as many as a client may have, unanswered when the broker ended
		step{two(0), 0, nil}, step{two(2), 2, nil}, step{one(0), 4, nil}, step{two(4), 5, nil}, step{two(6), 7, nil}, step{one(1), 9, nil}, step{two(8), 10, nil}, step{two(10), 12, nil},
		step{[]byte("restart"), 0, nil}, step{two(14), 0, ErrOutOfOrderSequence}, step{two(2), 2, nil}, step{two(4), 5, nil}, step{two(6), 7, nil}, step{two(8), 10, nil},
		step{two(10), 12, nil}, step{two(0), 0, ErrOutOfOrderSequence}, step{one(0), 4, nil}, step{one(1), 9, nil}, step{two(12), 14, nil})
	steps("across the wrap, after a restart",
		step{one(math.MaxInt32 - 1), 0, nil}, step{one(math.MaxInt32), 1, nil}, step{one(0), 2, nil}, step{one(1), 3, nil},
		step{[]byte("restart"), 0, nil}, step{one(math.MaxInt32), 1, nil}, step{one(math.MaxInt32 - 1), 0, nil}, step{one(2), 4, nil})
	steps("nothing of another epoch", step{one(0), 0, nil}, step{one(1), 1, nil}, step{idempotent(1, 1, 0, 1), 2, nil}, step{idempotent(1, 1, 1, 1), 3, nil},
		step{[]byte("restart"), 0, nil}, step{idempotent(1, 1, 0, 1), 2, nil}, step{one(0), 0, ErrInvalidProducerEpoch}, step{idempotent(1, 1, 2, 1), 4, nil})
}

// TestRecallFromSegments: a producer whose batches lie in several segments, each with its snapshot, is
// known as well after a kill.
func TestRecallFromSegments(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 160 })
	b.start()
	l := b.log()
	for i := range int32(7) {
		appendTo(t, l, idempotent(1, 0, i, 1))
	}
	if n := len(l.segments()); n < 3 {
		t.Fatalf("%d segments", n)
	}
	if err := errors.Join(l.Flush(7), l.dir.savePoints()); err != nil {
		t.Fatal(err)
	}
	l = b.kill()
	for i := range int32(5) {
		if a, err := l.Append(Append{Records: idempotent(1, 0, 2+i, 1), RequestVersion: 9}); err != nil || !a.Duplicate || a.First != int64(2+i) {
			t.Fatalf("batch %d: %+v, %v", i, a, err)
		}
	}
	if _, err := l.Append(Append{Records: idempotent(1, 0, 1, 1), RequestVersion: 9}); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Fatal(err)
	}
	if a := appendTo(t, l, idempotent(1, 0, 7, 1)); a.First != 7 {
		t.Fatalf("%+v", a)
	}
}

func TestProducerExpiry(t *testing.T) {
	b := newBox(t, vfs.NewMemory(), nil)
	b.start()
	l := b.log()
	now := b.clock().UnixMilli()
	appendTo(t, l, idempotent(1, 0, 0, 1))
	if p := l.Producers(); len(p) != 1 || p[0] != (Producer{1, 0, 0, now, -1, -1}) {
		t.Errorf("producers %+v", p)
	}
	l.expireProducers(now + 24*3600e3 - 1)
	if len(l.Producers()) != 1 {
		t.Error("expired too early")
	}
	l.expireProducers(now + 24*3600e3)
	if len(l.Producers()) != 0 {
		t.Error("not expired")
	}
	appendTo(t, l, transactional(2, 0, 0, 1))
	l.expireProducers(math.MaxInt64)
	if len(l.Producers()) != 1 {
		t.Error("expired in a transaction")
	}
}

// TestProducerExpiryChanged: a change of the time counts from the next check on, at a start too.
func TestProducerExpiryChanged(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	expiry := time.Hour
	b.change = func(o *ManagerOptions) { o.ProducerExpiry = func() time.Duration { return expiry } }
	b.start()
	l := b.log()
	appendTo(t, l, idempotent(1, 0, 0, 1))
	b.advance(time.Minute)
	b.m.perform(t.Context(), taskProducers)
	if len(l.Producers()) != 1 {
		t.Error("expired too early")
	}
	expiry = time.Minute
	b.m.perform(t.Context(), taskProducers)
	if len(l.Producers()) != 0 {
		t.Error("not expired")
	}
	appendTo(t, l, idempotent(1, 0, 0, 1))
	b.close()
	expiry = time.Second
	b.advance(time.Minute)
	b.start()
	if len(b.log().Producers()) != 0 {
		t.Error("not expired by a start")
	}
	b.close()
}

// TestTransactions follows a commit and two aborts, one inside the other, with restarts.
func TestTransactions(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	l := b.log()
	stable := func(want int64) {
		t.Helper()
		if got := l.StableOffset(); got != want {
			t.Fatalf("stable offset %d, want %d", got, want)
		}
	}
	appendTo(t, l, values(1, "plain"))
	stable(1)
	appendTo(t, l, transactional(1, 0, 0, 2)) // 1, 2
	appendTo(t, l, values(1, "plain"))
	stable(1)
	appendTo(t, l, transactional(2, 0, 0, 1)) // 4
	if _, err := l.Append(Append{Records: idempotent(1, 0, 2, 1), RequestVersion: 9}); !errors.Is(err, ErrInvalidTxnState) {
		t.Errorf("plain batch in a transaction: %v", err)
	}
	l = b.kill()
	l.SetHighWatermark(l.End())
	stable(1)
	appendMarker(t, l, false, 1, 0, 3) // 5
	stable(4)
	if _, err := l.Append(Append{Records: (record.EndMarker{CoordinatorEpoch: 2}).Batch(1, 0, 1), Origin: record.Coordinator}); !errors.Is(err, ErrCoordinatorFenced) {
		t.Errorf("marker of an old coordinator: %v", err)
	}
	l = b.restart()
	stable(4)
	_, err := l.Append(Append{Records: (record.EndMarker{CoordinatorEpoch: 3}).Batch(2, 1, 1), Origin: record.Coordinator}) // 6
	if err != nil {
		t.Fatal(err)
	}
	stable(4) // the abort is not replicated yet
	l.SetHighWatermark(7)
	stable(7)
	appendTo(t, l, transactional(1, 1, 0, 1)) // 7
	stable(7)
	appendMarker(t, l, true, 1, 1, 3) // 8
	stable(9)

	want := []Aborted{{1, 1, 5, 4}, {2, 4, 6, 7}}
	for range 3 {
		got, err := l.AbortedIn(0, l.End())
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("aborted %v, %v", got, err)
		}
		if got, _ := l.AbortedIn(6, l.End()); !slices.Equal(got, want[1:]) {
			t.Fatalf("aborted from 6: %v", got)
		}
		if got, _ := l.AbortedIn(0, 4); !slices.Equal(got, want[:1]) {
			t.Fatalf("aborted below 4: %v", got)
		}
		l = b.kill()
	}
	if err := l.TruncateTo(6); err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(l.End())
	stable(4)
	if got, _ := l.AbortedIn(0, 100); !slices.Equal(got, want[:1]) {
		t.Fatalf("aborted after truncation: %v", got)
	}
}
