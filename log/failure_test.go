package log

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ottla/log/vfs"
)

// failingBox is a box whose file system fails by script.
func failingBox(t *testing.T, change func(*Options)) (*box, *vfs.Script) {
	script := new(vfs.Script)
	return newBox(t, vfs.WithErrors(vfs.NewMemory(), script), change), script
}

// TestDirectoryGoesOffline: an error of the disk on a write, an fsync, a rename takes the whole
// directory offline, and nothing is acknowledged any more.
func TestDirectoryGoesOffline(t *testing.T) {
	for name, c := range map[string]struct {
		fault vfs.Fault
		do    func(l *Log, m *Manager) error
	}{
		"write": {vfs.Fault{Op: vfs.OpWrite, Name: "*.log"}, func(l *Log, _ *Manager) error {
			_, err := l.Append(Append{Records: values(1, "x"), RequestVersion: 9})
			return err
		}},
		"torn write": {vfs.Fault{Op: vfs.OpWrite, Name: "*.log", Short: 10}, func(l *Log, _ *Manager) error {
			_, err := l.Append(Append{Records: values(1, "x"), RequestVersion: 9})
			return err
		}},
		"fsync":   {vfs.Fault{Op: vfs.OpSync, Name: "*.log"}, func(l *Log, _ *Manager) error { return l.Flush(l.End()) }},
		"syncdir": {vfs.Fault{Op: vfs.OpSyncDir}, func(l *Log, _ *Manager) error { return l.Flush(l.End()) }},
		"fsync of epochs": {vfs.Fault{Op: vfs.OpSync, Name: epochFile + "*"}, func(l *Log, _ *Manager) error {
			return l.Flush(l.End())
		}},
		"rename on delete": {vfs.Fault{Op: vfs.OpRename}, func(_ *Log, m *Manager) error { return m.Delete("t", 0) }},
		"snapshot at a roll": {vfs.Fault{Op: vfs.OpWrite, Name: "*.snapshot"}, func(l *Log, _ *Manager) error {
			_, err := l.Append(Append{Records: values(1, strings.Repeat("x", 300)), RequestVersion: 9})
			return err
		}},
		"create a segment": {vfs.Fault{Op: vfs.OpOpen, Name: "*1.log"}, func(l *Log, _ *Manager) error {
			_, err := l.Append(Append{Records: values(1, strings.Repeat("x", 300)), RequestVersion: 9})
			return err
		}},
		"truncate": {vfs.Fault{Op: vfs.OpTruncate}, func(l *Log, _ *Manager) error { return l.TruncateTo(0) }},
		"rename of a checkpoint": {vfs.Fault{Op: vfs.OpRename, Name: recoveryFile}, func(l *Log, m *Manager) error {
			l.dir.pointsMoved.Store(true)
			m.perform(t.Context(), taskPoints)
			return l.Err()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, script := failingBox(t, func(o *Options) { o.SegmentBytes = 400 })
			b.start()
			l := b.log()
			other, err := b.m.Create("other", 0, [16]byte{2})
			if err != nil {
				t.Fatal(err)
			}
			appendTo(t, l, values(1, "a"))
			changed := other.Changed()
			c.fault.Err = syscall.EIO
			script.Add(c.fault)
			if err := c.do(l, b.m); !errors.Is(err, ErrStorage) || !errors.Is(err, syscall.EIO) || errors.Is(err, ErrFull) {
				t.Fatalf("error %v", err)
			}
			script.Clear()
			<-changed // who waits is woken
			for _, l := range []*Log{l, other} {
				_, appended := l.Append(Append{Records: values(1, "x"), RequestVersion: 9})
				_, read := l.Read(0, 1, 1, true)
				_, _, _, _, looked := l.OffsetForTime(0, 1)
				_, deleted := l.DeleteRecords(0)
				for what, err := range map[string]error{"append": appended, "read": read, "look up": looked, "delete": deleted,
					"flush": l.Flush(1), "truncate": l.TruncateTo(0), "epoch": l.AssignEpoch(3), "err": l.Err()} {
					if !errors.Is(err, ErrStorage) && !(errors.Is(err, ErrClosed) && l.topic == "t") {
						t.Errorf("%s of %s: %v", what, l, err)
					}
				}
			}
			if d := b.m.Dirs(); d[0].Err == nil || !errors.Is(d[0].Err, syscall.EIO) {
				t.Errorf("directory %+v", d[0])
			}
			if _, err := b.m.Create("new", 0, [16]byte{3}); !errors.Is(err, ErrStorage) {
				t.Errorf("create: %v", err)
			}
			b.m.Close()
			if exists(b.fs, dataDir+"/"+cleanFile) {
				t.Error("stopped cleanly")
			}
		})
	}
}

// TestFullDisk: nothing is written, the rest goes on, and so does the log once there is room.
func TestFullDisk(t *testing.T) {
	for _, short := range []int{0, 20} {
		b, script := failingBox(t, nil)
		b.start()
		l := b.log()
		appendTo(t, l, values(1, "a"))
		size := l.Size()
		script.Add(vfs.Fault{Op: vfs.OpWrite, Err: syscall.ENOSPC, Short: short})
		for range 2 {
			_, err := l.Append(Append{Records: values(1, "lost"), RequestVersion: 9})
			if !errors.Is(err, ErrFull) || !errors.Is(err, ErrStorage) {
				t.Fatalf("append: %v", err)
			}
		}
		if got := int64(len(fileBytes(t, b.fs, l.path(offsetName(0, logSuffix))))); got != size || l.Size() != size || l.Err() != nil {
			t.Errorf("%d bytes are left, size %d, want %d, %v", got, l.Size(), size, l.Err())
		}
		wantValues(t, l, 0, "a")
		script.Clear()
		appendTo(t, l, values(1, "b"))
		l = b.restart()
		wantValues(t, l, 0, "a", "b")
		b.close()
	}
}

// TestFullDiskAtRoll: what a roll needs room for leaves the log as it was.
func TestFullDiskAtRoll(t *testing.T) {
	for _, name := range []string{"*.snapshot", "*.timeindex", "*.index"} {
		b, script := failingBox(t, func(o *Options) { o.SegmentBytes = 230; o.IndexIntervalBytes = 1 })
		b.start()
		l := b.log()
		for range 3 {
			appendTo(t, l, idempotent(1, 0, int32(l.End()), 1))
		}
		script.Add(vfs.Fault{Op: vfs.OpWrite, Name: name, Err: syscall.ENOSPC})
		if _, err := l.Append(Append{Records: idempotent(1, 0, 3, 1), RequestVersion: 9}); !errors.Is(err, ErrFull) {
			t.Fatalf("%s: %v", name, err)
		}
		script.Clear()
		appendTo(t, l, idempotent(1, 0, 3, 1))
		if len(l.segments()) != 2 {
			t.Errorf("%s: %d segments", name, len(l.segments()))
		}
		wantValues(t, b.restart(), 0, "0", "0", "0", "0")
	}
}

// TestOneOfTwoDirectories goes offline alone.
func TestOneOfTwoDirectories(t *testing.T) {
	script := new(vfs.Script)
	fsys := vfs.WithErrors(vfs.NewMemory(), script)
	told := make(chan string, 1)
	open := func() *Manager {
		m, err := OpenManager(ManagerOptions{FS: fsys, Dirs: []string{"/a", "/b"}, BrokerID: 1, ClusterID: "c", RetentionCheck: -1,
			OnDirFailure: func(path string, err error) { told <- fmt.Sprint(path, errors.Is(err, ErrStorage)) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Load(); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open()
	byDir := map[string]*Log{}
	for i := range int32(4) {
		l, err := m.Create("t", i, [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		byDir[l.Dir()] = l
		appendTo(t, l, values(1, "x"))
	}
	if len(byDir) != 2 {
		t.Fatalf("logs are in %v", byDir)
	}
	script.Add(vfs.Fault{Op: vfs.OpSync, Times: 1, Err: syscall.EIO})
	if err := byDir["/a"].Flush(1); !errors.Is(err, ErrStorage) {
		t.Fatal(err)
	}
	if got := <-told; got != "/atrue" {
		t.Errorf("told %q", got)
	}
	appendTo(t, byDir["/b"], values(1, "y"))
	if l, err := m.Create("new", 0, [16]byte{1}); err != nil || l.Dir() != "/b" {
		t.Errorf("created in %v, %v", l, err)
	}
	if d := m.Dirs(); d[0].Err == nil || d[1].Err != nil {
		t.Errorf("directories %+v", d)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if exists(fsys, "/a/"+cleanFile) || !exists(fsys, "/b/"+cleanFile) {
		t.Error("the wrong directory is marked clean")
	}
	m = open() // the disk is back: everything is there
	for i := range int32(4) {
		if l := m.Log("t", i); l == nil || l.Err() != nil || l.End() < 1 {
			t.Errorf("partition %d: %v", i, l)
		}
	}
	m.Close()
	// A directory that cannot be used at the start is offline as well.
	script.Add(vfs.Fault{Op: vfs.OpReadDir, Name: "a", Err: syscall.EIO})
	m = open()
	if d := m.Dirs(); d[0].Err == nil || d[1].Err != nil {
		t.Errorf("directories %+v", d)
	}
	m.Close()
}

func TestLockedDirectory(t *testing.T) {
	fsys := vfs.NewMemory()
	a, err := LockDirs(fsys, []string{"/d"})
	if err != nil {
		t.Fatal(err)
	}
	if a.BrokerID() != -1 || a.ClusterID() != "" {
		t.Errorf("a new directory is of broker %d, cluster %q", a.BrokerID(), a.ClusterID())
	}
	if _, err := LockDirs(fsys, []string{"/e", "/d"}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "/d/.lock") {
		t.Errorf("second lock: %v", err)
	}
	a.Close()
	m, err := OpenManager(ManagerOptions{FS: fsys, Dirs: []string{"/e"}, BrokerID: 3, ClusterID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if _, err := LockDirs(fsys, []string{"/d", "/d/"}); err == nil {
		t.Error("a directory was taken twice")
	}
	m, err = OpenManager(ManagerOptions{FS: fsys, Dirs: []string{"/d"}, BrokerID: 4, ClusterID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if _, err := LockDirs(fsys, []string{"/d", "/e"}); !errors.Is(err, ErrMeta) || !strings.Contains(err.Error(), "broker 3") || !strings.Contains(err.Error(), "broker 4") {
		t.Errorf("directories of two brokers: %v", err)
	}
}

// slowFS counts syncs of .log files, and holds them up while gate is not nil.
type slowFS struct {
	vfs.FS
	gate  chan struct{}
	syncs atomic.Int64
}

type slowFile struct {
	vfs.File
	fs *slowFS
}

func (s *slowFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	if err == nil && strings.HasSuffix(name, logSuffix) {
		f = &slowFile{f, s}
	}
	return f, err
}

func (f *slowFile) Sync() error {
	f.fs.syncs.Add(1)
	if f.fs.gate != nil {
		<-f.fs.gate
	}
	return f.File.Sync()
}

// TestGroupCommit: with flush.messages=1 those who append while an fsync is under way share
// the next one, and nobody is told before it ended.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowFS{FS: vfs.NewMemory(), gate: make(chan struct{})}
		b := newBox(t, slow, func(o *Options) { o.FlushMessages = 1 })
		b.start()
		l := b.log()
		const producers = 20
		var acked atomic.Int64
		produce := func() {
			a := appendTo(t, l, values(1, "x"))
			if !a.MustFlush {
				t.Error("an append need not be flushed")
			}
			if err := l.Flush(a.Last + 1); err != nil {
				t.Error(err)
			}
			if l.Flushed() <= a.Last {
				t.Error("acknowledged before the flush")
			}
			acked.Add(1)
		}
		go produce()
		synctest.Wait() // the first one is in fsync
		for range producers {
			go produce()
		}
		synctest.Wait()
		if n := acked.Load(); n != 0 {
			t.Fatalf("%d were acknowledged before an fsync ended", n)
		}
		if end := l.End(); end != producers+1 {
			t.Fatalf("appends wait for the fsync: end %d", end)
		}
		slow.gate <- struct{}{}
		synctest.Wait()
		if n := acked.Load(); n != 1 {
			t.Fatalf("%d were acknowledged by the first fsync", n)
		}
		slow.gate <- struct{}{}
		synctest.Wait()
		if n, syncs := acked.Load(), slow.syncs.Load(); n != producers+1 || syncs != 2 {
			t.Fatalf("%d acknowledged by %d fsyncs", n, syncs)
		}
		close(slow.gate)
		b.close()
	})
}

// TestFlushPolicies: by count, by time, and of a closed segment.
func TestFlushPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := *DefaultOptions()
		o.FlushMessages, o.FlushMs, o.SegmentBytes = 3, 10_000, 1000
		fsys := vfs.NewMemory()
		m, err := OpenManager(ManagerOptions{FS: fsys, Dirs: []string{dataDir}, TopicOptions: func(string) *Options { return &o },
			FlushScheduler: time.Second, InitialTaskDelay: time.Second, FlushCheckpoint: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l, err := m.Create("t", 0, [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().UnixMilli()
		for i := range 4 {
			a := appendTo(t, l, values(now, "x"))
			if a.MustFlush != (i >= 2) {
				t.Errorf("append %d: must flush %v", i, a.MustFlush)
			}
		}
		time.Sleep(5 * time.Second)
		if l.Flushed() != 0 {
			t.Errorf("flushed %d before its time", l.Flushed())
		}
		time.Sleep(8 * time.Second)
		if l.Flushed() != 4 {
			t.Errorf("flushed %d after its time", l.Flushed())
		}
		appendTo(t, l, values(now, strings.Repeat("x", 900)))
		synctest.Wait()
		if n := len(l.segments()); n != 2 || l.Flushed() != 4 {
			t.Errorf("%d segments, flushed %d", n, l.Flushed())
		}
		appendTo(t, l, values(now, strings.Repeat("x", 900)))
		synctest.Wait()
		if l.Flushed() < 5 {
			t.Errorf("a closed segment was not flushed: %d", l.Flushed())
		}
		time.Sleep(25 * time.Second)
		points, err := parseCheckpoint(fileBytes(t, fsys, dataDir+"/"+recoveryFile))
		if err != nil || points[key{"t", 0}] < 5 {
			t.Errorf("checkpoint %v, %v", points, err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
