package vfs

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unclean is what a file system says that has found itself damaged.
const unclean = unix.EUCLEAN

// syncData leaves out what reading the file back does not need (times), which saves a write of
// the inode for each sync of a file that did not grow.
func syncData(fd int) error { return unix.Fdatasync(fd) }

// readCached reads what is in memory of a piece of a file. It never waits for a disk, so Go's
// scheduler need not be told of it, which costs as much as a read of some bytes.
func readCached(fd int, p []byte, off int64) int {
	iov := unix.Iovec{Base: unsafe.SliceData(p)}
	iov.SetLen(len(p))
	n, _, e := unix.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 1, uintptr(off), 0, unix.RWF_NOWAIT)
	if e != 0 { // not in memory, or the file system cannot tell
		return 0
	}
	return int(n)
}

// lock takes a lock of the open file. It excludes Kafka, whose java.nio lock is a POSIX record
// lock of the whole file, and, unlike such a lock, another broker in this process.
func lock(fd int) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// unlock gives up the lock also for those who have the open file by inheritance.
func unlock(fd int) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
}

func (osFS) syncAll(dir string) (bool, error) {
	d, err := os.Open(dir)
	if err != nil {
		return true, err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return true, &os.PathError{Op: "syncfs", Path: dir, Err: err}
	}
	return true, nil
}

func (f *osFile) reserve(size int64) error {
	err := unix.Fallocate(f.fd, unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return nil
	}
	if err != nil {
		return f.fail("fallocate", err)
	}
	return nil
}
