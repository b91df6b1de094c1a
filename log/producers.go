package log

import (
	"fmt"
	"math"
	"slices"

	"ottla/protocol/record"
)

// retainedBatches is how many of its last batches a producer may send again (Kafka's
// ProducerStateEntry.NUM_BATCHES_TO_RETAIN): as many as its client lets be in flight.
const retainedBatches = 5

// batchMeta is what is remembered of a producer's batch.
type batchMeta struct {
	lastOffset int64
	time       int64 // largest timestamp
	delta      int32 // last offset minus first
	lastSeq    int32
}

func (b batchMeta) firstOffset() int64 { return b.lastOffset - int64(b.delta) }

// firstSeq undoes the wrapping of record.AddSequence.
func (b batchMeta) firstSeq() int32 {
	if b.lastSeq < b.delta {
		return math.MaxInt32 - (b.delta - b.lastSeq) + 1
	}
	return b.lastSeq - b.delta
}

// producer is the state of one producer id (Kafka's ProducerStateEntry, KIP-98).
type producer struct {
	id               int64
	epoch            int16
	n                int8 // how many of batches there are, oldest first
	partial          bool // it was read from a snapshot: the log may have more of them; see recall.go
	coordinatorEpoch int32
	lastTime         int64
	txnFirst         int64 // -1: no transaction is open
	batches          [retainedBatches]batchMeta
}

func newProducer(id int64) producer {
	return producer{id: id, epoch: -1, coordinatorEpoch: -1, lastTime: noTime, txnFirst: -1}
}

func (p *producer) lastSeq() int32 {
	if p.n == 0 {
		return -1
	}
	return p.batches[p.n-1].lastSeq
}

func (p *producer) setEpoch(epoch int16) {
	if p.epoch != epoch {
		p.epoch, p.n, p.partial = epoch, 0, false
	}
}

func (p *producer) add(b batchMeta) {
	if p.n == retainedBatches {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = b
	p.n++
}

// duplicate finds the retained batch with just these sequence numbers.
func (p *producer) duplicate(b record.Batch) (batchMeta, bool) {
	if p.epoch != b.ProducerEpoch() {
		return batchMeta{}, false
	}
	first, last := b.BaseSequence(), b.LastSequence()
	for _, m := range p.batches[:p.n] {
		if m.lastSeq == last && m.firstSeq() == first {
			return m, true
		}
	}
	return batchMeta{}, false
}

// txn is a stretch of a transaction in this log: last is the offset of its marker, noOffset
// while it is open.
type txn struct{ id, first, last int64 }

// producerState is what a log knows of its producers (Kafka's ProducerStateManager). All is
// guarded by the log's lock.
type producerState struct {
	byID map[int64]*producer // nil until there is one
	// Transactions by their first offset: those that are open, and those whose marker is not
	// below the high watermark yet.
	open   []txn
	ending []txn

	verifying map[int64]*verification // by producer id; nil until there is one
	lastGuard uint64

	snapshot []int64 // offsets of the snapshot files, rising
}

// errOf says what is wrong with a producer's batch, if anything is. The rules are those of
// Kafka's ProducerAppendInfo: an epoch never goes back; a new one starts with sequence 0; within
// one there is no gap; an unknown producer may begin anywhere.
func (s *producerState) errOf(b record.Batch, a *Append) error {
	client := a.Origin == record.Client
	p := s.byID[b.ProducerID()]
	epoch, seq := b.ProducerEpoch(), b.BaseSequence()
	if p != nil && epoch < p.epoch { // first of all: whoever is fenced shall learn just that (KAFKA-19690)
		return fmt.Errorf("producer %d with epoch %d, last seen %d: %w", p.id, epoch, p.epoch, ErrInvalidProducerEpoch)
	}
	if client {
		if err := s.errOfVerification(b, a); err != nil {
			return err
		}
	}
	if p == nil {
		return nil
	}
	if client {
		switch {
		case epoch != p.epoch:
			if seq != 0 && p.epoch != -1 {
				return fmt.Errorf("producer %d starts epoch %d after %d with sequence %d: %w", p.id, epoch, p.epoch, seq, ErrOutOfOrderSequence)
			}
		case p.epoch != -1:
			last := p.lastSeq()
			if int64(seq) != int64(last)+1 && (seq != 0 || last != math.MaxInt32) {
				return fmt.Errorf("producer %d sends sequence %d after %d: %w", p.id, seq, last, ErrOutOfOrderSequence)
			}
		}
	}
	if p.txnFirst >= 0 && !b.IsTransactional() {
		return fmt.Errorf("producer %d: %w", p.id, ErrInvalidTxnState)
	}
	return nil
}

// errOfMarker says whether a transaction marker may be appended.
func (s *producerState) errOfMarker(b record.Batch, m record.EndMarker, version int16) error {
	p := s.byID[b.ProducerID()]
	if p == nil {
		return nil
	}
	if b.ProducerEpoch() < p.epoch {
		return fmt.Errorf("marker for producer %d with epoch %d, last seen %d: %w", p.id, b.ProducerEpoch(), p.epoch, ErrInvalidProducerEpoch)
	}
	if version >= 2 && p.txnFirst >= 0 && b.ProducerEpoch() == p.epoch {
		// It ended the transaction before, and comes a second time.
		return fmt.Errorf("marker for producer %d with epoch %d, in which a transaction is open: %w", p.id, p.epoch, ErrInvalidProducerEpoch)
	}
	if p.coordinatorEpoch > m.CoordinatorEpoch {
		return fmt.Errorf("marker for producer %d from coordinator epoch %d, last seen %d: %w", p.id, m.CoordinatorEpoch, p.coordinatorEpoch, ErrCoordinatorFenced)
	}
	return nil
}

func (s *producerState) get(id int64) *producer {
	p := s.byID[id]
	if p == nil {
		if s.byID == nil {
			s.byID = map[int64]*producer{}
		}
		fresh := newProducer(id)
		p = &fresh
		s.byID[id] = p
	}
	return p
}

// apply takes in a batch with a producer id that is in the log now.
func (s *producerState) apply(b record.Batch) {
	p := s.get(b.ProducerID())
	p.setEpoch(b.ProducerEpoch())
	p.add(batchMeta{b.LastOffset(), b.MaxTimestamp(), b.LastOffsetDelta(), b.LastSequence()})
	p.lastTime = b.MaxTimestamp()
	if b.IsTransactional() && p.txnFirst < 0 {
		delete(s.verifying, p.id)
		p.txnFirst = b.BaseOffset()
		s.open = insertTxn(s.open, txn{p.id, p.txnFirst, noOffset})
	}
}

// applyMarker takes in a transaction marker that is in the log now. If it ended a transaction
// here, ended is that, with the last stable offset after it.
func (s *producerState) applyMarker(b record.Batch, m record.EndMarker) (ended txn, stable int64, ok bool) {
	p := s.get(b.ProducerID())
	delete(s.verifying, p.id)
	if p.txnFirst >= 0 {
		ended, ok = txn{p.id, p.txnFirst, b.BaseOffset()}, true
	}
	p.setEpoch(b.ProducerEpoch())
	p.coordinatorEpoch, p.txnFirst, p.lastTime = m.CoordinatorEpoch, -1, b.MaxTimestamp()
	if !ok {
		return ended, 0, false
	}
	stable = b.BaseOffset() + 1
	s.open = slices.DeleteFunc(s.open, func(t txn) bool { return t.id == p.id })
	if len(s.open) > 0 {
		stable = s.open[0].first
	}
	s.ending = insertTxn(s.ending, ended)
	return ended, stable, true
}

func insertTxn(list []txn, t txn) []txn {
	i, _ := slices.BinarySearchFunc(list, t.first, func(x txn, first int64) int {
		switch {
		case x.first < first:
			return -1
		case x.first > first:
			return 1
		}
		return 0
	})
	return slices.Insert(list, i, t)
}

// firstUnstable is the offset from which on nothing is decided and replicated; MaxInt64 if
// everything is.
func (s *producerState) firstUnstable() int64 {
	first := int64(math.MaxInt64)
	if len(s.open) > 0 {
		first = s.open[0].first
	}
	if len(s.ending) > 0 {
		first = min(first, s.ending[0].first)
	}
	return first
}

// decided drops ended transactions whose marker is below the high watermark.
func (s *producerState) decided(watermark int64) {
	s.ending = slices.DeleteFunc(s.ending, func(t txn) bool { return t.last < watermark })
	if len(s.ending) == 0 {
		s.ending = nil
	}
}

// expire forgets producers that have not written for so long, unless a transaction is open
// (producer.id.expiration.ms).
func (s *producerState) expire(now, after int64) {
	for id, p := range s.byID {
		if p.expired(now, after) {
			delete(s.byID, id)
		}
	}
	if len(s.byID) == 0 {
		s.byID = nil
	}
	for id, v := range s.verifying {
		if now-v.time >= after {
			delete(s.verifying, id)
		}
	}
}

func (p *producer) expired(now, after int64) bool {
	return p.txnFirst < 0 && now-p.lastTime >= after
}

// clear forgets all producers; the snapshot files are the caller's concern.
func (s *producerState) clear() {
	s.byID, s.open, s.ending, s.verifying = nil, nil, nil, nil
}
