package log

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"ottla/log/vfs"
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
	const many = 32 // from here on one sync of the file system costs less than those of files
	dirty, damaged := 0, false
	for _, l := range logs {
		if _, epochs := l.epochs.unwritten(l.End()); epochs || l.Flushed() < l.End() {
			dirty++
		}
		damaged = damaged || l.fault.Load() != nil
	}
	// What was written until now is on its way to the disk while the rest is written.
	var ahead sync.WaitGroup
	if dirty > many {
		ahead.Go(func() { m.syncAll(d) })
	}
	failed := m.each(logs, func(l *Log) error { return l.finish(dirty > many) })
	ahead.Wait()
	synced := false
	if failed == nil && dirty > many {
		synced, failed = m.syncAll(d)
	}
	if failed == nil {
		failed = m.each(logs, func(l *Log) error { return l.settle(synced) })
	}
	if failed == nil {
		d.pointsMoved.Store(true)
		d.startsMoved.Store(true)
		d.watermarksMoved.Store(true)
		failed = errors.Join(d.savePoints(), d.saveStarts(), d.saveWatermarks())
	}
	if failed != nil || damaged || !d.clean && len(d.skipped) > 0 {
		return failed
	}
	if err := writeFile(m.fs, d.file(cleanFile), []byte(`{"version":0,"brokerEpoch":-1}`), true); err != nil {
		return err
	}
	return m.fs.SyncDir(d.path)
}

// syncAll makes all of the directory's file system durable, where the system can. An error takes
// the directory offline.
func (m *Manager) syncAll(d *dir) (done bool, err error) {
	if done, err = vfs.SyncAll(m.fs, d.path); err != nil {
		d.fail(err)
		return done, d.failed()
	}
	return done, nil
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
	s := l.active()
	if s.size.Load() > 0 && s.checked.Load() { // or it was not touched since the start
		if err := s.finish(); err != nil {
			return l.writeFailed("close a segment", err)
		}
	}
	if l.end.Load() > l.segments()[0].base {
		if err := l.snapshotLocked(l.end.Load()); err != nil {
			return l.writeFailed("write a producer snapshot", err)
		}
	}
	l.epochs.writing.Lock()
	defer l.epochs.writing.Unlock()
	if list, ok := l.epochs.unwritten(l.end.Load()); ok && unsynced {
		return l.writeFailed("write "+epochFile, l.writeEpochs(list))
	}
	return nil
}

// writeEpochs writes the epochs, not durably, if the file has not got them. The first ones are
// written in place: torn by a crash they are found to be so, and read from the batches. The caller
// holds epochs.writing.
func (l *Log) writeEpochs(list []epochEntry) (err error) {
	name := l.path(epochFile)
	switch there, first := l.epochs.there(list); {
	case there:
		return nil
	case first:
		err = writeOnce(l.m.fs, name, formatEpochs(list))
	default:
		if err = writeFile(l.m.fs, name+temporarySuffix, formatEpochs(list), false); err == nil {
			err = l.m.fs.Rename(name+temporarySuffix, name)
		}
	}
	if err == nil {
		l.epochs.put(list)
		l.flush.names.Store(true)
	}
	return err
}

// writeFirstEpochs writes the first epochs of a log while it is in use, so that a stop of many new
// partitions has less to do.
func (l *Log) writeFirstEpochs() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writable() != nil || !l.epochs.isNew() || !l.epochs.writing.TryLock() {
		return nil // a flush writes them just now
	}
	defer l.epochs.writing.Unlock()
	list, ok := l.epochs.unwritten(l.end.Load())
	if !ok {
		return nil
	}
	return l.writeFailed("write "+epochFile, l.writeEpochs(list))
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
