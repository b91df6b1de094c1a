package log

import (
	"fmt"

	"ottla/protocol/record"
)

// verification is a question to the transaction coordinator that is not answered yet: has the
// transaction of this producer the partition (Kafka's VerificationStateEntry, KIP-890)? It ends
// with the first batch of the transaction, and with any marker of the producer: an answer of
// before the marker says nothing about the transaction after it.
type verification struct {
	guard  uint64
	time   int64 // ms
	epoch  int16
	lowest int32 // sequence of the batches that wait for the answer: none above it may be first
}

// epochBumpVersion is that of Produce from which every transaction has an epoch of its own (KIP-890), and so begins with
// sequence 0.
const epochBumpVersion = 12

// StartVerification begins to look up whether a transaction of a producer has this partition; the
// guard goes into the Append that rests on it. 0: the transaction is open here, which says enough.
func (l *Log) StartVerification(producerID int64, epoch int16, sequence int32) (guard uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.state
	if s.isOpen(producerID, epoch) {
		return 0
	}
	v := s.verifying[producerID]
	switch {
	case v == nil:
		s.lastGuard++
		v = &verification{guard: s.lastGuard, epoch: epoch, lowest: sequence}
		if s.verifying == nil {
			s.verifying = map[int64]*verification{}
		}
		s.verifying[producerID] = v
	case epoch > v.epoch:
		v.epoch, v.lowest = epoch, sequence
	case epoch == v.epoch:
		v.lowest = min(v.lowest, sequence)
	}
	v.time = l.m.nowMs()
	return v.guard
}

// isOpen tells that a producer has a transaction open in the epoch. What is open in an older one
// may be decided already, and only lack its marker.
func (s *producerState) isOpen(producerID int64, epoch int16) bool {
	p := s.byID[producerID]
	return p != nil && p.txnFirst >= 0 && p.epoch == epoch
}

// DropVerification forgets a verification whose answer was a final no.
func (l *Log) DropVerification(producerID int64, guard uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.state.verifying[producerID]; v != nil && v.guard == guard {
		delete(l.state.verifying, producerID)
	}
}

// errOfVerification holds a client's batch against the verification of its transaction.
func (s *producerState) errOfVerification(b record.Batch, a *Append) error {
	id, v := b.ProducerID(), s.verifying[b.ProducerID()]
	if a.VerifyTxn && b.IsTransactional() {
		if !s.isOpen(id, b.ProducerEpoch()) && (v == nil || v.guard != a.Guard) {
			return fmt.Errorf("producer %d: %w", id, ErrUnverified)
		}
	}
	if v != nil && b.IsTransactional() && a.RequestVersion >= epochBumpVersion && s.byID[id] == nil && b.BaseSequence() != 0 {
		return fmt.Errorf("producer %d begins with sequence %d: %w", id, b.BaseSequence(), ErrOutOfOrderSequence)
	}
	if v != nil && b.BaseSequence() > v.lowest {
		return fmt.Errorf("producer %d sends sequence %d, and %d is to come before it: %w", id, b.BaseSequence(), v.lowest, ErrOutOfOrderSequence)
	}
	return nil
}
