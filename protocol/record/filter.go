package record

import (
	"fmt"
	"io"
)

// Filter takes records out of entries, as compaction does (Kafka's MemoryRecords.filterTo). Its
// buffers are used again, so that nothing is allocated for a record. The zero value is ready; it
// is not for use by several goroutines.
type Filter struct {
	kept []uint64 // a bit for each record of the entry in work
	body []byte   // a record of a compressed entry that is larger than the cursor's buffer
	rec  []byte   // a record that is written
}

// Sketch is what decides whether a record stays. Key is nil for null, and valid during the call.
type Sketch struct {
	Offset   int64
	Key      []byte
	HasValue bool
}

// FilterRules are what happens to an entry besides the loss of records.
type FilterRules struct {
	DropAll   bool // no record stays, whatever keep says
	KeepEmpty bool // a v2 batch that loses all its records stays as a header, for its producer and last offset
	// Horizon is the delete horizon (ms, KIP-534) that a batch gets which has none and keeps a
	// tombstone, or with NeedsHorizon in any case.
	Horizon      int64
	NeedsHorizon bool
}

// Filtered says what became of an entry.
type Filtered struct{ Read, Kept int }

// Scan calls visit for each record of an entry, until it is false. The checksum was checked by
// the caller; errors are those of Records.
func (f *Filter) Scan(b Batch, visit func(Sketch) bool) error {
	if b.Magic() < 2 {
		err := f.messages(b, func(s Sketch, _ message) error {
			if !visit(s) {
				return errStopped
			}
			return nil
		})
		if err == errStopped {
			err = nil
		}
		return err
	}
	base := b.BaseOffset()
	return f.bodies(b, func(r outline, body []byte) (bool, error) { return visit(sketchOf(base, r, body)), nil })
}

// Append appends to dst what stays of an entry, which may be nothing. Offsets, the codec and all
// that the header says of the producer stay as they are; of a v0 or v1 wrapper a smaller one is
// made. An entry that loses nothing is copied as it is.
func (f *Filter) Append(dst []byte, b Batch, rules FilterRules, keep func(Sketch) bool) ([]byte, Filtered, error) {
	if b.Magic() < 2 {
		return f.appendMessages(dst, b, rules, keep)
	}
	w := f.look(b, rules, keep)
	if w.err != nil {
		return dst, w.Filtered, w.err
	}
	setHorizon := (w.tombstones || rules.NeedsHorizon) && !b.HasDeleteHorizon()
	switch {
	case w.Kept == 0 && rules.KeepEmpty:
		return appendEmpty(dst, b), w.Filtered, nil
	case w.Kept == 0:
		return dst, w.Filtered, nil
	case w.Kept == w.Read && !setHorizon:
		return append(dst, b...), w.Filtered, nil
	}
	attributes, baseTime := b.Attributes(), w.firstTime
	if b.HasDeleteHorizon() {
		baseTime = b.BaseTimestamp()
	} else if setHorizon {
		attributes, baseTime = attributes|deleteHorizonBit, rules.Horizon
	}
	from := len(dst)
	dst, err := f.write(append(dst, b[:HeaderSize]...), from, b, baseTime)
	if err != nil {
		return dst[:from], w.Filtered, err
	}
	n := Batch(dst[from:])
	n.setLength(len(n))
	n.SetAttributes(attributes)
	n.putInt64(atBaseTimestamp, baseTime)
	n.SetMaxTimestamp(w.maxTime)
	n.putInt32(atCount, int32(w.Kept))
	n.UpdateCRC()
	return dst, w.Filtered, nil
}

// firstPass is what a first pass over a batch finds.
type firstPass struct {
	Filtered
	tombstones         bool
	firstTime, maxTime int64 // of the records that stay
	err                error
}

// look decides about each record.
func (f *Filter) look(b Batch, rules FilterRules, keep func(Sketch) bool) (w firstPass) {
	w.maxTime = noTimestamp
	if rules.DropAll {
		w.Read = int(max(b.Count(), 0))
		return w
	}
	f.kept = f.kept[:0]
	base := b.BaseOffset()
	w.err = f.bodies(b, func(r outline, body []byte) (bool, error) {
		if w.Read%64 == 0 {
			f.kept = append(f.kept, 0)
		}
		if s := sketchOf(base, r, body); keep(s) {
			f.kept[w.Read/64] |= 1 << (w.Read % 64)
			time := b.timeOf(r)
			if w.Kept++; w.Kept == 1 {
				w.firstTime = time
			}
			w.maxTime = max(w.maxTime, time)
			w.tombstones = w.tombstones || !s.HasValue
		}
		w.Read++
		return true, nil
	})
	return w
}

// timeOf is a record's timestamp.
func (b Batch) timeOf(r outline) int64 {
	if b.LogAppendTime() {
		return b.MaxTimestamp()
	}
	return b.BaseTimestamp() + r.timestampDelta
}

// write appends the records that stay to the batch which begins at from.
func (f *Filter) write(dst []byte, from int, b Batch, baseTime int64) ([]byte, error) {
	out := sink{b: dst, from: from}
	var pack deflater
	if codec := b.Codec(); codec != None {
		pack = deflate(codec, 0, 2, &out)
	}
	i := 0
	err := f.bodies(b, func(r outline, body []byte) (bool, error) {
		at := i
		i++
		if f.kept[at/64]&(1<<(at%64)) == 0 {
			return true, nil
		}
		rest := body[r.afterTime:]
		delta := b.timeOf(r) - baseTime
		size := int64(1 + varintSize(delta) + len(rest))
		if pack == nil {
			out.b = append(appendVarint(append(appendVarint(out.b, size), body[0]), delta), rest...)
			return true, nil
		}
		f.rec = append(appendVarint(append(appendVarint(f.rec[:0], size), body[0]), delta), rest...)
		_, err := pack.Write(f.rec)
		return true, err
	})
	if pack != nil {
		if e := pack.Close(); err == nil {
			err = e
		}
		pack.release()
	}
	f.rec, f.body = small(f.rec), small(f.body)
	return out.b, err
}

// small gives up a buffer that one large record has left.
func small(b []byte) []byte {
	if cap(b) > keptBuffer {
		return nil
	}
	return b
}

// appendEmpty appends a batch's header as that of a batch without records (Kafka's
// DefaultRecordBatch.writeEmptyHeader).
func appendEmpty(dst []byte, b Batch) []byte {
	from := len(dst)
	dst = append(dst, b[:HeaderSize]...)
	n := Batch(dst[from:])
	n.setLength(HeaderSize)
	n.SetAttributes(b.Attributes() & (logAppendTimeBit | transactionalBit | controlBit))
	n.putInt64(atBaseTimestamp, noTimestamp)
	n.putInt32(atCount, 0)
	n.UpdateCRC()
	return dst
}

// bodies calls do for each record of a v2 batch, without its length, until it is false. body is
// valid during the call.
func (f *Filter) bodies(b Batch, do func(r outline, body []byte) (bool, error)) error {
	count := b.Count()
	if count < 0 {
		return fmt.Errorf("%w: found invalid record count %d in magic v%d batch", ErrInvalidRecord, count, b.Magic())
	}
	if count == 0 {
		return nil
	}
	c, err := openCursor(b, 0, true)
	if err != nil {
		return err
	}
	defer c.close()
	for range count {
		body, err := f.next(&c)
		if err != nil {
			return err
		}
		r, ok := outlineOf(body)
		if !ok {
			if _, err := parseRecord(body, 0, 0); err != nil {
				return err
			}
			return fmt.Errorf("%w: found invalid record structure", ErrInvalidRecord)
		}
		if more, err := do(r, body); err != nil || !more {
			return err
		}
	}
	return c.finish()
}

// next is the next record's body: a piece of the batch or of the cursor's buffer, or in f.body.
func (f *Filter) next(c *cursor) ([]byte, error) {
	size, err := c.recordSize()
	if err != nil {
		return nil, err
	}
	if c.src != nil && size <= cursorBuffer {
		if err := c.want(int(size)); err != nil {
			return nil, err
		}
	}
	if int64(len(c.buf)-c.at) >= size {
		b := c.buf[c.at : c.at+int(size)]
		c.at += int(size)
		return b, nil
	}
	f.body, err = c.read(f.body[:0], size)
	if err == io.ErrUnexpectedEOF {
		err = fmt.Errorf("%w: invalid record size: expected %d bytes in record payload, but the record payload reached EOF", ErrInvalidRecord, size)
	}
	return f.body, err
}

// outline is a shape with what is needed to take the record apart: where the timestamp ends and the
// key begins, which may be written longer than they need be.
type outline struct {
	shape
	afterTime, key int
}

// outlineOf looks over a record's body, and whether its parts fill it.
func outlineOf(b []byte) (o outline, ok bool) {
	if len(b) < 6 {
		return o, false
	}
	n := 0
	if o.timestampDelta, n = varint64(b[1:]); n <= 0 {
		return o, false
	}
	i := 1 + n // after the attributes and the timestamp
	o.afterTime = i
	if o.offsetDelta, i = skimVarint(b, i); i < 0 {
		return o, false
	}
	if o.keySize, i = skimVarint(b, i); i < 0 {
		return o, false
	}
	o.key = i
	if i += int(max(o.keySize, 0)); i >= len(b) {
		return o, false
	}
	if o.valueSize, i = skimVarint(b, i); i < 0 {
		return o, false
	}
	if i += int(max(o.valueSize, 0)); i >= len(b) {
		return o, false
	}
	headers, i := skimVarint(b, i)
	if i < 0 || headers < 0 {
		return o, false
	}
	for range headers {
		var size int32
		if size, i = skimVarint(b, i); i < 0 || size < 0 {
			return o, false
		}
		if i += int(size); i >= len(b) {
			return o, false
		}
		if size, i = skimVarint(b, i); i < 0 {
			return o, false
		}
		i += int(max(size, 0))
	}
	return o, i == len(b)
}

func sketchOf(base int64, r outline, body []byte) Sketch {
	s := Sketch{Offset: base + int64(r.offsetDelta), HasValue: r.valueSize >= 0}
	if r.keySize >= 0 {
		s.Key = body[r.key : r.key+int(r.keySize) : r.key+int(r.keySize)]
	}
	return s
}

// messages calls do for each message of an entry of v0 or v1, with absolute offsets.
func (f *Filter) messages(b Batch, do func(Sketch, message) error) error {
	base := int64(0)
	if b.Codec() != None && b.Magic() == 1 { // the offsets count from what the end of the set says
		last := int64(0)
		err := eachMessage(b, 0, true, func(inner Batch, _ message) error {
			last = inner.BaseOffset()
			return nil
		})
		if err == nil {
			base, err = wrapperBase(b, last)
		}
		if err != nil {
			return err
		}
	}
	return eachMessage(b, 0, true, func(inner Batch, m message) error {
		return do(Sketch{Offset: base + inner.BaseOffset(), Key: m.key, HasValue: m.value != nil}, m)
	})
}

// appendMessages is Append for v0 and v1, which have no empty entries. Messages in a wrapper of
// another format than its own, as some brokers wrote them (KAFKA-4298), get the wrapper's.
func (f *Filter) appendMessages(dst []byte, b Batch, rules FilterRules, keep func(Sketch) bool) ([]byte, Filtered, error) {
	var n Filtered
	f.kept = f.kept[:0]
	err := f.messages(b, func(s Sketch, _ message) error {
		if n.Read%64 == 0 {
			f.kept = append(f.kept, 0)
		}
		if !rules.DropAll && keep(s) {
			f.kept[n.Read/64] |= 1 << (n.Read % 64)
			n.Kept++
		}
		n.Read++
		return nil
	})
	switch {
	case err != nil || n.Kept == 0:
		return dst, n, err
	case b.Codec() == None:
		return append(dst, b...), n, nil
	case n.Kept == n.Read:
		same := true
		err := eachMessage(b, 0, true, func(inner Batch, _ message) error {
			same = same && inner.Magic() == b.Magic()
			return nil
		})
		if err != nil || same {
			return append(dst, b...), n, err
		}
	}
	attributes := int8(b.Attributes() & logAppendTimeBit)
	w := newWrapper(dst, b.Magic(), b.Codec())
	i := 0
	err = f.messages(b, func(s Sketch, m message) error {
		at := i
		i++
		if f.kept[at/64]&(1<<(at%64)) == 0 {
			return nil
		}
		return w.add(Record{Offset: s.Offset, Timestamp: m.timestamp, Key: m.key, Value: m.value}, attributes)
	})
	dst, err = w.finish(attributes, err)
	return dst, n, err
}
