package group

import (
	"ottla/coordinator"
)

// LeaveRequest is one LeaveGroup; before version 3 it has one member.
type LeaveRequest struct {
	Group   string
	Members []Leaver
	Cluster Topics // for members of consumer groups; nil: as it was seen last
}

// Leaver names a member by its id, or by its instance id alone, as administrators do.
type Leaver struct {
	MemberID   string
	InstanceID *string
}

// Leave takes members out and answers with one error, or nil, for each ([]error).
func (m *Machine) Leave(now coordinator.Instant, r LeaveRequest, to *coordinator.Ticket) coordinator.Effects {
	if r.Group == "" {
		return reply(to, nil, ErrInvalidGroupID)
	}
	if m.busy[r.Group] != nil {
		return m.serially(now, r.Group, to, func(now coordinator.Instant) coordinator.Effects { return m.Leave(now, r, to) })
	}
	errs := make([]error, len(r.Members))
	g := m.groups[r.Group]
	if g != nil && g.consumer != nil {
		return m.leaveConsumer(now, g, r, to)
	}
	if g == nil {
		for i := range errs {
			errs[i] = ErrUnknownMember
		}
		return reply(to, errs, nil)
	}
	var out coordinator.Effects
	left := false
	for i, l := range r.Members {
		errs[i] = m.leave(g, l, &out)
		left = left || errs[i] == nil
	}
	// Last among the answers: the others learn first that they are out.
	if left {
		m.departed(now, g, &out)
	}
	out.Answers = append(out.Answers, coordinator.Answer{To: to, Value: errs})
	return out
}

func (m *Machine) leave(g *group, l Leaver, out *coordinator.Effects) error {
	id := l.MemberID
	if id == "" {
		if l.InstanceID == nil {
			return ErrUnknownMember
		}
		holder, ok := g.instances[*l.InstanceID]
		if !ok {
			return ErrUnknownMember
		}
		id = holder
	} else if m.forgetPending(g, id) {
		return nil
	} else if err := g.check(id, l.InstanceID); err != nil {
		return err
	}
	m.drop(g, g.members[id], out)
	return nil
}
