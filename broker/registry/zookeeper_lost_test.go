package registry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What a write is that had no answer: the same as if it had had one, whether the request was lost
// or its answer; and where others have been there since, what can be said.
func TestZooKeeperLostAnswers(t *testing.T) {
	set := func(s string) func(Tree) { return func(b Tree) { b.Set("/l/n", []byte(s), AnyVersion) } }
	for _, x := range []struct {
		name    string
		op      []Op
		between func(Tree) // by another session, while the connection is lost
		request error      // after a lost request
		answer  error      // after a lost answer
		paths   []string   // of the results
		left    []string   // below /l in the end, after either
	}{
		{name: "set", op: []Op{Set("/l/n", []byte("new"), 0)}, paths: []string{"/l/n"}, left: []string{"n=new"}},
		{name: "set any", op: []Op{Set("/l/n", []byte("new"), AnyVersion)}, paths: []string{"/l/n"}, left: []string{"n=new"}},
		{name: "set refused", op: []Op{Set("/l/n", []byte("new"), 5)}, request: ErrBadVersion, answer: ErrBadVersion, left: []string{"n=old"}},
		{name: "set, another after", op: []Op{Set("/l/n", []byte("new"), 0)}, between: set("other"), request: ErrBadVersion, answer: ErrConnectionLoss, left: []string{"n=other"}},
		{name: "create", op: []Op{Create("/l/c", []byte("x"), Persistent)}, paths: []string{"/l/c"}, left: []string{"c=x", "n=old"}},
		{name: "create null", op: []Op{Create("/l/c", nil, Persistent)}, paths: []string{"/l/c"}, left: []string{"c=", "n=old"}},
		{name: "create refused", op: []Op{Create("/l/n", []byte("x"), Persistent)}, request: ErrNodeExists, answer: ErrNodeExists, left: []string{"n=old"}},
		{name: "create, another first", op: []Op{Create("/l/c", []byte("x"), Persistent)}, between: func(b Tree) {
			b.Delete("/l/c", AnyVersion)
			b.Create("/l/c", []byte("y"), Persistent)
		}, request: ErrNodeExists, answer: ErrNodeExists, left: []string{"c=y", "n=old"}},
		{name: "ephemeral", op: []Op{Create("/l/e", []byte("x"), Ephemeral)}, paths: []string{"/l/e"}, left: []string{"e=x", "n=old"}},
		{name: "ephemeral, another's", op: []Op{Create("/l/e", []byte("x"), Ephemeral)}, between: func(b Tree) {
			b.Delete("/l/e", AnyVersion)
			b.Create("/l/e", []byte("x"), Ephemeral)
		}, request: ErrNodeExists, answer: ErrNodeExists, left: []string{"e=x", "n=old"}},
		{name: "delete", op: []Op{Delete("/l/n", 0)}, paths: []string{""}},
		{name: "delete refused", op: []Op{Delete("/l/n", 3)}, request: ErrBadVersion, answer: ErrBadVersion, left: []string{"n=old"}},
		{name: "check", op: []Op{Check("/l/n", 0)}, paths: []string{""}, left: []string{"n=old"}},
		{name: "registration", op: []Op{Create("/l/b", nil, Ephemeral), Set("/l/b", []byte("x"), 0)}, paths: []string{"/l/b", "/l/b"}, left: []string{"b=x", "n=old"}},
		{name: "fenced", op: []Op{Check("/l", 0), Set("/l/n", []byte("new"), 0), Create("/l/c", nil, Persistent)}, paths: []string{"", "/l/n", "/l/c"}, left: []string{"c=", "n=new"}},
		{name: "with a parent that was there", op: []Op{Create("/l/n", []byte("old"), Persistent), Create("/l/c", nil, Persistent)}, request: ErrNodeExists, answer: ErrNodeExists, left: []string{"n=old"}},
		{name: "with a sequence", op: []Op{Set("/l/n", []byte("new"), 0), Create("/l/s_", []byte("x"), Persistent|Sequence)}, between: func(b Tree) {
			b.Create("/l/s_", []byte("x"), Persistent|Sequence)
		}, paths: []string{"/l/n", "/l/s_*"}, left: []string{"n=new", "s_=x", "s_=x"}},
		{name: "a sequence alone", op: []Op{Create("/l/s_", []byte("x"), Persistent|Sequence)}, request: ErrConnectionLoss, answer: ErrConnectionLoss},
	} {
		for _, fault := range []zkFault{zkLoseRequest, zkLoseAnswer} {
			name := x.name + map[zkFault]string{zkLoseRequest: ", request lost", zkLoseAnswer: ", answer lost"}[fault]
			t.Run(name, func(t *testing.T) {
				z := newZKServer(t)
				a, b := z.session("/ch"), z.root.Session()
				defer a.Close()
				must(a.Create("/l", nil, Persistent))(t)
				must(a.Create("/l/n", []byte("old"), Persistent))(t)
				lost := make(chan struct{})
				var once sync.Once
				z.failing(func(kind int32) (f zkFault) {
					if kind == zkMulti {
						once.Do(func() {
							f = fault
							z.mu.Lock()
							z.down = true
							z.mu.Unlock()
							close(lost)
						})
					}
					return f
				})
				type out struct {
					results []Result
					err     error
				}
				done := make(chan out, 1)
				go func() {
					results, err := a.Multi(x.op...)
					done <- out{results, err}
				}()
				<-lost
				z.awaitNoConns() // the request is done, if it is
				if x.between != nil {
					x.between(under{b, "/ch"})
				}
				z.setDown(false)
				got := <-done
				want := x.request
				if fault == zkLoseAnswer {
					want = x.answer
				}
				if !errors.Is(got.err, want) {
					t.Fatalf("error %v, want %v", got.err, want)
				}
				var paths []string
				for i, r := range got.results {
					if x.op[i].Mode&Sequence != 0 {
						if st, err := a.Exists(r.Path, nil); err != nil || st.Czxid != got.results[0].Stat.Mzxid {
							t.Errorf("node of the sequence %s: %+v %v", r.Path, st, err)
						}
						r.Path = x.op[i].Path + "*"
					}
					if x.op[i].Kind == OpSet && r.Stat.Mzxid == 0 {
						t.Errorf("no state of %s", r.Path)
					}
					paths = append(paths, r.Path)
				}
				if !slices.Equal(paths, x.paths) {
					t.Errorf("results %v, want %v", paths, x.paths)
				}
				if x.left == nil && x.request != nil {
					return // either way
				}
				names, _, err := a.Children("/l", nil)
				if err != nil {
					t.Fatal(err)
				}
				var left []string
				for _, name := range names {
					data, _, err := a.Get("/l/"+name, nil)
					if err != nil {
						t.Fatal(err)
					}
					name, _, _ = strings.Cut(name, "000")
					left = append(left, name+"="+string(data))
				}
				if !slices.Equal(left, x.left) {
					t.Errorf("left %v, want %v", left, x.left)
				}
			})
		}
	}
}

// awaitNoConns waits until no connection is served any more.
func (z *zkServer) awaitNoConns() {
	for timeout := time.After(10 * time.Second); ; {
		z.mu.Lock()
		n := len(z.conns)
		z.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-timeout:
			z.t.Fatal("connections do not end")
		case <-time.After(time.Millisecond):
		}
	}
}

// under is a tree seen from a chroot, for tests.
type under struct {
	Tree
	chroot string
}

func (u under) Set(path string, data []byte, version int32) (Stat, error) {
	return u.Tree.Set(u.chroot+path, data, version)
}
func (u under) Delete(path string, version int32) error { return u.Tree.Delete(u.chroot+path, version) }
func (u under) Create(path string, data []byte, mode Mode) (string, error) {
	return u.Tree.Create(u.chroot+path, data, mode)
}

// Random transactions with random faults give what they give in memory without faults.
func TestZooKeeperRandomFaults(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	z := newZKServer(t)
	a, model := z.session(""), OpenMemory()
	defer a.Close()
	var mu sync.Mutex
	z.failing(func(kind int32) zkFault {
		mu.Lock()
		defer mu.Unlock()
		if kind == zkClose {
			return zkNoFault
		}
		return []zkFault{zkLoseRequest, zkLoseAnswer, zkNoFault, zkNoFault, zkNoFault}[r.IntN(5)]
	})
	pick := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	path := func() string {
		p := fmt.Sprintf("/n%d", pick(3))
		if pick(2) == 0 {
			p += fmt.Sprintf("/m%d", pick(2))
		}
		return p
	}
	for step := range 300 {
		var ops []Op
		for range 1 + pick(3) {
			data := fmt.Appendf(nil, "%d.%d", step, len(ops)) // what is written twice cannot be told apart
			p, version := path(), int32(pick(4)-1)
			if slices.ContainsFunc(ops, func(op Op) bool { return op.Path == p }) {
				continue
			}
			switch pick(4) {
			case 0, 1:
				ops = append(ops, Create(p, data, Persistent))
			case 2:
				if version == AnyVersion {
					version = 0
				}
				ops = append(ops, Set(p, data, version))
			case 3:
				ops = append(ops, Check(p, version))
			}
		}
		if pick(4) == 0 {
			ops = []Op{Delete(path(), AnyVersion)}
		}
		want, wantErr := model.Multi(ops...)
		got, err := a.Multi(ops...)
		if len(ops) == 1 && ops[0].Kind == OpDelete && err == nil && errors.Is(wantErr, ErrNoNode) {
			continue // it is gone, as wished
		}
		if wantErr != nil && errors.Is(err, ErrConnectionLoss) {
			continue // what is not as it was expected may be of others, so that the outcome is not known
		}
		if cause(wantErr) != cause(err) {
			t.Fatalf("seed %d step %d: %v: %v, want %v", seed, step, ops, err, wantErr)
		}
		for i := range got {
			if got[i].Path != want[i].Path || ops[i].Kind == OpSet && got[i].Stat.Version != want[i].Stat.Version {
				t.Fatalf("seed %d step %d: %v: %+v, want %+v", seed, step, ops, got[i], want[i])
			}
		}
	}
	dump := func(tree Tree) (all []string) {
		var walk func(string)
		walk = func(p string) {
			names, _, err := tree.Children(cmpPath(p), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				data, st, err := tree.Get(p+"/"+name, nil)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, fmt.Sprintf("%s/%s=%s v%d", p, name, data, st.Version))
				walk(p + "/" + name)
			}
		}
		walk("")
		return all
	}
	if diff := cmp.Diff(dump(model), dump(a)); diff != "" {
		t.Errorf("seed %d: %s", seed, diff)
	}
}

func cmpPath(p string) string {
	if p == "" {
		return "/"
	}
	return p
}

func cause(err error) error {
	for _, e := range []error{ErrNoNode, ErrNodeExists, ErrBadVersion, ErrNotEmpty} {
		if errors.Is(err, e) {
			return e
		}
	}
	return err
}
