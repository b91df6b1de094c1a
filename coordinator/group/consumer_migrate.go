package group

import (
	"slices"
	"time"

	"ottla/coordinator"
)

// A classic group becomes a consumer group when the first member of the consumer protocol joins,
// and the other way when the last one is gone, if group.consumer.migration.policy allows it
// (KIP-848; Kafka: GroupMetadataManager.convertToConsumerGroup and convertToClassicGroup).

// upgraded is the consumer group that a classic group with members becomes, and its records. All
// members are stable in the group's generation, with what its leader gave them last, and with what
// they told to have when they joined, unless that is another's: while the group rebalances,
// members have partitions that are not in their assignment.
func upgraded(g *group, o *Options, cluster Topics) (*consumerGroup, []coordinator.Record, error) {
	if !o.Consumer.Upgrade || g.protocolType != consumerProtocol || len(g.order) > o.Consumer.MaxSize {
		return nil, nil, ErrGroupNotFound
	}
	c := newConsumerGroup()
	c.epoch, c.targetAt = g.generation, g.generation
	var owned []subscription
	for _, old := range g.order {
		metadata := old.metadata(g.protocol)
		if metadata == nil && len(old.protocols) > 0 { // it joined since, and has another
			metadata = old.protocols[0].Metadata
		}
		told, err := readSubscription(metadata)
		if err != nil {
			return nil, nil, ErrGroupNotFound
		}
		has, err := readAssigned(old.assignment, cluster)
		if err != nil {
			return nil, nil, ErrGroupNotFound
		}
		mb := &consumerMember{id: old.id, instance: old.instance, client: old.client, rack: told.rack, topics: told.topics, rebalance: millis(old.rebalance),
			classic: &classicSide{old.session, old.protocols}, epoch: g.generation, previous: g.generation, assigned: has,
			since: map[topicPartition]int32{}}
		owned = append(owned, told)
		c.put(mb)
	}
	for i, old := range g.order {
		mb := *c.members[old.id]
		for id, all := range owned[i].partitions(cluster) {
			for _, p := range all {
				if _, taken := c.owners[topicPartition{id, p}]; !taken {
					mb.assigned.add(id, p)
				}
			}
		}
		for id, all := range mb.assigned {
			for _, p := range all {
				mb.since[topicPartition{id, p}] = g.generation
			}
		}
		c.put(&mb)
		c.targets[mb.id] = mb.assigned
	}
	records := []coordinator.Record{groupTombstone(g.id)}
	sorted := c.sorted()
	for _, mb := range sorted {
		records = append(records, memberRecord(g.id, mb))
	}
	records = append(records, epochRecord(g.id, c.epoch, 0))
	for _, mb := range sorted {
		records = append(records, targetOfRecord(g.id, mb.id, mb.assigned))
	}
	records = append(records, targetRecord(g.id, c.targetAt, 0))
	for _, mb := range sorted {
		records = append(records, currentRecord(g.id, mb))
	}
	return c, records, nil
}

// interrupt ends what a classic group waits for: it is about to become a consumer group. Members
// that wait are told to join again.
func (m *Machine) interrupt(g *group) []coordinator.Answer {
	var out coordinator.Effects
	for _, mb := range g.order {
		g.answerJoin(&out, mb, JoinAnswer{Err: ErrRebalanceInProgress, MemberID: mb.id, Generation: -1})
		g.answerSync(&out, mb, SyncAnswer{Err: ErrRebalanceInProgress})
	}
	m.silence(g)
	g.pending = nil
	return out.Answers
}

// resumeClassic lets a group that was interrupted go on, as it stays what it is.
func (m *Machine) resumeClassic(now coordinator.Instant, g *group) (out coordinator.Effects) {
	for _, mb := range g.order {
		m.renew(now, g, mb, mb.session)
	}
	switch g.state {
	case PreparingRebalance:
		m.awaitJoins(now, g)
	case CompletingRebalance:
		m.prepare(now, g, &out)
	}
	return out
}

// mayDowngrade tells whether a group becomes a classic one when members are gone, or when joiner
// has taken their place: all others are classic then, and there are some.
func (m *Machine) mayDowngrade(c *consumerGroup, gone []*consumerMember, joiner *consumerMember) bool {
	o, left := m.options(), len(c.members)-len(gone)
	if joiner != nil {
		left++
	}
	if left == 0 || !o.Consumer.Downgrade || left > o.MaxSize {
		return false
	}
	for _, mb := range c.members {
		if mb.classic == nil && !slices.Contains(gone, mb) {
			return false
		}
	}
	return true
}

// downgraded is the classic group that members of a consumer group become. Their assignments are what
// they have, and not their targets, which others may have still. Without a leader it is a group that
// has yet to rebalance, also after it was loaded.
func downgraded(now coordinator.Instant, g *group, members []*consumerMember, cluster Topics, rebalance bool) *group {
	c := g.consumer
	made := newGroup(g.id)
	has := map[string]Assignment{}
	made.take(Stable, now)
	made.generation, made.protocolType = c.epoch, consumerProtocol
	for _, mb := range members {
		made.add(&member{id: mb.id, instance: mb.instance, client: mb.client, rebalance: duration(mb.rebalance),
			session: mb.classic.session, protocols: mb.classic.protocols})
		has[mb.id] = mb.has()
	}
	made.protocol = made.choose()
	names := c.names(cluster)
	for _, mb := range made.order {
		mb.assignment = appendAssigned(has[mb.id], mb.metadata(made.protocol), names)
	}
	if rebalance {
		made.leader = ""
	}
	made.subscribe()
	return made
}

// downgrade writes that a consumer group is a classic one from now on. failed is as for fence.
func (m *Machine) downgrade(g, made *group, answer coordinator.Answer, failed func(coordinator.Instant)) coordinator.Effects {
	records := append(tombstonesOf(g), groupRecord(made, func(mb *member) []byte { return mb.assignment }))
	return m.record(g.id, records, answer, func(now coordinator.Instant, err error) (out coordinator.Effects) {
		if err != nil {
			if failed != nil {
				failed(now)
			}
			return out
		}
		is := m.groups[g.id]
		if is == nil || is.consumer != nil {
			return out
		}
		m.silence(is)
		made.offsets = is.offsets
		m.groups[g.id] = made // knows all protocols of its members
		for _, mb := range made.order {
			m.renew(now, made, mb, mb.session)
		}
		if made.leader == "" {
			m.prepare(now, made, &out)
		}
		return out
	})
}

// downgradeBy lets a classic member take the place of holder, the last of the consumer protocol.
// Where all have what they are to have, the others are not troubled.
func (m *Machine) downgradeBy(now coordinator.Instant, g *group, s *step, u, holder *consumerMember, to *coordinator.Ticket) coordinator.Effects {
	rebalance := s.epoch > s.at || !u.has().equal(s.targets[u.id])
	members := []*consumerMember{u}
	for _, mb := range g.consumer.sorted() {
		if mb != holder {
			members = append(members, mb)
			rebalance = rebalance || !mb.settled(s.at)
		}
	}
	made := downgraded(now, g, members, s.cluster, rebalance)
	kind, protocol := consumerProtocol, u.classic.protocols[0].Name
	a := JoinAnswer{MemberID: u.id, Generation: made.generation, ProtocolType: &kind, Protocol: &protocol}
	return m.downgrade(g, made, coordinator.Answer{To: to, Value: a}, nil)
}

// fence takes members out of their consumer group, and answers once that is in the log. The next
// heartbeat or join of another makes the target of the epoch that this begins. failed is called
// when it could not be written; nil: nothing is.
func (m *Machine) fence(now coordinator.Instant, g *group, gone []*consumerMember, cluster Topics, answer coordinator.Answer,
	failed func(coordinator.Instant)) coordinator.Effects {
	c := g.consumer
	if m.mayDowngrade(c, gone, nil) {
		var members []*consumerMember
		for _, mb := range c.sorted() {
			if !slices.Contains(gone, mb) {
				members = append(members, mb)
			}
		}
		return m.downgrade(g, downgraded(now, g, members, cluster, true), answer, failed)
	}
	return m.record(g.id, m.without(g, gone), answer, func(now coordinator.Instant, err error) (none coordinator.Effects) {
		if err != nil && failed != nil {
			failed(now)
		}
		return none
	})
}

// arm sets a member's deadline to a while from now: it is out if it does not do until then what
// disarms it.
func (m *Machine) arm(now coordinator.Instant, g *group, member string, d *deadline, wait time.Duration) {
	if d.alarm == nil {
		d.alarm = coordinator.NewAlarm(func(now coordinator.Instant) coordinator.Effects { return m.fenceLate(now, g, member, d) })
	}
	d.at, d.set = now.Mono+wait, true
	m.alarms.Set(d.alarm, d.at)
}

func (m *Machine) disarm(d *deadline) {
	d.set = false
	m.alarms.Cancel(d.alarm)
}
