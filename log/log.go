package log

import (
	"fmt"
	"math"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"
)

// Log is one partition's log in one directory. All methods may be called at any time by any
// goroutine.
type Log struct {
	m         *Manager
	topic     string
	partition int32
	label     string // TOPIC-PARTITION
	dir       *dir
	name      atomic.Pointer[string] // of the partition's directory below dir
	id        atomic.Pointer[[16]byte]

	// shape is held by whoever replaces or removes closed segments: the cleaner for a round,
	// retention, a truncation, a deletion. Taken before mu, and held across syncs.
	shape       sync.Mutex
	hurry       atomic.Int32 // how many wait for it, so that a round ends soon
	uncleanable atomic.Bool  // the cleaner cannot read it
	swaps       int          // guarded by mu: how often it replaced segments

	// mu is held by whoever changes the log: across the one write of an append, and across
	// the steps of a roll, a truncation, a deletion. Never across a sync.
	mu        sync.Mutex
	closed    bool          // guarded by mu
	state     producerState // guarded by mu
	leftovers bool          // the directory may hold files of segments that are not listed
	loading   atomic.Bool   // a start is at work on it, which tells what is damaged at its end
	lookedAt  bool          // whether its segments follow one another was seen; the manager's goroutine's
	due       bool          // guarded by mu: in the manager's list of logs to flush
	untidy    bool          // guarded by mu: in that of logs that were written to
	tidied    int           // how often it was taken out of there; the manager's goroutine's
	tidy      int64         // guarded by mu: where its snapshot between segments is, 0: there is none

	list  atomic.Pointer[[]*segment] // rising, never empty; replaced whole, under mu
	start atomic.Int64
	end   atomic.Int64
	high  atomic.Int64
	first atomic.Int64 // first unstable offset, MaxInt64 when there is none
	fault atomic.Pointer[error]

	epochs epochs
	flush  flusher
	wake   waker

	trouble trouble
}

// newLog describes a log without segments.
func newLog(m *Manager, d *dir, topic string, partition int32) *Log {
	l := &Log{m: m, topic: topic, partition: partition, dir: d}
	l.label = dirName(topic, partition)
	l.name.Store(&l.label)
	l.id.Store(new([16]byte))
	l.first.Store(math.MaxInt64)
	l.flush.init(m.nowMs())
	return l
}

// Topic is the topic's name.
func (l *Log) Topic() string { return l.topic }

// Partition is the partition's number.
func (l *Log) Partition() int32 { return l.partition }

// TopicID is the id in partition.metadata, zero if there is none.
func (l *Log) TopicID() [16]byte { return *l.id.Load() }

// Dir is the log directory that the partition is in, by its absolute path.
func (l *Log) Dir() string { return l.dir.path }

// Size is how many bytes the segments have.
func (l *Log) Size() int64 {
	size := int64(0)
	for _, s := range l.segments() {
		size += s.size.Load()
	}
	return size
}

// Start is the first offset that may be read (Kafka's log start offset).
func (l *Log) Start() int64 { return l.start.Load() }

// End is the offset that the next record will get (Kafka's log end offset).
func (l *Log) End() int64 { return l.end.Load() }

// HighWatermark is the offset up to which the log is known to be replicated. It is what the
// replica last set; at a start it is that of the checkpoint.
func (l *Log) HighWatermark() int64 { return l.high.Load() }

// StableOffset is the offset up to which all transactions are decided and replicated (Kafka's
// last stable offset): what readers of committed data may see.
func (l *Log) StableOffset() int64 {
	return min(l.high.Load(), max(l.first.Load(), l.start.Load()))
}

// SetHighWatermark moves the high watermark, within the log's start and end. It wakes those
// who wait on Changed.
func (l *Log) SetHighWatermark(offset int64) {
	offset = max(min(offset, l.end.Load()), l.start.Load())
	if l.high.Swap(offset) == offset {
		return
	}
	l.dir.watermarksMoved.Store(true)
	if l.first.Load() != math.MaxInt64 {
		l.mu.Lock()
		l.state.decided(offset)
		l.first.Store(l.state.firstUnstable())
		l.mu.Unlock()
	}
	l.wake.all()
}

// Err is what keeps the log from being used: an ErrStorage, with the Damage or the error of
// the disk in it, or ErrClosed. It is nil for a log that works.
func (l *Log) Err() error { return l.usable() }

// usable says what keeps the log from being used.
func (l *Log) usable() error {
	if fault := l.fault.Load(); fault != nil {
		return *fault
	}
	return l.dir.failed()
}

// segments is the list as it is now; it does not change any more.
func (l *Log) segments() []*segment {
	if list := l.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (l *Log) setSegments(list []*segment) { l.list.Store(&list) }

// active is the segment that appends go to. The caller holds mu.
func (l *Log) active() *segment {
	list := l.segments()
	return list[len(list)-1]
}

// floor is the index of the segment that an offset belongs to: the last one whose base is not
// above it, or the first.
func floor(list []*segment, offset int64) int {
	i := sort.Search(len(list), func(i int) bool { return list[i].base > offset })
	return max(i-1, 0)
}

func (l *Log) options() *Options { return l.m.options(l.topic) }

// path is that of a file in the partition's directory.
func (l *Log) path(name string) string {
	return l.dir.path + string(filepath.Separator) + *l.name.Load() + string(filepath.Separator) + name
}

// String is TOPIC-PARTITION.
func (l *Log) String() string { return l.label }

// Producer is what the log knows of a producer id, for DescribeProducers.
type Producer struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // -1: none
	LastTimestamp    int64 // ms
	CoordinatorEpoch int32 // of the last transaction marker, -1: none
	TxnStart         int64 // first offset of the open transaction, -1: none
}

// Producers lists the producers that wrote here and have not expired.
func (l *Log) Producers() []Producer {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Producer, 0, len(l.state.byID))
	for _, p := range l.state.byID {
		list = append(list, Producer{p.id, p.epoch, p.lastSeq(), p.lastTime, p.coordinatorEpoch, p.txnFirst})
	}
	return list
}

// Census counts the producers that wrote here and have not expired, and says whether one of them has a transaction open
// to which it has not written since a time (ms since 1970).
func (l *Log) Census(since int64) (producers int, late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, open := range l.state.open {
		if p := l.state.byID[open.id]; p != nil && p.lastTime < since {
			late = true
		}
	}
	return len(l.state.byID), late
}

// LastEpoch is the newest leader epoch, -1 if there is none.
func (l *Log) LastEpoch() int32 { return l.epochs.last() }

// EpochAt is the leader epoch in which an offset was written, -1 if that is not known.
func (l *Log) EpochAt(offset int64) int32 { return l.epochs.at(offset) }

// AssignEpoch begins a leader epoch at the log's end. Epochs only rise.
func (l *Log) AssignEpoch(epoch int32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	l.epochs.assign(epoch, l.end.Load())
	return nil
}

// EpochEnd is the largest known epoch that is not above the given one and the offset where it
// ends (KIP-101, OffsetForLeaderEpoch); both are -1 if that is not known.
func (l *Log) EpochEnd(epoch int32) (foundEpoch int32, end int64) {
	return l.epochs.endFor(epoch, l.end.Load())
}

// writable says what keeps the log from being changed. The caller holds mu.
func (l *Log) writable() error {
	if err := l.usable(); err != nil {
		return err
	}
	if l.closed {
		return fmt.Errorf("%s: %w", l, ErrClosed)
	}
	return nil
}

// Changed returns a channel that is closed at the next append, at the next move of the high
// watermark, and when the log fails or is closed. Take the channel first and look at the log
// then: what happens in between closes it.
func (l *Log) Changed() <-chan struct{} {
	c := l.wake.wait()
	if l.usable() != nil {
		l.wake.all()
	}
	return c
}

// waker wakes all who wait. Nobody waiting costs an append one atomic load.
type waker struct {
	waiting atomic.Bool
	mu      sync.Mutex
	c       chan struct{} // guarded by mu; nil while nobody waits
}

func (w *waker) wait() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c == nil {
		w.c = make(chan struct{})
		w.waiting.Store(true)
	}
	return w.c
}

func (w *waker) all() {
	if !w.waiting.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c != nil {
		close(w.c)
		w.c = nil
		w.waiting.Store(false)
	}
}
