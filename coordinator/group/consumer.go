package group

import (
	"iter"
	"maps"
	"slices"
	"time"

	"ottla/coordinator"
)

// Topics is the cluster's topics as they are at one moment. Heartbeats of consumer groups bring
// one; two that differ are not ==.
type Topics interface {
	// Topic answers a topic's id and number of partitions; ok is false where there is none.
	Topic(name string) (id TopicID, partitions int32, ok bool)
	// Racks are those of a partition's replicas, in any order; none where brokers have none.
	Racks(name string, partition int32) []string
	// Names are those of all topics, in any order.
	Names() iter.Seq[string]
	// Version is higher for what was later.
	Version() int64
}

// memberState says how far a member is on its way to the target assignment (Kafka: MemberState).
type memberState int8

const (
	memberStable     memberState = 0 // has what it is to have in its epoch
	memberUnrevoked  memberState = 1 // has yet to give partitions back
	memberUnreleased memberState = 2 // waits for partitions that others have yet to give back
)

// Epochs with which a member leaves.
const (
	leaveEpoch       = -1
	leaveStaticEpoch = -2 // for a while: it keeps its place and its target
)

// consumerMember is a member of a consumer group. It is not changed once it is in the group;
// another takes its place.
type consumerMember struct {
	id        string
	instance  *string // group.instance.id
	rack      *string
	client    Client
	topics    []string // subscribed by name, ascending
	regex     *string  // subscribed by regular expression; nil or empty: none
	rebalance int32    // timeout in ms for giving back partitions
	assignor  *string
	classic   *classicSide // of one that speaks the classic protocol; nil: the consumer protocol

	epoch, previous int32
	state           memberState
	assigned        Assignment               // what it has
	revoking        Assignment               // what it still has and shall give back
	since           map[topicPartition]int32 // the epoch in which it got each of both (KIP-1251)
}

// settled tells that the member is where a target epoch wants it.
func (m *consumerMember) settled(target int32) bool {
	return m.state == memberStable && m.epoch == target
}

// pattern is the regular expression, "" for none.
func (m *consumerMember) pattern() string {
	if m.regex == nil {
		return ""
	}
	return *m.regex
}

// told tells whether two have told the same of themselves.
func (m *consumerMember) told(o *consumerMember) bool {
	return sameString(m.instance, o.instance) && sameString(m.rack, o.rack) && m.client == o.client &&
		slices.Equal(m.topics, o.topics) && sameString(m.regex, o.regex) && m.rebalance == o.rebalance &&
		sameString(m.assignor, o.assignor) && m.classic.equal(o.classic)
}

// stands tells whether two are at the same point of their way.
func (m *consumerMember) stands(o *consumerMember) bool {
	return m.epoch == o.epoch && m.previous == o.previous && m.state == o.state && m.assigned.equal(o.assigned) && m.revoking.equal(o.revoking) &&
		maps.Equal(m.since, o.since)
}

func sameString(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// consumerGroup is what a group of the consumer protocol has (Kafka: ConsumerGroup). All but
// timers and seen is in the log, and changes only by replaying it.
type consumerGroup struct {
	epoch      int32
	hash       int64 // of the topics that it reads
	targetAt   int32 // epoch of the target assignment
	members    map[string]*consumerMember
	instances  map[string]string // group.instance.id -> member id
	targets    map[string]Assignment
	regexes    map[string][]string // the topics of regular expressions
	owners     map[topicPartition]string
	partitions bool // there is a record of the old kind about its topics

	timers map[string]*memberTimers
	seen   Topics // with which hash and regexes were worked out last
}

// memberTimers are the deadlines of a member.
type memberTimers struct {
	session   deadline // to be heard of
	rebalance deadline // to give partitions back; of classic members the next two take its place
	join      deadline // to join again
	sync      deadline // to ask for its partitions
	epoch     int32    // in which the wait for partitions began
}

// deadline is a time by which a member has to have done something.
type deadline struct {
	alarm *coordinator.Alarm
	at    time.Duration
	set   bool
}

func newConsumerGroup() *consumerGroup {
	return &consumerGroup{members: map[string]*consumerMember{}, instances: map[string]string{}, targets: map[string]Assignment{},
		regexes: map[string][]string{}, owners: map[topicPartition]string{}, timers: map[string]*memberTimers{}}
}

// state is the group's, in Kafka's words.
func (c *consumerGroup) state() string {
	switch {
	case len(c.members) == 0:
		return "Empty"
	case c.epoch > c.targetAt:
		return "Assigning"
	}
	for _, m := range c.members {
		if !m.settled(c.targetAt) {
			return "Reconciling"
		}
	}
	return "Stable"
}

// sorted are the members by id.
func (c *consumerGroup) sorted() []*consumerMember {
	all := make([]*consumerMember, 0, len(c.members))
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		all = append(all, c.members[id])
	}
	return all
}

// subscribes tells whether a member reads a topic.
func (c *consumerGroup) subscribes(topic string) bool {
	for _, m := range c.members {
		if _, ok := slices.BinarySearch(m.topics, topic); ok || slices.Contains(c.regexes[m.pattern()], topic) {
			return true
		}
	}
	return false
}

// put sets a member in place of the one of its id, if there is one.
func (c *consumerGroup) put(m *consumerMember) {
	c.take(m.id)
	c.members[m.id] = m
	if m.instance != nil {
		c.instances[*m.instance] = m.id
	}
	for _, a := range []Assignment{m.assigned, m.revoking} {
		for id, all := range a {
			for _, p := range all {
				c.owners[topicPartition{id, p}] = m.id
			}
		}
	}
}

// take removes a member, if there is one.
func (c *consumerGroup) take(id string) *consumerMember {
	m := c.members[id]
	if m == nil {
		return nil
	}
	delete(c.members, id)
	if m.instance != nil && c.instances[*m.instance] == id {
		delete(c.instances, *m.instance)
	}
	for _, a := range []Assignment{m.assigned, m.revoking} {
		for topic, all := range a {
			for _, p := range all {
				if at := (topicPartition{topic, p}); c.owners[at] == id {
					delete(c.owners, at)
				}
			}
		}
	}
	return m
}

// replayConsumer takes one record of a consumer group. A group of another kind that has the
// name is replaced: its offsets stay.
func (m *Machine) replayConsumer(r coordinator.Logged) error {
	kind, id, of, err := readConsumerKey(r.Key)
	if err != nil {
		return err
	}
	g := m.groups[id]
	if r.Value == nil {
		if g != nil && g.consumer != nil {
			m.forgetConsumer(g, kind, of)
		}
		return nil
	}
	v, ok := newConsumerReader(r.Value)
	if !ok {
		return errMalformed
	}
	if g == nil || g.consumer == nil {
		made := newGroup(id)
		if g != nil {
			m.silence(g)
			made.offsets = g.offsets
		}
		made.consumer = newConsumerGroup()
		m.groups[id], g = made, made
	}
	return g.consumer.replay(kind, of, v)
}

func (c *consumerGroup) replay(kind int16, of string, v *consumerReader) error {
	switch kind {
	case keyConsumerGroup:
		c.epoch, c.hash = v.Int32(), 0
		v.tags(func(tag uint32, body []byte) {
			if tag == 0 {
				b := consumerReader{}
				b.Src = body
				c.hash = b.Int64()
			}
		})
		return v.done()
	case keyConsumerPartitions:
		c.partitions = true
	case keyConsumerMember, keyConsumerCurrent:
		m := &consumerMember{id: of}
		if old := c.members[of]; old != nil {
			*m = *old
		}
		read := v.member
		if kind == keyConsumerCurrent {
			read = v.current
		}
		if err := read(m); err != nil {
			return err
		}
		c.put(m)
	case keyConsumerTarget:
		c.targetAt = v.Int32()
		v.tags(nil)
		return v.done()
	case keyConsumerTargetOf:
		a := v.assignment()
		v.tags(nil)
		if err := v.done(); err != nil {
			return err
		}
		c.targets[of] = a
	case keyConsumerRegex:
		topics := v.strings()
		v.Int64()
		v.Int64()
		v.tags(nil)
		if err := v.done(); err != nil {
			return err
		}
		c.regexes[of] = topics
	}
	return nil
}

// forgetConsumer takes in a tombstone.
func (m *Machine) forgetConsumer(g *group, kind int16, of string) {
	c := g.consumer
	switch kind {
	case keyConsumerGroup:
		m.silence(g)
		delete(m.groups, g.id)
		if len(g.offsets) > 0 || m.hasOpen(g.id) {
			m.simpleGroup(g.id).offsets = g.offsets
		}
	case keyConsumerPartitions:
		c.partitions = false
	case keyConsumerMember:
		c.take(of)
		m.silenceMember(c, of)
	case keyConsumerCurrent:
		if old := c.members[of]; old != nil {
			now := *old
			now.epoch, now.previous, now.state, now.assigned, now.revoking, now.since = leaveEpoch, leaveEpoch, memberStable, nil, nil, nil
			c.put(&now)
		}
	case keyConsumerTarget:
		c.targetAt = 0
	case keyConsumerTargetOf:
		delete(c.targets, of)
	case keyConsumerRegex:
		delete(c.regexes, of)
	}
}
