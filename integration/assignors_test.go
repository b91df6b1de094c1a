//go:build clients

package integration

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// envRecord, when it is set, has the files of testdata written anew from what the broker answers, which
// OTTLA_TEST_BOOTSTRAP then has to name: the real Kafka of that release, just started and empty, with the
// settings that the test gives to Start.
const envRecord = "OTTLA_TEST_RECORD"

// recorded compares a text with what the same test wrote down on a real Kafka, in testdata; or writes it down.
// The lines of head say how that came to be.
func recorded(t *testing.T, name, head, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv(envRecord) != "" {
		if os.Getenv(envBootstrap) == "" {
			t.Fatalf("%s without %s: what ottla answers is no proof", envRecord, envBootstrap)
		}
		if err := os.WriteFile(path, []byte(head+got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimPrefix(string(text), head)
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			from := max(0, i-6)
			t.Errorf("%s, line %d differs.\nKafka:\n%s\nhere:\n%s", name, i+1+strings.Count(head, "\n"),
				strings.Join(w[from:min(len(w), i+12)], "\n"), strings.Join(g[from:min(len(g), i+12)], "\n"))
			return
		}
	}
}

// fleet is many consumers of Kafka's in one JVM (Fleet.java).
type fleet struct {
	*driven
	adm *kadm.Client
}

func openFleet(t *testing.T, addr string) *fleet {
	t.Helper()
	c := drive(t, addr, javaCommand(t, "4.4.0", "Fleet")...).(*driven)
	t.Cleanup(c.close)
	return &fleet{c, kadm.NewClient(kgoDial(t, kgo.SeedBrokers(addr)))}
}

// fleetMember is a consumer as it sees itself.
type fleetMember struct {
	Assigned      []string `json:"assigned"` // topic-partition, sorted
	Generation    int      `json:"generation"`
	ID            string   `json:"id"`
	Error         string   `json:"error"` // the exception that ended it
	Revoked, Lost int      // partitions, all in all
}

// crew is one group of a fleet; its members read the topics and have these settings and their own.
type crew struct {
	t      *testing.T
	f      *fleet
	group  string
	topics []string
	props  map[string]string
	names  []string                     // of its members, where the test goes by them
	own    map[string]map[string]string // further settings, by the member's name
}

func (c *crew) do(op string, a args, value any) {
	c.t.Helper()
	ctx, stop := context.WithTimeout(c.t.Context(), time.Minute)
	defer stop()
	a["group"] = c.group
	if err := c.f.do(ctx, op, a, value); err != nil {
		c.t.Fatalf("%s: %v", c.group, err)
	}
}

// open starts a member whose client id is its name, so that its member id begins with it: assignors go by the order of ids.
// One whose name begins with "static" has it for its instance id as well.
func (c *crew) open(name string, topics ...string) {
	c.t.Helper()
	props := maps.Clone(c.props)
	maps.Copy(props, c.own[name])
	props["client.id"] = name
	if strings.HasPrefix(name, "static") {
		props["group.instance.id"] = name
	}
	if topics == nil {
		topics = c.topics
	}
	c.do("open", args{"name": name, "props": props, "topics": topics}, nil)
}

// close ends a member; one with an instance id stays in its group.
func (c *crew) close(name string) {
	c.t.Helper()
	var failed string
	if c.do("close", args{"name": name}, &failed); failed != "" {
		c.t.Errorf("%s of %s ended with %s", name, c.group, failed)
	}
}

func (c *crew) look() map[string]fleetMember {
	c.t.Helper()
	all := map[string]fleetMember{}
	c.do("look", args{}, &all)
	return all
}

func (c *crew) count(op string) (n int) {
	c.t.Helper()
	c.do(op, args{}, &n)
	return n
}

// settled waits until the group is stable with these members, who know what the coordinator says they have, and
// every one of so many partitions has its owner.
func (c *crew) settled(partitions int, names ...string) map[string]fleetMember {
	c.t.Helper()
	slices.Sort(names)
	var all map[string]fleetMember
	var why string
	for late := time.Now().Add(90 * time.Second); ; {
		if all, why = c.settledNow(partitions, names); why == "" {
			return all
		}
		if time.Now().After(late) || c.t.Context().Err() != nil {
			c.t.Fatalf("%s does not settle: %s\n%+v", c.group, why, all)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-c.t.Context().Done():
		}
	}
}

func (c *crew) settledNow(partitions int, names []string) (all map[string]fleetMember, why string) {
	c.t.Helper()
	all = c.look()
	if have := slices.Sorted(maps.Keys(all)); !slices.Equal(have, names) {
		return all, fmt.Sprintf("consumers %v, want %v", have, names)
	}
	told, err := c.described()
	if err != nil {
		return all, err.Error()
	}
	generation, sum := -1, 0
	for name, m := range all {
		switch {
		case m.Error != "":
			c.t.Fatalf("%s of %s ended with %s", name, c.group, m.Error)
		case generation >= 0 && m.Generation != generation:
			return all, "different generations"
		case !slices.Equal(m.Assigned, told[name]):
			return all, fmt.Sprintf("%s has %v, the coordinator says %v", name, m.Assigned, told[name])
		}
		generation = m.Generation
		sum += len(m.Assigned)
	}
	if len(told) != len(all) || sum != partitions {
		return all, fmt.Sprintf("%d partitions of %d, the coordinator says %v", sum, partitions, told)
	}
	return all, ""
}

// described is what the coordinator says that the members have, by their client ids.
func (c *crew) described() (map[string][]string, error) {
	told := map[string][]string{}
	if c.props["group.protocol"] == "consumer" {
		groups, err := c.f.adm.DescribeConsumerGroups(c.t.Context(), c.group)
		if g := groups[c.group]; err != nil || g.Err != nil || g.State != "Stable" {
			return nil, fmt.Errorf("%v %v %s", err, g.Err, g.State)
		}
		for _, m := range groups[c.group].Members {
			told[m.ClientID] = partitionNames(m.Assignment)
		}
		return told, nil
	}
	groups, err := c.f.adm.DescribeGroups(c.t.Context(), c.group)
	if g := groups[c.group]; err != nil || g.Err != nil || g.State != "Stable" {
		return nil, fmt.Errorf("%v %v %s", err, g.Err, g.State)
	}
	for _, m := range groups[c.group].Members {
		have := kadm.TopicsSet{}
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, topic := range a.Topics {
				have.Add(topic.Topic, topic.Partitions...)
			}
		}
		told[m.ClientID] = partitionNames(have)
	}
	return told, nil
}

// partitionNames are partitions as Java prints them.
func partitionNames(set kadm.TopicsSet) []string {
	all := []string{}
	set.Each(func(topic string, p int32) { all = append(all, fmt.Sprintf("%s-%d", topic, p)) })
	slices.Sort(all)
	return all
}

// assignors are the scenarios of TestAssignors: the strategies that all members have, and who has which setting.
var assignors = []struct {
	name, strategy string
	own            map[string]map[string]string
}{
	{"range", "org.apache.kafka.clients.consumer.RangeAssignor", nil},
	{"roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor", nil},
	{"sticky", "org.apache.kafka.clients.consumer.StickyAssignor", nil},
	{"cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", nil},
	{"own", "OwnAssignor", map[string]map[string]string{
		"a": {"own.weight": "3"}, "b": {"client.rack": "there"}, "static-s": {"client.rack": "here"}, "d": {"own.weight": "2", "client.rack": "there"},
	}},
	{"racks", "OwnAssignor$RackRange", map[string]map[string]string{
		"a": {"client.rack": "there"}, "b": {"client.rack": "here"}, "c": {"client.rack": "here"}, "d": {"client.rack": "there"},
	}},
}

const assignorsHead = `# What members of groups had on Kafka 4.4.0, step by step. Recorded by TestAssignors itself, with OTTLA_TEST_RECORD=1
# and OTTLA_TEST_BOOTSTRAP at such a broker that has the settings of the test and no topics.
`

// TestAssignors: with each assignor of Kafka 4.4.0's client, and one of our own, the members of a group have after
// each step of its life what they have on Kafka.
func TestAssignors(t *testing.T) {
	t.Parallel()
	b := Start(t, "group.initial.rebalance.delay.ms=0", "broker.rack=here")
	f := openFleet(t, b.Addr())
	crews := make([]*crew, len(assignors))
	for i, a := range assignors {
		crews[i] = &crew{t: t, f: f, group: a.name, own: a.own, props: map[string]string{
			"partition.assignment.strategy": a.strategy, "heartbeat.interval.ms": "150", "metadata.max.age.ms": "300"}}
		if a.name == "cooperative-sticky" {
			// who gives partitions away joins again at once; a member that has not heard by then what the others have
			// tells the next leader what it had a generation before, and the result is another
			crews[i].props["fleet.revoke.ms"] = "600"
		}
	}
	lives := make([]strings.Builder, len(crews))
	generations := make([]int, len(crews))
	// a step is made by all groups at once: what takes time are their members' heartbeats
	step := func(what string, act func(*crew), partitions int, names ...string) {
		t.Helper()
		for _, c := range crews {
			act(c)
		}
		for i, c := range crews {
			fmt.Fprintf(&lives[i], "  %s\n", what)
			for name, m := range sorted(c.settled(partitions, names...)) {
				line := strings.ReplaceAll(strings.Join(m.Assigned, " "), c.group+".", "")
				fmt.Fprintln(&lives[i], strings.TrimRight(fmt.Sprintf("    %s: %s", name, line), " "))
				generations[i] = m.Generation
			}
		}
	}
	step("a joins", func(c *crew) {
		for name, n := range map[string]int32{"one": 1, "three": 3, "five": 5, "seven": 7} {
			if _, err := f.adm.CreateTopic(t.Context(), n, 1, nil, c.group+"."+name); err != nil {
				t.Fatal(err)
			}
			c.topics = append(c.topics, c.group+"."+name)
		}
		slices.Sort(c.topics)
		c.open("a")
	}, 16, "a")
	step("b joins", func(c *crew) { c.open("b") }, 16, "a", "b")
	step("c joins, for two topics", func(c *crew) { c.open("c", c.group+".five", c.group+".one") }, 16, "a", "b", "c")
	step("static-s joins", func(c *crew) { c.open("static-s") }, 16, "a", "b", "c", "static-s")
	step("topic three grows to 6", func(c *crew) {
		if _, err := f.adm.UpdatePartitions(t.Context(), 6, c.group+".three"); err != nil {
			t.Fatal(err)
		}
	}, 19, "a", "b", "c", "static-s")
	step("b leaves", func(c *crew) { c.close("b") }, 19, "a", "c", "static-s")
	before := slices.Clone(generations)
	step("static-s restarts", func(c *crew) { c.close("static-s"); c.open("static-s") }, 19, "a", "c", "static-s")
	if !slices.Equal(before, generations) {
		t.Errorf("generations %d before the restart of a static member, %d after it", before, generations)
	}
	step("a leaves", func(c *crew) { c.close("a") }, 19, "c", "static-s")
	step("d joins", func(c *crew) { c.open("d") }, 19, "c", "d", "static-s")
	var text strings.Builder
	for i, c := range crews {
		fmt.Fprintf(&text, "\n%s\n%s", c.group, lives[i].String())
		for _, name := range []string{"c", "d", "static-s"} {
			c.close(name)
		}
	}
	recorded(t, "assignors-4.4.0.txt", assignorsHead, text.String())
}

// sorted is a map in the order of its keys.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
