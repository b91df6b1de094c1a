package log

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// noTime stands for "no timestamp", as in Kafka; timeUnread for "not looked up yet".
const (
	noTime     = -1
	timeUnread = math.MinInt64
)

// segment is a stretch of the log: one file of entries with its indexes (Kafka's LogSegment).
// Its files are opened when they are needed and may be closed at any time between two uses.
//
// It is written by one goroutine at a time, under the log's lock, and read by any without it:
// size is stored after the bytes are there, and the rest of what readers see is behind imu,
// which is never held across a read or a write of a file.
type segment struct {
	log  *Log
	base int64

	files   [3]slot     // by fileKind
	gone    atomic.Bool // the files are renamed to .deleted
	grave   string      // what goes before .deleted; set before gone is
	size    atomic.Int64
	txn     atomic.Int64 // bytes of the .txnindex; 0: there is none
	created atomic.Int64 // ms, for rolling a segment without timestamps

	// Guarded by log.mu.
	jitter     int64 // ms, taken off segment.ms
	firstTime  int64 // of the first entry, or timeUnread
	sinceIndex int64 // bytes since the last index entry
	exact      bool  // both index files are there, and no longer than their entries

	checking sync.Mutex  // held while the indexes of a segment from disk are looked through
	checked  atomic.Bool // they are sound, and what imu guards is right

	damage atomic.Pointer[Damage] // where the file is known to be broken; what lies before it is read

	imu     sync.Mutex
	offsets entries
	times   entries
	lastRel int64 // relative offset of the last offset entry, -1
	lastKey int64 // timestamp of the last time entry, -1
	max     stamp // largest timestamp, and the last offset of the entry that has it
	newest  place // where the last append went, which is what most reads ask for
}

// stamp is a timestamp with an offset.
type stamp struct{ time, offset int64 }

// place is where an entry lies. size 0: nowhere.
type place struct {
	base, last int64
	pos, size  int64
	epoch      int32
	magic      int8
}

func placeOf(b record.Batch, pos int64) place {
	return place{b.BaseOffset(), b.LastOffset(), pos, int64(b.Length()), b.LeaderEpoch(), b.Magic()}
}

// newSegment describes a segment without files.
func newSegment(l *Log, base int64) *segment {
	s := &segment{log: l, base: base, firstTime: timeUnread, lastRel: -1, lastKey: noTime, max: stamp{noTime, base}}
	s.created.Store(l.m.nowMs())
	s.jitter = l.m.jitter(l.options())
	return s
}

// create makes the files of a new segment. What lies there under its name is a remainder of
// something that was given up, and is emptied. The caller holds the log's lock.
func (s *segment) create() error {
	l := s.log
	h, err := s.get(logData, os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	defer h.release()
	for _, k := range []fileKind{offsetIndex, timeIndex} { // now, so that a stop has less to do
		if err := writeFile(l.m.fs, s.path(k.suffix()), nil, false); err != nil {
			return err
		}
	}
	s.exact = true
	if l.leftovers {
		if err := l.m.fs.Remove(s.path(txnSuffix)); err != nil && !notExist(err) {
			return err
		}
	}
	if o := l.options(); o.Preallocate {
		vfs.Reserve(h.f, o.SegmentBytes) // a wish: where it fails the file grows as it is written
	}
	s.created.Store(l.m.nowMs())
	s.firstTime = noTime
	s.checked.Store(true)
	l.flush.names.Store(true)
	return nil
}

func (s *segment) path(suffix string) string {
	name := offsetName(s.base, suffix)
	if s.gone.Load() {
		name += s.grave + deletedSuffix
	}
	return s.log.path(name)
}

func (s *segment) get(k fileKind, flag int) (*handle, error) {
	return s.log.m.files.get(&s.files[k], func() string { return s.path(k.suffix()) }, flag)
}

// closeFiles gives up the descriptors; readers that hold one go on.
func (s *segment) closeFiles() {
	for i := range s.files {
		s.files[i].drop(nil)
	}
}

func (s *segment) entriesOf(k fileKind) *entries {
	if k == timeIndex {
		return &s.times
	}
	return &s.offsets
}

// fits says whether the offset can be written relative to the base.
func (s *segment) fits(offset int64) bool {
	return offset >= s.base && offset-s.base <= math.MaxInt32
}

// shouldRoll says whether a next segment has to be begun before an append (LogSegment.
// shouldRoll): the segment would grow too large, its first entry is too old beside the new
// timestamp, an index is full, or the offset does not fit. The caller holds the log's lock.
func (s *segment) shouldRoll(o *Options, now int64, bytes int64, last int64, maxTime int64) (bool, error) {
	size := s.size.Load()
	if size > o.SegmentBytes-bytes || !s.fits(last) {
		return size > 0, nil
	}
	if size == 0 {
		return false, nil
	}
	if s.firstTime == timeUnread {
		if err := s.readFirstTime(); err != nil {
			return false, err
		}
	}
	waited := now - s.created.Load()
	if s.firstTime >= 0 {
		waited = maxTime - s.firstTime
	}
	if waited > o.maxSegmentMs()-min(s.jitter, o.maxSegmentMs()) {
		return true, nil
	}
	s.imu.Lock()
	defer s.imu.Unlock()
	return s.offsets.bytes()/offsetEntryBytes >= o.SegmentIndexBytes/offsetEntryBytes ||
		s.times.bytes()/timeEntryBytes >= o.SegmentIndexBytes/timeEntryBytes-1, nil
}

func (s *segment) readFirstTime() error {
	h, err := s.get(logData, 0)
	if err != nil {
		return err
	}
	defer h.release()
	var buf [headerBytes]byte
	sc := scanner{f: h.f, end: s.size.Load(), buf: buf[:]}
	if err := sc.next(); err != nil {
		s.firstTime = noTime
		return nil // whoever reads the entry will say what is wrong
	}
	s.firstTime = sc.head.MaxTimestamp()
	return nil
}

// write puts the bytes at the end of the file, in one call. After an error the segment is as
// before; if that cannot be brought about, cut is the error of trying.
func (s *segment) write(b []byte) (err, cut error) {
	h, err := s.get(logData, 0)
	if err != nil {
		return err, nil
	}
	defer h.release()
	at := s.size.Load()
	n, err := h.f.WriteAt(b, at)
	if err != nil && n > 0 {
		cut = h.f.Truncate(at)
	}
	return err, cut
}

// wrote takes in what an append knows about bytes that were just written at pos: its last
// offset, its largest timestamp and the last offset of the entry that has it. It makes the
// index entries. The caller holds the log's lock and stores size afterwards.
func (s *segment) wrote(p place, top stamp, interval int64) {
	if p.pos == 0 {
		s.firstTime = top.time
	}
	s.imu.Lock()
	defer s.imu.Unlock()
	if top.time > s.max.time {
		s.max = top
	}
	s.newest = p
	if s.sinceIndex > interval {
		s.indexLocked(p.last, p.pos)
		s.sinceIndex = 0
	}
	s.sinceIndex += p.size
}

func (s *segment) indexLocked(last, pos int64) {
	if rel := last - s.base; rel > s.lastRel {
		s.offsets.pend = appendOffsetEntry(s.offsets.pend, rel, pos)
		s.lastRel = rel
	}
	s.indexTimeLocked()
}

func (s *segment) indexTimeLocked() {
	if s.max.time > s.lastKey {
		s.times.pend = appendTimeEntry(s.times.pend, s.max.time, s.max.offset-s.base)
		s.lastKey = s.max.time
	}
}

// pendingFull says that enough index entries came together to write them.
func (s *segment) pendingFull() bool {
	s.imu.Lock()
	defer s.imu.Unlock()
	return len(s.offsets.pend) >= pendingBytes || len(s.times.pend) >= pendingBytes
}

func (s *segment) pending() bool {
	s.imu.Lock()
	defer s.imu.Unlock()
	return len(s.offsets.pend)+len(s.times.pend) > 0
}

// writeIndexes brings the index files up to date. The caller holds the log's lock.
func (s *segment) writeIndexes() error {
	if err := s.writePending(offsetIndex); err != nil {
		return err
	}
	return s.writePending(timeIndex)
}

// finish makes the files what they are in a segment that is not written any more: a last time
// entry, both index files there and no longer than their entries (onBecomeInactiveSegment).
// The caller holds the log's lock.
func (s *segment) finish() error {
	if err := s.ensure(); err != nil {
		return err
	}
	s.imu.Lock()
	if s.size.Load() > 0 {
		s.indexTimeLocked()
	}
	s.imu.Unlock()
	if err := s.writeIndexes(); err != nil {
		return err
	}
	if s.exact {
		return nil
	}
	for _, k := range []fileKind{offsetIndex, timeIndex} {
		h, err := s.get(k, os.O_CREATE)
		if err != nil {
			return err
		}
		size, err := h.f.Size()
		if want := s.entriesOf(k).disk; err == nil && size > want {
			err = h.f.Truncate(want)
		}
		h.release()
		if err != nil {
			return err
		}
	}
	s.exact = true
	return nil
}

// position finds a byte from which a scan meets the entry with an offset: the indexed one that
// ends at or before it, or 0. An index that cannot be read is as good as none.
func (s *segment) position(offset int64) (int64, error) {
	if err := s.ensure(); err != nil {
		return 0, err
	}
	s.imu.Lock()
	e := s.offsets
	s.imu.Unlock()
	i, _, pos, err := s.search(offsetIndex, e, offset-s.base)
	if err != nil || i < 0 {
		return 0, err
	}
	return pos, nil
}

// errAstray: an index led to an entry that it cannot mean.
var errAstray = errors.New("index leads astray")

// locate finds the first entry whose last offset is at or after the given one. ok is false if
// the segment has none. Entries from end on are not there.
func (s *segment) locate(offset, end int64) (p place, ok bool, err error) {
	s.imu.Lock()
	newest := s.newest
	s.imu.Unlock()
	if newest.size > 0 && offset >= newest.base && newest.pos+newest.size <= end {
		return newest, offset <= newest.last, nil
	}
	pos, err := s.position(offset)
	if err != nil {
		return place{}, false, err
	}
	h, err := s.get(logData, 0)
	if err != nil {
		return place{}, false, err
	}
	defer h.release()
	buf := lookupBuffers.Get().(*[lookupBytes]byte)
	defer lookupBuffers.Put(buf)
	for {
		sc := scanner{f: h.f, pos: pos, end: end, buf: buf[:]}
		for err = sc.next(); err == nil; err = sc.next() {
			if last := sc.head.LastOffset(); last > offset && sc.pos == pos && pos > 0 {
				err = errAstray // an index entry's batch ends at or before what was looked for
				break
			} else if last >= offset {
				return placeOf(sc.head, sc.pos), true, nil
			}
		}
		switch {
		case err == io.EOF:
			return place{}, false, nil
		case !torn(err) && err != errAstray:
			return place{}, false, err
		case end > s.size.Load(): // truncated meanwhile
			return place{}, false, nil
		case pos == 0:
			return place{}, false, s.damagedAt(sc.pos, err)
		}
		if d := s.damage.Load(); d != nil && d.Position == sc.pos {
			return place{}, false, d
		}
		pos = 0 // the index led astray
	}
}

// largestTime is the largest timestamp of the segment, or where it has none the time at which
// the file was last written (LogSegment.largestTimestamp).
func (s *segment) largestTime() (int64, error) {
	top, err := s.maxStamp()
	if err != nil || top.time >= 0 {
		return top.time, err
	}
	info, err := s.log.m.fs.Stat(s.path(logSuffix))
	if err != nil {
		if notExist(err) && s.size.Load() == 0 {
			return s.created.Load(), nil
		}
		return noTime, err
	}
	return info.ModTime().UnixMilli(), nil
}

func (s *segment) maxStamp() (stamp, error) {
	if err := s.ensure(); err != nil {
		return stamp{}, err
	}
	s.imu.Lock()
	defer s.imu.Unlock()
	return s.max, nil
}

// rename marks the files as deleted. A file that is not there needs no mark; a .txnindex may be there
// without entries.
func (s *segment) rename() error {
	if s.gone.Load() {
		return nil
	}
	from := [4]string{}
	for i, suffix := range segmentSuffixes {
		from[i] = s.path(suffix)
	}
	s.gone.Store(true)
	for i, suffix := range segmentSuffixes {
		if err := s.log.m.fs.Rename(from[i], s.path(suffix)); err != nil && !notExist(err) {
			return err
		}
	}
	return nil
}

// remove deletes the files of a segment that was marked.
func (s *segment) remove() error {
	s.closeFiles()
	for _, suffix := range segmentSuffixes {
		if err := s.log.m.fs.Remove(s.path(suffix)); err != nil && !notExist(err) {
			return err
		}
	}
	return nil
}

var segmentSuffixes = [4]string{logSuffix, indexSuffix, timeSuffix, txnSuffix}

func notExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
