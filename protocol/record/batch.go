// Package record is the bytes that Kafka stores and sends as records: batches (format v2) and
// the message sets of before 0.11 (v0, v1). It views, checks, builds and converts them, and
// packs and unpacks the four codecs. It knows no files, sockets or wire codes.
//
// What a client sends goes through Validate once, and what Validate returns is always v2.
// Offsets, leader epochs and everything else that only a log knows are patched into the batch
// afterwards; they lie before the checksum's range.
package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
)

// Where the fields of a v2 batch lie (KIP-98; Kafka's DefaultRecordBatch). The first three
// and the magic byte lie at the same place in v0 and v1.
const (
	atBaseOffset      = 0
	atLength          = 8 // of what follows it
	atLeaderEpoch     = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21 // the checksum covers from here to the end
	atLastOffsetDelta = 23
	atBaseTimestamp   = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atCount           = 57

	// HeaderSize is the size of a v2 batch without its records.
	HeaderSize = 61

	entryPrefix = 12 // offset and length, before every entry of any format
)

// Bits of a batch's attributes.
const (
	codecMask         = 0x07
	logAppendTimeBit  = 0x08
	transactionalBit  = 0x10
	controlBit        = 0x20
	deleteHorizonBit  = 0x40
	knownAttributes   = codecMask | logAppendTimeBit | transactionalBit | controlBit | deleteHorizonBit
	noTimestamp       = -1
	noProducerID      = -1
	noSequence        = -1
	maxSequence       = math.MaxInt32
	noProducerEpoch   = -1
	noLeaderEpoch     = -1
	smallestEntryBody = minMessageV0
)

// castagnoli is the polynomial of v2's checksum; the standard library has it in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is one whole entry of a log, as Split returns it: a v2 batch, or one message of v0 or
// v1 (which may be a wrapper around a compressed set). The accessors answer for the old
// formats what Kafka's AbstractLegacyRecordBatch answers: no producer, no epoch, no control.
// The setters, Body, Count, BaseTimestamp and LastOffsetDelta are for v2 alone.
type Batch []byte

// Magic is the format: 0, 1 or 2.
func (b Batch) Magic() int8 { return int8(b[atMagic]) }

// Length is the size in bytes of the whole entry by its own length field, the 12 bytes of
// offset and length included.
func (b Batch) Length() int { return entryPrefix + int(int32(binary.BigEndian.Uint32(b[atLength:]))) }

// BaseOffset is the offset of the first record. A v0 or v1 wrapper has only that of its last
// one, and then so is this.
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b[atBaseOffset:])) }

// LeaderEpoch is the leader epoch under which the batch was appended, -1 in v0 and v1.
func (b Batch) LeaderEpoch() int32 {
	if b.Magic() < 2 {
		return noLeaderEpoch
	}
	return b.int32(atLeaderEpoch)
}

// CRC is the stored checksum: CRC-32C in v2, CRC-32 in v0 and v1.
func (b Batch) CRC() uint32 {
	if b.Magic() < 2 {
		return binary.BigEndian.Uint32(b[atMessageCRC:])
	}
	return binary.BigEndian.Uint32(b[atCRC:])
}

// ComputeCRC is the checksum that the bytes should have.
func (b Batch) ComputeCRC() uint32 {
	if b.Magic() < 2 {
		return crc32.ChecksumIEEE(b[atMagic:])
	}
	return crc32.Checksum(b[atAttributes:], castagnoli)
}

// Attributes are the flag bits: codec, timestamp type, transactional, control, delete horizon.
func (b Batch) Attributes() int16 {
	if b.Magic() < 2 {
		return int16(b[atMessageAttributes])
	}
	return int16(binary.BigEndian.Uint16(b[atAttributes:]))
}

// Codec is the compression of the records.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & codecMask) }

// LogAppendTime says that all records have the time of their append, MaxTimestamp.
func (b Batch) LogAppendTime() bool { return b.Magic() > 0 && b.Attributes()&logAppendTimeBit != 0 }

// IsTransactional says that the records belong to a transaction.
func (b Batch) IsTransactional() bool {
	return b.Magic() >= 2 && b.Attributes()&transactionalBit != 0
}

// IsControl says that the records are the brokers' own (transaction markers), not a client's.
func (b Batch) IsControl() bool { return b.Magic() >= 2 && b.Attributes()&controlBit != 0 }

// HasDeleteHorizon says that the log cleaner has put the time from which tombstones may go in
// the place of the base timestamp (KIP-534).
func (b Batch) HasDeleteHorizon() bool { return b.Magic() >= 2 && b.Attributes()&deleteHorizonBit != 0 }

// LastOffsetDelta is the last offset relative to the base offset. The record that had it may
// be gone through compaction.
func (b Batch) LastOffsetDelta() int32 { return b.int32(atLastOffsetDelta) }

// LastOffset is the offset of the last record; NextOffset the one after it.
func (b Batch) LastOffset() int64 {
	if b.Magic() < 2 {
		return b.BaseOffset()
	}
	return b.BaseOffset() + int64(b.LastOffsetDelta())
}

// NextOffset is the offset after the last record.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// BaseTimestamp is what the records' timestamps are relative to, in ms.
func (b Batch) BaseTimestamp() int64 { return b.int64(atBaseTimestamp) }

// MaxTimestamp is the largest timestamp of the records in ms, -1 if they have none.
func (b Batch) MaxTimestamp() int64 {
	switch b.Magic() {
	case 0:
		return noTimestamp
	case 1:
		return b.int64(atMessageTimestamp)
	}
	return b.int64(atMaxTimestamp)
}

// ProducerID is the idempotent producer's id, -1 without one.
func (b Batch) ProducerID() int64 {
	if b.Magic() < 2 {
		return noProducerID
	}
	return b.int64(atProducerID)
}

// HasProducerID says that the batch has sequence numbers.
func (b Batch) HasProducerID() bool { return b.ProducerID() > noProducerID }

// ProducerEpoch is the idempotent producer's epoch, -1 without one.
func (b Batch) ProducerEpoch() int16 {
	if b.Magic() < 2 {
		return noProducerEpoch
	}
	return int16(binary.BigEndian.Uint16(b[atProducerEpoch:]))
}

// BaseSequence is the sequence number of the first record, -1 without one.
func (b Batch) BaseSequence() int32 {
	if b.Magic() < 2 {
		return noSequence
	}
	return b.int32(atBaseSequence)
}

// LastSequence is the sequence number of the last record: they wrap from 2^31-1 to 0.
func (b Batch) LastSequence() int32 {
	if s := b.BaseSequence(); s != noSequence {
		return AddSequence(s, b.LastOffsetDelta())
	}
	return noSequence
}

// AddSequence is the sequence number n after s; they wrap from 2^31-1 to 0.
func AddSequence(s, n int32) int32 {
	if s > maxSequence-n {
		return n - (maxSequence - s) - 1
	}
	return s + n
}

// Count is the number of records.
func (b Batch) Count() int32 { return b.int32(atCount) }

// Body is the records, compressed as Codec says.
func (b Batch) Body() []byte { return b[HeaderSize:] }

// SetBaseOffset moves the batch. The checksum does not cover it.
func (b Batch) SetBaseOffset(offset int64) { b.putInt64(atBaseOffset, offset) }

// SetLeaderEpoch stamps the leader's epoch. The checksum does not cover it.
func (b Batch) SetLeaderEpoch(epoch int32) { b.putInt32(atLeaderEpoch, epoch) }

// SetMaxTimestamp needs UpdateCRC after it, as do all setters below.
func (b Batch) SetMaxTimestamp(ms int64) { b.putInt64(atMaxTimestamp, ms) }

// SetAttributes replaces the flag bits.
func (b Batch) SetAttributes(bits int16) {
	binary.BigEndian.PutUint16(b[atAttributes:], uint16(bits))
}

func (b Batch) setLength(size int) { b.putInt32(atLength, int32(size-entryPrefix)) }

// UpdateCRC makes the stored checksum that of the bytes.
func (b Batch) UpdateCRC() { b.putInt32(atCRC, int32(b.ComputeCRC())) }

func (b Batch) putInt32(at int, v int32) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
func (b Batch) putInt64(at int, v int64) { binary.BigEndian.PutUint64(b[at:], uint64(v)) }
func (b Batch) int32(at int) int32       { return int32(binary.BigEndian.Uint32(b[at:])) }
func (b Batch) int64(at int) int64       { return int64(binary.BigEndian.Uint64(b[at:])) }

// String shows the header as Kafka's dump tool orders it, for messages.
func (b Batch) String() string {
	return fmt.Sprintf("batch(magic=%d, offsets=[%d, %d], producer=%d/%d/%d, codec=%s, bytes=%d)",
		b.Magic(), b.BaseOffset(), b.LastOffset(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.Codec(), len(b))
}

// Split cuts the first entry off data by its length field alone, without reading the rest of
// it: the checksum is Validate's to check, or the caller's by ComputeCRC. It answers ErrShort
// if data ends within the entry (or is empty), and ErrCorrupt if the length or the magic byte
// cannot be right; the accessors of what it returns never read past its end.
func Split(data []byte) (first Batch, rest []byte, err error) {
	if len(data) < entryPrefix {
		return nil, data, ErrShort
	}
	size := int(int32(binary.BigEndian.Uint32(data[atLength:])))
	if size < smallestEntryBody {
		return nil, data, fmt.Errorf("%w: record size %d is less than the minimum record overhead (%d)", ErrCorrupt, size, smallestEntryBody)
	}
	if len(data) <= atMagic {
		return nil, data, ErrShort
	}
	if err := checkSize(int8(data[atMagic]), size); err != nil {
		return nil, data, err
	}
	if len(data)-entryPrefix < size {
		return nil, data, ErrShort
	}
	end := entryPrefix + size
	return Batch(data[:end:end]), data[end:], nil
}

// checkSize refuses unknown formats, and entries too small for their format's fixed fields.
func checkSize(magic int8, size int) error {
	least := 0
	switch magic {
	case 0:
		least = minMessageV0
	case 1:
		least = minMessageV1
	case 2:
		least = HeaderSize - entryPrefix
	default:
		return fmt.Errorf("%w: invalid magic found in record: %d", ErrCorrupt, magic)
	}
	if size < least {
		return fmt.Errorf("%w: record size %d is smaller than the minimum of %d for magic %d", ErrCorrupt, size, least, magic)
	}
	return nil
}

// All walks the entries of data by their lengths and ends at the first that is not whole.
func All(data []byte) iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		for {
			b, rest, err := Split(data)
			if err != nil || !yield(b) {
				return
			}
			data = rest
		}
	}
}
