package replica

import (
	"math"
	"slices"
)

// machine holds the rules of one replica of a partition: who leads, who is in sync, how far
// the records are committed. It has no goroutines, clocks or files: log ends, fetches of
// followers and times come in as arguments, what follows from them goes out as values. The
// rules are those of Kafka's kafka.cluster.Partition and Replica.
//
// What holds: the high watermark never goes back while the replica leads, and it moves only
// while at least min.insync.replicas replicas (at most as many as the partition has) are in
// sync; it is never above the end of a replica that is in sync or that may be taken into the
// ISR by a proposal of ours.
type machine struct {
	self int32
	lag  int64 // replica.lag.time.max.ms: as long may a follower lag and be in sync
	// alive tells whether a broker is in the cluster: one that has left is not waited for, however
	// far its replica had come. Nil: all are.
	alive func(id int32) bool

	leader     int32 // -1: none
	epoch      int32 // the leader's; -1 before the first state
	version    int32 // the partition's epoch: changes with every change of leader or ISR
	epochStart int64 // the log's end when this replica began to lead in this epoch
	replicas   []int32
	isr        []int32 // as the controller has it
	proposed   []int32 // what we asked the controller for, nil if nothing is under way
	followers  map[int32]*follower
	end        int64 // of the own log
	hw         int64
}

// follower is what a leader knows of another replica. Times are in milliseconds.
type follower struct {
	end         int64 // its log's end, -1 before its first fetch
	start       int64 // its log's start, -1 before its first fetch
	leaderEnd   int64 // the leader's end at its last fetch
	fetched     int64 // time of its last fetch
	caughtUp    int64 // last time at which it had all that the leader had
	brokerEpoch int64 // of the broker that fetches, -1 where it does not say
}

// State is what the controller says of a partition (LeaderAndIsr).
type State struct {
	Topic          string
	ID             [16]byte // topic id, zero where the cluster has none
	Partition      int32
	Leader         int32 // -1: none
	LeaderEpoch    int32
	PartitionEpoch int32
	ISR            []int32
	Replicas       []int32
	Adding         []int32
	Removing       []int32
	New            bool // the partition was just created: no log of it can be missing
}

func newMachine(self int32, lagMs int64) machine {
	return machine{self: self, lag: lagMs, leader: -1, epoch: -1, version: -1, epochStart: -1}
}

func (m *machine) leads() bool { return m.leader == m.self && m.epoch >= 0 }

// lead makes the replica the leader, or takes over a change of ISR or replicas in the epoch in
// which it leads already. end and hw are the log's; the caller has looked that the state is
// not older than the known one. It says whether the high watermark moved.
func (m *machine) lead(s State, end, hw, now int64, minISR int) (moved bool) {
	fresh := !m.leads()
	newEpoch := s.LeaderEpoch > m.epoch
	// A state that is known already, as a new controller tells it, decides nothing about what was
	// proposed after it: that may yet come about, and replicas of it count as in sync until then.
	known := !fresh && !newEpoch && s.PartitionEpoch == m.version
	m.leader, m.epoch, m.version = m.self, s.LeaderEpoch, s.PartitionEpoch
	m.replicas = slices.Clone(s.Replicas)
	if !known {
		m.isr, m.proposed = slices.Clone(s.ISR), nil
	}
	m.end = end
	if fresh || hw > m.hw {
		m.hw = hw
	}
	for id := range m.followers {
		if !slices.Contains(m.replicas, id) {
			delete(m.followers, id)
		}
	}
	for _, id := range m.replicas {
		if id == m.self {
			continue
		}
		f := m.followers[id]
		if f == nil {
			if m.followers == nil {
				m.followers = map[int32]*follower{}
			}
			f = &follower{end: -1, start: -1, leaderEnd: -1, brokerEpoch: -1}
			m.followers[id] = f
		}
		if !newEpoch && !fresh {
			continue
		}
		inSync := slices.Contains(m.isr, id)
		caughtUp := int64(math.MinInt64 / 2)
		if inSync {
			caughtUp = now
		}
		if fresh {
			*f = follower{end: -1, start: -1, leaderEnd: -1, caughtUp: caughtUp, brokerEpoch: -1}
			continue
		}
		f.leaderEnd, f.caughtUp, f.fetched = end, caughtUp, caughtUp
	}
	if newEpoch || fresh {
		m.epochStart = end
	}
	return m.advance(now, minISR)
}

// follow makes the replica a follower of another, or of none.
func (m *machine) follow(s State) {
	m.leader, m.epoch, m.version, m.epochStart = s.Leader, s.LeaderEpoch, s.PartitionEpoch, -1
	m.replicas, m.isr, m.proposed, m.followers = slices.Clone(s.Replicas), nil, nil, nil
}

// appended says that the leader's log ends at end now.
func (m *machine) appended(end, now int64, minISR int) (moved bool) {
	if end > m.end {
		m.end = end
	}
	return m.advance(now, minISR)
}

// progress is what a follower's fetch changed.
type progress struct {
	high bool // the high watermark moved
	low  bool // the follower's log start moved, so the low watermark may have
	join bool // the follower should now be proposed for the ISR
}

// fetched takes in a fetch of a follower: it has everything below offset, its log starts at
// start; end is the leader's end when the fetch was read.
func (m *machine) fetched(id int32, offset, start, end, now, brokerEpoch int64, minISR int) (out progress) {
	f := m.followers[id]
	if f == nil {
		return progress{}
	}
	switch {
	case offset >= end:
		f.caughtUp = max(f.caughtUp, now)
	case offset >= f.leaderEnd: // it had at the last fetch's time what there was then
		f.caughtUp = max(f.caughtUp, f.fetched)
	}
	out.low = start != f.start
	f.end, f.start, f.fetched, f.brokerEpoch = offset, start, now, brokerEpoch
	f.leaderEnd = max(f.leaderEnd, end)
	out.high = m.advance(now, minISR)
	// It must have reached the epoch's start too: below it there may be committed records that
	// the high watermark does not show yet.
	out.join = m.proposed == nil && !slices.Contains(m.isr, id) && f.end >= m.hw && f.end >= m.epochStart
	return out
}

// lagging names the followers in the ISR that have lagged too long; none while a proposal is
// under way.
func (m *machine) lagging(now int64) (ids []int32) {
	if !m.leads() || m.proposed != nil {
		return nil
	}
	for _, id := range m.isr {
		if f := m.followers[id]; f != nil && !m.inSync(f, now) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *machine) inSync(f *follower, now int64) bool {
	return f.end == m.end || now-f.caughtUp <= m.lag
}

// propose notes an ISR that the controller is asked for. Until it answers, replicas of both
// count as in sync, which can only hold the high watermark back.
func (m *machine) propose(isr []int32) { m.proposed = slices.Clone(isr) }

// decided takes the controller's answer: the ISR and the version that it now has.
func (m *machine) decided(isr []int32, version int32, now int64, minISR int) (moved bool) {
	if version < m.version {
		return false
	}
	m.isr, m.version, m.proposed = slices.Clone(isr), version, nil
	return m.advance(now, minISR)
}

// enough says whether as many replicas are in sync as the topic asks for: minISR, but at most
// as many as the partition has.
func (m *machine) enough(minISR int) bool {
	return len(m.isr) >= min(minISR, len(m.replicas))
}

// enoughMaximal is enough with the replicas that a proposal under way would add.
func (m *machine) enoughMaximal(minISR int) bool {
	n := len(m.isr)
	for _, id := range m.proposed {
		if !slices.Contains(m.isr, id) {
			n++
		}
	}
	return n >= min(minISR, len(m.replicas))
}

// advance moves the high watermark to the smallest end of those that are in sync, or catching
// up so closely that they may be soon. A partition below its minimum does not move it.
func (m *machine) advance(now int64, minISR int) (moved bool) {
	if !m.leads() || !m.enough(minISR) {
		return false
	}
	to := m.end
	for id, f := range m.followers {
		if f.end < to && (slices.Contains(m.isr, id) || slices.Contains(m.proposed, id) || m.inSync(f, now) && (m.alive == nil || m.alive(id))) {
			to = f.end
		}
	}
	if to <= m.hw {
		return false
	}
	m.hw = to
	return true
}

// low is the low watermark: the smallest log start of the live replicas. alive says whether a
// broker is up.
func (m *machine) low(start int64, alive func(id int32) bool) int64 {
	for id, f := range m.followers {
		if f.start < start && alive(id) {
			start = f.start
		}
	}
	return start
}

// checkEpoch compares the leader epoch a client knows (-1: it does not say) with ours (KIP-320).
func checkEpoch(current, epoch int32) error {
	switch {
	case current < 0 || current == epoch:
		return nil
	case current < epoch:
		return ErrFencedEpoch
	}
	return ErrUnknownEpoch
}
