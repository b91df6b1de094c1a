package group

import (
	"time"

	"ottla/coordinator"
)

// JoinRequest is one JoinGroup. Byte slices are kept.
type JoinRequest struct {
	Group, MemberID   string
	InstanceID        *string
	Client            Client
	ProtocolType      string
	Protocols         []Protocol
	Session           time.Duration
	Rebalance         time.Duration // v0: as Session
	MemberIDRequired  bool          // v4 and later: who has no id is given one and must come again (KIP-394)
	SkipsAssignment   bool          // v9 and later: a leader may be told not to assign (KIP-814)
	NewMemberIDSuffix string        // random; a new member's id is its client or instance id, a dash and this
	Cluster           Topics        // for members of consumer groups; nil: as it was seen last
}

// JoinAnswer is the answer to JoinGroup. With Err, only MemberID is of use.
type JoinAnswer struct {
	Err          error
	MemberID     string
	Generation   int32
	ProtocolType *string
	Protocol     *string
	Leader       string
	Skip         bool
	Members      []JoinedMember // for the leader
}

// JoinedMember is what the leader is told about a member.
type JoinedMember struct {
	MemberID   string
	InstanceID *string
	Metadata   []byte
}

// Join takes a member in or lets one rejoin; the answer comes with the generation. A new group
// is remembered here and reaches the log with its first generation.
func (m *Machine) Join(now coordinator.Instant, r JoinRequest, to *coordinator.Ticket) coordinator.Effects {
	var out coordinator.Effects
	refuse := func(err error, id string) coordinator.Effects {
		out.Answers = append(out.Answers, coordinator.Answer{To: to, Value: JoinAnswer{Err: err, MemberID: id, Generation: -1}})
		return out
	}
	o := m.options()
	switch {
	case r.Group == "":
		return refuse(ErrInvalidGroupID, r.MemberID)
	case r.Session < o.MinSessionTimeout || r.Session > o.MaxSessionTimeout:
		return refuse(ErrInvalidSessionTimeout, r.MemberID)
	}
	if m.busy[r.Group] != nil { // it is a consumer group, or becomes one or none
		return m.serially(now, r.Group, to, func(now coordinator.Instant) coordinator.Effects { return m.Join(now, r, to) })
	}
	g := m.groups[r.Group]
	if g != nil && g.consumer != nil {
		switch {
		case !g.empty():
			return m.joinConsumer(now, g, r, to)
		case r.MemberID != "":
			return refuse(ErrUnknownMember, r.MemberID)
		case r.ProtocolType == "" || len(r.Protocols) == 0:
			return refuse(ErrInconsistentProtocol, r.MemberID)
		}
		return m.record(r.Group, tombstonesOf(g), coordinator.Answer{}, func(now coordinator.Instant, err error) coordinator.Effects {
			if err != nil {
				return refuse(err, r.MemberID)
			}
			return m.Join(now, r, to)
		})
	}
	if g == nil {
		if r.MemberID != "" {
			return refuse(ErrUnknownMember, r.MemberID)
		}
		g = newGroup(r.Group)
		g.since = now.Wall
	}
	if !m.hasRoom(g, r.MemberID) {
		if mb := g.members[r.MemberID]; mb != nil {
			m.alarms.Cancel(mb.expiry)
			g.remove(mb)
		}
		m.forgetPending(g, r.MemberID)
		refuse(ErrGroupFull, "")
		m.finishJoins(now, g, &out)
		return out
	}
	if !g.supports(r.ProtocolType, r.Protocols) {
		return refuse(ErrInconsistentProtocol, r.MemberID)
	}
	m.groups[r.Group] = g
	if r.MemberID == "" {
		m.joinNew(now, g, r, to, &out)
		return out
	}
	if g.pending[r.MemberID] != nil {
		if r.InstanceID != nil { // only members without an instance id are given an id first
			return refuse(ErrUnknownMember, r.MemberID)
		}
		m.join(now, g, r, r.MemberID, to, &out)
		return out
	}
	if err := g.check(r.MemberID, r.InstanceID); err != nil {
		return refuse(err, r.MemberID)
	}
	m.rejoin(now, g, r, to, &out)
	return out
}

// hasRoom tells whether one more may join. While joins are collected those who have come
// count, so that a group that is too large loses the last ones to come.
func (m *Machine) hasRoom(g *group, id string) bool {
	limit := m.options().MaxSize
	mb := g.members[id]
	switch g.state {
	case PreparingRebalance:
		return mb != nil && mb.join != nil || g.waiting() < limit
	case CompletingRebalance, Stable:
		return mb != nil || len(g.order) < limit
	}
	return true
}

// joinNew takes in a member without an id.
func (m *Machine) joinNew(now coordinator.Instant, g *group, r JoinRequest, to *coordinator.Ticket, out *coordinator.Effects) {
	if r.InstanceID != nil {
		id := *r.InstanceID + "-" + r.NewMemberIDSuffix
		if old := g.members[g.instances[*r.InstanceID]]; old != nil {
			m.replace(now, g, old, id, r, to, out)
			return
		}
		m.join(now, g, r, id, to, out)
		return
	}
	id := r.Client.ID + "-" + r.NewMemberIDSuffix
	if !r.MemberIDRequired {
		m.join(now, g, r, id, to, out)
		return
	}
	a := coordinator.NewAlarm(func(now coordinator.Instant) (out coordinator.Effects) {
		if m.groups[g.id] == g && m.forgetPending(g, id) {
			m.finishJoins(now, g, &out)
		}
		return out
	})
	if g.pending == nil {
		g.pending = map[string]*coordinator.Alarm{}
	}
	g.pending[id] = a
	m.alarms.Set(a, now.Mono+r.Session)
	out.Answers = append(out.Answers, coordinator.Answer{To: to, Value: JoinAnswer{Err: ErrMemberIDRequired, MemberID: id, Generation: -1}})
}

// forgetPending takes back a member id that was given out; false when there is no such.
func (m *Machine) forgetPending(g *group, id string) bool {
	a := g.pending[id]
	if a == nil {
		return false
	}
	m.alarms.Cancel(a)
	delete(g.pending, id)
	return true
}

// join adds a member and starts a rebalance, or lets it take part in the one under way.
func (m *Machine) join(now coordinator.Instant, g *group, r JoinRequest, id string, to *coordinator.Ticket, out *coordinator.Effects) {
	m.forgetPending(g, id)
	if len(g.order) == 0 {
		g.protocolType = r.ProtocolType
	}
	if g.state == PreparingRebalance && g.previous == Empty {
		g.joined = true
	}
	mb := &member{id: id, instance: r.InstanceID, client: r.Client, rebalance: r.Rebalance, session: r.Session,
		protocols: r.Protocols, join: to, fresh: true}
	g.add(mb)
	m.renew(now, g, mb, newMemberTimeout)
	m.rebalance(now, g, out)
}

// rejoin lets a member of the group join again.
func (m *Machine) rejoin(now coordinator.Instant, g *group, r JoinRequest, to *coordinator.Ticket, out *coordinator.Effects) {
	mb := g.members[r.MemberID]
	current := func(withMembers bool) {
		a := g.joinAnswer(mb)
		if !withMembers {
			a.Members = nil
		}
		out.Answers = append(out.Answers, coordinator.Answer{To: to, Value: a})
	}
	same := mb.offers(r.Protocols)
	switch {
	case g.state == CompletingRebalance && same:
		current(true) // it may have missed the answer
	case g.state == Stable && same && g.leader != mb.id:
		current(false)
	case g.state == Empty:
		out.Answers = append(out.Answers, coordinator.Answer{To: to, Value: JoinAnswer{Err: ErrUnknownMember, MemberID: mb.id, Generation: -1}})
	default: // a leader that joins again wants a rebalance (its topics may have changed)
		m.update(g, mb, r, to)
		m.rebalance(now, g, out)
	}
}

// update takes over what a JoinGroup says. A request that still waits under the same member id
// is dropped without an answer, as Kafka does: its client has given it up.
func (m *Machine) update(g *group, mb *member, r JoinRequest, to *coordinator.Ticket) {
	mb.protocols, mb.rebalance, mb.session, mb.join = r.Protocols, r.Rebalance, r.Session, to
}

// replace gives a static member's place to a new id (KIP-345): whoever has the old one is
// fenced at once. In a stable group whose protocol stays the same nobody else is troubled;
// the record must be committed before the new id is told, and the old one comes back if it
// can't be written.
func (m *Machine) replace(now coordinator.Instant, g *group, mb *member, id string, r JoinRequest, to *coordinator.Ticket, out *coordinator.Effects) {
	old := *mb
	leader := g.leader
	g.answerJoin(out, mb, JoinAnswer{Err: ErrFencedInstance, MemberID: mb.id, Generation: -1})
	g.answerSync(out, mb, SyncAnswer{Err: ErrFencedInstance})
	g.rename(mb, id)
	mb.fresh = false
	m.renew(now, g, mb, mb.session)
	m.update(g, mb, r, to)

	switch {
	case g.state == CompletingRebalance:
		// The leader may be assigning to the old id by now.
		m.prepare(now, g, out)
	case g.state == Stable && equal(g.protocol, g.choose()):
		out.Records = append(out.Records, groupRecord(g, func(o *member) []byte { return o.assignment }))
		out.Then = func(c coordinator.Commit) (out coordinator.Effects) {
			if m.groups[g.id] != g || g.members[id] != mb {
				return out
			}
			if c.Err != nil {
				if mb.join == to {
					a := g.joinAnswer(mb)
					a.Err, a.MemberID, a.Leader, a.Members = c.Err, "", leader, nil
					g.answerJoin(&out, mb, a)
				}
				g.rename(mb, old.id)
				mb.protocols, mb.rebalance, mb.session = old.protocols, old.rebalance, old.session
				m.renew(c.Now, g, mb, mb.session)
				return out
			}
			if mb.join != to || g.state != Stable {
				return out // joined again meanwhile; that one gets the answer
			}
			a := g.joinAnswer(mb)
			if r.SkipsAssignment {
				a.Skip = g.leader == mb.id
			} else {
				// Old clients would assign if they were told that they lead.
				a.Leader, a.Members = leader, nil
			}
			g.answerJoin(&out, mb, a)
			return out
		}
	default:
		m.rebalance(now, g, out)
	}
}

func equal(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// joinAnswer is the current generation as a member is told about it.
func (g *group) joinAnswer(mb *member) JoinAnswer {
	a := JoinAnswer{MemberID: mb.id, Generation: g.generation, Protocol: g.protocol, Leader: g.leader}
	if t := g.protocolType; t != "" {
		a.ProtocolType = &t
	}
	if g.leader == mb.id {
		for _, o := range g.order {
			a.Members = append(a.Members, JoinedMember{o.id, o.instance, o.metadata(g.protocol)})
		}
	}
	return a
}

// rebalance starts a rebalance, or lets the one under way end if nobody else is awaited.
func (m *Machine) rebalance(now coordinator.Instant, g *group, out *coordinator.Effects) {
	if g.state == PreparingRebalance {
		m.finishJoins(now, g, out)
	} else {
		m.prepare(now, g, out)
	}
}

// prepare begins to collect joins. The first rebalance of a group waits a while for more
// members to come.
func (m *Machine) prepare(now coordinator.Instant, g *group, out *coordinator.Effects) {
	if g.state == CompletingRebalance {
		m.propagate(now, g, out, ErrRebalanceInProgress, nil)
	}
	clear(g.unsynced)
	m.alarms.Cancel(g.sync)
	m.alarms.Cancel(g.join)
	first := g.state == Empty
	g.take(PreparingRebalance, now)
	if first {
		delay := m.options().InitialRebalanceDelay
		g.joined = false
		m.awaitFirst(now, g, delay, max(g.rebalanceTimeout()-delay, 0))
		return
	}
	if g.allJoined() {
		m.generate(now, g, out)
		return
	}
	m.awaitJoins(now, g)
}

// awaitFirst waits for the members of a first generation: as long as some come, a delay more,
// up to the rebalance timeout.
func (m *Machine) awaitFirst(now coordinator.Instant, g *group, delay, remaining time.Duration) {
	g.join = coordinator.NewAlarm(func(now coordinator.Instant) (out coordinator.Effects) {
		if m.groups[g.id] != g {
			return out
		}
		if g.joined && remaining > 0 {
			g.joined = false
			m.awaitFirst(now, g, min(m.options().InitialRebalanceDelay, remaining), max(remaining-delay, 0))
			return out
		}
		m.generate(now, g, &out)
		return out
	})
	m.alarms.Set(g.join, now.Mono+delay)
}

func (m *Machine) awaitJoins(now coordinator.Instant, g *group) {
	g.join = coordinator.NewAlarm(func(now coordinator.Instant) (out coordinator.Effects) {
		if m.groups[g.id] == g {
			m.generate(now, g, &out)
		}
		return out
	})
	m.alarms.Set(g.join, now.Mono+g.rebalanceTimeout())
}

// finishJoins ends the wait for joins if all have come. The first rebalance of a group waits
// for its delay whatever happens.
func (m *Machine) finishJoins(now coordinator.Instant, g *group, out *coordinator.Effects) {
	if g.state == PreparingRebalance && g.previous != Empty && g.allJoined() {
		m.generate(now, g, out)
	}
}

// generate ends the wait for joins: members that have not come are out, except static ones,
// which have until the wait for SyncGroup ends; everybody gets the next generation.
func (m *Machine) generate(now coordinator.Instant, g *group, out *coordinator.Effects) {
	m.alarms.Cancel(g.join)
	if g.state != PreparingRebalance {
		return
	}
	for i := len(g.order) - 1; i >= 0; i-- {
		if mb := g.order[i]; mb.join == nil && mb.instance == nil {
			m.alarms.Cancel(mb.expiry)
			g.remove(mb)
		}
	}
	if len(g.order) > 0 && !g.electJoined() {
		m.awaitJoins(now, g) // only static members are left and none has come yet
		return
	}
	g.generation++
	clear(g.unsynced)
	if len(g.order) == 0 {
		g.protocol = nil
		g.take(Empty, now)
		g.subscribe()
		// Should the write fail, the members of before come back with a new coordinator, and
		// time out there.
		out.Records = append(out.Records, groupRecord(g, nil))
		return
	}
	g.protocol = g.choose()
	g.take(CompletingRebalance, now)
	g.subscribe()
	if g.unsynced == nil {
		g.unsynced = map[string]bool{}
	}
	for _, mb := range g.order {
		g.answerJoin(out, mb, g.joinAnswer(mb))
		m.renew(now, g, mb, mb.session)
		mb.fresh = false
		g.unsynced[mb.id] = true
	}
	m.awaitSyncs(now, g)
}

// electJoined makes a member that has joined the leader, if the leader has not.
func (g *group) electJoined() bool {
	if lead := g.members[g.leader]; lead != nil && lead.join != nil {
		return true
	}
	for _, mb := range g.order {
		if mb.join != nil {
			g.leader = mb.id
			return true
		}
	}
	return false
}

// renew gives a member until d from now before it is thrown out.
func (m *Machine) renew(now coordinator.Instant, g *group, mb *member, d time.Duration) {
	if mb.expiry == nil {
		mb.expiry = coordinator.NewAlarm(func(now coordinator.Instant) (out coordinator.Effects) {
			if m.groups[g.id] == g && g.members[mb.id] == mb {
				m.expire(now, g, mb, &out)
			}
			return out
		})
	}
	m.alarms.Set(mb.expiry, now.Mono+d)
}

// expire throws out a member that was not heard of. One whose request waits is here: its
// session begins anew with the answer. A fresh one is not known to be here even so.
func (m *Machine) expire(now coordinator.Instant, g *group, mb *member, out *coordinator.Effects) {
	if !mb.fresh && (mb.join != nil || mb.sync != nil) {
		return
	}
	m.drop(g, mb, out)
	m.departed(now, g, out)
}

// drop takes a member out. Its waiting JoinGroup is answered, so that it joins anew if it is
// there after all.
func (m *Machine) drop(g *group, mb *member, out *coordinator.Effects) {
	m.alarms.Cancel(mb.expiry)
	g.answerJoin(out, mb, JoinAnswer{Err: ErrUnknownMember, Generation: -1})
	g.answerSync(out, mb, SyncAnswer{Err: ErrUnknownMember})
	g.remove(mb)
}

// departed does what follows when members have gone.
func (m *Machine) departed(now coordinator.Instant, g *group, out *coordinator.Effects) {
	switch g.state {
	case Stable, CompletingRebalance:
		m.prepare(now, g, out)
	case PreparingRebalance:
		m.finishJoins(now, g, out)
	}
}
