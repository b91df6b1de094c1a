package log

import (
	"errors"
	"slices"

	"ottla/protocol/record"
)

// A producer snapshot has the last batch of each producer. In Kafka that is all that can be sent again
// after a restart: a connection's next request is not looked at before the one before is answered. Here
// all that a client has in flight may be in the log when the broker ends, and unanswered. So where a
// producer that was read from a snapshot sends what lies before that, its batches are looked for in the log.

// recallOffsets is how far back, in offsets, they are looked for; the first look is recallFirst.
const (
	recallFirst   = 1 << 10
	recallOffsets = 1 << 19
)

// precedes says whether a batch of the producer lies before all that are remembered, of which there
// may be more in the log.
func (p *producer) precedes(b record.Batch) bool {
	if !p.partial || p.n == 0 || p.n == retainedBatches || p.epoch != b.ProducerEpoch() {
		return false
	}
	return (p.batches[0].firstSeq()-b.LastSequence()-1)&(1<<31-1) < 1<<30 // modulo 2^31, as they wrap
}

// recall completes what is remembered of a producer by the log, once. The caller holds mu.
func (l *Log) recall(p *producer) error {
	before, list := p.batches[0].firstOffset(), l.segments()
	for i := max(floor(list, before-recallOffsets), 0); i < len(list) && list[i].base < before; i++ {
		if list[i].size.Load() == 0 {
			continue
		}
		if err := list[i].ensure(); err != nil {
			return l.recallFailed(err)
		}
	}
	var found []batchMeta
	lowest := max(list[0].base, before-recallOffsets)
	for span := int64(recallFirst); ; span *= 8 {
		from := max(before-span, lowest)
		found = found[:0]
		err := l.walk(list, from, before, func(_ *segment, sc *scanner) error {
			b := sc.head
			switch {
			case b.ProducerID() != p.id:
			case b.ProducerEpoch() != p.epoch:
				found = found[:0]
			case !b.IsControl():
				found = append(found, batchMeta{b.LastOffset(), b.MaxTimestamp(), b.LastOffsetDelta(), b.LastSequence()})
			}
			return nil
		})
		if err != nil {
			return l.recallFailed(err)
		}
		if len(found) >= retainedBatches-int(p.n) || from == lowest {
			break
		}
	}
	all := slices.Concat(found, p.batches[:p.n])
	all = all[max(len(all)-retainedBatches, 0):]
	p.n, p.partial = int8(copy(p.batches[:], all)), false
	return nil
}

// recallFailed says what it means that the log could not be read; of what is damaged nothing is known.
func (l *Log) recallFailed(err error) error {
	if errors.Is(err, ErrDamaged) {
		return nil
	}
	return l.readFailed("look for a producer's batches", err)
}
