package log

import (
	"fmt"
	"path/filepath"
	"time"

	"ottla/log/vfs"
)

// Delete ends a log. Its directory is renamed at once, and removed after file.delete.delay.ms.
// A partition that is not there is deleted already, unless a directory is offline in which it may lie:
// that is an ErrStorage, as for one that is known to lie there.
func (m *Manager) Delete(topic string, p int32) error {
	l, name, err := m.retire(topic, p, deleteDirSuffix)
	if l != nil && err == nil {
		m.removeDirLater(l.dir, name, l.options().FileDeleteDelayMs)
	}
	return err
}

// Stray ends a log that is of no topic of this cluster, or of another one than that which has its
// name now. Its directory is renamed to TOPIC-PARTITION.ID-stray (as by Kafka's LogManager)
// and stays, for somebody to look at; no start opens it. A partition that is not there is no error.
func (m *Manager) Stray(topic string, p int32) error {
	l, name, err := m.retire(topic, p, strayDirSuffix)
	if l != nil && err == nil {
		m.logger.Warn("a log is of no topic of this cluster; its directory is kept under another name", "partition", l.label, "dir", l.dir.file(name))
	}
	return err
}

// retire renames a log's directory and forgets the log; nil if there is none.
func (m *Manager) retire(topic string, p int32, suffix string) (l *Log, name string, err error) {
	m.creating.Lock()
	defer m.creating.Unlock()
	for _, d := range m.dirs {
		if d.failed() == nil && d.rests(key{topic, p}) {
			m.add(m.loadLog(d, topic, p))
			d.unskip(key{topic, p})
		}
	}
	if l = m.Log(topic, p); l == nil {
		for _, d := range m.dirs {
			if err := d.failed(); err != nil { // it would be there again with the directory
				return nil, "", fmt.Errorf("%s may lie in a directory that does not work: %w", dirName(topic, p), err)
			}
			if d.isMissing(key{topic, p}) {
				d.forget(key{topic, p})
			}
		}
		return nil, "", nil
	}
	if err := l.dir.failed(); err != nil {
		return l, "", err
	}
	defer l.takeShape()()
	gone := fmt.Errorf("%s: deleted: %w", l, ErrClosed)
	l.mu.Lock()
	l.closed = true
	l.fault.Store(&gone)
	old, name := l.path(""), retiredDirName(topic, p, suffix)
	err = m.fs.Rename(filepath.Clean(old), l.dir.file(name))
	if err == nil {
		l.name.Store(&name)
	} else if _, e := m.fs.Stat(old); notExist(e) {
		err = nil // it is gone already
	}
	l.mu.Unlock()
	l.wake.all()
	if err != nil {
		return l, "", l.writeFailed("rename to "+suffix, err)
	}
	l.dir.names.changed.Add(1)
	m.mu.Lock()
	delete(m.logs, key{topic, p})
	m.mu.Unlock()
	l.dir.forget(key{topic, p})
	l.dir.forgetCleaned(key{topic, p})
	for _, s := range l.segments() {
		s.closeFiles()
	}
	return l, name, nil
}

func (m *Manager) removeDirLater(d *dir, name string, delayMs int64) {
	m.later(time.Duration(delayMs)*time.Millisecond, func() error {
		// The directory is what says at a start that the partition is not missing, but was deleted.
		err := d.savePoints()
		if vfs.Full(err) { // what is in it makes room
			files, _ := m.fs.ReadDir(d.file(name))
			for _, f := range files {
				m.fs.RemoveAll(filepath.Join(d.file(name), f.Name()))
			}
			err = d.savePoints()
		}
		if err != nil {
			return fmt.Errorf("remove a deleted partition: %w", err)
		}
		if err := m.fs.RemoveAll(d.file(name)); err != nil {
			return fmt.Errorf("remove a deleted partition: %w", err)
		}
		return nil
	})
}
