package group

import (
	"maps"
	"slices"

	"ottla/coordinator"
)

// consumerLeave takes a member out, or notes that a static one is away for a while.
func (m *Machine) consumerLeave(now coordinator.Instant, r ConsumerHeartbeatRequest, to *coordinator.Ticket) coordinator.Effects {
	g := m.groups[r.Group]
	switch {
	case g == nil:
		return reply(to, nil, notFound(r.Group))
	case g.consumer == nil:
		return reply(to, nil, notConsumer(r.Group))
	}
	mb := g.consumer.members[r.MemberID]
	if r.InstanceID != nil {
		mb = g.consumer.members[g.consumer.instances[*r.InstanceID]]
		switch {
		case mb == nil:
			return reply(to, nil, noInstance(*r.InstanceID))
		case mb.id != r.MemberID:
			return reply(to, nil, notOwner(*r.InstanceID, r.MemberID, mb.id))
		}
	}
	if mb == nil {
		return reply(to, nil, notMember(r.Group, r.MemberID))
	}
	answer := coordinator.Answer{To: to, Value: ConsumerHeartbeatAnswer{MemberID: mb.id, Epoch: r.Epoch}}
	if r.Epoch == leaveStaticEpoch {
		away := *mb
		away.epoch, away.revoking, away.since = leaveStaticEpoch, nil, maps.Clone(mb.since)
		for id, all := range mb.revoking {
			for _, p := range all {
				delete(away.since, topicPartition{id, p})
			}
		}
		return m.record(g.id, []coordinator.Record{currentRecord(g.id, &away)}, answer, nil)
	}
	return m.fence(now, g, []*consumerMember{mb}, g.consumer.newer(r.Cluster), answer, nil)
}

// without is what takes members out of their group.
func (m *Machine) without(g *group, gone []*consumerMember) []coordinator.Record {
	s := newStep(g.id, g.consumer, m.options(), g.consumer.seen, coordinator.Instant{})
	for _, mb := range gone {
		s.drop(mb)
	}
	used := map[string]bool{}
	for _, other := range s.members {
		used[other.pattern()] = true
	}
	for _, p := range slices.Sorted(maps.Keys(s.regexes)) {
		if !used[p] {
			s.records = append(s.records, tombstone(keyConsumerRegex, g.id, p))
		}
	}
	hash := s.hash
	if len(s.members) == 0 {
		hash = 0
	} else if s.cluster != nil { // else no heartbeat has told of the topics yet; the next one will
		hash = s.fingerprint()
	}
	s.records = append(s.records, epochRecord(g.id, s.epoch+1, hash))
	if len(s.members) == 0 {
		s.records = append(s.records, targetRecord(g.id, s.epoch+1, 0))
	}
	return s.records
}

// tombstonesOf is what deletes a group, of either kind.
func tombstonesOf(g *group) []coordinator.Record {
	c := g.consumer
	if c == nil {
		return []coordinator.Record{groupTombstone(g.id)}
	}
	var all []coordinator.Record
	for _, kind := range []int16{keyConsumerCurrent, keyConsumerTargetOf} {
		for _, mb := range c.sorted() {
			all = append(all, tombstone(kind, g.id, mb.id))
		}
	}
	all = append(all, tombstone(keyConsumerTarget, g.id, ""))
	for _, mb := range c.sorted() {
		all = append(all, tombstone(keyConsumerMember, g.id, mb.id))
	}
	for _, p := range slices.Sorted(maps.Keys(c.regexes)) {
		all = append(all, tombstone(keyConsumerRegex, g.id, p))
	}
	if c.partitions {
		all = append(all, tombstone(keyConsumerPartitions, g.id, ""))
	}
	return append(all, tombstone(keyConsumerGroup, g.id, ""))
}
