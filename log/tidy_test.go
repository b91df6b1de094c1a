package log

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ottla/log/vfs"
)

// snapshots are the offsets of the producer snapshots on disk.
func snapshots(t *testing.T, l *Log) (at []int64) {
	t.Helper()
	list, err := l.m.fs.ReadDir(l.path(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if offset, suffix, ok := parseOffsetName(e.Name()); ok && suffix == snapshotSuffix {
			at = append(at, offset)
		}
	}
	return at
}

// TestTidy: a log that rests is soon as a clean stop leaves it, and less soon each time that it
// is written to after all; what is written in vain for that is taken away again.
func TestTidy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := *DefaultOptions()
		o.TimestampAfterMaxMs = 1 << 60
		m, err := OpenManager(ManagerOptions{FS: vfs.NewMemory(), Dirs: []string{dataDir}, TopicOptions: func(string) *Options { return &o }})
		if err != nil {
			t.Fatal(err)
		}
		l, err := m.Create("t", 0, [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		wait := 2 * tidyEvery
		for i := range int32(5) {
			appendTo(t, l, idempotent(1, 0, i, 1))
			time.Sleep(wait - tidyEvery/2)
			if at := snapshots(t, l); len(at) > 1 || len(at) == 1 && at[0] == l.End() {
				t.Fatalf("round %d: tidied too soon: %v", i, at)
			}
			time.Sleep(2 * tidyEvery)
			if at := snapshots(t, l); len(at) != 1 || at[0] != l.End() {
				t.Fatalf("round %d: not tidied in time: %v", i, at)
			}
			wait += tidyEvery << i
		}
		tidy := tree(t, m.fs, dataDir+"/t-0")
		if len(tidy["t-0/"+epochFile]) == 0 || len(tidy["t-0/"+offsetName(0, timeSuffix)]) != timeEntryBytes {
			t.Errorf("files are missing: %v", tidy)
		}
		if l.Flushed() != 0 {
			t.Errorf("flushed %d", l.Flushed())
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		for name, content := range tree(t, m.fs, dataDir+"/t-0") {
			if tidy[name] != content {
				t.Errorf("%s was changed by the stop", name)
			}
		}
	})
}

// TestFlushTogether: many logs that wait for their flush are flushed by one call.
func TestFlushTogether(t *testing.T) {
	if done, err := vfs.SyncAll(vfs.OS(), t.TempDir()); !done || err != nil {
		t.Skip("this system has no such call: ", err)
	}
	o := *DefaultOptions()
	o.FlushMs = 1000
	now := time.UnixMilli(startMs)
	m, err := OpenManager(ManagerOptions{Dirs: []string{t.TempDir()}, TopicOptions: func(string) *Options { return &o }, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	m.stopTasks()
	var logs []*Log
	for i := range int32(manyLogs + 1) {
		l, err := m.Create("t", i, [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		appendTo(t, l, values(startMs, "x"))
		logs = append(logs, l)
	}
	m.perform(t.Context(), taskFlush)
	if n := logs[0].Flushed(); n != 0 {
		t.Errorf("flushed %d before its time", n)
	}
	now = now.Add(time.Second)
	if !m.flushTogether(m.dirs[0], logs[:1]) || logs[0].Flushed() != 1 {
		t.Error("not flushed")
	}
	appendTo(t, logs[0], values(startMs, "x"))
	now = now.Add(time.Second)
	m.perform(t.Context(), taskFlush)
	for _, l := range logs {
		if _, epochs := l.epochs.unwritten(l.End()); l.Flushed() != l.End() || epochs {
			t.Errorf("%s: flushed %d of %d, epochs %v", l, l.Flushed(), l.End(), epochs)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLoadIsQuiet: a start after a clean stop says nothing.
func TestLoadIsQuiet(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	for i := range int32(20) {
		l, err := b.m.Create("t", i, [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		appendTo(t, l, values(1, fmt.Sprint(i)))
	}
	b.restart()
	b.close()
	if b.lines() != "" {
		t.Errorf("said %q", b.lines())
	}
	b.start()
	appendTo(t, b.log(), values(1, "x"))
	b.kill()
	if !strings.Contains(b.lines(), "loaded logs") {
		t.Error("nothing is said of a recovery")
	}
	b.close()
}
