package controller

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"ottla/broker/metadata"
	"ottla/broker/registry"
	"ottla/compat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is a broker around a controller: it has its picture, and says what it leads.
type broker struct {
	*Controller
	meta *metadata.Holder
	own  *Own
	tree registry.Tree
	reg  *prometheus.Registry

	mu      sync.Mutex
	leads   map[at]int32 // guarded by mu: leader epoch
	fail    map[at]error // guarded by mu: what LeaderAndIsr answers
	deleted []string     // guarded by mu
	stuck   bool         // guarded by mu: StopReplica fails
}

func newBroker(id int32, tree registry.Tree, dial func(metadata.Broker) Line) *broker {
	b := &broker{meta: metadata.NewHolder(), tree: tree, leads: map[at]int32{}, fail: map[at]error{}, reg: prometheus.NewRegistry()}
	b.own = &Own{
		Meta: b.meta, Epoch: func() int64 { return b.BrokerEpoch() },
		Lead: func(_ context.Context, r *LeaderAndIsr) (errs []PartitionError) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, p := range r.Partitions {
				k := at{p.Topic, p.Partition}
				if err := b.fail[k]; err != nil {
					errs = append(errs, PartitionError{p.Topic, p.Partition, err})
				} else if p.Leader == id {
					b.leads[k] = p.LeaderEpoch
				} else {
					delete(b.leads, k)
				}
			}
			return errs
		},
		Stop: func(_ context.Context, r *StopReplica) (errs []PartitionError) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, p := range r.Partitions {
				if b.stuck {
					errs = append(errs, PartitionError{p.Topic, p.Partition, ErrReplicaStorage})
					continue
				}
				delete(b.leads, at{p.Topic, p.Partition})
				if p.Delete {
					b.deleted = append(b.deleted, fmt.Sprintf("%s-%d", p.Topic, p.Partition))
				}
			}
			return errs
		},
	}
	b.Controller = New(Options{
		Tree: tree, BrokerID: id, Own: b.own, Dial: dial, Registerer: b.reg,
		Registration: func() compat.BrokerNode {
			return compat.BrokerNode{Endpoints: []compat.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "localhost", Port: 9092 + id}}, JMXPort: -1}
		},
		Defaults: func() (int32, int16) { return 3, 1 },
	})
	return b
}

func (b *broker) leading() map[at]int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := map[at]int32{}
	for k, v := range b.leads {
		m[k] = v
	}
	return m
}

// run starts the broker and runs it for the length of the test, or until the function is called.
func (b *broker) run(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func openFile(t testing.TB, path string) registry.Tree {
	t.Helper()
	tree, err := registry.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func trees(t *testing.T, f func(t *testing.T, tree registry.Tree)) {
	t.Run("memory", func(t *testing.T) { f(t, registry.OpenMemory()) })
	t.Run("file", func(t *testing.T) {
		tree := openFile(t, filepath.Join(t.TempDir(), "registry.db"))
		t.Cleanup(func() { tree.Close() })
		f(t, tree)
	})
}

func one(t testing.TB, results []Result) Result {
	t.Helper()
	if len(results) != 1 || results[0].Err != nil {
		t.Fatalf("%+v", results)
	}
	return results[0]
}

func TestTopicsLife(t *testing.T) {
	trees(t, func(t *testing.T, tree registry.Tree) {
		b := newBroker(1, tree, nil)
		b.run(t)
		ctx := t.Context()
		if !b.Active() || b.BrokerEpoch() <= 0 {
			t.Fatalf("active %t, epoch %d", b.Active(), b.BrokerEpoch())
		}
		if p := b.meta.Load(); p.Controller != 1 || len(p.Brokers) != 1 || p.Brokers[0].Endpoints[0].Port != 9093 {
			t.Errorf("picture %+v", p)
		}

		res := b.CreateTopics(ctx, []NewTopic{
			{Name: "a", Partitions: -1, Replication: -1, Configs: map[string]string{"retention.ms": "1"}},
			{Name: "b", Partitions: 2, Replication: 1},
			{Name: "a", Partitions: 1, Replication: 1},
			{Name: "c", Partitions: 1, Replication: 2},
			{Name: "big", Partitions: MaxPartitions - 4, Replication: 1},
		}, false)
		if res[0].Err != nil || res[0].Partitions != 3 || res[1].Err != nil || res[1].ID == res[0].ID {
			t.Errorf("%+v", res)
		}
		for i, want := range []error{nil, nil, ErrTopicExists, ErrInvalidReplicationFactor, ErrPolicyViolation} {
			if !errors.Is(res[i].Err, want) {
				t.Errorf("%s: %v, want %v", res[i].Name, res[i].Err, want)
			}
		}
		// At once: led, and in the picture.
		if len(b.leading()) != 5 {
			t.Errorf("leads %v", b.leading())
		}
		p := b.meta.Load()
		if p.Topics["a"] == nil || len(p.Topics["a"].Partitions) != 3 || p.ByID[res[1].ID] != p.Topics["b"] || p.Partition("b", 1).Leader != 1 {
			t.Errorf("picture %+v", p.Topics)
		}
		if set, err := b.ConfigOf("topics", "a"); err != nil || set["retention.ms"] != "1" {
			t.Errorf("config %v %v", set, err)
		}
		r := one(t, b.CreateTopics(ctx, []NewTopic{{Name: "v", Partitions: 7, Replication: 1}}, true))
		if r.Partitions != 7 || b.meta.Load().Topics["v"] != nil {
			t.Errorf("validated %+v", r)
		}

		one(t, b.CreatePartitions(ctx, []MorePartitions{{Name: "b", Count: 4}}, false))
		if got := b.meta.Load().Topics["b"]; len(got.Partitions) != 4 || got.ID != res[1].ID || len(b.leading()) != 7 {
			t.Errorf("%+v", got)
		}

		del := b.DeleteTopics(ctx, []string{"b", "none"})
		if del[0].Err != nil || !errors.Is(del[1].Err, ErrUnknownTopicOrPartition) {
			t.Errorf("%+v", del)
		}
		p = b.meta.Load()
		slices.Sort(b.deleted)
		if p.Topics["b"] != nil || p.ByID[res[1].ID] != nil || !slices.Equal(b.deleted, []string{"b-0", "b-1", "b-2", "b-3"}) {
			t.Errorf("picture %v, deleted %v", p.Topics, b.deleted)
		}
		for _, path := range []string{"/brokers/topics/b", "/config/topics/b", "/admin/delete_topics/b"} {
			if _, err := tree.Exists(path, nil); !errors.Is(err, registry.ErrNoNode) {
				t.Errorf("%s: %v", path, err)
			}
		}
		again := one(t, b.CreateTopics(ctx, []NewTopic{{Name: "b", Partitions: 1, Replication: 1}}, false))
		if again.ID == res[1].ID {
			t.Error("the new topic has the old one's id")
		}
		if err := testutil.GatherAndCompare(b.reg, strings.NewReader(`
# HELP kafka_controller_kafkacontroller_activecontrollercount 1 on the broker whose controller is active.
# TYPE kafka_controller_kafkacontroller_activecontrollercount gauge
kafka_controller_kafkacontroller_activecontrollercount 1
# HELP kafka_controller_kafkacontroller_globalpartitioncount Partitions of the cluster, known to the active controller.
# TYPE kafka_controller_kafkacontroller_globalpartitioncount gauge
kafka_controller_kafkacontroller_globalpartitioncount 4
`), "kafka_controller_kafkacontroller_activecontrollercount", "kafka_controller_kafkacontroller_globalpartitioncount"); err != nil {
			t.Error(err)
		}
	})
}

func TestElectAndReassignments(t *testing.T) {
	b := newBroker(1, registry.OpenMemory(), nil)
	b.run(t)
	ctx := t.Context()
	one(t, b.CreateTopics(ctx, []NewTopic{{Name: "t", Partitions: 2, Replication: 1}}, false))
	got := b.ElectLeaders(ctx, false, map[string][]int32{"t": {0, 7}, "none": {0}})
	if !errors.Is(got["t"][0], ErrElectionNotNeeded) || !errors.Is(got["t"][7], ErrUnknownTopicOrPartition) || !errors.Is(got["none"][0], ErrUnknownTopicOrPartition) {
		t.Errorf("%v", got)
	}
	if got := b.ElectLeaders(ctx, false, nil); len(got) != 0 {
		t.Errorf("of all: %v", got)
	}
	node := compat.TopicNode{ID: [16]byte{9}, Partitions: [][]int32{{1, 2, 3}}, Adding: map[int32][]int32{0: {3}}, Removing: map[int32][]int32{0: {2}}}
	if _, err := b.tree.Create("/brokers/topics/moving", node.Encode(), registry.Persistent); err != nil {
		t.Fatal(err)
	}
	await(t, "another's topic", func() bool { return b.meta.Load().Topics["moving"] != nil })
	moving, err := b.Reassignments(ctx, nil)
	want := map[string]map[int32]Reassignment{"moving": {0: {[]int32{1, 2, 3}, []int32{3}, []int32{2}}}}
	if err != nil || !cmp.Equal(moving, want) {
		t.Errorf("%v %v", moving, err)
	}
	r := b.CreatePartitions(ctx, []MorePartitions{{Name: "moving", Count: 4}}, false)[0]
	if !errors.Is(r.Err, ErrReassignmentInProgress) {
		t.Error(r.Err)
	}
	// Partitions that another member adds to a topic of ours, and a marker for its deletion.
	data, st, err := b.tree.Get("/brokers/topics/t", nil)
	if err != nil {
		t.Fatal(err)
	}
	node, err = compat.DecodeTopic(data)
	if err != nil {
		t.Fatal(err)
	}
	node.Partitions = append(node.Partitions, []int32{1})
	if _, err := b.tree.Set("/brokers/topics/t", node.Encode(), st.Version); err != nil {
		t.Fatal(err)
	}
	await(t, "another's partition", func() bool { return b.meta.Load().Partition("t", 2) != nil })
	if p := b.meta.Load().Partition("t", 2); p.Leader != 1 || len(b.leading()) != 4 {
		t.Errorf("%+v, leads %v", p, b.leading())
	}
	if _, err := b.tree.Create("/admin/delete_topics/t", nil, registry.Persistent); err != nil {
		t.Fatal(err)
	}
	await(t, "another's deletion", func() bool { return b.meta.Load().Topics["t"] == nil })
}

// await waits for something that another goroutine does.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("not seen: %s", what)
		}
	}
}

// A restart keeps topics and ids, and raises the leader epochs, the broker's epoch and the
// controller's.
func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	var id metadata.ID
	var epoch int64
	for life := range int32(3) {
		tree := openFile(t, path)
		b := newBroker(1, tree, nil)
		stop := b.run(t)
		if life == 0 {
			id = one(t, b.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: 2, Replication: 1}}, false)).ID
		}
		p := b.meta.Load()
		if p.Topics["t"] == nil || p.Topics["t"].ID != id || p.Partition("t", 1).LeaderEpoch != life {
			t.Fatalf("life %d: %+v", life, p.Topics["t"])
		}
		if got, want := b.leading(), map[at]int32{{"t", 0}: life, {"t", 1}: life}; !cmp.Equal(got, want, cmp.AllowUnexported(at{})) {
			t.Errorf("life %d: leads %v, want %v", life, got, want)
		}
		if b.BrokerEpoch() <= epoch {
			t.Errorf("life %d: epoch %d after %d", life, b.BrokerEpoch(), epoch)
		}
		epoch = b.BrokerEpoch()
		if data, _, err := tree.Get(compat.PathControllerEpoch, nil); err != nil || string(data) != fmt.Sprint(life+1) {
			t.Errorf("life %d: controller epoch %q %v", life, data, err)
		}
		stop()
		if err := tree.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A failed log directory takes the partition offline, and a deletion that does not reach every
// replica goes on at the next start.
func TestFailedReplica(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	tree := openFile(t, path)
	b := newBroker(1, tree, nil)
	stop := b.run(t)
	b.fail[at{"t", 1}] = fmt.Errorf("%w: broken", ErrReplicaStorage)
	one(t, b.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: 2, Replication: 1}}, false))
	p := b.meta.Load()
	if a, z := p.Partition("t", 0), p.Partition("t", 1); a.Leader != 1 || z.Leader != NoLeader || !slices.Equal(z.Offline, []int32{1}) || !slices.Equal(z.ISR, []int32{1}) {
		t.Errorf("%+v %+v", a, z)
	}
	b.mu.Lock()
	b.stuck = true
	b.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Reassignments(ctx, nil)
	if !errors.Is(err, ErrTimedOut) && err != nil {
		t.Error(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if r := b.DeleteTopics(ctx, []string{"t"})[0]; !errors.Is(r.Err, ErrTimedOut) {
		t.Error(r.Err)
	}
	if r := b.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: 1, Replication: 1}}, false)[0]; !errors.Is(r.Err, ErrTopicExists) {
		t.Error(r.Err)
	}
	stop()
	tree.Close()

	tree = openFile(t, path)
	defer tree.Close()
	b = newBroker(1, tree, nil)
	defer b.run(t)()
	if _, err := tree.Exists("/brokers/topics/t", nil); !errors.Is(err, registry.ErrNoNode) || len(b.deleted) != 2 {
		t.Errorf("%v, deleted %v", err, b.deleted)
	}
	one(t, b.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: 1, Replication: 1}}, false))
}

// Two brokers on one root: the second is told by the first, takes over when the first's session
// expires, and the first comes back as a member.
// line is the way to a broker of the same process.
type line struct{ Broker }

func (line) Close() {}

func TestTwoBrokers(t *testing.T) {
	root := registry.NewMemory(nil)
	all := map[int32]*broker{}
	dial := func(m metadata.Broker) Line { return line{all[m.ID].own} }
	for id := range int32(2) {
		all[id+1] = newBroker(id+1, root.Session(), dial)
	}
	a, b := all[1], all[2]
	a.run(t)
	b.run(t)
	if !a.Active() || b.Active() || b.Leader() != 1 {
		t.Fatalf("controllers: %d %d", a.Leader(), b.Leader())
	}
	await(t, "both brokers in both pictures", func() bool { return len(a.meta.Load().Brokers) == 2 && len(b.meta.Load().Brokers) == 2 })
	if r := b.CreateTopics(t.Context(), []NewTopic{{Name: "x", Partitions: 1, Replication: 1}}, false)[0]; !errors.Is(r.Err, ErrNotController) {
		t.Errorf("on the other broker: %v", r.Err)
	}
	one(t, a.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: -1, Replication: -1, Assignment: [][]int32{{1, 2}, {2, 1}}}}, false))
	await(t, "b leads t-1", func() bool { _, ok := b.leading()[at{"t", 1}]; return ok && b.meta.Load().Topics["t"] != nil })
	del := a.DeleteTopics(t.Context(), []string{"none"})[0]
	if !errors.Is(del.Err, ErrUnknownTopicOrPartition) {
		t.Error(del.Err)
	}

	old := a.BrokerEpoch()
	taken, hold, held := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	go func() { held <- a.do(context.Background(), func() { close(taken); <-hold }) }() // a hears of it after b
	<-taken
	if err := root.Expire(a.tree.Session()); err != nil {
		t.Fatal(err)
	}
	await(t, "b takes over", func() bool { return b.Active() && len(b.meta.Load().Brokers) == 1 })
	release()
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	await(t, "a is back", func() bool { return a.BrokerEpoch() > old && a.Leader() == 2 && a.meta.Load().Controller == 2 })
	await(t, "b leads all", func() bool { return len(b.leading()) == 2 })
	results, err := b.AlterPartition(t.Context(), 2, b.BrokerEpoch(), []ISRChange{{Topic: "t", Partition: 0, LeaderEpoch: b.leading()[at{"t", 0}], PartitionEpoch: 1, ISR: []int32{2, 1}}})
	if err != nil || results[0].Err != nil || results[0].PartitionEpoch != 2 {
		t.Errorf("%+v %v", results, err)
	}
	if _, err := b.AlterPartition(t.Context(), 2, 1, nil); !errors.Is(err, ErrStaleBrokerEpoch) {
		t.Error(err)
	}
	if got := b.ElectLeaders(t.Context(), false, nil); len(got) != 1 || got["t"][0] != nil {
		t.Errorf("%v", got)
	}
	await(t, "a leads t-0 again", func() bool { _, ok := a.leading()[at{"t", 0}]; return ok })
	left, err := b.ControlledShutdown(t.Context(), 1, -1)
	if err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
	if r := b.DeleteTopics(t.Context(), []string{"t"})[0]; r.Err != nil {
		t.Error(r.Err)
	}
	if a.meta.Load().Topics["t"] != nil || b.meta.Load().Topics["t"] != nil {
		t.Error("the topic is still in a picture")
	}
}

// An old controller's requests, and those for an earlier life of the broker, are refused.
func TestOwnFences(t *testing.T) {
	b := newBroker(1, registry.OpenMemory(), nil)
	b.run(t)
	if err := b.own.UpdateMetadata(t.Context(), &UpdateMetadata{Fence: Fence{ControllerEpoch: 0, BrokerEpoch: -1}}); !errors.Is(err, ErrStaleControllerEpoch) {
		t.Error(err)
	}
	f := Fence{ControllerEpoch: 1, BrokerEpoch: b.BrokerEpoch() - 1}
	if err := b.own.UpdateMetadata(t.Context(), &UpdateMetadata{Fence: f}); !errors.Is(err, ErrStaleBrokerEpoch) {
		t.Error(err)
	}
	if _, err := b.own.LeaderAndIsr(t.Context(), &LeaderAndIsr{Fence: f}); !errors.Is(err, ErrStaleBrokerEpoch) {
		t.Error(err)
	}
	if _, err := b.own.StopReplica(t.Context(), &StopReplica{Fence: f}); !errors.Is(err, ErrStaleBrokerEpoch) {
		t.Error(err)
	}
}

// The controller is fenced by its epoch: after another election its writes fail, and it gives up. (Here nobody else
// stands for election, so it is elected anew.)
func TestFencedByEpoch(t *testing.T) {
	b := newBroker(1, registry.OpenMemory(), nil)
	b.run(t)
	if _, err := b.tree.Set(compat.PathControllerEpoch, []byte("7"), registry.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if r := b.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: 1, Replication: 1}}, false)[0]; !errors.Is(r.Err, ErrNotController) {
		t.Errorf("%v", r.Err)
	}
	if b.meta.Load().Topics["t"] != nil {
		t.Error("the topic is in the picture")
	}
	await(t, "a new election", b.Active)
	one(t, b.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: 1, Replication: 1}}, false))
}

// A state node that was changed behind the controller's back makes it load the tree again.
func TestReload(t *testing.T) {
	b := newBroker(1, registry.OpenMemory(), nil)
	b.run(t)
	one(t, b.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: 1, Replication: 1}}, false))
	state := compat.StateNode{ControllerEpoch: 1, Leader: 1, LeaderEpoch: 5, ISR: []int32{1}}
	if _, err := b.tree.Set(compat.PathState("t", 0), state.Encode(), registry.AnyVersion); err != nil {
		t.Fatal(err)
	}
	ch := ISRChange{Topic: "t", ISR: []int32{1}, Recovery: 0, PartitionEpoch: 0}
	ch.Recovery = 0
	b.do(t.Context(), func() { b.state.topics["t"].partitions[0].leader = NoLeader }) // so that an election writes
	if got := b.ElectLeaders(t.Context(), true, map[string][]int32{"t": {0}}); got["t"][0] == nil {
		t.Errorf("%v", got)
	}
	await(t, "the tree's state", func() bool { return b.meta.Load().Partition("t", 0).LeaderEpoch == 5 })
}

func TestConfigs(t *testing.T) {
	b := newBroker(1, registry.OpenMemory(), nil)
	var mu sync.Mutex
	var applied []string
	b.o.Applied = func(_ context.Context, change string) error {
		mu.Lock()
		defer mu.Unlock()
		applied = append(applied, change)
		return nil
	}
	b.run(t)
	ctx := t.Context()
	if err := b.AlterConfig(ctx, "topics", "none", nil); !errors.Is(err, ErrUnknownTopicOrPartition) {
		t.Error(err)
	}
	one(t, b.CreateTopics(ctx, []NewTopic{{Name: "t", Partitions: 1, Replication: 1}}, false))
	for _, e := range [][2]string{{"topics", "t"}, {"brokers", "<default>"}, {"users", "alice/clients/app1"}, {"groups", "g"}, {"topics", "t"}} {
		if err := b.AlterConfig(ctx, e[0], e[1], map[string]string{"k": e[1]}); err != nil {
			t.Fatal(err)
		}
		if set, err := b.ConfigOf(e[0], e[1]); err != nil || !cmp.Equal(set, map[string]string{"k": e[1]}) {
			t.Errorf("%v: %v %v", e, set, err)
		}
	}
	if want := []string{"config_change_0000000000", "config_change_0000000001", "config_change_0000000002", "config_change_0000000003", "config_change_0000000004"}; !slices.Equal(applied, want) {
		t.Errorf("applied %v", applied)
	}
	if data, _, err := b.tree.Get("/config/changes/config_change_0000000002", nil); err != nil || string(data) != `{"version":2,"entity_path":"users/alice/clients/app1"}` {
		t.Errorf("%s %v", data, err)
	}
	if names, err := b.ConfiguredEntities("users"); err != nil || !slices.Equal(names, []string{"alice"}) {
		t.Errorf("%v %v", names, err)
	}
	// Two writers at once: neither loses the other's change.
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			err := b.UpdateConfig(ctx, "brokers", "1", func(m map[string]string) (map[string]string, error) {
				m[fmt.Sprint(i)] = "x"
				return m, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if set, err := b.ConfigOf("brokers", "1"); err != nil || len(set) != 4 {
		t.Errorf("%v %v", set, err)
	}
}

func TestProducerIDs(t *testing.T) {
	b := newBroker(3, registry.OpenMemory(), nil)
	b.run(t)
	for i := range int64(3) {
		first, count, err := b.AllocateProducerIDs(t.Context())
		if err != nil || first != i*1000 || count != 1000 {
			t.Errorf("%d %d %v", first, count, err)
		}
	}
	data, _, err := b.tree.Get("/latest_producer_id_block", nil)
	if err != nil || string(data) != `{"version":1,"broker":3,"block_start":"2000","block_end":"2999"}` {
		t.Errorf("%s %v", data, err)
	}
	for _, c := range []struct{ used, next int64 }{{-1, 3000}, {3999, 4000}, {5_000_500, 5_001_000}} {
		if err := b.ReserveProducerIDs(t.Context(), c.used); err != nil {
			t.Fatal(err)
		}
		if first, _, err := b.AllocateProducerIDs(t.Context()); err != nil || first != c.next {
			t.Errorf("after %d: %d %v, want %d", c.used, first, err, c.next)
		}
	}
	if err := b.ReserveProducerIDs(t.Context(), 1<<63-1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.AllocateProducerIDs(t.Context()); !errors.Is(err, ErrInvalidRequest) {
		t.Errorf("after the last: %v", err)
	}
}

// Calls end when the controller has stopped or was never run.
func TestStopped(t *testing.T) {
	b := newBroker(1, registry.OpenMemory(), nil)
	stop := b.run(t)
	stop()
	if r := b.CreateTopics(t.Context(), []NewTopic{{Name: "t"}}, false)[0]; !errors.Is(r.Err, ErrStopped) {
		t.Error(r.Err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newBroker(2, registry.OpenMemory(), nil)
	if r := c.CreateTopics(ctx, []NewTopic{{Name: "t"}}, false)[0]; !errors.Is(r.Err, ErrTimedOut) {
		t.Error(r.Err)
	}
}

// Rubbish in the tree is left alone.
func TestMalformedNodes(t *testing.T) {
	tree := registry.OpenMemory()
	if _, err := registry.Join(tree, 9, compat.BrokerNode{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range [][2]string{
		{"/brokers/topics/bad", "{"}, {"/brokers/topics/b d", `{"version":3,"partitions":{"0":[1]}}`}, {"/brokers/ids/x", "{}"},
		{"/brokers/ids/07", "{}"}, {"/brokers/ids/8", "rubbish"}, {"/brokers/topics/empty", `{"version":3,"partitions":{}}`},
		{"/admin/delete_topics/none", ""}, {"/brokers/topics/hole", `{"version":1,"partitions":{"1":[1]}}`},
	} {
		if _, err := tree.Create(n[0], []byte(n[1]), registry.Persistent); err != nil {
			t.Fatal(err)
		}
	}
	b := newBroker(1, tree, nil)
	b.run(t)
	p := b.meta.Load()
	if len(p.Brokers) != 2 || len(p.Topics) != 1 || p.Partition("hole", 1).Leader != 1 || p.Partition("hole", 0).Leader != NoLeader {
		t.Errorf("%+v %+v", p.Brokers, p.Topics["hole"])
	}
	if _, err := tree.Exists("/admin/delete_topics/none", nil); !errors.Is(err, registry.ErrNoNode) {
		t.Error(err)
	}
	one(t, b.CreateTopics(t.Context(), []NewTopic{{Name: "good", Partitions: 1, Replication: 1}}, false))
}
