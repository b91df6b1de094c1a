package record

import (
	"fmt"
	"io"
	"sync"
)

// cursor reads the records of a v2 batch, or the messages of a compressed set, from bytes or
// from a stream of which it holds a piece. It allocates nothing once it is made.
type cursor struct {
	buf  []byte // buf[at:] is not read yet
	at   int
	past int64     // bytes before buf
	src  *inflater // nil when buf is all there is
	most int64     // bytes that a record may have, by max.decompressed.message.bytes; 0: any
}

const cursorBuffer = 16 << 10

var cursorBuffers = sync.Pool{New: func() any { return new([cursorBuffer]byte) }}

// openCursor begins to read the records of a v2 batch. Close it.
func openCursor(b Batch, mostPerRecord int64, alone bool) (cursor, error) {
	if b.Codec() == None {
		return cursor{buf: b.Body()}, nil
	}
	return openStream(b.Codec(), b.Body(), 2, mostPerRecord, alone)
}

// openStream begins to read a compressed body of an entry of the given format.
func openStream(codec Codec, body []byte, magic int8, mostPerRecord int64, alone bool) (cursor, error) {
	src, err := inflate(codec, body, magic, alone)
	if err != nil {
		return cursor{}, err
	}
	return cursor{src: src, buf: cursorBuffers.Get().(*[cursorBuffer]byte)[:0], most: mostPerRecord}, nil
}

func (c *cursor) close() {
	if c.src != nil {
		c.src.close()
		cursorBuffers.Put((*[cursorBuffer]byte)(c.buf[:cursorBuffer]))
		c.src, c.buf, c.at = nil, nil, 0
	}
}

// offset is how much was read so far.
func (c *cursor) offset() int64 { return c.past + int64(c.at) }

// want has at least n bytes (at most cursorBuffer) at hand, unless the source ends before.
func (c *cursor) want(n int) error {
	if c.src == nil || len(c.buf)-c.at >= n {
		return nil
	}
	c.past += int64(c.at)
	left := copy(c.buf[:cap(c.buf)], c.buf[c.at:])
	c.buf, c.at = c.buf[:left], 0
	for idle := 0; len(c.buf) < n; {
		m, err := c.src.Read(c.buf[len(c.buf):cap(c.buf)])
		c.buf = c.buf[:len(c.buf)+m]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if m > 0 {
			idle = 0
		} else if idle++; idle > 100 {
			return io.ErrNoProgress
		}
	}
	return nil
}

// ended says that nothing is left.
func (c *cursor) ended() (bool, error) {
	err := c.want(1)
	return c.at == len(c.buf), err
}

func (c *cursor) varint32() (int32, error) {
	if c.src != nil && len(c.buf)-c.at < maxVarint32 {
		if err := c.want(maxVarint32); err != nil {
			return 0, err
		}
	}
	v, next := skimVarint(c.buf, c.at)
	if next < 0 {
		_, n := varint32(c.buf[c.at:])
		return 0, errVarint(n)
	}
	c.at = next
	return v, nil
}

func (c *cursor) varint64() (int64, error) {
	if c.src != nil && len(c.buf)-c.at < maxVarint64 {
		if err := c.want(maxVarint64); err != nil {
			return 0, err
		}
	}
	v, n := varint64(c.buf[c.at:])
	if n <= 0 {
		return 0, errVarint(n)
	}
	c.at += n
	return v, nil
}

func errVarint(n int) error {
	if n < 0 {
		return fmt.Errorf("%w: found invalid record structure", ErrInvalidRecord)
	}
	return fmt.Errorf("%w: incorrect declared batch size, premature EOF reached", ErrInvalidRecord)
}

// skip moves over n bytes.
func (c *cursor) skip(n int64) error {
	for {
		left := int64(len(c.buf) - c.at)
		if n <= left {
			c.at += int(n)
			return nil
		}
		c.at += int(left)
		n -= left
		if err := c.want(1); err != nil {
			return err
		}
		if c.at == len(c.buf) {
			return fmt.Errorf("%w: reached end of input stream before skipping all bytes. Remaining bytes: %d", ErrInvalidRecord, n)
		}
	}
}

// read appends the next n bytes to dst, which grows as they come and not by the claim.
func (c *cursor) read(dst []byte, n int64) ([]byte, error) {
	for n > 0 {
		if err := c.want(1); err != nil {
			return dst, err
		}
		m := min(n, int64(len(c.buf)-c.at))
		if m == 0 {
			return dst, io.ErrUnexpectedEOF
		}
		dst = append(dst, c.buf[c.at:c.at+int(m)]...)
		c.at += int(m)
		n -= m
	}
	return dst, nil
}

// shape is a record without its content.
type shape struct {
	timestampDelta     int64
	offsetDelta        int32
	keySize, valueSize int32 // -1 for null
}

// recordSize reads the length before a record's body and checks what can be checked of it.
func (c *cursor) recordSize() (int64, error) {
	size, err := c.varint32()
	if err != nil {
		return 0, err
	}
	switch {
	case size < 0:
		return 0, fmt.Errorf("%w: invalid record size: %d is negative", ErrInvalidRecord, size)
	case c.src == nil && int(size) > len(c.buf)-c.at:
		return 0, fmt.Errorf("%w: invalid record size: expected %d bytes in record payload, but instead the buffer has only %d remaining bytes",
			ErrInvalidRecord, size, len(c.buf)-c.at)
	case c.src != nil && c.most > 0 && int64(size) > c.most:
		return 0, fmt.Errorf("%w: invalid record size: %d exceeds the configured maximum record size of %d", ErrInvalidRecord, size, c.most)
	}
	return int64(size), nil
}

// walk moves over the next record, keeping nothing of it, and checks that its parts fill it
// exactly (Kafka's DefaultRecord.readFrom and readPartiallyFrom).
func (c *cursor) walk() (r shape, err error) {
	size, err := c.recordSize()
	if err != nil {
		return r, err
	}
	if size <= cursorBuffer {
		if err := c.want(int(size)); err != nil {
			return r, err
		}
	}
	if int64(len(c.buf)-c.at) >= size { // all at hand
		if r, ok := skim(c.buf[c.at : c.at+int(size)]); ok {
			c.at += int(size)
			return r, nil
		}
	}
	// It is large, or something is wrong with it that is to be named.
	end := c.offset() + size
	if err := c.skip(1); err != nil { // attributes, of which none are in use
		return r, err
	}
	if r.timestampDelta, err = c.varint64(); err != nil {
		return r, err
	}
	if r.offsetDelta, err = c.varint32(); err != nil {
		return r, err
	}
	if r.keySize, err = c.field(end); err != nil {
		return r, err
	}
	if r.valueSize, err = c.field(end); err != nil {
		return r, err
	}
	headers, err := c.headers(end)
	if err != nil {
		return r, err
	}
	for range headers {
		size, err := c.field(end)
		if err != nil {
			return r, err
		}
		if size < 0 {
			return r, errHeaderKey(size)
		}
		if _, err = c.field(end); err != nil {
			return r, err
		}
	}
	return r, checkEnd(c.offset(), end, size)
}

// skim is walk over a whole record's body, for the many that are sound.
func skim(b []byte) (r shape, ok bool) {
	if len(b) < 6 {
		return r, false
	}
	i, n := 1, 0 // after the attributes
	if r.timestampDelta, n = varint64(b[i:]); n <= 0 {
		return r, false
	}
	i += n
	if r.offsetDelta, i = skimVarint(b, i); i < 0 {
		return r, false
	}
	if r.keySize, i = skimVarint(b, i); i < 0 {
		return r, false
	}
	if i += int(max(r.keySize, 0)); i >= len(b) {
		return r, false
	}
	if r.valueSize, i = skimVarint(b, i); i < 0 {
		return r, false
	}
	if i += int(max(r.valueSize, 0)); i >= len(b) {
		return r, false
	}
	if b[i] == 0 { // no headers
		return r, i+1 == len(b)
	}
	headers, i := skimVarint(b, i)
	if i < 0 || headers < 0 {
		return r, false
	}
	for range headers {
		var size int32
		if size, i = skimVarint(b, i); i < 0 || size < 0 {
			return r, false
		}
		if i += int(size); i >= len(b) {
			return r, false
		}
		if size, i = skimVarint(b, i); i < 0 {
			return r, false
		}
		i += int(max(size, 0))
	}
	return r, i == len(b)
}

// skimVarint reads at i, and answers -1 in its place if there is no number. One and two bytes
// are what nearly all lengths and deltas have.
func skimVarint(b []byte, i int) (int32, int) {
	if i+1 < len(b) {
		u := uint32(b[i])
		if u < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
		if next := uint32(b[i+1]); next < 0x80 {
			u = u&0x7f | next<<7
			return int32(u>>1) ^ -int32(u&1), i + 2
		}
	}
	return skimLongVarint(b, i)
}

func skimLongVarint(b []byte, i int) (int32, int) {
	if i >= len(b) {
		return 0, -1
	}
	v, n := varint32(b[i:])
	if n <= 0 {
		return 0, -1
	}
	return v, i + n
}

// field moves over a length and as many bytes.
func (c *cursor) field(end int64) (int32, error) {
	n, err := c.varint32()
	if err != nil || n <= 0 {
		return max(n, -1), err
	}
	if int64(n) > end-c.offset() {
		return 0, fmt.Errorf("%w: found invalid record structure", ErrInvalidRecord)
	}
	return n, c.skip(int64(n))
}

// headers reads their count; each needs at least two bytes.
func (c *cursor) headers(end int64) (int32, error) {
	n, err := c.varint32()
	if err != nil {
		return 0, err
	}
	if n < 0 {
		return 0, fmt.Errorf("%w: found invalid number of record headers %d", ErrInvalidRecord, n)
	}
	if int64(n) > end-c.offset() {
		return 0, fmt.Errorf("%w: found invalid number of record headers. %d is larger than the remaining size of the buffer", ErrInvalidRecord, n)
	}
	return n, nil
}

func errHeaderKey(size int32) error {
	return fmt.Errorf("%w: invalid negative header key size %d", ErrInvalidRecord, size)
}

func checkEnd(at, end, size int64) error {
	if at != end {
		return fmt.Errorf("%w: invalid record size: expected to read %d bytes in record payload, but instead read %d",
			ErrInvalidRecord, size, size-(end-at))
	}
	return nil
}
