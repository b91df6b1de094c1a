package record

import (
	"errors"
	"fmt"
	"iter"
)

// Origin says who wrote the records that are to be appended (Kafka's AppendOrigin).
type Origin int8

const (
	Client      Origin = iota // a Produce request
	Coordinator               // a coordinator of ours: may write control records
	Replication               // a leader: offsets stand, nothing is converted, several batches are usual
)

// Rules are what a topic demands of the records that are appended to it.
type Rules struct {
	Partition string // TOPIC-PARTITION, for messages only
	Now       int64  // ms

	LogAppend bool  // message.timestamp.type=LogAppendTime
	BeforeMax int64 // message.timestamp.before.max.ms, not looked at with LogAppend
	AfterMax  int64 // message.timestamp.after.max.ms

	MaxBatchBytes        int   // max.message.bytes, of a whole batch as it is sent and as it is stored; 0: any
	MaxDecompressedBytes int64 // max.decompressed.message.bytes, of one record in a compressed batch; 0: any

	Codec     Codec // compression.type; Producer keeps the client's
	Level     int   // of Codec, 0: its default
	Compacted bool  // cleanup.policy has compact: every record needs a key

	Origin         Origin
	RequestVersion int16 // of the Produce request of a Client
}

// Validated is what may be appended.
type Validated struct {
	// Records is nothing, or v2 batches (of a Replication: entries of any format) that lack only
	// their offsets and leader epochs. From a Client or Coordinator it is one batch with base
	// offset 0, in the bytes that were given or, if Rewritten, in new ones.
	Records   []byte
	Rewritten bool

	Count        int   // records; a v0 or v1 wrapper of a Replication counts as one
	MaxTimestamp int64 // ms, -1: no record has one
	// ShallowOffsetOfMax is the last offset of the first batch that has MaxTimestamp, which is
	// what a time index points to; counted from 0, of a Replication as it is. -1: none.
	ShallowOffsetOfMax int64
	AppendTime         int64 // ms, what the answer tells of LogAppendTime; -1 with CreateTime
}

// Batches walks the batches of Records.
func (v Validated) Batches() iter.Seq[Batch] { return All(v.Records) }

// Validate checks what is to be appended and brings it into the form that is stored. It does
// what Kafka does in ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords and
// LogValidator, and refuses what they refuse with the same error; bytes after the last whole
// entry are dropped as there. Every record is walked, those of a compressed batch as a stream
// that keeps nothing. data may be changed (maximum timestamp, timestamp type, checksum).
//
// It differs from Kafka in two things. Record offsets of v2 that do not count from 0 are always
// put right: Kafka does so only when it packs anew, else it stores them as they come or fails.
// And a record of a compressed batch must fill the size that it states, as consumers demand.
//
// An empty set of messages in a Produce request of before v3 is no error: Records is empty and
// the answer has no offset. Errors wrap ErrCorrupt, ErrInvalidRecord, ErrInvalidTimestamp,
// ErrTooLarge, ErrUnsupportedCompression or ErrCodec; a *RecordError says which records.
func Validate(data []byte, r Rules) (Validated, error) {
	if r.Origin == Replication {
		return validateReplicated(data)
	}
	if r.Origin == Client && r.RequestVersion >= 3 {
		if err := checkRequest(data, r.RequestVersion); err != nil {
			return Validated{}, err
		}
	}
	first, entries, source, err := checkEntries(data, &r)
	switch {
	case err != nil:
		return Validated{}, err
	case entries == 0:
		return Validated{MaxTimestamp: noTimestamp, ShallowOffsetOfMax: -1, AppendTime: noTimestamp}, nil
	case entries > 1 && (first.Magic() >= 2 || source != None):
		return Validated{}, fmt.Errorf("%w: compressed outer record has more than one batch", ErrInvalidRecord)
	case first.Magic() >= 2:
		return validateBatch(first, &r)
	}
	return convertUp(data, &r, source)
}

// next is Split for walking a set: nil at its end, also if that is within an entry.
func next(data []byte) (Batch, []byte, error) {
	b, rest, err := Split(data)
	if errors.Is(err, ErrShort) {
		return nil, data, nil
	}
	return b, rest, err
}

// checkRequest holds a Produce request of v3 or later to one batch of v2 a partition.
func checkRequest(data []byte, version int16) error {
	first, rest, err := next(data)
	if err != nil {
		return err
	}
	switch {
	case first == nil:
		return fmt.Errorf("%w: produce requests with version %d must have at least one record batch per partition", ErrInvalidRecord, version)
	case first.Magic() != 2:
		return fmt.Errorf("%w: produce requests with version %d are only allowed to contain record batches with magic version 2", ErrInvalidRecord, version)
	case version < 7 && first.Codec() == Zstd:
		return fmt.Errorf("%w: produce requests with version %d are not allowed to use ZStandard compression", ErrUnsupportedCompression, version)
	}
	second, _, err := next(rest)
	if err != nil {
		return err
	}
	if second != nil {
		return fmt.Errorf("%w: produce requests with version %d are only allowed to contain exactly one record batch per partition", ErrInvalidRecord, version)
	}
	return nil
}

// checkEntries checks what can be seen without looking at records. source is the codec of the
// last compressed entry.
func checkEntries(data []byte, r *Rules) (first Batch, n int, source Codec, err error) {
	for ; ; n++ {
		b, rest, err := next(data)
		if err != nil || b == nil {
			return first, n, source, err
		}
		if b.Magic() >= 2 && r.Origin == Client && b.BaseOffset() != 0 {
			return nil, n, source, fmt.Errorf("%w: the baseOffset of the record batch in the append to %s should be 0, but it is %d", ErrInvalidRecord, r.Partition, b.BaseOffset())
		}
		if r.MaxBatchBytes > 0 && len(b) > r.MaxBatchBytes {
			return nil, n, source, fmt.Errorf("%w: the record batch size in the append to %s is %d bytes which exceeds the maximum configured value of %d", ErrTooLarge, r.Partition, len(b), r.MaxBatchBytes)
		}
		if err := checkCRC(b); err != nil {
			return nil, n, source, err
		}
		codec := b.Codec()
		if !codec.Known() {
			return nil, n, source, fmt.Errorf("%w: unknown compression type id: %d", ErrCodec, int8(codec))
		}
		if codec != None {
			source = codec
		}
		if n == 0 {
			first = b
		}
		data = rest
	}
}

func checkCRC(b Batch) error {
	if stored, computed := b.CRC(), b.ComputeCRC(); stored != computed {
		return fmt.Errorf("%w: record is corrupt (stored crc = %d, computed crc = %d)", ErrCorrupt, stored, computed)
	}
	return nil
}

// validateReplicated takes a leader's entries as they are: whole, with right checksums, in
// rising order (Kafka's appendAsFollower).
func validateReplicated(data []byte) (Validated, error) {
	v := Validated{Records: data, MaxTimestamp: noTimestamp, ShallowOffsetOfMax: -1, AppendTime: noTimestamp}
	last, rest := int64(-1), data
	for {
		b, after, err := next(rest)
		if err != nil {
			return Validated{}, err
		}
		if b == nil {
			v.Records = data[:len(data)-len(rest)]
			return v, nil
		}
		if err := checkCRC(b); err != nil {
			return Validated{}, err
		}
		if b.LastOffset() <= last {
			return Validated{}, fmt.Errorf("%w: out of order offsets: %d after %d", ErrInvalidRecord, b.LastOffset(), last)
		}
		last = b.LastOffset()
		if ts := b.MaxTimestamp(); ts > v.MaxTimestamp {
			v.MaxTimestamp, v.ShallowOffsetOfMax = ts, last
		}
		if b.Magic() < 2 {
			v.Count++
		} else {
			v.Count += int(b.Count())
		}
		rest = after
	}
}

// validateBatch checks one batch of v2 and its records, and rewrites it where it must.
func validateBatch(b Batch, r *Rules) (Validated, error) {
	if r.Origin == Client {
		if err := checkHeader(b, r); err != nil {
			return Validated{}, err
		}
	}
	source := b.Codec()
	target := r.Codec
	if target == Producer || source == None && b.IsControl() { // markers stay as they are
		target = source
	}
	check := checker{rules: r, batchAppendTime: b.LogAppendTime(), skimmed: source != None && source == target}
	maxTime, consecutive, err := check.batch(b)
	if err != nil {
		return Validated{}, err
	}
	v := Validated{Count: int(b.Count()), MaxTimestamp: maxTime, ShallowOffsetOfMax: int64(b.LastOffsetDelta()), AppendTime: noTimestamp}
	if r.LogAppend {
		v.AppendTime, v.MaxTimestamp = r.Now, r.Now
	}
	if v.MaxTimestamp == noTimestamp {
		v.ShallowOffsetOfMax = -1
	}
	if source == target && consecutive {
		v.Records = b
		b.SetBaseOffset(0)
		setTime(b, r.LogAppend, v.MaxTimestamp)
		return v, nil
	}
	v.Rewritten = true
	v.Records, err = rebuild(b, r, target, consecutive, v.MaxTimestamp)
	return v, err
}

// checkHeader is LogValidator's validateBatch.
func checkHeader(b Batch, r *Rules) error {
	base, last, count := b.BaseOffset(), b.LastOffset(), int64(b.Count())
	switch n := last - base + 1; {
	case n <= 0:
		return fmt.Errorf("%w: batch has an invalid offset range: [%d, %d] in topic partition %s", ErrInvalidRecord, base, last, r.Partition)
	case count <= 0:
		return fmt.Errorf("%w: invalid reported count for record batch: %d in topic partition %s", ErrInvalidRecord, count, r.Partition)
	case n != count:
		return fmt.Errorf("%w: inconsistent batch offset range [%d, %d] and count of records %d in topic partition %s", ErrInvalidRecord, base, last, count, r.Partition)
	case b.IsControl():
		return fmt.Errorf("%w: clients are not allowed to write control records in topic partition %s", ErrInvalidRecord, r.Partition)
	case b.HasProducerID() && b.BaseSequence() < 0:
		return fmt.Errorf("%w: invalid sequence number %d in record batch with producerId %d in topic partition %s", ErrInvalidRecord, b.BaseSequence(), b.ProducerID(), r.Partition)
	}
	return nil
}

// setTime makes the header's maximum timestamp and type of timestamp right.
func setTime(b Batch, appendTime bool, maxTime int64) {
	if b.LogAppendTime() == appendTime && b.MaxTimestamp() == maxTime {
		return
	}
	bits := b.Attributes() & knownAttributes &^ logAppendTimeBit
	if appendTime {
		bits |= logAppendTimeBit
	}
	b.SetAttributes(bits)
	b.SetMaxTimestamp(maxTime)
	b.UpdateCRC()
}
