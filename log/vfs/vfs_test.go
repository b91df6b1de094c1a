package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// TestConformance holds all file systems to the same behaviour.
func TestConformance(t *testing.T) {
	for name, make := range map[string]func(t *testing.T) (FS, string){
		"os":        func(t *testing.T) (FS, string) { return OS(), t.TempDir() },
		"memory":    func(t *testing.T) (FS, string) { return NewMemory(), "/root" },
		"crashable": func(t *testing.T) (FS, string) { return NewCrashable(), "/root" },
		"relative":  func(t *testing.T) (FS, string) { return NewMemory(), "./some/data" },
		"no errors": func(t *testing.T) (FS, string) { return WithErrors(NewMemory(), new(Script)), "/root" },
	} {
		t.Run(name, func(t *testing.T) {
			fsys, root := make(t)
			conformance(t, fsys, root)
		})
	}
}

func conformance(t *testing.T, fsys FS, root string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(root, "a", "b")
	must(fsys.MkdirAll(dir, 0o755))
	must(fsys.MkdirAll(dir, 0o755))
	name := filepath.Join(dir, "file")
	if _, err := fsys.OpenFile(name, os.O_RDWR, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("open of a missing file: %v", err)
	}
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	must(err)
	_, err = f.WriteAt([]byte("hello"), 3)
	must(err)
	if size, err := f.Size(); size != 8 || err != nil {
		t.Fatalf("size %d, %v", size, err)
	}
	buf := make([]byte, 10)
	if n, err := f.ReadAt(buf, 0); n != 8 || err != io.EOF || string(buf[:n]) != "\x00\x00\x00hello" {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
	if n, err := f.ReadAt(buf[:2], 3); n != 2 || err != nil {
		t.Fatalf("read within: %d, %v", n, err)
	}
	if n, err := f.ReadAt(buf, 8); n != 0 || err != io.EOF {
		t.Fatalf("read at the end: %d, %v", n, err)
	}
	must(f.Truncate(4))
	must(f.Truncate(6))
	if n, _ := f.ReadAt(buf, 0); string(buf[:n]) != "\x00\x00\x00h\x00\x00" {
		t.Fatalf("after truncations %q", buf[:n])
	}
	must(f.Sync())
	must(Reserve(f, 1<<20))
	if size, _ := f.Size(); size != 6 {
		t.Fatalf("reserving changed the size to %d", size)
	}
	other := filepath.Join(dir, "other")
	must(fsys.Rename(name, other))
	if _, err := fsys.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("stat of the old name: %v", err)
	}
	info, err := fsys.Stat(other)
	must(err)
	if info.Size() != 6 || info.IsDir() || info.Name() != "other" || info.ModTime().IsZero() {
		t.Fatalf("stat: %v", info)
	}
	list, err := fsys.ReadDir(dir)
	must(err)
	if len(list) != 1 || list[0].Name() != "other" || list[0].IsDir() {
		t.Fatalf("list: %v", list)
	}
	must(fsys.SyncDir(dir))
	must(fsys.Remove(other))
	if err := fsys.Remove(other); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("second remove: %v", err)
	}
	if n, err := f.ReadAt(buf[:1], 3); n != 1 || err != nil || buf[0] != 'h' {
		t.Fatalf("an open file went with its name: %v", err)
	}
	must(f.Close())
	if _, ok := f.Fd(); ok != (fsys == OS()) {
		t.Errorf("Fd: %v", ok)
	}

	f, err = fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	must(err)
	_, err = f.WriteAt([]byte("x"), 0)
	must(err)
	must(f.Close())
	f, err = fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	must(err)
	if size, _ := f.Size(); size != 0 {
		t.Fatalf("O_TRUNC left %d bytes", size)
	}
	must(f.Close())
	if err := fsys.Remove(filepath.Join(root, "a", "b")); err == nil {
		t.Fatal("a directory with a file was removed")
	}
	must(fsys.Rename(dir, filepath.Join(root, "a", "c")))
	if _, err := fsys.Stat(filepath.Join(root, "a", "c", "file")); err != nil {
		t.Fatalf("directory was renamed without its file: %v", err)
	}
	must(fsys.RemoveAll(filepath.Join(root, "a")))
	must(fsys.RemoveAll(filepath.Join(root, "a")))

	must(fsys.MkdirAll(root, 0o755))
	lock := filepath.Join(root, ".lock")
	l, err := fsys.Lock(lock)
	must(err)
	if _, err := fsys.Lock(lock); !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock in one process: %v", err)
	}
	must(l.Close())
	l, err = fsys.Lock(lock)
	must(err)
	must(l.Close())
	if total, usable, err := fsys.Space(root); err != nil || total <= 0 || usable <= 0 || usable > total {
		t.Fatalf("space %d of %d, %v", usable, total, err)
	}
}

// TestMemoryBytes compares a file with a plain slice.
func TestMemoryBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	f, err := NewMemory().OpenFile("/f", os.O_CREATE, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for range 300 {
		switch r.IntN(5) {
		case 0:
			n := r.IntN(3 * chunkBytes)
			f.Truncate(int64(n))
			if n <= len(want) {
				want = want[:n:n]
			} else {
				want = append(want, make([]byte, n-len(want))...)
			}
		default:
			off := r.IntN(len(want) + 1000)
			p := bytes.Repeat([]byte{byte(r.IntN(256))}, r.IntN(chunkBytes))
			f.WriteAt(p, int64(off))
			if grow := off + len(p) - len(want); grow > 0 {
				want = append(want, make([]byte, grow)...)
			}
			copy(want[off:], p)
		}
	}
	got := make([]byte, len(want))
	f.ReadAt(got, 0)
	if size, _ := f.Size(); size != int64(len(want)) || !bytes.Equal(got, want) {
		t.Fatal("content differs")
	}
}

func write(t testing.TB, fsys FS, name, content string, sync bool) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	size, _ := f.Size()
	if _, err := f.WriteAt([]byte(content), size); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
}

func content(fsys FS, name string) string {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return "-"
	}
	defer f.Close()
	size, _ := f.Size()
	b := make([]byte, size)
	f.ReadAt(b, 0)
	return string(b)
}

// TestCrash looks at what is left over many crashes: everything synced, and of the rest only
// what was written, in order.
func TestCrash(t *testing.T) {
	m := NewCrashable()
	m.MkdirAll("/d", 0)
	m.SyncDir("/")
	write(t, m, "/d/f", "abc", true)
	m.SyncDir("/d")
	write(t, m, "/d/f", "def", false)
	write(t, m, "/d/f", "ghi", false)
	write(t, m, "/d/new", "xyz", true)
	m.Rename("/d/new", "/d/moved")

	seen := map[string]bool{}
	for seed := range uint64(400) {
		c := m.CrashClone(seed)
		got := content(c, "/d/f")
		ok := false
		for n := 3; n <= 9; n++ {
			for zeros := 0; n+zeros <= 9; zeros++ {
				ok = ok || got == "abcdefghi"[:n]+string(make([]byte, zeros))
			}
		}
		if !ok {
			t.Fatalf("seed %d left %q", seed, got)
		}
		a, b := content(c, "/d/new"), content(c, "/d/moved")
		if a != "-" && b != "-" || a != "-" && a != "xyz" || b != "-" && b != "xyz" {
			t.Fatalf("seed %d left new %q, moved %q", seed, a, b)
		}
		seen[got], seen["new "+a], seen["moved "+b] = true, true, true
		if again := content(m.CrashClone(seed), "/d/f"); again != got {
			t.Fatalf("seed %d left %q, then %q", seed, got, again)
		}
	}
	for _, s := range []string{"abc", "abcdefghi", "abcde", "new -", "new xyz", "moved -", "moved xyz"} {
		if !seen[s] {
			t.Errorf("no crash left %q", s)
		}
	}
	k := m.KillClone()
	if content(k, "/d/f") != "abcdefghi" || content(k, "/d/moved") != "xyz" {
		t.Error("a kill lost something that was written")
	}
}

func TestErrors(t *testing.T) {
	var s Script
	fsys := WithErrors(NewMemory(), &s)
	fsys.MkdirAll("/d", 0)
	f, err := fsys.OpenFile("/d/x.log", os.O_CREATE, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Add(Fault{Op: OpWrite, Name: "*.log", Nth: 2, Times: 1, Err: syscall.ENOSPC, Short: 2})
	s.Add(Fault{Op: OpSync, Err: syscall.EIO})
	s.Add(Fault{Op: OpRename, Name: "y", Err: syscall.EIO})
	var got []string
	for range 3 {
		_, err := f.WriteAt([]byte("abc"), 0)
		got = append(got, fmt.Sprint(Full(err)))
	}
	if !slices.Equal(got, []string{"false", "true", "false"}) {
		t.Errorf("writes: %v", got)
	}
	if err := f.Sync(); !errors.Is(err, syscall.EIO) || Full(err) {
		t.Errorf("sync: %v", err)
	}
	if err := fsys.Rename("/d/x.log", "/d/y"); !errors.Is(err, syscall.EIO) {
		t.Errorf("rename: %v", err)
	}
	if err := fsys.Rename("/d/x.log", "/d/z"); err != nil {
		t.Error(err)
	}
	s.Clear()
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	if n := s.Count(OpWrite); n != 3 {
		t.Errorf("%d writes were counted", n)
	}
}

// TestErrorsOfOneDirectory: a fault may be that of one disk.
func TestErrorsOfOneDirectory(t *testing.T) {
	var s Script
	root := t.TempDir()
	fsys := WithErrors(OS(), &s)
	a, b := filepath.Join(root, "a"), filepath.Join(root, "ab")
	for _, op := range []Op{OpMkdir, OpLock, OpStat, OpReadDir, OpSyncDir, OpSync, OpRename} {
		s.Add(Fault{Op: op, Dir: a, Err: syscall.EIO})
	}
	for dir, broken := range map[string]bool{a: true, b: false} {
		if broken {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		made := fsys.MkdirAll(dir, 0o755)
		lock, locked := fsys.Lock(filepath.Join(dir, "lock"))
		if locked == nil {
			lock.Close()
		}
		_, stat := fsys.Stat(dir)
		_, listed := fsys.ReadDir(dir)
		_, all := SyncAll(fsys, dir)
		for what, err := range map[string]error{"mkdir": made, "lock": locked, "stat": stat, "list": listed, "sync": fsys.SyncDir(dir), "sync all": all,
			"rename": fsys.Rename(filepath.Join(dir, "lock"), filepath.Join(dir, "to"))} {
			if errors.Is(err, syscall.EIO) != broken || !broken && err != nil {
				t.Errorf("%s of %s: %v", what, dir, err)
			}
			if broken != Broken(err) || Broken(syscall.EMFILE) || Broken(syscall.ENOSPC) {
				t.Errorf("%v: broken", err)
			}
		}
	}
}

func TestMemoryConcurrent(t *testing.T) {
	m := NewMemory()
	m.MkdirAll("/d", 0)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := fmt.Sprintf("/d/%d", i)
			for n := range 200 {
				write(t, m, name, "x", n%3 == 0)
				content(m, fmt.Sprintf("/d/%d", (i+1)%4))
				m.ReadDir("/d")
			}
		})
	}
	wg.Wait()
	if got := content(m, "/d/0"); len(got) != 200 {
		t.Errorf("%d bytes", len(got))
	}
}
