package log

import (
	"sync"
	"sync/atomic"
	"time"
)

// flusher makes a log durable, for as many callers at once as there are.
//
// Everything acknowledged survives the end of the process: an append has written its bytes to
// the page cache before it returns, and the kernel keeps that. What survives the end of the
// system is decided here: Flush(n) returns nil only after an fsync that began when everything
// below n was written. The recovery point (Flushed) moves with it; all else that a start needs
// for the part below it (leader epochs, the names of the files, producer snapshots, the
// indexes of closed segments) is made durable before the recovery point moves, and what
// belongs to the part above it is made anew from the batches themselves.
type flusher struct {
	mu      sync.Mutex
	idle    sync.Cond // somebody's fsync ended; its L is &mu
	running bool      // guarded by mu: somebody is in fsync
	cuts    int       // guarded by mu: counts truncations
	cutting bool      // guarded by mu: a truncation is under way
	group   group     // guarded by mu
	point   atomic.Int64
	last    atomic.Int64 // when the last flush ended, ms

	names     atomic.Bool // names in the partition's directory changed since its last sync
	file      atomic.Bool // partition.metadata is not durable
	snapshots []int64     // guarded by mu: producer snapshots that are not durable
}

// snapped says that there is a new snapshot.
func (f *flusher) snapped(offset int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snapshots = append(f.snapshots, offset)
}

func (f *flusher) init(now int64) {
	f.idle.L = &f.mu
	f.last.Store(now)
}

// Flushed is the offset below which everything is durable (Kafka's recovery point).
func (l *Log) Flushed() int64 { return l.flush.point.Load() }

// Flush makes everything below the offset durable. Callers who come while an fsync is under
// way wait for the next one, which they share (group commit). An error means that nothing is
// known to be durable but what was before; after one of the disk's the directory is offline.
func (l *Log) Flush(to int64) error {
	f := &l.flush
	f.mu.Lock()
	for counted := false; ; {
		if f.point.Load() >= to {
			f.mu.Unlock()
			return nil
		}
		if err := l.usable(); err != nil {
			f.mu.Unlock()
			return err
		}
		if end := l.end.Load(); to > end {
			to = end // truncated meanwhile
			continue
		}
		if !counted {
			counted = true
			f.group.comeLocked()
		}
		if f.running {
			f.idle.Wait()
			continue
		}
		f.running = true
		if wait := f.group.expectLocked(); wait != nil {
			f.mu.Unlock()
			wait()
			f.mu.Lock()
		}
		return l.flushLocked()
	}
}

// flushAll makes durable what there is, the names of files included, also when the recovery
// point does not move.
func (l *Log) flushAll() error {
	f := &l.flush
	f.mu.Lock()
	for f.running {
		f.idle.Wait()
	}
	return l.flushLocked()
}

// flushLocked is called with flusher.mu held and nobody in fsync, and gives it up.
func (l *Log) flushLocked() error {
	f := &l.flush
	f.running = true
	cuts := f.cuts
	f.group.beginLocked()
	f.mu.Unlock()

	began := time.Now()
	point, err := l.sync()
	took := time.Since(began)
	l.m.metrics.flushSeconds.Observe(took.Seconds())

	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = false
	f.group.endLocked(took)
	if err == nil {
		l.reachedLocked(cuts, point)
	}
	f.last.Store(l.m.nowMs())
	f.idle.Broadcast()
	return err
}

// reachedLocked moves the recovery point to what a flush has made durable, unless the log was
// truncated since the flush looked at its end and at cuts. The caller holds flusher.mu.
func (l *Log) reachedLocked(cuts int, point int64) {
	f := &l.flush
	if !f.cutting && f.cuts == cuts && point > f.point.Load() {
		f.point.Store(point)
		l.dir.pointsMoved.Store(true)
	}
}

// hold keeps the recovery point from rising until the release that it returns: for as long as
// a truncation is under way, the log's end says more than there is.
func (f *flusher) hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutting = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.cutting = false
		f.cuts++
	}
}

// cut takes the recovery point back. The caller holds the log's lock and the recovery point.
func (f *flusher) cut(to int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.point.Load() > to {
		f.point.Store(to)
	}
}

// sync does the fsyncs and returns the offset below which all is durable now. One goroutine
// at a time is here.
func (l *Log) sync() (point int64, err error) {
	f := &l.flush
	from := f.point.Load()
	point = l.end.Load() // everything below was written before it was stored
	list := l.segments()

	if err := l.syncNames(point); err != nil {
		return 0, l.writeFailed("sync directory", err)
	}
	// The segment that ends just at the recovery point may have been closed after the flush
	// that led there, which left out its indexes.
	for i := floor(list, from-1); i < len(list); i++ {
		s := list[i]
		closed := i < len(list)-1
		if s.size.Load() == 0 && !closed {
			continue
		}
		if err := s.sync(closed); err != nil && !(notExist(err) && s.gone.Load()) {
			return 0, l.writeFailed("fsync", err)
		}
	}
	return point, nil
}

// unsynced says whether there is anything that sync would make durable.
func (l *Log) unsynced() bool {
	f := &l.flush
	_, epochs := l.epochs.unwritten(l.end.Load())
	return epochs || f.names.Load() || f.file.Load() || f.point.Load() < l.end.Load()
}

// syncNames makes durable what is beside the segments: the leader epochs, partition.metadata,
// the producer snapshots, and the names of all files, as far as a recovery point needs it.
func (l *Log) syncNames(point int64) error {
	f := &l.flush
	if err := l.saveEpochs(point); err != nil {
		return err
	}
	if f.file.Swap(false) {
		if err := syncFile(l.m.fs, l.path(partitionFile)); err != nil {
			f.file.Store(true)
			return err
		}
	}
	f.mu.Lock()
	snapshots := f.snapshots
	f.snapshots = nil
	f.mu.Unlock()
	for i, at := range snapshots {
		if err := syncFile(l.m.fs, l.path(offsetName(at, snapshotSuffix))); err != nil && !notExist(err) {
			f.mu.Lock()
			f.snapshots = append(f.snapshots, snapshots[i:]...)
			f.mu.Unlock()
			return err
		}
	}
	if f.names.Swap(false) {
		if err := l.m.fs.SyncDir(l.path("")); err != nil {
			f.names.Store(true)
			return unsynced(err)
		}
	}
	return l.dir.syncNames()
}

// saveEpochs makes the leader epochs durable, if those that begin below the offset are not.
func (l *Log) saveEpochs(point int64) error {
	l.epochs.writing.Lock()
	defer l.epochs.writing.Unlock()
	list, ok := l.epochs.unwritten(point)
	if !ok {
		return nil
	}
	if err := replaceFile(l.m.fs, l.path(epochFile), formatEpochs(list)); err != nil {
		return err
	}
	l.epochs.wrote(list)
	l.flush.names.Store(true)
	return nil
}

// sync makes the segment's files durable; of one that is still written only the log itself
// and the aborted transactions, which recovery does not read again below the recovery point.
func (s *segment) sync(closed bool) error {
	kinds := []fileKind{logData, offsetIndex, timeIndex}
	if !closed {
		kinds = kinds[:1]
	}
	for _, k := range kinds {
		h, err := s.get(k, 0)
		if notExist(err) && k != logData {
			continue
		}
		if err != nil {
			return err
		}
		err = unsynced(h.f.Sync())
		h.release()
		if err != nil {
			return err
		}
	}
	if s.txn.Load() > 0 {
		return syncFile(s.log.m.fs, s.path(txnSuffix))
	}
	return nil
}
