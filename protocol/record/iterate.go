package record

import (
	"fmt"
	"io"
	"iter"
)

// Record is one record of any format.
type Record struct {
	Offset    int64
	Timestamp int64  // ms, -1 for none
	Key       []byte // nil is null, which is not the same as empty
	Value     []byte // nil is null: a tombstone in a compacted topic
	Headers   []Header
}

// Header is one header of a record. Names may repeat.
type Header struct {
	Key   string
	Value []byte // nil is null
}

// Records iterates over the records of one entry, with absolute offsets and, in a batch with
// LogAppendTime, that time. It trusts the checksum to have been checked. An error is the last
// thing yielded, and wraps ErrInvalidRecord, ErrCorrupt or ErrCodec.
//
// Keys, values and header values of an uncompressed entry point into it; those of a compressed
// one are the caller's to keep. maxDecompressed is how large one record of a compressed entry
// may be (max.decompressed.message.bytes), 0 for no bound.
func Records(b Batch, maxDecompressed int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if b.Magic() < 2 {
			messageRecords(b, maxDecompressed, yield)
			return
		}
		err := batchRecords(b, maxDecompressed, false, func(r Record) bool { return yield(r, nil) })
		if err != nil {
			yield(Record{}, err)
		}
	}
}

func batchRecords(b Batch, most int64, alone bool, yield func(Record) bool) error {
	count := b.Count()
	if count < 0 {
		return fmt.Errorf("%w: found invalid record count %d in magic v%d batch", ErrInvalidRecord, count, b.Magic())
	}
	if count == 0 {
		return nil
	}
	c, err := openCursor(b, most, alone)
	if err != nil {
		return err
	}
	defer c.close()
	base, baseTime, appendTime := b.BaseOffset(), b.BaseTimestamp(), int64(noTimestamp)
	if b.LogAppendTime() {
		appendTime = b.MaxTimestamp()
	}
	for range count {
		body, err := c.body()
		if err != nil {
			return err
		}
		r, err := parseRecord(body, base, baseTime)
		if err != nil {
			return err
		}
		if b.LogAppendTime() {
			r.Timestamp = appendTime
		}
		if !yield(r) {
			return nil
		}
	}
	return c.finish()
}

// finish checks that nothing comes after the last record.
func (c *cursor) finish() error {
	switch ended, err := c.ended(); {
	case err != nil:
		return err
	case !ended:
		return fmt.Errorf("%w: incorrect declared batch size, records still remaining in file", ErrInvalidRecord)
	}
	return nil
}

// body is the next record without its length: a piece of the batch, or a copy that grew as
// the bytes came.
func (c *cursor) body() ([]byte, error) {
	size, err := c.recordSize()
	if err != nil {
		return nil, err
	}
	if c.src == nil {
		b := c.buf[c.at : c.at+int(size) : c.at+int(size)]
		c.at += int(size)
		return b, nil
	}
	b, err := c.read(make([]byte, 0, min(size, cursorBuffer)), size)
	if err == io.ErrUnexpectedEOF {
		err = fmt.Errorf("%w: invalid record size: expected %d bytes in record payload, but the record payload reached EOF", ErrInvalidRecord, size)
	}
	return b, err
}

// parseRecord reads a record's body; keys and values point into it.
func parseRecord(body []byte, base, baseTime int64) (r Record, err error) {
	c := cursor{buf: body}
	end := int64(len(body))
	if err := c.skip(1); err != nil {
		return r, err
	}
	delta, err := c.varint64()
	if err != nil {
		return r, err
	}
	offset, err := c.varint32()
	if err != nil {
		return r, err
	}
	r.Offset, r.Timestamp = base+int64(offset), baseTime+delta
	if r.Key, err = c.bytes(end); err != nil {
		return r, err
	}
	if r.Value, err = c.bytes(end); err != nil {
		return r, err
	}
	headers, err := c.headers(end)
	if err != nil {
		return r, err
	}
	for range headers {
		key, err := c.bytes(end)
		if err != nil {
			return r, err
		}
		if key == nil {
			return r, errHeaderKey(-1)
		}
		value, err := c.bytes(end)
		if err != nil {
			return r, err
		}
		r.Headers = append(r.Headers, Header{string(key), value})
	}
	return r, checkEnd(c.offset(), end, end)
}

// bytes is a field of a record that is all in buf.
func (c *cursor) bytes(end int64) ([]byte, error) {
	n, err := c.field(end)
	if err != nil || n < 0 {
		return nil, err
	}
	return c.buf[c.at-int(n) : c.at : c.at], nil
}
