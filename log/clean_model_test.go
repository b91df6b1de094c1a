package log

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

func TestCleanWithErrors(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpOpen, vfs.OpRead, vfs.OpWrite, vfs.OpSync, vfs.OpSyncDir, vfs.OpRename, vfs.OpRemove} {
		for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
			for nth := 1; nth < 60; nth++ {
				if done := cleanWithError(t, op, fault, nth); done {
					break
				}
			}
		}
	}
}

func cleanWithError(t *testing.T, op vfs.Op, fault error, nth int) (done bool) {
	t.Helper()
	script := &vfs.Script{}
	mem := vfs.NewCrashable()
	b := newBox(t, vfs.WithErrors(mem, script), func(o *Options) { compacted(o); o.SegmentBytes = 1 << 20 })
	b.start()
	l := b.log()
	putAll(t, l, kv{"a", "1"}, kv{"b", "1"})
	roll(t, l)
	putAll(t, l, kv{"a", "2"})
	roll(t, l)
	if err := l.Flush(l.End()); err != nil {
		t.Fatal(err)
	}
	before := script.Count(op)
	script.Add(vfs.Fault{Op: op, Nth: nth, Times: 1, Err: fault})
	clean(b.m)
	done = script.Count(op)-before < nth
	script.Clear()
	what := fmt.Sprintf("%s number %d, %v", op, nth, fault)
	if err := l.Err(); err != nil && errors.Is(fault, syscall.ENOSPC) && op != vfs.OpRename && op != vfs.OpSyncDir {
		t.Fatalf("%s: %v", what, err)
	}
	if l.Err() == nil && !l.uncleanable.Load() {
		clean(b.m)
		if at, _ := l.dir.cleanedUpTo(l); at != 3 {
			t.Fatalf("%s: cleaned up to %d: %s", what, at, b.lines())
		}
		if got := readAll(t, l, 0); len(got) != 2 || got[1] != "1" || got[2] != "2" {
			t.Fatalf("%s: %v", what, got)
		}
	}
	b.m.stopTasks()
	again := newBox(t, mem.KillClone(), compacted)
	again.start()
	l = again.log()
	if got := readAll(t, l, 0); got[1] != "1" || got[2] != "2" {
		t.Fatalf("%s: %v after a restart", what, got)
	}
	l.SetHighWatermark(l.End())
	clean(again.m)
	if got := readAll(t, l, 0); len(got) != 2 {
		t.Fatalf("%s: %v after a restart and a round", what, got)
	}
	again.m.stopTasks()
	return done
}

func TestCleanCrashes(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() || raceEnabled {
		seeds = 1
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newKeyed(t, r, vfs.NewCrashable())
		for range 60 {
			w.step()
		}
		roll(t, w.l)
		if err := w.l.Flush(w.l.End()); err != nil {
			t.Fatal(err)
		}
		w.b.m.perform(context.Background(), taskPoints)
		w.b.m.stopTasks()
		ready := w.b.fs.(*vfs.Memory).KillClone()
		for at := 1; ; at++ {
			var lefts []*vfs.Memory
			mem := ready.KillClone()
			tap := &tapFS{Memory: mem, at: at, take: func(m *vfs.Memory) *vfs.Memory {
				lefts = append(lefts, m.KillClone(), m.CrashClone(uint64(at)), m.CrashClone(uint64(at)+1000))
				return m
			}}
			b := newBox(t, tap, nil)
			b.o, b.now = w.b.o, w.b.now
			tap.at = 0
			b.start()
			b.log().SetHighWatermark(1 << 60)
			tap.at = at
			clean(b.m)
			b.m.stopTasks()
			for i, left := range lefts {
				again := newBox(t, left, nil)
				again.o, again.now = w.b.o, w.b.now
				again.start()
				l := again.log()
				l.SetHighWatermark(l.End())
				what := fmt.Sprintf("seed %d, operation %d, end %d", seed, at, i)
				w.check(l, what)
				clean(again.m)
				w.check(l, what+", after a round")
				if l.uncleanable.Load() || l.Err() != nil {
					t.Fatalf("%s: %v %s", what, l.Err(), again.lines())
				}
				again.m.stopTasks()
			}
			if lefts == nil {
				if at < 10 {
					t.Fatalf("seed %d: only %d operations", seed, at)
				}
				break
			}
		}
	}
}

func TestCleanModel(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() || raceEnabled {
		seeds = 10
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newKeyed(t, r, vfs.NewCrashable())
		for i := range 150 {
			switch n := r.IntN(20); {
			case n < 15:
				w.step()
			case n < 17:
				o := someCleaner
				o.DedupeBytes = int64(10+r.IntN(100)) * slotBytes
				cleanWith(w.b.m, o)
				w.check(w.l, fmt.Sprintf("seed %d, step %d, a round", seed, i))
			case n == 17:
				roll(t, w.l)
			case n == 18:
				w.b.advance(time.Duration(r.IntN(1500)) * time.Millisecond)
			default:
				w.reopen(fmt.Sprintf("seed %d, step %d", seed, i))
			}
		}
	}
}

type keyedWorld struct {
	t    *testing.T
	r    *rand.Rand
	b    *box
	l    *Log
	all  map[int64]kv     // every record by its offset
	last map[string]int64 // offset of each key's latest record that counts
	seqs map[int64]int32
	open map[int64][]int64 // offsets of the records of open transactions
}

func newKeyed(t *testing.T, r *rand.Rand, fsys vfs.FS) *keyedWorld {
	w := &keyedWorld{t: t, r: r, all: map[int64]kv{}, last: map[string]int64{}, seqs: map[int64]int32{}, open: map[int64][]int64{}}
	w.b = newBox(t, fsys, compacted)
	w.b.o.SegmentBytes = int64(300 + r.IntN(1500))
	w.b.start()
	w.l = w.b.log()
	return w
}

func (w *keyedWorld) step() {
	id := int64(w.r.IntN(5))
	o := record.BuilderOptions{Codec: []record.Codec{record.None, record.None, record.Lz4, record.Zstd, record.Gzip, record.Snappy}[w.r.IntN(6)]}
	if id > 2 && len(w.open[id]) > 0 && w.r.IntN(2) == 0 {
		commit := w.r.IntN(2) == 0
		appendMarker(w.t, w.l, commit, id, 0, 0)
		for _, at := range w.open[id] {
			if commit {
				w.last[w.all[at].key] = max(w.last[w.all[at].key], at)
			}
		}
		w.open[id] = nil
		return
	}
	var recs []kv
	for range 1 + w.r.IntN(4) {
		r := kv{fmt.Sprint(w.r.IntN(12)), strings.Repeat("v", w.r.IntN(30))}
		if id > 2 { // of transactions the keys are their own, so that the order of their ends does not count
			r.key = fmt.Sprint("t", id, r.key)
		}
		recs = append(recs, r)
	}
	if id > 0 {
		o.Producer = &record.ProducerInfo{ID: id, Sequence: w.seqs[id], Transactional: id > 2}
		w.seqs[id] += int32(len(recs))
	}
	a := appendTo(w.t, w.l, keyed(o, w.l.m.nowMs(), recs...))
	for i, r := range recs {
		at := a.First + int64(i)
		w.all[at] = r
		if id > 2 {
			w.open[id] = append(w.open[id], at)
		} else {
			w.last[r.key] = at
		}
	}
}

func (w *keyedWorld) check(l *Log, what string) {
	w.t.Helper()
	if err := l.Err(); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	aborted, err := l.AbortedIn(0, l.End())
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	there := map[string]int64{}
	raw, err := rawBatches(l)
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	for b := range record.All(raw) {
		if b.IsControl() {
			continue
		}
		for r, err := range record.Records(b, 0) {
			if err != nil {
				w.t.Fatalf("%s: %v", what, err)
			}
			if is := w.all[r.Offset]; is.key != string(r.Key) || is.value != string(r.Value) {
				w.t.Fatalf("%s: offset %d is %s=%s, was written as %v", what, r.Offset, r.Key, r.Value, is)
			}
			void := b.IsTransactional() && (slices.Contains(w.open[b.ProducerID()], r.Offset) || slices.ContainsFunc(aborted, func(a Aborted) bool {
				return a.ProducerID == b.ProducerID() && a.First <= r.Offset && r.Offset < a.Last
			}))
			if !void {
				there[string(r.Key)] = max(there[string(r.Key)], r.Offset)
			}
		}
	}
	for key, at := range w.last {
		if got, ok := there[key]; got != at && !(w.all[at].value == "" && !ok) {
			w.t.Fatalf("%s: %s is at %d (%v), want %d\naborted %v\n%s", what, key, got, ok, at, aborted, contents(w.t, l))
		}
	}
	for key, at := range there {
		if want, ok := w.last[key]; !ok || want != at {
			w.t.Fatalf("%s: %s is at %d, want %d %v", what, key, at, want, ok)
		}
	}
	producers := l.Producers()
	for id, next := range w.seqs {
		i := slices.IndexFunc(producers, func(p Producer) bool { return p.ID == id })
		if i < 0 || producers[i].LastSequence != next-1 {
			w.t.Fatalf("%s: producer %d is not at %d: %+v", what, id, next-1, producers)
		}
	}
}

func (w *keyedWorld) reopen(what string) {
	if err := w.l.Flush(w.l.End()); err != nil {
		w.t.Fatal(err)
	}
	mem := w.b.fs.(*vfs.Memory)
	switch w.r.IntN(3) {
	case 0:
		w.b.close()
	case 1:
		mem = mem.KillClone()
		w.b.m.stopTasks()
	default:
		mem = mem.CrashClone(w.r.Uint64())
		w.b.m.stopTasks()
	}
	w.b.fs = mem
	w.b.start()
	w.l = w.b.log()
	w.l.SetHighWatermark(w.l.End())
	w.check(w.l, what+", opened again")
}
