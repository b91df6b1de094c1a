//go:build unix

package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system.
func OS() FS { return osFS{} }

type osFS struct{}

// OpenFile opens by the system call alone: package os would also ask the poller, which refuses
// files, and that is a good part of the cost where thousands are opened at a start.
func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	fd, err := open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &osFile{fd: fd, name: name}, nil
}

func open(name string, flag int, perm fs.FileMode) (fd int, err error) {
	for {
		fd, err = unix.Open(name, flag|unix.O_CLOEXEC, uint32(perm.Perm()))
		switch err {
		case nil:
			return fd, nil
		case unix.EINTR:
		default:
			return -1, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

func (osFS) Remove(name string) error                     { return os.Remove(name) }
func (osFS) RemoveAll(name string) error                  { return os.RemoveAll(name) }
func (osFS) Rename(from, to string) error                 { return os.Rename(from, to) }
func (osFS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }
func (osFS) Stat(name string) (fs.FileInfo, error)        { return os.Stat(name) }

// ReadDir opens by the system call too, for the same reason.
func (osFS) ReadDir(name string) ([]fs.DirEntry, error) {
	fd, err := open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	return d.ReadDir(-1)
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

func (osFS) Space(name string) (total, usable int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	block := int64(st.Bsize)
	return int64(st.Blocks) * block, int64(st.Bavail) * block, nil
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lock(int(f.Fd())); err != nil {
		f.Close()
		if err == unix.EAGAIN || err == unix.EACCES || err == unix.EWOULDBLOCK {
			err = ErrLocked
		}
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return heldLock{f}, nil
}

// heldLock is a locked file. It is unlocked before it is closed: a process that is being started
// has the descriptor too until it runs its program, and with it the lock.
type heldLock struct{ *os.File }

func (l heldLock) Close() error {
	return errors.Join(unlock(int(l.Fd())), l.File.Close())
}

// osFile is one descriptor. Whoever closes it makes sure that nobody uses it any more, as the
// log does by counting references: unlike os.File it does not find out itself.
type osFile struct {
	fd     int
	name   string
	closed atomic.Bool
}

func (f *osFile) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// smallRead is the size up to which a read is first tried as one that does not wait for a disk.
const smallRead = 64 << 10

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	if len(p) <= smallRead {
		if n = readCached(f.fd, p, off); n == len(p) {
			return n, nil
		}
	}
	for {
		m, err := unix.Pread(f.fd, p[n:], off+int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return n, f.fail("read", err)
		case m == 0 && n < len(p):
			return n, io.EOF
		}
		if n += m; n == len(p) {
			return n, nil
		}
	}
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	for n := 0; n < len(p); {
		m, err := unix.Pwrite(f.fd, p[n:], off+int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return n, f.fail("write", err)
		case m == 0:
			return n, f.fail("write", io.ErrUnexpectedEOF)
		}
		n += m
	}
	return len(p), nil
}

func (f *osFile) Truncate(size int64) error {
	for {
		switch err := unix.Ftruncate(f.fd, size); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return f.fail("truncate", err)
		}
	}
}

func (f *osFile) Sync() error {
	for {
		switch err := syncData(f.fd); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return f.fail("sync", err)
		}
	}
}

func (f *osFile) Size() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return 0, f.fail("stat", err)
	}
	return st.Size, nil
}

func (f *osFile) Fd() (uintptr, bool) { return uintptr(f.fd), true }

func (f *osFile) Close() error {
	if f.closed.Swap(true) {
		return f.fail("close", fs.ErrClosed)
	}
	if err := unix.Close(f.fd); err != nil && err != syscall.EINTR {
		return f.fail("close", err)
	}
	return nil
}
