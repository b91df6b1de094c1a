package group

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"ottla/coordinator"
)

// CommitRequest is one OffsetCommit. Topics hold only partitions that exist.
type CommitRequest struct {
	Group, MemberID string
	InstanceID      *string
	Generation      int32
	NewErrors       bool          // v9 and later: an unknown group is ErrGroupNotFound, and consumer groups may commit
	Retention       time.Duration // v2 to v4; below 0: by offsets.retention.minutes
	Topics          []CommitTopic
}

// CommitTopic is a topic of a CommitRequest.
type CommitTopic struct {
	Name       string
	ID         [16]byte // zero: unknown
	Partitions []CommitPartition
}

// CommitPartition is one offset to keep.
type CommitPartition struct {
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Time        int64 // v1: milliseconds since 1970 instead of now; -1: now
	Metadata    string
}

// Commit keeps offsets and answers with one error, or nil, for each partition in the order of
// the request ([][]error by topic).
func (m *Machine) Commit(now coordinator.Instant, r CommitRequest, to *coordinator.Ticket) coordinator.Effects {
	g, err := m.mayCommit(r)
	if err != nil {
		return reply(to, nil, err)
	}
	if g != nil && (g.state == Stable || g.state == PreparingRebalance) {
		if mb := g.members[r.MemberID]; mb != nil { // a commit is a sign of life
			m.renew(now, g, mb, mb.session)
		}
	}
	o := m.options()
	expires := int64(-1)
	if r.Retention >= 0 {
		expires = now.Wall + r.Retention.Milliseconds()
	}
	var out coordinator.Effects
	type kept struct {
		at place
		o  offset
	}
	errs, n := noErrors(r.Topics)
	all := make([]kept, 0, n)
	out.Records = make([]coordinator.Record, 0, n)
	for i, t := range r.Topics {
		for j, p := range t.Partitions {
			if !o.MetadataFits(p.Metadata) {
				errs[i][j] = ErrMetadataTooLarge
				continue
			}
			k := kept{place{r.Group, t.Name, p.Partition}, offset{at: p.Offset, epoch: p.LeaderEpoch, metadata: p.Metadata,
				committed: now.Wall, expires: expires, topicID: t.ID}}
			if p.Time >= 0 {
				k.o.committed = p.Time
			}
			all = append(all, k)
			out.Records = append(out.Records, offsetRecord(k.at, k.o))
		}
	}
	out.Answers = []coordinator.Answer{{To: to, Value: errs}}
	out.Then = func(c coordinator.Commit) (none coordinator.Effects) {
		if c.Err != nil {
			return none
		}
		for i, k := range all {
			k.o.record = c.Offsets[i]
			m.keepOffset(k.at, k.o)
		}
		m.stats.Commits.Add(int64(len(all)))
		return none
	}
	return out
}

// noErrors has room for an error of each of the partitions, and their number.
func noErrors(topics []CommitTopic) (errs [][]error, n int) {
	for i := range topics {
		n += len(topics[i].Partitions)
	}
	all := make([]error, n)
	errs = make([][]error, len(topics))
	for i := range topics {
		errs[i], all = all[:len(topics[i].Partitions):len(topics[i].Partitions)], all[len(topics[i].Partitions):]
	}
	return errs, n
}

// mayCommit tells whether a commit may pass (Kafka: ClassicGroup.validateOffsetCommit). A group
// that does not exist comes to be by a commit without a generation: a simple group.
func (m *Machine) mayCommit(r CommitRequest) (*group, error) {
	g := m.groups[r.Group]
	switch {
	case g == nil && r.Generation < 0:
		return nil, nil
	case g == nil && r.NewErrors:
		return nil, ErrGroupNotFound
	case g == nil:
		return nil, ErrIllegalGeneration
	case g.consumer != nil:
		return g, g.consumer.mayCommit(r, r.NewErrors)
	case r.Generation < 0 && g.state == Empty:
		return g, nil // an administrator, or a consumer that manages its partitions itself
	case r.Generation >= 0 || r.MemberID != "" || r.InstanceID != nil:
		if err := g.check(r.MemberID, r.InstanceID); err != nil {
			return nil, err
		}
		if r.Generation != g.generation {
			return nil, ErrIllegalGeneration
		}
	default:
		return nil, ErrUnknownMember
	}
	if g.state == CompletingRebalance {
		return nil, ErrRebalanceInProgress
	}
	return g, nil
}

// mayCommit tells whether a commit may pass (Kafka: ConsumerGroup.validateOffsetCommit). able is
// false for a version that members of consumer groups may not use.
func (c *consumerGroup) mayCommit(r CommitRequest, able bool) error {
	if r.Generation < 0 && len(c.members) == 0 {
		return nil
	}
	mb := c.members[r.MemberID]
	switch {
	case mb == nil:
		return ErrUnknownMember
	case mb.classic == nil && !able:
		return ErrUnsupportedVersion
	case r.Generation == mb.epoch:
		return nil
	}
	stale := ErrStaleMemberEpoch
	if mb.classic != nil {
		stale = ErrIllegalGeneration
	}
	if r.Generation > mb.epoch {
		return stale
	}
	for _, t := range r.Topics { // an epoch of before will do for what the member has had since
		for _, p := range t.Partitions {
			if since, has := mb.since[topicPartition{t.ID, p.Partition}]; !has || r.Generation < since {
				return stale
			}
		}
	}
	return nil
}

// mayFetch tells whether a fetch may pass (Kafka: ConsumerGroup.validateOffsetFetch).
func (c *consumerGroup) mayFetch(r FetchRequest) error {
	if r.MemberID == nil && r.MemberEpoch < 0 {
		return nil
	}
	if r.MemberID == nil {
		return ErrUnknownMember
	}
	mb := c.members[*r.MemberID]
	switch {
	case mb == nil:
		return ErrUnknownMember
	case mb.epoch == r.MemberEpoch:
		return nil
	case mb.classic != nil:
		return ErrIllegalGeneration
	}
	return ErrStaleMemberEpoch
}

// FetchRequest asks for the offsets of one group; Topics nil: all of them. A member of a consumer
// group says who it is.
type FetchRequest struct {
	Group         string
	MemberID      *string
	MemberEpoch   int32 // below 0 with a nil MemberID: not a member
	Topics        []FetchTopic
	RequireStable bool // offsets that an open transaction is about to change are ErrUnstableOffset (KIP-447)
}

// FetchTopic is a topic of a FetchRequest. An offset that was committed for another topic of
// the same name is not told, where both ids are known.
type FetchTopic struct {
	Name       string
	ID         [16]byte
	Partitions []int32
}

// FetchedTopic is a topic of the answer; ID is zero where it was not kept with the offsets.
type FetchedTopic struct {
	Name       string
	ID         [16]byte
	Partitions []FetchedOffset
}

// FetchedOffset is one offset; Offset is -1 where there is none.
type FetchedOffset struct {
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Metadata    string
	Err         error
}

// Fetch answers with []FetchedTopic. An unknown group has no offsets, which is no error.
func (m *Machine) Fetch(_ coordinator.Instant, r FetchRequest, to *coordinator.Ticket) coordinator.Effects {
	var offsets map[string]map[int32]offset
	if g := m.groups[r.Group]; g != nil {
		if g.consumer != nil {
			if err := g.consumer.mayFetch(r); err != nil {
				return reply(to, nil, err)
			}
		}
		offsets = g.offsets
	}
	one := func(topic string, id [16]byte, partition int32) FetchedOffset {
		f := FetchedOffset{Partition: partition, Offset: -1, LeaderEpoch: -1}
		o, ok := offsets[topic][partition]
		switch {
		case r.RequireStable && m.isOpen(place{r.Group, topic, partition}):
			f.Err = ErrUnstableOffset
		case ok && !otherID(o.topicID, id):
			f.Offset, f.LeaderEpoch, f.Metadata = o.at, o.epoch, o.metadata
		}
		return f
	}
	topics := r.Topics
	if topics == nil {
		for _, name := range slices.Sorted(maps.Keys(offsets)) {
			t := FetchTopic{Name: name, Partitions: slices.Sorted(maps.Keys(offsets[name]))}
			t.ID = offsets[name][t.Partitions[0]].topicID
			topics = append(topics, t)
		}
	}
	out := make([]FetchedTopic, len(topics))
	for i, t := range topics {
		out[i] = FetchedTopic{Name: t.Name, ID: t.ID, Partitions: make([]FetchedOffset, len(t.Partitions))}
		id := t.ID
		if r.Topics == nil {
			id = [16]byte{}
		}
		for j, p := range t.Partitions {
			out[i].Partitions[j] = one(t.Name, id, p)
		}
	}
	return reply(to, out, nil)
}

func otherID(a, b [16]byte) bool { return a != b && a != [16]byte{} && b != [16]byte{} }

// DeleteOffsets forgets offsets and answers with one error, or nil, for each partition in the
// order of the request ([][]error by topic). It must run as an exclusive step.
func (m *Machine) DeleteOffsets(_ coordinator.Instant, group string, topics []FetchTopic, to *coordinator.Ticket) coordinator.Effects {
	g := m.groups[group]
	switch {
	case group == "":
		return reply(to, nil, ErrInvalidGroupID)
	case g == nil:
		return reply(to, nil, ErrGroupNotFound)
	case g.consumer == nil && g.state != Empty && g.protocolType != consumerProtocol:
		return reply(to, nil, ErrNonEmptyGroup)
	}
	var gone []place
	errs := make([][]error, len(topics))
	for i, t := range topics {
		errs[i] = make([]error, len(t.Partitions))
		for j, p := range t.Partitions {
			at := place{group, t.Name, p}
			switch _, ok := g.offsets[t.Name][p]; {
			case g.subscribes(t.Name):
				errs[i][j] = ErrSubscribed
			case ok || m.isOpen(at):
				gone = append(gone, at)
			}
		}
	}
	out := m.tombstones(gone, nil, &m.stats.Deleted)
	out.Answers = append(out.Answers, coordinator.Answer{To: to, Value: errs})
	return out
}

// DeleteGroups deletes groups without members, their offsets with them, and answers with one
// error, or nil, for each ([]error). It must run as an exclusive step.
func (m *Machine) DeleteGroups(_ coordinator.Instant, ids []string, to *coordinator.Ticket) coordinator.Effects {
	errs := make([]error, len(ids))
	var gone []place
	var groups []string
	for i, id := range ids {
		g := m.groups[id]
		switch {
		case g == nil || slices.Contains(groups, id):
			errs[i] = ErrGroupNotFound
		case !g.empty():
			errs[i] = ErrNonEmptyGroup
		default:
			gone = append(gone, m.places(g)...)
			groups = append(groups, id)
		}
	}
	out := m.tombstones(gone, groups, &m.stats.Deleted)
	out.Answers = append(out.Answers, coordinator.Answer{To: to, Value: errs})
	return out
}

// DeletedTopic names a topic that is gone. A zero ID stands for any topic of the name.
type DeletedTopic struct {
	Name string
	ID   [16]byte
}

// TopicsDeleted forgets the offsets of topics that are gone, and answers with their number
// (int). Offsets for a new topic of the same name stay. It must run as an exclusive step.
func (m *Machine) TopicsDeleted(_ coordinator.Instant, topics []DeletedTopic, to *coordinator.Ticket) coordinator.Effects {
	gone := map[place]bool{}
	check := func(p place, o offset) {
		for _, t := range topics {
			if t.Name == p.topic && !otherID(t.ID, o.topicID) {
				gone[p] = true
			}
		}
	}
	for _, g := range m.groups {
		for _, t := range topics {
			for partition, o := range g.offsets[t.Name] {
				check(place{g.id, t.Name, partition}, o)
			}
		}
	}
	for _, pending := range m.open {
		for p, o := range pending {
			check(p, o)
		}
	}
	out := m.tombstones(slices.SortedFunc(maps.Keys(gone), comparePlaces), nil, &m.stats.Deleted)
	out.Answers = append(out.Answers, coordinator.Answer{To: to, Value: len(gone)})
	return out
}

// tombstones forgets offsets, then groups, once that is committed, and counts the offsets.
func (m *Machine) tombstones(offsets []place, groups []string, count *atomic.Int64) coordinator.Effects {
	var out coordinator.Effects
	for _, p := range offsets {
		out.Records = append(out.Records, offsetTombstone(p))
	}
	for _, id := range groups {
		out.Records = append(out.Records, tombstonesOf(m.groups[id])...)
	}
	out.Then = func(c coordinator.Commit) (none coordinator.Effects) {
		if c.Err != nil {
			return none
		}
		count.Add(int64(len(offsets)))
		for _, p := range offsets {
			m.replayOffset(coordinator.Logged{}, p)
		}
		for _, id := range groups {
			if g := m.groups[id]; g != nil && g.consumer != nil {
				m.forgetConsumer(g, keyConsumerGroup, "")
			} else {
				m.forgetGroup(id)
			}
		}
		return none
	}
	return out
}

// places lists everything that is kept for a group, offsets of open transactions too.
func (m *Machine) places(g *group) []place {
	all := map[place]bool{}
	for topic, partitions := range g.offsets {
		for partition := range partitions {
			all[place{g.id, topic, partition}] = true
		}
	}
	for _, pending := range m.open {
		for p := range pending {
			if p.group == g.id {
				all[p] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), comparePlaces)
}
