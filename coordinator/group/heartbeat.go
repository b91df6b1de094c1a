package group

import (
	"ottla/coordinator"
)

// HeartbeatRequest is one Heartbeat.
type HeartbeatRequest struct {
	Group, MemberID string
	InstanceID      *string
	Generation      int32
}

// Heartbeat keeps a member's session alive, and tells it to join again while joins are
// awaited. Its answer is an error or nothing.
func (m *Machine) Heartbeat(now coordinator.Instant, r HeartbeatRequest, to *coordinator.Ticket) coordinator.Effects {
	if m.busy[r.Group] != nil {
		return m.serially(now, r.Group, to, func(now coordinator.Instant) coordinator.Effects { return m.Heartbeat(now, r, to) })
	}
	return reply(to, nil, m.heartbeat(now, r))
}

func (m *Machine) heartbeat(now coordinator.Instant, r HeartbeatRequest) error {
	if r.Group == "" {
		return ErrInvalidGroupID
	}
	g := m.groups[r.Group]
	if g == nil {
		return ErrUnknownMember
	}
	if g.consumer != nil {
		return m.heartbeatConsumer(now, g, r)
	}
	if err := g.check(r.MemberID, r.InstanceID); err != nil {
		return err
	}
	if r.Generation != g.generation {
		return ErrIllegalGeneration
	}
	mb := g.members[r.MemberID]
	m.renew(now, g, mb, mb.session)
	if g.state == PreparingRebalance {
		return ErrRebalanceInProgress
	}
	return nil
}

// reply is a step that only answers.
func reply(to *coordinator.Ticket, value any, err error) coordinator.Effects {
	return coordinator.Effects{Answers: []coordinator.Answer{{To: to, Value: value, Err: err}}}
}
