package replica

import (
	"context"
	"sync"
)

// A broker that was stopped cleanly need not open all logs before it serves: it leads a partition
// whose log rests, and opens it with the first that asks for the partition, or when Settle comes to
// it. Only partitions of one replica can wait: what others have to hear of a log, its end and its
// epochs, is not known before.

// failures are partitions whose logs could not be opened when somebody asked for them.
type failures struct {
	mu  sync.Mutex
	err map[Key]error // guarded by mu
}

func (m *Manager) canWait(before *standing, s State) bool {
	return before.epoch < 0 && s.Leader == m.opts.BrokerID && len(s.Replicas) == 1 && !s.New && m.opts.Logs.Resting(s.Topic, s.Partition)
}

// wait takes over that this broker leads, and leaves the rest to settle. The caller holds
// Manager.change.
func (p *Partition) wait(s State) {
	p.lead.Lock()
	defer p.lead.Unlock()
	p.standing.Store(&standing{late: &s, id: s.ID, leader: s.Leader, leads: true, epoch: s.LeaderEpoch, start: -1, replicas: int32(len(s.Replicas))})
}

// settle takes over the state that was put off, if there is one.
func (p *Partition) settle() {
	if p.standing.Load().late == nil {
		return
	}
	p.lead.Lock()
	defer p.lead.Unlock()
	s := p.standing.Load().late
	if s == nil {
		return
	}
	err := p.applyLocked(&unknown, *s)
	if err == nil {
		return
	}
	if p.standing.Load().late != nil {
		p.standing.Store(&standing{id: s.ID, leader: -1, epoch: s.LeaderEpoch, start: -1, replicas: int32(len(s.Replicas))})
	}
	m := p.m
	m.opts.Logger.Error("partition state not taken over", "topic", p.topic, "partition", p.number, "leader", s.Leader, "leader_epoch", s.LeaderEpoch, "err", err)
	m.late.mu.Lock()
	defer m.late.mu.Unlock()
	if m.late.err == nil {
		m.late.err = map[Key]error{}
	}
	m.late.err[Key{p.topic, p.number}] = err
}

// OpenAll opens all logs that rest, until ctx ends.
func (m *Manager) OpenAll(ctx context.Context) {
	var late []*Partition
	m.each(func(p *Partition) {
		if p.standing.Load().late != nil {
			late = append(late, p)
		}
	})
	for _, p := range late {
		if ctx.Err() != nil {
			return
		}
		p.settle()
	}
}

// Settle is OpenAll and says what came of each that failed, by the errors of Apply: the controller,
// which counts them as led, has to hear of it.
func (m *Manager) Settle(ctx context.Context) map[Key]error {
	m.OpenAll(ctx)
	m.late.mu.Lock()
	defer m.late.mu.Unlock()
	failed := m.late.err
	m.late.err = nil
	return failed
}
