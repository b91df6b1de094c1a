package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"ottla/broker/metadata"
	"ottla/broker/registry"
	"ottla/compat"
)

// pair starts two brokers, of which the first is the controller.
func pair(t *testing.T) (root *registry.Local, a, b *broker) {
	root = registry.NewMemory(nil)
	all := map[int32]*broker{}
	dial := func(m metadata.Broker) Line { return line{all[m.ID].own} }
	for id := range int32(2) {
		all[id+1] = newBroker(id+1, root.Session(), dial)
	}
	all[1].run(t)
	all[2].run(t)
	await(t, "both are known", func() bool { return len(all[1].meta.Load().Brokers) == 2 && len(all[2].meta.Load().Brokers) == 2 })
	return root, all[1], all[2]
}

// TestLogDirNotice: a broker that is not the controller says that a directory has failed, and what it had there is
// led by another.
func TestLogDirNotice(t *testing.T) {
	_, a, b := pair(t)
	one(t, a.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: -1, Replication: -1, Assignment: [][]int32{{2, 1}}}}, false))
	await(t, "b leads", func() bool { return len(b.leading()) == 1 })
	b.mu.Lock()
	b.fail[at{"t", 0}] = ErrReplicaStorage
	b.mu.Unlock()
	if err := b.ReportLogDirs(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "a leads", func() bool { _, ok := a.leading()[at{"t", 0}]; return ok })
	await(t, "the notice is gone", func() bool {
		names, _, err := a.tree.Children(compat.PathLogDirEvents, nil)
		return err == nil && len(names) == 0
	})
}

// TestElectionNode: /admin/preferred_replica_election is done and deleted, whatever is in it.
func TestElectionNode(t *testing.T) {
	_, a, b := pair(t)
	one(t, a.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: -1, Replication: -1, Assignment: [][]int32{{1, 2}}}}, false))
	left, err := a.ControlledShutdown(t.Context(), 1, -1) // so that b leads
	if err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
	await(t, "b leads", func() bool { return len(b.leading()) == 1 })
	a.do(context.Background(), func() { a.state.members[1].leaving = false })
	r, err := a.AlterPartition(t.Context(), 2, b.BrokerEpoch(), []ISRChange{{Topic: "t", LeaderEpoch: 1, PartitionEpoch: 1, ISR: []int32{2, 1}}})
	if err != nil || r[0].Err != nil {
		t.Fatal(r, err)
	}
	for _, data := range []string{`{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"none","partition":7}]}`, "garbage"} {
		if _, err := b.tree.Create(compat.PathPreferredElection, []byte(data), registry.Persistent); err != nil {
			t.Fatal(err)
		}
		await(t, "the node is gone", func() bool {
			_, err := b.tree.Exists(compat.PathPreferredElection, nil)
			return errors.Is(err, registry.ErrNoNode)
		})
		await(t, "a leads again", func() bool { _, ok := a.leading()[at{"t", 0}]; return ok })
	}
}

// TestOtherCluster: a registry that has come back as another's, or empty, ends the broker and is left as it is.
func TestOtherCluster(t *testing.T) {
	for _, data := range []string{"", `{"version":"1","id":"another"}`} {
		root := registry.NewMemory(nil)
		b := newBroker(1, root.Session(), nil)
		b.o.ClusterID = "mine"
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := root.Session()
		if data != "" {
			must(t, other, compat.PathCluster, "")
			must(t, other, compat.PathClusterID, data)
		}
		done := make(chan error, 1)
		go func() { done <- b.Run(t.Context()) }()
		if err := root.Expire(b.tree.Session()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, registry.ErrClusterID) {
			t.Errorf("%q: it ends with %v", data, err)
		}
		if _, err := other.Exists(compat.PathBroker(1), nil); !errors.Is(err, registry.ErrNoNode) {
			t.Errorf("%q: it has registered there", data)
		}
		root.Close()
	}
}

func must(t *testing.T, tree registry.Tree, path, data string) {
	t.Helper()
	if _, err := tree.Create(path, []byte(data), registry.Persistent); err != nil {
		t.Fatal(err)
	}
}

// TestImbalance: leadership goes back where a broker leads too few of the partitions that prefer it, and only
// where the preferred replica is in sync.
func TestImbalance(t *testing.T) {
	c := newCluster(1)
	for id := range int32(2) {
		c.members[id+1] = &member{Broker: metadata.Broker{ID: id + 1}}
	}
	tt := &topic{name: "t"}
	for n := range 10 {
		p := partition{replicas: []int32{1, 2}, isr: []int32{1, 2}, leader: 1}
		switch n {
		case 0:
			p.leader = 2
		case 1:
			p.leader, p.isr = 2, []int32{2}
		case 2:
			p.leader, p.adding = 2, []int32{2}
		}
		tt.partitions = append(tt.partitions, p)
	}
	c.apply(&step{topics: []*topic{tt}})
	for percent, want := range map[int]string{10: "[{t 0}]", 29: "[{t 0}]", 30: "[]"} {
		if got := fmt.Sprint(c.imbalance(percent)); got != want {
			t.Errorf("%d percent: %s, not %s", percent, got, want)
		}
	}
}

// TestReassignNode: /admin/reassign_partitions begins moves, has what is under way, and goes with the last.
func TestReassignNode(t *testing.T) {
	root, a, _ := pair(t)
	one(t, a.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: -1, Replication: -1, Assignment: [][]int32{{1}, {1}}}}, false))
	other := root.Session()
	must(t, other, compat.PathReassign, `{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]},{"topic":"t","partition":1,"replicas":[1]},{"topic":"none","partition":0,"replicas":[2]}]}`)
	data := func() string {
		b, _, err := other.Get(compat.PathReassign, nil)
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	const left = `{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}]}`
	await(t, "only what is under way is left", func() bool { return data() == left })
	var p PartitionState
	a.do(context.Background(), func() {
		k := at{"t", 0}
		p = a.state.state(a.state.topics["t"], k, a.state.get(k), false)
	})
	if len(p.Adding) != 1 || p.Leader != 1 {
		t.Fatalf("%+v", p)
	}
	r, err := a.AlterPartition(t.Context(), 1, a.BrokerEpoch(), []ISRChange{{Topic: "t", LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, ISR: []int32{1, 2}}})
	if err != nil || r[0].Err != nil {
		t.Fatal(r, err)
	}
	await(t, "the node is gone", func() bool { return data() != left })
	if moving, err := a.Reassignments(t.Context(), nil); err != nil || len(moving) > 0 {
		t.Errorf("still moving: %v, %v", moving, err)
	}
}

// TestReassignNodeFound: a controller that takes over does what was asked for meanwhile.
func TestReassignNodeFound(t *testing.T) {
	root := registry.NewMemory(nil)
	a := newBroker(1, root.Session(), nil)
	stop := a.run(t)
	one(t, a.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: -1, Replication: -1, Assignment: [][]int32{{1}}}}, false))
	stop()
	a.tree.Close()
	other := root.Session()
	must(t, other, compat.PathReassign, `{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}`)
	must(t, other, compat.PathPreferredElection, `{"version":1,"partitions":[{"topic":"t","partition":0}]}`)
	newBroker(1, root.Session(), nil).run(t)
	for _, path := range []string{compat.PathReassign, compat.PathPreferredElection} {
		await(t, path+" is gone", func() bool { _, err := other.Exists(path, nil); return errors.Is(err, registry.ErrNoNode) })
	}
}
