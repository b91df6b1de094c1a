package log

import (
	"encoding/binary"
	"io"
	"iter"
	"path/filepath"

	"ottla/log/vfs"
)

// IndexFile is a .index or a .timeindex, open for reading. One goroutine may use it.
type IndexFile struct {
	f    vfs.File
	name string
	kind fileKind
	base int64
	size int64

	buf [4 << 10]byte
	at  int64 // where in the file buf lies
	n   int64 // how much of buf is filled
}

// OffsetEntry is an entry of a .index: the batch that starts at the position has this last offset.
type OffsetEntry struct {
	Offset   int64
	Position int32
}

// TimeEntry is an entry of a .timeindex: up to the batch that has this last offset the largest
// timestamp is this, in ms.
type TimeEntry struct {
	Timestamp, Offset int64
}

// OpenIndexFile opens an index by its path, whose suffix says which of the two it is. Close it.
func OpenIndexFile(fsys vfs.FS, name string) (*IndexFile, error) {
	kind := offsetIndex
	if filepath.Ext(name) == timeSuffix {
		kind = timeIndex
	}
	base, err := BaseOffset(name)
	if err != nil {
		return nil, err
	}
	f, size, err := openSized(fsys, name)
	if err != nil {
		return nil, err
	}
	return &IndexFile{f: f, name: name, kind: kind, base: base, size: size}, nil
}

// Close closes the file.
func (x *IndexFile) Close() error { return x.f.Close() }

// Base is the segment's base offset.
func (x *IndexFile) Base() int64 { return x.base }

// Size is the file's size in bytes, room that was never used included.
func (x *IndexFile) Size() int64 { return x.size }

// Len is how many whole entries the file has room for, used or not.
func (x *IndexFile) Len() int64 { return x.size / x.kind.entryBytes() }

// EntryBytes is the size of an entry.
func (x *IndexFile) EntryBytes() int64 { return x.kind.entryBytes() }

// OffsetEntry reads an entry of a .index by its number, from 0.
func (x *IndexFile) OffsetEntry(i int64) (OffsetEntry, error) {
	b, err := x.entry(i)
	if err != nil {
		return OffsetEntry{}, err
	}
	return OffsetEntry{x.base + x.kind.entryKey(b), int32(x.kind.entryRest(b))}, nil
}

// TimeEntry reads an entry of a .timeindex by its number, from 0.
func (x *IndexFile) TimeEntry(i int64) (TimeEntry, error) {
	b, err := x.entry(i)
	if err != nil {
		return TimeEntry{}, err
	}
	return TimeEntry{x.kind.entryKey(b), x.base + x.kind.entryRest(b)}, nil
}

func (x *IndexFile) entry(i int64) ([]byte, error) {
	size := x.kind.entryBytes()
	pos := i * size
	if pos < x.at || pos+size > x.at+x.n {
		from := pos
		if pos < x.at {
			from = max(pos+size-int64(len(x.buf)), 0) // a search goes back, and near
		}
		n, err := x.f.ReadAt(x.buf[:min(int64(len(x.buf)), x.size-from)], from)
		if err != nil && err != io.EOF {
			return nil, err
		}
		x.at, x.n = from, int64(n)
		if pos+size > x.at+x.n {
			return nil, &Damage{x.name, pos, "the file has become shorter"}
		}
	}
	return x.buf[pos-x.at : pos-x.at+size], nil
}

// warmBytes is how much of an index's end Kafka searches first (AbstractIndex.warmEntries).
const warmBytes = 8192

// Lookup finds where a reader of an offset starts in the segment, as Kafka does also in an index
// that is not in order: the last entry at or below the offset, else the segment's start.
func (x *IndexFile) Lookup(offset int64) (OffsetEntry, error) {
	start, n := OffsetEntry{Offset: x.base}, x.Len()
	if n == 0 {
		return start, nil
	}
	lo, hi := int64(0), n-1
	warm := max(0, n-1-warmBytes/x.kind.entryBytes())
	e, err := x.OffsetEntry(warm)
	if err != nil {
		return start, err
	}
	if e.Offset < offset {
		lo = warm
	} else {
		hi = warm
		if e, err = x.OffsetEntry(0); err != nil || e.Offset > offset {
			return start, err
		}
	}
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if e, err = x.OffsetEntry(mid); err != nil {
			return start, err
		}
		switch {
		case e.Offset == offset:
			return e, nil
		case e.Offset > offset:
			hi = mid - 1
		default:
			lo = mid
		}
	}
	return x.OffsetEntry(lo)
}

// TxnEntry is an entry of a .txnindex.
type TxnEntry struct {
	Version int16
	Aborted
}

// TxnEntries reads the entries of a .txnindex in turn. What is after the last whole one is left
// out; an error is the last thing yielded.
func TxnEntries(fsys vfs.FS, name string) iter.Seq2[TxnEntry, error] {
	return func(yield func(TxnEntry, error) bool) {
		f, size, err := openSized(fsys, name)
		if err != nil {
			yield(TxnEntry{}, err)
			return
		}
		defer f.Close()
		buf := make([]byte, 100*abortedBytes)
		for at := int64(0); at+abortedBytes <= size; {
			n, err := f.ReadAt(buf[:min(int64(len(buf)), (size-at)/abortedBytes*abortedBytes)], at)
			if err != nil && err != io.EOF {
				yield(TxnEntry{}, err)
				return
			}
			if n < abortedBytes {
				return
			}
			for b := buf[:n]; len(b) >= abortedBytes; b = b[abortedBytes:] {
				e := TxnEntry{int16(binary.BigEndian.Uint16(b)), Aborted{
					ProducerID:   int64(binary.BigEndian.Uint64(b[2:])),
					First:        int64(binary.BigEndian.Uint64(b[10:])),
					Last:         int64(binary.BigEndian.Uint64(b[18:])),
					StableOffset: int64(binary.BigEndian.Uint64(b[26:])),
				}}
				if e.Version != 0 {
					yield(e, says(ErrDamaged, "Unexpected aborted transaction version %d in transaction index %s, supported version range is 0 to 0", e.Version, name))
					return
				}
				if !yield(e, nil) {
					return
				}
				at += abortedBytes
			}
		}
	}
}
