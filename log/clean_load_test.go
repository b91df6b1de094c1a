package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// TestCleanUnderLoad cleans a log all the time while it is written, read, flushed and looked at. Every
// reader sees for each key a value at least as new as when it began, in the order in which they were
// written.
func TestCleanUnderLoad(t *testing.T) {
	const keys, writes = 20, 1000
	b := newBox(t, vfs.OS(), func(o *Options) { compacted(o); o.SegmentBytes, o.FileDeleteDelayMs, o.DeleteRetentionMs = 1000, 0, 0 })
	b.change = func(o *ManagerOptions) { o.Dirs, o.MaxOpenFiles = []string{t.TempDir()}, 8 }
	b.start()
	l := b.log()
	var newest [keys]atomic.Int64 // the value that a reader must see, or a later one
	var stop atomic.Bool
	var wg sync.WaitGroup
	work := func(do func(r *rand.Rand) error) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, 2))
			for !stop.Load() {
				if err := do(r); err != nil {
					t.Error(err)
					return
				}
				runtime.Gosched()
			}
		})
	}
	work(func(*rand.Rand) error { clean(b.m); return nil })
	for range 2 {
		work(func(*rand.Rand) error {
			var before [keys]int64
			for k := range keys {
				before[k] = newest[k].Load()
			}
			var seen [keys]int64
			last := int64(-1)
			for from := int64(0); from < l.End(); {
				c, err := l.Read(from, l.End(), 4000, true)
				if err != nil {
					return err
				}
				if c.Range == nil {
					break
				}
				data := make([]byte, c.Range.Len())
				_, err = c.Range.ReadAt(data, 0)
				c.Range.Release()
				if err != nil {
					return err
				}
				for b := range record.All(data) {
					if b.CRC() != b.ComputeCRC() || b.BaseOffset() <= last {
						return fmt.Errorf("batch %v behind offset %d", b, last)
					}
					last = b.LastOffset()
					for r, err := range record.Records(b, 0) {
						if err != nil {
							return err
						}
						k, _ := strconv.Atoi(string(r.Key))
						v, _ := strconv.ParseInt(string(r.Value), 10, 64)
						if v <= seen[k] {
							return fmt.Errorf("key %d has %d after %d", k, v, seen[k])
						}
						seen[k] = v
					}
					from = b.NextOffset()
				}
			}
			for k := range keys {
				if seen[k] < before[k] {
					return fmt.Errorf("key %d has %d, want %d or later", k, seen[k], before[k])
				}
			}
			return nil
		})
	}
	work(func(r *rand.Rand) error {
		_, err := l.AbortedIn(r.Int64N(l.End()+1), l.End())
		_, _, _, _, e := l.OffsetForTime(startMs+r.Int64N(1000), l.End())
		_, _, _, _, e2 := l.MaxTimestamp(l.End())
		_, e3 := l.Segments()
		return errors.Join(err, e, e2, e3, l.Flush(r.Int64N(l.End()+1)))
	})
	r := rand.New(rand.NewPCG(3, 4))
	for i := int64(1); i <= writes && !t.Failed(); i++ {
		k := r.IntN(keys)
		o := record.BuilderOptions{Codec: []record.Codec{record.None, record.Lz4}[r.IntN(2)]}
		appendTo(t, l, keyed(o, startMs+i, kv{strconv.Itoa(k), strconv.FormatInt(i, 10)}))
		newest[k].Store(i)
		if i%100 == 0 {
			b.advance(time.Millisecond)
		}
	}
	stop.Store(true)
	wg.Wait()
	roll(t, l)
	clean(b.m)
	if got := readAll(t, l, 0); len(got) != keys || l.uncleanable.Load() {
		t.Errorf("%d records are left: %s", len(got), b.lines())
	}
	b.close()
}
