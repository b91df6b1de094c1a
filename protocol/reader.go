package protocol

import "encoding/binary"

// reader reads from the front of b. After a read past its end it is bad and reads zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() { r.b, r.bad = nil, true }

// take returns the next n bytes without copying them.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) uint8() uint8 {
	if len(r.b) < 1 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint16() uint16 {
	if len(r.b) < 2 {
		r.fail()
		return 0
	}
	v := binary.BigEndian.Uint16(r.b)
	r.b = r.b[2:]
	return v
}

func (r *reader) uint32() uint32 {
	if len(r.b) < 4 {
		r.fail()
		return 0
	}
	v := binary.BigEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

// uvarint reads an unsigned varint of at most 32 bits, as Kafka's lengths and tags are.
func (r *reader) uvarint() uint32 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := uint32(r.b[0])
		r.b = r.b[1:]
		return v
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 5 || v > 1<<32-1 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return uint32(v)
}

// length reads a length that is stored as it is and may not exceed the bytes left.
func (r *reader) length() int {
	n := r.uvarint()
	if uint64(n) > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

// tagCount reads how many tagged fields follow; each takes two bytes at least.
func (r *reader) tagCount() int {
	n := r.length()
	if n > len(r.b)/2 {
		r.fail()
		return 0
	}
	return n
}
