package log

import (
	"fmt"
	"io"
	"slices"

	"ottla/protocol/record"
)

// entryAt is where an entry is in its file, and the offset that was next before it.
type entryAt struct{ pos, next int64 }

// lies says whether an entry that does not follow is a sound one that was flushed, and follows what
// was before the entry before it: then it is that one's offsets that are wrong, on which there is no
// checksum, and nothing is behind the recovery point.
func (ld *loader) lies(sc *scanner, before entryAt, next int64) (bool, error) {
	if sc.size == 0 || before.pos < 0 {
		return false, nil
	}
	base := sc.head.BaseOffset()
	if base >= next || base < before.next || base >= ld.point {
		return false, nil
	}
	err := sc.check()
	if torn(err) {
		return false, nil
	}
	return err == nil, err
}

// entry goes on to the next entry and says what is wrong with it, if anything is. The checksum
// is compared behind the recovery point.
func (ld *loader) entry(s *segment, sc *scanner, next int64) error {
	sc.whole = next >= ld.point
	if err := sc.next(); err != nil {
		return err
	}
	last := sc.head.LastOffset()
	if sc.head.BaseOffset() < next || !s.fits(last) {
		return fmt.Errorf("%w: offsets %d to %d where %d is next", record.ErrCorrupt, sc.head.BaseOffset(), last, next)
	}
	if last < ld.point {
		return nil
	}
	return sc.check()
}

// resume finds where the walk over a segment has to begin. In a large segment whose beginning
// was flushed that is the last index entries that can be trusted: those of both indexes before
// it are kept, and the walk meets all that may be wrong with the rest.
func (ld *loader) resume(s *segment, h *handle) (*indexBuilder, int64, error) {
	b := newIndexBuilder(s, ld.l.options().IndexIntervalBytes)
	if s.size.Load() < largeSegment || ld.point <= s.base {
		return b, 0, nil
	}
	var of [2][]byte
	for i, k := range []fileKind{offsetIndex, timeIndex} {
		if !ld.names[offsetName(s.base, k.suffix())] {
			return b, 0, nil
		}
		data, err := s.readIndex(k)
		if err != nil {
			return nil, 0, err
		}
		valid, _ := soundEntries(k, data, s.size.Load())
		of[i] = data[:valid]
	}
	offsets, times := of[0], of[1]
	below := ld.point - 1 - s.base
	for n := len(times) - timeEntryBytes; n >= 0 && timeIndex.entryRest(times[n:]) > below; n -= timeEntryBytes {
		times = times[:n]
	}
	if len(times) == 0 || len(offsets) == 0 {
		return b, 0, nil
	}
	last := times[len(times)-timeEntryBytes:]
	top := stamp{timeIndex.entryKey(last), s.base + timeIndex.entryRest(last)}
	if offsetIndex.entryKey(offsets) > top.offset-s.base {
		return b, 0, nil
	}
	j := lastAtMost(offsetIndex, offsets, top.offset-s.base)
	pos := offsetIndex.entryRest(offsets[j*offsetEntryBytes:])

	// The time entry must be that of its batch, which lies behind pos.
	sc := scanner{f: h.f, pos: pos, end: s.size.Load(), buf: make([]byte, lookupBytes)}
	from := int64(-1)
	for {
		if err := sc.next(); err == io.EOF || torn(err) {
			return b, 0, nil
		} else if err != nil {
			return nil, 0, err
		}
		if from < 0 {
			from = sc.head.BaseOffset()
		}
		if sc.head.LastOffset() >= top.offset {
			break
		}
	}
	if sc.head.MaxTimestamp() != top.time || from < s.base || from > s.base+offsetIndex.entryKey(offsets[j*offsetEntryBytes:]) {
		return b, 0, nil
	}
	b.offsets = slices.Clone(offsets[:j*offsetEntryBytes])
	if j > 0 {
		b.lastRel = offsetIndex.entryKey(offsets[(j-1)*offsetEntryBytes:])
	}
	for len(times) > 0 && s.base+timeIndex.entryRest(times[len(times)-timeEntryBytes:]) >= from {
		times = times[:len(times)-timeEntryBytes]
	}
	b.times = slices.Clone(times)
	if n := len(times); n > 0 {
		e := times[n-timeEntryBytes:]
		b.lastKey = timeIndex.entryKey(e)
		b.max = stamp{b.lastKey, s.base + timeIndex.entryRest(e)}
	}
	b.since = b.interval + 1 // the entry at pos had one
	return b, pos, nil
}
