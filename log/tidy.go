package log

import (
	"context"
	"math"
	"slices"
	"time"
)

// A log that nobody writes to any more is brought into the form of a clean stop while the broker
// runs, so that a stop of many partitions has little to do. Nothing is made durable by that.

const (
	tidyEvery = time.Second
	// tidyDoublings is how often the time for which a log has to rest is doubled, each time that
	// it was written to again after all, so that a slow trickle does not make it tidied each time.
	tidyDoublings = 6
)

// untidy is a log that was written to.
type untidy struct {
	l      *Log
	end    int64 // its end when it was last looked at
	rested int   // how often in a row it had not changed
}

// tidyLaterLocked lets the log be tidied once it rests. The caller holds the log's lock.
func (l *Log) tidyLaterLocked() {
	if l.untidy {
		return
	}
	l.untidy = true
	t := &l.m.tasks
	t.mu.Lock()
	first := len(t.untidy) == 0
	if first {
		t.tidyAt = time.Now().Add(tidyEvery)
	}
	t.untidy = append(t.untidy, untidy{l: l, end: -1})
	t.mu.Unlock()
	if first {
		l.m.kick()
	}
}

// tidyIdle tidies the logs that rest and says how long it is until the next look.
func (m *Manager) tidyIdle(ctx context.Context) time.Duration {
	t := &m.tasks
	t.mu.Lock()
	if wait := time.Until(t.tidyAt); len(t.untidy) == 0 || wait > 0 {
		defer t.mu.Unlock()
		if len(t.untidy) == 0 {
			return math.MaxInt64
		}
		return wait
	}
	list := t.untidy
	t.untidy = nil
	t.mu.Unlock()
	var busy []untidy
	for i, u := range list {
		if ctx.Err() != nil {
			busy = append(busy, list[i:]...)
			break
		}
		if end := u.l.end.Load(); end != u.end {
			u.end, u.rested = end, 0
		} else if u.rested++; u.rested >= 1<<min(u.l.tidied, tidyDoublings) {
			u.l.tidyUp()
			continue
		}
		busy = append(busy, u)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.untidy = append(t.untidy, busy...)
	if t.tidyAt = time.Now().Add(tidyEvery); len(t.untidy) == 0 {
		return math.MaxInt64
	}
	return tidyEvery
}

// tidyUp tidies the log.
func (l *Log) tidyUp() {
	l.tidied++
	l.mu.Lock()
	defer l.mu.Unlock()
	l.untidy = false
	if l.writable() != nil {
		return
	}
	if err := l.tidyLocked(); err != nil {
		l.backgroundFailed("tidy", err)
	}
}

// tidyLocked does it. The snapshot of the time before is not needed any more, if it is not one of
// those that stand between segments. The caller holds the log's lock.
func (l *Log) tidyLocked() error {
	if err := l.finishLocked(true); err != nil {
		return err
	}
	old, end := l.tidy, l.end.Load()
	l.tidy = end
	if old == 0 || old == end || slices.ContainsFunc(l.segments(), func(s *segment) bool { return s.base == old }) {
		return nil
	}
	return l.writeFailed("remove a snapshot", l.dropSnapshots(func(at int64) bool { return at == old }))
}
