package log

import (
	"sync"
	"sync/atomic"
	"time"
)

// progressBytes is after how many bytes a recovery looks at the clock.
const progressBytes = 1 << 20

// progress tells how far a start is that takes long: all logs together, and each log that is at it
// for long.
type progress struct {
	m     *Manager
	logs  int
	done  atomic.Int64 // logs
	bytes atomic.Int64 // of entries that were looked at

	mu   sync.Mutex
	told time.Time // guarded by mu
}

func newProgress(m *Manager, logs int) *progress {
	return &progress{m: m, logs: logs, told: m.opts.Now()}
}

func (p *progress) logDone() {
	p.done.Add(1)
	p.tell(p.m.opts.Now())
}

func (p *progress) tell(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.told) >= progressEvery {
		p.told = now
		p.m.logger.Info("loading logs", "loaded", p.done.Load(), "of", p.logs, "checked", p.bytes.Load())
	}
}

// stride is how far the recovery of one log is.
type stride struct {
	bytes, total int64 // of entries that were looked at, and in the segments that have to be
	unseen       int64 // since the clock was looked at
	told         time.Time
}

// went takes in that the recovery has looked at so many more bytes.
func (ld *loader) went(s *segment, bytes int64) {
	ld.at.bytes += bytes
	if ld.at.unseen += bytes; ld.at.unseen < progressBytes {
		return
	}
	m := ld.l.m
	now := m.opts.Now()
	if m.progress != nil {
		m.progress.bytes.Add(ld.at.unseen)
		m.progress.tell(now)
	}
	ld.at.unseen = 0
	if now.Sub(ld.at.told) >= progressEvery {
		ld.at.told = now
		m.logger.Info("recovering a log", "partition", ld.l.label, "checked", ld.at.bytes, "of", ld.at.total, "file", s.path(logSuffix))
	}
}
