package log

import (
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ottla/log/vfs"
)

// diskFS takes a millisecond for each fsync of a .log file, and counts them.
type diskFS struct {
	vfs.FS
	syncs atomic.Int64
}

type diskFile struct {
	vfs.File
	fs *diskFS
}

func (s *diskFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	if err == nil && strings.HasSuffix(name, logSuffix) {
		f = &diskFile{f, s}
	}
	return f, err
}

func (f *diskFile) Sync() error {
	f.fs.syncs.Add(1)
	<-time.After(time.Millisecond)
	return f.File.Sync()
}

// TestGathering: producers who come back one after the other share an fsync all the same, and one who
// is alone, or whom the others have left, waits for nobody, or not for long.
func TestGathering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &diskFS{FS: vfs.NewMemory()}
		b := newBox(t, disk, func(o *Options) { o.FlushMessages = 1 })
		b.start()
		l := b.log()
		produce := func() time.Duration {
			began := time.Now()
			a := appendTo(t, l, values(1, "x"))
			if err := l.Flush(a.Last + 1); err != nil {
				t.Error(err)
			}
			if l.Flushed() <= a.Last {
				t.Error("acknowledged before the flush")
			}
			return time.Since(began)
		}
		for range 5 {
			if took := produce(); took != time.Millisecond {
				t.Errorf("alone it took %v", took)
			}
		}
		const producers, rounds = 10, 100
		disk.syncs.Store(0)
		var wg sync.WaitGroup
		for i := range producers {
			wg.Go(func() {
				for range rounds {
					time.Sleep(time.Duration(i) * 20 * time.Microsecond) // it has something to do in between
					if took := produce(); took > 4*time.Millisecond {
						t.Errorf("it took %v", took)
					}
				}
			})
		}
		wg.Wait()
		if n := disk.syncs.Load(); n > rounds+5 {
			t.Errorf("%d fsyncs for %d rounds", n, rounds)
		}
		if took := produce(); took > time.Millisecond+longestGather {
			t.Errorf("left alone it took %v", took)
		}
		if took := produce(); took != time.Millisecond {
			t.Errorf("alone again it took %v", took)
		}
		b.close()
	})
}
