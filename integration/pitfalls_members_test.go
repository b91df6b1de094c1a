package integration

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var memberPitfalls = []pitfall{
	{"group-1", memberNeverSyncs}, {"group-2", departureInARebalance}, {"group-3", staticMemberRestarts},
	{"group-8", pendingMemberNeverReturns}, {"group-9", memberWithoutPartitions}, {"group-10", initialDelay}, {"group-14", memberJoinsAgain},
}

// classic is a member of a classic group, on a connection of its own for its requests that wait and
// with another to look on.
type classic struct {
	*wire
	look               *wire
	group, id          string
	instance           *string
	generation         int32
	session, rebalance int32 // milliseconds
	topics             []string
}

func (p *pit) member(group string) *classic {
	p.Helper()
	return p.memberAt(p.broker(), group)
}

func (p *pit) memberAt(addr, group string) *classic {
	p.Helper()
	m := &classic{wire: dialWire(p, addr), look: dialWire(p, addr), group: group, session: 60000, rebalance: 60000, topics: []string{"t"}}
	m.look.coordinator(group, 0)
	return m
}

// static gives the member an instance id.
func (m *classic) static(instance string) *classic {
	m.instance = &instance
	return m
}

// again is the same instance after its restart.
func (m *classic) again() *classic {
	return &classic{wire: dialWire(m, m.nc.RemoteAddr().String()), look: m.look, group: m.group, instance: m.instance,
		session: m.session, rebalance: m.rebalance, topics: m.topics}
}

func (m *classic) joinRequest() *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID = m.group, m.id, m.instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = m.session, m.rebalance
	req.ProtocolType = "consumer"
	subscription := kmsg.NewConsumerMemberMetadata()
	subscription.Topics = m.topics
	rp := kmsg.NewJoinGroupRequestProtocol()
	rp.Name, rp.Metadata = "range", subscription.AppendTo(nil)
	req.Protocols = append(req.Protocols, rp)
	return req
}

func (m *classic) sendJoin() { m.Helper(); m.send(m.joinRequest(), 9) }

// joined takes over what the answer says: the id, also of MEMBER_ID_REQUIRED, and the generation.
func (m *classic) joined() *kmsg.JoinGroupResponse {
	m.Helper()
	got := receive[*kmsg.JoinGroupResponse](m.wire)
	if got.ErrorCode == 0 || got.ErrorCode == 79 {
		m.id = got.MemberID
	}
	if got.ErrorCode == 0 {
		m.generation = got.Generation
	}
	return got
}

// ready gets a member id, which makes the member a pending one; a static member needs none.
func (m *classic) ready() {
	m.Helper()
	if m.id != "" || m.instance != nil {
		return
	}
	m.sendJoin()
	equal(m, "error of a join without an id", m.joined().ErrorCode, 79)
	equal(m, "an id comes with MEMBER_ID_REQUIRED", m.id != "", true)
}

func (m *classic) join() *kmsg.JoinGroupResponse {
	m.Helper()
	m.ready()
	m.sendJoin()
	return m.joined()
}

// sendSync assigns "for ID" to each of the members; only a leader does.
func (m *classic) sendSync(members ...*classic) {
	m.Helper()
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = m.group, m.generation, m.id, m.instance
	for _, o := range members {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = o.id, []byte("for "+o.id)
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	m.send(req, 4)
}

func (m *classic) synced() (assignment string, code int16) {
	m.Helper()
	got := receive[*kmsg.SyncGroupResponse](m.wire)
	return string(got.MemberAssignment), got.ErrorCode
}

func (m *classic) sync(members ...*classic) (assignment string, code int16) {
	m.Helper()
	m.sendSync(members...)
	return m.synced()
}

func (m *classic) heartbeat() int16 {
	m.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = m.group, m.generation, m.id, m.instance
	return ask[*kmsg.HeartbeatResponse](m.look, req, 4).ErrorCode
}

func (m *classic) leave() int16 {
	m.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = m.group
	l := kmsg.NewLeaveGroupRequestMember()
	l.MemberID, l.InstanceID = m.id, m.instance
	req.Members = append(req.Members, l)
	got := ask[*kmsg.LeaveGroupResponse](m.look, req, 4)
	if got.ErrorCode != 0 {
		return got.ErrorCode
	}
	return got.Members[0].ErrorCode
}

func (m *classic) commit(topic string, offset int64) int16 {
	m.Helper()
	return m.look.commit(8, m.group, m.generation, m.id, m.instance, topic, offset)[0]
}

// wait is for the group to be in a state with so many members.
func (m *classic) wait(group, state string, members int) {
	m.Helper()
	eventually(m, fmt.Sprintf("group is %s with %d members", state, members), patience, func() bool {
		got := m.look.describeGroup(group)
		return got.State == state && len(got.Members) == members
	})
}

// coordinator waits until the coordinator of a group (kind 0) or a transactional id (kind 1) serves;
// to look for it is what creates the internal topic.
func (w *wire) coordinator(key string, kind int8) {
	w.Helper()
	eventually(w, "the coordinator is found", patience, func() bool {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorType = key, kind
		if code := ask[*kmsg.FindCoordinatorResponse](w, req, 3).ErrorCode; code != 0 {
			equal(w, "error of FindCoordinator", code, 15)
			return false
		}
		return kind != 0 || !loading(w.describeGroup(key).ErrorCode) // a heartbeat is taken while it loads
	})
}

// loading says whether an error is one of a coordinator that is not there so far.
func loading(code int16) bool { return code == 14 || code == 15 || code == 16 }

func (w *wire) describeGroup(group string) kmsg.DescribeGroupsResponseGroup {
	w.Helper()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	return ask[*kmsg.DescribeGroupsResponse](w, req, 5).Groups[0]
}

// settle makes a stable group of the members, the first of them its leader.
func settle(members ...*classic) {
	leader := members[0]
	leader.Helper()
	if leader.id == "" {
		equal(leader, "error of the first join", leader.join().ErrorCode, 0)
	}
	for i, m := range members[1:] {
		m.ready()
		m.sendJoin()
		leader.wait(leader.group, "PreparingRebalance", i+2)
	}
	if len(members) > 1 {
		leader.sendJoin()
		for _, m := range members {
			got := m.joined()
			equal(m, "error of the join", got.ErrorCode, 0)
			equal(m, "leader", got.LeaderID, leader.id)
			equal(m, "generation", m.generation, leader.generation)
			if m == leader {
				equal(m, "members told to the leader", len(got.Members), len(members))
			}
		}
	}
	for _, m := range members {
		all := members
		if m != leader {
			all = nil
		}
		assignment, code := m.sync(all...)
		equal(m, "error of the sync", code, 0)
		equal(m, "assignment", assignment, "for "+m.id)
	}
}

// rejoin starts a rebalance of a stable group in which the members wait for others.
func rejoin(members ...*classic) {
	for _, m := range members {
		m.sendJoin()
		m.quiet(20 * time.Millisecond)
	}
}

func memberNeverSyncs(p *pit) {
	g := p.name()
	leader, mute := p.member(g), p.member(g)
	leader.rebalance, mute.rebalance = 1000, 1000
	settle(leader, mute)
	leader.sendJoin()
	leader.wait(g, "PreparingRebalance", 2)
	equal(p, "heartbeat while joining is awaited", mute.heartbeat(), 27)
	mute.sendJoin()
	begun := time.Now()
	equal(p, "error of the leader's join", leader.joined().ErrorCode, 0)
	equal(p, "error of the follower's join", mute.joined().ErrorCode, 0)
	equal(p, "generation", mute.generation, 3)
	equal(p, "heartbeat while syncing is awaited", mute.heartbeat(), 0)
	_, code := leader.sync(leader, mute)
	equal(p, "error of the leader's sync", code, 0)
	eventually(p, "the member that does not sync is removed", patience, func() bool {
		code = mute.heartbeat()
		return code != 0
	})
	if took := time.Since(begun); took < time.Second {
		p.Errorf("removed after %v, want the rebalance timeout", took)
	}
	equal(p, "heartbeat of the removed member", code, 25)
	equal(p, "heartbeat of the leader then", leader.heartbeat(), 27)
	got := leader.join()
	equal(p, "error of the leader's next join", got.ErrorCode, 0)
	equal(p, "members left", len(got.Members), 1)
	equal(p, "generation then", got.Generation, 4)
}

func departureInARebalance(p *pit) {
	departs := func(session int32, depart func(*classic)) func(*pit) {
		return func(p *pit) {
			g := p.name()
			a, b, last := p.member(g), p.member(g), p.member(g)
			last.session = session
			settle(a, b, last)
			rejoin(a, b)
			depart(last)
			got := a.joined()
			equal(p, "error of the join", got.ErrorCode, 0)
			equal(p, "members", len(got.Members), 2)
			equal(p, "error of the follower's join", b.joined().ErrorCode, 0)
			equal(p, "generation", a.generation, 3)
			equal(p, "generation of the follower", b.generation, 3)
			equal(p, "heartbeat of the departed", last.heartbeat(), 25)
		}
	}
	p.part("leaves", departs(60000, func(m *classic) { equal(m, "error of the leave", m.leave(), 0) }))
	p.part("falls silent", departs(2000, func(*classic) {}))
}

func staticMemberRestarts(p *pit) {
	p.part("stable", func(p *pit) {
		topic, _ := p.topic(p.dial(), 1)
		g := p.name()
		a, b := p.member(g).static("a"), p.member(g).static("b")
		settle(a, b)
		for _, old := range []*classic{b, a} {
			fresh := old.again()
			got := fresh.join()
			equal(p, "error of the rejoin", got.ErrorCode, 0)
			equal(p, "generation", got.Generation, 2)
			equal(p, "the member id is the old one", fresh.id == old.id, false)
			if old == a {
				equal(p, "members told to the leader", len(got.Members), 2)
				equal(p, "skip_assignment", got.SkipAssignment, true)
				equal(p, "leader", got.LeaderID, fresh.id)
			} else {
				equal(p, "leader", got.LeaderID, a.id)
			}
			assignment, code := fresh.sync()
			equal(p, "error of the sync", code, 0)
			equal(p, "assignment", assignment, "for "+old.id)
			equal(p, "heartbeat of the new id", fresh.heartbeat(), 0)
			equal(p, "heartbeat of the old id", old.heartbeat(), 82)
			_, code = old.sync()
			equal(p, "sync of the old id", code, 82)
			equal(p, "commit of the old id", old.commit(topic, 1), 82)
			if old == b {
				equal(p, "heartbeat of the other", a.heartbeat(), 0)
			}
		}
	})
	p.part("joining", func(p *pit) {
		g := p.name()
		a, b, c := p.member(g).static("a"), p.member(g).static("b"), p.member(g).static("c")
		settle(a, b, c)
		rejoin(a, b)
		fresh := b.again()
		fresh.sendJoin()
		equal(p, "error of the join that waits", b.joined().ErrorCode, 82)
		c.sendJoin()
		equal(p, "error of the leader's join", a.joined().ErrorCode, 0)
		equal(p, "error of the new join", fresh.joined().ErrorCode, 0)
		equal(p, "error of the third's join", c.joined().ErrorCode, 0)
		equal(p, "the member id is the old one", fresh.id == b.id, false)
		equal(p, "generation", fresh.generation, 3)
		b.generation = 3
		equal(p, "heartbeat of the old id", b.heartbeat(), 82)
	})
	p.part("syncing", func(p *pit) {
		g := p.name()
		a, b := p.member(g).static("a"), p.member(g).static("b")
		settle(a, b)
		rejoin(a)
		b.sendJoin()
		equal(p, "error of the leader's join", a.joined().ErrorCode, 0)
		equal(p, "error of the follower's join", b.joined().ErrorCode, 0)
		b.sendSync()
		b.quiet(20 * time.Millisecond)
		fresh := b.again()
		fresh.sendJoin()
		_, code := b.synced()
		equal(p, "error of the sync that waits", code, 82)
		a.wait(g, "PreparingRebalance", 2)
		equal(p, "heartbeat of the leader", a.heartbeat(), 27)
		equal(p, "heartbeat of the old id", b.heartbeat(), 82)
		a.sendJoin()
		equal(p, "error of the leader's next join", a.joined().ErrorCode, 0)
		equal(p, "error of the new join", fresh.joined().ErrorCode, 0)
		equal(p, "the member id is the old one", fresh.id == b.id, false)
		equal(p, "generation", fresh.generation, 4)
	})
	p.part("after kill -9", func(p *pit) {
		broker := p.process()
		g := p.name()
		a, b := p.memberAt(broker.Addr(), g).static("a"), p.memberAt(broker.Addr(), g).static("b")
		settle(a, b)
		broker.Restart()
		a.look = dialWire(p, broker.Addr())
		b.look = a.look
		a.wait(g, "Stable", 2)
		fresh := b.again()
		got := fresh.join()
		equal(p, "error of the rejoin", got.ErrorCode, 0)
		equal(p, "generation", got.Generation, 2)
		equal(p, "the member id is the old one", fresh.id == b.id, false)
		assignment, code := fresh.sync()
		equal(p, "error of the sync", code, 0)
		equal(p, "assignment", assignment, "for "+b.id)
		equal(p, "heartbeat of the other", a.heartbeat(), 0)
		equal(p, "heartbeat of the old id", b.heartbeat(), 82)
	})
}
