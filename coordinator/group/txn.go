package group

import (
	"context"
	"errors"

	"ottla/coordinator"
	"ottla/protocol/record"
)

// TxnCommitRequest is one TxnOffsetCommit: offsets that count once their transaction is committed.
type TxnCommitRequest struct {
	CommitRequest // NewErrors and Retention are of no concern
	Producer      int64
	Epoch         int16
	// Guard is that of BeginTxnCommit; 0: the transaction has been seen here already.
	Guard uint64
}

// txnState is what a machine knows of the transactions of producers, beside their offsets.
type txnState struct {
	last uint64 // guard given out
	// guards are of producers whose transaction is being looked up at its coordinator. A marker
	// takes them away: what was found out before the end of a transaction says nothing about the
	// one that follows.
	guards map[int64]uint64
	ending map[int64]int   // markers on their way to the log
	epochs map[int64]int16 // in which offsets are open, by producer id
}

// isEnrolled tells that the transaction coordinator knows of the producer's offsets here. Those
// of an older epoch may be decided already, and only lack their marker.
func (m *Machine) isEnrolled(producer int64, epoch int16) bool {
	return len(m.open[producer]) > 0 && m.txn.epochs[producer] == epoch && m.txn.ending[producer] == 0
}

// BeginTxnCommit answers with a guard (uint64) for offsets of a producer's transaction. 0: it has
// offsets here already, and nothing is to be looked up.
func (m *Machine) BeginTxnCommit(producer int64, epoch int16, to *coordinator.Ticket) coordinator.Effects {
	if m.isEnrolled(producer, epoch) {
		return reply(to, uint64(0), nil)
	}
	guard, ok := m.txn.guards[producer]
	if !ok {
		m.txn.last++
		guard = m.txn.last
		if m.txn.guards == nil {
			m.txn.guards = map[int64]uint64{}
		}
		m.txn.guards[producer] = guard
	}
	return reply(to, guard, nil)
}

// DropTxnCommit forgets a guard: the transaction does not have the group.
func (m *Machine) DropTxnCommit(producer int64, guard uint64, to *coordinator.Ticket) coordinator.Effects {
	if m.txn.guards[producer] == guard {
		delete(m.txn.guards, producer)
	}
	return reply(to, nil, nil)
}

// CommitTxn keeps offsets aside until the marker of their transaction, and answers with one error,
// or nil, for each partition in the order of the request ([][]error by topic).
func (m *Machine) CommitTxn(now coordinator.Instant, r TxnCommitRequest, to *coordinator.Ticket) coordinator.Effects {
	if err := m.mayCommitTxn(r); err != nil {
		return reply(to, nil, err)
	}
	o := m.options()
	type kept struct {
		at place
		o  offset
	}
	errs, n := noErrors(r.Topics)
	all := make([]kept, 0, n)
	out := coordinator.Effects{Producer: &coordinator.Producer{ID: r.Producer, Epoch: r.Epoch}, Records: make([]coordinator.Record, 0, n)}
	for i, t := range r.Topics {
		for j, p := range t.Partitions {
			if !o.MetadataFits(p.Metadata) {
				errs[i][j] = ErrMetadataTooLarge
				continue
			}
			k := kept{place{r.Group, t.Name, p.Partition}, offset{at: p.Offset, epoch: p.LeaderEpoch, metadata: p.Metadata,
				committed: now.Wall, expires: -1, topicID: t.ID}}
			all = append(all, k)
			out.Records = append(out.Records, offsetRecord(k.at, k.o))
		}
	}
	out.Answers = []coordinator.Answer{{To: to, Value: errs}}
	out.Then = func(c coordinator.Commit) (none coordinator.Effects) {
		if c.Err != nil {
			return none
		}
		delete(m.txn.guards, r.Producer)
		for i, k := range all {
			k.o.record = c.Offsets[i]
			m.keepPending(r.Producer, r.Epoch, k.at, k.o)
		}
		return none
	}
	return out
}

// mayCommitTxn tells whether offsets of a transaction may be kept (Kafka:
// OffsetMetadataManager.validateTransactionalOffsetCommit, ClassicGroup.validateOffsetCommit). A
// producer of before KIP-447 names neither member nor generation, and is let in at any time.
func (m *Machine) mayCommitTxn(r TxnCommitRequest) error {
	if !m.isEnrolled(r.Producer, r.Epoch) && (r.Guard == 0 || m.txn.guards[r.Producer] != r.Guard) {
		return ErrTxnEnded
	}
	g := m.groups[r.Group]
	switch {
	case g == nil && r.Generation >= 0:
		return ErrIllegalGeneration
	case g != nil && g.consumer != nil:
		if r.Generation == -1 && r.MemberID == "" && r.InstanceID == nil { // a producer of before KIP-447
			return nil
		}
		return g.consumer.mayCommit(r.CommitRequest, true)
	case g == nil, r.Generation < 0 && g.state == Empty:
		return nil
	case r.Generation >= 0 || r.MemberID != "" || r.InstanceID != nil:
		if err := g.check(r.MemberID, r.InstanceID); err != nil {
			return err
		}
		if r.Generation != g.generation {
			return ErrIllegalGeneration
		}
	}
	return nil
}

// keepPending keeps an offset of an open transaction.
func (m *Machine) keepPending(producer int64, epoch int16, p place, o offset) {
	m.simpleGroup(p.group)
	if m.open == nil {
		m.open = map[int64]map[place]offset{}
	}
	if m.open[producer] == nil {
		m.open[producer] = map[place]offset{}
	}
	m.open[producer][p] = o
	if m.txn.epochs == nil {
		m.txn.epochs = map[int64]int16{}
	}
	m.txn.epochs[producer] = epoch
}

// TxnEnd is the end of a producer's transaction, as its coordinator decided.
type TxnEnd struct {
	Producer         int64
	Epoch            int16
	CoordinatorEpoch int32
	Commit           bool
	Version          int16 // transaction.version by which it ends: from 2 on the epoch is above that of its offsets
}

// EndTxn writes the marker of a transaction: its offsets become those of their groups, or are
// forgotten. The answer has no value.
func (m *Machine) EndTxn(r TxnEnd, to *coordinator.Ticket) coordinator.Effects {
	if epoch, open := m.txn.epochs[r.Producer]; open && r.Version >= 2 && epoch == r.Epoch {
		return reply(to, nil, ErrStaleMarker)
	}
	delete(m.txn.guards, r.Producer)
	if m.txn.ending == nil {
		m.txn.ending = map[int64]int{}
	}
	m.txn.ending[r.Producer]++
	return coordinator.Effects{
		Producer: &coordinator.Producer{ID: r.Producer, Epoch: r.Epoch,
			End: &record.EndMarker{Commit: r.Commit, CoordinatorEpoch: r.CoordinatorEpoch}},
		Answers: []coordinator.Answer{{To: to}},
		Then: func(c coordinator.Commit) (none coordinator.Effects) {
			if m.txn.ending[r.Producer]--; m.txn.ending[r.Producer] == 0 {
				delete(m.txn.ending, r.Producer)
			}
			if c.Err == nil {
				m.ReplayMarker(r.Producer, r.Commit)
			}
			return none
		},
	}
}

// CommitTxn keeps offsets of a transaction. enrolled is asked whether the transaction has the
// partition of Topic that the group is on, where that is not known yet; its error is the answer.
func (c *Coordinator) CommitTxn(ctx context.Context, r TxnCommitRequest, enrolled func(ctx context.Context, partition int32) error) ([][]error, error) {
	for try := 1; ; try++ {
		errs, err := c.commitTxn(ctx, r, enrolled)
		if try == commitTries || !errors.Is(err, ErrTxnEnded) {
			return errs, err
		}
	}
}

// commitTries is how often offsets are tried whose guard a marker overtakes. One may: that of the
// transaction before, written between the guard and the answer of its coordinator.
const commitTries = 3

func (c *Coordinator) commitTxn(ctx context.Context, r TxnCommitRequest, enrolled func(ctx context.Context, partition int32) error) ([][]error, error) {
	shard := c.PartitionFor(r.Group)
	guard, err := do[uint64](ctx, c, shard, 0, func(m *Machine, _ coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
		return m.BeginTxnCommit(r.Producer, r.Epoch, to)
	})
	if err != nil {
		return nil, err
	}
	if r.Guard = guard; guard != 0 {
		if err := enrolled(ctx, shard); err != nil {
			c.runtime.Do(context.WithoutCancel(ctx), shard, 0, func(m *Machine, _ coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
				return m.DropTxnCommit(r.Producer, guard, to)
			})
			return nil, err
		}
	}
	return do[[][]error](ctx, c, shard, 0, func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
		return m.CommitTxn(now, r, to)
	})
}

// EndTxn writes the marker of a transaction to a partition of Topic.
func (c *Coordinator) EndTxn(ctx context.Context, partition int32, r TxnEnd) error {
	_, err := c.runtime.Do(ctx, partition, 0, func(m *Machine, _ coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
		return m.EndTxn(r, to)
	})
	return err
}
