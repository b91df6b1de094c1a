//go:build clients

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// quickClassic has the members of classic groups speak often.
var quickClassic = map[string]string{"heartbeat.interval.ms": "150", "metadata.max.age.ms": "1000"}

// remote are the settings of a member of a consumer group with an assignor of the broker's.
func remote(assignor string) map[string]string {
	return map[string]string{"group.protocol": "consumer", "group.remote.assignor": assignor}
}

// local are the settings of a member of a classic group with an assignor of the client's.
func local(assignor string) map[string]string {
	p := maps.Clone(quickClassic)
	p["partition.assignment.strategy"] = assignor
	return p
}

// TestRollingRestart: groups of three Java consumers, by both protocols and each assignor, whose members are replaced
// one after the other, and the broker is killed, while records come. Every record is read, committed offsets never go back.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	b := Start(t, append([]string{"group.initial.rebalance.delay.ms=0", "group.consumer.assignors=uniform,range,roundrobin,block"}, quickGroups...)...)
	f := openFleet(t, b.Addr())
	if _, err := f.adm.CreateTopic(t.Context(), 6, 1, nil, "flow"); err != nil {
		t.Fatal(err)
	}
	const java = "org.apache.kafka.clients.consumer."
	var crews []*crew
	for _, g := range []struct {
		name    string
		props   map[string]string
		members []string
	}{
		{"range", local(java + "RangeAssignor"), []string{"a", "b", "c"}},
		{"cooperative", local(java + "CooperativeStickyAssignor"), []string{"a", "b", "c"}},
		{"cooperative-static", local(java + "CooperativeStickyAssignor"), []string{"static-a", "static-b", "c"}},
		{"own-static", local("OwnAssignor"), []string{"static-a", "static-b", "static-c"}},
		{"uniform", remote("uniform"), []string{"a", "b", "c"}},
		{"uniform-static", remote("uniform"), []string{"static-a", "static-b", "c"}},
		{"range-next", remote("range"), []string{"a", "b", "c"}},
		{"roundrobin", remote("roundrobin"), []string{"a", "b", "c"}},
		{"block", remote("block"), []string{"a", "b", "static-c"}},
	} {
		c := &crew{t: t, f: f, group: g.name, topics: []string{"flow"}, props: g.props, names: g.members}
		crews = append(crews, c)
	}
	sent := flow(t, b.Addr(), "flow", crews)
	settled := func() {
		t.Helper()
		for _, c := range crews {
			c.settled(6, c.names...)
		}
	}
	for i := range 3 {
		for _, c := range crews {
			c.open(c.names[i])
		}
	}
	settled()
	for i := range 3 {
		for _, c := range crews {
			c.close(c.names[i])
			c.open(c.names[i])
		}
		settled()
		if i == 1 && !b.External() {
			b.Restart()
			settled()
		}
	}
	n := sent()
	ends, err := f.adm.ListEndOffsets(t.Context(), "flow")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range crews {
		eventually(t, c.group+" reads all, and commits it", time.Minute, func() bool {
			at, err := f.adm.FetchOffsets(t.Context(), c.group)
			ok := err == nil
			ends.Each(func(l kadm.ListedOffset) {
				o, _ := at.Lookup(l.Topic, l.Partition)
				ok = ok && o.At == l.Offset
			})
			return ok
		})
		if got := c.count("seen"); got != n {
			t.Errorf("%s: %d records of %d", c.group, got, n)
		}
		for name, m := range c.look() {
			if m.Lost > 0 {
				t.Errorf("%s: %s lost %d partitions", c.group, name, m.Lost)
			}
		}
	}
	for _, c := range crews {
		for _, name := range c.names {
			c.close(name)
		}
	}
}

// flow produces records, each with another value, and looks at the groups' committed offsets, until the function that
// it returns is called, which tells how many there were.
func flow(t *testing.T, addr, topic string, crews []*crew) (end func() int) {
	t.Helper()
	cl := kgoDial(t, kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	adm := kadm.NewClient(cl)
	var names []string
	for _, c := range crews {
		names = append(names, c.group)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	sent := 0
	every := func(d time.Duration, do func() error) {
		wg.Go(func() {
			tick := time.NewTicker(d)
			defer tick.Stop()
			for {
				if err := do(); err != nil && t.Context().Err() == nil {
					t.Error(err)
					return
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	every(40*time.Millisecond, func() error {
		all := make([]*kgo.Record, 12)
		for i := range all {
			all[i] = &kgo.Record{Topic: topic, Value: fmt.Append(nil, sent+i)}
		}
		sent += len(all)
		return cl.ProduceSync(t.Context(), all...).FirstErr()
	})
	high := map[string]int64{}
	every(150*time.Millisecond, func() error {
		for group, at := range adm.FetchManyOffsets(t.Context(), names...) {
			for _, o := range at.Fetched.Sorted() {
				key := fmt.Sprint(group, " ", o.Partition)
				if o.Err == nil && o.At < high[key] {
					return fmt.Errorf("group and partition %s: committed offset %d after %d", key, o.At, high[key])
				}
				high[key] = max(high[key], o.At)
			}
		}
		return nil
	})
	done := sync.OnceValue(func() int {
		stop()
		wg.Wait()
		return sent
	})
	t.Cleanup(func() { done() })
	return done
}

// TestJavaGroupLimits: what group.initial.rebalance.delay.ms, group.max.size and group.consumer.max.size do to Java consumers.
func TestJavaGroupLimits(t *testing.T) {
	t.Parallel()
	b := Start(t, append([]string{"group.initial.rebalance.delay.ms=2500", "group.max.size=2", "group.consumer.max.size=2"}, quickGroups...)...)
	f := openFleet(t, b.Addr())
	if _, err := f.adm.CreateTopic(t.Context(), 4, 1, nil, "limits"); err != nil {
		t.Fatal(err)
	}
	classic := &crew{t: t, f: f, group: "classic", topics: []string{"limits"}, props: quickClassic}
	next := &crew{t: t, f: f, group: "next", topics: []string{"limits"}, props: remote("uniform")}
	begun := time.Now()
	for _, c := range []*crew{classic, next} {
		c.open("a")
		c.open("b")
	}
	for name, m := range classic.settled(4, "a", "b") {
		if m.Generation != 1 {
			t.Errorf("%s is in generation %d; the first one waits for both", name, m.Generation)
		}
		if !strings.HasPrefix(m.ID, name+"-") || len(m.ID) != len(name)+37 { // KIP-394: the coordinator gave it
			t.Errorf("%s has the member id %s", name, m.ID)
		}
	}
	if took := time.Since(begun); took < 2500*time.Millisecond {
		t.Errorf("a group after %v", took)
	}
	next.settled(4, "a", "b")
	for _, c := range []*crew{classic, next} {
		c.open("c")
		eventually(t, "the third member is refused", time.Minute, func() bool { return c.look()["c"].Error == "GroupMaxSizeReachedException" })
		c.do("close", args{"name": "c"}, nil)
		c.settled(4, "a", "b")
		c.close("a")
		c.open("d")
		c.settled(4, "b", "d")
		c.close("b")
		c.close("d")
	}
}

// TestJavaStaticMembers: a static leader that restarts gets its partitions back and assigns nothing (KIP-814), but goes
// on watching the topics; a second consumer with the same instance id ends the first; one that an operator removes comes back as another member (KIP-345).
func TestJavaStaticMembers(t *testing.T) {
	t.Parallel()
	b := Start(t, append([]string{"group.initial.rebalance.delay.ms=0"}, quickGroups...)...)
	f := openFleet(t, b.Addr())
	for _, topic := range []string{"still", "still-next"} {
		if _, err := f.adm.CreateTopic(t.Context(), 4, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	c := &crew{t: t, f: f, group: "static", topics: []string{"still"}, props: local("OwnAssignor")}
	c.open("static-a")
	c.settled(4, "static-a")
	c.open("static-b")
	before, calls := c.settled(4, "static-a", "static-b"), c.count("calls")
	for _, name := range []string{"static-a", "static-b"} { // the leader, and one who is not
		c.close(name)
		c.open(name)
		after := c.settled(4, "static-a", "static-b")
		if n := c.count("calls"); n != calls || after[name].Generation != before[name].Generation {
			t.Errorf("%s restarted: %d assignments, generation %d; before %d and %d", name, n, after[name].Generation, calls, before[name].Generation)
		}
		if after[name].ID == before[name].ID || !slices.Equal(after[name].Assigned, before[name].Assigned) {
			t.Errorf("%s restarted: %+v, before %+v", name, after[name], before[name])
		}
	}
	if m := c.look()["static-b"]; m.Revoked != 0 {
		t.Errorf("static-b had to give %d partitions away", m.Revoked)
	}
	if _, err := f.adm.UpdatePartitions(t.Context(), 6, "still"); err != nil {
		t.Fatal(err)
	}
	c.settled(6, "static-a", "static-b")
	if n := c.count("calls"); n != calls+1 {
		t.Errorf("%d assignments after the topic has grown, want %d", n, calls+1)
	}

	next := &crew{t: t, f: f, group: "static-next", topics: []string{"still-next"}, props: remote("uniform")}
	next.open("static-a")
	next.open("b")
	was := next.settled(4, "static-a", "b")
	next.close("static-a")
	next.open("static-a")
	if is := next.settled(4, "static-a", "b"); !slices.Equal(is["static-a"].Assigned, was["static-a"].Assigned) || is["b"].Revoked > was["b"].Revoked {
		t.Errorf("a static member of a consumer group restarted: %+v, before %+v", is, was)
	}

	// another with the same instance id
	for _, o := range []struct {
		c    *crew
		want string // for whom it ends: in a classic group the old one, in a consumer group the new one
	}{{c, "static-a"}, {next, "twin"}} {
		o.c.own = map[string]map[string]string{"twin": {"group.instance.id": "static-a"}}
		o.c.open("twin")
		eventually(t, o.want+" of "+o.c.group+" ends", time.Minute, func() bool {
			e := o.c.look()[o.want].Error
			return e == "FencedInstanceIdException" || e == "UnreleasedInstanceIdException"
		})
		o.c.do("close", args{"name": o.want}, nil)
	}
	both := func() bool {
		all := c.look()
		return len(all["static-b"].Assigned) == 3 && len(all["twin"].Assigned) == 3
	}
	eventually(t, "the twin has the partitions", time.Minute, both)
	removed := c.look()["static-b"].ID
	if _, err := f.adm.LeaveGroup(t.Context(), kadm.LeaveGroup("static").InstanceIDs("static-b")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "static-b, which was removed, is another member", time.Minute, func() bool { return c.look()["static-b"].ID != removed && both() })
	c.close("twin")
	c.close("static-b")
	next.close("static-a")
	next.close("b")
}

// TestJavaWalk: pause, seek, offsets for times, positions and commits of Java consumers of both protocols.
func TestJavaWalk(t *testing.T) {
	t.Parallel()
	b := Start(t, append([]string{"group.initial.rebalance.delay.ms=0"}, quickGroups...)...)
	f := openFleet(t, b.Addr())
	if _, err := f.adm.CreateTopic(t.Context(), 2, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, "walk"); err != nil {
		t.Fatal(err)
	}
	cl := kgoDial(t, kgo.SeedBrokers(b.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(2) {
		for i := range int64(10) {
			r := &kgo.Record{Topic: "walk", Partition: p, Value: fmt.Append(nil, p, i), Timestamp: time.UnixMilli((1000 + i) * 1000)}
			if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for group, props := range map[string]map[string]string{"walk-classic": quickClassic, "walk-next": remote("uniform")} {
		c := &crew{t: t, f: f, group: group}
		var failed string
		if c.do("walk", args{"props": props, "topics": []string{"walk"}}, &failed); failed != "" {
			t.Errorf("%s: %s", group, failed)
		}
	}
}
