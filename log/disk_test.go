package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// TestReadErrors: a broken disk takes the directory offline; what may be better the next time
// concerns the partition alone, and only as long as it lasts.
func TestReadErrors(t *testing.T) {
	for _, c := range []struct {
		err     error
		offline bool
	}{{syscall.EIO, true}, {syscall.EUCLEAN, true}, {syscall.EMFILE, false}, {syscall.ESTALE, false}, {syscall.ENOMEM, false}} {
		b, script := failingBox(t, nil)
		b.start()
		l := b.log()
		other, err := b.m.Create("other", 0, [16]byte{2})
		if err != nil {
			t.Fatal(err)
		}
		appendTo(t, l, values(1, "a"))
		appendTo(t, l, values(1, "b"))
		appendTo(t, other, values(1, "a"))
		script.Add(vfs.Fault{Op: vfs.OpRead, Dir: dataDir + "/t-0", Err: c.err})
		if _, err := l.Read(0, 2, 1000, true); !errors.Is(err, c.err) || !errors.Is(err, ErrStorage) && !errors.Is(err, syscall.EMFILE) {
			t.Errorf("%v: %v", c.err, err)
		}
		script.Clear()
		if offline := b.m.Dirs()[0].Err != nil; offline != c.offline {
			t.Errorf("%v: offline %v", c.err, offline)
		}
		if !c.offline {
			appendTo(t, l, values(1, "c"))
			wantValues(t, l, 0, "a", "b", "c")
		} else if _, err := other.Read(0, 1, 1000, true); !errors.Is(err, ErrStorage) {
			t.Errorf("%v: the other partition: %v", c.err, err)
		}
		if n := b.count("level=ERROR"); n != 1 {
			t.Errorf("%v: %d lines:\n%s", c.err, n, b.lines())
		}
		b.m.Close()
	}
}

// TestNoDescriptor: too many open files are no fault of the disk.
func TestNoDescriptor(t *testing.T) {
	b, script := failingBox(t, func(o *Options) { o.SegmentBytes = 400 })
	b.start()
	l := b.log()
	appendTo(t, l, values(1, "a"))
	script.Add(vfs.Fault{Op: vfs.OpOpen, Err: syscall.EMFILE})
	l.active().closeFiles()
	for what, err := range map[string]error{"append": tryAppend(l, 1), "roll": tryAppend(l, 310), "flush": l.Flush(1)} {
		if !errors.Is(err, ErrStorage) || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("%s: %v", what, err)
		}
	}
	script.Clear()
	if err := errors.Join(l.Err(), tryAppend(l, 310), l.Flush(2)); err != nil {
		t.Error(err)
	}
	b.close()
}

// TestFsyncWithoutRoom: a file system may say at the fsync that it has no room for what was written.
// Then the bytes may be gone, and the next fsync, which would succeed, must not count.
func TestFsyncWithoutRoom(t *testing.T) {
	mem := vfs.NewCrashable()
	script := new(vfs.Script)
	b := newBox(t, vfs.WithErrors(mem, script), func(o *Options) { o.FlushMessages = 1 })
	b.start()
	l := b.log()
	appendTo(t, l, values(1, "a"))
	if err := l.Flush(1); err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, values(1, "b"))
	script.Add(vfs.Fault{Op: vfs.OpSync, Name: "*.log", Times: 1, Err: syscall.ENOSPC})
	for range 2 {
		if err := l.Flush(2); !errors.Is(err, ErrStorage) || errors.Is(err, ErrFull) {
			t.Errorf("flush: %v", err)
		}
	}
	if b.m.Dirs()[0].Err == nil || tryAppend(l, 1) == nil || l.Flushed() != 1 {
		t.Errorf("%+v, flushed up to %d", b.m.Dirs()[0], l.Flushed())
	}
	b.m.Close()
	for seed := range uint64(20) {
		b = newBox(t, mem.CrashClone(seed), nil)
		b.start()
		if got := readAll(t, b.log(), 0); got[0] != "a" {
			t.Errorf("seed %d: %v", seed, got)
		}
		b.close()
	}
}

// TestNoRoomForAnAbort: a marker whose entry in the index of aborted transactions finds no room is
// not in the log, and the transaction can be aborted as soon as there is some.
func TestNoRoomForAnAbort(t *testing.T) {
	b, script := failingBox(t, nil)
	b.start()
	l := b.log()
	appendTo(t, l, transactional(7, 0, 0, 1))
	appendTo(t, l, transactional(8, 0, 0, 1))
	script.Add(vfs.Fault{Op: vfs.OpWrite, Name: "*.txnindex", Err: syscall.ENOSPC, Short: 5})
	abort := func() error {
		m := record.EndMarker{}.Batch(7, 0, startMs)
		_, err := l.Append(Append{Records: m, Origin: record.Coordinator})
		l.SetHighWatermark(l.End())
		return err
	}
	for range 2 {
		if err := abort(); !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
	}
	if l.End() != 2 || l.Err() != nil || l.StableOffset() != 0 {
		t.Fatalf("end %d, %v, stable %d", l.End(), l.Err(), l.StableOffset())
	}
	script.Clear()
	if err := abort(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint([]Aborted{{7, 0, 2, 1}})
	for range 2 {
		if got, err := l.AbortedIn(0, 3); err != nil || fmt.Sprint(got) != want {
			t.Errorf("aborted %v, %v; want %v", got, err, want)
		}
		l = b.restart()
	}
	b.close()
}

// TestEveryFault: whatever goes wrong, once or for good, at whichever operation: nothing that was
// flushed and acknowledged is lost, nothing is acknowledged by a directory that is offline, and one
// without room goes on when there is some.
func TestEveryFault(t *testing.T) {
	ops := []vfs.Op{vfs.OpOpen, vfs.OpRead, vfs.OpWrite, vfs.OpTruncate, vfs.OpSync, vfs.OpSyncDir, vfs.OpRename, vfs.OpRemove, vfs.OpMkdir, vfs.OpReadDir, vfs.OpStat, vfs.OpLock}
	runs := 0
	for _, op := range ops {
		for n := 1; ; n++ {
			hit := false
			for _, f := range []vfs.Fault{{Err: syscall.EIO}, {Err: syscall.EIO, Times: 1}, {Err: syscall.ENOSPC, Times: 1}, {Err: syscall.ENOSPC, Times: 9, Short: 20}, {Err: syscall.EMFILE, Times: 2}} {
				f.Op, f.Nth = op, n
				name := fmt.Sprintf("%s %d: %v, %d times", op, n, f.Err, f.Times)
				hit = everyFault(t, name, f) || hit
				runs++
			}
			if !hit || t.Failed() {
				break
			}
		}
	}
	t.Logf("%d runs", runs)
}

// everyFault runs one story with one fault. It says whether the fault came to be met.
func everyFault(t *testing.T, name string, f vfs.Fault) (hit bool) {
	t.Helper()
	mem := vfs.NewCrashable()
	script := new(vfs.Script)
	b := newBox(t, vfs.WithErrors(mem, script), func(o *Options) {
		o.FlushMessages, o.SegmentBytes, o.IndexIntervalBytes = 1, 500, 100
	})
	script.Add(f)
	acked := map[int64]string{}
	m, err := b.open()
	if err == nil {
		acked = everyFaultStory(t, name, b)
	}
	hit = script.Count(f.Op) >= f.Nth
	script.Clear()
	if err == nil && m.Dirs()[0].Err == nil {
		if l, err := m.Create("t", 0, [16]byte{1}); err != nil {
			t.Errorf("%s: after it is over: %v\n%s", name, err, b.lines())
		} else if a, err := l.Append(Append{Records: values(startMs, "over"), RequestVersion: 9}); err != nil {
			t.Errorf("%s: after it is over: %v\n%s", name, err, b.lines())
		} else if err := l.Flush(a.Last + 1); err != nil {
			t.Errorf("%s: after it is over: %v\n%s", name, err, b.lines())
		} else {
			acked[a.First] = "over"
		}
	}
	if !hit && len(acked) != 15 {
		t.Errorf("%s: without a fault %d were acknowledged", name, len(acked))
	}
	seed := rand.Uint64()
	clones := map[string]*vfs.Memory{"kill": mem.KillClone(), fmt.Sprint("crash ", seed): mem.CrashClone(seed)}
	if m != nil {
		m.Close()
		clones["stop"] = mem.KillClone()
	}
	for how, left := range clones {
		b := newBox(t, left, nil)
		b.start()
		l := b.m.Log("t", 0)
		if l == nil && len(acked) > 0 {
			t.Errorf("%s, %s: the log is gone", name, how)
			continue
		}
		if l != nil {
			got, err := tryReadAll(l, 0, 1<<20)
			for offset, value := range acked {
				if err != nil || got[offset] != value {
					t.Errorf("%s, %s: %d is %q, want %q, %v\n%s", name, how, offset, got[offset], value, err, b.lines())
				}
			}
		}
		b.m.Close()
	}
	return hit
}

// everyFaultStory does a bit of everything and returns what was acknowledged.
func everyFaultStory(t *testing.T, name string, b *box) map[int64]string {
	acked := map[int64]string{}
	m := b.m
	offline := func() bool { return m.Dirs()[0].Err != nil }
	for i := range 14 {
		l, err := m.Create("t", 0, [16]byte{1})
		if err != nil {
			continue
		}
		if i == 3 {
			if other, err := m.Create("other", 0, [16]byte{2}); err == nil {
				other.Append(Append{Records: values(startMs, "x"), RequestVersion: 9})
			}
		}
		if i == 9 {
			m.Delete("other", 0)
		}
		value := strings.Repeat("v", 20) + fmt.Sprint(i)
		was := offline()
		a, err := l.Append(Append{Records: values(startMs, value), RequestVersion: 9})
		if err == nil {
			err = l.Flush(a.Last + 1)
		}
		if err == nil {
			if was {
				t.Errorf("%s: acknowledged by a directory that is offline", name)
			}
			acked[a.First] = value
			l.SetHighWatermark(a.Last + 1)
		}
		for _, task := range []task{taskPoints, taskRetention, taskFiles, taskWatermarks} {
			m.perform(t.Context(), task)
		}
		if got, err := tryReadAll(l, 0, 1000); err == nil {
			for offset, value := range acked {
				if got[offset] != value {
					t.Errorf("%s: %d is %q, want %q", name, offset, got[offset], value)
				}
			}
		}
	}
	return acked
}

// TestDeletionMakesRoom: a partition is removed also where there is no room to write a checkpoint first.
func TestDeletionMakesRoom(t *testing.T) {
	for _, gone := range []bool{true, false} { // does what is removed make room
		b, script := failingBox(t, func(o *Options) { o.FileDeleteDelayMs = 1 << 40 })
		b.start()
		l := b.log()
		appendTo(t, l, values(1, "a"))
		if err := l.Flush(1); err != nil {
			t.Fatal(err)
		}
		b.m.perform(t.Context(), taskPoints)
		if err := b.m.Delete("t", 0); err != nil {
			t.Fatal(err)
		}
		dir := l.path("")
		full := vfs.Fault{Op: vfs.OpWrite, Name: recoveryFile + "*", Err: syscall.ENOSPC}
		if gone {
			full.Times = 1
		}
		script.Add(full)
		b.m.tasks.mu.Lock()
		last := b.m.tasks.delayed[len(b.m.tasks.delayed)-1]
		b.m.tasks.mu.Unlock()
		if err := last.do(); (err == nil) != gone || exists(b.fs, dir) == gone || exists(b.fs, dir+offsetName(0, logSuffix)) {
			t.Errorf("removed: %v, %v", err, exists(b.fs, dir))
		}
		script.Clear()
		b.close()
		b.start()
		if b.m.Log("t", 0) != nil || b.count("level=ERROR") > 0 {
			t.Errorf("it is there:\n%s", b.lines())
		}
		b.close()
	}
}

// TestFailedSyncOfManyLogs: logs that are flushed together share an error too, whatever it is.
func TestFailedSyncOfManyLogs(t *testing.T) {
	for _, no := range []error{syscall.EIO, syscall.ENOSPC} {
		script := new(vfs.Script)
		dir := t.TempDir()
		m, err := OpenManager(ManagerOptions{FS: vfs.WithErrors(vfs.OS(), script), Dirs: []string{dir}, FlushScheduler: -1,
			TopicOptions: func(string) *Options { o := defaults; o.FlushMs = 0; return &o }})
		if err != nil {
			t.Fatal(err)
		}
		var logs []*Log
		for i := range int32(manyLogs + 1) {
			l, err := m.Create("t", i, [16]byte{1})
			if err != nil {
				t.Fatal(err)
			}
			appendTo(t, l, values(1, "a"))
			logs = append(logs, l)
		}
		script.Add(vfs.Fault{Op: vfs.OpSync, Times: 1, Err: no})
		m.perform(t.Context(), taskFlush)
		for _, l := range logs {
			if err := l.Flush(1); l.Flushed() != 0 || !errors.Is(err, ErrStorage) || errors.Is(err, ErrFull) {
				t.Fatalf("%v: %s is flushed up to %d, %v", no, l, l.Flushed(), err)
			}
		}
		m.Close()
		if exists(vfs.OS(), filepath.Join(dir, cleanFile)) {
			t.Error("stopped cleanly")
		}
	}
}
