package registry

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"ottla/compat"
)

func open(t testing.TB, path string) *Local {
	t.Helper()
	l, err := NewFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What is kept over a restart: persistent nodes, versions, child versions, sequence counters and
// zxids, but no ephemeral nodes; so an epoch rises.
func TestFileRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "registry.db")
	var epoch int64
	for life := range 4 {
		l := open(t, path)
		s := l.Session()
		if _, err := s.Exists("/brokers/ids/1", nil); !errors.Is(err, ErrNoNode) {
			t.Fatalf("life %d: an old registration: %v", life, err)
		}
		if life > 0 {
			names, st, err := s.Children(compat.PathBrokerIDs, nil)
			// made once and deleted once a life
			if err != nil || len(names) != 0 || st.NumberOfNodes != 0 || int(st.Cversion) != 2*life {
				t.Errorf("life %d: %v %+v %v", life, names, st, err)
			}
		}
		now, err := Join(s, 1, compat.BrokerNode{})
		if err != nil || now <= epoch {
			t.Fatalf("life %d: epoch %d after %d, %v", life, now, epoch, err)
		}
		epoch = now
		made, err := s.Create("/config/changes/c_", []byte("x"), Persistent|Sequence)
		if want := fmt.Sprintf("/config/changes/c_%010d", life); err != nil || made != want {
			t.Errorf("life %d: made %s, %v; want %s", life, made, err, want)
		}
		if life%2 == 0 {
			l.Close()
		} else if err := s.Delete(made, 0); err != nil { // as a kill: the lock goes with the process
			t.Fatal(err)
		} else {
			l.store.(*file).db.Close()
		}
	}
}

// A root that was opened and not written leaves the file as it was, and the sweep of ephemeral
// nodes comes again after a group that has failed.
func TestFileSweep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	l := open(t, path)
	if _, err := Join(l.Session(), 1, compat.BrokerNode{}); err != nil {
		t.Fatal(err)
	}
	l.Close()
	for range 2 {
		l = open(t, path)
		s := l.Session()
		if names, _, err := s.Children(compat.PathBrokerIDs, nil); err != nil || len(names) != 0 {
			t.Fatalf("%v %v", names, err)
		}
		failure := errors.New("no")
		err := s.Group(func(g Tree) error {
			if _, err := g.Create("/x", nil, Persistent); err != nil {
				t.Error(err)
			}
			return failure
		})
		if !errors.Is(err, failure) {
			t.Fatal(err)
		}
		if _, err := s.Exists("/x", nil); !errors.Is(err, ErrNoNode) {
			t.Error("a failed group has left a node")
		}
		if names, _, err := s.Children(compat.PathBrokerIDs, nil); err != nil || len(names) != 0 {
			t.Fatalf("%v %v", names, err)
		}
		l.Close()
	}
}

func TestFileInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	if os.Getenv("REGISTRY_SECOND") != "" {
		_, err := OpenFile(os.Getenv("REGISTRY_SECOND"))
		fmt.Println(errors.Is(err, ErrInUse), err)
		return
	}
	l := open(t, path)
	defer l.Close()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestFileInUse$")
	cmd.Env = append(os.Environ(), "REGISTRY_SECOND="+path)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "true ") {
		t.Errorf("a second process: %s %v", out, err)
	}
}

func TestFileGarbage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("not a tree", 5000)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(path); !errors.Is(err, ErrStorage) {
		t.Errorf("garbage: %v", err)
	}
	if _, err := OpenFile(filepath.Join(path, "below", "a-file")); !errors.Is(err, ErrStorage) {
		t.Errorf("no directory: %v", err)
	}
}

// The end of the store ends every session, and its watchers hear of it.
func TestFileLost(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "registry.db"))
	s := l.Session()
	w := NewWatcher()
	if _, err := s.Exists("/", w); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create("/a", nil, Persistent); err != nil {
		t.Fatal(err)
	}
	l.store.(*file).db.Close()
	_, err := s.Create("/b", nil, Persistent)
	wantErr(t, err, ErrStorage)
	if got := awaitEvents(t, w, 1); got[0] != "lost " {
		t.Errorf("events %v", got)
	}
	_, err = s.Exists("/a", nil)
	wantErr(t, err, ErrStorage)
	wantErr(t, s.Renew(), ErrStorage)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A copy of the file at any moment between writes is what a kill leaves. Every acknowledged
// write is in it, whole.
func TestFileKill(t *testing.T) {
	dir := t.TempDir()
	l := open(t, filepath.Join(dir, "registry.db"))
	defer l.Close()
	s := l.Session()
	if _, err := s.Create("/n", nil, Persistent); err != nil {
		t.Fatal(err)
	}
	stop, copies := make(chan struct{}), make(chan int)
	acknowledged := make(chan int, 1)
	acknowledged <- 0
	go func() { // copies while writes go on
		n := 0
		defer func() { copies <- n }()
		for ; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			least := <-acknowledged
			acknowledged <- least
			to := filepath.Join(dir, fmt.Sprintf("copy%d.db", n))
			// Between two pages of one commit the copy would mix them, as no crash of a process
			// does: the lock keeps writers out.
			l.mu.RLock()
			err := copyFile(filepath.Join(dir, "registry.db"), to)
			l.mu.RUnlock()
			if err != nil {
				t.Error(err)
				return
			}
			c := open(t, to)
			cs := c.Session()
			st, err := cs.Exists("/n", nil)
			if err != nil || int(st.NumberOfNodes) < 2*least || st.NumberOfNodes%2 != 0 {
				t.Errorf("copy %d has %+v %v, at least %d acknowledged", n, st, err, least)
			}
			c.Close()
			os.Remove(to)
		}
	}()
	for i := range 60 {
		if _, err := s.Multi(Create(fmt.Sprintf("/n/a%d", i), make([]byte, 300), Persistent), Create(fmt.Sprintf("/n/b%d", i), nil, Persistent)); err != nil {
			t.Fatal(err)
		}
		<-acknowledged
		acknowledged <- i + 1
	}
	close(stop)
	if n := <-copies; n == 0 {
		t.Error("no copy was made")
	}
}

// A process that is killed while it writes leaves every write that it has acknowledged.
func TestFileKillProcess(t *testing.T) {
	if path := os.Getenv("REGISTRY_VICTIM"); path != "" {
		tree, err := OpenFile(path)
		for i := 0; err == nil; i++ {
			if _, err = tree.Create(fmt.Sprintf("/n%d", i), make([]byte, 2000), Persistent); err == nil {
				fmt.Println(i)
			}
		}
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "registry.db")
	cmd := exec.Command(os.Args[0], "-test.run", "^TestFileKillProcess$")
	cmd.Env = append(os.Environ(), "REGISTRY_VICTIM="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := -1
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Errorf("the victim says %q", lines.Text())
			break
		}
		if last = n; n == 40 {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	l := open(t, path)
	defer l.Close()
	s := l.Session()
	for i := range last + 1 {
		if _, st, err := s.Get(fmt.Sprintf("/n%d", i), nil); err != nil || st.DataLength != 2000 {
			t.Fatalf("node %d of %d: %+v %v", i, last, st, err)
		}
	}
	if last < 40 {
		t.Errorf("only %d writes", last)
	}
}

// full is a store whose disk has no room for the next commit.
type full struct {
	store
	err error
}

func (f *full) commit(t txn) error {
	if err := f.err; err != nil {
		f.err = nil
		t.(*fileTxn).keep(err)
	}
	return f.store.commit(t)
}

// A full disk fails the write and nothing else.
func TestFileFull(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "registry.db"))
	defer l.Close()
	s := l.Session()
	disk := &full{store: l.store}
	l.store = disk
	for _, path := range []string{"/a", "/b"} { // the first takes the sweep with it
		disk.err = syscall.ENOSPC
		_, err := s.Create(path, nil, Persistent)
		if !errors.Is(err, ErrFull) || errors.Is(err, ErrStorage) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		if _, err := s.Exists(path, nil); !errors.Is(err, ErrNoNode) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := s.Create(path, nil, Persistent); err != nil {
			t.Error(err)
		}
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, in)
	return err
}

// Random transactions on a memory root and on an embedded one, which is closed and opened in
// between, have the same results.
func TestModel(t *testing.T) {
	n := 0
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprintf("%d.db", n))
		fl, ml := open(t, path), NewMemory(nil)
		defer func() { fl.Close(); os.Remove(path) }()
		fs, ms := fl.Session(), ml.Session()
		paths := rapid.SampledFrom([]string{"/a", "/a/b", "/a/c", "/a/b/d", "/e", "/e/f", "/", "/a/b/d/g"})
		op := rapid.Custom(func(rt *rapid.T) Op {
			return Op{
				Kind:    OpKind(rapid.IntRange(0, 3).Draw(rt, "kind")),
				Path:    paths.Draw(rt, "path"),
				Data:    rapid.SampledFrom([][]byte{nil, {}, []byte("x"), []byte("yy")}).Draw(rt, "data"),
				Version: rapid.Int32Range(-1, 2).Draw(rt, "version"),
				Mode:    Mode(rapid.IntRange(0, 3).Draw(rt, "mode")),
			}
		})
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0: // a restart is the end of the session for both
				fl.Close()
				fl = open(t, path)
				fs = fl.Session()
				ms.Close()
				ms = ml.Session()
			case 1:
				failure := errors.New("no")
				ops := rapid.SliceOfN(op, 1, 3).Draw(rt, "ops")
				for _, s := range []Tree{fs, ms} {
					s.Group(func(g Tree) error { g.Multi(ops...); return failure })
				}
			default:
				ops := rapid.SliceOfN(op, 1, 4).Draw(rt, "ops")
				fr, ferr := fs.Multi(ops...)
				mr, merr := ms.Multi(ops...)
				if fmt.Sprint(ferr) != fmt.Sprint(merr) || len(fr) != len(mr) {
					rt.Fatalf("%v: file %v, memory %v", ops, ferr, merr)
				}
				for i := range fr {
					if fr[i].Path != mr[i].Path {
						rt.Fatalf("%v: file %v, memory %v", ops, fr, mr)
					}
				}
			}
			if f, m := dump(rt, fs, "/"), dump(rt, ms, "/"); f != m {
				rt.Fatalf("file:\n%s\nmemory:\n%s", f, m)
			}
		}
	})
}

// dump writes a subtree without what differs by clock and session.
func dump(t interface{ Fatal(...any) }, s Tree, path string) string {
	data, st, err := s.Get(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	names, _, err := s.Children(path, nil)
	if err != nil || len(names) != int(st.NumberOfNodes) {
		t.Fatal(path, names, st, err)
	}
	out := fmt.Sprintf("%s %q %t v%d cv%d z%d/%d/%d e%t\n", path, data, data == nil, st.Version, st.Cversion, st.Czxid, st.Mzxid, st.Pzxid, st.EphemeralOwner != 0)
	for _, name := range names {
		out += dump(t, s, strings.TrimSuffix(path, "/")+"/"+name)
	}
	return out
}

func FuzzRecord(f *testing.F) {
	f.Add((&record{data: []byte("x"), czxid: 1, mzxid: 1 << 40, owner: 7, version: 3}).encode())
	f.Add((&record{}).encode())
	f.Add([]byte{1, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		again, err := decodeRecord(r.encode())
		if err != nil || string(again.data) != string(r.data) || again.stat() != r.stat() {
			t.Errorf("%+v came back as %+v, %v", r, again, err)
		}
	})
}

// Starting: opening the file and registering a broker.
func BenchmarkJoin(b *testing.B) {
	b.Run("fresh", func(b *testing.B) {
		dir := b.TempDir()
		for i := 0; b.Loop(); i++ {
			l := open(b, filepath.Join(dir, fmt.Sprint(i)))
			if _, err := Join(l.Session(), 1, compat.BrokerNode{}); err != nil {
				b.Fatal(err)
			}
			l.Close()
		}
	})
	b.Run("existing", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "registry.db")
		for b.Loop() {
			l := open(b, path)
			if _, err := Join(l.Session(), 1, compat.BrokerNode{}); err != nil {
				b.Fatal(err)
			}
			l.Close()
		}
	})
}

// TestFileCut: a file that has lost its end is refused, whatever is left of it, and does not end
// the process.
func TestFileCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	l := open(t, path)
	s := l.Session()
	err := s.Group(func(t Tree) error {
		for i := range 300 {
			if _, err := t.Create(fmt.Sprintf("/n%d", i), make([]byte, 200), Persistent); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for size := int64(1000); size < info.Size(); size = size*3/2 + 7 {
		if err := os.WriteFile(path, whole[:size], 0o644); err != nil {
			t.Fatal(err)
		}
		tree, err := OpenFile(path)
		if err == nil {
			tree.Close()
			continue
		}
		if refused++; !errors.Is(err, ErrStorage) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if refused < 5 {
		t.Errorf("refused %d times", refused)
	}
}

// TestFileDamaged: whatever is changed in the file, what comes of it is an answer or an ErrStorage, and
// the root can be closed.
func TestFileDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	l := open(t, path)
	s := l.Session()
	err := s.Group(func(t Tree) error {
		for i := range 400 {
			if _, err := t.Create(fmt.Sprintf("/n%d", i), make([]byte, 200), Persistent); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		_, err = s.Create("/gone", nil, Ephemeral)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pages := len(whole) / os.Getpagesize()
	wrong := 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		data := slices.Clone(whole)
		for range 1 + random.IntN(4) {
			at := random.IntN(pages) * os.Getpagesize()
			switch random.IntN(4) {
			case 0: // a page's head, or its first elements
				data[at+random.IntN(80)] = byte(random.Uint32())
			case 1:
				clear(data[at : at+os.Getpagesize()])
			case 2:
				copy(data[at:at+os.Getpagesize()], whole[random.IntN(pages)*os.Getpagesize():])
			default:
				data[at+random.IntN(os.Getpagesize())] ^= 1 << random.IntN(8)
			}
		}
		path := fmt.Sprint(path, seed) // where bbolt panics as it opens a file, it keeps the lock
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := useDamaged(path); errors.Is(err, ErrStorage) {
			wrong++
		} else if err != nil && !errors.Is(err, ErrNoNode) && !errors.Is(err, ErrNodeExists) && !errors.Is(err, ErrNotEmpty) {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	if wrong == 0 {
		t.Error("no damage was found")
	}
}

// useDamaged reads and writes as much of a tree as it lets.
func useDamaged(path string) error {
	s, err := OpenFile(path)
	if err != nil {
		return err
	}
	defer s.Close()
	names, _, err := s.Children("/", nil)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, _, err := s.Get("/"+name, nil); errors.Is(err, ErrStorage) {
			return err
		}
	}
	for from := range 2 {
		err := s.Group(func(t Tree) error {
			for i := range 20 {
				if _, err := t.Create(fmt.Sprintf("/more%d-%d", from, i), make([]byte, 500), Persistent); err != nil {
					return err
				}
				if err := t.Delete(fmt.Sprintf("/n%d", 7*i+from), AnyVersion); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
