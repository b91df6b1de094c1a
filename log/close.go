package log

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Close makes everything durable, writes the checkpoints and the mark of a clean stop, and
// gives up the directories. It is not called at the same time as Create or Delete.
func (m *Manager) Close() error {
	m.creating.Lock()
	defer m.creating.Unlock()
	if m.closed.Swap(true) {
		return nil
	}
	m.stopTasks()
	var failed error
	for _, d := range m.dirs {
		if d.lock == nil {
			continue
		}
		if d.failed() == nil {
			failed = errors.Join(failed, m.closeDir(d))
		}
		for _, l := range m.snapshot() {
			if l.dir == d {
				l.shut()
			}
		}
		failed = errors.Join(failed, d.lock.Close())
		d.lock = nil
	}
	m.metrics.unregister()
	return failed
}

// closeDir closes the logs of one directory. The mark is left out if anything went wrong, and
// while a damaged partition is there that nobody has checked.
func (m *Manager) closeDir(d *dir) error {
	logs := slices.DeleteFunc(m.snapshot(), func(l *Log) bool { return l.dir != d })
	dirty, damaged := 0, false
	for _, l := range logs {
		if _, epochs := l.epochs.unwritten(l.End()); epochs || l.Flushed() < l.End() {
			dirty++
		}
		damaged = damaged || l.fault.Load() != nil
	}
	// What was written until now is on its way to the disk while the rest is written.
	var ahead sync.WaitGroup
	if dirty > manyLogs {
		ahead.Go(func() { m.syncAll(d) })
	}
	var unfinished sync.Map // logs that found no room: what they have is flushed one by one
	failed := m.each(logs, func(l *Log) error {
		err := l.finish(dirty > manyLogs)
		if err != nil {
			unfinished.Store(l, true)
		}
		return err
	})
	ahead.Wait()
	synced := false
	if d.failed() == nil && dirty > manyLogs {
		var err error
		synced, err = m.syncAll(d)
		failed = errors.Join(failed, err)
	}
	if d.failed() == nil {
		failed = errors.Join(failed, m.each(logs, func(l *Log) error {
			_, left := unfinished.Load(l)
			return l.settle(synced && !left)
		}))
	}
	if d.failed() == nil {
		d.pointsMoved.Store(true)
		d.startsMoved.Store(true)
		d.watermarksMoved.Store(true)
		failed = errors.Join(failed, d.savePoints(), d.saveStarts(), d.saveWatermarks())
	}
	if failed != nil || damaged || !d.clean && len(d.skipped) > 0 {
		return failed
	}
	if err := writeFile(m.fs, d.file(cleanFile), []byte(`{"version":0,"brokerEpoch":-1}`), true); err != nil {
		return err
	}
	return m.fs.SyncDir(d.path)
}

// each calls f for all logs on RecoveryThreads goroutines and waits for them.
func (m *Manager) each(logs []*Log, f func(*Log) error) error {
	var next atomic.Int64
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	for range min(m.opts.RecoveryThreads, len(logs)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(logs) {
					return
				}
				if err := f(logs[i]); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// finish brings a log's files into the form of a clean stop and refuses everything from then
// on. With unsynced the leader epochs are written too, for a sync of the whole file system.
func (l *Log) finish(unsynced bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.usable() != nil {
		return nil
	}
	return l.finishLocked(unsynced)
}

// finishLocked writes what a clean stop leaves in a log's files. Appends do not need it: that it
// finds no room is the caller's to tell.
func (l *Log) finishLocked(epochs bool) error {
	s := l.active()
	if s.size.Load() > 0 && s.checked.Load() { // or it was not touched since the start
		if err := s.finish(); err != nil {
			return l.makeFailed("close a segment", err)
		}
	}
	if l.end.Load() > l.segments()[0].base {
		if err := l.snapshotLocked(l.end.Load()); err != nil {
			return l.makeFailed("write a producer snapshot", err)
		}
	}
	if !epochs {
		return nil
	}
	_, err := l.putEpochs(l.end.Load())
	return l.makeFailed("write "+epochFile, err)
}

// settle makes a finished log durable, unless synced says that it is.
func (l *Log) settle(synced bool) error {
	if l.usable() != nil {
		return nil
	}
	if !synced && l.unsynced() {
		if err := l.flushAll(); err != nil {
			return err
		}
	}
	l.flush.point.Store(l.end.Load())
	l.dir.pointsMoved.Store(true)
	return nil
}

// shut makes the log answer ErrClosed and gives up its files.
func (l *Log) shut() {
	closed := fmt.Errorf("%s: %w", l, ErrClosed)
	l.fault.CompareAndSwap(nil, &closed)
	l.wake.all()
	for _, s := range l.segments() {
		s.closeFiles()
	}
}
