package broker

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"ottla/broker/config"
	"ottla/coordinator"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/log"
	"ottla/log/vfs"
)

// with is a broker of which only the settings are there.
func with(t *testing.T, settings map[string]string) *Broker {
	t.Helper()
	store, err := config.New(config.Options{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	return &Broker{config: store, opts: Options{Now: time.Now}}
}

// hanging is a file system in which partition.metadata opens when it is let.
type hanging struct {
	vfs.FS
	asked chan string
	let   chan struct{}
}

func (h *hanging) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if filepath.Base(name) == "partition.metadata" {
		h.asked <- name
		<-h.let
	}
	return h.FS.OpenFile(name, flag, perm)
}

// TestRecoveryThreads: as many logs are loaded at a time as num.recovery.threads.per.data.dir says, set in the file
// or at run time for the next start.
func TestRecoveryThreads(t *testing.T) {
	for name, threads := range map[string]int{"static": 1, "dynamic": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := vfs.NewMemory()
				b := with(t, map[string]string{"log.dirs": "/data", "num.recovery.threads.per.data.dir": "1"})
				open := func(fs vfs.FS) *log.Manager {
					t.Helper()
					dirs, err := log.LockDirs(fs, b.config.Broker().LogDirs)
					if err != nil {
						t.Fatal(err)
					}
					m, err := log.OpenManager(logOptions(b, fs, dirs, "cluster", nil))
					if err != nil {
						t.Fatal(err)
					}
					return m
				}
				m := open(memory)
				for p := range int32(5) {
					if _, err := m.Create("t", p, [16]byte{1}); err != nil {
						t.Fatal(err)
					}
				}
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				if name == "dynamic" {
					b.config.Apply(config.Brokers, config.DefaultName, map[string]string{"num.recovery.threads.per.data.dir": "3"})
				}
				slow := &hanging{memory, make(chan string, 100), make(chan struct{})}
				m = open(slow)
				loaded := make(chan error)
				go func() { loaded <- m.Load() }()
				synctest.Wait()
				if n := len(slow.asked); n != threads {
					t.Errorf("%d logs are loaded at a time, want %d", n, threads)
				}
				close(slow.let)
				if err := <-loaded; err != nil {
					t.Error(err)
				}
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// stuck is a store whose appends are never committed.
type stuck struct{}

func (stuck) Append(context.Context, int32, int32, []byte) (int64, func(context.Context) error, error) {
	return 0, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil
}

func (stuck) Load(context.Context, int32, int32) iter.Seq2[[]byte, error] {
	return func(func([]byte, error) bool) {}
}

// TestOffsetsCommitTimeout: a commit that the topic of offsets does not take is answered after
// offsets.commit.timeout.ms.
func TestOffsetsCommitTimeout(t *testing.T) {
	for set, want := range map[string]time.Duration{"1234": 1234 * time.Millisecond, "5000": 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := with(t, map[string]string{"offsets.commit.timeout.ms": set})
			c := groupConfig(b, nil)
			c.Store, c.Partitions = stuck{}, func() int32 { return 1 }
			g := group.New(c)
			defer g.Close()
			g.Led(0, 0)
			synctest.Wait()
			begun := time.Now()
			_, err := g.Commit(t.Context(), group.CommitRequest{Group: "g", Generation: -1, Retention: -1,
				Topics: []group.CommitTopic{{Name: "t", Partitions: []group.CommitPartition{{Offset: 5, Time: -1}}}}})
			if took := time.Since(begun); !errors.Is(err, coordinator.ErrTimedOut) || took != want {
				t.Errorf("after %v: %v", took, err)
			}
		})
	}
}

// taking is a store that commits everything at once.
type taking struct{ stuck }

func (taking) Append(context.Context, int32, int32, []byte) (int64, func(context.Context) error, error) {
	return 0, nil, nil
}

// unwritten are markers that are never written.
type unwritten struct{}

func (unwritten) WriteMarker(ctx context.Context, m txn.Marker) []error {
	<-ctx.Done()
	errs := make([]error, len(m.Partitions))
	for i := range errs {
		errs[i] = ctx.Err()
	}
	return errs
}

// TestTransactionPatience: a partition that is added while the transaction before is still being ended waits for
// add.partitions.to.txn.retry.backoff.max.ms.
func TestTransactionPatience(t *testing.T) {
	for set, want := range map[string]time.Duration{"0": 0, "250": 250 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			b := with(t, map[string]string{"add.partitions.to.txn.retry.backoff.max.ms": set})
			c := txnConfig(b, nil, nil)
			c.Options = func() *txn.Options { return txnOptions(b.config) }
			c.ProducerIDs = func(context.Context) (int64, error) { return 7, nil }
			c.Store, c.Markers, c.Partitions = taking{}, unwritten{}, func() int32 { return 1 }
			x := txn.New(c)
			defer x.Close()
			x.Led(0, 0)
			synctest.Wait()
			p, err := x.Init(t.Context(), txn.InitRequest{ID: "x", Timeout: 60000, NewProducerID: -1})
			if err != nil {
				t.Fatal(err)
			}
			add := txn.AddRequest{ID: "x", Producer: p.ID, Epoch: p.Epoch, Partitions: []txn.Partition{{Topic: "t"}}, Patience: x.Patience()}
			if err := x.Add(t.Context(), add); err != nil {
				t.Fatal(err)
			}
			if _, err := x.End(t.Context(), txn.EndRequest{ID: "x", Producer: p.ID, Epoch: p.Epoch, Commit: true, NewProducerID: -1}); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if err := x.Add(t.Context(), add); !errors.Is(err, txn.ErrConcurrent) || time.Since(begun) != want {
				t.Errorf("%s ms: %v after %v", set, err, time.Since(begun))
			}
		})
	}
}

// TestKept: options are made once, and anew after the settings have changed.
func TestKept(t *testing.T) {
	settings, made := 1, 0
	of := kept(func() int { return settings }, func() *int {
		made++
		is := settings
		return &is
	})
	first := of()
	if again := of(); again != first || *first != 1 || made != 1 {
		t.Errorf("asked twice: made %d times, %d", made, *again)
	}
	settings = 2
	if now := of(); *now != 2 || made != 2 {
		t.Errorf("after a change: made %d times, %d", made, *now)
	}
	if *first != 1 {
		t.Errorf("what was given out before has become %d", *first)
	}
}
