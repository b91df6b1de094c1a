package log

import (
	"encoding/binary"
	"io"
	"os"
)

// The two indexes of a segment (Kafka's OffsetIndex and TimeIndex), as bytes on disk:
//
//	.index      int32 offset relative to the base, int32 position; both rise
//	.timeindex  int64 timestamp, int32 relative offset; the first rises, the second does not fall
//
// An offset entry says: the batch that starts at this position has this last offset. A time
// entry says: up to this batch (its last offset), the largest timestamp is this.
const (
	offsetEntryBytes = 8
	timeEntryBytes   = 12

	// pendingBytes is how much of an index is kept in memory before it is written: the log's
	// own bytes are the only ones that an append writes. Recovery does not trust an index of
	// a segment that was active, so nothing depends on when these arrive.
	pendingBytes = 4 << 10

	searchBytes = 3 << 10 // from here on a binary search reads the rest at once
)

// entries is one index: its first disk bytes are in the file, pend follows them. pend is only
// appended to and replaced, never changed, so that a reader may look at a copy of the struct.
type entries struct {
	disk int64
	pend []byte
}

func (e *entries) bytes() int64 { return e.disk + int64(len(e.pend)) }

// fileKind is one of a segment's files that have a descriptor.
type fileKind uint8

const (
	logData fileKind = iota
	offsetIndex
	timeIndex
)

func (k fileKind) suffix() string { return [...]string{logSuffix, indexSuffix, timeSuffix}[k] }

func (k fileKind) entryBytes() int64 {
	if k == timeIndex {
		return timeEntryBytes
	}
	return offsetEntryBytes
}

// entryKey is what an index is sorted by.
func (k fileKind) entryKey(e []byte) int64 {
	if k == timeIndex {
		return int64(binary.BigEndian.Uint64(e))
	}
	return int64(int32(binary.BigEndian.Uint32(e)))
}

// entryRest is the position of an offset entry, the relative offset of a time entry.
func (k fileKind) entryRest(e []byte) int64 {
	if k == timeIndex {
		return int64(int32(binary.BigEndian.Uint32(e[8:])))
	}
	return int64(int32(binary.BigEndian.Uint32(e[4:])))
}

func appendOffsetEntry(b []byte, relative, position int64) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(relative))
	return binary.BigEndian.AppendUint32(b, uint32(position))
}

func appendTimeEntry(b []byte, timestamp, relative int64) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(timestamp))
	return binary.BigEndian.AppendUint32(b, uint32(relative))
}

// search finds the last entry whose key is at most want. i is its number, -1 if there is none.
// Bytes that the file should have and has not end the search as if they were not there.
func (s *segment) search(k fileKind, e entries, want int64) (i, key, rest int64, err error) {
	size := k.entryBytes()
	if len(e.pend) > 0 && k.entryKey(e.pend) <= want {
		j := lastAtMost(k, e.pend, want)
		at := e.pend[j*size:]
		return e.disk/size + j, k.entryKey(at), k.entryRest(at), nil
	}
	lo, hi := int64(0), e.disk/size // the answer is before hi, and at or after lo-1
	if hi == 0 {
		return -1, 0, 0, nil
	}
	h, err := s.get(k, 0)
	if err != nil {
		return -1, 0, 0, err
	}
	defer h.release()
	buf := lookupBuffers.Get().(*[lookupBytes]byte)
	defer lookupBuffers.Put(buf)
	for (hi-lo)*size > searchBytes {
		mid := (lo + hi) / 2
		n, err := h.f.ReadAt(buf[:size], mid*size)
		if err != nil && err != io.EOF {
			return -1, 0, 0, err
		}
		if int64(n) < size || k.entryKey(buf[:]) > want {
			hi = mid
		} else {
			lo = mid
		}
	}
	n, err := h.f.ReadAt(buf[:(hi-lo)*size], lo*size)
	if err != nil && err != io.EOF {
		return -1, 0, 0, err
	}
	block := buf[:int64(n)/size*size]
	if len(block) == 0 || k.entryKey(block) > want {
		return -1, 0, 0, nil
	}
	j := lastAtMost(k, block, want)
	at := block[j*size:]
	return lo + j, k.entryKey(at), k.entryRest(at), nil
}

// lastAtMost is the number of the last entry with a key at most want; the first has one.
func lastAtMost(k fileKind, b []byte, want int64) int64 {
	size := k.entryBytes()
	lo, hi := int64(0), int64(len(b))/size
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; k.entryKey(b[mid*size:]) <= want {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// soundEntries looks through the bytes of an index file. valid is how many of them, in whole
// entries from the start, can be entries of a segment with this many bytes; sound is false if
// what follows them is not merely room that Kafka allocated and did not use.
func soundEntries(k fileKind, b []byte, logBytes int64) (valid int64, sound bool) {
	size := k.entryBytes()
	lastKey, lastRest := int64(-1), int64(-1)
	for valid+size <= int64(len(b)) {
		e := b[valid:]
		key, rest := k.entryKey(e), k.entryRest(e)
		ok := key > lastKey && rest > lastRest
		if k == timeIndex {
			ok = key > lastKey && rest >= max(lastRest, 0)
			if next := b[valid+size:]; key == 0 && rest == 0 && int64(len(next)) >= size && k.entryKey(next) == 0 {
				ok = false // room that was never used
			}
		} else if rest == 0 || rest >= logBytes {
			ok = false // the batch at 0 never has an entry
		}
		if !ok {
			break
		}
		lastKey, lastRest = key, rest
		valid += size
	}
	for _, c := range b[valid:] {
		if c != 0 {
			return valid, false
		}
	}
	return valid, true
}

// readIndex reads an index file whole. Its room on disk is bounded by segment.index.bytes, in
// memory it is held for the moment of a check.
func (s *segment) readIndex(k fileKind) ([]byte, error) {
	h, err := s.get(k, 0)
	if err != nil {
		return nil, err
	}
	defer h.release()
	size, err := h.f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxSmallFile {
		return nil, nil // no index; it is made anew
	}
	b := make([]byte, size)
	n, err := h.f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return b[:n], nil
}

// writePending writes what of an index is only in memory. The caller holds the log's lock.
func (s *segment) writePending(k fileKind) error {
	e := s.entriesOf(k)
	s.imu.Lock()
	at, pend := e.disk, e.pend
	s.imu.Unlock()
	if len(pend) == 0 {
		return nil
	}
	h, err := s.get(k, os.O_CREATE)
	if err != nil {
		return err
	}
	defer h.release()
	if _, err := h.f.WriteAt(pend, at); err != nil {
		s.exact = false
		return err
	}
	s.imu.Lock()
	defer s.imu.Unlock()
	e.disk, e.pend = at+int64(len(pend)), nil
	return nil
}

// setIndex replaces the whole content of an index file.
func (s *segment) setIndex(k fileKind, b []byte) error {
	h, err := s.get(k, os.O_CREATE)
	if err != nil {
		return err
	}
	defer h.release()
	if _, err := h.f.WriteAt(b, 0); err != nil {
		return err
	}
	if err := h.f.Truncate(int64(len(b))); err != nil {
		return err
	}
	s.imu.Lock()
	defer s.imu.Unlock()
	*s.entriesOf(k) = entries{disk: int64(len(b))}
	return nil
}
