package log

import (
	"fmt"
	"slices"
	"time"
)

// retain deletes the segments that the topic's retention does not want any more, the oldest
// first, never at or past the high watermark (UnifiedLog.deleteOldSegments). A segment is as old
// as its largest record timestamp. It returns how many there were: none while the log is being cleaned,
// after which the cleaner does it.
func (l *Log) retain() (int, error) {
	if l.hurry.Load() > 0 || !l.shape.TryLock() {
		return 0, nil
	}
	defer l.shape.Unlock()
	o := l.options()
	now := l.m.nowMs()
	total := 0
	rules := []func() func(*segment, int64) (bool, error){
		func() func(*segment, int64) (bool, error) {
			return func(_ *segment, next int64) (bool, error) { return next >= 0 && next <= l.start.Load(), nil }
		},
	}
	if o.CleanupDelete && o.RetentionBytes >= 0 {
		rules = append(rules, func() func(*segment, int64) (bool, error) {
			over := l.Size() - o.RetentionBytes
			return func(s *segment, _ int64) (bool, error) {
				over -= s.size.Load()
				return over >= 0, nil
			}
		})
	}
	if o.CleanupDelete && o.RetentionMs >= 0 {
		rules = append(rules, func() func(*segment, int64) (bool, error) {
			return func(s *segment, _ int64) (bool, error) {
				largest, err := s.largestTime()
				if largest > now { // as UnifiedLog says it: else nobody knows why the log grows
					l.m.logger.Warn("a segment has records with a time that is to come: it stays for that long",
						"partition", l.label, "segment", s.base, "newest", time.UnixMilli(largest).UTC())
				}
				return now-largest > o.RetentionMs, err
			}
		})
	}
	for _, rule := range rules {
		n, err := l.deleteWhile(rule)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// deleteWhile deletes segments from the oldest on, as long as the rule agrees; it is asked with
// the base of the segment that follows, -1 for the active one. What goes along with the deleted
// records, the state of their producers, is made durable before they go.
func (l *Log) deleteWhile(rule func() func(s *segment, next int64) (bool, error)) (int, error) {
	for flushed := false; ; flushed = true {
		n, err := l.tryDelete(rule(), flushed)
		if err != nil || n >= 0 {
			return n, err
		}
		if err := l.flushAll(); err != nil {
			return 0, err
		}
	}
}

// tryDelete deletes what the rule agrees to and returns how many segments those were, or -1 if
// something has to be flushed first.
func (l *Log) tryDelete(rule func(s *segment, next int64) (bool, error), flushed bool) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writable() != nil {
		return 0, nil
	}
	list := l.segments()
	n := 0
	for n < len(list) {
		s, next, upper := list[n], int64(-1), l.end.Load()
		if n < len(list)-1 {
			next = list[n+1].base
			upper = next
		} else if s.size.Load() == 0 {
			break
		}
		if l.high.Load() < upper {
			break
		}
		ok, err := rule(s, next)
		if err != nil {
			return 0, l.readFailed("look at a segment's age", err)
		}
		if !ok {
			break
		}
		n++
	}
	if n == 0 {
		return 0, nil
	}
	if n == len(list) {
		if _, err := l.rollLocked(l.end.Load()); err != nil {
			return 0, err
		}
		list = l.segments()
	}
	if !flushed && (l.Flushed() < list[n].base || l.unsynced()) {
		return -1, nil
	}
	return n, l.deleteOldestLocked(list, n)
}

// deleteOldestLocked takes the first n segments out of the list.
func (l *Log) deleteOldestLocked(list []*segment, n int) error {
	start := list[n].base
	l.raiseStartLocked(start)
	drop := list[:n:n]
	l.setSegments(slices.Clone(list[n:]))
	for _, s := range drop { // the oldest first: a crash leaves no hole
		if err := s.rename(); err != nil {
			return l.writeFailed("delete a segment", err)
		}
	}
	l.flush.names.Store(true)
	l.m.metrics.deleted.Add(float64(n))
	l.m.logger.Info("deleted old segments", "partition", l.label, "segments", n, "start", start)
	l.m.removeLater(l, drop)
	bases := map[int64]bool{}
	for _, s := range drop {
		bases[s.base] = true
	}
	newest := int64(noOffset)
	if k := len(l.state.snapshot); k > 0 {
		newest = l.state.snapshot[k-1]
	}
	err := l.dropSnapshots(func(at int64) bool { return bases[at] && at != newest })
	return l.writeFailed("delete a producer snapshot", err)
}

// dropSnapshots removes snapshot files. The caller holds mu.
func (l *Log) dropSnapshots(which func(offset int64) bool) error {
	var keep []int64
	var first error
	for _, at := range l.state.snapshot {
		if !which(at) {
			keep = append(keep, at)
			continue
		}
		err := l.m.fs.Remove(l.path(offsetName(at, snapshotSuffix)))
		if err != nil && !notExist(err) && first == nil {
			first = err
		}
	}
	l.state.snapshot = keep
	return first
}

// expireProducers forgets producers that have been silent for too long.
func (l *Log) expireProducers(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.state.byID) > 0 {
		l.state.expire(now, l.m.opts.ProducerExpiry().Milliseconds())
	}
}

// removeLater removes the files of deleted segments after file.delete.delay.ms.
func (m *Manager) removeLater(l *Log, drop []*segment) {
	delay := time.Duration(l.options().FileDeleteDelayMs) * time.Millisecond
	m.later(delay, func() error {
		for _, s := range drop {
			if err := s.remove(); err != nil {
				return fmt.Errorf("remove a deleted segment of %s: %w", l, err)
			}
		}
		return nil
	})
}
