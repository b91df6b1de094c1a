package group

import (
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"ottla/coordinator"
)

// step works out one change of a consumer group: what it writes, and what the group will be
// once that is in the log. The group itself is not touched.
type step struct {
	id      string
	group   *consumerGroup
	options *Options
	cluster Topics
	now     coordinator.Instant

	members map[string]*consumerMember // as they will be
	regexes map[string][]string
	targets map[string]Assignment
	epoch   int32
	hash    int64
	at      int32 // epoch of the target
	bumped  bool
	records []coordinator.Record
}

func newStep(id string, c *consumerGroup, o *Options, cluster Topics, now coordinator.Instant) *step {
	return &step{id: id, group: c, options: o, cluster: cluster, now: now, members: c.members, regexes: c.regexes, targets: c.targets,
		epoch: c.epoch, hash: c.hash, at: c.targetAt}
}

// set puts a member among those that will be.
func (s *step) set(m *consumerMember) {
	if s.members[m.id] == m {
		return
	}
	s.members = maps.Clone(s.members)
	s.members[m.id] = m
}

// drop takes a member out.
func (s *step) drop(m *consumerMember) {
	s.records = append(s.records, tombstone(keyConsumerCurrent, s.id, m.id), tombstone(keyConsumerTargetOf, s.id, m.id),
		tombstone(keyConsumerMember, s.id, m.id))
	s.members, s.targets = maps.Clone(s.members), maps.Clone(s.targets)
	delete(s.members, m.id)
	delete(s.targets, m.id)
}

// replace gives a static member's place and target to the one that comes after it.
func (s *step) replace(old, next *consumerMember) {
	target := s.targets[old.id]
	if old.id != next.id {
		s.drop(old)
		s.records = append(s.records, memberRecord(s.id, next), targetOfRecord(s.id, next.id, target))
	}
	s.records = append(s.records, currentRecord(s.id, next))
	s.set(next)
	s.targets = maps.Clone(s.targets)
	s.targets[next.id] = target
}

// subscribe takes in what a member tells of itself, and what has become of the topics that the
// group reads; either may begin a new epoch.
func (s *step) subscribe(old, now *consumerMember) {
	bump := false
	if s.members[now.id] != now { // most heartbeats tell nothing new
		before := s.assignorName()
		bump = !slices.Equal(now.topics, old.topics) || now.pattern() != old.pattern()
		s.records = append(s.records, memberRecord(s.id, now))
		s.set(now)
		bump = bump || s.assignorName() != before
	}
	if bump || s.cluster != s.group.seen {
		s.expand()
		s.advance(bump)
	}
}

// advance begins a new epoch if it has to be, or if the topics of the group have changed.
func (s *step) advance(bump bool) {
	hash := s.fingerprint()
	if !bump && hash == s.hash && s.epoch > 0 {
		return
	}
	if s.group.partitions {
		s.records = append(s.records, tombstone(keyConsumerPartitions, s.id, ""))
	}
	if s.epoch = max(s.epoch, 1); bump || hash != s.hash { // Kafka's groups begin with 2, but for those without a subscription
		s.epoch++
	}
	s.hash, s.bumped = hash, true
	s.records = append(s.records, epochRecord(s.id, s.epoch, hash))
}

// expand finds the topics of regular expressions, and forgets those that no member has any more.
func (s *step) expand() {
	used := map[string]bool{}
	for _, m := range s.members {
		if p := m.pattern(); p != "" {
			used[p] = true
		}
	}
	regexes := map[string][]string{}
	for _, p := range slices.Sorted(maps.Keys(used)) {
		had, known := s.regexes[p]
		regexes[p] = had
		if known && s.cluster == s.group.seen {
			continue
		}
		if regexes[p] = match(p, s.cluster); !known || !slices.Equal(had, regexes[p]) {
			s.records = append(s.records, regexRecord(s.id, p, regexes[p], s.cluster.Version(), s.now.Wall))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(s.regexes)) {
		if !used[p] {
			s.records = append(s.records, tombstone(keyConsumerRegex, s.id, p))
		}
	}
	s.regexes = regexes
}

// match lists the topics whose whole name a regular expression (RE2) fits.
func match(pattern string, cluster Topics) (names []string) {
	re, err := regexp.Compile(`^(?:` + pattern + `)$`)
	if err != nil {
		return nil // Kafka took it, or an older broker here
	}
	for name := range cluster.Names() {
		if re.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// topicsOf are the names that a member subscribes to, either way.
func (s *step) topicsOf(m *consumerMember) []string {
	more := s.regexes[m.pattern()]
	if m.pattern() == "" || len(more) == 0 {
		return m.topics
	}
	all := append(slices.Clone(m.topics), more...)
	slices.Sort(all)
	return slices.Compact(all)
}

// fingerprint is a hash of the topics that the group reads: their ids, sizes and racks. Without
// a topic it is 0.
func (s *step) fingerprint() int64 {
	names := map[string]bool{}
	for _, m := range s.members {
		for _, t := range s.topicsOf(m) {
			names[t] = true
		}
	}
	h, some := fnv.New64a(), false
	for _, name := range slices.Sorted(maps.Keys(names)) {
		id, partitions, ok := s.cluster.Topic(name)
		if !ok {
			continue
		}
		some = true
		h.Write(id[:])
		h.Write([]byte(name + "/" + strconv.Itoa(int(partitions))))
		for p := range partitions {
			racks := slices.Clone(s.cluster.Racks(name, p))
			slices.Sort(racks)
			for _, r := range racks {
				h.Write([]byte(r))
				h.Write([]byte{0})
			}
			h.Write([]byte{1})
		}
	}
	if !some {
		return 0
	}
	return int64(h.Sum64())
}

// assignorName is the assignor that most members ask for, else the first of
// group.consumer.assignors.
func (s *step) assignorName() string {
	votes := map[string]int{}
	for _, m := range s.members {
		if m.assignor != nil && slices.Contains(s.options.Consumer.Assignors, *m.assignor) {
			votes[*m.assignor]++
		}
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	if best == "" && len(s.options.Consumer.Assignors) > 0 {
		best = s.options.Consumer.Assignors[0]
	}
	return best
}

// target makes the target assignment of the epoch, where there is none yet.
func (s *step) target() {
	if s.epoch <= s.at {
		return
	}
	p := &problem{topics: map[TopicID]topicShape{}, same: true}
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		m := s.members[id]
		c := candidate{id: id, instance: m.instance, had: s.targets[id]}
		for _, name := range s.topicsOf(m) {
			if tid, n, ok := s.cluster.Topic(name); ok {
				c.topics = append(c.topics, tid)
				p.topics[tid] = topicShape{name, n}
			}
		}
		slices.SortFunc(c.topics, compareIDs)
		p.same = p.same && (len(p.members) == 0 || slices.Equal(c.topics, p.members[0].topics))
		p.members = append(p.members, c)
	}
	var made map[string]Assignment
	if assign := assignor(s.assignorName()); assign != nil {
		made = assign(p)
	}
	targets := map[string]Assignment{}
	for _, c := range p.members {
		targets[c.id] = made[c.id]
		if had, ok := s.targets[c.id]; !ok || !had.equal(made[c.id]) {
			s.records = append(s.records, targetOfRecord(s.id, c.id, made[c.id]))
		}
	}
	s.targets, s.at = targets, s.epoch
	s.records = append(s.records, targetRecord(s.id, s.at, s.now.Wall))
}

// reconcile takes a member one step on its way to the target (Kafka: CurrentAssignmentBuilder).
// owned is what the member says that it has; nil: it does not say.
func (s *step) reconcile(m *consumerMember, owned Assignment) *consumerMember {
	if m.settled(s.at) {
		return m
	}
	next := m
	switch {
	case m.state != memberUnrevoked:
		next = s.toward(m, m.epoch, owned)
	case !owns(owned, m.revoking):
		next = s.toward(m, m.epoch+1, owned)
	}
	if !next.stands(m) {
		s.records = append(s.records, currentRecord(s.id, next))
	}
	return next
}

// owns tells whether a member still has any of some partitions; who does not say has.
func owns(owned, some Assignment) bool {
	if owned == nil {
		return true
	}
	for id, all := range owned {
		for _, p := range all {
			if some.has(id, p) {
				return true
			}
		}
	}
	return false
}

// toward is what the member gets next: first it gives back what it shall not have, then it gets
// what nobody else has.
func (s *step) toward(m *consumerMember, epoch int32, owned Assignment) *consumerMember {
	next := *m
	keep, revoke, gain, waits := Assignment{}, Assignment{}, Assignment{}, false
	target := s.targets[m.id]
	for id, all := range m.assigned {
		for _, p := range all {
			if target.has(id, p) {
				keep.add(id, p)
			} else {
				revoke.add(id, p)
			}
		}
	}
	for id, all := range target {
		for _, p := range all {
			if keep.has(id, p) {
				continue
			}
			if _, taken := s.group.owners[topicPartition{id, p}]; taken {
				waits = true
			} else {
				gain.add(id, p)
			}
		}
	}
	next.previous, next.since = m.epoch, map[topicPartition]int32{}
	for _, a := range []Assignment{keep, revoke} {
		for id, all := range a {
			for _, p := range all {
				next.since[topicPartition{id, p}] = m.since[topicPartition{id, p}]
			}
		}
	}
	if len(revoke) > 0 && owns(owned, revoke) {
		next.state, next.epoch, next.assigned, next.revoking = memberUnrevoked, epoch, keep, revoke
		return &next
	}
	for id, all := range revoke {
		for _, p := range all {
			delete(next.since, topicPartition{id, p})
		}
	}
	for id, all := range gain {
		for _, p := range all {
			keep.add(id, p)
			next.since[topicPartition{id, p}] = s.at
		}
	}
	next.state, next.epoch, next.assigned, next.revoking = memberStable, s.at, keep, nil
	if waits {
		next.state = memberUnreleased
	}
	return &next
}
