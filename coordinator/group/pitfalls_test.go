package group

import (
	"testing"
	"time"

	"ottla/coordinator"
)

// The cases group-1 to group-14 of the known pitfalls of Kafka brokers, on the machine alone.
// group-12 is of the consumer protocol; group-13's check of partitions is the handler's.

func TestMemberThatNeverSyncs(t *testing.T) { // group-1
	w := newWorld(t)
	lead, mute := w.client("g"), w.client("g")
	lead.rebalance, mute.rebalance = 3*time.Second, 3*time.Second
	settle(lead, mute)
	a := lead.sendJoin()
	want(t, "heartbeat while joining is awaited", mute.heartbeat(), error(ErrRebalanceInProgress))
	b := mute.sendJoin()
	want(t, "join of the leader", lead.joined(a).Err, nil)
	want(t, "join of the follower", mute.joined(b).Err, nil)
	want(t, "generation", mute.generation, 3)
	want(t, "heartbeat while syncing is awaited", mute.heartbeat(), nil)
	_, err := lead.sync(lead, mute)
	want(t, "sync of the leader", err, nil)
	w.advance(2999 * time.Millisecond)
	want(t, "heartbeat before the time is up", mute.heartbeat(), nil)
	w.advance(time.Millisecond)
	want(t, "heartbeat of the removed member", mute.heartbeat(), error(ErrUnknownMember))
	want(t, "heartbeat of the leader", lead.heartbeat(), error(ErrRebalanceInProgress))
	again := lead.join()
	want(t, "members left", len(again.Members), 1)
	want(t, "generation then", again.Generation, 4)
}

func TestDepartureDuringRebalance(t *testing.T) { // group-2
	for _, depart := range []func(*client){
		func(c *client) { want(c, "leave", c.leave(), nil) },
		func(c *client) { c.advance(6 * time.Second) },
	} {
		w := newWorld(t)
		a, b, last := w.client("g"), w.client("g"), w.client("g")
		last.session = 6 * time.Second
		settle(a, b, last)
		ja, jb := a.sendJoin(), b.sendJoin()
		depart(last)
		want(t, "join", a.joined(ja).Err, nil)
		want(t, "join of the follower", b.joined(jb).Err, nil)
		want(t, "members", len(w.describe("g").Members), 2)
		want(t, "generation", a.generation, 3)
		want(t, "heartbeat of the departed", last.heartbeat(), error(ErrUnknownMember))
	}
}

func TestStaticMemberRestart(t *testing.T) { // group-3
	w := newWorld(t)
	a, b := w.static("g", "a"), w.static("g", "b")
	settle(a, b)
	check := func(old *client) *client {
		t.Helper()
		fresh := w.static("g", *old.instance)
		r := fresh.join()
		want(t, "rejoin", r.Err, nil)
		want(t, "generation", r.Generation, 2)
		want(t, "a new id", fresh.id != old.id, true)
		if *old.instance == "a" {
			want(t, "members told to the leader", len(r.Members), 2)
			want(t, "skip assignment", r.Skip, true)
			want(t, "leader", r.Leader, fresh.id)
		} else {
			want(t, "leader", r.Leader, a.id)
		}
		got, err := fresh.sync()
		want(t, "sync", err, nil)
		want(t, "the place's assignment", got[:4], "for ")
		want(t, "heartbeat of the new id", fresh.heartbeat(), nil)
		want(t, "heartbeat of the old id", old.heartbeat(), error(ErrFencedInstance))
		_, err = old.sync()
		want(t, "sync of the old id", err, error(ErrFencedInstance))
		want(t, "commit of the old id", old.commit("t", 1), error(ErrFencedInstance))
		return fresh
	}
	b2 := check(b)
	want(t, "heartbeat of the other", a.heartbeat(), nil)
	a = check(a)
	w.restart()
	want(t, "heartbeat after a restart", b2.heartbeat(), nil)
	check(b2)
	want(t, "heartbeat of the other after a restart", a.heartbeat(), nil)
}

func TestStaticMemberRestartOfOldClient(t *testing.T) {
	w := newWorld(t)
	a := w.static("g", "a")
	settle(a)
	to := &coordinator.Ticket{}
	w.take(w.m.Join(w.now, JoinRequest{Group: "g", InstanceID: a.instance, ProtocolType: "consumer", Protocols: a.protocols,
		Session: a.session, Rebalance: a.rebalance, NewMemberIDSuffix: "x"}, to))
	r := must[JoinAnswer](w, to)
	want(t, "join", r.Err, nil)
	want(t, "leader of before, so that it does not assign", r.Leader, a.id)
	want(t, "members", len(r.Members), 0)
	want(t, "skip", r.Skip, false)
}

func TestStaticMemberRestartWhileJoining(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.static("g", "a"), w.static("g", "b"), w.static("g", "c")
	settle(a, b, c)
	ja, jb := a.sendJoin(), b.sendJoin()
	fresh := w.static("g", "b")
	jf := fresh.sendJoin()
	want(t, "the older waiting join", must[JoinAnswer](w, jb).Err, error(ErrFencedInstance))
	jc := c.sendJoin()
	want(t, "join of the leader", a.joined(ja).Err, nil)
	want(t, "the new join", fresh.joined(jf).Err, nil)
	want(t, "join of the third", c.joined(jc).Err, nil)
	want(t, "generation", fresh.generation, 3)
	b.generation = 3
	want(t, "heartbeat of the old id", b.heartbeat(), error(ErrFencedInstance))
}

func TestStaticMemberRestartWhileSyncing(t *testing.T) {
	w := newWorld(t)
	a, b := w.static("g", "a"), w.static("g", "b")
	settle(a, b)
	ja, jb := a.sendJoin(), b.sendJoin()
	a.joined(ja)
	b.joined(jb)
	sb := b.sendSync()
	fresh := w.static("g", "b")
	jf := fresh.sendJoin()
	want(t, "the older waiting sync", must[SyncAnswer](w, sb).Err, error(ErrFencedInstance))
	want(t, "heartbeat of the leader", a.heartbeat(), error(ErrRebalanceInProgress))
	want(t, "heartbeat of the old id", b.heartbeat(), error(ErrFencedInstance))
	ja = a.sendJoin()
	want(t, "join of the leader", a.joined(ja).Err, nil)
	want(t, "join of the new id", fresh.joined(jf).Err, nil)
	want(t, "generation", a.generation, 4)
}

func TestStaticMemberRestartThatCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	a, b := w.static("g", "a"), w.static("g", "b")
	settle(a, b)
	w.failing = coordinator.ErrNotAvailable
	fresh := w.static("g", "b")
	want(t, "rejoin", must[JoinAnswer](w, fresh.sendJoin()).Err, error(coordinator.ErrNotAvailable))
	w.failing = nil
	want(t, "heartbeat of the old id", b.heartbeat(), nil)
	got, err := b.sync()
	want(t, "sync of the old id", err, nil)
	want(t, "its assignment", got, "for "+b.id)
	w.restart()
	want(t, "heartbeat after a restart", b.heartbeat(), nil)
}

func TestStaticMemberChangesProtocol(t *testing.T) {
	w := newWorld(t)
	a, b := w.static("g", "a"), w.static("g", "b")
	both := append(consumerProtocols("t"), Protocol{"sticky", consumerProtocols("t")[0].Metadata})
	a.protocols, b.protocols = both, both
	settle(a, b)
	fresh := w.static("g", "b")
	fresh.protocols = both[1:]
	j := fresh.sendJoin()
	want(t, "heartbeat of the other", a.heartbeat(), error(ErrRebalanceInProgress))
	ja := a.sendJoin()
	want(t, "join", a.joined(ja).Err, nil)
	want(t, "protocol", *fresh.joined(j).Protocol, "sticky")
}

func TestCommitsFromOutside(t *testing.T) { // group-4
	for _, newErrors := range []bool{false, true} {
		w := newWorld(t)
		r := alone("g")
		r.NewErrors = newErrors
		want(t, "commit to an unknown group", w.commit(r, "t", 7), nil)
		want(t, "stored", w.stored("g", "t"), 7)
		c := w.client("g")
		settle(c)
		want(t, "commit to a group with members", w.commit(r, "t", 8), error(ErrUnknownMember))
		want(t, "leave", c.leave(), nil)
		want(t, "commit to an empty group", w.commit(r, "t", 9), nil)
		instance := "i"
		r.InstanceID = &instance
		want(t, "commit to an empty group with an instance id", w.commit(r, "t", 10), nil)
		want(t, "stored in the end", w.stored("g", "t"), 10)
		r = alone("other")
		r.NewErrors, r.Generation = newErrors, 5
		code := ErrIllegalGeneration
		if newErrors {
			code = ErrGroupNotFound
		}
		want(t, "generation 5 to an unknown group", w.commit(r, "t", 1), error(code))
		want(t, "no group comes of it", w.describe("other").State, "Dead")
	}
}

func TestOffsetExpiry(t *testing.T) { // group-5
	w := newWorld(t)
	w.o.Retention = time.Minute
	leaver, stays := w.client("left"), w.client("live")
	leaver.session, stays.session = 5*time.Minute, 5*time.Minute
	settle(leaver)
	settle(stays)
	want(t, "commit alone", w.commit(alone("alone"), "t", 3), nil)
	want(t, "commit of the leaver", leaver.commit("t", 4), nil)
	want(t, "commit of the one that stays", stays.commit("t", 5), nil)
	want(t, "its commit of a topic not subscribed to", stays.commit("u", 6), nil)
	w.advance(12 * time.Second)
	want(t, "leave", leaver.leave(), nil)
	w.restart()
	w.advance(44 * time.Second)
	w.sweep()
	want(t, "alone before a minute", w.stored("alone", "t"), 3)
	want(t, "not subscribed before a minute", w.stored("live", "u"), 6)
	w.advance(4 * time.Second)
	w.sweep()
	want(t, "alone after a minute", w.stored("alone", "t"), -1)
	want(t, "not subscribed after a minute", w.stored("live", "u"), -1)
	want(t, "of a stable member", w.stored("live", "t"), 5)
	want(t, "left within a minute", w.stored("left", "t"), 4)
	want(t, "a group without offsets goes", w.describe("alone").State, "Dead")
	w.advance(12 * time.Second)
	w.sweep()
	want(t, "left over a minute ago", w.stored("left", "t"), -1)
	want(t, "of a stable member later", w.stored("live", "t"), 5)
	w.restart()
	want(t, "still gone after a restart", w.stored("left", "t"), -1)
	want(t, "still there after a restart", w.stored("live", "t"), 5)
}

func TestOffsetExpiryKeepsWhatIsInUse(t *testing.T) {
	w := newWorld(t)
	w.o.Retention = time.Minute
	c := w.client("g")
	c.session = 30 * time.Minute
	c.rebalance = 30 * time.Minute
	settle(c)
	want(t, "commit", c.commit("u", 1), nil)
	other := w.client("g")
	other.pending()
	other.sendJoin()
	w.advance(2 * time.Minute)
	w.sweep()
	want(t, "while it rebalances", w.stored("g", "u"), 1)

	pending := w.client("p")
	pending.pending()
	w.sweep()
	want(t, "a group that a member is about to join stays", w.describe("p").State, "Empty")
	want(t, "join", pending.join().Err, nil)
}

func TestRetentionOfTheCommit(t *testing.T) {
	w := newWorld(t)
	r := alone("g")
	r.Retention = 10 * time.Second
	want(t, "commit", w.commit(r, "t", 1), nil)
	w.restart()
	w.advance(9 * time.Second)
	w.sweep()
	want(t, "before", w.stored("g", "t"), 1)
	w.advance(time.Second)
	w.sweep()
	want(t, "after", w.stored("g", "t"), -1)
}

func TestDeletedGroupStaysAway(t *testing.T) { // group-6
	w := newWorld(t)
	want(t, "delete of an unknown group", w.deleteGroup("g"), error(ErrGroupNotFound))
	c := w.client("g")
	settle(c)
	want(t, "commit", c.commit("t", 5), nil)
	want(t, "delete of a group with members", w.deleteGroup("g"), error(ErrNonEmptyGroup))
	want(t, "stored", w.stored("g", "t"), 5)
	want(t, "leave", c.leave(), nil)
	want(t, "commit to another", w.commit(alone("kept"), "t", 6), nil)
	want(t, "delete", w.deleteGroup("g"), nil)
	for range 2 {
		want(t, "gone", w.stored("g", "t"), -1)
		want(t, "kept", w.stored("kept", "t"), 6)
		want(t, "second delete", w.deleteGroup("g"), error(ErrGroupNotFound))
		w.restart()
	}
}

func TestSessionTimeoutBounds(t *testing.T) { // group-7
	w := newWorld(t)
	for _, c := range []struct {
		session time.Duration
		err     error
	}{{5999, ErrInvalidSessionTimeout}, {6000, ErrMemberIDRequired}, {1800000, ErrMemberIDRequired}, {1800001, ErrInvalidSessionTimeout}} {
		m := w.client("g")
		m.session = c.session * time.Millisecond
		want(t, m.session.String(), must[JoinAnswer](w, m.sendJoin()).Err, c.err)
	}
}

func TestPendingMemberNeverReturns(t *testing.T) { // group-8
	for _, gone := range []func(*client){
		func(c *client) { c.advance(6 * time.Second) },
		func(c *client) { want(c, "leave of a pending member", c.leave(), nil) },
	} {
		w := newWorld(t)
		a, b, p := w.client("g"), w.client("g"), w.client("g")
		settle(a)
		p.session = 6 * time.Second
		p.pending()
		b.pending()
		jb, ja := b.sendJoin(), a.sendJoin()
		if _, _, ok := await[JoinAnswer](w, ja); ok {
			t.Fatal("the join does not wait for the pending member")
		}
		gone(p)
		want(t, "join", a.joined(ja).Err, nil)
		want(t, "join of the other", b.joined(jb).Err, nil)
		want(t, "generation", b.generation, 2)
	}
}

func TestMemberWithoutPartitions(t *testing.T) { // group-9
	w := newWorld(t)
	a, b, idle := w.client("g"), w.client("g"), w.client("g")
	settle(a, b, idle)
	ja, jb, ji := a.sendJoin(), b.sendJoin(), idle.sendJoin()
	a.joined(ja)
	b.joined(jb)
	idle.joined(ji)
	empty := []byte{0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}
	to := &coordinator.Ticket{}
	w.take(w.m.Sync(w.now, SyncRequest{Group: "g", MemberID: a.id, Generation: a.generation, Assignment: []Assigned{{idle.id, empty}}}, to))
	want(t, "sync of the leader", must[SyncAnswer](w, to).Err, nil)
	got, err := idle.sync()
	want(t, "sync of the idle member", err, nil)
	want(t, "its bytes", got, string(empty))
	got, err = b.sync()
	want(t, "sync of the forgotten member", err, nil)
	want(t, "what it was not sent", got, "")
	want(t, "heartbeat", b.heartbeat(), nil)
}

func TestInitialRebalanceDelay(t *testing.T) { // group-10
	w := newWorld(t)
	w.o.InitialRebalanceDelay = 3 * time.Second
	a, b := w.client("g"), w.client("g")
	a.pending()
	ja := a.sendJoin()
	w.advance(time.Second)
	b.pending()
	jb := b.sendJoin()
	w.advance(5*time.Second - time.Millisecond)
	if _, _, ok := await[JoinAnswer](w, ja); ok {
		t.Fatal("answered before 6 s")
	}
	w.advance(time.Millisecond)
	want(t, "join", a.joined(ja).Err, nil)
	want(t, "join of the second", b.joined(jb).Err, nil)
	want(t, "generation", a.generation, 1)
	want(t, "generation of the second", b.generation, 1)

	// Members may keep coming, but not for longer than the rebalance timeout.
	first := w.client("busy")
	first.rebalance = 10 * time.Second
	first.pending()
	j := first.sendJoin()
	for range 9 {
		w.advance(time.Second)
		c := w.client("busy")
		c.rebalance = first.rebalance
		c.pending()
		c.sendJoin()
	}
	w.advance(time.Second)
	want(t, "members after 10 s", len(first.joined(j).Members), 10)
}

func TestOffsetsOfDeletedTopic(t *testing.T) { // group-11
	w := newWorld(t)
	commit := func(topic string, id byte, offset int64) {
		r := alone("g")
		r.Topics = []CommitTopic{{Name: topic, ID: [16]byte{id}, Partitions: []CommitPartition{{Offset: offset, Time: -1}}}}
		w.take(w.m.Commit(w.now, r, &coordinator.Ticket{}))
	}
	commit("t", 1, 50)
	commit("kept", 2, 51)
	fetch := func(id byte) int64 {
		to := &coordinator.Ticket{}
		w.take(w.m.Fetch(w.now, FetchRequest{Group: "g", Topics: []FetchTopic{{Name: "t", ID: [16]byte{id}, Partitions: []int32{0}}}}, to))
		return must[[]FetchedTopic](w, to)[0].Partitions[0].Offset
	}
	want(t, "asked for a new topic of the name", fetch(9), -1)
	want(t, "asked for the topic", fetch(1), 50)
	gone := func(id byte) {
		w.take(w.m.TopicsDeleted(w.now, []DeletedTopic{{"t", [16]byte{id}}}, &coordinator.Ticket{}))
	}
	gone(8)
	want(t, "after another topic of the name went", w.stored("g", "t"), 50)
	gone(1)
	for range 2 {
		want(t, "after the topic went", w.stored("g", "t"), -1)
		want(t, "of the other topic", w.stored("g", "kept"), 51)
		w.restart()
	}
	commit("t", 9, 1)
	gone(1)
	want(t, "of the new topic", w.stored("g", "t"), 1)
}

func TestSameMemberJoinsAgain(t *testing.T) { // group-14
	w := newWorld(t)
	a, b := w.client("g"), w.client("g")
	settle(a, b)
	id := b.id
	r := b.join()
	want(t, "join of the follower", r.Err, nil)
	want(t, "generation", r.Generation, 2)
	want(t, "its id", r.MemberID, id)
	want(t, "leader", r.Leader, a.id)
	want(t, "members told", len(r.Members), 0)
	got, err := b.sync()
	want(t, "sync", err, nil)
	want(t, "assignment", got, "for "+id)
	want(t, "heartbeat of the leader", a.heartbeat(), nil)
	ja := a.sendJoin()
	want(t, "heartbeat after the leader's join", b.heartbeat(), error(ErrRebalanceInProgress))
	jb := b.sendJoin()
	want(t, "join of the leader", a.joined(ja).Err, nil)
	want(t, "join of the follower in the rebalance", b.joined(jb).Err, nil)
	want(t, "generation then", a.generation, 3)
}

func TestClockStep(t *testing.T) { // the members' part of txn-9
	w := newWorld(t)
	a := w.client("g")
	settle(a)
	w.now.Wall -= time.Minute.Milliseconds()
	w.advance(10 * time.Second)
	want(t, "heartbeat after a step back", a.heartbeat(), nil)
	w.now.Wall += time.Hour.Milliseconds()
	w.advance(10 * time.Second)
	want(t, "heartbeat after a step ahead", a.heartbeat(), nil)
}
