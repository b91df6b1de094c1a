package coordinator

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ottla/protocol/record"
)

// Options of a Runtime. Functions are asked anew each time, so that settings can change.
type Options[M Machine] struct {
	Name  string // for logs, as "group"
	Store Store
	New   func(shard int32) M
	Now   func() time.Time // the wall clock

	SweepEvery    func() time.Duration // offsets.retention.check.interval.ms
	CommitTimeout func() time.Duration // offsets.commit.timeout.ms
	MaxBatchBytes func() int           // a batch is closed before it grows past this
	Codec         func() record.Codec  // offsets.topic.compression.codec

	// Outside gets what machines want done outside (Effects.Outside), on the shard's goroutine:
	// it must not wait. ctx ends when the shard is lost. Nil where machines want nothing.
	Outside func(ctx context.Context, shard, epoch int32, what any)

	MaxQueued int // requests that may wait for one shard; 0: 10000
	Loaders   int // shards that load at one time; 0: 4
	Retry     time.Duration
	Logger    *slog.Logger
	Metrics   *Metrics
}

// Runtime runs the shards that this broker leads.
type Runtime[M Machine] struct {
	o     Options[M]
	start time.Time
	loads chan struct{} // a token a shard that loads

	mu     sync.Mutex
	shards map[int32]*shard[M]       // guarded by mu
	before map[int32]<-chan struct{} // guarded by mu: closed when the last shard of this id is quiet
	closed bool                      // guarded by mu

	timers  sync.Pool // of *time.Timer that are stopped, for requests that wait no longer than CommitTimeout
	trouble trouble
	wg      sync.WaitGroup // every goroutine of every shard; Add under mu while not closed
}

// New makes a runtime without shards. It has no goroutine before Led.
func New[M Machine](o Options[M]) *Runtime[M] {
	if o.MaxQueued == 0 {
		o.MaxQueued = 10000
	}
	if o.Loaders == 0 {
		o.Loaders = 4
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(o.Name, nil)
	}
	r := &Runtime[M]{o: o, start: time.Now(), loads: make(chan struct{}, o.Loaders), shards: map[int32]*shard[M]{}, before: map[int32]<-chan struct{}{}}
	o.Metrics.watch(r.Census)
	return r
}

// Census counts the shards that are led, and what waits for them.
func (r *Runtime[M]) Census() (c Census) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.shards {
		s.mu.Lock()
		c.Queued += len(s.queue)
		switch {
		case !s.loading:
			c.Active++
		case s.failing:
			c.Failed++
		default:
			c.Loading++
			c.Replayed += int(s.replayed.Load())
		}
		s.mu.Unlock()
	}
	return c
}

func (r *Runtime[M]) now() Instant {
	return Instant{Mono: time.Since(r.start), Wall: r.o.Now().UnixMilli()}
}

// Led tells that this broker leads a shard at a leader epoch: the shard is read anew, also
// when an older epoch was led before, for another leader may have written between the two.
func (r *Runtime[M]) Led(id, epoch int32) {
	r.mu.Lock()
	old := r.shards[id]
	if r.closed || old != nil && old.epoch >= epoch {
		r.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &shard[M]{r: r, id: id, epoch: epoch, ctx: ctx, cancel: cancel, since: time.Now(), signal: make(chan struct{}, 1),
		before: r.before[id], gone: make(chan struct{}), loading: true, running: true}
	r.shards[id], r.before[id] = s, s.gone
	r.wg.Add(1)
	r.mu.Unlock()
	if old != nil {
		old.lose()
	}
	go s.run()
}

// Lost tells that this broker no longer leads a shard. Whoever waits there is answered with
// ErrNotCoordinator.
func (r *Runtime[M]) Lost(id int32) {
	r.mu.Lock()
	s := r.shards[id]
	delete(r.shards, id)
	r.mu.Unlock()
	if s != nil {
		s.lose()
	}
}

// Close loses every shard and waits until all is quiet.
func (r *Runtime[M]) Close() {
	r.mu.Lock()
	r.closed = true
	all := r.shards
	r.shards = map[int32]*shard[M]{}
	r.mu.Unlock()
	for _, s := range all {
		s.lose()
	}
	r.wg.Wait()
}

// Shards lists the shards that are led, ascending.
func (r *Runtime[M]) Shards() []int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]int32, 0, len(r.shards))
	for id := range r.shards {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Unloaded lists the shards that have been led for longer than d without having loaded: the
// watchdog's question.
func (r *Runtime[M]) Unloaded(d time.Duration) []int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []int32
	for id, s := range r.shards {
		s.mu.Lock()
		if s.loading && time.Since(s.since) > d {
			ids = append(ids, id)
		}
		s.mu.Unlock()
	}
	slices.Sort(ids)
	return ids
}

// How says in which way a step runs.
type How uint8

const (
	// Exclusive: alone between what came before and what comes after, each time with all
	// records committed.
	Exclusive How = 1 << iota
	// Parks: the answer may be long in coming, so only ctx ends the wait for it.
	Parks
	// AwaitsLoad: a loading shard runs the step later instead of refusing it.
	AwaitsLoad
)

// Do runs one step on a shard and waits for its answer. ErrNotCoordinator, ErrLoading and
// ErrQueueFull tell that it did not run; after ErrTimedOut and ctx's error it may have.
func (r *Runtime[M]) Do(ctx context.Context, id int32, how How, step Step[M]) (any, error) {
	r.mu.Lock()
	s := r.shards[id]
	r.mu.Unlock()
	if s == nil {
		return nil, ErrNotCoordinator
	}
	t := newTicket()
	if err := s.send(message[M]{how: how, step: step, to: t}); err != nil {
		return nil, err
	}
	var late <-chan time.Time
	if how&Parks == 0 {
		timer := r.timer(r.o.CommitTimeout())
		defer func() {
			timer.Stop() // nothing of it is in its channel any more
			r.timers.Put(timer)
		}()
		late = timer.C
	}
	select {
	case a := <-t.result:
		return a.value, a.err
	case <-late:
		return nil, ErrTimedOut
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// timer is one that rings after d.
func (r *Runtime[M]) timer(d time.Duration) *time.Timer {
	if t, ok := r.timers.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}
