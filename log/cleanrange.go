package log

import "math"

// cleanJob is a log that is to be cleaned, claimed by its shape (Kafka's LogToClean). from is its
// first dirty offset, to the base of the first segment that may not be cleaned.
type cleanJob struct {
	l        *Log
	from, to int64
	dirty    int64 // bytes from from to to
	total    int64 // bytes up to to
	delay    int64 // ms beyond max.compaction.lag.ms
}

func (j *cleanJob) ratio() float64 { return float64(j.dirty) / float64(max(j.total, 1)) }

// next claims the filthiest log (LogCleanerManager.grabFilthiestCompactedLog), nil if none is dirty
// enough; more is how many others are.
func (p *cleanPass) next() (job *cleanJob, more int) {
	c := p.c
	c.choosing.Lock()
	defer c.choosing.Unlock()
	now := c.m.nowMs()
	dirtiest := 0.0
	for _, l := range c.m.snapshot() {
		if p.ctx.Err() != nil {
			break
		}
		o := l.options()
		if !o.CleanupCompact || p.failed[l] || l.uncleanable.Load() || l.usable() != nil || l.hurry.Load() > 0 {
			continue
		}
		if !l.shape.TryLock() {
			continue
		}
		j, err := l.cleanable(o, now)
		if err != nil {
			l.cleanFailed(l.readFailed("look what can be compacted", err))
		}
		if err != nil || j == nil {
			l.shape.Unlock()
			continue
		}
		dirtiest = max(dirtiest, j.ratio())
		enough := j.ratio() > o.MinCleanableDirtyRatio || j.delay > 0 && j.dirty > 0
		if enough {
			more++
		}
		switch {
		case !enough || job != nil && j.ratio() <= job.ratio():
			l.shape.Unlock()
		default:
			if job != nil {
				job.l.shape.Unlock()
			}
			job = j
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastRun, c.dirtiest = now, dirtiest
	if job != nil {
		c.delay = job.delay
		more--
	}
	return job, more
}

// cleanable says what could be cleaned, nil if the log has nothing but its active segment. The
// caller holds shape.
func (l *Log) cleanable(o *Options, now int64) (*cleanJob, error) {
	list := l.segments()
	if len(list) < 2 {
		return nil, nil
	}
	from := l.firstDirty(o)
	closed := list[:len(list)-1]
	to := min(l.StableOffset(), list[len(list)-1].base)
	if lag := max(o.MinCompactionLagMs, 0); lag > 0 && from < list[len(list)-1].base {
		for _, s := range closed[floor(closed, from):] {
			largest, err := s.largestTime()
			if err != nil {
				return nil, err
			}
			if largest > now-lag {
				to = min(to, s.base)
				break
			}
		}
	}
	to = max(from, to)
	// Segments are cleaned whole: the one that has the offset is the first that is not.
	to = list[floor(list, to)].base
	j := &cleanJob{l: l, from: from, to: to}
	for i, s := range closed {
		next := list[i+1].base
		if s.base < from {
			j.total += s.size.Load()
		}
		if s.base < to && (next > min(from, to)) {
			j.dirty += s.size.Load()
		}
	}
	if j.total += j.dirty; j.total == 0 {
		return nil, nil
	}
	return j, l.delayed(j, o, now)
}

// firstDirty is the first offset that was not cleaned (LogCleanerManager.cleanableOffsets). A
// checkpoint outside of the log says nothing about it, and is put right.
func (l *Log) firstDirty(o *Options) int64 {
	start, end := l.start.Load(), l.end.Load()
	from, known := l.dir.cleanedUpTo(l)
	switch {
	case !known:
		return start
	case from < start && !(o.CleanupCompact && o.CleanupDelete):
		l.m.logger.Warn("the log start is above what was compacted up to", "partition", l.label, "start", start, "compacted", from)
	case from < start:
	case from > end:
		l.m.logger.Warn("the log ends below what was compacted up to; compacting all of it", "partition", l.label, "end", end, "compacted", from)
	default:
		return from
	}
	if err := l.dir.saveCleaned(l, start); err != nil {
		l.cleanFailed(l.cleanWrite("write "+cleanerFile, err))
	}
	return start
}

// delayed finds how long a dirty record has been waiting beyond max.compaction.lag.ms.
func (l *Log) delayed(j *cleanJob, o *Options, now int64) error {
	lag := max(o.MaxCompactionLagMs, 0)
	if lag >= now {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.segments()
	closed := list[:len(list)-1]
	if len(closed) == 0 || j.from >= list[len(list)-1].base {
		return nil
	}
	oldest := int64(math.MaxInt64)
	for _, s := range closed[floor(closed, j.from):] {
		if s.size.Load() == 0 {
			continue
		}
		if s.firstTime == timeUnread {
			if err := s.readFirstTime(); err != nil {
				return err
			}
		}
		if s.firstTime > 0 {
			oldest = min(oldest, s.firstTime)
		}
	}
	j.delay = max(now-lag-oldest, 0)
	return nil
}

// maxSegmentMs is segment.ms, cut so that records of a compacted topic can be cleaned within
// max.compaction.lag.ms (LogConfig.maxSegmentMs).
func (o *Options) maxSegmentMs() int64 {
	if o.CleanupCompact && o.MaxCompactionLagMs > 0 {
		return min(o.SegmentMs, o.MaxCompactionLagMs)
	}
	return o.SegmentMs
}
