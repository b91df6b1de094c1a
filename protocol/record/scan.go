package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Scanner walks the entries in a region of a file, header by header, without holding more
// than a buffer: for recovery, for finding an offset, for tools.
//
//	s := record.NewScanner(f, 0, size, true)
//	for s.Next() {
//		use(s.Header(), s.Position(), s.Size())
//	}
//	if err := s.Err(); err != nil { // s.End() is where the last whole entry ends
type Scanner struct {
	file   io.ReaderAt
	end    int64 // of the region
	verify bool

	buf   []byte // of the file from bufAt on
	bufAt int64

	at, next int64 // the current entry, and what follows it
	header   Batch
	err      error
}

// CorruptionError is where a region stops to be entries. It wraps ErrCorrupt, and ErrShort if
// all that is wrong is that the region ends too early, as it does after a torn write.
type CorruptionError struct {
	Position int64 // in the file: where the entry begins
	Err      error
}

func (e *CorruptionError) Error() string { return fmt.Sprintf("at position %d: %v", e.Position, e.Err) }
func (e *CorruptionError) Unwrap() error { return e.Err }

const (
	scanBuffer       = 64 << 10 // when the entries are read
	scanHeaderBuffer = 4 << 10  // when only their headers are
)

// NewScanner walks from a position that begins an entry to the position end. verify reads
// every entry whole and checks its checksum.
func NewScanner(file io.ReaderAt, from, end int64, verify bool) *Scanner {
	size := scanHeaderBuffer
	if verify {
		size = scanBuffer
	}
	return &Scanner{file: file, end: end, verify: verify, next: from, bufAt: from, buf: make([]byte, 0, size)}
}

// Next moves to the next entry. It is false at the end of the region and when Err is set.
func (s *Scanner) Next() bool {
	if s.err != nil || s.next >= s.end {
		return false
	}
	at := s.next
	head, err := s.peek(at, min(int64(HeaderSize), s.end-at))
	if err != nil {
		s.err = err
		return false
	}
	size, err := entrySize(head)
	if err == nil && size > s.end-at {
		err = fmt.Errorf("%w: %w: %d bytes left of %d", ErrCorrupt, ErrShort, s.end-at, size)
	}
	if err == nil {
		// What was peeked at moves when more is read.
		s.header = append(s.header[:0], head[:min(size, int64(len(head)))]...)
		if s.verify {
			err = s.checkCRC(at, size)
		}
	}
	if err != nil {
		if errors.Is(err, ErrCorrupt) {
			err = &CorruptionError{at, err}
		}
		s.err = err
		return false
	}
	s.at, s.next = at, at+size
	return true
}

// entrySize is the size of the entry that begins with head.
func entrySize(head []byte) (int64, error) {
	if len(head) <= atMagic {
		return 0, fmt.Errorf("%w: %w", ErrCorrupt, ErrShort)
	}
	size := int64(int32(binary.BigEndian.Uint32(head[atLength:])))
	if size < smallestEntryBody {
		return 0, fmt.Errorf("%w: found record size %d smaller than minimum record overhead (%d)", ErrCorrupt, size, smallestEntryBody)
	}
	if err := checkSize(int8(head[atMagic]), int(size)); err != nil {
		return 0, err
	}
	return entryPrefix + size, nil
}

// Header is the first HeaderSize bytes of the current entry, or all of a smaller one: every
// accessor but Body works. It is valid until Next.
func (s *Scanner) Header() Batch { return s.header }

// Position is where the current entry begins in the file.
func (s *Scanner) Position() int64 { return s.at }

// Size is the current entry's size in bytes.
func (s *Scanner) Size() int64 { return s.next - s.at }

// End is where the last entry that Next returned ends, or where the scan began.
func (s *Scanner) End() int64 { return s.next }

// Err is a *CorruptionError, an error of the file, or nil at the end of the region.
func (s *Scanner) Err() error { return s.err }

// Entry reads the whole current entry into dst[:0], for callers who know what sizes to expect.
func (s *Scanner) Entry(dst []byte) (Batch, error) {
	size := int(s.Size())
	if cap(dst) < size {
		dst = make([]byte, size)
	}
	dst = dst[:size]
	err := readAt(s.file, dst, s.at)
	return Batch(dst), err
}

// peek has n bytes at a position at hand, at most a buffer.
func (s *Scanner) peek(at, n int64) ([]byte, error) {
	if at < s.bufAt || at+n > s.bufAt+int64(len(s.buf)) {
		s.buf, s.bufAt = s.buf[:min(int64(cap(s.buf)), s.end-at)], at
		if err := readAt(s.file, s.buf, at); err != nil {
			s.buf = s.buf[:0]
			return nil, err
		}
	}
	from := at - s.bufAt
	return s.buf[from : from+n], nil
}

// checkCRC reads an entry piece by piece.
func (s *Scanner) checkCRC(at, size int64) error {
	covered, table, stored := int64(atAttributes), castagnoli, s.header.CRC()
	if s.header.Magic() < 2 {
		covered, table = atMagic, crc32.IEEETable
	}
	sum, from, end := uint32(0), at+covered, at+size
	for from < end {
		// What is in the buffer first, then whole buffers.
		n := min(end-from, s.bufAt+int64(len(s.buf))-from)
		if n <= 0 {
			n = min(end-from, int64(cap(s.buf)))
		}
		b, err := s.peek(from, n)
		if err != nil {
			return err
		}
		sum = crc32.Update(sum, table, b)
		from += n
	}
	if sum != stored {
		return fmt.Errorf("%w: record is corrupt (stored crc = %d, computed crc = %d)", ErrCorrupt, stored, sum)
	}
	return nil
}

// readAt fills b. A file that ends before its region is an error.
func readAt(file io.ReaderAt, b []byte, at int64) error {
	n, err := file.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil
	case err == nil || err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}
