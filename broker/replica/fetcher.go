package replica

import (
	"context"
	"errors"
	"hash/fnv"
	"sync"
	"time"

	"ottla/log"
)

// Source is another broker as followers reach it. Calls of one source come one at a time, and end
// with their context.
type Source interface {
	// Pull fetches. ErrSession: once more without a session. Any other error: there was no answer.
	Pull(ctx context.Context, q *PullRequest) (*PullAnswer, error)
	// Ends asks for the start and the end of a log at its leader in one leader epoch.
	Ends(ctx context.Context, k Key, epoch int32) (start, end int64, err error)
	Close()
}

// fetchers are those of a manager, at most Options.Fetchers for each other broker; each is there
// while it has partitions. A partition is with one of them.
//
// Locks: mu before fetcher.mu.
type fetchers struct {
	m    *Manager
	ctx  context.Context
	stop context.CancelFunc
	ends sync.WaitGroup

	mu     sync.Mutex
	all    map[fetcherID]*fetcher // guarded by mu
	placed map[Key]*fetcher       // guarded by mu
}

type fetcherID struct {
	leader int32
	n      uint32
}

// fetcher is one goroutine with one way to one broker.
type fetcher struct {
	fs   *fetchers
	id   fetcherID
	wake chan struct{} // holds one: what it has to fetch has changed

	mu   sync.Mutex
	pull *puller // guarded by mu
}

func newFetchers(m *Manager) *fetchers {
	fs := &fetchers{m: m, all: map[fetcherID]*fetcher{}, placed: map[Key]*fetcher{}}
	fs.ctx, fs.stop = context.WithCancel(context.Background())
	return fs
}

// place has a partition fetched from its leader, or not any more. The caller holds Manager.change.
func (fs *fetchers) place(p *Partition, s *standing) {
	k := Key{p.topic, p.number}
	follows := s.log != nil && !s.leads && s.leader >= 0 && fs.m.opts.Source != nil
	fs.mu.Lock()
	defer fs.mu.Unlock()
	id := fs.idOf(k, s.leader)
	if old := fs.placed[k]; old != nil && (!follows || old.id != id) {
		old.mu.Lock()
		old.pull.remove(k)
		old.mu.Unlock()
		old.kick()
		delete(fs.placed, k)
	}
	if !follows || fs.ctx.Err() != nil {
		return
	}
	f := fs.all[id]
	if f == nil {
		f = &fetcher{fs: fs, id: id, wake: make(chan struct{}, 1), pull: newPuller(fs.m.opts.Pull)}
		fs.all[id] = f
		fs.ends.Go(f.run)
	}
	fs.placed[k] = f
	f.mu.Lock()
	f.pull.add(k, s.id, s.epoch, &following{p, s.log, s.epoch})
	f.mu.Unlock()
	f.kick()
}

func (fs *fetchers) idOf(k Key, leader int32) fetcherID {
	n := uint32(1)
	if fs.m.opts.Fetchers != nil {
		n = uint32(max(1, fs.m.opts.Fetchers()))
	}
	if n == 1 {
		return fetcherID{leader, 0}
	}
	h := fnv.New32a()
	h.Write([]byte(k.Topic))
	return fetcherID{leader, (31*h.Sum32() + uint32(k.Partition)) % n}
}

// close ends all and waits for them.
func (fs *fetchers) close() {
	fs.mu.Lock()
	fs.stop()
	fs.mu.Unlock()
	fs.ends.Wait()
}

func (f *fetcher) kick() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// done ends the fetcher if it has nothing to do, or the manager is closed.
func (f *fetcher) done() bool {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fs.ctx.Err() == nil && !f.pull.idle() {
		return false
	}
	delete(f.fs.all, f.id)
	return true
}

func (f *fetcher) run() {
	m, ctx := f.fs.m, f.fs.ctx
	src := m.opts.Source(f.id.leader, int(f.id.n))
	defer src.Close()
	failing := false
	for !f.done() {
		f.mu.Lock()
		q, at := f.pull.next(m.nowMs())
		f.mu.Unlock()
		if q == nil {
			f.rest(ctx, at)
			continue
		}
		q.Replica, q.BrokerEpoch = m.opts.BrokerID, m.brokerEpoch()
		a, err := src.Pull(ctx, q)
		f.mu.Lock()
		var bad []trouble
		switch {
		case err == nil:
			bad = f.pull.took(a, m.nowMs())
		case errors.Is(err, ErrSession):
			f.pull.reset()
		default:
			f.pull.failed(m.nowMs())
		}
		f.mu.Unlock()
		if lost := err != nil && !errors.Is(err, ErrSession); lost != failing && ctx.Err() == nil {
			if failing = lost; lost {
				m.opts.Logger.Warn("cannot fetch from the leader of partitions; it is tried again", "leader", f.id.leader, "err", err)
			} else {
				m.opts.Logger.Info("fetching from the leader of partitions goes on", "leader", f.id.leader)
			}
		}
		for _, t := range bad {
			f.trouble(ctx, src, t)
		}
	}
}

// rest waits until there is something to do; at is a time in ms, -1: only a change brings something.
func (f *fetcher) rest(ctx context.Context, at int64) {
	var due <-chan time.Time
	if at >= 0 {
		t := time.NewTimer(time.Duration(max(at-f.fs.m.nowMs(), 1)) * time.Millisecond)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-due:
	case <-f.wake:
	case <-ctx.Done():
	}
}

// trouble sees to a partition that could not go on.
func (f *fetcher) trouble(ctx context.Context, src Source, t trouble) {
	lg := f.fs.m.opts.Logger.With("topic", t.k.Topic, "partition", t.k.Partition, "leader", f.id.leader, "leader_epoch", t.epoch)
	if t.outOfRange {
		start, end, err := src.Ends(ctx, t.k, t.epoch)
		if err == nil {
			f.mu.Lock()
			err = f.pull.found(t.k, t.epoch, start, end, f.fs.m.nowMs())
			f.mu.Unlock()
		}
		if err != nil && ctx.Err() == nil {
			lg.Warn("where the leader's log begins and ends is not known; it is asked again", "err", err)
		}
		return
	}
	switch {
	case errors.Is(t.err, log.ErrStorage), errors.Is(t.err, log.ErrUnexpectedOffset):
		lg.Error("records of the leader not appended", "err", t.err)
	case errors.Is(t.err, ErrNotLeader), errors.Is(t.err, ErrUnknownEpoch), errors.Is(t.err, ErrFencedEpoch), errors.Is(t.err, ErrUnknownPartition), errors.Is(t.err, ErrTopicID):
		lg.Debug("the leader does not serve the partition; it is asked again", "err", t.err)
	default:
		lg.Warn("fetch from the leader failed; it is tried again", "err", t.err)
	}
}

// nowMs is the time since the manager was made: a clock that is set does not move it.
func (m *Manager) nowMs() int64 { return m.opts.Now().Sub(m.begun).Milliseconds() }

func (m *Manager) brokerEpoch() int64 {
	if m.opts.BrokerEpoch == nil {
		return -1
	}
	return m.opts.BrokerEpoch()
}
