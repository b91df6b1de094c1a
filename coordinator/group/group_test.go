package group

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ottla/coordinator"
)

func TestGroupMaxSize(t *testing.T) {
	w := newWorld(t)
	w.o.MaxSize = 2
	a, b := w.client("g"), w.client("g")
	settle(a, b)
	c := w.client("g")
	want(t, "third member of a stable group", must[JoinAnswer](w, c.sendJoin()).Err, error(ErrGroupFull))
	ja, jb := a.sendJoin(), b.sendJoin()
	want(t, "members may rejoin", a.joined(ja).Err, nil)
	want(t, "members may rejoin", b.joined(jb).Err, nil)

	// A smaller limit after a restart: the last one to rejoin is out.
	lead := a.id
	_, err := a.sync(a, b)
	want(t, "sync", err, nil)
	w.o.MaxSize = 1
	w.restart()
	want(t, "heartbeat in a group over the limit", b.heartbeat(), error(ErrRebalanceInProgress))
	ja = a.sendJoin()
	jb = b.sendJoin()
	want(t, "the one too many", must[JoinAnswer](w, jb).Err, error(ErrGroupFull))
	want(t, "the other", a.joined(ja).Err, nil)
	want(t, "is the leader", a.id, lead)
	want(t, "members", len(w.describe("g").Members), 1)
}

func TestInconsistentProtocols(t *testing.T) {
	w := newWorld(t)
	a := w.client("g")
	a.protocols = nil
	want(t, "no protocols", must[JoinAnswer](w, a.sendJoin()).Err, error(ErrInconsistentProtocol))
	want(t, "no group comes of it", w.describe("g").State, "Dead")
	a.protocols = consumerProtocols("t")
	settle(a)
	b := w.client("g")
	b.protocols = []Protocol{{"other", nil}}
	want(t, "none in common", must[JoinAnswer](w, b.sendJoin()).Err, error(ErrInconsistentProtocol))

	name, kind := "sticky", "connect"
	for _, r := range []SyncRequest{{Protocol: &name}, {ProtocolType: &kind}} {
		r.Group, r.MemberID, r.Generation = "g", a.id, a.generation
		to := &coordinator.Ticket{}
		w.take(w.m.Sync(w.now, r, to))
		want(t, "sync with another protocol", must[SyncAnswer](w, to).Err, error(ErrInconsistentProtocol))
	}
}

func TestProtocolChoice(t *testing.T) {
	w := newWorld(t)
	meta := consumerProtocols("t")[0].Metadata
	of := func(names ...string) (ps []Protocol) {
		for _, n := range names {
			ps = append(ps, Protocol{n, meta})
		}
		return ps
	}
	a, b, c := w.client("g"), w.client("g"), w.client("g")
	a.protocols, b.protocols, c.protocols = of("x", "y", "z"), of("y", "x"), of("y", "x")
	settle(a, b, c)
	want(t, "the one most like best", w.describe("g").Protocol, "y")
	want(t, "leave", c.leave(), nil)
	ja, jb := a.sendJoin(), b.sendJoin()
	want(t, "the leader's choice of two", *a.joined(ja).Protocol, "x")
	b.joined(jb)
}

func TestMembersWithoutIDOfOldClients(t *testing.T) {
	w := newWorld(t)
	a := w.client("g")
	a.old, a.rebalance = true, 10*time.Minute
	to := a.sendJoin()
	w.advance(0)
	want(t, "join of a client of before KIP-394", a.joined(to).Err, nil)
	want(t, "its id", strings.HasPrefix(a.id, "test-"), true)

	// Its session begins with its generation; before that it has five minutes.
	b := w.client("g")
	b.old, b.session = true, 6*time.Second
	jb := b.sendJoin()
	for range 30 {
		w.advance(10 * time.Second)
		a.heartbeat()
	}
	want(t, "a new member whose generation does not come", must[JoinAnswer](w, jb).Err, error(ErrUnknownMember))
}

func TestRejoiningMemberHasNoSessionToLose(t *testing.T) {
	w := newWorld(t)
	a, b := w.client("g"), w.client("g")
	a.session, b.session = 6*time.Second, 60*time.Second
	settle(a, b)
	ja := a.sendJoin()
	w.advance(30 * time.Second)
	if _, _, ok := await[JoinAnswer](w, ja); ok {
		t.Fatal("answered before the rebalance timeout")
	}
	w.advance(10 * time.Second)
	r := a.joined(ja)
	want(t, "join after the rebalance timeout", r.Err, nil)
	want(t, "members", len(r.Members), 1)
	want(t, "heartbeat of the one that did not come", b.heartbeat(), error(ErrUnknownMember))
	w.advance(5 * time.Second)
	want(t, "its session begins anew", a.heartbeat(), nil)
}

func TestLeaderThatDoesNotComeBack(t *testing.T) {
	w := newWorld(t)
	a, b := w.client("g"), w.client("g")
	a.session, b.session = time.Minute, time.Minute
	settle(a, b)
	b.protocols = consumerProtocols("t", "u")
	jb := b.sendJoin()
	w.advance(40 * time.Second)
	r := b.joined(jb)
	want(t, "join", r.Err, nil)
	want(t, "leader", r.Leader, b.id)
	want(t, "members", len(r.Members), 1)
}

func TestStaticMemberIsAwaitedBeyondTheJoins(t *testing.T) {
	w := newWorld(t)
	a, b := w.static("g", "a"), w.static("g", "b")
	a.session, b.session = 5*time.Minute, 5*time.Minute
	settle(a, b)
	a.id = ""
	a.protocols = []Protocol{{"range", consumerProtocols("t", "u")[0].Metadata}}
	b.id = ""
	ja := w.static("g", "a")
	ja.protocols, ja.session = a.protocols, a.session
	ja.id = w.m.groups["g"].instances["a"]
	j := ja.sendJoin() // the leader wants a rebalance
	w.advance(40 * time.Second)
	r := ja.joined(j)
	want(t, "join", r.Err, nil)
	want(t, "members, the static one that did not come among them", len(r.Members), 2)
	_, err := ja.sync()
	want(t, "sync", err, nil)
	w.advance(40 * time.Second)
	want(t, "it does not sync either", ja.heartbeat(), error(ErrRebalanceInProgress))
	want(t, "members then", len(w.describe("g").Members), 1)
}

func TestEveryMemberGone(t *testing.T) {
	w := newWorld(t)
	a := w.client("g")
	settle(a)
	want(t, "commit", a.commit("t", 3), nil)
	w.advance(20 * time.Second)
	d := w.describe("g")
	want(t, "state", d.State, "Empty")
	want(t, "protocol type stays", d.ProtocolType, "consumer")
	w.restart()
	want(t, "state after a restart", w.describe("g").State, "Empty")
	want(t, "offset", w.stored("g", "t"), 3)
	b := w.client("g")
	settle(b)
	want(t, "generation goes on", b.generation, 3)
}

func TestSyncThatCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	a, b := w.client("g"), w.client("g")
	settle(a, b)
	ja, jb := a.sendJoin(), b.sendJoin()
	a.joined(ja)
	b.joined(jb)
	sb := b.sendSync()
	w.failing = coordinator.ErrNotAvailable
	_, err := a.sync(a, b)
	want(t, "sync of the leader", err, error(coordinator.ErrNotAvailable))
	want(t, "sync of the follower", must[SyncAnswer](w, sb).Err, error(coordinator.ErrNotAvailable))
	want(t, "heartbeat", b.heartbeat(), error(ErrRebalanceInProgress))
	w.failing = nil
	ja, jb = a.sendJoin(), b.sendJoin()
	a.joined(ja)
	b.joined(jb)
	got, err := a.sync(a, b)
	want(t, "sync later", err, nil)
	want(t, "assignment", got, "for "+a.id)
}

func TestCommitThatCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	want(t, "commit", w.commit(alone("g"), "t", 1), nil)
	w.failing = coordinator.ErrNotAvailable
	want(t, "commit", w.commit(alone("g"), "t", 2), error(coordinator.ErrNotAvailable))
	want(t, "commit that would make a group", w.commit(alone("new"), "t", 2), error(coordinator.ErrNotAvailable))
	want(t, "delete", w.deleteGroup("g"), error(coordinator.ErrNotAvailable))
	want(t, "stored", w.stored("g", "t"), 1)
	want(t, "no group comes of it", w.describe("new").State, "Dead")
}

func TestLeaveOfSeveral(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.static("g", "a"), w.static("g", "b"), w.client("g")
	settle(a, b, c)
	to := &coordinator.Ticket{}
	w.take(w.m.Leave(w.now, LeaveRequest{Group: "g", Members: []Leaver{{"", a.instance}, {"wrong", b.instance}, {c.id, nil}, {"nobody", nil}, {"", nil}}}, to))
	errs := must[[]error](w, to)
	for i, err := range []error{nil, ErrFencedInstance, nil, ErrUnknownMember, ErrUnknownMember} {
		want(t, "leaver "+itoa(int64(i)), errs[i], err)
	}
	want(t, "members left", len(w.describe("g").Members), 1)
	to = &coordinator.Ticket{}
	w.take(w.m.Leave(w.now, LeaveRequest{Group: "unknown", Members: []Leaver{{"x", nil}}}, to))
	want(t, "unknown group", must[[]error](w, to)[0], error(ErrUnknownMember))
}

func TestLeaveWhileRequestsWait(t *testing.T) {
	w := newWorld(t)
	a, b := w.client("g"), w.client("g")
	settle(a, b)
	ja, jb := a.sendJoin(), b.sendJoin()
	a.joined(ja)
	b.joined(jb)
	sb := b.sendSync()
	want(t, "leave", b.leave(), nil)
	want(t, "its waiting sync", must[SyncAnswer](w, sb).Err, error(ErrUnknownMember))
}

func TestMetadataOfOffsets(t *testing.T) {
	w := newWorld(t)
	w.o.MetadataMaxBytes = 4
	for metadata, err := range map[string]error{"abcd": nil, "abcde": ErrMetadataTooLarge, "äöüß": nil, "𝄞𝄞": nil, "𝄞𝄞a": ErrMetadataTooLarge} {
		r := alone("g")
		r.Topics = []CommitTopic{{Name: "t", Partitions: []CommitPartition{{Offset: 1, Metadata: metadata, Time: -1}}}}
		to := &coordinator.Ticket{}
		w.take(w.m.Commit(w.now, r, to))
		want(t, metadata, must[[][]error](w, to)[0][0], err)
	}
}

func TestFetch(t *testing.T) {
	w := newWorld(t)
	w.commit(alone("g"), "b", 1)
	w.commit(alone("g"), "a", 2)
	fetch := func(r FetchRequest) []FetchedTopic {
		to := &coordinator.Ticket{}
		w.take(w.m.Fetch(w.now, r, to))
		return must[[]FetchedTopic](w, to)
	}
	none := FetchedOffset{Partition: 3, Offset: -1, LeaderEpoch: -1}
	if d := cmp.Diff([]FetchedTopic{
		{Name: "a", Partitions: []FetchedOffset{{Offset: 2, LeaderEpoch: -1}}},
		{Name: "b", Partitions: []FetchedOffset{{Offset: 1, LeaderEpoch: -1}}},
	}, fetch(FetchRequest{Group: "g"})); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff([]FetchedTopic{{Name: "b", Partitions: []FetchedOffset{none}}},
		fetch(FetchRequest{Group: "g", Topics: []FetchTopic{{Name: "b", Partitions: []int32{3}}}})); d != "" {
		t.Fatal(d)
	}
	want(t, "topics of an unknown group", len(fetch(FetchRequest{Group: "x"})), 0)
	want(t, "no topics", len(fetch(FetchRequest{Group: "g", Topics: []FetchTopic{}})), 0)
}

func TestDeleteOffsets(t *testing.T) {
	w := newWorld(t)
	del := func(group string, topics ...string) ([][]error, error) {
		var ts []FetchTopic
		for _, name := range topics {
			ts = append(ts, FetchTopic{Name: name, Partitions: []int32{0, 1}})
		}
		to := &coordinator.Ticket{}
		w.take(w.m.DeleteOffsets(w.now, group, ts, to))
		v, err, _ := await[[][]error](w, to)
		return v, err
	}
	_, err := del("g", "t")
	want(t, "unknown group", err, error(ErrGroupNotFound))
	c := w.client("g")
	settle(c)
	c.commit("t", 1)
	c.commit("u", 2)
	errs, err := del("g", "t", "u")
	want(t, "error", err, nil)
	want(t, "subscribed", errs[0][0], error(ErrSubscribed))
	want(t, "not subscribed", errs[1][0], nil)
	want(t, "without an offset", errs[1][1], nil)
	want(t, "stored", w.stored("g", "t"), 1)
	want(t, "gone", w.stored("g", "u"), -1)
	w.restart()
	want(t, "gone after a restart", w.stored("g", "u"), -1)
}

func TestList(t *testing.T) {
	w := newWorld(t)
	w.commit(alone("simple"), "t", 1)
	settle(w.client("stable"))
	list := func(states, types []string) (ids string) {
		to := &coordinator.Ticket{}
		w.take(w.m.List(states, types, to))
		for _, l := range must[[]Listed](w, to) {
			ids += l.Group + ":" + l.ProtocolType + ":" + l.State + ":" + l.Type + " "
		}
		return ids
	}
	both := "simple::Empty:classic stable:consumer:Stable:classic "
	want(t, "all", list(nil, nil), both)
	want(t, "by type", list(nil, []string{"Classic", "share"}), both)
	want(t, "by another type", list(nil, []string{"consumer"}), "")
	want(t, "by state", list([]string{"STABLE "}, nil), both[strings.Index(both, "stable"):])
}

func TestDescribe(t *testing.T) {
	w := newWorld(t)
	d := w.describe("x")
	want(t, "unknown", d.Err, error(ErrGroupNotFound))
	want(t, "unknown is dead", d.State, "Dead")
	a, b := w.client("g"), w.static("g", "i")
	settle(a, b)
	d = w.describe("g")
	want(t, "protocol", d.Protocol, "range")
	want(t, "metadata", len(d.Members[0].Metadata) > 0, true)
	want(t, "assignment", string(d.Members[1].Assignment), "for "+b.id)
	want(t, "instance", *d.Members[1].InstanceID, "i")
	a.sendJoin()
	d = w.describe("g")
	want(t, "state", d.State, "PreparingRebalance")
	want(t, "protocol while rebalancing", d.Protocol, "")
	want(t, "metadata while rebalancing", len(d.Members[0].Metadata), 0)
}

func TestStop(t *testing.T) {
	w := newWorld(t)
	a, b := w.client("g"), w.client("g")
	settle(a, b)
	ja := a.sendJoin()
	w.release(w.m.Stop(), nil)
	want(t, "waiting join", must[JoinAnswer](w, ja).Err, error(coordinator.ErrNotCoordinator))
	want(t, "idle", w.m.Idle(), true)
}

// While a static member's new id is on its way to the log, others do what they like.
func TestStaticMemberRestartMeetsOthers(t *testing.T) {
	for _, failed := range []error{nil, coordinator.ErrNotAvailable} {
		w := newWorld(t)
		a, b := w.static("g", "a"), w.static("g", "b")
		settle(a, b)
		rejoin := func(c *client) (*coordinator.Ticket, coordinator.Effects) {
			to := &coordinator.Ticket{}
			w.ids++
			return to, w.m.Join(w.now, JoinRequest{Group: "g", InstanceID: c.instance, Client: Client{"test", "/"}, ProtocolType: "consumer",
				Protocols: c.protocols, Session: c.session, Rebalance: c.rebalance, SkipsAssignment: true, NewMemberIDSuffix: itoa(int64(w.ids))}, to)
		}
		first, e1 := rejoin(b)
		second, e2 := rejoin(b) // the same instance once more
		third := w.client("g")
		third.pending()
		j := third.sendJoin() // and a rebalance begins
		c := coordinator.Commit{Now: w.now, Err: failed}
		if failed == nil {
			w.take(e1.Then(c))
			w.release(e1.Answers, nil)
			w.take(e2.Then(c))
			w.release(e2.Answers, nil)
		} else {
			for _, e := range []coordinator.Effects{e2, e1} { // as the runtime does: the last first
				w.release(e.Answers, failed)
				w.take(e.Then(c))
			}
		}
		ja := a.sendJoin()
		if failed != nil {
			want(t, "the second", must[JoinAnswer](w, second).Err, failed)
			jb := b.sendJoin() // its id is valid again
			want(t, "join of the old id", b.joined(jb).Err, nil)
		} else {
			want(t, "the first is fenced", must[JoinAnswer](w, first).Err, error(ErrFencedInstance))
			want(t, "the second is in the new generation", must[JoinAnswer](w, second).Generation, 3)
			want(t, "heartbeat of the old id", b.heartbeat(), error(ErrFencedInstance))
		}
		want(t, "join of the leader", a.joined(ja).Err, nil)
		want(t, "join of the third", third.joined(j).Err, nil)
		want(t, "members", len(w.describe("g").Members), 3)
	}
}
