package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"ottla/log"
)

// Partition is this broker's replica of one partition. It costs no goroutine and no file.
type Partition struct {
	m      *Manager
	topic  string
	number int32
	stats  *topicStats

	standing atomic.Pointer[standing] // changed under lead; what it points to never changes

	lead sync.RWMutex // see the package comment

	mu       sync.Mutex
	rules    machine       // guarded by mu; leadership in it also by lead
	moved    chan struct{} // guarded by mu; closed when the watermark or the leadership changes, nil if nobody waits
	watchers *watch        // guarded by mu: fetches that wait for a change
}

// standing is what requests have to know of a replica.
type standing struct {
	log      *log.Log // nil: offline or stopped, or not opened yet
	late     *State   // what has to be taken over before anything else; see late.go
	id       [16]byte
	leads    bool
	leader   int32
	epoch    int32 // -1 before the first state
	start    int64 // log end at which the epoch began; -1 if this replica does not lead
	replicas int32
}

func newPartition(m *Manager, topic string, n int32) *Partition {
	p := &Partition{m: m, topic: topic, number: n, stats: m.metrics.topic(topic), rules: newMachine(m.opts.BrokerID, m.opts.LagMax.Milliseconds())}
	p.rules.alive = m.living
	p.standing.Store(&unknown)
	return p
}

// unknown is the standing before the first state.
var unknown = standing{leader: -1, epoch: -1, start: -1}

// Topic is the name of the partition's topic.
func (p *Partition) Topic() string { return p.topic }

// Number is the partition's number.
func (p *Partition) Number() int32 { return p.number }

// Log is the replica's log, nil when it is offline or stopped.
func (p *Partition) Log() *log.Log { return p.standing.Load().log }

// Leading gives the partition's leader and its epoch, -1 where there is none.
func (p *Partition) Leading() (leader, epoch int32) {
	s := p.standing.Load()
	return s.leader, s.epoch
}

// CheckEpoch compares the leader epoch that a client knows (-1: it does not say) with the
// partition's: ErrFencedEpoch, ErrUnknownEpoch (KIP-320).
func (p *Partition) CheckEpoch(current int32) error {
	return checkEpoch(current, p.standing.Load().epoch)
}

// Local checks the epoch and returns the log: of the leader alone, or of any replica that is
// here. Errors: ErrFencedEpoch, ErrUnknownEpoch, ErrNotLeader.
func (p *Partition) Local(current int32, onlyLeader bool) (*log.Log, error) {
	s := p.standing.Load()
	return s.local(current, onlyLeader)
}

func (s *standing) local(current int32, onlyLeader bool) (*log.Log, error) {
	if err := checkEpoch(current, s.epoch); err != nil {
		return nil, err
	}
	if onlyLeader && !s.leads || s.log == nil {
		return nil, ErrNotLeader
	}
	return s.log, nil
}

func (p *Partition) now() int64  { return p.m.nowMs() }
func (p *Partition) minISR() int { return p.m.opts.MinISR(p.topic) }

// apply takes over a state from the controller. The caller holds Manager.change.
func (p *Partition) apply(s State) error {
	p.lead.Lock()
	defer p.lead.Unlock()
	return p.applyLocked(p.standing.Load(), s)
}

// applyLocked takes over a state where the standing was old. The caller holds lead.
func (p *Partition) applyLocked(old *standing, s State) error {
	switch {
	case s.LeaderEpoch < old.epoch, s.LeaderEpoch == old.epoch && s.PartitionEpoch < p.rules.version:
		return fmt.Errorf("leader epoch %d, partition epoch %d: %w", s.LeaderEpoch, s.PartitionEpoch, ErrStaleState)
	case old.id != [16]byte{} && s.ID != [16]byte{} && old.id != s.ID:
		return ErrTopicID
	}
	next := &standing{log: old.log, id: s.ID, leader: s.Leader, leads: s.Leader == p.m.opts.BrokerID, epoch: s.LeaderEpoch, start: -1, replicas: int32(len(s.Replicas))}
	if s.ID == [16]byte{} {
		next.id = old.id
	}
	if next.log == nil {
		l, err := p.m.opts.Logs.Host(p.topic, p.number, s.ID, s.New)
		if err != nil {
			if !errors.Is(err, log.ErrTopicID) {
				next.leads = false
				p.standing.Store(next) // it is ours, and offline
				p.stir()
			}
			return err
		}
		next.log = l
	}
	if next.leads {
		next.start = old.start
		if s.LeaderEpoch > old.epoch || !old.leads {
			next.start = next.log.End()
			if next.log.LastEpoch() < s.LeaderEpoch {
				if err := next.log.AssignEpoch(s.LeaderEpoch); err != nil {
					return fmt.Errorf("assign leader epoch %d: %w", s.LeaderEpoch, err)
				}
			}
		}
	}
	minISR, now := p.minISR(), p.now()
	p.mu.Lock()
	if next.leads {
		p.rules.lead(s, next.log.End(), next.log.HighWatermark(), now, minISR)
		if p.rules.hw > next.log.HighWatermark() {
			next.log.SetHighWatermark(p.rules.hw)
		}
	} else {
		p.rules.follow(s)
	}
	p.standing.Store(next)
	p.stirLocked()
	p.mu.Unlock()
	return nil
}

// stop ends the replica. The caller holds Manager.change and has taken it off the list.
func (p *Partition) stop() {
	p.lead.Lock()
	defer p.lead.Unlock()
	old := p.standing.Load()
	p.mu.Lock()
	p.rules.leader = -1
	p.standing.Store(&standing{id: old.id, leader: -1, epoch: old.epoch, start: -1})
	p.stirLocked()
	p.mu.Unlock()
}

// stir wakes all who wait for the partition.
func (p *Partition) stir() {
	p.mu.Lock()
	p.stirLocked()
	p.mu.Unlock()
}

func (p *Partition) stirLocked() {
	p.freeLocked()
	p.signalLocked(nil)
}

// freeLocked wakes those who wait for a commit.
func (p *Partition) freeLocked() {
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
}

// Append writes records to the log of the leader. acks is 0 or 1 (the leader's log is enough)
// or -1 (all in-sync replicas, and at least min.insync.replicas).
//
// When it returns, the records are in the log and a.Records is not used any more. If there is
// something left to wait for (replicas, or an fsync that flush.messages asks for), wait is not
// nil; it is bound to the leader epoch of the append and gives ErrNotLeader once this broker
// stops leading, ErrNotEnoughReplicasAfterAppend, ErrTimedOut when ctx has a deadline that is
// over, or the log's error. ErrNotEnoughReplicas comes before anything was written.
func (p *Partition) Append(_ context.Context, a log.Append, acks int16) (done log.Appended, wait func(context.Context) error, err error) {
	return p.append(a, acks, -1, nil)
}

// AppendFor is Append for a caller who runs by afterwards, when what it has to do itself is done:
// the fetches that waited for these records.
func (p *Partition) AppendFor(by *Wakes, a log.Append, acks int16) (done log.Appended, wait func(context.Context) error, err error) {
	return p.append(a, acks, -1, by)
}

// AppendIn is Append for a caller that leads in one leader epoch, with acks=-1: in any other it
// gives ErrNotLeader and appends nothing. So a coordinator that has not yet heard that it has
// lost its partition writes nothing between its successor's records.
func (p *Partition) AppendIn(epoch int32, a log.Append) (done log.Appended, wait func(context.Context) error, err error) {
	return p.append(a, -1, epoch, nil)
}

// AwaitCommit waits until everything below an offset is committed, in one leader epoch; errors
// are those of Append's wait.
func (p *Partition) AwaitCommit(ctx context.Context, epoch int32, offset int64) error {
	return p.committed(ctx, epoch, offset)
}

func (p *Partition) append(a log.Append, acks int16, epoch int32, by *Wakes) (done log.Appended, wait func(context.Context) error, err error) {
	p.lead.RLock()
	s := p.standing.Load()
	if !s.leads || s.log == nil || epoch >= 0 && s.epoch != epoch {
		p.lead.RUnlock()
		return log.Appended{}, nil, ErrNotLeader
	}
	minISR := 1
	if s.replicas > 1 {
		minISR = p.minISR()
		p.mu.Lock()
		enough := p.rules.enough(minISR)
		p.mu.Unlock()
		if acks == -1 && !enough {
			p.lead.RUnlock()
			return log.Appended{}, nil, ErrNotEnoughReplicas
		}
	}
	a.Epoch = s.epoch
	done, err = s.log.Append(a)
	if err != nil {
		p.lead.RUnlock()
		if errors.Is(err, log.ErrStorage) {
			p.stir() // the log may be offline: who waits shall look
		}
		return done, nil, err
	}
	need := done.Last + 1
	committed := p.appended(s, minISR, by)
	p.lead.RUnlock()

	flush := int64(0)
	if done.MustFlush {
		flush = need
	}
	if flush == 0 && (acks != -1 || committed >= need) {
		return done, nil, nil
	}
	return done, func(ctx context.Context) error {
		if flush > 0 {
			if err := s.log.Flush(flush); err != nil {
				return err
			}
		}
		if acks != -1 { // the leader's log is enough, if it is still the one that was written to
			if now := p.standing.Load(); !now.leads || now.epoch != s.epoch {
				return ErrNotLeader
			}
			return nil
		}
		return p.committed(ctx, s.epoch, need)
	}, nil
}

// appended moves the high watermark after an append and wakes fetches. It returns the watermark.
func (p *Partition) appended(s *standing, minISR int, by *Wakes) (hw int64) {
	now := int64(0)
	if s.replicas > 1 {
		now = p.now()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rules.appended(s.log.End(), now, minISR) {
		s.log.SetHighWatermark(p.rules.hw)
		p.freeLocked()
	}
	p.signalLocked(by)
	return p.rules.hw
}

// committed waits until everything below the offset is committed in the epoch.
func (p *Partition) committed(ctx context.Context, epoch int32, offset int64) error {
	for {
		minISR := p.minISR()
		p.mu.Lock()
		switch {
		case !p.rules.leads() || p.rules.epoch != epoch:
			p.mu.Unlock()
			return ErrNotLeader
		case p.rules.hw >= offset:
			enough := p.rules.enoughMaximal(minISR)
			p.mu.Unlock()
			if !enough {
				return ErrNotEnoughReplicasAfterAppend
			}
			return nil
		}
		if p.moved == nil {
			p.moved = make(chan struct{})
		}
		moved := p.moved
		p.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ErrTimedOut
			}
			return ctx.Err()
		}
	}
}

// fetched takes in how far a follower is; end is the log's end before its fetch was read.
func (p *Partition) fetched(r *Read, replica int32, brokerEpoch, end int64) {
	minISR, now := p.minISR(), p.now()
	p.lead.RLock()
	defer p.lead.RUnlock()
	s := p.standing.Load()
	if !s.leads || s.log == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	did := p.rules.fetched(replica, r.Offset, r.LogStart, end, now, brokerEpoch, minISR)
	if did.high {
		s.log.SetHighWatermark(p.rules.hw)
	}
	if did.high || did.low {
		p.stirLocked()
	}
	if did.join && p.m.opts.Meta.Load().Broker(replica) != nil {
		p.proposeLocked(s, append(slices.Clone(p.rules.isr), replica))
	}
}

// hasReplica says whether a broker is one of the partition's other replicas.
func (p *Partition) hasReplica(id int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rules.followers[id] != nil
}

// DeleteRecords moves the log's start up to an offset, or to the high watermark with -1, and
// returns the low watermark: the smallest start of the live replicas. wait is not nil while a
// live follower is behind. Errors: ErrNotLeader, ErrPolicy, log.ErrOffsetOutOfRange.
func (p *Partition) DeleteRecords(offset int64) (low int64, wait func(context.Context) (int64, error), err error) {
	if !p.m.opts.LogOptions(p.topic).CleanupDelete {
		return -1, nil, ErrPolicy
	}
	p.lead.RLock()
	s := p.standing.Load()
	if !s.leads || s.log == nil {
		p.lead.RUnlock()
		return -1, nil, ErrNotLeader
	}
	hw := s.log.HighWatermark()
	if offset == -1 {
		offset = hw
	}
	if offset < 0 || offset > hw {
		p.lead.RUnlock()
		return -1, nil, fmt.Errorf("delete records to %d, high watermark %d: %w", offset, hw, log.ErrOffsetOutOfRange)
	}
	if offset > s.log.Start() {
		if _, err = s.log.DeleteRecords(offset); err != nil {
			p.lead.RUnlock()
			return -1, nil, err
		}
	}
	p.lead.RUnlock()
	p.stir() // fetches below the new start have something to hear
	if low = p.low(s); low >= offset {
		return low, nil, nil
	}
	return low, func(ctx context.Context) (int64, error) { return p.lowReached(ctx, s.epoch, offset) }, nil
}

func (p *Partition) low(s *standing) int64 {
	picture := p.m.opts.Meta.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rules.low(s.log.Start(), func(id int32) bool { return picture.Broker(id) != nil })
}

// lowReached waits until the low watermark has come to an offset.
func (p *Partition) lowReached(ctx context.Context, epoch int32, offset int64) (int64, error) {
	for {
		p.mu.Lock()
		if p.moved == nil {
			p.moved = make(chan struct{})
		}
		moved := p.moved
		p.mu.Unlock()
		s := p.standing.Load()
		if !s.leads || s.log == nil || s.epoch != epoch {
			return -1, ErrNotLeader
		}
		low := p.low(s)
		if low >= offset {
			return low, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return low, ErrTimedOut
			}
			return low, ctx.Err()
		}
	}
}
