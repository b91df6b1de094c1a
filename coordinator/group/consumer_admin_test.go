package group

import (
	"errors"
	"testing"
	"time"

	"ottla/coordinator"
)

// TestConsumerGroupsForAdministrators: listing by type and state, describing by either API,
// deleting offsets of topics that are read and that are not, and expiry.
func TestConsumerGroupsForAdministrators(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"a": 2, "b": 2})
	one := w.party("g", "one", "a")
	reconcileAll(t, one)
	w.client("classic").join()
	list := func(states, types []string) (ids string) {
		to := &coordinator.Ticket{}
		w.take(w.m.List(states, types, to))
		for _, l := range must[[]Listed](w, to) {
			ids += l.Group + " " + l.Type + " " + l.State + " " + l.ProtocolType + ";"
		}
		return ids
	}
	for _, x := range []struct {
		states, types []string
		want          string
	}{
		{nil, []string{"Consumer"}, "g consumer Stable consumer;"},
		{[]string{"stable"}, []string{"consumer", "classic"}, "g consumer Stable consumer;"},
		{[]string{"Empty"}, []string{"consumer"}, ""},
		{[]string{"completingrebalance"}, nil, "classic classic CompletingRebalance consumer;"},
	} {
		if got := list(x.states, x.types); got != x.want {
			t.Errorf("list of %v %v: %q, want %q", x.states, x.types, got, x.want)
		}
	}
	if d := w.describe("g"); !errors.Is(d.Err, ErrGroupNotFound) || d.State != "Dead" {
		t.Errorf("DescribeGroups: %+v", d)
	}
	to := &coordinator.Ticket{}
	w.take(w.m.DescribeConsumer("classic", to))
	if _, err, _ := await[ConsumerDescribed](w, to); !errors.Is(err, ErrNotConsumerGroup) {
		t.Errorf("ConsumerGroupDescribe of a classic group: %v", err)
	}
	for _, topic := range []string{"a", "b"} {
		if err := w.commit(CommitRequest{Group: "g", MemberID: "one", Generation: one.epoch, NewErrors: true, Retention: -1}, topic, 5); err != nil {
			t.Fatal(err)
		}
	}
	to = &coordinator.Ticket{}
	w.take(w.m.DeleteOffsets(w.now, "g", []FetchTopic{{Name: "a", Partitions: []int32{0}}, {Name: "b", Partitions: []int32{0}}}, to))
	if errs := must[[][]error](w, to); !errors.Is(errs[0][0], ErrSubscribed) || errs[1][0] != nil || w.stored("g", "b") != -1 || w.stored("g", "a") != 5 {
		t.Errorf("delete offsets: %v", errs)
	}
	one.leave(leaveEpoch)
	w.sweep()
	if w.stored("g", "a") != 5 {
		t.Error("offsets expired at once")
	}
	w.advance(8 * 24 * time.Hour)
	w.sweep()
	w.restart()
	if got := list(nil, []string{"consumer"}); got != "" {
		t.Errorf("after the retention: %q", got)
	}
}

// TestConsumerPatterns: the topics of a regular expression follow those of the cluster; what no
// member names any more is forgotten.
func TestConsumerPatterns(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"a-1": 2, "b": 2})
	one, two := w.party("g", "one"), w.party("g", "two", "b")
	one.regex = ptr("a-.*")
	reconcileAll(t, one, two)
	if sizes(one)[0] != 2 || len(one.owned[topicID("a-1")]) != 2 {
		t.Fatalf("one has %v", one.owned)
	}
	epoch := one.epoch
	w.cluster = w.cluster.with("a-2", 3).with("xa-3", 1)
	reconcileAll(t, one, two)
	if sizes(one)[0] != 5 || one.epoch <= epoch {
		t.Fatalf("epoch %d after %d, one has %v", one.epoch, epoch, one.owned)
	}
	epoch = one.epoch
	w.cluster = w.cluster.with("other", 3)
	reconcileAll(t, one, two)
	if one.epoch != epoch {
		t.Errorf("a topic that nobody reads began epoch %d", one.epoch)
	}
	without := w.cluster.with("other", 4) // a topic vanishes, and comes again
	delete(without.topics, "a-1")
	w.cluster = without
	reconcileAll(t, one, two)
	if sizes(one)[0] != 3 || len(one.owned[topicID("a-2")]) != 3 || one.epoch <= epoch {
		t.Errorf("without one of its topics: epoch %d, one has %v", one.epoch, one.owned)
	}
	w.cluster = w.cluster.with("a-1", 1)
	reconcileAll(t, one, two)
	if sizes(one)[0] != 4 {
		t.Errorf("with it again: one has %v", one.owned)
	}
	r := one.request()
	r.Regex, r.Topics = ptr(""), []string{"b"}
	if _, err := one.ask(r); err != nil {
		t.Fatal(err)
	}
	reconcileAll(t, one, two)
	if g := w.m.groups["g"].consumer; len(g.regexes) != 0 || len(one.owned[topicID("b")]) != 1 {
		t.Errorf("expressions %v, one has %v", g.regexes, one.owned)
	}
	w.sameConsumers("g")
}

// TestConsumerRacks: a group begins a new epoch when the racks of its topics' replicas change, for its
// assignor to know of them; a member's rack is kept and described.
func TestConsumerRacks(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"a": 2, "b": 2})
	w.cluster.racks = []string{"r1", "r2"}
	one := w.party("g", "one", "a")
	r := one.request()
	r.RackID = ptr("r1")
	if _, err := one.ask(r); err != nil {
		t.Fatal(err)
	}
	epoch := one.epoch
	w.cluster = &cluster{w.cluster.topics, 2, []string{"r2", "r1"}}
	reconcileAll(t, one)
	if one.epoch != epoch {
		t.Errorf("the order of racks began epoch %d", one.epoch)
	}
	w.cluster = &cluster{w.cluster.topics, 3, []string{"r1", "r3"}}
	reconcileAll(t, one)
	if one.epoch != epoch+1 {
		t.Errorf("epoch %d after other racks, was %d", one.epoch, epoch)
	}
	w.restart()
	if d := w.consumer("g"); d.Members[0].Rack == nil || *d.Members[0].Rack != "r1" {
		t.Errorf("described as %+v", d.Members)
	}
	w.sameConsumers("g")
}

// BenchmarkConsumerHeartbeat is one that tells nothing new, in a group of a thousand members.
func BenchmarkConsumerHeartbeat(b *testing.B) {
	w := newWorld(b)
	w.cluster = &cluster{topics: map[string]int32{"a": 1000}, version: 1}
	var all []*party
	for i := range 1000 {
		p := w.party("g", time.Duration(i).String(), "a")
		all = append(all, p)
		p.beat()
	}
	reconcileAll(b, all...)
	b.ReportAllocs()
	for b.Loop() {
		all[7].beat()
	}
}
