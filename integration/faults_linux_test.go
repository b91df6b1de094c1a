package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of so many MiB that only this test's goroutine and the processes that
// it starts see, and that goes with them. It skips the test where that is not permitted.
func smallDisk(t *testing.T, kind string, size string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // for good: the thread and its mounts end with the goroutine
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil && kind == "tmpfs" {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+"m,nr_inodes=5000")
	}
	if err != nil {
		t.Skipf("a file system of its own needs root: %v", err)
	}
	if kind == "ext4" {
		image := filepath.Join(t.TempDir(), "image")
		for _, c := range [][]string{
			{"truncate", "-s", size + "M", image},
			{"mkfs.ext4", "-q", "-m", "0", image},
			{"mount", "-o", "loop", image, dir},
		} {
			if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
				t.Skipf("%v: %v: %s", c, err, out)
			}
		}
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}
