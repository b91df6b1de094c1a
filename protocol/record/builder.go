package record

import "encoding/binary"

// BuilderOptions say what a batch is to be. The zero value is an uncompressed batch with the
// records' own timestamps, at offset 0 of leader epoch 0, without a producer.
type BuilderOptions struct {
	BaseOffset  int64
	LeaderEpoch int32
	Producer    *ProducerInfo // nil: none, which is -1 in all three fields
	Control     bool          // the records are markers, see control.go
	Codec       Codec
	Level       int // of compression, 0: the codec's default

	LogAppend  bool  // all records have the time AppendTime
	AppendTime int64 // ms
}

// ProducerInfo is the idempotent producer of a batch.
type ProducerInfo struct {
	ID            int64
	Epoch         int16
	Sequence      int32 // of the first record
	Transactional bool
}

// Builder makes one v2 batch; records get the offsets that follow each other. It is not for
// use by several goroutines.
type Builder struct {
	o       BuilderOptions
	out     sink
	pack    deflater // nil without a codec
	scratch []byte   // one record, with a codec

	count    int32
	baseTime int64
	maxTime  int64
	err      error // of pack; only a bound on out can cause one
}

// NewBuilder begins a batch behind what is in dst.
func NewBuilder(dst []byte, o BuilderOptions) *Builder {
	b := new(Builder)
	b.begin(dst, o, 0)
	return b
}

// begin is NewBuilder with a bound on the batch's size, 0 for none.
func (b *Builder) begin(dst []byte, o BuilderOptions, most int) {
	var header [HeaderSize]byte
	*b = Builder{o: o, out: sink{b: append(dst, header[:]...), from: len(dst), most: most}, maxTime: noTimestamp, scratch: b.scratch}
	if o.Codec != None {
		b.pack = deflate(o.Codec, o.Level, 2, &b.out)
	}
}

// Add appends a record. timestamp is in ms, -1 for none; a nil key or value is null.
func (b *Builder) Add(timestamp int64, key, value []byte, headers ...Header) {
	if b.count == 0 {
		b.baseTime = timestamp
	}
	b.maxTime = max(b.maxTime, timestamp)
	if b.pack == nil {
		b.out.b = appendRecord(b.out.b, timestamp-b.baseTime, b.count, key, value, headers)
		if b.err == nil {
			b.err = b.out.check()
		}
	} else if b.err == nil {
		b.scratch = appendRecord(b.scratch[:0], timestamp-b.baseTime, b.count, key, value, headers)
		_, b.err = b.pack.Write(b.scratch)
	}
	b.count++
}

// Count is the number of records so far.
func (b *Builder) Count() int { return int(b.count) }

// Size is the size of the batch so far in bytes; with a codec it is too low by what the codec
// holds back.
func (b *Builder) Size() int { return len(b.out.b) - b.out.from }

// Finish is the whole batch, nil if no record was added. The builder is done with then.
func (b *Builder) Finish() Batch {
	batch, _ := b.finish()
	return batch
}

func (b *Builder) finish() (Batch, error) {
	if b.pack != nil {
		if err := b.pack.Close(); b.err == nil {
			b.err = err
		}
		b.pack.release()
		b.pack = nil
	}
	if b.err == nil {
		b.err = b.out.check()
	}
	if b.err != nil || b.count == 0 {
		return nil, b.err
	}
	batch := Batch(b.out.b[b.out.from:])
	b.header(batch)
	return batch, nil
}

func (b *Builder) header(batch Batch) {
	attributes := int16(b.o.Codec)
	maxTime := b.maxTime
	if b.o.LogAppend {
		attributes |= logAppendTimeBit
		maxTime = b.o.AppendTime
	}
	if b.o.Control {
		attributes |= controlBit
	}
	p := ProducerInfo{ID: noProducerID, Epoch: noProducerEpoch, Sequence: noSequence}
	if b.o.Producer != nil {
		p = *b.o.Producer
	}
	if p.Transactional {
		attributes |= transactionalBit
	}
	batch.SetBaseOffset(b.o.BaseOffset)
	batch.SetLeaderEpoch(b.o.LeaderEpoch)
	batch[atMagic] = 2
	batch.setLength(len(batch))
	batch.SetAttributes(attributes)
	batch.SetMaxTimestamp(maxTime)
	batch.putInt32(atLastOffsetDelta, b.count-1)
	batch.putInt64(atBaseTimestamp, b.baseTime)
	batch.putInt64(atProducerID, p.ID)
	binary.BigEndian.PutUint16(batch[atProducerEpoch:], uint16(p.Epoch))
	batch.putInt32(atBaseSequence, p.Sequence)
	batch.putInt32(atCount, b.count)
	batch.UpdateCRC()
}

// appendRecord appends one record of v2 with its length.
func appendRecord(dst []byte, timeDelta int64, offsetDelta int32, key, value []byte, headers []Header) []byte {
	size := 1 + varintSize(timeDelta) + varintSize(int64(offsetDelta)) + fieldSize(key) + fieldSize(value) + varintSize(int64(len(headers)))
	for _, h := range headers {
		size += varintSize(int64(len(h.Key))) + len(h.Key) + fieldSize(h.Value)
	}
	dst = appendVarint(dst, int64(size))
	dst = append(dst, 0) // attributes, none in use
	dst = appendVarint(dst, timeDelta)
	dst = appendVarint(dst, int64(offsetDelta))
	dst = appendField(dst, key)
	dst = appendField(dst, value)
	dst = appendVarint(dst, int64(len(headers)))
	for _, h := range headers {
		dst = appendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendField(dst, h.Value)
	}
	return dst
}

func fieldSize(b []byte) int {
	if b == nil {
		return 1 // -1
	}
	return varintSize(int64(len(b))) + len(b)
}

func appendField(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // -1
	}
	return append(appendVarint(dst, int64(len(b))), b...)
}
