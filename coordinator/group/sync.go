package group

import (
	"ottla/coordinator"
)

// SyncRequest is one SyncGroup. Byte slices are kept.
type SyncRequest struct {
	Group, MemberID string
	InstanceID      *string
	Generation      int32
	ProtocolType    *string // v5; nil: not said
	Protocol        *string // v5
	Assignment      []Assigned
	Cluster         Topics // for members of consumer groups; nil: as it was seen last
}

// Assigned is what the leader gives one member.
type Assigned struct {
	MemberID string
	Data     []byte
}

// SyncAnswer is the answer to SyncGroup: exactly the bytes that the leader sent for the member.
type SyncAnswer struct {
	Err          error
	ProtocolType *string
	Protocol     *string
	Assignment   []byte
}

// Sync takes the leader's assignment, and answers each member with its part once the
// assignment is committed.
func (m *Machine) Sync(now coordinator.Instant, r SyncRequest, to *coordinator.Ticket) coordinator.Effects {
	var out coordinator.Effects
	answer := func(a SyncAnswer) coordinator.Effects {
		out.Answers = append(out.Answers, coordinator.Answer{To: to, Value: a})
		return out
	}
	if r.Group == "" {
		return answer(SyncAnswer{Err: ErrInvalidGroupID})
	}
	if m.busy[r.Group] != nil {
		return m.serially(now, r.Group, to, func(now coordinator.Instant) coordinator.Effects { return m.Sync(now, r, to) })
	}
	g := m.groups[r.Group]
	if g != nil && g.consumer != nil {
		return answer(m.syncConsumer(now, g, r))
	}
	if g == nil || g.state == Empty {
		return answer(SyncAnswer{Err: ErrUnknownMember})
	}
	if err := g.check(r.MemberID, r.InstanceID); err != nil {
		return answer(SyncAnswer{Err: err})
	}
	switch {
	case r.Generation != g.generation:
		return answer(SyncAnswer{Err: ErrIllegalGeneration})
	case differs(r.ProtocolType, &g.protocolType) || differs(r.Protocol, g.protocol):
		return answer(SyncAnswer{Err: ErrInconsistentProtocol})
	}
	mb := g.members[r.MemberID]
	switch g.state {
	case PreparingRebalance:
		return answer(SyncAnswer{Err: ErrRebalanceInProgress})
	case Stable:
		m.synced(g, mb)
		return answer(g.syncAnswer(mb))
	}
	mb.sync = to
	m.synced(g, mb)
	if g.leader != mb.id {
		return out
	}
	assigned := map[string][]byte{}
	for _, a := range r.Assignment {
		assigned[a.MemberID] = a.Data
	}
	out.Records = append(out.Records, groupRecord(g, func(o *member) []byte { return assigned[o.id] }))
	out.Then = func(c coordinator.Commit) (out coordinator.Effects) {
		// Somebody may have joined meanwhile; then this assignment is of no use.
		if m.groups[g.id] != g || g.state != CompletingRebalance || g.generation != r.Generation {
			return out
		}
		if c.Err != nil {
			m.propagate(c.Now, g, &out, c.Err, nil)
			m.prepare(c.Now, g, &out)
			return out
		}
		m.propagate(c.Now, g, &out, nil, assigned)
		g.take(Stable, c.Now)
		m.stats.Rebalances.Add(1)
		return out
	}
	return out
}

// differs tells whether a member says something else than the group has; nil says nothing.
func differs(said, has *string) bool {
	return said != nil && has != nil && *has != "" && *said != *has
}

// synced notes that a member has sent SyncGroup.
func (m *Machine) synced(g *group, mb *member) {
	delete(g.unsynced, mb.id)
	if len(g.unsynced) == 0 {
		m.alarms.Cancel(g.sync)
	}
}

// awaitSyncs throws out, after the rebalance timeout, the members that have not sent SyncGroup
// for this generation (KAFKA-12890).
func (m *Machine) awaitSyncs(now coordinator.Instant, g *group) {
	generation := g.generation
	m.alarms.Cancel(g.sync)
	g.sync = coordinator.NewAlarm(func(now coordinator.Instant) (out coordinator.Effects) {
		if m.groups[g.id] != g || g.generation != generation || len(g.unsynced) == 0 ||
			g.state != CompletingRebalance && g.state != Stable {
			return out
		}
		for i := len(g.order) - 1; i >= 0; i-- {
			if mb := g.order[i]; g.unsynced[mb.id] {
				m.drop(g, mb, &out)
			}
		}
		m.prepare(now, g, &out)
		return out
	})
	m.alarms.Set(g.sync, now.Mono+g.rebalanceTimeout())
}

// propagate gives every member its assignment, or takes it away with an error, and answers
// those who wait for it; their sessions begin anew.
func (m *Machine) propagate(now coordinator.Instant, g *group, out *coordinator.Effects, err error, assigned map[string][]byte) {
	for _, mb := range g.order {
		mb.assignment = assigned[mb.id]
		a := g.syncAnswer(mb)
		if err != nil {
			a = SyncAnswer{Err: err}
		}
		if g.answerSync(out, mb, a) {
			m.renew(now, g, mb, mb.session)
		}
	}
}

func (g *group) syncAnswer(mb *member) SyncAnswer {
	a := SyncAnswer{Protocol: g.protocol, Assignment: mb.assignment}
	if t := g.protocolType; t != "" {
		a.ProtocolType = &t
	}
	return a
}
