package log

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// The model of a log is the list of its batches, byte for byte as they have to be stored.
// Random operations are done to both; at any operation of the file system the world may end,
// by kill -9 or by a power failure, and what a new process then opens must be a state that the
// model has been in since what was flushed last, cut at any batch. A power failure may besides
// have taken, of what was not flushed, the end of any segment, also where the next one is there:
// that leaves a hole, as in Kafka.
//
// Operations of the file system fail besides: for want of room, after which an append has not happened
// and the log goes on, and for good, after which nothing is done until a new process opens what is
// there. A start may find no room either, and has to open the log once there is some.
//
// One seed is one run: go test ./log -run TestModel -seed N. More seeds: -seeds 5000 -first-seed 1000

var (
	modelSeed  = flag.Uint64("seed", 0, "run TestModel with this seed alone")
	modelSeeds = flag.Int("seeds", 300, "run TestModel with so many seeds")
	modelFirst = flag.Uint64("first-seed", 1, "run TestModel with the seeds from this one on")
)

func TestModel(t *testing.T) {
	t.Parallel()
	if *modelSeed != 0 {
		if err := runModel(*modelSeed, t.Log); err != nil {
			t.Fatalf("seed %d: %v", *modelSeed, err)
		}
		return
	}
	n := uint64(*modelSeeds)
	if testing.Short() || raceEnabled {
		n = min(n, 50)
	}
	for seed := *modelFirst; seed < *modelFirst+n; seed++ {
		if err := runModel(seed, nil); err != nil {
			t.Fatalf("seed %d: %v\nreplay: go test ./log -run TestModel -seed %d -v", seed, err, seed)
		}
	}
}

// TestCrashAtEveryPoint ends the world at each operation of the file system in turn, by a kill and by
// power failures.
func TestCrashAtEveryPoint(t *testing.T) {
	t.Parallel()
	step := 1
	if testing.Short() || raceEnabled {
		step = 9
	}
	for _, power := range []bool{false, true} {
		for at := 1; ; at += step {
			w := newWorld(11, nil)
			w.crashAt, w.power = at, power
			err := w.open()
			for life := 0; life < 2 && err == nil; life++ {
				if err = w.live(); life == 0 && !w.crashed {
					break
				}
				w.crashAt = 0
			}
			if err != nil {
				t.Fatalf("power failure %v at operation %d: %v", power, at, err)
			}
			if !w.crashed {
				t.Logf("power failure %v: %d operations", power, at-1)
				if at < 150 {
					t.Errorf("only %d operations", at)
				}
				break
			}
		}
	}
}

// state is what the log may hold: batches that follow each other from begin to end.
type state struct {
	begin   int64
	batches []record.Batch
	start   int64
	upto    int64 // where an empty last segment begins, behind a hole
}

func (s state) end() int64 {
	if n := len(s.batches); n > 0 {
		return max(s.batches[n-1].NextOffset(), s.upto)
	}
	return max(s.begin, s.upto)
}

func (s state) with(b record.Batch) state {
	s.batches = append(slices.Clip(s.batches), b)
	return s
}

// cut is the state without the batches that end at or after an offset.
func (s state) cut(offset int64) state {
	n := len(s.batches)
	for n > 0 && s.batches[n-1].LastOffset() >= offset {
		n--
	}
	s.batches = s.batches[:n:n]
	if s.upto > offset {
		s.upto = 0
	}
	s.start = min(s.start, s.end())
	return s
}

// world is one run.
type world struct {
	r    *rand.Rand
	note func(...any)
	fs   *tapFS

	crashAt int         // the operation of fs at which this life ends, 0: any, and there is trouble
	power   bool        // with crashAt: by a power failure
	crashed bool        // the last life ended within an operation
	script  *vfs.Script // what goes wrong on fs
	pending []state     // that the current step leads to, one after the other
	o       Options
	now     int64
	m       *Manager
	l       *Log

	past    []state // states since the last one that is known to be durable; the last is now
	durable int64   // everything below is flushed
	blind   bool    // what transactions began before the first batch is not known
	holes   bool    // a power failure has left one
	highest int64   // the log start was once here
	epoch   int32
	seqs    map[int64]int32 // next sequence of each producer
	txns    map[int64]bool  // producers in a transaction
}

func (w *world) is() state { return w.past[len(w.past)-1] }

func (w *world) becomes(s state) {
	w.past = append(w.past, s)
	w.highest = max(w.highest, s.start)
}

// tapFS takes a copy of the world when the file system is asked for its nth operation.
type tapFS struct {
	*vfs.Memory
	at    int
	take  func(*vfs.Memory) *vfs.Memory
	taken *vfs.Memory
}

func (f *tapFS) tap() {
	if f.at--; f.at == 0 {
		f.taken = f.take(f.Memory)
	}
}

type tapFile struct {
	vfs.File
	fs *tapFS
}

func (f *tapFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f.tap()
	file, err := f.Memory.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &tapFile{file, f}, nil
}

func (f *tapFS) Rename(from, to string) error { f.tap(); return f.Memory.Rename(from, to) }
func (f *tapFS) Remove(name string) error     { f.tap(); return f.Memory.Remove(name) }
func (f *tapFS) SyncDir(name string) error    { f.tap(); return f.Memory.SyncDir(name) }

func (f *tapFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.tap()
	return f.File.WriteAt(p, off)
}
func (f *tapFile) Truncate(size int64) error { f.fs.tap(); return f.File.Truncate(size) }
func (f *tapFile) Sync() error               { f.fs.tap(); return f.File.Sync() }

func newWorld(seed uint64, note func(...any)) *world {
	if note == nil {
		note = func(...any) {}
	}
	w := &world{script: new(vfs.Script), r: rand.New(rand.NewPCG(seed, 1)), note: note, now: startMs, past: []state{{}}, seqs: map[int64]int32{}, txns: map[int64]bool{}}
	w.o = *DefaultOptions()
	w.o.SegmentBytes = int64(200 + w.r.IntN(1500))
	w.o.IndexIntervalBytes = int64(w.r.IntN(300))
	w.o.RetentionMs, w.o.TimestampAfterMaxMs = -1, 1<<60
	w.o.RetentionBytes = int64(1000 + w.r.IntN(5000))
	w.fs = &tapFS{Memory: vfs.NewCrashable()}
	return w
}

func runModel(seed uint64, note func(...any)) error {
	w := newWorld(seed, note)
	if err := w.open(); err != nil {
		return err
	}
	for life := range 4 {
		if err := w.live(); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
	}
	return nil
}

func (w *world) open() error {
	w.script.Clear()
	if w.m != nil && w.r.IntN(4) == 0 {
		w.script.Add(vfs.Fault{Op: vfs.OpWrite, Name: "*.*", Nth: 1 + w.r.IntN(3), Err: syscall.ENOSPC, Short: w.r.IntN(30)})
	}
	defer w.script.Clear()
	m, err := OpenManager(ManagerOptions{FS: vfs.WithErrors(w.fs, w.script), Dirs: []string{dataDir}, BrokerID: 1, ClusterID: "c", RecoveryThreads: 1,
		TopicOptions: func(string) *Options { return &w.o }, Now: func() time.Time { return time.UnixMilli(w.now) }, MaxOpenFiles: 4})
	if err != nil {
		return err
	}
	m.stopTasks() // what it does is done by the run, so that a seed replays
	if err := m.Load(); err != nil {
		return err
	}
	w.m = m
	if w.l, err = m.Create("t", 0, [16]byte{1}); errors.Is(err, ErrFull) {
		w.note("no room at the start:", err)
		w.script.Clear()
		w.l, err = m.Create("t", 0, [16]byte{1})
	}
	return err
}

// trouble lets something go wrong before long.
func (w *world) trouble() {
	f := vfs.Fault{Nth: 1 + w.r.IntN(60), Times: 1 + w.r.IntN(3), Err: syscall.EIO, Short: w.r.IntN(100)}
	switch w.r.IntN(8) {
	case 0:
		f.Op = []vfs.Op{vfs.OpSync, vfs.OpSyncDir}[w.r.IntN(2)]
	case 1:
		f.Op = []vfs.Op{vfs.OpRename, vfs.OpRemove, vfs.OpTruncate}[w.r.IntN(3)]
	case 2:
		f.Op = vfs.OpWrite
	case 3, 4, 5:
		f.Op, f.Err = vfs.OpWrite, syscall.ENOSPC
		f.Name = []string{"", "*.log", "*index", "*.snapshot", "*checkpoint*"}[w.r.IntN(5)]
	default:
		return
	}
	w.note("trouble:", f)
	w.script.Add(f)
}

// live does operations until the world ends, and opens what is left.
func (w *world) live() error {
	power := w.r.IntN(3) > 0
	if w.crashAt > 0 {
		power = w.power
	}
	seed := w.r.Uint64()
	w.fs.take = func(m *vfs.Memory) *vfs.Memory {
		if power {
			return m.CrashClone(seed)
		}
		return m.KillClone()
	}
	if w.fs.at = 1 + w.r.IntN(300); w.crashAt > 0 {
		w.fs.at = w.crashAt
	} else {
		w.trouble()
	}
	for step := 0; w.fs.taken == nil && step < 80; step++ {
		before := w.is()
		n, durable := len(w.past), w.durable
		w.pending = nil
		err := w.step()
		if err == nil {
			err = w.l.Err()
		}
		if w.script.Fired() && (errors.Is(err, ErrStorage) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC)) {
			w.note("the disk failed:", err)
			for _, s := range w.pending { // it may have happened all the same
				w.becomes(s)
			}
			if w.fs.taken == nil {
				w.fs.taken = w.fs.take(w.fs.Memory)
			}
		} else if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		if w.fs.taken != nil {
			// The end came within the step: it may have happened or not, and only what was
			// flushed before it is sure.
			if len(w.past) < n {
				w.past = append([]state{before}, w.past...)
			}
			w.durable = min(durable, w.durable)
			if !power && len(w.past) > 1 && !w.blind {
				w.past = append([]state{before}, w.past[max(len(w.past)-1-len(w.pending), 0):]...)
			}
			break
		}
		if w.r.IntN(8) == 0 {
			if err := w.compare(w.l); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
	}
	w.crashed = w.fs.taken != nil
	if w.fs.taken == nil {
		w.fs.taken = w.fs.take(w.fs.Memory)
		if !power {
			w.past = []state{w.is()}
		}
	}
	if !power {
		w.durable = w.past[0].end()
		for _, s := range w.past {
			w.durable = min(w.durable, s.end())
		}
		if w.blind {
			w.durable = 0
		}
	}
	w.script.Clear()
	w.note("the end:", map[bool]string{true: "power failure", false: "kill"}[power])
	w.fs = &tapFS{Memory: w.fs.taken}
	if err := w.open(); err != nil {
		return err
	}
	return w.reopened(power)
}

// reopened finds the state that is there in the past, and goes on from it.
func (w *world) reopened(power bool) error {
	l := w.l
	got, err := rawBatches(l)
	if err != nil {
		return err
	}
	w.note("reopened", l.Start(), l.End(), "flushed", l.Flushed(), "durable", w.durable)
	if l.End() < w.durable {
		return fmt.Errorf("ends at %d, but %d was flushed", l.End(), w.durable)
	}
	if l.Start() == l.End() {
		w.blind = true // the log start may have been above what a crash left
		w.past = append([]state{{begin: l.End(), start: l.End()}}, w.past...)
	}
	for _, s := range slices.Backward(w.past) {
		c, ok := w.left(s, got, power)
		if !ok || l.Start() > s.start && l.Start() > c.end() {
			continue
		}
		c.start = l.Start()
		w.past = []state{c}
		w.durable = l.Flushed()
		w.epoch = max(w.epoch, l.LastEpoch())
		w.resetProducers()
		w.l.SetHighWatermark(l.End())
		return w.compare(l)
	}
	return fmt.Errorf("[%d, %d) is none of the %d states of the past (the last is [%d, %d)): %v", l.Start(), l.End(), len(w.past), w.is().start, w.is().end(), offsets(got))
}

// left is what the log has of a state. ok: all that it has is of it, and what it lacks a crash may
// have taken.
func (w *world) left(s state, got []byte, power bool) (c state, ok bool) {
	list, end := w.l.segments(), w.l.End()
	bases, there := map[int64]bool{}, map[int64]bool{}
	for _, s := range list {
		bases[s.base] = true
	}
	w.l.walk(list, 0, end, func(_ *segment, sc *scanner) error {
		there[sc.head.BaseOffset()] = true
		return nil
	})
	c = s.cut(end)
	batches := c.batches
	c.batches = nil
	lacks, holes, blind := false, w.holes, false
	for _, b := range batches {
		switch {
		case b.LastOffset() >= w.l.Start() && bytes.HasPrefix(got, b):
			got = got[len(b):]
		case b.LastOffset() < w.l.Start() && (there[b.BaseOffset()] || b.BaseOffset() < list[0].base):
		case !power || b.LastOffset() < w.durable:
			return c, false
		default:
			lacks, holes = true, true
			blind = blind || b.LastOffset() < w.l.Start()
			continue
		}
		if lacks && !bases[b.BaseOffset()] {
			return c, false
		}
		lacks = false
		c.batches = append(c.batches, b)
	}
	if c.end() != end {
		if !power && !holes || c.end() > end || s.end() < end || !bases[end] {
			return c, false
		}
		c.upto, holes = end, true
	}
	if len(got) > 0 {
		return c, false
	}
	w.holes, w.blind = holes, w.blind || blind
	return c, true
}

func offsets(data []byte) (list []string) {
	for b := range record.All(data) {
		list = append(list, fmt.Sprintf("%d-%d", b.BaseOffset(), b.LastOffset()))
	}
	return list
}

// rawBatches reads all bytes from the log start on.
func rawBatches(l *Log) ([]byte, error) {
	var all []byte
	for from := l.Start(); from < l.End(); {
		c, err := l.Read(from, l.End(), 400, true)
		if err != nil {
			return nil, err
		}
		if c.Range == nil {
			return all, nil // an empty segment behind a hole, or the caller sees what is missing
		}
		b := make([]byte, c.Range.Len())
		_, err = c.Range.ReadAt(b, 0)
		c.Range.Release()
		if err != nil {
			return nil, err
		}
		for batch := range record.All(b) {
			if batch.CRC() != batch.ComputeCRC() {
				return nil, fmt.Errorf("wrong checksum at %d", batch.BaseOffset())
			}
			all = append(all, batch...)
			from = batch.NextOffset()
		}
	}
	return all, nil
}

// resetProducers makes the test's producers go on from what the log knows.
func (w *world) resetProducers() {
	w.seqs, w.txns = map[int64]int32{}, map[int64]bool{}
	for _, p := range w.l.Producers() {
		if p.LastSequence >= 0 {
			w.seqs[p.ID] = record.AddSequence(p.LastSequence, 1)
		}
		w.txns[p.ID] = p.TxnStart >= 0
	}
}

// compare holds the log against the model in every way.
func (w *world) compare(l *Log) error {
	s := w.is()
	if l.Start() != s.start || l.End() != s.end() {
		return fmt.Errorf("[%d, %d), want [%d, %d)", l.Start(), l.End(), s.start, s.end())
	}
	got, err := rawBatches(l)
	if err != nil {
		return err
	}
	var want []byte
	top := stamp{noTime, -1}
	last := map[int64]record.Batch{}
	for _, b := range s.batches {
		if b.HasProducerID() && !b.IsControl() {
			last[b.ProducerID()] = b
		}
		if b.LastOffset() < s.start {
			continue
		}
		want = append(want, b...)
		// A crash may take back the log start, and not that of the epochs that went with it.
		e := l.EpochAt(max(b.BaseOffset(), s.start))
		if forgotten := e == noEpoch && b.BaseOffset() < w.highest; e != b.LeaderEpoch() && !forgotten {
			return fmt.Errorf("epoch at %d is %d, want %d (%v)", b.BaseOffset(), e, b.LeaderEpoch(), l.epochs.list)
		}
		for r := range record.Records(b, 0) {
			if r.Offset >= s.start && r.Timestamp > top.time {
				top = stamp{r.Timestamp, r.Offset}
			}
		}
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the log has %v, want %v", offsets(got), offsets(want))
	}
	if err := w.compareProducers(l, last); err != nil {
		return err
	}
	if err := w.compareAborted(l, s); err != nil {
		return err
	}
	return w.compareTimes(l, s, top)
}

func (w *world) compareProducers(l *Log, last map[int64]record.Batch) error {
	known := map[int64]Producer{}
	for _, p := range l.Producers() {
		known[p.ID] = p
	}
	for id, b := range last {
		p, ok := known[id]
		if b.LastOffset() < l.Start() && (!ok || w.blind) {
			continue // gone with its records
		}
		if p.LastSequence != b.LastSequence() && p.Epoch == b.ProducerEpoch() || !ok {
			return fmt.Errorf("producer %d is %+v, last batch %v", id, p, b)
		}
	}
	return nil
}

func (w *world) compareAborted(l *Log, s state) error {
	if w.blind {
		return nil
	}
	var want []Aborted
	open := map[int64]int64{}
	for _, b := range s.batches {
		switch {
		case !b.IsTransactional():
		case b.IsControl():
			first, ok := open[b.ProducerID()]
			delete(open, b.ProducerID())
			if m, _, _ := parseMarker(b); ok && !m.Commit && b.BaseOffset() >= s.start && first >= s.start {
				want = append(want, Aborted{ProducerID: b.ProducerID(), First: first, Last: b.BaseOffset()})
			}
		default:
			if _, ok := open[b.ProducerID()]; !ok {
				open[b.ProducerID()] = b.BaseOffset()
			}
		}
	}
	got, err := l.AbortedIn(s.start, s.end())
	if err != nil {
		return err
	}
	got = slices.DeleteFunc(got, func(a Aborted) bool { return a.First < s.start })
	for i := range got {
		got[i].StableOffset = 0
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("aborted %v, want %v", got, want)
	}
	stable := s.end()
	for _, first := range open {
		stable = min(stable, max(first, s.start))
	}
	if l.HighWatermark() == l.End() && l.StableOffset() != stable {
		return fmt.Errorf("stable offset %d, want %d", l.StableOffset(), stable)
	}
	return nil
}

func (w *world) compareTimes(l *Log, s state, top stamp) error {
	for range 4 {
		ts := startMs + w.r.Int64N(1200) - 100
		want := stamp{-1, -1}
	search:
		for _, b := range s.batches {
			for r := range record.Records(b, 0) {
				if r.Offset >= s.start && r.Timestamp >= ts {
					want = stamp{r.Timestamp, r.Offset}
					break search
				}
			}
		}
		offset, time, _, _, err := l.OffsetForTime(ts, l.End())
		if err != nil || (stamp{time, offset}) != want {
			return fmt.Errorf("time %d is at %d (%d), want %v, %v", ts, offset, time, want, err)
		}
	}
	offset, time, _, found, err := l.MaxTimestamp(l.End())
	// A larger one below the log start, in the same segment, hides it, as in Kafka.
	if err != nil || found && ((stamp{time, offset}) != top) {
		return fmt.Errorf("largest time %d at %d, want %v, %v", time, offset, top, err)
	}
	return nil
}
