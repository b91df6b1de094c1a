package log

import (
	"io/fs"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// haltFS stops at the first write of a cleaned segment while halt says so, until that is closed.
type haltFS struct {
	*vfs.Memory
	halt atomic.Pointer[chan struct{}]
	at   chan struct{}
}

type haltFile struct {
	vfs.File
	fs *haltFS
}

func (f *haltFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := f.Memory.OpenFile(name, flag, perm)
	if err != nil || !strings.HasSuffix(name, logSuffix+cleanedSuffix) {
		return file, err
	}
	return &haltFile{file, f}, nil
}

func (f *haltFile) WriteAt(p []byte, off int64) (int, error) {
	if let := f.fs.halt.Swap(nil); let != nil {
		f.fs.at <- struct{}{}
		<-*let
	}
	return f.File.WriteAt(p, off)
}

func TestCleanGivesWay(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(b *box, l *Log) error
		left int // records; -1: the log is gone
	}{
		{"truncation", func(_ *box, l *Log) error { return l.TruncateTo(1) }, 1},
		{"full truncation", func(_ *box, l *Log) error { return l.TruncateFully(3) }, 0},
		{"deletion", func(b *box, _ *Log) error { return b.m.Delete("t", 0) }, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := &haltFS{Memory: vfs.NewCrashable(), at: make(chan struct{})}
			b := newBox(t, fsys, func(o *Options) { compacted(o); o.SegmentBytes = 1 << 20 })
			b.start()
			l := b.log()
			putAll(t, l, kv{"a", "1"}, kv{"b", "1"}, kv{"a", "2"})
			roll(t, l)
			putAll(t, l, kv{"c", "1"})
			let := make(chan struct{})
			fsys.halt.Store(&let)
			cleaned := make(chan struct{})
			go func() { defer close(cleaned); clean(b.m) }()
			<-fsys.at
			if n, err := l.retain(); n != 0 || err != nil {
				t.Fatal(n, err)
			}
			done := make(chan error)
			go func() { done <- c.do(b, l) }()
			for l.hurry.Load() == 0 {
				runtime.Gosched()
			}
			close(let)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			<-cleaned
			if c.left >= 0 {
				if got := readAll(t, l, l.Start()); len(got) != c.left {
					t.Fatalf("%v", got)
				}
				entries, _ := fsys.ReadDir(l.path(""))
				for _, e := range entries {
					if strings.HasSuffix(e.Name(), cleanedSuffix) || strings.HasSuffix(e.Name(), swapSuffix) {
						t.Errorf("%s is left", e.Name())
					}
				}
			}
			if l.uncleanable.Load() {
				t.Fatal(b.lines())
			}
		})
	}
}

func TestCleanStopsWhenThePolicyChanges(t *testing.T) {
	fsys := &haltFS{Memory: vfs.NewCrashable(), at: make(chan struct{})}
	b := newBox(t, fsys, func(o *Options) { compacted(o); o.SegmentBytes = 1 << 20 })
	compact := b.o
	remove := compact
	remove.CleanupCompact, remove.CleanupDelete = false, true
	var now atomic.Pointer[Options]
	now.Store(&compact)
	b.change = func(o *ManagerOptions) { o.TopicOptions = func(string) *Options { return now.Load() } }
	b.start()
	l := b.log()
	putAll(t, l, kv{"a", "1"}, kv{"a", "2"})
	roll(t, l)
	let := make(chan struct{})
	fsys.halt.Store(&let)
	cleaned := make(chan struct{})
	go func() { defer close(cleaned); clean(b.m) }()
	<-fsys.at
	now.Store(&remove)
	close(let)
	<-cleaned
	if got := readAll(t, l, 0); len(got) != 2 {
		t.Fatal(got)
	}
	now.Store(&compact)
	clean(b.m)
	if got := readAll(t, l, 0); len(got) != 1 {
		t.Fatal(got)
	}
}

func TestTruncationLowersTheCleanerCheckpoint(t *testing.T) {
	b, l := cleanBox(t, nil)
	putAll(t, l, kv{"a", "1"}, kv{"b", "1"})
	roll(t, l)
	putAll(t, l, kv{"c", "1"}, kv{"d", "1"})
	roll(t, l)
	b.o.SegmentBytes = 1 // the segments stay two
	clean(b.m)
	b.o.SegmentBytes = 1 << 20
	want := func(at int64) {
		t.Helper()
		if got, _ := l.dir.cleanedUpTo(l); got != at {
			t.Fatalf("cleaned up to %d, want %d", got, at)
		}
		on, err := parseCheckpoint(fileBytes(t, b.fs, l.dir.file(cleanerFile)))
		if err != nil || on[key{"t", 0}] != at {
			t.Fatalf("the file says %v, %v", on, err)
		}
	}
	want(4)
	if err := l.TruncateTo(3); err != nil {
		t.Fatal(err)
	}
	want(2)
	if err := l.TruncateFully(0); err != nil {
		t.Fatal(err)
	}
	want(0)
	if err := b.m.Delete("t", 0); err != nil {
		t.Fatal(err)
	}
	if on, _ := parseCheckpoint(fileBytes(t, b.fs, l.dir.file(cleanerFile))); len(on) != 0 {
		t.Fatalf("the file says %v", on)
	}
}

func TestReadersKeepWhatWasCleaned(t *testing.T) {
	b, l := cleanBox(t, nil)
	putAll(t, l, kv{"a", "1"}, kv{"a", "2"})
	roll(t, l)
	c, err := l.Read(0, 2, 1<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Range.Release()
	old := l.segments()
	clean(b.m)
	data := make([]byte, c.Range.Len())
	if _, err := c.Range.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	n := 0
	for range record.All(data) {
		n++
	}
	if n != 2 {
		t.Fatalf("%d batches", n)
	}
	// One that has the list of segments, and no file of them yet, finds them under their new names,
	// and when they are gone the segments that are there now.
	for range 2 {
		for _, s := range old {
			s.closeFiles()
		}
		if got, gone, err := l.read(old, 0, 2, 1<<20, true); err != nil || !gone && got.First.Base != 0 {
			t.Fatal(got, gone, err)
		} else if !gone {
			got.Range.Release()
		}
		b.m.tasks.mu.Lock()
		for i := range b.m.tasks.delayed {
			b.m.tasks.delayed[i].at = time.Time{}
		}
		b.m.tasks.mu.Unlock()
		b.m.stopTasks()
		b.m.doDelayed()
	}
	if exists(b.fs, l.path(offsetName(0, logSuffix+deletedSuffix))) {
		t.Fatal("the old segment is left")
	}
}

// A file that was renamed while it is opened may have left its name to another one.
func TestOpenAfterRename(t *testing.T) {
	fsys := vfs.NewMemory()
	for _, name := range []string{"before", "after"} {
		if err := writeFile(fsys, name, []byte(name), false); err != nil {
			t.Fatal(err)
		}
	}
	c, asked := fileCache{fs: fsys, max: 4}, 0
	var s slot
	h, err := c.get(&s, func() string {
		if asked++; asked == 1 {
			return "before"
		}
		return "after"
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer h.release()
	if size, err := h.f.Size(); err != nil || size != int64(len("after")) {
		t.Fatalf("a file of %d bytes, %v", size, err)
	}
}

// Segments that are replaced one after the other keep their files apart until they are removed.
func TestCleanedTwice(t *testing.T) {
	b, l := cleanBox(t, nil)
	var old []*segment
	for i := range 3 {
		putAll(t, l, kv{"a", "1"}, kv{"a", strings.Repeat("x", i+1)})
		roll(t, l)
		old = append(old, l.segments()[0])
		clean(b.m)
	}
	for i, s := range old {
		info, err := b.fs.Stat(s.path(logSuffix))
		if err != nil || info.Size() != s.size.Load() {
			t.Errorf("segment of round %d: %v", i, err)
		}
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	}
	l = b.kill()
	if got := readAll(t, l, 0); len(got) != 1 || got[5] != "xxx" {
		t.Fatal(got)
	}
}
