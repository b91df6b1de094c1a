package record

import (
	"errors"
	"fmt"
)

// DownConvert turns the entries of data into messages of magic 0 or 1, as Fetch v0-v3 needs
// them (Kafka 3.9's RecordsUtil.downConvert). Entries of that format or an older one stay as
// they are, control batches and headers are dropped, and so is what follows the last whole
// entry. A batch without compression becomes single messages, from the offset from on only
// (some librdkafka rely on that); a compressed one becomes one wrapper with all its records.
//
// It answers ErrUnsupportedCompression at the first batch of zstd, which the old formats do
// not have, and ErrCorrupt, ErrInvalidRecord or ErrCodec at one that cannot be read; what was
// converted before it is returned with the error. A wrong checksum is ErrCorrupt, which Kafka does not
// look at: a new one would make the bytes seem right.
func DownConvert(data []byte, magic int8, from int64) ([]byte, error) {
	if magic != 0 && magic != 1 {
		return nil, fmt.Errorf("%w: no conversion down to magic %d", ErrUnsupportedForFormat, magic)
	}
	out := make([]byte, 0, len(data)+len(data)/4)
	for {
		b, rest, err := next(data)
		if err != nil || b == nil {
			return out, err
		}
		data = rest
		switch {
		case b.IsControl():
		case b.Codec() == Zstd:
			return out, fmt.Errorf("%w: down-conversion of zstandard-compressed batches is not supported", ErrUnsupportedCompression)
		case b.Magic() <= magic:
			out = append(out, b...)
		default:
			if stored, computed := b.CRC(), b.ComputeCRC(); stored != computed {
				return out, fmt.Errorf("%w: batch at offset %d has the checksum %#08x, its bytes %#08x", ErrCorrupt, b.BaseOffset(), stored, computed)
			}
			whole := len(out)
			if out, err = downConvert(out, b, magic, from); err != nil {
				return out[:whole], err
			}
		}
	}
}

func downConvert(out []byte, b Batch, magic int8, from int64) ([]byte, error) {
	attributes := int8(0)
	if magic == 1 && b.LogAppendTime() {
		attributes = logAppendTimeBit
	}
	if b.Codec() == None {
		for r, err := range Records(b, 0) {
			if err != nil {
				return out, err
			}
			if r.Offset >= from {
				out = appendMessage(out, magic, r.Offset, r.Timestamp, attributes, r.Key, r.Value)
			}
		}
		return out, nil
	}
	w := newWrapper(out, magic, b.Codec())
	var err error
	for r, readErr := range Records(b, 0) {
		if err = readErr; err != nil {
			break
		}
		if err = w.add(r, attributes); err != nil {
			break
		}
	}
	return w.finish(attributes, err)
}

// wrapper packs a compressed set of v0 or v1: a message whose value is the set.
type wrapper struct {
	magic   int8
	codec   Codec
	out     *sink
	pack    deflater
	scratch []byte

	count       int
	first, last int64 // offsets
	maxTime     int64
}

// newWrapper begins a wrapper behind out.
func newWrapper(out []byte, magic int8, codec Codec) *wrapper {
	w := &wrapper{magic: magic, codec: codec, maxTime: noTimestamp}
	// The header, with a null key and in place of the value nothing yet.
	w.out = &sink{b: appendMessage(out, magic, 0, 0, 0, nil, nil), from: len(out)}
	w.pack = deflate(codec, 0, magic, w.out)
	return w
}

func (w *wrapper) add(r Record, attributes int8) error {
	if w.count == 0 {
		w.first = r.Offset
	}
	w.count, w.last, w.maxTime = w.count+1, r.Offset, max(w.maxTime, r.Timestamp)
	offset := r.Offset
	if w.magic == 1 {
		offset -= w.first
	}
	w.scratch = appendMessage(w.scratch[:0], w.magic, offset, r.Timestamp, attributes, r.Key, r.Value)
	_, err := w.pack.Write(w.scratch)
	return err
}

// finish closes the wrapper; one without records leaves nothing.
func (w *wrapper) finish(attributes int8, err error) ([]byte, error) {
	err = errors.Join(err, w.pack.Close())
	w.pack.release()
	if err != nil || w.count == 0 {
		return w.out.b[:w.out.from], err
	}
	b := Batch(w.out.b[w.out.from:])
	header := entryPrefix + minMessageV0
	if w.magic == 1 {
		header = entryPrefix + minMessageV1
		b.putInt64(atMessageTimestamp, w.maxTime)
	}
	b.SetBaseOffset(w.last)
	b[atMessageAttributes] = byte(attributes) | byte(w.codec)
	b.putInt32(header-4, int32(len(b)-header))
	finishMessage(b)
	return w.out.b, nil
}
