// Package vfs is the file system as the log sees it: the operating system's, one in memory,
// one in memory that crashes, and one that fails by script.
//
// What the log relies on, and what the crashing memory therefore models: what was written and
// then synced is still there after a crash; of what was written since, any prefix may be there,
// torn at any byte, and a file may have grown without its bytes having arrived (zeros). A name
// is made, renamed or removed for good once its directory was synced; a rename is one step.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// FS is a file system. Paths are as in package os. Errors are *fs.PathError or wrap the
// system's number, so that errors.Is finds fs.ErrNotExist, syscall.ENOSPC and so on.
type FS interface {
	OpenFile(name string, flag int, perm fs.FileMode) (File, error) // flags of package os
	Remove(name string) error
	RemoveAll(name string) error
	Rename(from, to string) error // replaces to, in one step
	MkdirAll(name string, perm fs.FileMode) error
	ReadDir(name string) ([]fs.DirEntry, error) // in no order
	Stat(name string) (fs.FileInfo, error)

	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
	// Lock takes a file's exclusive lock, making the file, without waiting. A lock that is
	// held elsewhere, by this process or another, gives ErrLocked.
	Lock(name string) (io.Closer, error)
	// Space gives the size of the file system and what may still be written, in bytes.
	Space(name string) (total, usable int64, err error)
}

// File is an open file. Its methods may be called at the same time by several goroutines.
type File interface {
	io.ReaderAt
	io.WriterAt // writes everything or gives an error
	io.Closer
	Truncate(size int64) error
	// Sync makes all bytes and the size durable (fdatasync). After an error nobody knows
	// which of them are.
	Sync() error
	Size() (int64, error)
	// Fd is the descriptor for sendfile; ok is false for a file that is not the kernel's.
	Fd() (fd uintptr, ok bool)
}

// ErrLocked is Lock's answer when somebody else has the lock.
var ErrLocked = errors.New("locked by somebody else")

// Full says whether the error means that there is no room: what was to be written can be
// written later. Any other error of a write or a sync means that the disk cannot be trusted.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Broken says whether the error of a read is one of a disk, or of a file system on it, that does not
// work: what else is there may be lost as well.
func Broken(err error) bool {
	for _, e := range [...]syscall.Errno{syscall.EIO, syscall.ENXIO, syscall.ENODEV, unclean} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// SyncAll makes everything that was written on the file system of the directory durable, in
// one call where the system has one. done is false where it has none, and nothing was done.
func SyncAll(fsys FS, dir string) (done bool, err error) {
	if s, ok := fsys.(interface{ syncAll(string) (bool, error) }); ok {
		return s.syncAll(dir)
	}
	return false, nil
}

// Reserve asks for room for a file of the given size, without changing its size. It does
// nothing where the system cannot.
func Reserve(f File, size int64) error {
	if r, ok := f.(interface{ reserve(int64) error }); ok {
		return r.reserve(size)
	}
	return nil
}
