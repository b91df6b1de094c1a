package group

import (
	"errors"
	"testing"
	"time"

	"ottla/coordinator"
)

// TestUpgradeNotWritten: a classic group stays one, and goes on, when its conversion is not in the log.
func TestUpgradeNotWritten(t *testing.T) {
	x := mixedWorld(t)
	x.classics(2, false)
	x.settle()
	x.failing = coordinator.ErrNotAvailable
	p := x.party("g", "p", "a")
	if err := p.beat(); !errors.Is(err, coordinator.ErrNotAvailable) {
		t.Fatalf("join: %v", err)
	}
	x.failing = nil
	x.settle()
	want(x, "type", x.kind(), "classic Stable")
	x.veterans[1].killed = true // its session is watched again
	for range 30 {
		x.advance(time.Second)
		x.veterans[0].step()
	}
	want(x, "partitions", x.count(), 6)
	x.parties = append(x.parties, p)
	x.settle()
	want(x, "type", x.kind(), "consumer Stable")
}

// TestDowngradeAndRestart: a group that became a classic one rebalances though the coordinator was
// restarted before it could.
func TestDowngradeAndRestart(t *testing.T) {
	x := mixedWorld(t)
	p := x.party("g", "p", "a")
	x.parties = append(x.parties, p)
	x.classics(2, false)
	x.settle()
	want(x, "leave", p.leave(leaveEpoch), nil)
	x.parties = nil
	x.crash()
	x.settle()
	want(x, "type", x.kind(), "classic Stable")
	want(x, "partitions", x.count(), 6)
}

// TestDowngradeUnsettled: the last member of the consumer protocol comes back with the classic one while
// another still waits for partitions: the group has to rebalance.
func TestDowngradeUnsettled(t *testing.T) {
	x := mixedWorld(t)
	p := x.party("g", "p", "a")
	p.instance = ptr("i")
	x.parties = append(x.parties, p)
	x.classics(1, false)
	x.settle()
	x.classics(1, false)
	late := x.veterans[1]
	for late.step(); !late.stable; {
		late.step()
	}
	for range 3 { // it gives back what is not its own; the first classic member has yet to
		want(x, "heartbeat", p.beat(), nil)
	}
	x.parties = nil
	x.classics(1, false)
	x.veterans[2].instance = p.instance
	x.veterans[2].step()
	want(x, "type", x.kind(), "classic PreparingRebalance")
	x.settle()
	want(x, "partitions", x.count(), 6)
	for _, v := range x.veterans {
		if n := len(v.owned[topicID("a")]); n != 2 {
			t.Errorf("%s has %d partitions", v.id, n)
		}
	}
}

// TestUpgradeOnItsWay: while the records that convert a group are on their way to the log nothing that
// the classic group waited for comes to pass.
func TestUpgradeOnItsWay(t *testing.T) {
	x := mixedWorld(t)
	x.classics(2, false)
	x.settle()
	x.holding = true
	p := x.party("g", "p", "a")
	to := p.send(p.request())
	late := x.client("g")
	late.protocols, late.id = x.veterans[0].metadata(), "late"
	joins := late.sendJoin()
	x.advance(3 * time.Minute)
	for x.commitHeld() {
	}
	x.holding = false
	if _, err := p.answered(to); err != nil {
		t.Fatal(err)
	}
	if a := must[JoinAnswer](x.world, joins); a.Err != nil {
		t.Errorf("who came meanwhile: %v", a.Err)
	}
	want(x, "members", len(x.consumer("g").Members), 4)
	x.sameConsumers("g")
}

// TestClassicCommits: a classic member of a consumer group may commit with the generation of before
// what it has had since then, in a transaction and without one (KIP-1251).
func TestClassicCommits(t *testing.T) {
	x := mixedWorld(t)
	x.parties = append(x.parties, x.party("g", "p", "a"))
	x.classics(1, false)
	x.settle()
	v := x.veterans[0]
	before := v.generation
	kept := v.owned[topicID("a")]
	x.parties = append(x.parties, x.party("g", "q", "a"))
	x.settle()
	if v.generation <= before || len(v.owned[topicID("a")]) != 2 {
		t.Fatalf("generation %d after %d, has %v", v.generation, before, v.owned)
	}
	lost := int32(-1)
	for _, p := range kept {
		if !v.owned.has(topicID("a"), p) {
			lost = p
		}
	}
	for name, c := range map[string]struct {
		partition, generation int32
		want                  error
	}{
		"what it has":                    {v.owned[topicID("a")][0], v.generation, nil},
		"what it kept":                   {v.owned[topicID("a")][0], before, nil},
		"what it gave up":                {lost, before, ErrIllegalGeneration},
		"a generation before it came":    {v.owned[topicID("a")][0], before - 1, ErrIllegalGeneration},
		"a generation that is not yet":   {v.owned[topicID("a")][0], v.generation + 1, ErrIllegalGeneration},
		"an administrator, with members": {0, -1, ErrUnknownMember},
	} {
		r := CommitRequest{Group: "g", MemberID: v.id, Generation: c.generation, Retention: -1,
			Topics: []CommitTopic{{Name: "a", ID: topicID("a"), Partitions: []CommitPartition{{Partition: c.partition, Offset: 3, Time: -1}}}}}
		if c.generation < 0 {
			r.MemberID = ""
		}
		to := &coordinator.Ticket{}
		x.take(x.m.Commit(x.now, r, to))
		if _, err, _ := await[[][]error](x.world, to); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if c.generation < 0 {
			c.want = nil // a producer of before KIP-447
		}
		to = &coordinator.Ticket{}
		x.take(x.m.CommitTxn(x.now, TxnCommitRequest{CommitRequest: r, Producer: 7, Guard: x.guard(7, 0)}, to))
		if _, err, _ := await[[][]error](x.world, to); !errors.Is(err, c.want) {
			t.Errorf("%s, in a transaction: %v, want %v", name, err, c.want)
		}
	}
}

// TestLeaveOfBoth: LeaveGroup takes members of either protocol out of a consumer group, by id or by
// instance id, each answered for itself; the last of the consumer protocol among them makes it a
// classic group.
func TestLeaveOfBoth(t *testing.T) {
	x := mixedWorld(t)
	p, q := x.party("g", "p", "a"), x.party("g", "q", "a")
	q.instance = ptr("i")
	x.parties = append(x.parties, p, q)
	x.classics(3, true)
	x.veterans[0].instance = ptr("j")
	x.settle()
	leave := func(all ...Leaver) []error {
		t.Helper()
		to := &coordinator.Ticket{}
		x.take(x.m.Leave(x.now, LeaveRequest{Group: "g", Members: all, Cluster: x.cluster}, to))
		return must[[]error](x.world, to)
	}
	n := len(x.log)
	for i, err := range leave(Leaver{"nobody", nil}, Leaver{"", ptr("none")}, Leaver{"wrong", ptr("i")}, Leaver{"", nil}) {
		if is := []error{ErrUnknownMember, ErrUnknownMember, ErrFencedInstance, ErrUnknownMember}[i]; !errors.Is(err, is) {
			t.Errorf("leaver %d: %v, want %v", i, err, is)
		}
	}
	if len(x.log) != n {
		t.Error("members that are none were taken out")
	}
	for i, err := range leave(Leaver{"p", nil}, Leaver{"p", nil}, Leaver{"", ptr("j")}, Leaver{"nobody", nil}) {
		if is := []error{nil, nil, nil, ErrUnknownMember}[i]; !errors.Is(err, is) {
			t.Errorf("leaver %d: %v, want %v", i, err, is)
		}
	}
	want(x, "members", len(x.consumer("g").Members), 3)
	x.sameConsumers("g")
	x.parties, x.veterans = x.parties[1:], x.veterans[1:]
	x.settle()
	want(x, "partitions", x.count(), 6)
	x.o.MaxSize = 1
	want(x, "leave of a classic one", x.veterans[0].leave(), nil)
	x.veterans = x.veterans[1:]
	x.settle()
	want(x, "leave by instance", leave(Leaver{"", ptr("i")})[0], nil)
	x.parties = nil
	x.settle()
	want(x, "type", x.kind(), "classic Stable")
	want(x, "partitions", x.count(), 6)
}

// TestTooLargeToDowngrade: a consumer group with more members than a classic one may have stays one, and
// its classic members go on.
func TestTooLargeToDowngrade(t *testing.T) {
	x := mixedWorld(t)
	x.o.MaxSize = 1
	p := x.party("g", "p", "a")
	x.parties = append(x.parties, p)
	x.classics(2, false)
	x.settle()
	want(x, "leave", p.leave(leaveEpoch), nil)
	x.parties = nil
	x.settle()
	want(x, "type", x.kind(), "consumer Stable")
	want(x, "partitions", x.count(), 6)
	want(x, "leave", x.veterans[0].leave(), nil)
	x.veterans = x.veterans[1:]
	x.settle()
	want(x, "type once it is small enough", x.kind(), "classic Stable")
	want(x, "partitions", x.count(), 6)
}
