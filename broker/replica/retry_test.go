package replica

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ottla/broker/metadata"
	"ottla/log"
	"ottla/log/vfs"
)

// full is a house on a disk that fails by script, with a controller that hands every partition to
// broker 1 when it is asked again.
type full struct {
	*house
	script *vfs.Script
	mem    *vfs.Memory
	lines  *logLines

	mu     sync.Mutex
	states map[Key]State // guarded by mu
	asked  int           // guarded by mu
	most   int           // guarded by mu: partitions asked for at once
}

// logLines keeps what is logged.
type logLines struct {
	mu  sync.Mutex
	all strings.Builder // guarded by mu
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func newFull(t *testing.T, mem *vfs.Memory) *full {
	f := &full{house: &house{t: t, meta: metadata.NewHolder(), options: &log.Options{
		SegmentBytes: 1 << 20, SegmentMs: 1 << 40, SegmentIndexBytes: 1 << 16, IndexIntervalBytes: 1,
		RetentionBytes: -1, RetentionMs: -1, FlushMessages: 1 << 60, FlushMs: 1 << 40, CleanupDelete: true,
		MaxMessageBytes: 1 << 20, Compression: "producer", TimestampBeforeMaxMs: 1 << 60, TimestampAfterMaxMs: 1 << 60,
	}}, script: new(vfs.Script), mem: mem, lines: new(logLines), states: map[Key]State{}}
	f.minISR.Store(1)
	logger := slog.New(slog.NewTextHandler(f.lines, nil))
	logs, err := log.OpenManager(log.ManagerOptions{
		FS: vfs.WithErrors(mem, f.script), Dirs: []string{"/a", "/b"}, BrokerID: 1, ClusterID: "test", Logger: logger,
		TopicOptions: func(string) *log.Options { return f.options }, RecoveryThreads: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.logs = logs
	f.Manager = New(Options{BrokerID: 1, Logs: logs, Meta: f.meta, Watch: []Watcher{f.house}, Logger: logger, Again: f.again,
		LogOptions: func(string) *log.Options { return f.options }})
	return f
}

func (f *full) close() {
	f.t.Helper()
	f.Manager.Close()
	if err := f.logs.Close(); err != nil {
		f.t.Error(err)
	}
}

// again is the controller: its states have no New, and an epoch above the last.
func (f *full) again(_ context.Context, keys []Key) {
	f.mu.Lock()
	f.asked++
	f.most = max(f.most, len(keys))
	var states []State
	for _, k := range keys {
		s := f.states[k]
		s.New = false
		s.LeaderEpoch++
		f.states[k] = s
		states = append(states, s)
	}
	f.mu.Unlock()
	f.Apply(states)
}

// times are how often the controller was asked, and for how many at once.
func (f *full) times() (asked, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked, f.most
}

// busy says whether somebody asks still, or will.
func (f *full) busy() bool {
	f.change.Lock()
	defer f.change.Unlock()
	return f.retries.running
}

// make applies the first states of partitions, as a creation does.
func (f *full) make(topic string, n int32) map[Key]error {
	var states []State
	for i := range n {
		s := State{Topic: topic, ID: [16]byte{1}, Partition: i, Leader: 1, ISR: []int32{1}, Replicas: []int32{1}, New: true}
		f.mu.Lock()
		f.states[Key{topic, i}] = s
		f.mu.Unlock()
		states = append(states, s)
	}
	return f.Apply(states)
}

func (f *full) leads(topic string, n int32) int {
	count := 0
	for i := range n {
		if p, err := f.Leader(topic, i); err == nil {
			if _, _, err := p.Append(f.t.Context(), log.Append{Records: batch("x"), RequestVersion: 9}, 1); err != nil {
				f.t.Error(err)
			}
			count++
		} else if !errors.Is(err, ErrOffline) && !errors.Is(err, ErrUnknownPartition) {
			f.t.Errorf("%s-%d: %v", topic, i, err)
		}
	}
	return count
}

func (f *full) count(text string) int { return strings.Count(f.lines.String(), text) }

// TestRoomIsFoundAgain: partitions that could not be made for want of room are offline, are tried a
// few at a time, and are led as soon as there is room; with a line at the beginning and one at the end.
func TestRoomIsFoundAgain(t *testing.T) {
	for name, fault := range map[string]vfs.Fault{
		"directory":          {Op: vfs.OpMkdir},
		"partition.metadata": {Op: vfs.OpWrite, Name: "partition.metadata"},
		"its file":           {Op: vfs.OpOpen, Name: "partition.metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFull(t, vfs.NewMemory())
				defer f.close()
				if err := f.logs.Load(); err != nil {
					t.Fatal(err)
				}
				if failed := f.make("well", 1); len(failed) > 0 {
					t.Fatal(failed)
				}
				fault.Err = syscall.ENOSPC
				f.script.Add(fault)
				const n = 100
				if failed := f.make("t", n); len(failed) != n || !errors.Is(failed[Key{"t", 7}], log.ErrFull) {
					t.Fatalf("%d failed", len(failed))
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if asked, most := f.times(); asked == 0 || asked > 12 || most > retriesAtOnce || f.leads("t", n) != 0 || f.leads("well", 1) != 1 {
					t.Errorf("asked %d times, for %d at once", asked, most)
				}
				if err := f.Stop("t", 3, true); err != nil {
					t.Fatal(err)
				}
				f.script.Clear()
				time.Sleep(lastRetry)
				synctest.Wait()
				if got := f.leads("t", n); got != n-1 {
					t.Errorf("leads %d", got)
				}
				if a, z := f.count("want of room"), f.count("no partition waits"); a != 1 || z != 1 || f.count("level=ERROR") > 0 {
					t.Errorf("%d lines at the beginning, %d at the end:\n%.2000s", a, z, f.lines)
				}
				asked, _ := f.times()
				time.Sleep(time.Hour)
				if again, _ := f.times(); again != asked || f.busy() {
					t.Error("it still asks")
				}
			})
		})
	}
}

// TestRoomForALoad: a log that a start could not mend for want of room is opened as soon as there is.
func TestRoomForALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMemory()
		f := newFull(t, mem)
		if err := f.logs.Load(); err != nil {
			t.Fatal(err)
		}
		f.make("t", 4)
		f.leads("t", 4)
		f.close()
		for _, dir := range []string{"/a", "/b"} {
			for _, p := range []string{"/t-0", "/t-1", "/t-2", "/t-3"} {
				mem.Remove(dir + p + "/00000000000000000000.index")
			}
		}
		f2 := newFull(t, mem)
		defer f2.close()
		f2.states = f.states
		f2.script.Add(vfs.Fault{Op: vfs.OpOpen, Name: "*.index*", Err: syscall.ENOSPC})
		f2.script.Add(vfs.Fault{Op: vfs.OpWrite, Name: "*.index*", Err: syscall.ENOSPC})
		if err := f2.logs.Load(); err != nil {
			t.Fatal(err)
		}
		f2.again(t.Context(), []Key{{"t", 0}, {"t", 1}, {"t", 2}, {"t", 3}})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := f2.leads("t", 4); n != 0 {
			t.Fatalf("leads %d", n)
		}
		lines := strings.Count(f2.lines.String(), "\n")
		time.Sleep(time.Minute)
		synctest.Wait()
		if more := strings.Count(f2.lines.String(), "\n") - lines; more > 0 {
			t.Errorf("%d lines more while nothing changes:\n%s", more, f2.lines)
		}
		f2.script.Clear()
		time.Sleep(lastRetry)
		synctest.Wait()
		if n := f2.leads("t", 4); n != 4 {
			t.Errorf("leads %d:\n%s", n, f2.lines)
		}
		for i := range int32(4) {
			if l := f2.logs.Log("t", i); l.End() != 2 {
				t.Errorf("t-%d ends at %d", i, l.End())
			}
		}
	})
}

// TestControllerHearsOfAFailedDirectory: at once, of the partitions that were in it.
func TestControllerHearsOfAFailedDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFull(t, vfs.NewMemory())
		defer f.close()
		if err := f.logs.Load(); err != nil {
			t.Fatal(err)
		}
		f.make("t", 6)
		f.script.Add(vfs.Fault{Op: vfs.OpSync, Dir: "/a", Err: syscall.EIO})
		l := f.logs.Log("t", 0)
		for i := int32(0); l.Dir() != "/a"; i++ {
			l = f.logs.Log("t", i)
		}
		f.leads("t", 6)
		if err := l.Flush(1); !errors.Is(err, log.ErrStorage) {
			t.Fatal(err)
		}
		f.DirFailed("/a")
		synctest.Wait()
		if asked, most := f.times(); asked != 1 || most != 3 || f.leads("t", 6) != 3 {
			t.Errorf("asked %d times, for %d, leads %d", asked, most, f.leads("t", 6))
		}
		if f.make("new", 2); f.leads("new", 2) != 2 {
			t.Error("new partitions are not led")
		}
		if old := (State{Topic: "lost", Leader: 1, ISR: []int32{1}, Replicas: []int32{1}}); !errors.Is(f.Apply([]State{old})[Key{"lost", 0}], log.ErrStorage) {
			t.Error("what may lie in the directory was made anew")
		}
		time.Sleep(time.Hour)
		if n := f.count("partitions are offline"); f.busy() || n != 2 {
			t.Errorf("%d lines:\n%s", n, f.lines)
		}
	})
}
