package log

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// smallSegment is up to where a segment is walked whole at a start, which costs less than to
// open its indexes; largeSegment is from where a recovery uses them to skip what was flushed.
const (
	smallSegment = 64 << 10
	largeSegment = 1 << 20
)

// loader opens one log.
type loader struct {
	l     *Log
	names map[string]bool // files of the directory
	gone  []int64         // bases of logs that were on their way out: deleted, or replaced by compaction
	list  []*segment
	point int64 // what lies below was flushed
	known bool  // the checkpoint has it

	clean bool // the last stop was clean

	producers int64 // the state of the producers is that at this offset, and follows the walk
	at        stride
}

// load opens the log (Kafka's LogLoader). After a clean stop the recovery point is the log's
// end, and only that is looked at. Otherwise everything behind the recovery point is read and
// its checksums compared; the log is cut at the first entry that is not whole. What is wrong
// before the recovery point was there once and is damage. Segments that are whole are kept, also
// behind one that is missing, empty or too short, which leaves a hole in the offsets.
func (l *Log) load(point int64, known bool, start, high int64, again bool) error {
	l.loading.Store(true)
	defer l.loading.Store(false)
	ld := &loader{l: l, known: known, point: point, clean: l.dir.clean && !again}
	ld.at.told = l.m.opts.Now()
	if err := ld.files(); err != nil {
		return err
	}
	if err := ld.overflows(); err != nil {
		return err
	}
	if err := ld.identity(); err != nil {
		return err
	}
	if len(ld.list) == 0 {
		if point > start {
			return &Damage{l.path(""), -1, fmt.Sprintf("no segments, but everything below offset %d was flushed", point)}
		}
		s := newSegment(l, start)
		if start > 0 { // the file's name has to say it
			if err := s.create(); err != nil {
				return l.writeFailed("create a segment", err)
			}
		}
		ld.list = []*segment{s}
	}
	l.setSegments(ld.list)
	epochsKnown, err := ld.epochs()
	if err != nil {
		return err
	}

	end, clean := int64(0), false
	if ld.clean {
		if end, clean, err = ld.quick(known); err != nil {
			return err
		}
	}
	if clean {
		ld.point = end
	} else {
		end, err = ld.recover()
		if p := l.m.progress; p != nil {
			p.bytes.Add(ld.at.unseen)
		}
		if err != nil {
			return err
		}
	}
	if end < point {
		s := l.active()
		return &Damage{s.path(logSuffix), s.size.Load(), fmt.Sprintf("the log ends at offset %d, but everything below %d was flushed", end, point)}
	}
	first := ld.list[0].base
	if end < start {
		// The log start is above what a crash has left.
		if err := l.restart(start, end); err != nil {
			return err
		}
		ld.list = l.segments()
		first, end = start, start
	}
	l.start.Store(max(start, first))
	l.end.Store(end)
	if err := ld.indexes(); err != nil {
		return err
	}
	if clean {
		if err := ld.loadProducers(end, true); err != nil {
			return err
		}
	}
	if !epochsKnown {
		if err := ld.rebuildEpochs(); err != nil {
			return err
		}
	}
	l.epochs.truncateEnd(end)
	l.epochs.truncateStart(l.start.Load())
	l.flush.point.Store(min(ld.point, end))
	l.high.Store(max(min(high, end), l.start.Load()))
	l.state.decided(l.high.Load())
	l.first.Store(l.state.firstUnstable())
	l.dir.pointsMoved.Store(true)
	for _, s := range l.segments() {
		if d := s.damage.Load(); d != nil {
			s.tellDamage(d)
		}
	}
	return ld.straySnapshots(end)
}

// quick finds the end of a log that was stopped cleanly: the entries of the last segment that
// has any follow one another up to the end of the file, and that is the recovery point. ok is false if they do
// not, or if it is not; then the log is recovered.
func (ld *loader) quick(known bool) (end int64, ok bool, err error) {
	last := len(ld.list) - 1
	for last > 0 && ld.list[last].size.Load() == 0 {
		last--
	}
	s := ld.list[last]
	size := s.size.Load()
	if size == 0 {
		return s.base, len(ld.list) == 1 && (!known || s.base == ld.point), nil
	}
	pos := int64(0)
	if size > smallSegment {
		if pos, err = s.position(1<<63 - 1); errors.Is(err, ErrDamaged) {
			return 0, false, nil // the file goes on behind what the indexes know
		} else if err != nil {
			return 0, false, err
		}
	}
	h, err := s.get(logData, 0)
	if err != nil {
		return 0, false, err
	}
	defer h.release()
	defer s.closeFiles()
	buf := lookupBuffers.Get().(*[lookupBytes]byte)
	defer lookupBuffers.Put(buf)
	sc := scanner{f: h.f, pos: pos, end: size, buf: buf[:]}
	end = s.base
	for err = sc.next(); err == nil; err = sc.next() {
		if sc.head.BaseOffset() < end {
			return 0, false, nil
		}
		end = sc.head.NextOffset()
	}
	if torn(err) {
		return 0, false, nil
	}
	if err != io.EOF {
		return 0, false, err
	}
	if rest := ld.list[last+1:]; len(rest) > 1 || len(rest) == 1 && end != rest[0].base {
		return 0, false, nil
	}
	// Should the mark be one that a crash brought back, these are from behind the end.
	for _, s := range ld.list[last:] {
		if err := s.truncateAborted(end); err != nil {
			return 0, false, ld.l.writeFailed("truncate an index", err)
		}
	}
	return end, !known || end == ld.point, nil
}

// recover checks what lies behind the recovery point, cuts what is not whole, and follows the
// producers and epochs. It returns the log's end.
func (ld *loader) recover() (int64, error) {
	l := ld.l
	// A snapshot at the first offset is all that there is of what was before it.
	trusted := max(ld.point, ld.list[0].base)
	if err := ld.loadProducers(trusted, false); err != nil {
		return 0, err
	}
	if err := l.dropSnapshots(func(at int64) bool { return at > trusted }); err != nil {
		return 0, l.writeFailed("remove a snapshot", err)
	}
	// What the file says of epochs behind the recovery point may be from before a truncation.
	l.epochs.truncateEnd(ld.point)
	end, started := ld.list[0].base, false
	// The segment that ends at the recovery point may not have had its indexes flushed.
	first := floor(ld.list, ld.point-1)
	for _, s := range ld.list[first:] {
		ld.at.total += s.size.Load()
	}
	for i := first; i < len(ld.list); i++ {
		s := ld.list[i]
		switch {
		case started && s.base < end && s.size.Load() == 0 && i+1 < len(ld.list): // it says nothing, also not where the log ends
			l.m.logger.Warn("removing a segment that is empty and begins within another", "file", s.path(logSuffix))
			rest := slices.Concat(ld.list[:i], ld.list[i+1:])
			if err := l.dropSegments(rest, ld.list[i:i+1]); err != nil {
				return 0, err
			}
			ld.list = rest
			i--
			continue
		case !started || s.base == end:
		case s.base < ld.point && s.base < end:
			return 0, &Damage{s.path(logSuffix), 0, fmt.Sprintf("the segment before ends at offset %d", end)}
		case s.base < end: // a crash let a newer one stand beside one that was given up
			for j := first; j <= i; j++ { // the end may also be that of a file that does not belong here
				if err := ld.misplaced(j); err != nil {
					return 0, err
				}
			}
			return end, errors.Join(ld.cut(i), ld.follow(end))
		default:
			if err := ld.misplaced(i); err != nil {
				return 0, err
			}
			if l.options().CleanupCompact {
				break
			}
			// A segment between them is gone or empty, or the one before was not flushed, and a
			// crash took its end. Nothing is torn: what follows is kept, as by Kafka.
			l.m.logger.Warn("records are missing between two segments", "partition", l.label, "from", end, "to", s.base)
		}
		started = true
		end = max(end, s.base)
		if i > 0 && s.base >= ld.producers && !slices.Contains(l.state.snapshot, s.base) {
			if err := ld.follow(s.base); err != nil {
				return 0, err
			}
			if err := l.snapshotLocked(s.base); err != nil {
				return 0, l.writeFailed("write a producer snapshot", err)
			}
		}
		if s.size.Load() == 0 {
			if err := s.truncateAborted(s.base); err != nil {
				return 0, l.writeFailed("truncate an index", err)
			}
			continue
		}
		l.m.recovering.Store(true)
		next, whole, err := ld.segment(s)
		if err != nil {
			return 0, err
		}
		end = next
		l.m.metrics.recovered.Inc()
		if !whole {
			if err := ld.cut(i + 1); err != nil {
				return 0, err
			}
			break
		}
	}
	return end, ld.follow(end)
}

// cut deletes the segments from one on: what lies behind a hole does not follow. Where nothing says how
// far the log was flushed, because the checkpoint is lost, the hole may be damage: then they are kept
// under names that nobody reads.
func (ld *loader) cut(from int) error {
	l := ld.l
	drop := ld.list[from:]
	ld.list = ld.list[:from:from]
	doing := "deleting"
	if !ld.known {
		doing = "setting aside, as *" + cutSuffix + ","
	}
	for _, s := range drop {
		l.m.logger.Warn(doing+" a segment behind a torn one", "file", s.path(logSuffix), "bytes", s.size.Load())
		l.m.metrics.cutBytes.Add(float64(s.size.Load()))
	}
	if ld.known {
		return l.dropSegments(ld.list, drop)
	}
	l.setSegments(ld.list)
	return l.setAside(drop)
}

// restart begins at an offset that is above all that there is: after a crash, which took records of
// which those below the offset had been deleted. Nothing tells that from a checkpoint that is wrong, so
// the segments are not deleted, as by Kafka, but kept under names that nobody reads.
func (l *Log) restart(start, end int64) error {
	l.m.logger.Warn("the log start is above the log end; starting anew, and keeping what is there as *"+cutSuffix, "topic", l.topic, "partition", l.partition,
		"dir", l.path(""), "start", start, "end", end)
	s := newSegment(l, start)
	if err := l.dropSnapshots(func(int64) bool { return true }); err != nil {
		return l.writeFailed("remove a snapshot", err)
	}
	if err := l.setAside(l.segments()); err != nil {
		return err
	}
	l.setSegments([]*segment{s})
	if err := s.create(); err != nil {
		return l.writeFailed("create a segment", err)
	}
	l.state.clear()
	l.epochs.clear()
	return nil
}

// setAside keeps segments under names that nobody reads.
func (l *Log) setAside(drop []*segment) error {
	for _, s := range slices.Backward(drop) { // the last one first, so that a crash leaves no hole
		if err := s.setAside(); err != nil {
			return l.writeFailed("set a segment aside", err)
		}
	}
	if err := l.m.fs.SyncDir(l.path("")); err != nil {
		return l.writeFailed("sync directory", unsynced(err))
	}
	return nil
}

// setAside renames the segment's log, if it has anything, and removes what was made of it.
func (s *segment) setAside() error {
	s.closeFiles()
	fsys := s.log.m.fs
	if s.size.Load() > 0 {
		if err := setAside(fsys, s.path(logSuffix)); err != nil {
			return err
		}
	}
	for _, suffix := range segmentSuffixes {
		if err := fsys.Remove(s.path(suffix)); err != nil && !notExist(err) {
			return err
		}
	}
	return nil
}

// segment recovers one segment: it makes its indexes, follows the producers and epochs, and
// cuts what is not whole. next is the offset after its last entry.
func (ld *loader) segment(s *segment) (next int64, whole bool, err error) {
	l := ld.l
	s.checking.Lock()
	defer s.checking.Unlock()
	h, err := s.get(logData, 0)
	if err != nil {
		return 0, false, err
	}
	defer h.release()
	defer s.closeFiles()
	s.damage.Store(nil) // what it has of that is found again
	size := s.size.Load()
	if size >= largeSegment {
		l.m.logger.Info("recovering a segment", "file", s.path(logSuffix), "bytes", size, "flushed", ld.point)
	}
	b, pos, err := ld.resume(s, h)
	if err != nil {
		return 0, false, err
	}
	sc := &scanner{f: h.f, pos: pos, end: size, buf: make([]byte, min(checkBytes, max(size, headerBytes)))}
	next = s.base
	if err := sc.next(); err == nil && pos > 0 {
		next = max(next, sc.head.BaseOffset())
	}
	sc.pos, sc.size = pos, 0
	ld.went(s, pos)
	if err := ld.follow(next); err != nil {
		return 0, false, err
	}
	// What the index of aborted transactions has below the recovery point is durable; the rest
	// is made again.
	if err := s.truncateAborted(max(next, ld.point)); err != nil {
		return 0, false, l.writeFailed("truncate an index", err)
	}
	before := entryAt{-1, -1}
	for {
		err = ld.entry(s, sc, next)
		if err != nil {
			break
		}
		b.add(sc.head, sc.pos, sc.size)
		if err := ld.apply(s, sc); torn(err) {
			return 0, false, &Damage{s.path(logSuffix), sc.pos, err.Error()}
		} else if err != nil {
			return 0, false, err
		}
		before = entryAt{sc.pos, next}
		ld.went(s, sc.size)
		next = sc.head.NextOffset()
	}
	whole = err == io.EOF
	if !whole {
		if !torn(err) {
			return 0, false, err
		}
		if next < ld.point {
			return 0, false, &Damage{s.path(logSuffix), sc.pos, err.Error()}
		}
		if sc.pos == 0 && sc.size > 0 && misplaced(s.base, math.MaxInt64, sc.head.BaseOffset(), sc.head.LastOffset()) {
			if err := sc.check(); err == nil {
				return 0, false, &Damage{s.path(logSuffix), 0, misplacedReason(sc.head.BaseOffset())}
			} else if !torn(err) {
				return 0, false, err
			}
		}
		if lies, err := ld.lies(sc, before, next); err != nil {
			return 0, false, err
		} else if lies {
			return 0, false, &Damage{s.path(logSuffix), before.pos, fmt.Sprintf("it ends at offset %d, and offset %d follows", next-1, sc.head.BaseOffset())}
		}
		l.m.logger.Warn("cutting a torn log", "file", s.path(logSuffix), "position", sc.pos, "bytes", size-sc.pos, "end", next, "reason", err)
		l.m.metrics.cutBytes.Add(float64(size - sc.pos))
		if err := h.f.Truncate(sc.pos); err != nil {
			return 0, false, l.writeFailed("cut a torn log", err)
		}
		s.size.Store(sc.pos)
	}
	if err := b.write(); err != nil {
		return 0, false, l.writeFailed("write an index", err)
	}
	s.checked.Store(true)
	l.flush.names.Store(true)
	return next, whole, nil
}
