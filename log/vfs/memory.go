package vfs

import (
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Memory is a file system that lives in this process. What was removed and is not open any
// more is garbage. There are no permissions and no links.
type Memory struct {
	crashes bool // keep what a crash could lose

	mu    sync.RWMutex
	root  *dirNode        // guarded by mu
	locks map[string]bool // guarded by mu
}

// NewMemory returns an empty file system for brokers that keep nothing.
func NewMemory() *Memory { return newMemory(false) }

// NewCrashable returns an empty file system that knows at any time what a crash would leave;
// see CrashClone. It needs twice the memory and more.
func NewCrashable() *Memory { return newMemory(true) }

func newMemory(crashes bool) *Memory {
	return &Memory{crashes: crashes, root: newDir(), locks: map[string]bool{}}
}

// A node is a directory or a file. A directory's entries are those that programs see; those
// that a crash leaves are in kept, and ops lead from there to entries.
type node interface{ info(name string) fs.FileInfo }

type dirNode struct {
	entries map[string]node // guarded by Memory.mu, as all of the directory
	kept    map[string]node
	ops     []func(map[string]node)
}

func newDir() *dirNode { return &dirNode{entries: map[string]node{}, kept: map[string]node{}} }

func (d *dirNode) do(crashes bool, op func(map[string]node)) {
	op(d.entries)
	if crashes {
		d.ops = append(d.ops, op)
	}
}

func (d *dirNode) info(name string) fs.FileInfo { return fileInfo{name: name, dir: true} }

// split gives the names that a path goes through. A relative path starts at the root.
func split(name string) []string {
	name = filepath.Clean(name)
	if name == "." {
		return nil
	}
	return strings.FieldsFunc(name, func(r rune) bool { return r == filepath.Separator })
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// findLocked returns the node of a path, nil if there is none.
func (m *Memory) findLocked(name string) node {
	var at node = m.root
	for _, part := range split(name) {
		d, ok := at.(*dirNode)
		if !ok {
			return nil
		}
		if at = d.entries[part]; at == nil {
			return nil
		}
	}
	return at
}

// parentLocked returns the directory that a path's last name is in.
func (m *Memory) parentLocked(op, name string) (*dirNode, string, error) {
	dir, base := filepath.Split(filepath.Clean(name))
	d, ok := m.findLocked(dir).(*dirNode)
	if !ok {
		return nil, "", pathError(op, name, fs.ErrNotExist)
	}
	return d, base, nil
}

// OpenFile knows the flags os.O_CREATE, O_EXCL and O_TRUNC; every file can be read and written.
func (m *Memory) OpenFile(name string, flag int, _ fs.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parentLocked("open", name)
	if err != nil {
		return nil, err
	}
	switch n := d.entries[base].(type) {
	case *dirNode:
		return nil, pathError("open", name, syscall.EISDIR)
	case *fileNode:
		if flag&syscall.O_CREAT != 0 && flag&syscall.O_EXCL != 0 {
			return nil, pathError("open", name, fs.ErrExist)
		}
		if flag&syscall.O_TRUNC != 0 {
			n.truncate(0)
		}
		return &memFile{node: n, name: name}, nil
	}
	if flag&syscall.O_CREAT == 0 {
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	n := &fileNode{crashes: m.crashes, time: time.Now()}
	d.do(m.crashes, func(e map[string]node) { e[base] = n })
	return &memFile{node: n, name: name}, nil
}

// Remove takes a file, or an empty directory, out of its directory.
func (m *Memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parentLocked("remove", name)
	if err != nil {
		return err
	}
	n, ok := d.entries[base]
	if !ok {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if sub, ok := n.(*dirNode); ok && len(sub.entries) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	d.do(m.crashes, func(e map[string]node) { delete(e, base) })
	return nil
}

// RemoveAll takes a file or a directory with all that is in it out of its directory.
func (m *Memory) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parentLocked("remove", name)
	if err != nil {
		return nil
	}
	if _, ok := d.entries[base]; ok {
		d.do(m.crashes, func(e map[string]node) { delete(e, base) })
	}
	return nil
}

// Rename is one step for a crash if both names are in one directory.
func (m *Memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, old, err := m.parentLocked("rename", from)
	if err != nil {
		return err
	}
	b, name, err := m.parentLocked("rename", to)
	if err != nil {
		return err
	}
	n, ok := a.entries[old]
	if !ok {
		return pathError("rename", from, fs.ErrNotExist)
	}
	switch over := b.entries[name].(type) {
	case *dirNode:
		if _, ok := n.(*dirNode); !ok || len(over.entries) > 0 {
			return pathError("rename", to, fs.ErrExist)
		}
	case *fileNode:
		if _, ok := n.(*dirNode); ok {
			return pathError("rename", to, syscall.ENOTDIR)
		}
	}
	if a == b {
		a.do(m.crashes, func(e map[string]node) { delete(e, old); e[name] = n })
		return nil
	}
	b.do(m.crashes, func(e map[string]node) { e[name] = n })
	a.do(m.crashes, func(e map[string]node) { delete(e, old) })
	return nil
}

// MkdirAll makes a directory and those that it is in.
func (m *Memory) MkdirAll(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.root
	for _, part := range split(name) {
		switch n := d.entries[part].(type) {
		case *dirNode:
			d = n
		case *fileNode:
			return pathError("mkdir", name, syscall.ENOTDIR)
		default:
			sub := newDir()
			d.do(m.crashes, func(e map[string]node) { e[part] = sub })
			d = sub
		}
	}
	return nil
}

// ReadDir lists a directory.
func (m *Memory) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch d := m.findLocked(name).(type) {
	case *dirNode:
		list := make([]fs.DirEntry, 0, len(d.entries))
		for base, n := range d.entries {
			list = append(list, fs.FileInfoToDirEntry(n.info(base)))
		}
		return list, nil
	case *fileNode:
		return nil, pathError("readdir", name, syscall.ENOTDIR)
	}
	return nil, pathError("readdir", name, fs.ErrNotExist)
}

// Stat describes a file or directory.
func (m *Memory) Stat(name string) (fs.FileInfo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if n := m.findLocked(name); n != nil {
		return n.info(filepath.Base(name)), nil
	}
	return nil, pathError("stat", name, fs.ErrNotExist)
}

// SyncDir makes the names of a directory survive a crash.
func (m *Memory) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.findLocked(name).(*dirNode)
	if !ok {
		return pathError("sync", name, fs.ErrNotExist)
	}
	for _, op := range d.ops {
		op(d.kept)
	}
	d.ops = nil
	return nil
}

// Space is without limit.
func (m *Memory) Space(string) (total, usable int64, err error) {
	return math.MaxInt64, math.MaxInt64, nil
}

// Lock takes a lock of this file system.
func (m *Memory) Lock(name string) (io.Closer, error) {
	f, err := m.OpenFile(name, syscall.O_CREAT, 0)
	if err != nil {
		return nil, err
	}
	f.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, pathError("lock", name, ErrLocked)
	}
	m.locks[name] = true
	return closer(func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locks, name)
		return nil
	}), nil
}

type closer func() error

func (c closer) Close() error { return c() }

type fileInfo struct {
	name string
	dir  bool
	size int64
	time time.Time
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) ModTime() time.Time { return i.time }
func (i fileInfo) IsDir() bool        { return i.dir }
func (i fileInfo) Sys() any           { return nil }

func (i fileInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
