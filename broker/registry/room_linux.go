package registry

import (
	"os"

	"golang.org/x/sys/unix"
)

// reserve gives a file blocks of the disk up to a size that it does not have yet. The file's own
// descriptor is bbolt's; its lock is one of flock, which a second descriptor does not touch.
func reserve(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
}
