package log

import (
	"context"

	"ottla/log/vfs"
)

// manyLogs is from where on one sync of the file system costs less than those of files.
const manyLogs = 32

// syncAll makes all of the directory's file system durable, where the system can. An error takes
// the directory offline.
func (m *Manager) syncAll(d *dir) (done bool, err error) {
	if done, err = vfs.SyncAll(m.fs, d.path); err != nil {
		d.fail(err)
		return done, d.failed()
	}
	return done, nil
}

// flushOld flushes the logs that have been waiting for flush.ms, those of one directory together
// if there are many.
func (m *Manager) flushOld(ctx context.Context, now int64) {
	old := map[*dir][]*Log{}
	for _, l := range m.snapshot() {
		if l.usable() == nil && l.Flushed() < l.End() && now-l.flush.last.Load() >= l.options().FlushMs {
			old[l.dir] = append(old[l.dir], l)
		}
	}
	for d, logs := range old {
		if len(logs) > manyLogs && m.flushTogether(d, logs) {
			continue
		}
		for _, l := range logs {
			if ctx.Err() != nil {
				return
			}
			if err := l.Flush(l.End()); err != nil {
				l.backgroundFailed("flush", err)
			}
		}
	}
}

// flushTogether flushes logs by a sync of their file system. It is false where there is none such,
// and the logs are as they were.
func (m *Manager) flushTogether(d *dir, logs []*Log) bool {
	type mark struct {
		point  int64 // everything below was written before the sync
		cuts   int
		epochs []epochEntry // they are in their file, nil: they are durable already
		failed bool
	}
	marks := make([]mark, len(logs))
	for i, l := range logs {
		at := &marks[i]
		l.flush.mu.Lock()
		at.cuts = l.flush.cuts
		l.flush.mu.Unlock()
		at.point = l.end.Load()
		var err error
		if at.epochs, err = l.putEpochs(at.point); err != nil {
			l.backgroundFailed("write "+epochFile, l.writeFailed("write "+epochFile, err))
			at.failed = true
		}
	}
	done, err := m.syncAll(d)
	if err != nil || !done {
		return err != nil
	}
	now := m.nowMs()
	for i, l := range logs {
		at := &marks[i]
		if at.failed {
			continue
		}
		l.epochs.kept(at.epochs)
		l.flush.mu.Lock()
		l.reachedLocked(at.cuts, at.point)
		l.flush.mu.Unlock()
		l.flush.last.Store(now)
	}
	return true
}

// putEpochs writes the epochs into their file, not durably, if those that begin below the offset
// are not durable. It returns those that it wrote.
func (l *Log) putEpochs(below int64) (put []epochEntry, err error) {
	l.epochs.writing.Lock()
	defer l.epochs.writing.Unlock()
	list, ok := l.epochs.unwritten(below)
	if !ok {
		return nil, nil
	}
	return list, l.writeEpochs(list)
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
		err = writeFile(l.m.fs, name, formatEpochs(list), false)
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
