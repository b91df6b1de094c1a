package record

import (
	"bytes"
	"iter"
)

// MinEntrySize is the size of the smallest entry of any format.
const MinEntrySize = entryPrefix + minMessageV0

// Message is one message of v0 or v1 as a record, with what only such a message has.
type Message struct {
	Record
	inner Batch
}

// CRC is the checksum that the message has of its own, also within a compressed set.
func (m Message) CRC() uint32 { return m.inner.CRC() }

// Valid compares it with the message's bytes.
func (m Message) Valid() bool { return m.inner.CRC() == m.inner.ComputeCRC() }

// Messages is Records for an entry of v0 or v1. A message is valid until the next.
func Messages(b Batch, maxDecompressed int64) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		eachRecord(b, maxDecompressed, func(inner Batch, r Record, err error) bool {
			return yield(Message{r, inner}, err)
		})
	}
}

// eachRecord yields the messages of an entry of v0 or v1 with their absolute offsets. A v1 set is
// read twice: only its end says what its offsets count from.
func eachRecord(b Batch, most int64, yield func(Batch, Record, error) bool) {
	compressed := b.Codec() != None
	base, err := int64(0), error(nil)
	if compressed && b.Magic() == 1 {
		last := int64(0)
		err = eachMessage(b, most, false, func(inner Batch, _ message) error {
			last = inner.BaseOffset()
			return nil
		})
		if err == nil {
			base, err = wrapperBase(b, last)
		}
	}
	if err == nil {
		err = eachMessage(b, most, false, func(inner Batch, m message) error {
			r := Record{Offset: base + inner.BaseOffset(), Timestamp: m.timestamp, Key: m.key, Value: m.value}
			if compressed {
				r.Key, r.Value = bytes.Clone(m.key), bytes.Clone(m.value)
			}
			if !yield(inner, r, nil) {
				return errStopped
			}
			return nil
		})
	}
	if err != nil && err != errStopped {
		yield(nil, Record{}, err)
	}
}
