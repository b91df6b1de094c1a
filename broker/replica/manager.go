// Package replica keeps the partitions that this broker leads or follows: appends as leader,
// reads, in-sync replicas, the high watermark and those who wait for it.
//
// The rules stand in machine.go and know neither clocks nor files. A Partition joins them to
// its log; the Manager finds partitions and reads many of them for one fetch.
//
// Locks, outermost first: Manager.change, fetchers.mu, fetcher.mu, Partition.lead, Manager.mu, Partition.mu,
// proposals.mu, Waiting.mu, wait.mu.
// None is held while a log is flushed or while somebody waits. Partition.lead is held for
// reading during an append, so that a change of leadership never falls into the middle of one.
package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/broker/metadata"
	"ottla/log"
)

// Watcher is told which partitions this broker leads: the coordinators, that rebuild
// themselves from partitions of internal topics. Its methods are called in the order of the
// changes, one at a time, with no lock of a partition held.
type Watcher interface {
	Led(topic string, partition, epoch int32)
	Lost(topic string, partition int32)
}

// Options are what a Manager works with.
type Options struct {
	BrokerID   int32
	Logs       *log.Manager
	Meta       *metadata.Holder
	MinISR     func(topic string) int          // min.insync.replicas; nil: 1
	LogOptions func(topic string) *log.Options // nil: log's own defaults, with no flush by count
	LagMax     time.Duration                   // replica.lag.time.max.ms; 0: 30 s
	LateTxn    time.Duration                   // a transaction that is silent for longer is counted as late; 0: 20 min
	Watch      []Watcher

	// Of brokers that make a cluster; nil: this one is alone.
	Source      func(leader int32, n int) Source // a way to another broker, the n-th; it is not dialled here
	AlterISR    func(context.Context, []ISRChange) ([]ISRResult, error)
	BrokerEpoch func() int64 // of this broker's registration
	Fetchers    func() int   // num.replica.fetchers; nil: 1
	Pull        PullRules

	// Again has the controller say once more what it wants of partitions, by Apply: of those whose
	// logs there was no room for, and of those that a failed directory has taken. It is called on a
	// goroutine of the manager's own, holding nothing, until Close ends ctx. Nil: nobody asks.
	Again      func(ctx context.Context, partitions []Key)
	Now        func() time.Time // nil: time.Now
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: nothing is registered
}

// Manager holds the partitions of this broker.
type Manager struct {
	opts    Options
	metrics *Metrics

	change  sync.Mutex // held for a whole Apply, Stop or Close
	retries retries    // guarded by change

	begun     time.Time
	living    func(id int32) bool // alive, which all partitions share
	fetchers  *fetchers
	proposals proposals

	late failures

	looks sync.WaitGroup // of waiting fetches at what changed

	mu    sync.RWMutex
	parts map[string][]*Partition // by topic, then number; guarded by mu. nil where not hosted
}

// New returns a manager without partitions.
func New(o Options) *Manager {
	if o.MinISR == nil {
		o.MinISR = func(string) int { return 1 }
	}
	if o.LogOptions == nil {
		none := &log.Options{CleanupDelete: true}
		o.LogOptions = func(string) *log.Options { return none }
	}
	if o.LagMax == 0 {
		o.LagMax = 30 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Manager{opts: o, parts: map[string][]*Partition{}, retries: newRetries(), begun: o.Now()}
	m.living = m.alive
	m.proposals.kick = make(chan struct{}, 1)
	m.fetchers = newFetchers(m)
	m.metrics = newMetrics(o.Registerer, m)
	return m
}

// Metrics are the counters of what clients produce and fetch.
func (m *Manager) Metrics() *Metrics { return m.metrics }

// Key names a partition.
type Key struct {
	Topic     string
	Partition int32
}

// find returns the partition, nil if this broker has no replica of it. Its log is opened if it
// rested until now.
func (m *Manager) find(topic string, n int32) *Partition {
	p := m.place(topic, n)
	if p != nil {
		p.settle()
	}
	return p
}

func (m *Manager) place(topic string, n int32) *Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if of := m.parts[topic]; n >= 0 && int(n) < len(of) {
		return of[n]
	}
	return nil
}

// Partition returns this broker's replica of a partition, led or not. The error is
// ErrUnknownPartition where the cluster has no such partition, ErrNotLeader where only others
// have it, ErrOffline where its log could not be opened.
func (m *Manager) Partition(topic string, n int32) (*Partition, error) {
	if p := m.find(topic, n); p != nil {
		if p.standing.Load().log == nil {
			return nil, fmt.Errorf("%s-%d: %w", topic, n, ErrOffline)
		}
		return p, nil
	}
	if m.opts.Meta.Load().Partition(topic, n) != nil {
		return nil, ErrNotLeader
	}
	return nil, ErrUnknownPartition
}

// Leader returns a partition that this broker leads. Errors: those of Partition.
func (m *Manager) Leader(topic string, n int32) (*Partition, error) {
	p, err := m.Partition(topic, n)
	if err != nil {
		return nil, err
	}
	if !p.standing.Load().leads {
		return nil, ErrNotLeader
	}
	return p, nil
}

// each calls f with every partition of this broker.
func (m *Manager) each(f func(*Partition)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, of := range m.parts {
		for _, p := range of {
			if p != nil {
				f(p)
			}
		}
	}
}

// Apply takes over what the controller says of partitions: this broker becomes their leader or
// their follower. Logs that are missing are made. What came of each that failed is in the
// answer: ErrStaleState for a state older than the known one, ErrTopicID for one of another
// topic, or the log's error, after which the partition is offline. One that there was no room for is
// asked for again.
func (m *Manager) Apply(states []State) map[Key]error {
	m.change.Lock()
	defer m.change.Unlock()
	failed := map[Key]error{}
	offline, last := 0, error(nil)
	defer m.retryLocked()
	for _, s := range states {
		k := Key{s.Topic, s.Partition}
		s.New = s.New || m.retries.waiting[k]
		p := m.host(s.Topic, s.Partition)
		before := p.standing.Load()
		if m.canWait(before, s) {
			p.wait(s)
			m.tell(p, before, p.standing.Load())
			continue
		}
		err := p.apply(s)
		m.settledLocked(k, s.New, err)
		if err != nil {
			failed[k] = err
			switch {
			case errors.Is(err, log.ErrFull): // said where it begins
			case errors.Is(err, log.ErrStorage): // the log has said why
				offline, last = offline+1, err
			default:
				m.opts.Logger.Error("partition state not taken over", "topic", s.Topic, "partition", s.Partition,
					"leader", s.Leader, "leader_epoch", s.LeaderEpoch, "err", err)
			}
			if before.log == nil && before.epoch < 0 && p.standing.Load().epoch < 0 {
				m.drop(p) // it was never here
			}
		}
		m.tell(p, before, p.standing.Load())
		m.fetchers.place(p, p.standing.Load())
	}
	if offline > 0 {
		m.opts.Logger.Error("partitions are offline", "partitions", offline, "err", last)
	}
	return failed
}

// tell tells the watchers what a change of standing means for them.
func (m *Manager) tell(p *Partition, before, after *standing) {
	for _, w := range m.opts.Watch {
		if before.leads && (!after.leads || after.epoch != before.epoch) {
			w.Lost(p.topic, p.number)
		}
		if after.leads && (!before.leads || after.epoch != before.epoch) {
			w.Led(p.topic, p.number, after.epoch)
		}
	}
}

// host returns the partition's place, which it makes if it is new.
func (m *Manager) host(topic string, n int32) *Partition {
	if p := m.find(topic, n); p != nil {
		return p
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.parts[topic]
	for int(n) >= len(of) {
		of = append(of, nil)
	}
	of[n] = newPartition(m, topic, n)
	m.parts[topic] = of
	return of[n]
}

func (m *Manager) drop(p *Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.parts[p.topic]
	of[p.number] = nil
	for len(of) > 0 && of[len(of)-1] == nil {
		of = of[:len(of)-1]
	}
	if len(of) == 0 {
		delete(m.parts, p.topic)
		m.metrics.forget(p.topic)
		return
	}
	m.parts[p.topic] = of
}

// Stop ends this broker's replica of a partition; those who wait for it are told that it is
// not led here. With del its log is deleted too. A partition that is not here is no error, but
// with del a log of it that still lies here is deleted. What lies in a log directory that is offline
// cannot be (log.ErrStorage).
func (m *Manager) Stop(topic string, n int32, del bool) error {
	m.change.Lock()
	defer m.change.Unlock()
	m.dropRetryLocked(Key{topic, n})
	if p := m.find(topic, n); p != nil {
		before := p.standing.Load()
		m.drop(p)
		p.stop()
		m.tell(p, before, p.standing.Load())
		m.fetchers.place(p, p.standing.Load())
	}
	if !del {
		return nil
	}
	return m.opts.Logs.Delete(topic, n)
}

// Close stops every partition; waiting requests are answered. The logs stay open, they are the
// log manager's.
func (m *Manager) Close() {
	m.closeRetries()
	m.fetchers.close()
	m.change.Lock()
	defer m.change.Unlock()
	var all []*Partition
	m.each(func(p *Partition) { all = append(all, p) })
	for _, p := range all {
		before := p.standing.Load()
		m.drop(p)
		p.stop()
		m.tell(p, before, p.standing.Load())
	}
	m.looks.Wait()
	m.metrics.unregister()
}

// DirFailed takes the partitions of a log directory offline: who waits for them is told, and
// every later request gets ErrOffline; the controller is told. It must not be called from within a
// call of the log.
func (m *Manager) DirFailed(path string) {
	m.change.Lock()
	defer m.change.Unlock()
	var hit []*Partition
	m.each(func(p *Partition) {
		if l := p.Log(); l != nil && l.Dir() == path {
			hit = append(hit, p)
		}
	})
	for _, p := range hit {
		before := p.standing.Load()
		p.stop()
		m.tell(p, before, p.standing.Load())
		m.fetchers.place(p, p.standing.Load())
		m.retries.lost = append(m.retries.lost, Key{p.topic, p.number})
	}
	m.retryLocked()
}
