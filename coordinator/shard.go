package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// shard is one led partition. Its fields below mu are guarded by it; those below "goroutine"
// belong to the one goroutine that runs (running), and pass through mu from one to the next.
type shard[M Machine] struct {
	r      *Runtime[M]
	id     int32
	epoch  int32
	ctx    context.Context // ends when the shard is lost
	cancel context.CancelFunc
	since  time.Time       // led since
	before <-chan struct{} // closed when the shard that had this id before is quiet; nil: none had
	gone   chan struct{}   // closed when this one is lost and quiet
	signal chan struct{}   // holds one token: the queue has something

	mu      sync.Mutex
	queue   []message[M]
	loading bool
	running bool // a goroutine runs, or is about to
	lost    bool
	failing bool // the last attempt to load failed

	replayed atomic.Int64 // records that the load at hand has read

	// goroutine
	m         M
	ready     bool         // m holds all of the log
	todo      []message[M] // taken from the queue, not yet run
	taken     []message[M] // todo as it was taken: the queue to come, once all of it has run
	batch     batch        // collected since the last append
	settled   *flight      // one whose memory the next may have; nil: none
	flight    *flight      // appended, not yet known to be committed; nil if there is none
	barrier   bool         // an exclusive step's records are not committed yet: nothing else may run
	nextSweep time.Duration
	stuck     int           // records of the last write that failed; 0: all is well
	stuckAt   time.Duration // when it did
}

type message[M Machine] struct {
	how  How
	step Step[M]
	to   *Ticket
}

func (s *shard[M]) send(msg message[M]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lost:
		return ErrNotCoordinator
	case s.loading && msg.how&AwaitsLoad == 0:
		return ErrLoading
	case len(s.queue) >= s.r.o.MaxQueued:
		s.r.o.Metrics.Refused.Inc()
		return ErrQueueFull
	}
	s.queue = append(s.queue, msg)
	if !s.running {
		s.running = true
		s.r.wg.Add(1)
		go s.run()
		return nil
	}
	select {
	case s.signal <- struct{}{}:
	default:
	}
	return nil
}

// lose stops the shard. Without a goroutine the machine is idle: nobody waits for it.
func (s *shard[M]) lose() {
	s.mu.Lock()
	s.lost = true
	queue, running := s.queue, s.running
	s.queue = nil
	s.mu.Unlock()
	s.cancel()
	refuse(queue, ErrNotCoordinator)
	if !running {
		s.r.trouble.over(s.id)
		close(s.gone)
	}
}

func refuse[M Machine](msgs []message[M], err error) {
	for _, m := range msgs {
		release(Answer{To: m.to, Err: err})
	}
}

// release sends an answer. A ticket takes one; whoever asked may be gone.
func release(answers ...Answer) {
	for _, a := range answers {
		if a.To == nil {
			continue
		}
		select {
		case a.To.result <- result{a.Value, a.Err}:
		default:
		}
	}
}

// run does what there is to do and returns when the shard is lost or has come to rest.
func (s *shard[M]) run() {
	defer s.r.wg.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for s.ctx.Err() == nil {
		if !s.ready && !s.load() {
			break
		}
		more := s.work()
		s.flush()
		if more || !s.ready || len(s.todo) > 0 && s.flight == nil {
			continue
		}
		if s.rest() {
			return
		}
		var done chan error
		if s.flight != nil {
			done = s.flight.done
		}
		timer.Reset(s.untilWake())
		select {
		case <-s.ctx.Done():
		case <-s.signal:
		case <-timer.C:
		case err := <-done:
			s.settle(err)
		}
	}
	s.end()
}

// take moves what was sent to the goroutine's own list, once that is empty: what is held up
// there counts against Options.MaxQueued.
func (s *shard[M]) take() {
	s.mu.Lock()
	s.todo, s.queue = s.queue, s.taken[:0]
	s.mu.Unlock()
	s.taken = s.todo
	if cap(s.taken) > keptRequests { // what a burst took is not kept
		s.taken = nil
	}
}

// keptRequests is how many requests, and records, a shard keeps memory for from one step to the next.
const keptRequests = 32

// stepsPerFlush is how many steps run before what they want written is written.
const stepsPerFlush = 1000

// work runs the steps that may run now, then what is due by time. Requests come first: who
// spoke in time must not be thrown out because the shard was busy. more tells that it stopped
// only to let records be written.
func (s *shard[M]) work() (more bool) {
	for n := 0; !s.barrier; n++ {
		if len(s.todo) == 0 {
			s.take()
		}
		if len(s.todo) == 0 {
			s.todo = nil
			break
		}
		msg := s.todo[0]
		exclusive := msg.how&Exclusive != 0
		if exclusive && !s.quiet() {
			return false
		}
		if n == stepsPerFlush {
			return true
		}
		s.todo[0] = message[M]{}
		s.todo = s.todo[1:]
		s.absorb(msg.step(s.m, s.r.now(), msg.to))
		s.barrier = exclusive && !s.quiet()
	}
	if s.barrier {
		return false
	}
	now := s.r.now()
	for i := 0; s.m.Wake() <= now.Mono && i < stepsPerFlush; i++ {
		s.absorb(s.m.Tick(now))
	}
	if s.nextSweep <= now.Mono && s.quiet() {
		s.nextSweep = now.Mono + s.r.o.SweepEvery()
		if !s.m.Idle() {
			s.absorb(s.m.Sweep(now))
			s.barrier = !s.quiet()
		}
	}
	return false
}

// quiet tells that every record that was asked for is committed.
func (s *shard[M]) quiet() bool { return s.flight == nil && len(s.batch.entries) == 0 }

func (s *shard[M]) outside(all []any) {
	for _, what := range all {
		s.r.o.Outside(s.ctx, s.id, s.epoch, what)
	}
}

// untilWake is how long the goroutine may sleep.
func (s *shard[M]) untilWake() time.Duration {
	at := s.m.Wake()
	if !s.m.Idle() && s.quiet() { // else the commit wakes us, and the sweep comes after it
		at = min(at, s.nextSweep)
	}
	if s.barrier || len(s.todo) > 0 || at == Never { // a commit wakes us, or a request
		return time.Hour
	}
	return max(0, at-s.r.now().Mono)
}

// rest ends the goroutine when there is nothing to do and nothing to wait for.
func (s *shard[M]) rest() bool {
	if len(s.todo) > 0 || !s.quiet() || !s.m.Idle() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 || s.lost {
		return false
	}
	s.running = false
	s.queue, s.taken, s.settled = nil, nil, nil
	return true
}

// drop forgets the machine; everybody who waits is answered.
func (s *shard[M]) drop() {
	s.mu.Lock()
	s.loading = true
	s.mu.Unlock()
	if s.ready {
		release(s.m.Stop()...)
	}
	var none M
	s.m, s.ready = none, false
	for _, e := range s.batch.entries {
		refuseAnswers(e.answers, ErrNotCoordinator)
	}
	s.batch = batch{}
}

// end is the last thing of a lost shard's goroutine.
func (s *shard[M]) end() {
	if s.flight != nil {
		if s.flight.done != nil {
			<-s.flight.done
		}
		for _, e := range s.flight.entries {
			refuseAnswers(e.answers, ErrNotCoordinator)
		}
		s.flight = nil
	}
	s.drop()
	refuse(s.todo, ErrNotCoordinator)
	s.todo = nil
	s.r.trouble.over(s.id)
	close(s.gone)
}

// load replays the log into a new machine, again and again until it succeeds; false when the
// shard was lost meanwhile.
func (s *shard[M]) load() bool {
	keep := s.todo[:0:0]
	for _, m := range s.todo {
		if m.how&AwaitsLoad != 0 {
			keep = append(keep, m)
		} else {
			release(Answer{To: m.to, Err: ErrLoading})
		}
	}
	s.todo, s.taken = keep, nil
	if s.before != nil {
		select {
		case <-s.before: // what the one before wrote last must be in the log
		case <-s.ctx.Done():
			<-s.before
			return false
		}
	}
	for {
		select {
		case s.r.loads <- struct{}{}:
		case <-s.ctx.Done():
			return false
		}
		start := time.Now()
		m, n, err := s.replay()
		<-s.r.loads
		if err == nil {
			took := time.Since(start)
			s.r.o.Metrics.loaded(took)
			if n > 0 {
				s.r.o.Logger.Info("coordinator has loaded", "coordinator", s.r.o.Name, "shard", s.id, "epoch", s.epoch, "records", n, "took", took)
			}
			now := s.r.now()
			s.m, s.ready, s.barrier = m, true, false
			s.nextSweep = now.Mono + s.r.o.SweepEvery()
			s.mu.Lock()
			s.loading, s.failing = false, false
			s.mu.Unlock()
			// Only now: what goes outside may report back at once, and must not be told that the shard is loading.
			s.absorb(m.Start(now))
			return true
		}
		if s.ctx.Err() != nil {
			return false
		}
		s.r.o.Metrics.LoadErrors.Inc()
		s.mu.Lock()
		s.failing = true
		s.mu.Unlock()
		level := slog.LevelError
		switch {
		case !s.r.trouble.newLoad(err.Error()):
			level = slog.LevelDebug
		case errors.Is(err, ErrNotCoordinator), errors.Is(err, ErrNotAvailable):
			level = slog.LevelWarn
		}
		s.r.o.Logger.Log(s.ctx, level, "coordinator could not load; it will try again", "coordinator", s.r.o.Name, "shard", s.id, "err", err)
		retry := time.NewTimer(s.r.o.Retry)
		select {
		case <-retry.C:
		case <-s.ctx.Done():
			retry.Stop()
			return false
		}
	}
}

// tellLoading is how often a load that takes long is told of.
const tellLoading = 5 * time.Second

func (s *shard[M]) replay() (m M, n int, err error) {
	m = s.r.o.New(s.id)
	s.replayed.Store(0)
	start := time.Now()
	told := start
	for data, err := range s.r.o.Store.Load(s.ctx, s.id, s.epoch) {
		if err != nil {
			return m, n, err
		}
		read, err := replayBatches(m, data)
		if n += read; err != nil {
			return m, n, err
		}
		s.replayed.Store(int64(n))
		if now := time.Now(); now.Sub(told) >= tellLoading {
			told = now
			s.r.o.Logger.Info("coordinator is loading", "coordinator", s.r.o.Name, "shard", s.id, "epoch", s.epoch, "records", n, "since", now.Sub(start))
		}
	}
	return m, n, s.ctx.Err()
}
