package log

import (
	"fmt"
	"io"
	"slices"
)

// TruncateTo takes away everything from the entry on that has the offset (a follower that
// diverged, KIP-101). Nothing happens if the log ends before it. The log's end is then the
// offset after the last entry that is left: below the one asked for if that lay within an entry
// or in a hole, where Kafka lets the log end in the hole. The recovery point on disk is taken
// back first: what is written here next is not flushed.
func (l *Log) TruncateTo(offset int64) error {
	defer l.takeShape()()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if end := l.end.Load(); offset >= end {
		l.epochs.truncateEnd(end)
		return nil
	}
	defer l.flush.hold()()
	list := l.segments()
	if offset < list[0].base {
		return l.truncateFullyLocked(max(offset, 0))
	}
	keep := floor(list, offset) + 1
	end, err := list[keep-1].endBefore(offset)
	if err != nil {
		return l.readFailed("truncate", err)
	}
	if err := l.cutPoint(end); err != nil {
		return err
	}
	if err := l.dir.lowerCleaned(l, list[keep-1].base); err != nil {
		return err
	}
	if l.start.Load() > end {
		if err := l.setStart(end); err != nil {
			return err
		}
	}
	if err := l.dropSnapshots(func(at int64) bool { return at > end }); err != nil {
		return l.writeFailed("remove producer snapshots", err)
	}
	if err := l.dropSegments(list[:keep:keep], list[keep:]); err != nil {
		return err
	}
	if err := list[keep-1].truncate(offset); err != nil {
		return l.fail(l.writeFailed("truncate", err))
	}
	l.epochs.truncateEnd(end)
	l.end.Store(end)
	l.high.Store(min(l.high.Load(), end))
	l.dir.watermarksMoved.Store(true)
	if err := l.reloadProducers(end); err != nil {
		return l.fail(l.readFailed("rebuild the producers' state", err))
	}
	l.wake.all()
	return nil
}

// TruncateFully takes everything away; the log begins anew at an offset.
func (l *Log) TruncateFully(start int64) error {
	defer l.takeShape()()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if start < 0 {
		return fmt.Errorf("%s: truncate to %d: %w", l, start, ErrOffsetOutOfRange)
	}
	defer l.flush.hold()()
	return l.truncateFullyLocked(start)
}

func (l *Log) truncateFullyLocked(start int64) error {
	if err := l.cutPoint(0); err != nil {
		return err
	}
	if err := l.dir.lowerCleaned(l, start); err != nil {
		return err
	}
	if err := l.setStart(start); err != nil {
		return err
	}
	list := l.segments()
	l.leftovers = true
	s := newSegment(l, start)
	if err := l.dropSnapshots(func(int64) bool { return true }); err != nil {
		return l.writeFailed("remove producer snapshots", err)
	}
	if err := l.dropSegments([]*segment{s}, list); err != nil {
		return err
	}
	err := s.create()
	if err == nil {
		err = unsynced(l.m.fs.SyncDir(l.path(""))) // the file's name says where the log begins
	}
	if err != nil {
		return l.fail(l.writeFailed("create a segment", err))
	}
	l.epochs.clear()
	l.end.Store(start)
	l.high.Store(start)
	l.dir.watermarksMoved.Store(true)
	l.state.clear()
	l.first.Store(l.state.firstUnstable())
	l.wake.all()
	return nil
}

// cutPoint takes the recovery point back to an offset, on disk too.
func (l *Log) cutPoint(offset int64) error {
	if l.flush.point.Load() <= offset && l.dir.savedPoint(l) <= offset {
		return nil
	}
	l.flush.cut(offset)
	l.dir.pointsMoved.Store(true)
	if err := l.dir.savePoints(); err != nil {
		return l.writeFailed("write "+recoveryFile, err)
	}
	return nil
}

// setStart makes an offset the log start, on disk too: one that is above the log's end would
// let the next start give up the whole log.
func (l *Log) setStart(offset int64) error {
	l.start.Store(offset)
	l.dir.startsMoved.Store(true)
	if err := l.dir.saveStarts(); err != nil {
		return l.writeFailed("write "+startFile, err)
	}
	return nil
}

// dropSegments makes keep the list and marks the other segments' files as deleted, the last
// one first, so that a crash leaves no hole. All names are durable when it returns: nothing
// that is written later can meet the files, or snapshots that were removed before, again.
func (l *Log) dropSegments(keep, drop []*segment) error {
	l.setSegments(keep)
	for _, s := range slices.Backward(drop) {
		if err := s.rename(); err != nil {
			return l.writeFailed("delete a segment", err)
		}
	}
	if err := l.m.fs.SyncDir(l.path("")); err != nil {
		return l.writeFailed("sync directory", unsynced(err))
	}
	if len(drop) > 0 {
		l.m.removeLater(l, drop)
	}
	return nil
}

// truncate cuts the segment before the entry that has the offset. The caller holds the log's
// lock; the segment is the last one then.
func (s *segment) truncate(offset int64) error {
	if err := s.ensure(); err != nil {
		return err
	}
	size := s.size.Load()
	p, ok, err := s.locate(offset, size)
	if err != nil {
		return err
	}
	if !ok {
		p.pos = size
	}
	if err := s.writeIndexes(); err != nil {
		return err
	}
	s.imu.Lock()
	s.newest = place{}
	s.imu.Unlock()
	s.size.Store(p.pos)
	h, err := s.get(logData, 0)
	if err != nil {
		return err
	}
	if err = h.f.Truncate(p.pos); err == nil {
		err = unsynced(h.f.Sync()) // or a crash could bring back what is behind it beside a newer segment
	}
	h.release()
	if err != nil {
		return err
	}
	if err = s.truncateIndexes(offset); err != nil {
		return err
	}
	s.sinceIndex = 0
	if p.pos == 0 {
		s.created.Store(s.log.m.nowMs())
		s.firstTime = noTime
	}
	return s.truncateAborted(offset)
}

// truncateIndexes takes out entries for offsets from the given one on, and finds the largest
// timestamp of what is left: the last time entry's, or that of a later batch.
func (s *segment) truncateIndexes(offset int64) error {
	relative := offset - s.base
	i, _, _, err := s.search(offsetIndex, s.offsets, relative-1)
	if err != nil {
		return err
	}
	keep := (i + 1) * offsetEntryBytes
	times, err := s.readIndex(timeIndex)
	if err != nil && !notExist(err) {
		return err
	}
	n := int64(0)
	for n < s.times.disk/timeEntryBytes && timeIndex.entryRest(times[n*timeEntryBytes:]) < relative {
		n++
	}
	for k, size := range map[fileKind]int64{offsetIndex: keep, timeIndex: n * timeEntryBytes} {
		if s.entriesOf(k).disk == size {
			continue
		}
		h, err := s.get(k, 0)
		if err != nil {
			return err
		}
		err = h.f.Truncate(size)
		h.release()
		if err != nil {
			return err
		}
	}
	s.imu.Lock()
	s.offsets, s.times = entries{disk: keep}, entries{disk: n * timeEntryBytes}
	s.lastRel, s.lastKey, s.max = -1, noTime, stamp{noTime, s.base}
	if n > 0 {
		e := times[(n-1)*timeEntryBytes:]
		s.lastKey = timeIndex.entryKey(e)
		s.max = stamp{s.lastKey, s.base + timeIndex.entryRest(e)}
	}
	offsets, from := s.offsets, s.max.offset
	s.imu.Unlock()
	if keep > 0 {
		_, key, _, err := s.search(offsetIndex, offsets, relative-1)
		if err != nil {
			return err
		}
		s.lastRel = key
	}
	top, err := s.maxFrom(from)
	if err != nil {
		return err
	}
	s.imu.Lock()
	defer s.imu.Unlock()
	if top.time > s.max.time {
		s.max = top
	}
	return nil
}

// maxFrom finds the largest timestamp of the entries from an offset on.
func (s *segment) maxFrom(from int64) (stamp, error) {
	top := stamp{noTime, s.base}
	err := s.scanFrom(from, func(sc *scanner) bool {
		if t := sc.head.MaxTimestamp(); t > top.time {
			top = stamp{t, sc.head.LastOffset()}
		}
		return true
	})
	return top, err
}

// endBefore is the offset after the last entry that ends below the given one.
func (s *segment) endBefore(offset int64) (int64, error) {
	pos, err := s.position(offset - 1)
	if err != nil {
		return 0, err
	}
	for {
		end, astray := s.base, false
		err := s.scanAt(pos, func(sc *scanner) bool {
			if sc.head.LastOffset() >= offset {
				astray = sc.pos == pos && pos > 0
				return false
			}
			end = sc.head.NextOffset()
			return true
		})
		if !astray {
			return end, err
		}
		pos = 0
	}
}

// scanFrom calls f for the entries from one on that is not behind the offset, until it has
// enough.
func (s *segment) scanFrom(offset int64, f func(*scanner) bool) error {
	pos, size := int64(0), s.size.Load()
	if offset > s.base {
		p, ok, err := s.locate(offset, size)
		if err != nil || !ok {
			return err
		}
		pos = p.pos
	}
	return s.scanAt(pos, f)
}

func (s *segment) scanAt(pos int64, f func(*scanner) bool) error {
	h, err := s.get(logData, 0)
	if err != nil {
		return err
	}
	defer h.release()
	sc := scanner{f: h.f, pos: pos, end: s.size.Load(), buf: make([]byte, lookupBytes)}
	for err = sc.next(); err == nil; err = sc.next() {
		if !f(&sc) {
			return nil
		}
	}
	if torn(err) {
		return s.damagedAt(sc.pos, err)
	}
	if err != io.EOF {
		return err
	}
	return nil
}

// DeleteRecords moves the log start up to an offset; -1 is the high watermark. What lies below
// is not read any more, and whole segments of it are deleted by retention. It returns the log
// start, which also a lower offset leaves as it is. ErrOffsetOutOfRange above the high
// watermark.
func (l *Log) DeleteRecords(to int64) (low int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return noOffset, err
	}
	high := l.high.Load()
	if to == -1 {
		to = high
	}
	if to < 0 || to > high {
		return noOffset, fmt.Errorf("%s: delete records before %d, high watermark %d: %w", l, to, high, ErrOffsetOutOfRange)
	}
	l.raiseStartLocked(to)
	l.m.soon(taskStarts)
	return l.start.Load(), nil
}

// raiseStartLocked moves the log start up. The caller holds mu.
func (l *Log) raiseStartLocked(to int64) {
	if to <= l.start.Load() {
		return
	}
	l.start.Store(to)
	l.dir.startsMoved.Store(true)
	l.epochs.truncateStart(to)
	l.state.decided(to)
	l.first.Store(l.state.firstUnstable())
	l.wake.all()
}
