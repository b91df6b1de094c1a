package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData leaves out what reading the file back does not need (times), which saves a write of
// the inode for each sync of a file that did not grow.
func syncData(fd int) error { return unix.Fdatasync(fd) }

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
