package log

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"ottla/protocol/record"
)

// apply follows the epochs and producers through an entry.
func (ld *loader) apply(s *segment, sc *scanner) error {
	l := ld.l
	if sc.head.Magic() < 2 {
		return nil
	}
	if e := sc.head.LeaderEpoch(); e > l.epochs.last() {
		l.epochs.assign(e, sc.head.BaseOffset())
	}
	if sc.head.BaseOffset() < ld.producers {
		return nil
	}
	ld.producers = sc.head.NextOffset()
	return l.follow(s, sc, sc.head.BaseOffset() >= ld.point)
}

// follow takes an entry's producer into the state. With index, aborted transactions get their
// entries.
func (l *Log) follow(s *segment, sc *scanner, index bool) error {
	if !sc.head.HasProducerID() {
		return nil
	}
	if !sc.head.IsControl() {
		l.state.apply(sc.head)
		return nil
	}
	b, err := sc.entry()
	if err != nil {
		return err
	}
	m, ok, err := parseMarker(b)
	if err != nil {
		return fmt.Errorf("%w: %w", record.ErrCorrupt, err)
	}
	if !ok {
		return nil
	}
	ended, stable, ok := l.state.applyMarker(b, m)
	if ok && !m.Commit && index {
		return l.writeFailed("write an index", s.addAborted(Aborted{ended.id, ended.first, ended.last, stable}))
	}
	return nil
}

// loadProducers makes the state of the producers that of the newest snapshot at or below an
// offset, and follows it up to there. Without one it is read from all entries, after a clean stop
// too: the mark of that may be one that a crash brought back, with a log that was truncated since.
func (ld *loader) loadProducers(at int64, clean bool) error {
	l := ld.l
	offset, ok, err := l.loadSnapshot(at)
	if err != nil {
		return err
	}
	ld.producers = offset
	if !ok {
		ld.producers = ld.list[0].base
		l.state.clear()
	}
	if clean {
		return ld.follow(at)
	}
	return nil
}

// loadSnapshot loads the newest snapshot at or below an offset that can be read. One that
// cannot is removed, as by Kafka.
func (l *Log) loadSnapshot(at int64) (offset int64, ok bool, err error) {
	for _, s := range slices.Backward(slices.Clone(l.state.snapshot)) {
		if s > at {
			continue
		}
		name := l.path(offsetName(s, snapshotSuffix))
		data, err := readFile(l.m.fs, name)
		if notExist(err) {
			continue
		}
		var damage *Damage
		if err != nil && !errors.As(err, &damage) {
			return 0, false, err
		}
		list, err := parseSnapshot(data)
		if err != nil {
			l.m.logger.Warn("removing a producer snapshot that cannot be read", "file", name, "err", err)
			if err := l.dropSnapshots(func(o int64) bool { return o == s }); err != nil {
				return 0, false, l.writeFailed("remove a snapshot", err)
			}
			continue
		}
		l.state.load(list, l.m.nowMs(), l.m.opts.ProducerExpiry().Milliseconds())
		return s, true, nil
	}
	return 0, false, nil
}

// follow brings the state of the producers forward to an offset, by what the log has.
func (ld *loader) follow(to int64) error {
	if ld.producers >= to {
		return nil
	}
	from := ld.producers
	ld.producers = to
	return ld.l.walk(ld.list, from, to, func(s *segment, sc *scanner) error { return ld.l.follow(s, sc, false) })
}

// walk calls f for the entries of v2 that begin at or after from and before to, by headers
// alone. Bytes that are no entries are damage: they were flushed.
func (l *Log) walk(list []*segment, from, to int64, f func(*segment, *scanner) error) error {
	for i := floor(list, from); i < len(list) && list[i].base < to; i++ {
		if err := l.walkSegment(list[i], from, to, f); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) walkSegment(s *segment, from, to int64, f func(*segment, *scanner) error) error {
	if s.size.Load() == 0 {
		return nil
	}
	pos := int64(0)
	if from > s.base && s.checked.Load() {
		var err error
		if pos, err = s.position(from); err != nil {
			return err
		}
	}
	h, err := s.get(logData, 0)
	if err != nil {
		return err
	}
	defer h.release()
	sc := scanner{f: h.f, pos: pos, end: s.size.Load(), buf: make([]byte, walkBytes)}
	for err = sc.next(); err == nil; err = sc.next() {
		base := sc.head.BaseOffset()
		if base >= to {
			return nil
		}
		if base < from || sc.head.Magic() < 2 {
			continue
		}
		if err = f(s, &sc); err != nil {
			break
		}
	}
	if torn(err) {
		return &Damage{s.path(logSuffix), sc.pos, err.Error()}
	}
	if err != io.EOF {
		return err
	}
	return nil
}

// rebuildEpochs reads the leader epochs from all batches.
func (ld *loader) rebuildEpochs() error {
	var e epochs
	err := ld.l.walk(ld.l.segments(), 0, ld.l.end.Load(), func(_ *segment, sc *scanner) error {
		if epoch := sc.head.LeaderEpoch(); epoch > e.last() {
			e.assign(epoch, sc.head.BaseOffset())
		}
		return nil
	})
	ld.l.epochs.list = e.list
	return err
}

// straySnapshots removes snapshots above the end, and of those that belong to no segment all
// but the newest.
func (ld *loader) straySnapshots(end int64) error {
	l := ld.l
	bases := map[int64]bool{}
	for _, s := range l.segments() {
		bases[s.base] = true
	}
	newest := int64(noOffset)
	for _, at := range l.state.snapshot {
		if at <= end {
			newest = at
		}
	}
	err := l.dropSnapshots(func(at int64) bool { return at > end || at != newest && !bases[at] })
	return l.writeFailed("remove a snapshot", err)
}

// reloadProducers makes the state of the producers that at an offset to which the log was
// truncated. The caller holds mu.
func (l *Log) reloadProducers(at int64) error {
	if len(l.state.byID) == 0 {
		l.state.clear()
		l.first.Store(l.state.firstUnstable())
		return nil
	}
	offset, ok, err := l.loadSnapshot(at)
	if err != nil {
		return err
	}
	if !ok {
		offset = l.segments()[0].base
		l.state.clear()
	}
	err = l.walk(l.segments(), offset, at, func(s *segment, sc *scanner) error { return l.follow(s, sc, false) })
	l.state.decided(l.high.Load())
	l.first.Store(l.state.firstUnstable())
	return err
}
