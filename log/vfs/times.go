package vfs

import (
	"os"
	"syscall"
	"time"
)

// SetModTime makes a file look as if it had been written at a time. It does nothing where the file
// system cannot.
func SetModTime(fsys FS, name string, at time.Time) error {
	if s, ok := fsys.(interface {
		setModTime(string, time.Time) error
	}); ok {
		return s.setModTime(name, at)
	}
	return nil
}

func (osFS) setModTime(name string, at time.Time) error { return os.Chtimes(name, at, at) }

func (m *Memory) setModTime(name string, at time.Time) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f, ok := m.findLocked(name).(*fileNode)
	if !ok {
		return pathError("chtimes", name, syscall.ENOENT)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.time = at
	return nil
}
