package log

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// v0 and v1: no producers and no epochs; tombstones go that are older than the last clean segment by

// delete.retention.ms.
func TestCleanOldFormats(t *testing.T) {
	for _, magic := range []int8{0, 1} {
		b, l := cleanBox(t, func(o *Options) { o.DeleteRetentionMs = 1 << 40 })
		old := func(key, value string) {
			t.Helper()
			var v []byte
			if value != "" {
				v = []byte(value)
			}
			batch := keyedBatch(key, v)
			data, err := record.DownConvert(batch, magic, 0)
			if err != nil {
				t.Fatal(err)
			}
			record.Batch(data).SetBaseOffset(l.End())
			if _, err := l.AppendAsFollower(data); err != nil {
				t.Fatal(err)
			}
			l.SetHighWatermark(l.End())
		}
		old("a", "1")
		old("a", "2")
		old("b", "1")
		old("b", "")
		roll(t, l)
		clean(b.m)
		old("c", "1")
		roll(t, l)
		clean(b.m)
		wantContents(t, l, `
			segment 0
			1-1 1:a=2
			3-3 3:b=null
			4-4 4:c=1
			segment 5`)
		b.o.DeleteRetentionMs = 0
		old("c", "2")
		roll(t, l)
		// The tombstone lies in the last clean segment itself, which is as old as that.
		clean(b.m)
		wantContents(t, l, `
			segment 0
			1-1 1:a=2
			5-5 5:c=2
			segment 6`)
		if l.uncleanable.Load() {
			t.Fatal(b.lines())
		}
	}
}

func keyedBatch(key string, value []byte) []byte {
	b := record.NewBuilder(nil, record.BuilderOptions{})
	b.Add(startMs, []byte(key), value)
	return b.Finish()
}

// A batch that is larger than the buffers is cleaned like any other.
func TestCleanLargeBatches(t *testing.T) {
	b, l := cleanBox(t, func(o *Options) { o.SegmentBytes = 10 << 20 })
	large := strings.Repeat("large ", 20_000)
	appendTo(t, l, keyed(record.BuilderOptions{}, startMs, kv{"a", "1"}, kv{"b", large}))
	appendTo(t, l, keyed(record.BuilderOptions{Codec: record.Zstd}, startMs, kv{"a", large}, kv{"c", large}))
	putAll(t, l, kv{"c", "1"})
	roll(t, l)
	clean(b.m)
	if got := readAll(t, l, 0); len(got) != 3 || got[1] != large || got[2] != large || got[4] != "1" {
		t.Fatalf("%d records", len(got))
	}
}

// readsFS counts the bytes of reads of logs.
type readsFS struct {
	*vfs.Memory
	reads atomic.Int64
}

type readsFile struct {
	vfs.File
	fs *readsFS
}

func (f *readsFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := f.Memory.OpenFile(name, flag, perm)
	if err != nil || !strings.HasSuffix(name, logSuffix) {
		return file, err
	}
	return &readsFile{file, f}, nil
}

func (f *readsFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.reads.Add(1)
	return f.File.ReadAt(p, off)
}

// log.cleaner.io.buffer.size says how much is read at once.
func TestCleanReadsBySize(t *testing.T) {
	reads := func(size int) int64 {
		fsys := &readsFS{Memory: vfs.NewCrashable()}
		b := newBox(t, fsys, func(o *Options) { compacted(o); o.SegmentBytes = 1 << 20 })
		b.start()
		l := b.log()
		for i := range 500 {
			putAll(t, l, kv{fmt.Sprint(i), strings.Repeat("x", 200)})
		}
		roll(t, l)
		o := someCleaner
		o.BufferBytes = size
		fsys.reads.Store(0)
		cleanWith(b.m, o)
		return fsys.reads.Load()
	}
	if small, large := reads(2<<10), reads(1<<20); small < 20*large || large > 20 {
		t.Errorf("%d reads with a small buffer, %d with a large one", small, large)
	}
}

// Who needs the log stops a cleaning, which leaves nothing behind; retention does without.

// A change of cleanup.policy stops a cleaning too.

// What was cleaned is dirty again where the log was truncated, also on disk: what is written there

// next may be what a tombstone without a horizon is for.

// A reader goes on with the segment that it has.

// compact,delete: retention deletes what is old, and the rest is compacted.
func TestCompactAndDelete(t *testing.T) {
	b, l := cleanBox(t, func(o *Options) { o.CleanupDelete, o.RetentionMs = true, 5000 })
	putAll(t, l, kv{"old", "1"})
	roll(t, l)
	b.advance(4 * time.Second)
	putAll(t, l, kv{"a", "1"}, kv{"a", "2"})
	roll(t, l)
	b.o.SegmentBytes = 1 // or they would become one, as young as the youngest
	clean(b.m)
	wantContents(t, l, `
		segment 0
		0-0 0:old=1
		segment 1
		2-2 2:a=2
		segment 3`)
	b.advance(2 * time.Second)
	clean(b.m)
	wantContents(t, l, `
		segment 1
		2-2 2:a=2
		segment 3`)
	if l.Start() != 1 {
		t.Fatal(l.Start())
	}
	clean(b.m)
	if at, _ := l.dir.cleanedUpTo(l); at != 3 || strings.Contains(b.lines(), "level=WARN") {
		t.Fatalf("cleaned up to %d: %s", at, b.lines())
	}
}

// The cleaner works by itself, after each backoff, on several logs at a time.
func TestCleanerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, vfs.NewCrashable(), func(o *Options) { compacted(o); o.SegmentBytes = 1 << 20 })
		var o atomic.Pointer[CleanerOptions]
		never := someCleaner
		never.Backoff = 1000 * time.Hour
		o.Store(&never)
		changed := make(chan struct{})
		reg := prometheus.NewPedanticRegistry()
		b.change = func(m *ManagerOptions) {
			m.Registerer = reg
			m.Cleaner = func() (CleanerOptions, <-chan struct{}) { return *o.Load(), changed }
		}
		b.start()
		var logs []*Log
		for p := range int32(5) {
			l, err := b.m.Create("t", p, [16]byte{1})
			if err != nil {
				t.Fatal(err)
			}
			putAll(t, l, kv{"a", "1"}, kv{"a", "2"})
			roll(t, l)
			logs = append(logs, l)
		}
		change(t, b.fs, logs[4].path(offsetName(0, logSuffix)), func(d []byte) []byte { d[100] ^= 1; return d })
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, known := logs[0].dir.cleanedUpTo(logs[0]); known {
			t.Fatal("cleaned before its time")
		}
		often := someCleaner
		often.Threads = 3
		o.Store(&often)
		old := changed
		changed = make(chan struct{})
		close(old)
		time.Sleep(often.Backoff + time.Millisecond)
		synctest.Wait()
		for _, l := range logs[:4] {
			if at, _ := l.dir.cleanedUpTo(l); at != 2 {
				t.Errorf("%s is cleaned up to %d", l, at)
			}
		}
		got := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "kafka_log_logcleaner") {
				got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		if len(got) != 9 || got["kafka_log_logcleanermanager_uncleanable_partitions_count"] != 1 || got["kafka_log_logcleanermanager_uncleanable_bytes"] < 100 ||
			got["kafka_log_logcleanermanager_max_dirty_percent"] != 0 {
			t.Errorf("%v", got)
		}
		b.close()
	})
}

// log.cleaner.io.max.bytes.per.second holds for all threads, and a change of it at once.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at throttle
		var rate atomic.Int64
		rate.Store(1000)
		current := func() float64 { return float64(rate.Load()) }
		began := time.Now()
		take := func(n int64) error { return at.take(n, current, func() error { return nil }) }
		for range 10 {
			if err := take(500); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d < 4900*time.Millisecond || d > 5100*time.Millisecond {
			t.Errorf("5000 bytes took %v", d)
		}
		go func() { time.Sleep(time.Second); rate.Store(0) }()
		began = time.Now()
		take(1e6)
		if d := time.Since(began); d > 1100*time.Millisecond {
			t.Errorf("after a change it took %v", d)
		}
		rate.Store(1)
		stop := errors.New("stop")
		if err := at.take(1000, current, func() error { return stop }); err != stop {
			t.Error(err)
		}
	})
}

// The modified time of a segment is that of the last one that it is made of.
func TestCleanKeepsTimes(t *testing.T) {
	b, l := cleanBox(t, nil)
	putAll(t, l, kv{"a", "1"})
	roll(t, l)
	putAll(t, l, kv{"b", "1"})
	roll(t, l)
	at := time.UnixMilli(startMs - 1e6)
	if err := vfs.SetModTime(b.fs, l.segments()[1].path(logSuffix), at); err != nil {
		t.Fatal(err)
	}
	clean(b.m)
	info, err := b.fs.Stat(l.segments()[0].path(logSuffix))
	if err != nil || !info.ModTime().Equal(at) {
		t.Fatal(info.ModTime(), err)
	}
	if n := len(l.segments()); n != 2 {
		t.Fatalf("%d segments", n)
	}
	if offset, _, _, found, err := l.OffsetForTime(startMs, 2); err != nil || !found || offset != 0 {
		t.Fatal(offset, found, err)
	}
}
