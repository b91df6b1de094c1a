package log

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"ottla/protocol/record"
)

const (
	headerBytes = record.HeaderSize
	lookupBytes = 4 << 10 // read for a look-up: about what lies between two index entries
	hopBytes    = 2 << 10 // entries larger than this are not worth reading past their header
	walkBytes   = 64 << 10
	checkBytes  = 1 << 20 // read at once where checksums are checked
)

// buffers for look-ups, which are many and short.
var lookupBuffers = sync.Pool{New: func() any { return new([lookupBytes]byte) }}

// scanner walks the entries (batches of v2, messages of v0 and v1) of a segment by their
// headers. After next has returned nil, head, pos and size are those of the current entry.
type scanner struct {
	f     io.ReaderAt
	pos   int64        // byte in the file
	size  int64        // of the whole entry
	end   int64        // nothing from there on is read
	head  record.Batch // at least the header; valid until the next call of a method
	whole bool         // read entries with their records, for check
	hop   int64        // size of the entry before

	buf []byte
	at  int64 // where in the file buf lies
	n   int   // how much of buf is filled
}

// next goes on to the next entry. The error is io.EOF at the end, wraps record.ErrShort if the
// bytes up to the end are no whole entry and record.ErrCorrupt if they cannot be one; anything
// else is the disk's.
func (s *scanner) next() error {
	s.pos, s.size, s.hop = s.pos+s.size, 0, s.size
	rest := s.end - s.pos
	if rest <= 0 {
		return io.EOF
	}
	head, err := s.fill(min(headerBytes, rest))
	if err != nil {
		return err
	}
	if _, _, err := record.Split(head); err != nil && !errors.Is(err, record.ErrShort) {
		return err
	}
	if len(head) <= 16 {
		return record.ErrShort
	}
	s.head = record.Batch(head)
	size := int64(s.head.Length())
	if size > rest {
		return fmt.Errorf("%w: %d bytes of %d", record.ErrShort, rest, size)
	}
	if s.head.Magic() >= 2 && (len(head) < headerBytes || s.head.LastOffsetDelta() < 0) {
		return fmt.Errorf("%w: last offset below the first", record.ErrCorrupt)
	}
	s.size = size
	return nil
}

// fill returns the need bytes at pos, or fewer if the file ends before s.end.
func (s *scanner) fill(need int64) ([]byte, error) {
	if off := s.pos - s.at; off >= 0 && off+need <= int64(s.n) {
		return s.buf[off : off+need], nil
	}
	want := int64(len(s.buf))
	if !s.whole && s.hop > hopBytes {
		want = need // the last entry was large, and so will this be
	}
	want = min(want, s.end-s.pos)
	n, err := s.f.ReadAt(s.buf[:want], s.pos)
	if err != nil && err != io.EOF {
		return nil, err
	}
	s.at, s.n = s.pos, n
	return s.buf[:min(need, int64(n))], nil
}

// entry returns the current entry whole. It is valid until the next call of a method.
func (s *scanner) entry() (record.Batch, error) {
	if off := s.pos - s.at; off >= 0 && off+s.size <= int64(s.n) {
		return record.Batch(s.buf[off : off+s.size]), nil
	}
	if s.size > int64(len(s.buf)) {
		s.buf = make([]byte, s.size) // at most what the file has left
		s.n = 0
	}
	n, err := s.f.ReadAt(s.buf[:s.size], s.pos)
	if err != nil && err != io.EOF {
		return nil, err
	}
	s.at, s.n = s.pos, n
	if int64(n) < s.size {
		return nil, record.ErrShort
	}
	s.head = record.Batch(s.buf[:s.size])
	return s.head, nil
}

// check compares the current entry's checksum with its bytes; a wrong one is ErrCorrupt. An
// entry larger than the buffer is read in pieces, so that a false length costs no memory.
func (s *scanner) check() error {
	if s.size <= int64(len(s.buf)) {
		b, err := s.entry()
		if err != nil {
			return err
		}
		return sameCRC(b, b.ComputeCRC())
	}
	var head [headerBytes]byte
	copy(head[:], s.head)
	b := record.Batch(head[:])
	at, table := int64(21), crc32.MakeTable(crc32.Castagnoli)
	if b.Magic() < 2 {
		at, table = 16, crc32.IEEETable
	}
	crc := uint32(0)
	for at < s.size {
		piece := s.buf[:min(int64(len(s.buf)), s.size-at)]
		n, err := s.f.ReadAt(piece, s.pos+at)
		if err != nil && err != io.EOF {
			return err
		}
		if n < len(piece) {
			return record.ErrShort
		}
		crc = crc32.Update(crc, table, piece)
		at += int64(n)
	}
	s.n = 0
	s.head = b
	return sameCRC(b, crc)
}

func sameCRC(b record.Batch, crc uint32) error {
	if b.CRC() != crc {
		return fmt.Errorf("%w: checksum %#08x, stored %#08x", record.ErrCorrupt, crc, b.CRC())
	}
	return nil
}

// torn says whether an error of a scanner is about the bytes and not the disk.
func torn(err error) bool {
	return errors.Is(err, record.ErrShort) || errors.Is(err, record.ErrCorrupt)
}

// parseMarker reads the one record of a control batch. ok is false for one without records,
// which compaction leaves, and for control records that end no transaction.
func parseMarker(b record.Batch) (m record.EndMarker, ok bool, err error) {
	for r, err := range record.Records(b, lookupBytes) {
		if err != nil {
			return m, false, err
		}
		return record.ParseEndMarker(r)
	}
	return m, false, nil
}
