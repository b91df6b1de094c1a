package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ottla/log"
)

// begun is a fetch from the partitions' given offset that waits; n counts how often it was done.
func (h *house) begun(wait time.Duration, offset int64, parts ...int32) (w *Waiting, reads []Read, n *atomic.Int32) {
	h.t.Helper()
	for _, p := range parts {
		reads = append(reads, reading(p, offset))
	}
	if w = h.Begin(consumer(wait), reads); w == nil {
		h.t.Fatal("it does not wait")
	}
	n = new(atomic.Int32)
	w.Start(func() { n.Add(1) })
	return w, reads, n
}

func TestAppenderCompletesFetches(t *testing.T) {
	h := newHouse(t)
	a, b := h.alone(0), h.alone(1)
	_, reads, n := h.begun(time.Hour, 0, 0, 1)
	var by Wakes
	for _, p := range []*Partition{a, b} {
		if _, _, err := p.AppendFor(&by, log.Append{Records: batch("x"), RequestVersion: 9}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n.Load() != 0 || !by.Any() {
		t.Errorf("done %d times before the appender's own work was, any %v", n.Load(), by.Any())
	}
	by.Run()
	if n.Load() != 1 || by.Any() {
		t.Errorf("done %d times, any %v", n.Load(), by.Any())
	}
	if count(&reads[0]) != 1 || count(&reads[1]) != 1 {
		t.Errorf("%d and %d batches, want both of one request", count(&reads[0]), count(&reads[1]))
	}
	by.Run()
	if a.watchers != nil || b.watchers != nil || n.Load() != 1 {
		t.Error("something still waits")
	}
	Release(reads)
}

func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		p := h.alone(0)
		stopped, _, n := h.begun(time.Hour, 0, 0)
		stopped.Stop()
		stopped.Stop()
		if n.Load() != 1 {
			t.Errorf("stopped: done %d times", n.Load())
		}
		_, _, late := h.begun(time.Second, 0, 0)
		time.Sleep(time.Second)
		synctest.Wait()
		if late.Load() != 1 {
			t.Errorf("its time is over: done %d times", late.Load())
		}
		_, _, moved := h.begun(time.Hour, 0, 0)
		p.stir() // with nothing new
		synctest.Wait()
		if moved.Load() != 0 {
			t.Error("nothing has changed, and it is done")
		}
		h.Stop("t", 0, false)
		synctest.Wait()
		if moved.Load() != 1 {
			t.Errorf("the partition is gone: done %d times", moved.Load())
		}
		if p.watchers != nil {
			t.Error("something still waits")
		}
	})
}

// TestAppendersAndFetchesAtOnce: whatever meets, each fetch is done once and no record is missed.
func TestAppendersAndFetchesAtOnce(t *testing.T) {
	h := newHouse(t)
	const parts, each = 3, 300
	var ps []*Partition
	for n := range int32(parts) {
		ps = append(ps, h.alone(n))
	}
	var all sync.WaitGroup
	for i, p := range ps {
		all.Go(func() {
			for k := range each {
				var by *Wakes
				if (i+k)%3 > 0 { // others have the manager wake
					by = new(Wakes)
				}
				if _, _, err := p.AppendFor(by, log.Append{Records: batch("x"), RequestVersion: 9}, 1); err != nil {
					t.Error(err)
				}
				if by != nil {
					by.Run()
				}
			}
		})
	}
	for range 4 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var at [parts]int64
			for sum := int64(0); sum < parts*each; {
				reads := make([]Read, parts)
				for n := range reads {
					reads[n] = reading(int32(n), at[n])
				}
				if err := h.Fetch(ctx, consumer(time.Minute), reads); err != nil {
					t.Errorf("at %v: %v", at, err)
					return
				}
				sum = 0
				for n := range reads {
					at[n] += int64(count(&reads[n]))
					sum += at[n]
				}
				Release(reads)
			}
		})
	}
	all.Wait()
}
