package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ISRChange is what a leader asks the controller for: another in-sync set (AlterPartition).
type ISRChange struct {
	Key
	ID             [16]byte
	LeaderEpoch    int32
	PartitionEpoch int32 // which the change replaces
	ISR            []int32
}

// ISRResult is the controller's answer for one partition: the state that it has now, or Err.
type ISRResult struct {
	LeaderEpoch, PartitionEpoch int32
	ISR                         []int32
	Err                         error
}

// What the controller can say against a change.
var (
	// ErrNotEligible: a replica that shall join is not alive, or about to leave. The set stays.
	ErrNotEligible = errors.New("replica is not eligible for the in-sync set")
	// ErrSuperseded: the partition has changed meanwhile; the controller tells its leader how.
	ErrSuperseded = errors.New("the partition has changed meanwhile")
)

// What is asked again comes after a pause, so that a controller that cannot answer is not asked
// without end.
const (
	firstAsk = 50 * time.Millisecond
	lastAsk  = time.Second
)

// proposals are the in-sync sets that the controller has to be asked for; a goroutine of Run asks for
// all that have gathered at once. At most one a partition is under way: machine.proposed says so.
type proposals struct {
	mu   sync.Mutex
	list []ISRChange   // guarded by mu
	kick chan struct{} // holds one: list has something
}

func (s *proposals) add(ch ISRChange) {
	s.mu.Lock()
	s.list = append(s.list, ch)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *proposals) take() []ISRChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}

// proposeLocked asks for another in-sync set. The caller holds mu.
func (p *Partition) proposeLocked(s *standing, isr []int32) {
	if p.m.opts.AlterISR == nil {
		return
	}
	p.rules.propose(isr)
	p.m.proposals.add(ISRChange{Key: Key{p.topic, p.number}, ID: s.id, LeaderEpoch: p.rules.epoch, PartitionEpoch: p.rules.version, ISR: isr})
}

// shrink drops followers that have lagged too long from the in-sync set.
func (p *Partition) shrink() {
	s := p.standing.Load()
	if !s.leads || s.replicas < 2 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	late := p.rules.lagging(p.now())
	if len(late) == 0 {
		return
	}
	isr := slices.DeleteFunc(slices.Clone(p.rules.isr), func(id int32) bool { return slices.Contains(late, id) })
	p.m.opts.Logger.Info("followers lag too far behind to be in sync", "topic", p.topic, "partition", p.number, "leader_epoch", p.rules.epoch,
		"lagging", late, "in_sync", isr, "high_watermark", p.rules.hw, "end", p.rules.end)
	p.proposeLocked(s, isr)
}

// decide takes over what the controller has decided. again: it has to be asked once more.
func (p *Partition) decide(ch ISRChange, r ISRResult) (again bool) {
	p.lead.RLock()
	defer p.lead.RUnlock()
	minISR := p.minISR()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.standing.Load()
	if !s.leads || s.log == nil || p.rules.epoch != ch.LeaderEpoch || p.rules.version != ch.PartitionEpoch || !slices.Equal(p.rules.proposed, ch.ISR) {
		return false // the controller has told of something newer
	}
	switch {
	case r.Err == nil:
		if r.LeaderEpoch != p.rules.epoch {
			return false
		}
		if p.rules.decided(r.ISR, r.PartitionEpoch, p.now(), minISR) {
			s.log.SetHighWatermark(p.rules.hw)
		}
		p.m.opts.Logger.Info("in-sync set changed", "topic", p.topic, "partition", p.number, "in_sync", r.ISR, "partition_epoch", r.PartitionEpoch)
		p.stirLocked()
		return false
	case errors.Is(r.Err, ErrNotEligible):
		p.rules.proposed = nil
		return false
	case errors.Is(r.Err, ErrSuperseded), errors.Is(r.Err, ErrFencedEpoch), errors.Is(r.Err, ErrUnknownPartition), errors.Is(r.Err, ErrTopicID):
		// What was proposed may have come about: it counts until the controller tells the state.
		p.m.opts.Logger.Info("in-sync set not changed", "topic", p.topic, "partition", p.number, "proposed", ch.ISR, "err", r.Err)
		return false
	}
	return true
}

// alive says whether a broker is in the picture.
func (m *Manager) alive(id int32) bool { return m.opts.Meta.Load().Broker(id) != nil }

// reconsider moves the high watermark on that a broker may have held back which has left.
func (p *Partition) reconsider() {
	p.lead.RLock()
	defer p.lead.RUnlock()
	s := p.standing.Load()
	if !s.leads || s.log == nil || s.replicas < 2 {
		return
	}
	minISR := p.minISR()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rules.advance(p.now(), minISR) {
		s.log.SetHighWatermark(p.rules.hw)
		p.stirLocked()
	}
}

// Run asks the controller for the in-sync sets that partitions need, and looks for followers that lag
// too far behind, until ctx ends. It is needed where partitions have followers.
func (m *Manager) Run(ctx context.Context) error {
	lag := time.NewTicker(max(m.opts.LagMax/2, time.Millisecond))
	defer lag.Stop()
	answers := make(chan func(), 1)
	busy, pause := false, firstAsk
	var due <-chan time.Time // of the next question, after one that had no answer
	var held []ISRChange
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	brokers, changed := m.opts.Meta.Next()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			before := len(brokers.Brokers)
			if brokers, changed = m.opts.Meta.Next(); len(brokers.Brokers) < before {
				m.each((*Partition).reconsider)
			}
		case <-lag.C:
			m.each((*Partition).shrink)
		case <-m.proposals.kick:
		case <-due:
			due = nil
		case f := <-answers:
			f()
		}
		if busy || due != nil {
			continue
		}
		batch := append(held, m.proposals.take()...)
		held = nil
		if len(batch) == 0 {
			continue
		}
		busy = true
		asking.Go(func() {
			results, err := m.opts.AlterISR(ctx, batch)
			if err == nil && len(results) != len(batch) {
				err = fmt.Errorf("%d answers to %d changes", len(results), len(batch))
			}
			answers <- func() {
				busy = false
				for i, ch := range batch {
					r := ISRResult{Err: err}
					if err == nil {
						r = results[i]
					}
					if p := m.place(ch.Topic, ch.Partition); p != nil && p.decide(ch, r) {
						held = append(held, ch)
					}
				}
				if len(held) == 0 {
					pause = firstAsk
					return
				}
				if ctx.Err() == nil {
					m.opts.Logger.Debug("the controller is asked again for in-sync sets", "partitions", len(held), "err", err)
				}
				due = time.After(pause)
				pause = min(2*pause, lastAsk)
			}
		})
	}
}
