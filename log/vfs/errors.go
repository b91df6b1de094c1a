package vfs

import (
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
)

// Op is an operation that a Script can make fail.
type Op string

// The operations of FS and File.
const (
	OpOpen     Op = "open"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSync     Op = "sync"
	OpSyncDir  Op = "syncdir"
	OpRename   Op = "rename"
	OpRemove   Op = "remove"
	OpMkdir    Op = "mkdir"
	OpReadDir  Op = "readdir"
	OpStat     Op = "stat"
	OpLock     Op = "lock"
)

// Fault makes operations fail: those of kind Op on files whose name (without the directories)
// matches Name, in or below Dir, from the Nth (counted from 1) on, Times of them. OpSync is also a
// sync of the whole file system.
type Fault struct {
	Op    Op
	Dir   string // a directory; empty: any
	Name  string // a pattern of path/filepath.Match; empty: any
	Nth   int    // 0 and 1: the first
	Times int    // 0: all that follow
	Err   error
	// Short is how much of a failing write reaches the file: the written bytes are cut to it.
	Short int
}

// Script is what goes wrong, in the order in which faults are looked at. The zero value lets
// everything pass.
type Script struct {
	mu     sync.Mutex
	faults []*fault // guarded by mu
	counts map[Op]int
	fired  bool // guarded by mu: a fault was given since the last Clear
}

type fault struct {
	Fault
	seen int
}

// Add makes one more thing go wrong.
func (s *Script) Add(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &fault{Fault: f})
}

// Clear ends all faults.
func (s *Script) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.fired = nil, false
}

// Fired says whether something went wrong since the last Clear.
func (s *Script) Fired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fired
}

// Count says how many operations of a kind were asked for so far.
func (s *Script) Count(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}

// check returns the fault for an operation that is about to happen, or nil.
func (s *Script) check(op Op, name string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[Op]int{}
	}
	s.counts[op]++
	for _, f := range s.faults {
		if f.Op != op || f.Dir != "" && name != f.Dir && !strings.HasPrefix(name, f.Dir+string(filepath.Separator)) {
			continue
		}
		if f.Name != "" {
			if ok, _ := filepath.Match(f.Name, filepath.Base(name)); !ok {
				continue
			}
		}
		f.seen++
		if f.seen >= f.Nth && (f.Times == 0 || f.seen < max(f.Nth, 1)+f.Times) {
			s.fired = true
			return &f.Fault
		}
	}
	return nil
}

func (s *Script) fail(op Op, name string) error {
	if f := s.check(op, name); f != nil {
		return pathError(string(op), name, f.Err)
	}
	return nil
}

// WithErrors returns the file system with what the script lets go wrong.
func WithErrors(to FS, script *Script) FS { return &failing{to, script} }

type failing struct {
	FS
	script *Script
}

func (f *failing) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := f.script.fail(OpOpen, name); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &failingFile{file, name, f.script}, nil
}

func (f *failing) Remove(name string) error {
	if err := f.script.fail(OpRemove, name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *failing) RemoveAll(name string) error {
	if err := f.script.fail(OpRemove, name); err != nil {
		return err
	}
	return f.FS.RemoveAll(name)
}

func (f *failing) Rename(from, to string) error {
	if err := f.script.fail(OpRename, to); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *failing) MkdirAll(name string, perm fs.FileMode) error {
	if err := f.script.fail(OpMkdir, name); err != nil {
		return err
	}
	return f.FS.MkdirAll(name, perm)
}

func (f *failing) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.script.fail(OpReadDir, name); err != nil {
		return nil, err
	}
	return f.FS.ReadDir(name)
}

func (f *failing) SyncDir(name string) error {
	if err := f.script.fail(OpSyncDir, name); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

func (f *failing) Stat(name string) (fs.FileInfo, error) {
	if err := f.script.fail(OpStat, name); err != nil {
		return nil, err
	}
	return f.FS.Stat(name)
}

func (f *failing) Lock(name string) (io.Closer, error) {
	if err := f.script.fail(OpLock, name); err != nil {
		return nil, err
	}
	return f.FS.Lock(name)
}

func (f *failing) syncAll(dir string) (bool, error) {
	s, ok := f.FS.(interface{ syncAll(string) (bool, error) })
	if !ok {
		return false, nil
	}
	if err := f.script.fail(OpSync, dir); err != nil {
		return true, err
	}
	return s.syncAll(dir)
}

type failingFile struct {
	File
	name   string
	script *Script
}

func (f *failingFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.script.fail(OpRead, f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *failingFile) WriteAt(p []byte, off int64) (int, error) {
	if fault := f.script.check(OpWrite, f.name); fault != nil {
		n := 0
		if short := min(fault.Short, len(p)); short > 0 {
			n, _ = f.File.WriteAt(p[:short], off)
		}
		return n, pathError("write", f.name, fault.Err)
	}
	return f.File.WriteAt(p, off)
}

func (f *failingFile) Truncate(size int64) error {
	if err := f.script.fail(OpTruncate, f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *failingFile) Sync() error {
	if err := f.script.fail(OpSync, f.name); err != nil {
		return err
	}
	return f.File.Sync()
}
