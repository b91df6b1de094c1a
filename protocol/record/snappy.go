package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/snappy"
)

// Java writes snappy as a stream of its own (snappy-java's SnappyOutputStream, called xerial):
// a header, then blocks of an int32 length and a raw snappy block. Other clients write one raw
// block without anything around it; both are read, the first is written.
const (
	xerialMagic       = "\x82SNAPPY\x00"
	xerialHeader      = xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01" // version, oldest that reads it
	xerialMagicHead   = 0x82534e41                                       // in the place of a length: another header
	xerialOutputBlock = 32 << 10
)

var errSnappy = errors.New("broken snappy block")

type snappyReader struct {
	src    []byte
	xerial bool
	buf    []byte
}

func (s *snappyReader) reset(body []byte) error {
	*s = snappyReader{src: body, buf: s.buf}
	if len(body) >= len(xerialHeader) && string(body[:len(xerialMagic)]) == xerialMagic {
		if err := xerialVersion(body[len(xerialMagic):]); err != nil {
			return err
		}
		s.xerial = true
		s.src = body[len(xerialHeader):]
	} else if len(body) == 0 {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func xerialVersion(b []byte) error {
	if v := int32(binary.BigEndian.Uint32(b)); v < 1 {
		return fmt.Errorf("compressed with incompatible codec version %d", v)
	}
	return nil
}

func (s *snappyReader) next() ([]byte, error) {
	if !s.xerial {
		block := s.src
		if s.src = nil; len(block) == 0 {
			return nil, io.EOF
		}
		return s.unpack(block)
	}
	for {
		if len(s.src) < 4 {
			return nil, io.EOF
		}
		size := binary.BigEndian.Uint32(s.src)
		s.src = s.src[4:]
		if size == xerialMagicHead { // streams one after the other
			left := len(xerialHeader) - 4
			if len(s.src) < left {
				return nil, errSnappy
			}
			if err := xerialVersion(s.src[len(xerialMagic)-4:]); err != nil {
				return nil, err
			}
			s.src = s.src[left:]
			continue
		}
		if uint64(size) > uint64(len(s.src)) {
			return nil, errSnappy
		}
		block := s.src[:size]
		s.src = s.src[size:]
		return s.unpack(block)
	}
}

func (s *snappyReader) unpack(block []byte) ([]byte, error) {
	n, err := snappySize(block)
	if err != nil {
		return nil, err
	}
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	return snappy.Decode(s.buf[:cap(s.buf)], block)
}

func (s *snappyReader) drop() {
	s.src = nil
	if cap(s.buf) > keptBuffer {
		s.buf = nil
	}
}

// snappySize is what a raw block unpacks to, by its elements and not by its claim alone. It
// also refuses S2's extensions, which the library reads and other consumers do not.
func snappySize(b []byte) (int, error) {
	claimed, n := binary.Uvarint(b)
	if n <= 0 || claimed > 1<<31-1 {
		return 0, errSnappy
	}
	b = b[n:]
	made := uint64(0)
	for len(b) > 0 {
		tag := b[0]
		size := uint64(tag>>2) + 1
		switch tag & 3 {
		case 0: // bytes as they are
			used := 1
			if size > 60 {
				used += int(size - 60)
				if len(b) < used {
					return 0, errSnappy
				}
				var le [4]byte
				copy(le[:], b[1:used])
				size = uint64(binary.LittleEndian.Uint32(le[:])) + 1
			}
			if uint64(len(b)-used) < size {
				return 0, errSnappy
			}
			b = b[used+int(size):]
			made += size
			continue
		case 1:
			size = uint64(tag>>2&7) + 4
			if len(b) < 2 || !reaches(made, uint32(tag&0xe0)<<3|uint32(b[1])) {
				return 0, errSnappy
			}
			b = b[2:]
		case 2:
			if len(b) < 3 || !reaches(made, uint32(binary.LittleEndian.Uint16(b[1:]))) {
				return 0, errSnappy
			}
			b = b[3:]
		case 3:
			if len(b) < 5 || !reaches(made, binary.LittleEndian.Uint32(b[1:])) {
				return 0, errSnappy
			}
			b = b[5:]
		}
		made += size
	}
	if made != claimed {
		return 0, errSnappy
	}
	return int(made), nil
}

func reaches(made uint64, back uint32) bool { return back > 0 && uint64(back) <= made }

// snappyWriter packs blocks of 32 KiB into a xerial stream.
type snappyWriter struct {
	out    *sink
	buf    []byte
	packed []byte
}

var snappyWriters = sync.Pool{New: func() any {
	return &snappyWriter{buf: make([]byte, 0, xerialOutputBlock), packed: make([]byte, snappy.MaxEncodedLen(xerialOutputBlock))}
}}

func newSnappyWriter(out *sink) *snappyWriter {
	s := snappyWriters.Get().(*snappyWriter)
	s.out, s.buf = out, s.buf[:0]
	out.b = append(out.b, xerialHeader...)
	return s
}

func (s *snappyWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if len(s.buf) == cap(s.buf) {
			if err := s.flush(); err != nil {
				return 0, err
			}
		}
		m := min(len(p), cap(s.buf)-len(s.buf))
		s.buf = append(s.buf, p[:m]...)
		p = p[m:]
	}
	return n, nil
}

func (s *snappyWriter) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	packed := snappy.Encode(s.packed, s.buf)
	s.out.b = binary.BigEndian.AppendUint32(s.out.b, uint32(len(packed)))
	s.out.b = append(s.out.b, packed...)
	s.buf = s.buf[:0]
	return s.out.check()
}

func (s *snappyWriter) Close() error { return s.flush() }

func (s *snappyWriter) release() {
	s.out = nil
	snappyWriters.Put(s)
}
