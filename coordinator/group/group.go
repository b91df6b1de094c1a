package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/coordinator"
)

// State is a group's state, in Kafka's words.
type State uint8

// A group is Empty, then collects joins (PreparingRebalance), then waits for the leader's
// assignment (CompletingRebalance), then is Stable. Dead is only said of groups that are not
// there.
const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
	Dead
)

func (s State) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}[s]
}

// Client is who speaks for a member. Host is in Java's form, "/127.0.0.1".
type Client struct{ ID, Host string }

// Protocol is one way of assigning that a member offers, with what it tells the leader about
// itself in case this one is chosen.
type Protocol struct {
	Name     string
	Metadata []byte
}

// group is one classic group (Kafka: ClassicGroup).
type group struct {
	id           string
	state        State
	previous     State
	since        int64 // when state was taken, milliseconds since 1970; -1 unknown
	generation   int32
	protocolType string  // "consumer", "connect", …; "" while it never had a member
	protocol     *string // chosen for the generation
	leader       string  // "" for none
	members      map[string]*member
	order        []*member                     // by the time they joined
	instances    map[string]string             // group.instance.id -> member id
	pending      map[string]*coordinator.Alarm // member ids given out by MEMBER_ID_REQUIRED, not yet back
	unsynced     map[string]bool               // members of the generation that have not sent SyncGroup
	joined       bool                          // a member has joined since the initial delay was last prolonged
	topics       map[string]bool               // what the members subscribe to; nil: unknown
	offsets      map[string]map[int32]offset
	consumer     *consumerGroup // nil: a classic group

	join *coordinator.Alarm // ends the wait for joins
	sync *coordinator.Alarm // ends the wait for syncs
}

// member is one member of a group (Kafka: ClassicGroupMember).
type member struct {
	id         string
	instance   *string
	client     Client
	rebalance  time.Duration
	session    time.Duration
	protocols  []Protocol
	assignment []byte
	join       *coordinator.Ticket // waits for the generation
	sync       *coordinator.Ticket // waits for the assignment
	fresh      bool                // has never had a generation: has no session, only newMemberTimeout
	expiry     *coordinator.Alarm
}

func newGroup(id string) *group {
	return &group{id: id, previous: Dead, since: -1, members: map[string]*member{}}
}

// empty tells that the group has no members.
func (g *group) empty() bool {
	if g.consumer != nil {
		return len(g.consumer.members) == 0
	}
	return g.state == Empty
}

// take moves the group to a state.
func (g *group) take(s State, now coordinator.Instant) {
	g.previous, g.state, g.since = g.state, s, now.Wall
}

func (g *group) add(m *member) {
	if m.instance != nil {
		if g.instances == nil {
			g.instances = map[string]string{}
		}
		g.instances[*m.instance] = m.id
	}
	if g.leader == "" {
		g.leader = m.id
	}
	g.members[m.id] = m
	g.order = append(g.order, m)
}

// remove takes a member out. The leader's place goes to the oldest member.
func (g *group) remove(m *member) {
	delete(g.members, m.id)
	g.order = slices.DeleteFunc(g.order, func(o *member) bool { return o == m })
	if m.instance != nil && g.instances[*m.instance] == m.id {
		delete(g.instances, *m.instance)
	}
	delete(g.unsynced, m.id)
	if g.leader == m.id {
		g.leader = ""
		if len(g.order) > 0 {
			g.leader = g.order[0].id
		}
	}
}

// rename gives a member a new id in place.
func (g *group) rename(m *member, id string) {
	delete(g.members, m.id)
	delete(g.unsynced, m.id)
	if g.leader == m.id {
		g.leader = id
	}
	m.id = id
	g.members[id] = m
	g.instances[*m.instance] = id
}

// check tells whether a request of a member may pass: whoever comes with an instance id must
// be the one who has it now (KIP-345), and be a member.
func (g *group) check(id string, instance *string) error {
	if instance != nil {
		holder, ok := g.instances[*instance]
		if !ok {
			return ErrUnknownMember
		}
		if holder != id {
			return ErrFencedInstance
		}
	}
	if g.members[id] == nil {
		return ErrUnknownMember
	}
	return nil
}

// waiting counts members whose JoinGroup waits.
func (g *group) waiting() (n int) {
	for _, m := range g.order {
		if m.join != nil {
			n++
		}
	}
	return n
}

func (g *group) allJoined() bool { return len(g.pending) == 0 && g.waiting() == len(g.order) }

// rebalanceTimeout is the longest of the members'.
func (g *group) rebalanceTimeout() (d time.Duration) {
	for _, m := range g.order {
		d = max(d, m.rebalance)
	}
	return d
}

// supports tells whether a member with these protocols may join: it must have the group's
// type, and one protocol that every member has.
func (g *group) supports(protocolType string, protocols []Protocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(protocols) > 0
	}
	if g.protocolType != protocolType {
		return false
	}
	return slices.ContainsFunc(protocols, func(p Protocol) bool { return g.common(p.Name) })
}

// common tells whether every member has a protocol.
func (g *group) common(name string) bool {
	for _, m := range g.order {
		if !m.has(name) {
			return false
		}
	}
	return true
}

// choose picks the protocol of the next generation: each member votes for the first of its
// own that all have. Of those with equal votes the one that the leader likes best is taken;
// Kafka takes any.
func (g *group) choose() *string {
	votes := map[string]int{}
	for _, m := range g.order {
		for _, p := range m.protocols {
			if g.common(p.Name) {
				votes[p.Name]++
				break
			}
		}
	}
	var best *string
	try := func(m *member) {
		for i := range m.protocols {
			if name := m.protocols[i].Name; votes[name] > 0 && (best == nil || votes[name] > votes[*best]) {
				best = &name
			}
		}
	}
	if lead := g.members[g.leader]; lead != nil {
		try(lead)
	}
	for _, m := range g.order {
		try(m)
	}
	return best
}

// subscribe works out which topics the group reads, where the members speak the consumer
// protocol. Only version 0's fields are read, with which every version begins.
func (g *group) subscribe() {
	g.topics = nil
	if g.protocolType != consumerProtocol {
		return
	}
	topics := map[string]bool{}
	if len(g.order) > 0 && g.protocol == nil {
		return
	}
	for _, m := range g.order {
		var s kmsg.ConsumerMemberMetadata
		b := m.metadata(g.protocol)
		if len(b) < 2 {
			return
		}
		v0 := append([]byte{0, 0}, b[2:]...)
		if err := s.ReadFrom(v0); err != nil {
			return
		}
		for _, t := range s.Topics {
			topics[t] = true
		}
	}
	g.topics = topics
}

const consumerProtocol = "consumer"

// subscribes tells whether a topic's offsets are in use. A consumer group of which it is not
// known is taken to read everything.
func (g *group) subscribes(topic string) bool {
	if g.consumer != nil {
		return g.consumer.subscribes(topic)
	}
	if g.topics != nil {
		return g.topics[topic]
	}
	return g.protocolType == consumerProtocol
}

// answerJoin answers a member's waiting JoinGroup, if there is one.
func (g *group) answerJoin(out *coordinator.Effects, m *member, a JoinAnswer) bool {
	if m.join == nil {
		return false
	}
	out.Answers = append(out.Answers, coordinator.Answer{To: m.join, Value: a})
	m.join = nil
	return true
}

// answerSync answers a member's waiting SyncGroup, if there is one.
func (g *group) answerSync(out *coordinator.Effects, m *member, a SyncAnswer) bool {
	if m.sync == nil {
		return false
	}
	out.Answers = append(out.Answers, coordinator.Answer{To: m.sync, Value: a})
	m.sync = nil
	return true
}

func (m *member) has(name string) bool {
	return slices.ContainsFunc(m.protocols, func(p Protocol) bool { return p.Name == name })
}

// metadata is what the member told under a protocol; nil where it does not have it.
func (m *member) metadata(name *string) []byte {
	if name != nil {
		for _, p := range m.protocols {
			if p.Name == *name {
				return p.Metadata
			}
		}
	}
	return nil
}

// offers tells whether a JoinGroup repeats what is known of the member.
func (m *member) offers(protocols []Protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}
