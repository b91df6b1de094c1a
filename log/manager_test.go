package log

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"ottla/log/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestManyPartitions: open files are few at rest, whatever was written, also on a real disk;
// everything is there again after a stop.
func TestManyPartitions(t *testing.T) {
	const n = 100
	dir := t.TempDir()
	open := func() *Manager {
		m, err := OpenManager(ManagerOptions{Dirs: []string{dir}, BrokerID: 1, ClusterID: "c", MaxOpenFiles: 100})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Load(); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open()
	for i := range int32(n) {
		l, err := m.Create("t", i, [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		appendTo(t, l, values(startMs, fmt.Sprint(i)))
		if open := m.files.count(); open > 101 {
			t.Fatalf("%d files are open", open)
		}
	}
	m.files.sweep(10)
	m.files.sweep(10)
	if open := m.files.count(); open > 10 {
		t.Errorf("%d files are open at rest", open)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if open := m.files.count(); open > 10 {
		t.Errorf("%d files are open after the stop", open)
	}
	m = open()
	for i := range int32(n) {
		l := m.Log("t", i)
		if l == nil || l.End() != 1 {
			t.Fatalf("partition %d: %v", i, l)
		}
		if i%10 == 0 {
			wantValues(t, l, 0, fmt.Sprint(i))
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	before := snapshotDir(t, dir)
	m = open()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range snapshotDir(t, dir) {
		if before[name] != content && !strings.HasSuffix(name, "checkpoint") {
			t.Errorf("%s changed by a start and a stop", name)
		}
	}
}

func snapshotDir(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			b, _ := os.ReadFile(path)
			all[path] = string(b)
		}
		return nil
	})
	return all
}

// TestConcurrent appends, reads, looks up, flushes, truncates the start and restarts the
// background, all at once.
func TestConcurrent(t *testing.T) {
	o := *DefaultOptions()
	o.SegmentBytes, o.IndexIntervalBytes, o.RetentionBytes, o.FileDeleteDelayMs = 4000, 200, 40_000, 1
	m, err := OpenManager(ManagerOptions{Dirs: []string{t.TempDir()}, TopicOptions: func(string) *Options { return &o }, MaxOpenFiles: 6,
		RetentionCheck: time.Millisecond, InitialTaskDelay: time.Millisecond, FlushCheckpoint: time.Millisecond, WatermarkCheckpoint: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.Create("t", 0, [16]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 3, 400
	var wg sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				a, err := l.Append(Append{Records: values(startMs+int64(i), strings.Repeat("x", 20+w)), RequestVersion: 9})
				if err != nil {
					t.Error(err)
					return
				}
				l.SetHighWatermark(l.End())
				if i%50 == 0 {
					if err := l.Flush(a.Last + 1); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			from := int64(0)
			for {
				changed := l.Changed()
				got, err := tryReadAll(l, from, 700)
				if err != nil && !errors.Is(err, ErrOffsetOutOfRange) && !errors.Is(err, errNothing) {
					t.Error(err)
					return
				}
				if _, _, _, _, err := l.OffsetForTime(startMs+100, l.End()); err != nil {
					t.Error(err)
					return
				}
				from = max(from+int64(len(got)), l.Start())
				l.EpochEnd(0)
				select {
				case <-changed:
				case <-done:
					return
				}
			}
		})
	}
	wg.Wait()
	close(done)
	readers.Wait()
	if l.End() != writers*each {
		t.Errorf("end %d", l.End())
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := OpenManager(ManagerOptions{FS: vfs.NewMemory(), Dirs: []string{dataDir}, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.Create("t", 0, [16]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, values(startMs, "a", "b"))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if g := f.GetMetric()[0].GetGauge(); g != nil {
			got[f.GetName()] = g.GetValue()
		}
	}
	for name, want := range map[string]float64{"kafka_log_log_size": float64(l.Size()), "kafka_log_log_logendoffset": 2,
		"kafka_log_log_logstartoffset": 0, "kafka_log_log_numlogsegments": 1, "kafka_log_logmanager_offlinelogdirectorycount": 0} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if again, err := OpenManager(ManagerOptions{FS: vfs.NewMemory(), Dirs: []string{dataDir}, Registerer: reg}); err != nil {
		t.Error("a second manager cannot register")
	} else {
		again.Close()
	}
}

// TestLoadSome opens logs when they are asked for.
func TestLoadSome(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	for _, topic := range []string{"a", "b"} {
		l, err := b.m.Create(topic, 0, [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		appendTo(t, l, values(startMs, topic))
	}
	b.close()
	open := func() *Manager {
		m, err := OpenManager(ManagerOptions{FS: b.fs, Dirs: []string{dataDir}, BrokerID: 1, ClusterID: "cluster"})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.LoadUnclean(); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open()
	if m.Log("a", 0) != nil || m.Log("b", 0) != nil {
		t.Error("logs were loaded that nobody asked for")
	}
	if l, err := m.Create("a", 0, [16]byte{1}); err != nil || l.End() != 1 {
		t.Fatalf("opened %v, %v", l, err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	points, _ := parseCheckpoint(fileBytes(t, b.fs, dataDir+"/"+recoveryFile))
	if points[key{"b", 0}] != 1 {
		t.Errorf("the recovery point of the other was lost: %v", points)
	}
	m = open()
	l, err := m.Create("b", 0, [16]byte{1})
	if err != nil || l.End() != 1 {
		t.Fatalf("opened %v, %v", l, err)
	}
	wantValues(t, l, 0, "b")
	m.Close()
}

// TestTwoPlaces: a partition that is in two directories is an error that names both.
func TestTwoPlaces(t *testing.T) {
	fsys := vfs.NewMemory()
	fsys.MkdirAll("/a/t-0", 0)
	fsys.MkdirAll("/b/t-0", 0)
	m, err := OpenManager(ManagerOptions{FS: fsys, Dirs: []string{"/a", "/b"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Load(); err == nil || !strings.Contains(err.Error(), "/a") || !strings.Contains(err.Error(), "/b") {
		t.Errorf("load: %v", err)
	}
	m.Close()
}

// TestMetaProperties: what is written is version 0 with Java's comments, and what is there is
// kept.
func TestMetaProperties(t *testing.T) {
	fsys := vfs.NewMemory()
	m, err := OpenManager(ManagerOptions{FS: fsys, Dirs: []string{dataDir}, BrokerID: 7, ClusterID: "abc", Now: func() time.Time { return time.UnixMilli(startMs) }})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	const want = "#\n#Tue Nov 14 22:13:20 UTC 2023\nbroker.id=7\nversion=0\ncluster.id=abc\n"
	if got := string(fileBytes(t, fsys, dataDir+"/"+metaFile)); got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
	const odd = "# mine\nversion = 1\nnode.id: 7\ncluster.id=abc\ndirectory.id=x\\u0041\nother=\\#1\n"
	writeFile(fsys, dataDir+"/"+metaFile, []byte(odd), true)
	m, err = OpenManager(ManagerOptions{FS: fsys, Dirs: []string{dataDir}, BrokerID: 7, ClusterID: "abc"})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if got := string(fileBytes(t, fsys, dataDir+"/"+metaFile)); got != odd {
		t.Errorf("changed to %q", got)
	}
	writeFile(fsys, dataDir+"/"+metaFile, []byte("version=0\nother=a b\n"), true)
	m, err = OpenManager(ManagerOptions{FS: fsys, Dirs: []string{dataDir}, BrokerID: 0, ClusterID: "abc"})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	again, err := parseMeta(fileBytes(t, fsys, dataDir+"/"+metaFile))
	if other, _ := again.props.Get("other"); err != nil || again.id != 0 || again.cluster != "abc" || other != "a b" {
		t.Errorf("wrote %+v, %v", again, err)
	}
}

// TestStray: the directory is kept under Kafka's name for it, and the next log of the name has
// nothing of it, now and after a restart.
func TestStray(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	appendTo(t, b.log(), values(1, "a"))
	l := b.restart()
	size := l.Size()
	changed := l.Changed()
	if err := b.m.Stray("t", 0); err != nil {
		t.Fatal(err)
	}
	<-changed
	if _, err := l.Append(Append{Records: values(1, "x"), RequestVersion: 9}); !errors.Is(err, ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if b.m.Log("t", 0) != nil || b.m.Stray("t", 0) != nil {
		t.Error("still there")
	}
	id := [16]byte{2}
	if l, err := b.m.Create("t", 0, id); err != nil || l.End() != 0 || l.TopicID() != id {
		t.Fatalf("the next one: %v, %v", l, err)
	}
	b.o.FileDeleteDelayMs = 0
	for range 2 {
		b.close()
		b.start()
		if l := b.m.Log("t", 0); l == nil || l.End() != 0 || l.TopicID() != id {
			t.Errorf("after a restart %v", l)
		}
	}
	list, _ := b.fs.ReadDir(dataDir)
	var kept []string
	for _, e := range list {
		if topic, p, kind := parseDirName(e.Name()); kind == dirStray && topic == "t" && p == 0 {
			kept = append(kept, e.Name())
		}
	}
	if len(kept) != 1 || len(kept[0]) != len("t-0.")+32+len("-stray") {
		t.Fatalf("kept %v", kept)
	}
	name := dataDir + "/" + kept[0]
	if got := len(fileBytes(t, b.fs, name+"/"+offsetName(0, logSuffix))); int64(got) != size {
		t.Errorf("%d bytes are left of %d", got, size)
	}
	if !strings.Contains(b.lines(), name) {
		t.Error("the directory is not named in the log")
	}
	b.close()
}

// TestStrayDamaged: a log that could not be opened goes the same way.
func TestStrayDamaged(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	l := b.log()
	appendTo(t, l, values(1, "a"))
	file := l.path(offsetName(0, logSuffix))
	b.close()
	change(t, b.fs, file, func([]byte) []byte { return nil })
	b.start()
	if err := b.m.Log("t", 0).Err(); !errors.Is(err, ErrDamaged) {
		t.Fatalf("error %v", err)
	}
	if err := b.m.Stray("t", 0); err != nil {
		t.Fatal(err)
	}
	if l, err := b.m.Create("t", 0, [16]byte{2}); err != nil || l.End() != 0 {
		t.Errorf("the next one: %v, %v", l, err)
	}
	b.close()
}
