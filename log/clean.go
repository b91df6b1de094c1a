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

// CleanerOptions are the settings of compaction that concern all logs (log.cleaner.*).
type CleanerOptions struct {
	Threads        int     // logs that are cleaned at the same time; 0: none is
	DedupeBytes    int64   // memory for keys, of all threads together
	LoadFactor     float64 // how full it may get, 0 to 1
	BufferBytes    int     // read and write buffers of all threads together
	BytesPerSecond float64 // the most that all threads read and write; 0: any
	Backoff        time.Duration
}

// cleaner compacts logs (Kafka's LogCleaner): one goroutine that looks for dirty logs after each
// backoff, and as long as it finds some up to Threads of them. Its memory is there while a log is
// cleaned.
type cleaner struct {
	m        *Manager
	stop     context.CancelFunc
	done     chan struct{}
	throttle throttle

	choosing sync.Mutex // held while the next log is chosen

	mu       sync.Mutex
	lastRun  int64        // guarded by mu: when logs were looked through, ms
	dirtiest float64      // guarded by mu: the largest share of dirty bytes that was found
	delay    int64        // guarded by mu: how long the log that was chosen last has waited beyond max.compaction.lag.ms
	last     []cleanStats // guarded by mu: each thread's last round
	tooSmall bool         // guarded by mu: that the memory is too small has been told
}

// errStopped ends a round because somebody needs the log, or the broker stops.
var errStopped = errors.New("cleaning was stopped")

func newCleaner(m *Manager) *cleaner {
	if m.opts.Cleaner == nil {
		return nil
	}
	return &cleaner{m: m, lastRun: m.nowMs()}
}

func (c *cleaner) start() {
	if c == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.done = stop, make(chan struct{})
	go c.run(ctx)
}

func (c *cleaner) close() {
	if c == nil || c.stop == nil {
		return
	}
	c.stop()
	<-c.done
}

// run is the cleaner's goroutine.
func (c *cleaner) run(ctx context.Context) {
	defer close(c.done)
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	for {
		o, changed := c.m.opts.Cleaner()
		timer.Reset(max(o.Backoff, time.Millisecond))
		select {
		case <-ctx.Done():
			return
		case <-changed:
			continue
		case <-timer.C:
		}
		c.pass(ctx, o)
	}
}

// pass cleans until no log is dirty enough, and deletes what retention does not want of compacted
// logs.
func (c *cleaner) pass(ctx context.Context, o CleanerOptions) {
	if o.Threads > 0 && c.roomy(&o) {
		p := &cleanPass{c: c, ctx: ctx, o: o, failed: map[*Log]bool{}}
		if job, more := p.next(); job != nil {
			var wg sync.WaitGroup
			for i := 1; i < o.Threads && i <= more; i++ {
				wg.Go(func() {
					job, _ := p.next()
					p.work(i, job)
				})
			}
			p.work(0, job)
			wg.Wait()
		}
	}
	for _, l := range c.m.snapshot() {
		if ctx.Err() != nil {
			return
		}
		if l.options().CleanupCompact && l.usable() == nil {
			if _, err := l.retain(); err != nil {
				l.backgroundFailed("retention", err)
			}
		}
	}
}

// roomy says whether a thread's memory has room for keys at all; else no log could be cleaned.
func (c *cleaner) roomy(o *CleanerOptions) bool {
	ok := float64(o.keyBytes()/slotBytes)*o.LoadFactor > 1
	c.mu.Lock()
	told := c.tooSmall
	c.tooSmall = !ok
	c.mu.Unlock()
	if !ok && !told {
		c.m.logger.Error("logs are not compacted: the memory for keys is too small; raise log.cleaner.dedupe.buffer.size or lower log.cleaner.threads",
			"bytes", o.DedupeBytes, "threads", o.Threads)
	}
	return ok
}

// keyBytes is one thread's share of the memory for keys; Kafka allows no more than 2 GiB.
func (o *CleanerOptions) keyBytes() int64 {
	return min(o.DedupeBytes/int64(max(o.Threads, 1)), 1<<31-1)
}

// cleanPass is one stretch of work between two backoffs.
type cleanPass struct {
	c   *cleaner
	ctx context.Context
	o   CleanerOptions

	failed map[*Log]bool // guarded by cleaner.choosing: not to be tried again in this pass
}

// work cleans a job and those that follow, on one goroutine.
func (p *cleanPass) work(thread int, job *cleanJob) {
	var buffers cleanBuffers
	for job != nil && p.ctx.Err() == nil {
		moved, stats := p.clean(job, &buffers)
		p.c.record(thread, stats)
		p.c.choosing.Lock()
		p.failed[job.l] = !moved
		p.c.choosing.Unlock()
		job, _ = p.next()
	}
	if job != nil {
		job.l.shape.Unlock()
	}
}

// clean does one round on a log and gives it up. moved: the log has fewer dirty bytes now.
func (p *cleanPass) clean(job *cleanJob, buffers *cleanBuffers) (moved bool, stats cleanStats) {
	l := job.l
	defer l.shape.Unlock()
	r := &cleanRound{pass: p, job: job, l: l, cleanBuffers: buffers}
	next, err := r.run()
	switch {
	case err == nil:
		err = l.dir.saveCleaned(l, next)
		if err != nil {
			l.cleanFailed(l.cleanWrite("write "+cleanerFile, err))
		}
		return err == nil && next > job.from, r.stats
	case !errors.Is(err, errStopped):
		l.cleanFailed(err)
	}
	return false, r.stats
}

// cleanFailed says what a failed round means. Without room on the disk, or a descriptor, the next round
// may find better luck; a disk that is broken takes the directory offline; what is wrong with the log's
// content stays wrong, and the log is not cleaned any more until the next start, as by Kafka. Nothing of
// it was changed.
func (l *Log) cleanFailed(err error) {
	switch {
	case err == nil, l.usable() != nil:
	case vfs.Broken(err):
		l.readFailed("compact", err)
	case noDescriptor(err):
		l.tell("cannot compact a log", "compact", err)
	case vfs.Full(err):
		if l.newTrouble("clean"+err.Error(), l.m.opts.Now()) {
			l.m.logger.Warn("cannot compact a log, for want of room on the disk", "topic", l.topic, "partition", l.partition, "dir", l.dir.path, "err", err)
		}
	default:
		if !l.uncleanable.Swap(true) {
			l.m.logger.Error("a log is not compacted any more, as it cannot be read", "topic", l.topic, "partition", l.partition, "dir", l.dir.path, "err", err)
		}
	}
}

// record takes in what a thread's last round did.
func (c *cleaner) record(thread int, s cleanStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.last) <= thread {
		c.last = append(c.last, cleanStats{})
	}
	c.last[thread] = s
}

// cleanStats are the figures of one round on one log.
type cleanStats struct {
	read, written       int64 // bytes of the segments that were cleaned
	readRecs, wroteRecs int64
	invalid             int64 // records without a key
	took, mapping       time.Duration
	utilization         float64
}

func (s *cleanStats) tell(l *Log, from, to int64) {
	const mb = 1 << 20
	l.m.logger.Info("compacted a log", "partition", l.label, "from", from, "to", to,
		"mb", fmt.Sprintf("%.1f", float64(s.read)/mb), "left", fmt.Sprintf("%.1f", float64(s.written)/mb),
		"records", s.readRecs, "left_records", s.wroteRecs, "ms", s.took.Milliseconds(), "map_ms", s.mapping.Milliseconds(),
		"mb_per_second", fmt.Sprintf("%.1f", float64(s.read)/mb/max(s.took.Seconds(), 1e-6)))
	if s.invalid > 0 {
		l.m.logger.Warn("dropped records without a key from a compacted log", "partition", l.label, "records", s.invalid)
	}
}

// takeShape waits until nobody else replaces or removes closed segments of the log; a cleaning that
// is under way is stopped for it (Kafka's abortAndPauseCleaning). The release ends the claim.
func (l *Log) takeShape() (release func()) {
	l.hurry.Add(1)
	l.shape.Lock()
	l.hurry.Add(-1)
	return l.shape.Unlock
}

// throttle bounds what all threads read and write (log.cleaner.io.max.bytes.per.second).
type throttle struct {
	mu   sync.Mutex
	debt float64   // guarded by mu: bytes that passed ahead of their time
	at   time.Time // guarded by mu: when debt was right
}

// throttleSlice is how long a thread sleeps before it looks whether it is to stop, or to be quicker.
const throttleSlice = 20 * time.Millisecond

// take takes in that so many bytes pass, and waits until the rate (bytes a second, 0: any) allows more.
func (t *throttle) take(n int64, rate func() float64, stopped func() error) error {
	for r := rate(); r > 0 && r < math.MaxInt64; r = rate() {
		t.mu.Lock()
		now := time.Now()
		t.debt = max(t.debt-now.Sub(t.at).Seconds()*r, 0) + float64(n)
		t.at, n = now, 0
		wait := time.Duration(min(t.debt/r, throttleSlice.Seconds()) * float64(time.Second))
		t.mu.Unlock()
		if wait < time.Millisecond {
			return nil
		}
		if err := stopped(); err != nil {
			return err
		}
		time.Sleep(wait)
	}
	return nil
}

// rate is the most bytes a second that may pass now.
func (p *cleanPass) rate() float64 {
	if p.c.m.opts.Cleaner == nil {
		return p.o.BytesPerSecond
	}
	o, _ := p.c.m.opts.Cleaner()
	return o.BytesPerSecond
}
