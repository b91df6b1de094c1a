package controller

import (
	"fmt"
	"slices"
	"testing"

	"ottla/broker/registry"
)

// TestReplicaComesBack: a replica that could not be had is leaderless; asked again it is led, in a
// new leader epoch, or stays as it is; one that fails later loses its leader.
func TestReplicaComesBack(t *testing.T) {
	trees(t, testReplicaComesBack)
}

func testReplicaComesBack(t *testing.T, tree registry.Tree) {
	b := newBroker(1, tree, nil)
	b.run(t)
	set := func(err error, numbers ...int32) {
		b.mu.Lock()
		defer b.mu.Unlock()
		clear(b.fail)
		for _, n := range numbers {
			b.fail[at{"t", n}] = err
		}
	}
	look := func(numbers ...int32) {
		t.Helper()
		var of []TopicPartition
		for _, n := range numbers {
			of = append(of, TopicPartition{"t", n})
		}
		if err := b.LookAgain(t.Context(), append(of, TopicPartition{"unknown", 0}, TopicPartition{"t", 9})); err != nil {
			t.Fatal(err)
		}
	}
	want := func(n, leader, epoch int32, offline ...int32) {
		t.Helper()
		p := b.meta.Load().Partition("t", n)
		if p.Leader != leader || p.LeaderEpoch != epoch || !slices.Equal(p.Offline, offline) || !slices.Equal(p.ISR, []int32{1}) {
			t.Errorf("t-%d: %+v; want leader %d in epoch %d, offline %v", n, p, leader, epoch, offline)
		}
		led, is := b.leading()[at{"t", n}]
		if is != (leader == 1) || is && led != epoch {
			t.Errorf("t-%d: the broker leads: %v in epoch %d", n, is, led)
		}
	}
	broken := fmt.Errorf("%w: no room", ErrReplicaStorage)
	set(broken, 1)
	one(t, b.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: 2, Replication: 1}}, false))
	want(0, 1, 0)
	want(1, NoLeader, 1, 1)
	look(1)
	want(1, NoLeader, 1, 1)
	set(nil)
	look(1, 0)
	want(0, 1, 0)
	want(1, 1, 2)
	set(broken, 0)
	b.mu.Lock()
	delete(b.leads, at{"t", 0}) // its directory has failed
	b.mu.Unlock()
	look(0)
	want(0, NoLeader, 1, 1)
	want(1, 1, 2)

	// A topic made anew under the name has nothing of it.
	if r := b.DeleteTopics(t.Context(), []string{"t"})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	set(nil)
	one(t, b.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: 1, Replication: 1}}, false))
	want(0, 1, 0)
}
