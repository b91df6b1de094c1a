package group

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ottla/coordinator"
)

func mixedWorld(t *testing.T) *mixed {
	w := consumerWorld(t, map[string]int32{"a": 6})
	return &mixed{world: w}
}

func (x *mixed) classics(n int, eager bool) {
	for range n {
		v := x.veteran("g", "a")
		v.eager = eager
		x.veterans = append(x.veterans, v)
	}
}

func (x *mixed) kind() string {
	to := &coordinator.Ticket{}
	x.take(x.m.List(nil, nil, to))
	all := must[[]Listed](x.world, to)
	if len(all) != 1 {
		x.Fatalf("groups %v", all)
	}
	return all[0].Type + " " + all[0].State
}

// TestMigrationOneByOne: three classic members become three of the consumer protocol one by one,
// and back, with either way of rebalancing; each partition has one owner all the while.
func TestMigrationOneByOne(t *testing.T) {
	for _, eager := range []bool{false, true} {
		t.Run(fmt.Sprint("eager=", eager), func(t *testing.T) {
			x := mixedWorld(t)
			x.classics(3, eager)
			x.settle()
			want(x, "group of classic members", x.kind(), "classic Stable")
			if err := x.commit(CommitRequest{Group: "g", MemberID: x.veterans[0].id, Generation: x.veterans[0].generation, Retention: -1}, "a", 7); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				x.parties = append(x.parties, x.party("g", fmt.Sprint("p", i), "a"))
				x.settle()
				want(x, "group with a member of the consumer protocol", x.kind(), "consumer Stable")
				want(x, "leave", x.veterans[0].leave(), nil)
				x.veterans = x.veterans[1:]
				x.settle()
				x.sameConsumers("g")
				want(x, "partitions", x.count(), 6)
			}
			for range 3 {
				x.classics(1, eager)
				x.settle()
				want(x, "group with both", x.kind(), "consumer Stable")
				want(x, "leave", x.parties[0].leave(leaveEpoch), nil)
				x.parties = x.parties[1:]
				x.settle()
				want(x, "partitions", x.count(), 6)
			}
			want(x, "group of classic members again", x.kind(), "classic Stable")
			want(x, "offset", x.stored("g", "a"), 7)
			x.crash()
			x.settle()
			want(x, "partitions after a restart", x.count(), 6)
			kinds := map[int16]int{} // what is left of the consumer group in a compacted log
			last := map[string]coordinator.Logged{}
			for _, r := range x.log {
				last[string(r.Key)] = r
			}
			for _, r := range last {
				if r.Value != nil {
					kinds[int16(r.Key[0])<<8|int16(r.Key[1])]++
				}
			}
			if len(kinds) != 2 || kinds[keyGroup] != 1 || kinds[keyOffset] != 1 {
				t.Errorf("records left by type: %v", kinds)
			}
		})
	}
}

// TestMigrationPolicy: who may join whom, by group.consumer.migration.policy, with the errors of
// Kafka 4.4.
func TestMigrationPolicy(t *testing.T) {
	for _, c := range []struct {
		up, down          bool
		toClassic, toNext error
		left              string
	}{
		{false, false, ErrGroupNotFound, ErrInconsistentProtocol, ""},
		{true, false, nil, nil, "consumer"},
		{false, true, ErrGroupNotFound, nil, "classic"},
		{true, true, nil, nil, "classic"},
	} {
		t.Run(fmt.Sprint(c.up, c.down), func(t *testing.T) {
			x := mixedWorld(t)
			x.o.Consumer.Upgrade, x.o.Consumer.Downgrade = c.up, c.down
			x.classics(1, true)
			x.settle()
			if err := x.party("g", "p", "a").beat(); !errors.Is(err, c.toClassic) {
				t.Errorf("consumer protocol among classic members: %v, want %v", err, c.toClassic)
			}
			p := x.party("h", "p", "a")
			want(x, "join", p.beat(), nil)
			v := x.client("h")
			v.protocols, v.id = x.veterans[0].metadata(), "chosen"
			to := v.sendJoin()
			if a := must[JoinAnswer](x.world, to); !errors.Is(a.Err, c.toNext) {
				t.Fatalf("classic protocol among members of the other: %v, want %v", a.Err, c.toNext)
			}
			if c.left == "" {
				return
			}
			want(x, "leave", p.leave(leaveEpoch), nil)
			if got := x.m.groups["h"].consumer == nil; got != (c.left == "classic") {
				t.Errorf("classic after the last of the consumer protocol left: %v", got)
			}
		})
	}
}

// TestMigrationRefused: groups that cannot be converted stay as they are.
func TestMigrationRefused(t *testing.T) {
	x := mixedWorld(t)
	x.o.Consumer.MaxSize = 2
	x.classics(3, true)
	x.settle()
	if err := x.party("g", "p", "a").beat(); !errors.Is(err, ErrGroupNotFound) {
		t.Errorf("a group that is too large: %v", err)
	}
	x.o.Consumer.MaxSize = 3
	if err := x.party("g", "p", "a").beat(); !errors.Is(err, ErrGroupFull) {
		t.Errorf("a group that is full: %v", err)
	}
	c := x.client("bad") // its assignments are not those of the consumer protocol
	c.old = true
	settle(c)
	if err := x.party("bad", "p", "a").beat(); !errors.Is(err, ErrGroupNotFound) {
		t.Errorf("assignments that cannot be read: %v", err)
	}
	for g, want := range map[string]string{"g": "Stable", "bad": "Stable"} {
		if d := x.describe(g); d.State != want || d.Err != nil {
			t.Errorf("%s: %+v", g, d)
		}
	}
	p := x.party("h", "p", "a")
	want(x, "join", p.beat(), nil)
	for name, r := range map[string]JoinRequest{
		"another type":                {ProtocolType: "connect", Protocols: x.veterans[0].metadata()},
		"no protocol":                 {ProtocolType: "consumer"},
		"a subscription not readable": {ProtocolType: "consumer", Protocols: []Protocol{{"range", []byte{0}}}},
	} {
		r.Group, r.Session, r.NewMemberIDSuffix, r.Cluster = "h", 20*time.Second, "n", x.cluster
		to := &coordinator.Ticket{}
		n := len(x.log)
		x.take(x.m.Join(x.now, r, to))
		if a := must[JoinAnswer](x.world, to); !errors.Is(a.Err, ErrInconsistentProtocol) || len(x.log) != n {
			t.Errorf("%s: %v", name, a.Err)
		}
	}
}

// TestClassicInConsumerGroup: the answers that a classic member of a consumer group gets.
func TestClassicInConsumerGroup(t *testing.T) {
	x := mixedWorld(t)
	p := x.party("g", "p", "a")
	x.parties = append(x.parties, p)
	x.settle()
	x.classics(1, false)
	v := x.veterans[0]
	v.step()
	if v.id == "" || v.generation > 0 {
		t.Fatalf("without an id: %q in generation %d", v.id, v.generation)
	}
	x.settle()
	want(x, "generation", v.generation, x.consumer("g").Epoch)
	heartbeat := func(id string, instance *string, generation int32) error {
		to := &coordinator.Ticket{}
		x.take(x.m.Heartbeat(x.now, HeartbeatRequest{"g", id, instance, generation}, to))
		return x.answers[to].Err
	}
	sync := func(id string, generation int32, kind, protocol *string) error {
		to := &coordinator.Ticket{}
		x.take(x.m.Sync(x.now, SyncRequest{Group: "g", MemberID: id, Generation: generation, ProtocolType: kind, Protocol: protocol, Cluster: x.cluster}, to))
		return must[SyncAnswer](x.world, to).Err
	}
	for name, e := range map[string][2]error{
		"heartbeat":                          {heartbeat(v.id, nil, v.generation), nil},
		"heartbeat, another generation":      {heartbeat(v.id, nil, v.generation-1), ErrIllegalGeneration},
		"heartbeat, unknown":                 {heartbeat("x", nil, v.generation), ErrUnknownMember},
		"heartbeat, unknown instance":        {heartbeat(v.id, ptr("i"), v.generation), ErrUnknownMember},
		"heartbeat of the consumer protocol": {heartbeat("p", nil, p.epoch), ErrUnknownMember},
		"sync":                               {sync(v.id, v.generation, ptr("consumer"), ptr("cooperative-sticky")), nil},
		"sync, another generation":           {sync(v.id, v.generation+1, nil, nil), ErrIllegalGeneration},
		"sync, unknown":                      {sync("x", v.generation, nil, nil), ErrUnknownMember},
		"sync of the consumer protocol":      {sync("p", p.epoch, nil, nil), ErrUnknownMember},
		"sync, another type":                 {sync(v.id, v.generation, ptr("connect"), nil), ErrInconsistentProtocol},
		"sync, another protocol":             {sync(v.id, v.generation, nil, ptr("range")), ErrInconsistentProtocol},
		"commit":                             {v.commit("a", 5), nil},
		"commit of an older generation":      {x.commit(CommitRequest{Group: "g", MemberID: v.id, Generation: 1, Retention: -1}, "a", 5), ErrIllegalGeneration},
		"commit of a generation to come":     {x.commit(CommitRequest{Group: "g", MemberID: v.id, Generation: 99, Retention: -1}, "a", 5), ErrIllegalGeneration},
	} {
		if !errors.Is(e[0], e[1]) {
			t.Errorf("%s: %v, want %v", name, e[0], e[1])
		}
	}
	v.protocols = v.metadata()
	want(x, "join again", v.joined(v.sendJoin()).Err, nil)
	late := x.party("g", "late", "a")
	want(x, "join of a third", late.beat(), nil)
	want(x, "sync in a new epoch", sync(v.id, v.generation, nil, nil), ErrRebalanceInProgress)
	want(x, "leave", late.leave(leaveEpoch), nil)
	x.settle()
	d := x.consumer("g")
	if len(d.Members) != 2 || d.Members[0].Classic == d.Members[1].Classic {
		t.Errorf("described as %+v", d.Members)
	}
	if err := x.describe("g").Err; !errors.Is(err, ErrGroupNotFound) {
		t.Errorf("DescribeGroups: %v", err)
	}
	p.leave(leaveEpoch) // the group is a classic one now, and rebalances
	want(x, "heartbeat while it rebalances", v.heartbeat(), ErrRebalanceInProgress)
	want(x, "type", x.kind(), "classic PreparingRebalance")
}

// TestClassicTimeouts: a classic member of a consumer group is out when its session ends, when it
// does not join again though it was told to, and when it joins and does not sync.
func TestClassicTimeouts(t *testing.T) {
	for name, c := range map[string]struct {
		silent func(x *mixed, v *veteran)
		beats  bool
	}{
		"session": {func(*mixed, *veteran) {}, false},
		"join": {func(x *mixed, v *veteran) {
			x.parties = append(x.parties, x.party("g", "p2", "a"))
			want(x, "join", x.parties[1].beat(), nil)
			want(x, "heartbeat", v.heartbeat(), ErrRebalanceInProgress)
		}, true},
		"sync": {func(x *mixed, v *veteran) {
			v.protocols = v.metadata()
			v.joined(v.sendJoin())
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := mixedWorld(t)
			x.parties = append(x.parties, x.party("g", "p", "a"))
			x.classics(1, false)
			x.settle()
			v := x.veterans[0]
			want(x, "heartbeat", v.heartbeat(), nil)
			c.silent(x, v)
			out := func() bool { return x.m.groups["g"].consumer.members[v.id] == nil }
			for i := range 45 { // its session is 20 s, its rebalance timeout 40 s
				x.advance(time.Second)
				for _, p := range x.parties {
					p.beat()
				}
				if c.beats {
					v.heartbeat()
				}
				if at := i + 1; out() != (!c.beats && at >= 20 || at >= 40) {
					t.Fatalf("out after %d s: %v", at, out())
				}
			}
		})
	}
}

// TestStaticMigration: a static member that comes back with the other protocol takes the place
// of the one before, which is fenced; nobody else is troubled.
func TestStaticMigration(t *testing.T) {
	x := mixedWorld(t)
	x.classics(2, false)
	x.veterans[0].instance, x.veterans[1].instance = ptr("i"), ptr("j")
	x.settle()
	up := func(instance string) {
		t.Helper()
		p := x.party("g", "p-"+instance, "a")
		p.instance = ptr(instance)
		for i, v := range x.veterans {
			if *v.instance == instance {
				old := x.veterans[i]
				x.veterans = append(x.veterans[:i:i], x.veterans[i+1:]...)
				x.parties = append(x.parties, p)
				want(x, "join", p.beat(), nil)
				want(x, "heartbeat of the one before", old.heartbeat(), ErrFencedInstance)
				break
			}
		}
		x.settle()
		want(x, "partitions", x.count(), 6)
	}
	up("i")
	if d := x.consumer("g"); len(d.Members) != 2 {
		t.Fatalf("members %+v", d.Members)
	}
	up("j")
	down := func(i int) {
		t.Helper()
		old := x.parties[i]
		x.parties = append(x.parties[:i:i], x.parties[i+1:]...)
		x.classics(1, false)
		v := x.veterans[len(x.veterans)-1]
		v.instance = old.instance
		v.step()
		if err := old.beat(); err == nil {
			t.Error("the one before is still in")
		}
		x.settle()
		want(x, "partitions", x.count(), 6)
	}
	epoch := x.consumer("g").Epoch
	down(0)
	want(x, "epoch after a static member came back", x.consumer("g").Epoch, epoch)
	generation := x.veterans[0].generation
	down(0)
	want(x, "type", x.kind(), "classic Stable")
	if x.veterans[0].generation != generation {
		t.Errorf("the last one troubled the other: generation %d after %d", x.veterans[0].generation, generation)
	}
}
