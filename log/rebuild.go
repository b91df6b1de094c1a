package log

import (
	"fmt"
	"io"

	"ottla/protocol/record"
)

// ensure looks through the index files of a segment that was there at the start, when they are
// needed for the first time, and makes them anew if they cannot be right.
func (s *segment) ensure() error {
	if s.checked.Load() {
		return nil
	}
	s.checking.Lock()
	defer s.checking.Unlock()
	if s.checked.Load() {
		return nil
	}
	reason, err := s.readIndexes()
	if err != nil {
		return err
	}
	if reason != "" {
		s.log.m.logger.Warn("rebuilding the indexes of a segment", "file", s.path(logSuffix), "reason", reason)
		s.log.m.metrics.indexesRebuilt.Inc()
		if err := s.rebuild(); err != nil {
			return err
		}
	}
	s.checked.Store(true)
	return nil
}

// readIndexes takes in the index files as they are, unless there is a reason not to.
func (s *segment) readIndexes() (reason string, err error) {
	size := s.size.Load()
	var of [2][]byte
	for i, k := range []fileKind{offsetIndex, timeIndex} {
		b, err := s.readIndex(k)
		if notExist(err) {
			if size == 0 {
				continue
			}
			return "no " + k.suffix(), nil
		}
		if err != nil {
			return "", err
		}
		valid, sound := soundEntries(k, b, size)
		if !sound {
			return fmt.Sprintf("entry at byte %d of %s cannot be one", valid, k.suffix()), nil
		}
		of[i] = b[:valid]
	}
	s.imu.Lock()
	s.offsets, s.times = entries{disk: int64(len(of[0]))}, entries{disk: int64(len(of[1]))}
	s.lastRel, s.lastKey, s.max = -1, noTime, stamp{noTime, s.base}
	var last place
	if n := len(of[0]); n > 0 {
		e := of[0][n-offsetEntryBytes:]
		s.lastRel, last = offsetIndex.entryKey(e), place{pos: offsetIndex.entryRest(e), size: 1}
	}
	if n := len(of[1]); n > 0 {
		e := of[1][n-timeEntryBytes:]
		s.lastKey = timeIndex.entryKey(e)
		s.max = stamp{s.lastKey, s.base + timeIndex.entryRest(e)}
	}
	top, lastRel := s.max, s.lastRel
	offsets := s.offsets
	s.imu.Unlock()
	return s.compare(last, lastRel, top, offsets)
}

// compare holds the last entry of each index against the log: what retention and look-ups by
// time rest on.
func (s *segment) compare(last place, lastRel int64, top stamp, offsets entries) (reason string, err error) {
	h, err := s.get(logData, 0)
	if err != nil {
		return "", err
	}
	defer h.release()
	buf := lookupBuffers.Get().(*[lookupBytes]byte)
	defer lookupBuffers.Put(buf)
	sc := scanner{f: h.f, end: s.size.Load(), buf: buf[:]}
	if last.size > 0 {
		sc.pos = last.pos
		switch err := sc.next(); {
		case err == io.EOF || torn(err):
			return "the last offset entry points at no batch", nil
		case err != nil:
			return "", err
		case sc.head.BaseOffset() > s.base+lastRel || sc.head.BaseOffset() < s.base:
			return "the last offset entry points at another batch", nil
		}
	}
	pos := int64(0)
	if top.time >= 0 {
		if _, _, pos, err = s.search(offsetIndex, offsets, top.offset-s.base); err != nil {
			return "", err
		}
	}
	// A segment that is closed has its largest timestamp in the last time entry.
	sc = scanner{f: h.f, pos: pos, end: sc.end, buf: buf[:]}
	met := top.time < 0
	for {
		switch err := sc.next(); {
		case err == io.EOF && met:
			return "", nil
		case err == io.EOF || torn(err):
			return "the last time entry points at no batch", nil
		case err != nil:
			return "", err
		case sc.head.LastOffset() < top.offset:
		case !met && sc.head.MaxTimestamp() != top.time:
			return "the last time entry has another timestamp than its batch", nil
		case sc.head.MaxTimestamp() > top.time:
			return "the time index lacks the largest timestamp", nil
		default:
			met = true
		}
	}
}

// rebuild makes both index files from the entries of the log.
func (s *segment) rebuild() error {
	h, err := s.get(logData, 0)
	if err != nil {
		return err
	}
	defer h.release()
	b := newIndexBuilder(s, s.log.options().IndexIntervalBytes)
	sc := scanner{f: h.f, end: s.size.Load(), buf: make([]byte, walkBytes)}
	for err = sc.next(); err == nil; err = sc.next() {
		b.add(sc.head, sc.pos, sc.size)
	}
	if torn(err) {
		s.damagedAt(sc.pos, err) // up to there it can be read
	} else if err != io.EOF {
		return err
	}
	return b.write()
}

// damagedAt takes in that the segment's file is broken at a byte, and tells it once. Entries before
// it go on to be read. What lies behind is not passed over, as by Kafka, whose consumers go on in the
// next segment without a word: whoever asks for it gets the Damage.
func (s *segment) damagedAt(pos int64, why error) *Damage {
	d := &Damage{s.path(logSuffix), pos, why.Error()}
	if old := s.damage.Load(); old != nil && *old == *d {
		return old
	}
	s.damage.Store(d)
	if !s.log.loading.Load() {
		s.tellDamage(d)
	}
	return d
}

func (s *segment) tellDamage(d *Damage) {
	s.log.m.logger.Error("a segment is damaged: what lies behind in it cannot be read", "topic", s.log.topic, "partition", s.log.partition,
		"file", d.File, "position", d.Position, "reason", d.Reason, "help", d.help(s.log))
}

// indexBuilder makes index entries from entries of the log, as an append would have.
type indexBuilder struct {
	s        *segment
	interval int64
	since    int64
	offsets  []byte
	times    []byte
	lastRel  int64
	lastKey  int64
	max      stamp
}

func newIndexBuilder(s *segment, interval int64) *indexBuilder {
	return &indexBuilder{s: s, interval: interval, lastRel: -1, lastKey: noTime, max: stamp{noTime, s.base}}
}

func (b *indexBuilder) add(head record.Batch, pos, size int64) {
	last := head.LastOffset()
	if t := head.MaxTimestamp(); t > b.max.time {
		b.max = stamp{t, last}
	}
	if rel := last - b.s.base; b.since > b.interval && rel > b.lastRel {
		b.offsets = appendOffsetEntry(b.offsets, rel, pos)
		b.lastRel, b.since = rel, 0
		b.addTime()
	}
	b.since += size
}

func (b *indexBuilder) addTime() {
	if b.max.time > b.lastKey {
		b.times = appendTimeEntry(b.times, b.max.time, b.max.offset-b.s.base)
		b.lastKey = b.max.time
	}
}

// write replaces the index files. The caller holds s.checking, or nobody else knows s yet.
func (b *indexBuilder) write() error {
	if b.s.size.Load() > 0 {
		b.addTime()
	}
	if err := b.s.setIndex(offsetIndex, b.offsets); err != nil {
		return err
	}
	if err := b.s.setIndex(timeIndex, b.times); err != nil {
		return err
	}
	b.s.imu.Lock()
	defer b.s.imu.Unlock()
	b.s.lastRel, b.s.lastKey, b.s.max = b.lastRel, b.lastKey, b.max
	return nil
}
