package log

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ottla/log/vfs"
)

// TestPathsOfDirectories: relative ones are told by their absolute paths, and the same one twice is
// refused however it is written.
func TestPathsOfDirectories(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, twice := range [][]string{{"a", "./a"}, {"a/", "a"}, {"a", filepath.Join(here, "b/../a")}} {
		if _, err := LockDirs(vfs.OS(), twice); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%v: %v", twice, err)
		}
	}
	if err := os.Symlink("a", "link"); err != nil {
		t.Fatal(err)
	}
	if _, err := LockDirs(vfs.OS(), []string{"a", "link"}); !errors.Is(err, ErrLocked) {
		t.Errorf("by a link: %v", err)
	}
	m, err := OpenManager(ManagerOptions{Dirs: []string{"a/", "x/../c"}, BrokerID: 1, ClusterID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Load(); err != nil {
		t.Fatal(err)
	}
	l, err := m.Create("t", 0, [16]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	if d := m.Dirs(); d[0].Path != filepath.Join(here, "a") || d[1].Path != filepath.Join(here, "c") || l.Dir() != d[0].Path {
		t.Errorf("%+v, log in %s", d, l.Dir())
	}
}

// TestOldPartitionIsNotMadeAnew: what may lie in a directory that does not work, or on a disk that is
// not there, is not made elsewhere; new partitions are.
func TestOldPartitionIsNotMadeAnew(t *testing.T) {
	for name, c := range map[string]struct {
		fault vfs.Fault
		lost  bool // the disk is not there: an empty directory is in its place
	}{
		"cannot be locked": {fault: vfs.Fault{Op: vfs.OpLock, Dir: "/b"}},
		"cannot be listed": {fault: vfs.Fault{Op: vfs.OpReadDir, Dir: "/b", Name: "b"}},
		"meta unreadable":  {fault: vfs.Fault{Op: vfs.OpRead, Dir: "/b", Name: metaFile}},
		"cannot be made":   {fault: vfs.Fault{Op: vfs.OpMkdir, Dir: "/b"}, lost: true},
		"points lost":      {fault: vfs.Fault{Op: vfs.OpRead, Dir: "/b", Name: recoveryFile}},
		"disk not there":   {lost: true, fault: vfs.Fault{Op: "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			script := new(vfs.Script)
			mem := vfs.NewMemory()
			fsys := vfs.WithErrors(mem, script)
			start := func() *Manager {
				m, err := OpenManager(ManagerOptions{FS: fsys, Dirs: []string{"/a", "/b"}, BrokerID: 1, ClusterID: "c", RetentionCheck: -1})
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Load(); err != nil {
					t.Fatal(err)
				}
				return m
			}
			m := start()
			where := map[int32]string{}
			for i := range int32(4) {
				l, err := m.Create("t", i, [16]byte{1})
				if err != nil {
					t.Fatal(err)
				}
				appendTo(t, l, values(1, "x"))
				where[i] = l.Dir()
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			if c.lost {
				if err := fsys.Rename("/b", "/away"); err != nil {
					t.Fatal(err)
				}
			}
			c.fault.Err = syscall.EIO
			script.Add(c.fault)
			m = start()
			for i, dir := range where {
				l, err := m.Host("t", i, [16]byte{1}, false)
				if dir == "/a" && (err != nil || l.End() != 1) || dir == "/b" && !errors.Is(err, ErrStorage) {
					t.Errorf("%d of %s: %v, %v", i, dir, l, err)
				}
			}
			if l, err := m.Host("new", 0, [16]byte{2}, true); err != nil || l.Dir() != "/a" && c.fault.Op != "none" {
				t.Errorf("a new partition: %v, %v", l, err)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			script.Clear()
			if c.lost {
				fsys.RemoveAll("/b")
				if err := fsys.Rename("/away", "/b"); err != nil {
					t.Fatal(err)
				}
			}
			m = start() // all is there again
			for i, dir := range where {
				if l, err := m.Host("t", i, [16]byte{1}, false); err != nil || l.End() != 1 || l.Dir() != dir {
					t.Errorf("%d of %s is back: %v, %v", i, dir, l, err)
				}
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestFileInTheWay: a file with a partition's name takes no log directory offline, and a file in a
// partition whose name is nearly a segment's is nobody's business.
func TestFileInTheWay(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	appendTo(t, b.log(), values(1, "v"))
	for _, name := range []string{"/u-0", "/t-0/5.log", "/t-0/0.log.swap", "/t-0/7.index", "/t-0/9.snapshot"} {
		if err := writeFile(b.fs, dataDir+name, []byte("somebody's"), true); err != nil {
			t.Fatal(err)
		}
	}
	l := b.restart()
	if _, err := b.m.Create("u", 0, [16]byte{2}); !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), "/u-0 is in the way") {
		t.Errorf("created: %v", err)
	}
	appendTo(t, l, values(2, "w"))
	wantValues(t, l, 0, "v", "w")
	b.close()
	for _, name := range []string{"/u-0", "/t-0/5.log", "/t-0/0.log.swap", "/t-0/7.index", "/t-0/9.snapshot"} {
		if !exists(b.fs, dataDir+name) {
			t.Errorf("%s is gone", name)
		}
	}
}
