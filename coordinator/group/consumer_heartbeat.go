package group

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"ottla/coordinator"
)

// ConsumerHeartbeatRequest is one ConsumerGroupHeartbeat (KIP-848). What is nil, and a Rebalance
// of -1, has not changed since the member's last request.
type ConsumerHeartbeatRequest struct {
	Group, MemberID string
	Epoch           int32 // 0 joins, -1 leaves, -2 leaves for a while
	InstanceID      *string
	RackID          *string
	Client          Client
	Rebalance       int32 // timeout in ms
	Topics          []string
	Regex           *string
	Assignor        *string
	Owned           Assignment
	NamesItself     bool   // v1 and later: the member chooses its id
	NewMemberID     string // random, for a member that has none
	Cluster         Topics
}

// ConsumerHeartbeatAnswer is the answer. Assignment is nil where it is not told.
type ConsumerHeartbeatAnswer struct {
	MemberID   string
	Epoch      int32
	Interval   time.Duration // until the next heartbeat
	Assignment Assignment
}

// check finds what is wrong with a request by itself (Kafka:
// throwIfConsumerGroupHeartbeatRequestIsInvalid).
func (r *ConsumerHeartbeatRequest) check(o *Options) error {
	invalid := func(text string) error { return because(ErrInvalidRequest, "%s", text) }
	empty := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	switch {
	case (r.NamesItself || r.Epoch > 0 || r.Epoch == leaveEpoch) && strings.TrimSpace(r.MemberID) == "":
		return invalid("MemberId can't be empty.")
	case strings.TrimSpace(r.Group) == "":
		return invalid("GroupId can't be empty.")
	case empty(r.InstanceID):
		return invalid("InstanceId can't be empty.")
	case empty(r.RackID):
		return invalid("RackId can't be empty.")
	case r.Epoch == 0 && r.Rebalance == -1:
		return invalid("RebalanceTimeoutMs must be provided in first request.")
	case r.Epoch == 0 && (r.Owned == nil || len(r.Owned) > 0):
		return invalid("TopicPartitions must be empty when (re-)joining.")
	case r.Epoch == 0 && r.Topics == nil && r.Regex == nil:
		return invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
	case r.Epoch == leaveStaticEpoch && r.InstanceID == nil:
		return invalid("InstanceId can't be null.")
	case r.Epoch < leaveStaticEpoch:
		return invalid("MemberEpoch is invalid.")
	case r.Assignor != nil && !slices.Contains(o.Consumer.Assignors, *r.Assignor):
		return because(ErrUnsupportedAssignor, "ServerAssignor %s is not supported. Supported assignors: %s.",
			*r.Assignor, strings.Join(o.Consumer.Assignors, ", "))
	}
	return nil
}

// checkRegex tells whether a new expression is one of RE2. Kafka looks at it last.
func (r *ConsumerHeartbeatRequest) checkRegex(old *string) error {
	if r.Regex == nil || *r.Regex == "" || old != nil && *old == *r.Regex {
		return nil
	}
	_, err := regexp.Compile(*r.Regex)
	if bad, ok := errors.AsType[*syntax.Error](err); ok {
		return because(ErrInvalidRegex, "SubscribedTopicRegex `%s` is not a valid regular expression: %s.", *r.Regex, bad.Code)
	}
	return err
}

// ConsumerHeartbeat lets a member join, go on or leave, and answers with a
// ConsumerHeartbeatAnswer.
func (m *Machine) ConsumerHeartbeat(now coordinator.Instant, r ConsumerHeartbeatRequest, to *coordinator.Ticket) coordinator.Effects {
	if err := r.check(m.options()); err != nil {
		return reply(to, nil, err)
	}
	r.Topics = slices.Clone(r.Topics)
	slices.Sort(r.Topics)
	r.Topics = slices.Compact(r.Topics)
	if r.MemberID == "" {
		r.MemberID = r.NewMemberID
	}
	return m.serially(now, r.Group, to, func(now coordinator.Instant) coordinator.Effects {
		if r.Epoch < 0 {
			return m.consumerLeave(now, r, to)
		}
		return m.consumerHeartbeat(now, r, to)
	})
}

// subscriber finds the member that a heartbeat is of, or makes it. replaced is the static member
// whose place it takes, nil for none.
func (c *consumerGroup) subscriber(r *ConsumerHeartbeatRequest) (mb, replaced *consumerMember, err error) {
	mb = c.members[r.MemberID]
	if r.InstanceID != nil {
		mb = c.members[c.instances[*r.InstanceID]]
		switch {
		case mb == nil && r.Epoch != 0:
			return nil, nil, noInstance(*r.InstanceID)
		case mb == nil: // new, or so far without an instance id
			mb = c.members[r.MemberID]
		case r.Epoch == 0 && mb.epoch != leaveStaticEpoch && mb.classic == nil:
			return nil, nil, because(ErrUnreleasedInstance, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.",
				r.MemberID, *r.InstanceID, mb.id)
		case mb.id == r.MemberID:
		case r.Epoch != 0:
			return nil, nil, notOwner(*r.InstanceID, r.MemberID, mb.id)
		default:
			next := *mb
			next.id, next.epoch, next.previous = r.MemberID, 0, 0
			return &next, mb, nil
		}
	}
	switch {
	case mb == nil && r.Epoch == 0:
		return &consumerMember{id: r.MemberID, rebalance: -1}, nil, nil
	case mb == nil:
		return nil, nil, notMember(r.Group, r.MemberID)
	case mb.epoch == leaveStaticEpoch && r.Epoch == 0: // the same process has come back
		next := *mb
		next.epoch, next.previous = 0, 0
		return &next, mb, nil
	}
	return mb, nil, mb.checkEpoch(r)
}

// checkEpoch tells whether a member may speak for its epoch. The one before will do if the
// answer with the new one can have been lost, and the member has nothing that it should not.
func (m *consumerMember) checkEpoch(r *ConsumerHeartbeatRequest) error {
	switch {
	case r.Epoch == 0 || r.Epoch == m.epoch:
		return nil
	case r.Epoch > m.epoch:
		return m.fenced("greater", r.Epoch)
	case r.Epoch != m.previous || r.Owned == nil:
		return m.fenced("smaller", r.Epoch)
	}
	for id, all := range r.Owned {
		for _, p := range all {
			if !m.assigned.has(id, p) {
				return m.fenced("smaller", r.Epoch)
			}
		}
	}
	return nil
}

func (m *consumerMember) fenced(how string, epoch int32) error {
	return because(ErrFencedMemberEpoch, "The consumer group member has a %s member epoch (%d) than the one known by the group coordinator (%d). "+
		"The member must abandon all its partitions and rejoin.", how, epoch, m.epoch)
}

// updated is a member with what a heartbeat tells; the same one if that is nothing new.
func (m *consumerMember) updated(r *ConsumerHeartbeatRequest) *consumerMember {
	u := *m
	if r.InstanceID != nil {
		u.instance = r.InstanceID
	}
	if r.RackID != nil {
		u.rack = r.RackID
	}
	if r.Rebalance != -1 {
		u.rebalance = r.Rebalance
	}
	if r.Assignor != nil {
		u.assignor = r.Assignor
	}
	if r.Topics != nil {
		u.topics = r.Topics
	}
	if r.Regex != nil {
		u.regex = r.Regex
	}
	if u.client, u.classic = r.Client, nil; u.told(m) {
		return m
	}
	return &u
}

func (m *Machine) consumerHeartbeat(now coordinator.Instant, r ConsumerHeartbeatRequest, to *coordinator.Ticket) coordinator.Effects {
	g, o := m.groups[r.Group], m.options()
	var records []coordinator.Record
	var was *group // the classic group that it is still
	c := newConsumerGroup()
	switch {
	case g != nil && g.consumer != nil:
		c = g.consumer
	case g != nil && r.Epoch != 0:
		return reply(to, nil, notConsumer(r.Group))
	case r.Epoch != 0:
		return reply(to, nil, because(ErrGroupNotFound, "Consumer group %s not found.", r.Group))
	case g != nil && !g.empty():
		var err error
		if c, records, err = upgraded(g, o, r.Cluster); err != nil {
			return reply(to, nil, err)
		}
		was = g
	case g != nil:
		records = append(records, groupTombstone(r.Group))
	}
	if c.full(o, r.MemberID, r.InstanceID) {
		return reply(to, nil, because(ErrGroupFull, "The consumer group has reached its maximum capacity of %d members.", o.Consumer.MaxSize))
	}
	mb, replaced, err := c.subscriber(&r)
	if err == nil {
		err = r.checkRegex(mb.regex)
	}
	if err != nil {
		return reply(to, nil, err)
	}
	s := newStep(r.Group, c, o, c.newer(r.Cluster), now)
	s.records = records
	if replaced != nil {
		s.replace(replaced, mb)
	}
	u := mb.updated(&r)
	s.subscribe(mb, u)
	s.target()
	next := s.reconcile(u, r.Owned)
	a := ConsumerHeartbeatAnswer{MemberID: next.id, Epoch: next.epoch, Interval: o.heartbeatInterval(r.Group)}
	whole := r.Epoch == 0 || r.Rebalance != -1 && (r.Topics != nil || r.Regex != nil) && r.Owned != nil
	if whole || !next.assigned.equal(mb.assigned) {
		a.Assignment = next.assigned
		if a.Assignment == nil {
			a.Assignment = Assignment{}
		}
	}
	after := func(now coordinator.Instant, err error) (none coordinator.Effects) {
		g := m.groups[r.Group]
		switch {
		case err != nil && was != nil && g == was:
			return m.resumeClassic(now, was)
		case err != nil || g == nil || g.consumer == nil:
			return none
		case was != nil:
			m.startConsumer(now, g)
		}
		m.reached(now, g, s, next.id)
		return none
	}
	answer := coordinator.Answer{To: to, Value: a}
	if len(s.records) == 0 {
		after(now, nil)
		return coordinator.Effects{Answers: []coordinator.Answer{answer}}
	}
	out := m.record(r.Group, s.records, answer, after)
	if was != nil {
		out.Answers = append(m.interrupt(was), out.Answers...)
	}
	return out
}
