package group

import (
	"ottla/coordinator"
)

// Members of a consumer group that speak the classic protocol: what they are told is made from
// the group's epochs and assignments. Their generation is their epoch, they have no leader, and
// a heartbeat tells them to join again when there is something new for them. (Kafka:
// GroupMetadataManager.classicGroup…ToConsumerGroup.)

// joinConsumer lets a classic member join a consumer group that has members.
func (m *Machine) joinConsumer(now coordinator.Instant, g *group, r JoinRequest, to *coordinator.Ticket) coordinator.Effects {
	refuse := func(err error, id string) coordinator.Effects {
		return reply(to, JoinAnswer{Err: err, MemberID: id, Generation: -1}, nil)
	}
	c, o := g.consumer, m.options()
	id := r.MemberID
	if id == "" {
		id = r.NewMemberIDSuffix
	}
	switch {
	case !o.Consumer.Upgrade && !o.Consumer.Downgrade:
		return refuse(ErrInconsistentProtocol, r.MemberID)
	case c.full(o, r.MemberID, r.InstanceID):
		return refuse(ErrGroupFull, "")
	case !c.supports(r.ProtocolType, r.Protocols):
		return refuse(ErrInconsistentProtocol, r.MemberID)
	case r.MemberID == "" && r.InstanceID == nil && r.MemberIDRequired:
		return refuse(ErrMemberIDRequired, id)
	}
	mb, replaced, err := c.joiner(id, r.MemberID == "", r.InstanceID)
	if err != nil {
		return refuse(err, r.MemberID)
	}
	told, err := readSubscription(r.Protocols[0].Metadata)
	if err != nil {
		return refuse(ErrInconsistentProtocol, r.MemberID)
	}
	s := newStep(g.id, c, o, c.newer(r.Cluster), now)
	var holder *consumerMember
	if r.InstanceID != nil {
		holder = c.members[c.instances[*r.InstanceID]]
	}
	if replaced != nil {
		s.replace(replaced, mb)
	}
	u := mb.joined(&r, told)
	s.subscribe(mb, u)
	if holder != nil && holder.classic == nil && m.mayDowngrade(c, []*consumerMember{holder}, u) {
		return m.downgradeBy(now, g, s, u, holder, to)
	}
	s.target()
	next := s.reconcile(u, told.partitions(s.cluster))
	protocol, kind := r.Protocols[0].Name, consumerProtocol
	a := JoinAnswer{MemberID: next.id, Generation: next.epoch, ProtocolType: &kind, Protocol: &protocol}
	after := func(now coordinator.Instant, err error) (none coordinator.Effects) {
		g := m.groups[r.Group]
		if err != nil || g == nil || g.consumer == nil || g.consumer.members[next.id] == nil {
			return none
		}
		m.reached(now, g, s, next.id)
		t := g.consumer.timersOf(next.id)
		m.disarm(&t.join)
		m.arm(now, g, next.id, &t.sync, r.Rebalance)
		return none
	}
	if len(s.records) == 0 {
		after(now, nil)
		return reply(to, a, nil)
	}
	return m.record(g.id, s.records, coordinator.Answer{To: to, Value: a}, after)
}

// reached notes what holds once a step of a member is in the log.
func (m *Machine) reached(now coordinator.Instant, g *group, s *step, member string) {
	g.consumer.seen = s.cluster
	m.touch(now, g, member)
	if is := g.consumer.members[member]; is != nil {
		m.await(now, g, is)
	}
	if s.bumped {
		m.stats.ConsumerRebalances.Add(1)
	}
}

// full tells whether a member would be one too many. Who has a place may keep it.
func (c *consumerGroup) full(o *Options, member string, instance *string) bool {
	return len(c.members) >= o.Consumer.MaxSize && c.members[member] == nil && (instance == nil || c.instances[*instance] == "")
}

// newer is the later of two pictures of the topics: requests may overtake each other.
func (c *consumerGroup) newer(cluster Topics) Topics {
	if cluster == nil || c.seen != nil && c.seen.Version() > cluster.Version() {
		return c.seen
	}
	return cluster
}

// supports tells whether a classic member may join: it must have one protocol that all classic
// members have. Which one does not matter, for none of them assigns.
func (c *consumerGroup) supports(protocolType string, protocols []Protocol) bool {
	if protocolType != consumerProtocol {
		return false
	}
	for _, p := range protocols {
		all := true
		for _, mb := range c.members {
			all = all && (mb.classic == nil || mb.classic.has(p.Name))
		}
		if all {
			return true
		}
	}
	return false
}

// joiner finds the member that a JoinGroup is of, or makes it. replaced is the static member whose
// place it takes, of whichever protocol; nil for none.
func (c *consumerGroup) joiner(id string, fresh bool, instance *string) (mb, replaced *consumerMember, err error) {
	mb = c.members[id]
	if instance != nil {
		mb = c.members[c.instances[*instance]]
		switch {
		case mb == nil && !fresh:
			return nil, nil, ErrUnknownMember
		case mb != nil && !fresh && mb.id != id:
			return nil, nil, ErrFencedInstance
		case mb != nil && fresh:
			next := *mb
			next.id, next.epoch, next.previous = id, 0, 0
			return &next, mb, nil
		}
	}
	if mb == nil {
		mb = &consumerMember{id: id, rebalance: -1}
	}
	return mb, nil, nil
}

// joined is a member with what a JoinGroup tells; the same one if that is nothing new.
func (m *consumerMember) joined(r *JoinRequest, told subscription) *consumerMember {
	u := *m
	if r.InstanceID != nil {
		u.instance = r.InstanceID
	}
	if told.rack != nil {
		u.rack = told.rack
	}
	none := ""
	u.rebalance, u.topics, u.regex, u.client = millis(r.Rebalance), told.topics, &none, r.Client
	u.classic = &classicSide{r.Session, r.Protocols}
	if u.told(m) {
		return m
	}
	return &u
}

// classicMember finds the classic member that a request is of.
func (c *consumerGroup) classicMember(id string, instance *string) (*consumerMember, error) {
	mb, err := c.member(id, instance)
	if err == nil && mb.classic == nil {
		return nil, ErrUnknownMember
	}
	return mb, err
}

// member finds the member that a request is of; one with an instance id must have it still.
func (c *consumerGroup) member(id string, instance *string) (*consumerMember, error) {
	mb := c.members[id]
	if instance != nil {
		if mb = c.members[c.instances[*instance]]; mb != nil && mb.id != id {
			return nil, ErrFencedInstance
		}
	}
	if mb == nil {
		return nil, ErrUnknownMember
	}
	return mb, nil
}

// syncConsumer tells a classic member which partitions it has.
func (m *Machine) syncConsumer(now coordinator.Instant, g *group, r SyncRequest) SyncAnswer {
	c := g.consumer
	mb, err := c.classicMember(r.MemberID, r.InstanceID)
	if err != nil {
		return SyncAnswer{Err: err}
	}
	first := mb.classic.protocols[0]
	switch {
	case r.Generation != mb.epoch:
		return SyncAnswer{Err: ErrIllegalGeneration}
	case r.ProtocolType != nil && *r.ProtocolType != consumerProtocol || r.Protocol != nil && *r.Protocol != first.Name:
		return SyncAnswer{Err: ErrInconsistentProtocol}
	case c.epoch > mb.epoch && mb.state != memberUnrevoked: // else it has to give back first
		m.awaitJoin(now, g, mb)
		return SyncAnswer{Err: ErrRebalanceInProgress}
	}
	m.disarm(&c.timersOf(mb.id).sync)
	m.touch(now, g, mb.id)
	return SyncAnswer{ProtocolType: r.ProtocolType, Protocol: r.Protocol, Assignment: appendAssigned(mb.assigned, first.Metadata, c.names(c.newer(r.Cluster)))}
}

// heartbeatConsumer keeps a classic member's session alive, and tells it to join again when the
// group has a new epoch, when it has to give partitions back, or when those that it waits for
// are free.
func (m *Machine) heartbeatConsumer(now coordinator.Instant, g *group, r HeartbeatRequest) error {
	c := g.consumer
	mb, err := c.classicMember(r.MemberID, r.InstanceID)
	if err != nil {
		return err
	}
	if r.Generation != mb.epoch {
		return ErrIllegalGeneration
	}
	m.touch(now, g, mb.id)
	if mb.epoch < c.epoch || mb.state == memberUnrevoked || mb.state == memberUnreleased && !c.waits(mb) {
		m.awaitJoin(now, g, mb)
		return ErrRebalanceInProgress
	}
	return nil
}

// waits tells whether others still have partitions of the member's target.
func (c *consumerGroup) waits(mb *consumerMember) bool {
	for id, all := range c.targets[mb.id] {
		for _, p := range all {
			if _, taken := c.owners[topicPartition{id, p}]; taken && !mb.assigned.has(id, p) {
				return true
			}
		}
	}
	return false
}

// awaitJoin gives a classic member its rebalance timeout to join again, if it does not run yet.
func (m *Machine) awaitJoin(now coordinator.Instant, g *group, mb *consumerMember) {
	if t := g.consumer.timersOf(mb.id); !t.join.set {
		m.arm(now, g, mb.id, &t.join, duration(mb.rebalance))
	}
}

// leaveConsumer takes members of either protocol out of a consumer group, as administrators may.
func (m *Machine) leaveConsumer(now coordinator.Instant, g *group, r LeaveRequest, to *coordinator.Ticket) coordinator.Effects {
	c := g.consumer
	errs := make([]error, len(r.Members))
	gone := map[string]bool{}
	var all []*consumerMember
	for i, l := range r.Members {
		id := l.MemberID
		if id == "" && l.InstanceID != nil {
			id = c.instances[*l.InstanceID]
		}
		mb, err := c.member(id, l.InstanceID)
		if errs[i] = err; err == nil && !gone[mb.id] {
			gone[mb.id] = true
			all = append(all, mb)
		}
	}
	if len(all) == 0 {
		return reply(to, errs, nil)
	}
	return m.fence(now, g, all, c.newer(r.Cluster), coordinator.Answer{To: to, Value: errs}, nil)
}
