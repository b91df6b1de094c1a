package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ottla/broker/metadata"
)

func TestApplyMetadata(t *testing.T) {
	p := &metadata.Picture{ClusterID: "c", Controller: -1, Topics: map[string]*metadata.Topic{}, ByID: map[metadata.ID]*metadata.Topic{}}
	state := func(topic string, id byte, n, leader int32) PartitionState {
		return PartitionState{Topic: topic, ID: metadata.ID{id}, Partition: n, Leader: leader, LeaderEpoch: 1, ISR: []int32{1}, Replicas: []int32{1}}
	}
	one := ApplyMetadata(p, &UpdateMetadata{Fence: Fence{ControllerID: 4}, Brokers: []metadata.Broker{{ID: 4}}, Partitions: []PartitionState{
		state("a", 1, 1, 4), state("a", 1, 0, 4), state("b", 2, 0, 4),
	}})
	if len(p.Topics) != 0 || one.ClusterID != "c" || one.Controller != 4 || len(one.Topics["a"].Partitions) != 2 || one.ByID[metadata.ID{2}] != one.Topics["b"] {
		t.Errorf("%+v", one)
	}
	two := ApplyMetadata(one, &UpdateMetadata{Partitions: []PartitionState{state("a", 1, 1, 5), state("b", 3, 0, 5), state("c", 0, 2, 1)}})
	if one.Partition("a", 1).Leader != 4 || two.Partition("a", 1).Leader != 5 || two.Partition("a", 0).Leader != 4 {
		t.Error("a picture that was stored has changed")
	}
	if two.ByID[metadata.ID{2}] != nil || two.ByID[metadata.ID{3}] != two.Topics["b"] || two.Partition("c", 0).Leader != NoLeader || two.ByID[metadata.ID{}] != nil {
		t.Errorf("%+v", two.ByID)
	}
	three := ApplyMetadata(two, &UpdateMetadata{Partitions: []PartitionState{state("a", 1, 0, LeaderGoing), state("a", 1, 1, LeaderGoing), state("none", 9, 0, LeaderGoing)}})
	if three.Topics["a"] != nil || three.ByID[metadata.ID{1}] != nil || len(three.Topics) != 2 || two.Topics["a"] == nil {
		t.Errorf("%+v", three.Topics)
	}
	if four := ApplyMetadata(three, &UpdateMetadata{Fence: Fence{ControllerID: 1}}); four.Topics["b"] != three.Topics["b"] {
		t.Error("nothing was shared")
	}
}

func TestCheckTopicName(t *testing.T) {
	for _, name := range []string{"a", "A-z_0.9", strings.Repeat("x", 249), "..."} {
		if err := CheckTopicName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", strings.Repeat("x", 250), "a b", "ä", "a\x00", "a/b", "a:b"} {
		if err := CheckTopicName(name); !errors.Is(err, ErrInvalidTopic) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestOrderAssignment(t *testing.T) {
	got, err := OrderAssignment([]int32{1, 0}, [][]int32{{1}, nil})
	if err != nil || !cmp.Equal(got, [][]int32{{}, {1}}) {
		t.Errorf("%v %v", got, err)
	}
	for _, numbers := range [][]int32{{1}, {0, 0}, {-1, 0}, {0, 2}} {
		if _, err := OrderAssignment(numbers, make([][]int32, len(numbers))); !errors.Is(err, ErrInvalidReplicaAssignment) {
			t.Errorf("%v: %v", numbers, err)
		}
	}
}

// AdminUtils' table for five brokers, ten partitions and three replicas, and what 3.9.1 gave the
// topic orders (shared/reference/znodes-kafka3.md).
func TestAssign(t *testing.T) {
	brokers := func(n int32, from int32, racks ...string) (list []metadata.Broker) {
		for i := range n {
			b := metadata.Broker{ID: from + i}
			if int(i) < len(racks) {
				b.Rack = racks[i]
			}
			list = append(list, b)
		}
		return list
	}
	zero := func(int) int { return 0 }
	got := assign(brokers(5, 0), 10, 3, 0, 0, zero)
	want := [][]int32{{0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 0}, {4, 0, 1}, {0, 2, 3}, {1, 3, 4}, {2, 4, 0}, {3, 0, 1}, {4, 1, 2}}
	if !cmp.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := assign(brokers(3, 1), 3, 3, -1, 0, zero); !cmp.Equal(got, [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}}) {
		t.Errorf("%v", got)
	}
	if got := assign(brokers(1, 7), 2, 1, -1, 0, zero); !cmp.Equal(got, [][]int32{{7}, {7}}) {
		t.Errorf("%v", got)
	}
	if got := assign(brokers(3, 1, "a"), 3, 3, -1, 0, zero); !cmp.Equal(got, [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}}) {
		t.Errorf("not all with a rack: %v", got)
	}
	if got := alternate([]int32{0, 1, 2, 3, 4, 5, 6, 7, 8}, map[int32]string{0: "1", 1: "1", 2: "1", 3: "2", 4: "2", 5: "2", 6: "3", 7: "3", 8: "3"}); !slices.Equal(got, []int32{0, 3, 6, 1, 4, 7, 2, 5, 8}) {
		t.Errorf("%v", got)
	}
	for i, replicas := range assign(brokers(6, 0, "a", "a", "a", "b", "b", "c"), 30, 3, -1, 0, zero) { // as many replicas as racks
		racks := map[string]bool{}
		for _, id := range replicas {
			racks[[]string{"a", "a", "a", "b", "b", "c"}[id]] = true
		}
		if len(racks) != 3 {
			t.Errorf("partition %d: %v", i, replicas)
		}
	}
}
