package log

import (
	"errors"
	"io"

	"ottla/protocol/record"
)

// OffsetForTime finds the first record, from the log start on and below limit, whose timestamp
// is at or after ts (ms), also where timestamps go back and forth, and in what was written
// just now. epoch is the leader epoch of its batch, -1 if it has none.
func (l *Log) OffsetForTime(ts, limit int64) (offset, time int64, epoch int32, found bool, err error) {
	return l.retry(func(list []*segment) (int64, int64, int32, bool, error) {
		start := l.start.Load()
		for i, s := range list {
			if i < len(list)-1 && list[i+1].base <= start {
				continue
			}
			if s.base >= limit {
				break
			}
			if s.size.Load() == 0 {
				continue
			}
			// As Kafka, a segment without timestamps counts as of the time of its file.
			if largest, err := s.largestTime(); err != nil {
				return s.lookupFailed(err)
			} else if largest < ts {
				continue
			}
			offset, time, epoch, found, err := s.firstAtOrAfter(ts, start)
			if err != nil {
				return s.lookupFailed(err)
			}
			if found {
				return offset, time, epoch, offset < limit, nil
			}
		}
		return noOffset, noTime, noEpoch, false, nil
	})
}

// MaxTimestamp finds the record with the largest timestamp, the first of several. It is not
// found if that record is not below limit (KIP-734; as Kafka, which does not look for the
// largest below it).
func (l *Log) MaxTimestamp(limit int64) (offset, time int64, epoch int32, found bool, err error) {
	return l.retry(func(list []*segment) (int64, int64, int32, bool, error) {
		var in *segment
		top := stamp{noTime, noOffset}
		start := l.start.Load()
		for i, s := range list {
			if s.size.Load() == 0 || i < len(list)-1 && list[i+1].base <= start {
				continue
			}
			t, err := s.maxStamp()
			if err != nil {
				return s.lookupFailed(err)
			}
			if t.time > top.time {
				in, top = s, t
			}
		}
		if in == nil {
			return noOffset, noTime, noEpoch, false, nil
		}
		offset, time, epoch, found, err := in.firstAtOrAfter(top.time, start)
		if err != nil {
			return in.lookupFailed(err)
		}
		return offset, time, epoch, found && offset < limit, nil
	})
}

// SegmentInfo describes a stretch of the log.
type SegmentInfo struct {
	Base     int64 // offset
	Bytes    int64
	Modified int64 // ms, when its file was last written
}

// Segments describes the segments, the oldest first; the last one is that which is written.
func (l *Log) Segments() ([]SegmentInfo, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	var list []SegmentInfo
	for _, s := range l.segments() {
		at := SegmentInfo{Base: s.base, Bytes: s.size.Load(), Modified: s.created.Load()}
		info, err := l.m.fs.Stat(s.path(logSuffix))
		switch {
		case err == nil:
			at.Modified = info.ModTime().UnixMilli()
		case !notExist(err):
			return nil, l.readFailed("look at a segment", err)
		}
		list = append(list, at)
	}
	return list, nil
}

// errGone asks for another try with the segments as they are now.
var errGone = errors.New("segment is gone")

func (s *segment) lookupFailed(err error) (int64, int64, int32, bool, error) {
	if s.gone.Load() {
		err = errGone
	}
	return noOffset, noTime, noEpoch, false, err
}

func (l *Log) retry(look func([]*segment) (int64, int64, int32, bool, error)) (offset, time int64, epoch int32, found bool, err error) {
	for {
		if err := l.usable(); err != nil {
			return noOffset, noTime, noEpoch, false, err
		}
		list := l.segments()
		offset, time, epoch, found, err = look(list)
		if err != nil && (errors.Is(err, errGone) || l.replaced(list)) {
			continue
		}
		if err != nil {
			return noOffset, noTime, noEpoch, false, l.readFailed("look up a timestamp", err)
		}
		if !found {
			return noOffset, noTime, noEpoch, false, nil
		}
		return offset, time, epoch, true, nil
	}
}

// firstAtOrAfter finds the first record of the segment that has the offset and the timestamp
// or more. The time index leads to an entry before which no timestamp is as large.
func (s *segment) firstAtOrAfter(ts, start int64) (offset, time int64, epoch int32, found bool, err error) {
	if err := s.ensure(); err != nil {
		return 0, 0, 0, false, err
	}
	s.imu.Lock()
	times := s.times
	s.imu.Unlock()
	i, _, relative, err := s.search(timeIndex, times, ts)
	if err != nil {
		return 0, 0, 0, false, err
	}
	pos, end := int64(0), s.size.Load()
	near := start
	if i >= 0 {
		near = max(near, s.base+relative)
	}
	if near > s.base {
		p, ok, err := s.locate(near, end)
		if err != nil || !ok {
			return 0, 0, 0, false, err
		}
		pos = p.pos
	}
	h, err := s.get(logData, 0)
	if err != nil {
		return 0, 0, 0, false, err
	}
	defer h.release()
	sc := scanner{f: h.f, pos: pos, end: end, buf: make([]byte, lookupBytes)}
	for {
		if err := sc.next(); err != nil {
			if err == io.EOF || torn(err) && end > s.size.Load() {
				return 0, 0, 0, false, nil
			}
			if torn(err) {
				err = &Damage{s.path(logSuffix), sc.pos, err.Error()}
			}
			return 0, 0, 0, false, err
		}
		if sc.head.MaxTimestamp() < ts || sc.head.LastOffset() < start {
			continue
		}
		epoch := sc.head.LeaderEpoch()
		b, err := sc.entry()
		if err != nil {
			return 0, 0, 0, false, err
		}
		for r, err := range record.Records(b, s.log.options().MaxDecompressedMessageBytes) {
			if err != nil {
				return 0, 0, 0, false, &Damage{s.path(logSuffix), sc.pos, err.Error()}
			}
			if r.Offset >= start && r.Timestamp >= ts {
				return r.Offset, r.Timestamp, epoch, true, nil
			}
		}
	}
}
