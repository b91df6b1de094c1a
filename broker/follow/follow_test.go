package follow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ottla/broker/registry"
	"ottla/compat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type store struct {
	mu   sync.Mutex
	have map[string]string // guarded by mu: kind/name to values
	log  []string          // guarded by mu
}

func (s *store) ApplyConfig(kind, name string, values map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, k+"="+values[k])
	}
	text := strings.Join(parts, ",")
	s.have[kind+"/"+name] = text
	s.log = append(s.log, kind+"/"+name+" "+text)
}

func (s *store) get(entity string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.have[entity]
}

// set writes a configuration and its notification as the controller does.
func set(t *testing.T, tree registry.Tree, entity string, kv ...string) (change string) {
	t.Helper()
	config := compat.ConfigNode{Config: map[string]string{}}
	for i := 0; i < len(kv); i += 2 {
		config.Config[kv[i]] = kv[i+1]
	}
	var ops []registry.Op
	path := compat.PathConfig
	for part := range strings.SplitSeq(entity, "/") {
		path += "/" + part
		if _, err := tree.Exists(path, nil); errors.Is(err, registry.ErrNoNode) {
			ops = append(ops, registry.Create(path, nil, registry.Persistent))
		}
	}
	ops = append(ops, registry.Set(path, config.Encode(), registry.AnyVersion),
		registry.Create(compat.PathConfigChanges+"/"+compat.PrefixConfigChange, compat.ConfigChangeNode{Entity: entity}.Encode(), registry.Persistent|registry.Sequence))
	results, err := tree.Multi(ops...)
	if err != nil {
		t.Fatal(err)
	}
	made := results[len(results)-1].Path
	return made[strings.LastIndexByte(made, '/')+1:]
}

func run(t *testing.T, f *Follower) {
	t.Helper()
	if err := f.Load(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestFollow(t *testing.T) {
	root := registry.NewMemory(nil)
	tree, other := root.Session(), root.Session()
	s := &store{have: map[string]string{}}
	type features struct {
		levels map[string]int16
		epoch  int64
	}
	heard := make(chan features, 10)
	f := New(Options{Tree: tree, Applier: s, Features: func(l map[string]int16, e int64) { heard <- features{l, e} }})
	if err := f.Load(); err != nil { // a tree without anything
		t.Fatal(err)
	}
	if got := <-heard; got.epoch != -1 {
		t.Errorf("%+v", got)
	}
	if _, err := registry.Join(other, 2, compat.BrokerNode{}); err != nil {
		t.Fatal(err)
	}
	set(t, other, "topics/t", "a", "1")
	set(t, other, "topics/plain")
	set(t, other, "users/alice/clients/app", "b", "2")
	set(t, other, "users/alice", "c", "3")
	if _, err := other.Create("/config/topics/bad", []byte("{"), registry.Persistent); err != nil {
		t.Fatal(err)
	}
	run(t, f)
	<-heard
	want := []string{"topics/plain ", "topics/t a=1", "users/alice c=3", "users/alice/clients/app b=2"}
	if !slices.Equal(s.log, want) {
		t.Errorf("loaded %v, want %v", s.log, want)
	}

	ctx := t.Context()
	last := ""
	for i := range 20 { // some handled one by one, some at once
		last = set(t, other, "topics/t", "a", fmt.Sprint(i))
	}
	if err := f.Applied(ctx, last); err != nil {
		t.Fatal(err)
	}
	if got := s.get("topics/t"); got != "a=19" {
		t.Errorf("t has %q", got)
	}
	if err := f.Applied(ctx, "config_change_0000000000"); err != nil {
		t.Error(err)
	}
	last = set(t, other, "topics/t")
	if err := f.Applied(ctx, last); err != nil || s.get("topics/t") != "" {
		t.Errorf("%q %v", s.get("topics/t"), err)
	}
	// Rubbish among the notifications holds nothing up.
	for _, x := range [][2]string{{"config_change_", "{"}, {"other", "{"}, {"config_change_", `{"version":2,"entity_path":"topics/../../x"}`}, {"config_change_", `"a//b"`}} {
		if _, err := other.Create("/config/changes/"+x[0], []byte(x[1]), registry.Persistent|registry.Sequence); err != nil {
			t.Fatal(err)
		}
	}
	last = set(t, other, "groups/g%20x", "d", "4")
	if err := f.Applied(ctx, last); err != nil || s.get("groups/g%20x") != "d=4" {
		t.Errorf("%q %v", s.get("groups/g%20x"), err)
	}
	// As kafka-topics of 0.8 changes a topic.
	if _, err := other.Set("/config/topics/plain", []byte(`{"version":1,"config":{"retention.ms":"5"}}`), registry.AnyVersion); err != nil {
		t.Fatal(err)
	}
	made, err := other.Create("/config/changes/config_change_", []byte(`"plain"`), registry.Persistent|registry.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Applied(ctx, strings.TrimPrefix(made, "/config/changes/")); err != nil || s.get("topics/plain") != "retention.ms=5" {
		t.Errorf("%q %v", s.get("topics/plain"), err)
	}
	if err := f.Applied(ctx, "rubbish"); err == nil {
		t.Error("a name that is none was applied")
	}

	// New topics are read when they are asked for, and forgotten.
	if _, err := other.Create("/config/topics/new", compat.ConfigNode{Config: map[string]string{"e": "5"}}.Encode(), registry.Persistent); err != nil {
		t.Fatal(err)
	}
	if err := f.Topics("new", "none"); err != nil || s.get("topics/new") != "e=5" {
		t.Errorf("%q %v", s.get("topics/new"), err)
	}
	f.Forget("new")
	if s.get("topics/new") != "" {
		t.Error("not forgotten")
	}

	if _, err := other.Create(compat.PathFeature, compat.FeatureNode{Enabled: true, Levels: map[string]int16{"f": 1}}.Encode(), registry.Persistent); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got.levels["f"] != 1 || got.epoch != 0 {
		t.Errorf("%+v", got)
	}
	if _, err := other.Set(compat.PathFeature, compat.FeatureNode{Enabled: true, Levels: map[string]int16{"f": 2}}.Encode(), 0); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got.levels["f"] != 2 || got.epoch != 1 {
		t.Errorf("%+v", got)
	}

	// A new session begins with reading everything.
	if err := root.Expire(tree.Session()); err != nil {
		t.Fatal(err)
	}
	set(t, other, "topics/t", "a", "meanwhile")
	if err := tree.Renew(); err != nil {
		t.Fatal(err)
	}
	last = set(t, other, "topics/u", "a", "b")
	if err := f.Applied(ctx, last); err != nil || s.get("topics/t") != "a=meanwhile" || s.get("topics/u") != "a=b" {
		t.Errorf("%q %q %v", s.get("topics/t"), s.get("topics/u"), err)
	}
}

// Notifications are deleted when a later one is handled 15 minutes after them.
func TestPurge(t *testing.T) {
	var mu sync.Mutex
	now := time.UnixMilli(1796052854820)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	root := registry.NewMemory(clock)
	tree := root.Session()
	if _, err := registry.Join(tree, 1, compat.BrokerNode{}); err != nil {
		t.Fatal(err)
	}
	f := New(Options{Tree: tree, Applier: &store{have: map[string]string{}}, Now: clock})
	run(t, f)
	for i, step := range []time.Duration{0, 10 * time.Minute, 6 * time.Minute} {
		mu.Lock()
		now = now.Add(step)
		mu.Unlock()
		if err := f.Applied(t.Context(), set(t, tree, "topics/t", "a", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	f.mu.Lock() // the last purge has ended
	defer f.mu.Unlock()
	names, _, err := tree.Children(compat.PathConfigChanges, nil)
	if want := []string{"config_change_0000000001", "config_change_0000000002"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%v %v, want %v", names, err, want)
	}
}

// Who waits for a change is let go when nothing is followed any more, and Run says why it ended.
func TestStopped(t *testing.T) {
	root := registry.NewMemory(nil)
	f := New(Options{Tree: root.Session(), Applier: &store{have: map[string]string{}}})
	if err := f.Load(); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- f.Applied(context.Background(), "config_change_0000000007") }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Applied(ctx, "config_change_0000000007"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Run(t.Context()) }()
	if _, err := f.o.Tree.Exists("/", f.watcher); err != nil {
		t.Fatal(err)
	}
	root.Close()
	if err := <-done; !errors.Is(err, registry.ErrClosed) {
		t.Error(err)
	}
	if err := <-waiting; !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
}
