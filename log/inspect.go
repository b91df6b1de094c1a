package log

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// The readers of this and the other inspect files look at one file of a log, without a Manager:
// for tools. They take the bytes as they are, say where these cannot be what they should be, and
// change nothing. Memory is bounded by the constants here, whatever a file claims.
const (
	// MaxInspectedEntry is how large an entry may be to be read whole; the header and the
	// checksum of a larger one can be looked at all the same.
	MaxInspectedEntry = 128 << 20

	inspectBytes = 64 << 10 // read at once
	headToMagic  = 17       // what FileLogInputStream reads of an entry before it believes in it
)

// SegmentFile is a .log of a partition, or a snapshot of KRaft's metadata (.checkpoint), open for
// reading. Its methods may be called by several goroutines.
type SegmentFile struct {
	f    vfs.File
	name string
	size int64
}

// OpenSegmentFile opens a file by its path. Close it.
func OpenSegmentFile(fsys vfs.FS, name string) (*SegmentFile, error) {
	f, size, err := openSized(fsys, name)
	if err != nil {
		return nil, err
	}
	return &SegmentFile{f: f, name: name, size: size}, nil
}

// Size is the file's size in bytes when it was opened.
func (s *SegmentFile) Size() int64 { return s.size }

// Close closes the file.
func (s *SegmentFile) Close() error { return s.f.Close() }

// Entries begins a walk at a byte position, which begins an entry, up to the byte end.
func (s *SegmentFile) Entries(from, end int64) *SegmentEntries {
	sc := scanner{f: s.f, pos: from, end: s.size, buf: make([]byte, inspectBytes)}
	return &SegmentEntries{file: s, end: min(end, s.size), sc: sc}
}

// SegmentEntries walks the entries (batches of v2, messages of v0 and v1) of a file by their
// length fields, with the rules of Kafka's FileLogInputStream: it does not mind wrong checksums
// and content, or a magic byte that is none. One goroutine may use it.
//
//	for e := s.Entries(0, s.Size()); e.Next(); {
//		use(e.Header(), e.Position(), e.Size())
//	}
//	if err := e.Err(); err != nil { // e.End() is where the last whole entry ends
type SegmentEntries struct {
	file *SegmentFile
	end  int64
	sc   scanner
	err  error
}

// Next goes on to the next entry. It is false at the end, which is before what is no whole entry
// any more, and when Err is set.
func (e *SegmentEntries) Next() bool {
	if e.err != nil {
		return false
	}
	sc := &e.sc
	at := sc.pos + sc.size
	if at >= e.end-headToMagic {
		return false
	}
	hop := sc.size
	sc.pos, sc.size, sc.hop = at, 0, hop
	head, err := sc.fill(min(headerBytes, sc.end-at))
	if err != nil {
		e.err = err
		return false
	}
	if len(head) < headToMagic {
		return false // the file has become shorter
	}
	size := int64(record.Batch(head).Length())
	magic := record.Batch(head).Magic()
	least := headToMagic + 1 // the attributes
	switch {
	case magic == 1:
		least += 8 // the timestamp
	case magic >= 2:
		least = headerBytes
	}
	switch {
	case size < record.MinEntrySize:
		e.err = says(record.ErrCorrupt, "Found record size %d smaller than minimum record overhead (%d) in file %s.",
			size-12, record.MinEntrySize-12, e.file.name)
	case at > e.end-size:
		// the rest is not whole
	case len(head) < least:
		e.err = says(record.ErrCorrupt, "Failed to load record batch at position %d from %s", at, e.file.name)
	default:
		sc.head, sc.size = record.Batch(head), size
		return true
	}
	return false
}

// Header is the current entry's first bytes: as many as all accessors but Body need, if the magic
// byte is not below 0. It is valid until the next call of a method.
func (e *SegmentEntries) Header() record.Batch { return e.sc.head }

// Position is where the current entry begins in the file.
func (e *SegmentEntries) Position() int64 { return e.sc.pos }

// Size is the current entry's size in bytes.
func (e *SegmentEntries) Size() int64 { return e.sc.size }

// End is where the last entry that Next came to ends, or where the walk began.
func (e *SegmentEntries) End() int64 { return e.sc.pos + e.sc.size }

// Err is what ended the walk early: it wraps record.ErrCorrupt, or is the disk's. Its text is what
// Kafka says.
func (e *SegmentEntries) Err() error { return e.err }

// Valid compares the current entry's checksum with its bytes, all of which it reads.
func (e *SegmentEntries) Valid() (bool, error) {
	if e.sc.head.Magic() >= 2 && e.sc.size < headerBytes {
		return false, nil
	}
	err := e.sc.check()
	if err != nil && torn(err) {
		return false, nil
	}
	return err == nil, err
}

// Entry reads the current entry whole. It is valid until the next call of a method. One that is
// larger than MaxInspectedEntry is ErrTooLarge.
func (e *SegmentEntries) Entry() (record.Batch, error) {
	if e.sc.size > MaxInspectedEntry {
		return nil, fmt.Errorf("entry at position %d of %s: %d bytes, more than %d: %w", e.sc.pos, e.file.name, e.sc.size, int64(MaxInspectedEntry), ErrTooLarge)
	}
	return e.sc.entry()
}

// inspectError is what is wrong with a file, in Kafka's words.
type inspectError struct {
	of   error // the sentinel
	text string
}

func says(of error, format string, args ...any) error {
	return inspectError{of, fmt.Sprintf(format, args...)}
}

func (e inspectError) Error() string { return e.text }
func (e inspectError) Unwrap() error { return e.of }

// BaseOffset is the offset in the name of a file of a segment, or of a snapshot.
func BaseOffset(name string) (int64, error) {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: the name does not begin with an offset", name)
	}
	return offset, nil
}

// ParseSnapshotName takes the name of a snapshot of KRaft's metadata apart: OFFSET-EPOCH.checkpoint.
func ParseSnapshotName(name string) (offset int64, epoch int32, ok bool) {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	o, e, ok := strings.Cut(digits, "-")
	if !ok || len(o) != offsetDigits || len(e) != 10 {
		return 0, 0, false
	}
	offset, err := strconv.ParseInt(o, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	n, err := strconv.ParseInt(e, 10, 32)
	return offset, int32(n), err == nil
}
