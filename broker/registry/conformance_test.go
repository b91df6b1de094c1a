package registry

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ottla/compat"
)

// A root for the conformance test: how sessions are opened on it, and how one is expired. Every
// root of the design has to pass.
type testRoot struct {
	name    string
	session func() Tree
	expire  func(Tree)
}

func roots(t *testing.T) []testRoot {
	memory := NewMemory(nil)
	file, err := NewFile(filepath.Join(t.TempDir(), "registry.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	local := func(name string, l *Local) testRoot {
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		return testRoot{name, l.Session, func(s Tree) {
			if err := l.Expire(s.Session()); err != nil {
				t.Fatal(err)
			}
		}}
	}
	server := newZKServer(t)
	served := testRoot{"zookeeper", func() Tree { return server.session("/a/chroot") }, func(s Tree) { server.expire(s.Session()) }}
	return append([]testRoot{local("memory", memory), local("file", file), served}, moreRoots(t)...)
}

// awaitEvents takes events until there are n, and gives them without their zxids. A connection that
// is lost on the way, as before a session expires, is none of them.
func awaitEvents(t *testing.T, w *Watcher, n int) []string {
	t.Helper()
	var got []string
	timeout := time.After(10 * time.Second)
	for len(got) < n {
		select {
		case <-w.Wake():
		case <-timeout:
			t.Fatalf("events %v, want %d", got, n)
		}
		for _, e := range w.Take() {
			if e.Kind == Disconnected {
				continue
			}
			got = append(got, e.Kind.String()+" "+e.Path)
		}
	}
	return got
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestConformance(t *testing.T) {
	for _, r := range roots(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Run("nodes", func(t *testing.T) { conformNodes(t, r.session()) })
			t.Run("paths", func(t *testing.T) { conformPaths(t, r.session()) })
			t.Run("multi", func(t *testing.T) { conformMulti(t, r.session()) })
			t.Run("sequence", func(t *testing.T) { conformSequence(t, r.session()) })
			t.Run("ephemeral", func(t *testing.T) { conformEphemeral(t, r) })
			t.Run("watches", func(t *testing.T) { conformWatches(t, r) })
			t.Run("group", func(t *testing.T) { conformGroup(t, r) })
			t.Run("join", func(t *testing.T) { conformJoin(t, r) })
		})
	}
}

func conformNodes(t *testing.T, s Tree) {
	defer s.Close()
	must(s.Create("/nodes", nil, Persistent))(t)
	must(s.Create("/nodes/a", []byte("one"), Persistent))(t)
	must(s.Create("/nodes/empty", []byte{}, Persistent))(t)
	_, err := s.Create("/nodes/a", nil, Persistent)
	wantErr(t, err, ErrNodeExists)
	_, err = s.Create("/nodes/none/below", nil, Persistent)
	wantErr(t, err, ErrNoNode)
	_, err = s.Create("/", nil, Persistent)
	wantErr(t, err, ErrNodeExists)

	data, st, err := s.Get("/nodes/a", nil)
	if err != nil || string(data) != "one" || st.Version != 0 || st.DataLength != 3 || st.Czxid != st.Mzxid || st.Czxid == 0 {
		t.Fatalf("%q %+v %v", data, st, err)
	}
	if data, _, _ := s.Get("/nodes", nil); data != nil {
		t.Errorf("null data came back as %q", data)
	}
	after := must(s.Set("/nodes/a", []byte("three"), 0))(t)
	if after.Version != 1 || after.Mzxid <= st.Mzxid || after.Czxid != st.Czxid || after.DataLength != 5 {
		t.Errorf("after set: %+v", after)
	}
	_, err = s.Set("/nodes/a", nil, 0)
	wantErr(t, err, ErrBadVersion)
	must(s.Set("/nodes/a", nil, AnyVersion))(t)
	_, err = s.Set("/nodes/none", nil, AnyVersion)
	wantErr(t, err, ErrNoNode)
	_, _, err = s.Get("/nodes/none", nil)
	wantErr(t, err, ErrNoNode)
	_, err = s.Exists("/nodes/none", nil)
	wantErr(t, err, ErrNoNode)
	_, _, err = s.Children("/nodes/none", nil)
	wantErr(t, err, ErrNoNode)

	must(s.Create("/nodes/a/below", nil, Persistent))(t)
	wantErr(t, s.Delete("/nodes/a", AnyVersion), ErrNotEmpty)
	wantErr(t, s.Delete("/nodes/a/below", 7), ErrBadVersion)
	wantErr(t, s.Delete("/nodes/none", AnyVersion), ErrNoNode)
	if err := s.Delete("/nodes/a/below", 0); err != nil {
		t.Fatal(err)
	}
	must(s.Create("/nodes/a-b", nil, Persistent))(t) // sorts between /nodes/a and its children
	names, st, err := s.Children("/nodes", nil)
	if want := []string{"a", "a-b", "empty"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("children %v %v, want %v", names, err, want)
	}
	if st.NumberOfNodes != 3 || st.Cversion != 3 {
		t.Errorf("three made: %+v", st)
	}
	if err := s.Delete("/nodes/empty", AnyVersion); err != nil {
		t.Fatal(err)
	}
	if st := must(s.Exists("/nodes", nil))(t); st.NumberOfNodes != 2 || st.Cversion != 4 || st.Pzxid <= after.Mzxid {
		t.Errorf("three made, one deleted: %+v", st)
	}
	all, err := s.GetAll([]string{"/nodes/a-b", "/nodes/none", "/nodes/a"}, nil)
	if err != nil || len(all) != 3 || all[0].Err != nil || !errors.Is(all[1].Err, ErrNoNode) || all[2].Path != "/nodes/a" || all[2].Stat.Version != 2 {
		t.Errorf("GetAll %+v %v", all, err)
	}
	names, _, err = s.Children("/", nil)
	if err != nil || !slices.Contains(names, "nodes") || slices.Contains(names, "") {
		t.Errorf("children of / %q %v", names, err)
	}
}

func conformPaths(t *testing.T, s Tree) {
	defer s.Close()
	for _, path := range []string{"", "x", "/x/", "//", "/x//y", "/./x", "/x/..", "/x\x00"} {
		_, err := s.Create(path, nil, Persistent)
		wantErr(t, err, ErrBadPath)
		_, _, err = s.Get(path, nil)
		wantErr(t, err, ErrBadPath)
	}
	wantErr(t, s.Delete("/", AnyVersion), ErrBadPath)
	deep := ""
	for range maxDepth + 1 {
		deep += "/d"
	}
	_, err := s.Exists(deep, nil)
	wantErr(t, err, ErrBadPath)
}

func conformMulti(t *testing.T, s Tree) {
	defer s.Close()
	results := must(s.Multi(
		Create("/multi", nil, Persistent),
		Create("/multi/a", nil, Persistent),
		Set("/multi/a", []byte("x"), 0),
		Check("/multi/a", 1),
		Create("/multi/gone", nil, Persistent),
		Delete("/multi/gone", 0),
	))(t)
	if results[1].Path != "/multi/a" || results[2].Stat.Version != 1 || results[2].Stat.Czxid == 0 {
		t.Errorf("results %+v", results)
	}
	st := must(s.Exists("/multi", nil))(t)
	if st.NumberOfNodes != 1 || st.Cversion != 3 {
		t.Errorf("stat %+v", st)
	}
	_, err := s.Multi(Set("/multi/a", []byte("y"), 1), Create("/multi/b", nil, Persistent), Check("/multi", 5))
	wantErr(t, err, ErrBadVersion)
	if op, ok := errors.AsType[*OpError](err); !ok || op.Index != 2 || op.Op.Path != "/multi" {
		t.Errorf("error %#v", err)
	}
	if data, _, _ := s.Get("/multi/a", nil); string(data) != "x" {
		t.Errorf("a failed multi left %q", data)
	}
	if now := must(s.Exists("/multi", nil))(t); now != st {
		t.Errorf("a failed multi left %+v", now)
	}
	if _, err := s.Multi(Check("/multi/a", 1)); err != nil {
		t.Error(err)
	}
	if _, err := s.Multi(); err != nil {
		t.Error(err)
	}
}

func conformSequence(t *testing.T, s Tree) {
	defer s.Close()
	must(s.Create("/seq", nil, Persistent))(t)
	for i := range 3 {
		path := must(s.Create("/seq/n_", nil, Persistent|Sequence))(t)
		if want := fmt.Sprintf("/seq/n_%010d", i); path != want {
			t.Fatalf("made %s, want %s", path, want)
		}
		if err := s.Delete(path, AnyVersion); err != nil {
			t.Fatal(err)
		}
	}
	if path := must(s.Create("/seq/", nil, Ephemeral|Sequence))(t); path != "/seq/0000000003" {
		t.Errorf("made %s", path)
	}
}

func conformEphemeral(t *testing.T, r testRoot) {
	a, b := r.session(), r.session()
	defer b.Close()
	must(a.Create("/eph", nil, Persistent))(t)
	must(a.Create("/eph/a", []byte("a"), Ephemeral))(t)
	must(b.Create("/eph/b", nil, Ephemeral))(t)
	if st := must(b.Exists("/eph/a", nil))(t); st.EphemeralOwner != a.Session() || a.Session() == b.Session() {
		t.Errorf("owner %d, sessions %d %d", st.EphemeralOwner, a.Session(), b.Session())
	}
	_, err := a.Create("/eph/a/below", nil, Persistent)
	wantErr(t, err, ErrNoChildrenForEphemerals)
	w := NewWatcher()
	must(b.Exists("/eph/a", w))(t)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := awaitEvents(t, w, 1), []string{"deleted /eph/a"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	_, err = a.Create("/eph/late", nil, Persistent)
	wantErr(t, err, ErrClosed)

	c := r.session()
	defer c.Close()
	first := c.Session()
	must(c.Create("/eph/c", nil, Ephemeral))(t)
	wc := NewWatcher()
	must(c.Exists("/eph/b", wc))(t)
	r.expire(c)
	if got, want := awaitEvents(t, wc, 1), []string{"expired "}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	_, err = c.Exists("/eph", nil)
	wantErr(t, err, ErrSessionExpired)
	_, err = b.Exists("/eph/c", nil)
	wantErr(t, err, ErrNoNode)
	if err := c.Renew(); err != nil {
		t.Fatal(err)
	}
	if got, want := awaitEvents(t, wc, 1), []string{"connected "}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	must(c.Create("/eph/c", nil, Ephemeral))(t)
	if c.Session() == first {
		t.Error("the new session has the old one's id")
	}
}

func conformWatches(t *testing.T, r testRoot) {
	a, b := r.session(), r.session()
	defer a.Close()
	defer b.Close()
	must(a.Create("/w", nil, Persistent))(t)
	w := NewWatcher()
	_, err := a.Exists("/w/x", w)
	wantErr(t, err, ErrNoNode)
	must(a.Exists("/w", w))(t) // data: children do not fire it
	if _, _, err := a.Children("/w", w); err != nil {
		t.Fatal(err)
	}
	_, _, err = a.Get("/w/none", w) // sets none
	wantErr(t, err, ErrNoNode)

	must(b.Multi(Create("/w/x", nil, Persistent), Create("/w/none", nil, Persistent), Set("/w/x", nil, 0), Set("/w", nil, 0)))(t)
	got := awaitEvents(t, w, 3)
	if want := []string{"created /w/x", "children changed /w", "changed /w"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	must(b.Create("/w/y", nil, Persistent))(t) // each watch fires once
	must(b.Set("/w/x", nil, AnyVersion))(t)

	nodes := must(a.GetAll([]string{"/w/x", "/w/y"}, w))(t)
	if _, _, err := a.Children("/w/x", w); err != nil {
		t.Fatal(err)
	}
	must(b.Set("/w/y", nil, AnyVersion))(t)
	if err := b.Delete("/w/x", nodes[0].Stat.Version); err != nil {
		t.Fatal(err)
	}
	got = awaitEvents(t, w, 2)
	if want := []string{"changed /w/y", "deleted /w/x"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	must(a.Exists("/w/y", w))(t)
	must(a.Exists("/w/y", w))(t)
	wantErr(t, b.Delete("/w/y", 7), ErrBadVersion) // what fails fires nothing
	must(b.Set("/w/y", nil, AnyVersion))(t)
	must(a.Exists("/w", w))(t)
	must(b.Set("/w", nil, AnyVersion))(t)
	got = awaitEvents(t, w, 2)
	if want := []string{"changed /w/y", "changed /w"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func conformGroup(t *testing.T, r testRoot) {
	a, b := r.session(), r.session()
	defer a.Close()
	defer b.Close()
	w := NewWatcher()
	_, err := b.Exists("/g", w)
	wantErr(t, err, ErrNoNode)
	session := a.Session()
	err = a.Group(func(g Tree) error {
		if g.Session() != session {
			t.Error("a group has a session of its own")
		}
		must(g.Create("/g", nil, Persistent))(t)
		must(g.Create("/g/e", nil, Ephemeral))(t)
		_, err := g.Create("/g/none/x", nil, Persistent)
		wantErr(t, err, ErrNoNode) // fails alone
		if names, _, err := g.Children("/g", nil); err != nil || len(names) != 1 {
			t.Errorf("in the group: %v %v", names, err)
		}
		return g.Group(func(g Tree) error {
			_, err := g.Set("/g", []byte("set"), 0)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if data, _, err := b.Get("/g", nil); err != nil || string(data) != "set" {
		t.Errorf("after the group: %q %v", data, err)
	}
	if got := awaitEvents(t, w, 1); got[0] != "created /g" {
		t.Errorf("events %v", got)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = b.Exists("/g/e", nil)
	wantErr(t, err, ErrNoNode)
}

func conformJoin(t *testing.T, r testRoot) {
	a, b := r.session(), r.session()
	defer b.Close()
	id := must(ClusterID(a, ""))(t)
	if len(id) != 22 {
		t.Errorf("cluster id %q", id)
	}
	if again := must(ClusterID(b, id))(t); again != id {
		t.Errorf("cluster id %q and then %q", id, again)
	}
	_, err := ClusterID(b, NewClusterID())
	wantErr(t, err, ErrClusterID)

	node := compat.BrokerNode{Endpoints: []compat.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "h", Port: 9}}, JMXPort: -1}
	epoch := must(Join(a, 7, node))(t)
	data, st, err := b.Get("/brokers/ids/7", nil)
	if err != nil || st.Version != 1 || st.Czxid != epoch || st.EphemeralOwner != a.Session() {
		t.Fatalf("%+v %v", st, err)
	}
	if got, err := compat.DecodeBroker(data); err != nil || !cmp.Equal(got, node) {
		t.Errorf("registered %+v %v", got, err)
	}
	for _, path := range compat.PersistentPaths {
		if data, _, err := b.Get(path, nil); err != nil || data != nil {
			t.Errorf("%s: %q %v", path, data, err)
		}
	}
	_, err = Join(b, 7, node)
	wantErr(t, err, ErrBrokerID)
	if again := must(Join(a, 7, node))(t); again <= epoch {
		t.Errorf("epoch %d after %d", again, epoch)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if again := must(Join(b, 7, node))(t); again <= epoch {
		t.Errorf("epoch %d after %d", again, epoch)
	}
}
