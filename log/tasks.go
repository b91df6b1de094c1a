package log

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"ottla/log/vfs"
)

// task is what the manager's goroutine does from time to time.
type task int

const (
	taskRetention task = iota
	taskFlush
	taskPoints
	taskStarts
	taskWatermarks
	taskProducers
	taskFiles
	taskCount
)

// fileSweep is how often descriptors that nobody uses are looked for, and idleFiles how many
// of them may stay open.
const (
	fileSweep = 10 * time.Second
	idleFiles = 64
)

// tasks is the one goroutine of a manager. It belongs to the manager, which waits for it in
// Close; what it does never overlaps with itself.
type tasks struct {
	stop context.CancelFunc
	done chan struct{}
	wake chan struct{} // holds one

	doing sync.Mutex // held while delayed work is done; taken before mu

	mu      sync.Mutex
	asked   [taskCount]bool // guarded by mu: do it now
	flushes []*Log          // guarded by mu: logs with a closed segment that is not flushed
	delayed []delayed       // guarded by mu
	untidy  []untidy        // guarded by mu: logs that were written to
	tidyAt  time.Time       // guarded by mu: when to look through them, if there are any
}

// delayed is something to do once, after a time.
type delayed struct {
	at time.Time
	do func() error
}

// soon asks for a task to be done now.
func (m *Manager) soon(t task) {
	m.tasks.mu.Lock()
	m.tasks.asked[t] = true
	m.tasks.mu.Unlock()
	m.kick()
}

// later does something once. What is left at Close is not done: the names of deleted files say
// at the next start what they are.
func (m *Manager) later(after time.Duration, do func() error) {
	m.tasks.mu.Lock()
	m.tasks.delayed = append(m.tasks.delayed, delayed{time.Now().Add(after), do})
	m.tasks.mu.Unlock()
	m.kick()
}

// scheduleFlushLocked lets a closed segment be flushed soon, as Kafka does after each roll. The
// caller holds the log's lock.
func (l *Log) scheduleFlushLocked() {
	if l.due {
		return
	}
	l.due = true
	l.m.tasks.mu.Lock()
	l.m.tasks.flushes = append(l.m.tasks.flushes, l)
	l.m.tasks.mu.Unlock()
	l.m.kick()
}

func (m *Manager) kick() {
	select {
	case m.tasks.wake <- struct{}{}:
	default:
	}
}

func (m *Manager) startTasks() {
	ctx, stop := context.WithCancel(context.Background())
	m.tasks.stop, m.tasks.done, m.tasks.wake = stop, make(chan struct{}), make(chan struct{}, 1)
	go m.run(ctx)
}

func (m *Manager) stopTasks() {
	m.cleaner.close()
	m.tasks.stop()
	<-m.tasks.done
}

// run is the manager's goroutine.
func (m *Manager) run(ctx context.Context) {
	defer close(m.tasks.done)
	every := [taskCount]time.Duration{
		taskRetention: m.opts.RetentionCheck, taskFlush: m.opts.FlushScheduler,
		taskPoints: m.opts.FlushCheckpoint, taskStarts: m.opts.StartCheckpoint, taskWatermarks: m.opts.WatermarkCheckpoint,
		taskProducers: m.opts.ProducerExpiryCheck, taskFiles: fileSweep,
	}
	var next [taskCount]time.Time
	start := time.Now().Add(max(m.opts.InitialTaskDelay, 0))
	for t := range next {
		next[t] = start
		if task(t) == taskWatermarks || task(t) == taskFiles || task(t) == taskProducers {
			next[t] = time.Now().Add(max(every[t], 0)) // these do not wait in Kafka either
		}
	}
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		now := time.Now()
		sleep := time.Duration(math.MaxInt64)
		for t := range every {
			if every[t] <= 0 {
				if m.tasks.take(task(t)) {
					m.perform(ctx, task(t))
				}
				continue
			}
			if asked := m.tasks.take(task(t)); asked || !now.Before(next[t]) {
				m.perform(ctx, task(t))
				next[t] = time.Now().Add(every[t])
			}
			sleep = min(sleep, time.Until(next[t]))
		}
		m.flushDue(ctx)
		sleep = min(sleep, m.doDelayed(), m.tidyIdle(ctx))
		timer.Reset(max(sleep, 0))
		select {
		case <-timer.C:
		case <-m.tasks.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (t *tasks) take(of task) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	asked := t.asked[of]
	t.asked[of] = false
	return asked
}

// perform does one task for all logs. Errors take what they concern offline by themselves;
// here they are only told.
func (m *Manager) perform(ctx context.Context, t task) {
	switch t {
	case taskPoints, taskStarts, taskWatermarks:
		for _, d := range m.dirs {
			if d.failed() != nil {
				continue
			}
			var err error
			switch t {
			case taskPoints:
				err = d.savePoints()
			case taskStarts:
				err = d.saveStarts()
			default:
				err = d.saveWatermarks()
			}
			m.checkpointed(d, t, err)
		}
		return
	case taskFiles:
		m.writeIdleIndexes(ctx)
		m.files.sweep(idleFiles)
		return
	}
	now := m.nowMs()
	if t == taskFlush {
		m.flushOld(ctx, now)
		return
	}
	looks := segmentsLookedAt
	for _, l := range m.snapshot() {
		if ctx.Err() != nil {
			return
		}
		if l.usable() != nil {
			continue
		}
		var err error
		switch t {
		case taskRetention:
			if err = l.tellHoles(&looks); err == nil {
				_, err = l.retain()
			}
		case taskProducers:
			l.expireProducers(now)
		}
		if err != nil {
			l.backgroundFailed("retention", err)
		}
	}
}

// checkpointed says what became of a checkpoint. Without room the next one may fit.
func (m *Manager) checkpointed(d *dir, t task, err error) {
	before := d.full
	switch {
	case err == nil:
		if d.full &^= 1 << t; d.full == 0 && before != 0 {
			m.logger.Info("checkpoints are written again", "dir", d.path)
		}
	case errors.Is(err, ErrStorage):
	case !vfs.Full(err):
		d.fail(fmt.Errorf("write a checkpoint: %w", err))
	default:
		if d.full |= 1 << t; before == 0 {
			m.logger.Warn("cannot write checkpoints, for want of room on the disk", "dir", d.path, "err", err)
		}
	}
}

// writeIdleIndexes writes the index entries that are only in memory, so that partitions that
// nobody writes to cost none.
func (m *Manager) writeIdleIndexes(ctx context.Context) {
	for _, l := range m.snapshot() {
		if ctx.Err() != nil {
			return
		}
		if l.usable() != nil || !l.mu.TryLock() {
			continue
		}
		if s := l.active(); s.pending() && !l.closed {
			l.makeFailed("write an index", s.writeIndexes()) // without room they stay in memory
		}
		l.mu.Unlock()
	}
}

// flushDue flushes the logs that closed a segment, up to the one that is written now.
func (m *Manager) flushDue(ctx context.Context) {
	m.tasks.mu.Lock()
	logs := m.tasks.flushes
	m.tasks.flushes = nil
	m.tasks.mu.Unlock()
	for _, l := range logs {
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		l.due = false
		base := int64(0)
		if list := l.segments(); len(list) > 0 {
			base = list[len(list)-1].base
		}
		l.mu.Unlock()
		if l.usable() != nil {
			continue
		}
		if err := l.Flush(base); err != nil {
			l.backgroundFailed("flush of a closed segment", err)
		}
	}
}

// doDelayed does what is due and says how long it is until the next. What was due when it was called is done when it
// returns, by whomever.
func (m *Manager) doDelayed() time.Duration {
	m.tasks.doing.Lock()
	defer m.tasks.doing.Unlock()
	m.tasks.mu.Lock()
	now := time.Now()
	var due []delayed
	rest := m.tasks.delayed[:0]
	next := time.Duration(math.MaxInt64)
	for _, d := range m.tasks.delayed {
		if wait := d.at.Sub(now); wait > 0 {
			rest = append(rest, d)
			next = min(next, wait)
		} else {
			due = append(due, d)
		}
	}
	clear(m.tasks.delayed[len(rest):])
	m.tasks.delayed = rest
	m.tasks.mu.Unlock()
	for _, d := range due {
		if err := d.do(); err != nil {
			m.logger.Warn("delayed work failed", "err", err)
		}
	}
	return next
}
