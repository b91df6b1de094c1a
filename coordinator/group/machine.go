// Package group is the state machine of consumer groups, of the classic protocol and of
// KIP-848's, and of committed offsets, as Kafka 4's group coordinator has it
// (GroupMetadataManager, ClassicGroup, ConsumerGroup, OffsetMetadataManager). Machine is pure: time and randomness come in, records, answers and a
// wake-up time go out; package coordinator runs it. Coordinator is what the broker calls.
//
// What a group is made of is of two kinds. Its generation, assignment and offsets are in the
// log and change only when their record is committed. Who waits, who has joined the
// generation to come and when patience ends lives in memory: it is as old as this broker's
// lead, and a member that meets another coordinator joins again. Of groups of the consumer
// protocol only the deadlines live in memory: what a step changes there is what its records
// say, and it is changed by replaying them.
package group

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"time"

	"ottla/coordinator"
)

// Machine is the state machine of one shard: the groups whose names fall on one partition of
// __consumer_offsets.
type Machine struct {
	options func() *Options
	stats   *Stats

	groups map[string]*group
	alarms coordinator.Alarms
	open   map[int64]map[place]offset // offsets of open transactions by producer id
	busy   map[string]*inTurn         // consumer groups with records on their way to the log
	txn    txnState
}

// NewMachine makes an empty machine. It asks for its options at every step; stats may be nil.
func NewMachine(options func() *Options, stats *Stats) *Machine {
	if stats == nil {
		stats = &Stats{}
	}
	return &Machine{options: options, stats: stats, groups: map[string]*group{}}
}

var _ coordinator.Machine = (*Machine)(nil)

// Replay takes one record of the log. Kinds that are not ours are passed over; what can't be
// read is counted and passed over.
func (m *Machine) Replay(r coordinator.Logged) {
	if len(r.Key) >= 2 && isConsumerKey(int16(r.Key[0])<<8|int16(r.Key[1])) {
		if err := m.replayConsumer(r); err != nil {
			m.stats.Malformed.Add(1)
		}
		return
	}
	id, p, isOffset, known, err := readKey(r.Key)
	switch {
	case err != nil:
		m.stats.Malformed.Add(1)
	case !known:
	case isOffset:
		m.replayOffset(r, p)
	default:
		m.replayGroup(r, id)
	}
}

func (m *Machine) replayOffset(r coordinator.Logged, p place) {
	if r.Value == nil {
		m.forgetOffset(p)
		for producer, pending := range m.open {
			delete(pending, p)
			if len(pending) == 0 {
				delete(m.open, producer)
			}
		}
		return
	}
	o, err := readOffset(r.Value)
	if err != nil {
		m.stats.Malformed.Add(1)
		return
	}
	o.record = r.Offset
	if r.Producer < 0 {
		m.keepOffset(p, o)
		return
	}
	m.keepPending(r.Producer, r.Epoch, p, o)
}

func (m *Machine) replayGroup(r coordinator.Logged, id string) {
	if r.Value == nil {
		m.forgetGroup(id)
		return
	}
	v, err := readGroup(bytes.Clone(r.Value)) // its byte fields are kept
	if err != nil {
		m.stats.Malformed.Add(1)
		return
	}
	g := newGroup(id)
	if old := m.groups[id]; old != nil {
		m.silence(old)
		g.offsets = old.offsets
	}
	g.generation, g.protocolType, g.protocol, g.since = v.Generation, v.ProtocolType, v.Protocol, v.CurrentStateTimestamp
	for i := range v.Members {
		e := &v.Members[i]
		rebalance := e.RebalanceTimeoutMillis
		if rebalance == -1 {
			rebalance = e.SessionTimeoutMillis
		}
		mb := &member{
			id: e.MemberID, instance: e.InstanceID, client: Client{e.ClientID, e.ClientHost},
			rebalance: duration(rebalance), session: duration(e.SessionTimeoutMillis),
			assignment: e.Assignment,
		}
		if v.Protocol != nil {
			mb.protocols = []Protocol{{Name: *v.Protocol, Metadata: e.Subscription}}
		}
		if g.members[mb.id] == nil {
			g.add(mb)
		}
	}
	if len(g.order) > 0 {
		g.state = Stable
		g.protocolType = v.ProtocolType
	}
	g.leader = ""
	if v.Leader != nil {
		g.leader = *v.Leader
	}
	if g.leader != "" && g.members[g.leader] == nil && len(g.order) > 0 {
		g.leader = g.order[0].id
	}
	g.subscribe()
	m.groups[id] = g
}

// ReplayMarker ends a transaction: its offsets become those of the group, where no later
// record has set others, or are forgotten.
func (m *Machine) ReplayMarker(producer int64, commit bool) {
	pending := m.open[producer]
	delete(m.open, producer)
	delete(m.txn.epochs, producer)
	if !commit {
		return
	}
	for p, o := range pending {
		if old, ok := m.offset(p); !ok || o.record > old.record {
			m.keepOffset(p, o)
		}
	}
}

// Start gives the members that were read their sessions, and makes room in groups that are
// larger than group.max.size by now.
func (m *Machine) Start(now coordinator.Instant) coordinator.Effects {
	var out coordinator.Effects
	for _, g := range m.sorted() {
		if g.consumer != nil {
			m.startConsumer(now, g)
			continue
		}
		for _, mb := range g.order {
			m.renew(now, g, mb, mb.session)
		}
		if len(g.order) > m.options().MaxSize || len(g.order) > 0 && g.leader == "" { // or was a consumer group
			m.prepare(now, g, &out)
		}
	}
	return out
}

// Stop answers everybody who waits: this broker is not the coordinator.
func (m *Machine) Stop() []coordinator.Answer {
	var out coordinator.Effects
	for _, g := range m.sorted() {
		for _, mb := range g.order {
			g.answerJoin(&out, mb, JoinAnswer{Err: coordinator.ErrNotCoordinator, MemberID: mb.id, Generation: -1})
			g.answerSync(&out, mb, SyncAnswer{Err: coordinator.ErrNotCoordinator})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.busy)) {
		for _, s := range m.busy[id].steps {
			out.Answers = append(out.Answers, coordinator.Answer{To: s.to, Err: coordinator.ErrNotCoordinator})
		}
	}
	m.groups, m.alarms, m.open, m.txn, m.busy = map[string]*group{}, coordinator.Alarms{}, nil, txnState{}, nil
	return out.Answers
}

// Wake tells when the next session, join or sync runs out.
func (m *Machine) Wake() time.Duration { return m.alarms.Wake() }

// Tick lets one deadline that has passed take effect.
func (m *Machine) Tick(now coordinator.Instant) coordinator.Effects { return m.alarms.Ring(now) }

// Idle tells that there is no group: nobody waits and nothing can expire.
func (m *Machine) Idle() bool { return len(m.groups) == 0 && m.alarms.None() }

func (m *Machine) sorted() []*group {
	all := make([]*group, 0, len(m.groups))
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		all = append(all, m.groups[id])
	}
	return all
}

// simpleGroup returns a group, making one that has offsets and no members where there is none.
func (m *Machine) simpleGroup(id string) *group {
	g := m.groups[id]
	if g == nil {
		g = newGroup(id)
		m.groups[id] = g
	}
	return g
}

// forgetGroup drops a group. One that still has offsets stays, as a simple group: Kafka turns
// groups into another kind with a tombstone, and their offsets go on.
func (m *Machine) forgetGroup(id string) {
	g := m.groups[id]
	if g == nil || g.consumer != nil { // a tombstone of the classic group that it was
		return
	}
	m.silence(g)
	delete(m.groups, id)
	if len(g.offsets) > 0 || m.hasOpen(id) {
		m.simpleGroup(id).offsets = g.offsets
	}
}

// silence cancels every alarm of a group.
func (m *Machine) silence(g *group) {
	m.alarms.Cancel(g.join)
	m.alarms.Cancel(g.sync)
	for _, a := range g.pending {
		m.alarms.Cancel(a)
	}
	for _, mb := range g.order {
		m.alarms.Cancel(mb.expiry)
	}
	if g.consumer != nil {
		for id := range g.consumer.timers {
			m.silenceMember(g.consumer, id)
		}
	}
}

func (m *Machine) offset(p place) (offset, bool) {
	g := m.groups[p.group]
	if g == nil {
		return offset{}, false
	}
	o, ok := g.offsets[p.topic][p.partition]
	return o, ok
}

func (m *Machine) keepOffset(p place, o offset) {
	g := m.simpleGroup(p.group)
	if g.offsets == nil {
		g.offsets = map[string]map[int32]offset{}
	}
	of := g.offsets[p.topic]
	if of == nil {
		of = map[int32]offset{}
		g.offsets[p.topic] = of
	}
	of[p.partition] = o
}

func (m *Machine) forgetOffset(p place) {
	g := m.groups[p.group]
	if g == nil {
		return
	}
	delete(g.offsets[p.topic], p.partition)
	if len(g.offsets[p.topic]) == 0 {
		delete(g.offsets, p.topic)
	}
}

// hasOpen tells whether an open transaction has offsets for a group.
func (m *Machine) hasOpen(group string) bool {
	for _, pending := range m.open {
		for p := range pending {
			if p.group == group {
				return true
			}
		}
	}
	return false
}

// isOpen tells whether an open transaction has an offset for a place.
func (m *Machine) isOpen(p place) bool {
	for _, pending := range m.open {
		if _, ok := pending[p]; ok {
			return true
		}
	}
	return false
}

func duration(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }

func millis(d time.Duration) int32 {
	return int32(min(max(d.Milliseconds(), math.MinInt32), math.MaxInt32))
}
