package txn

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/coordinator"
	"ottla/protocol/record"
)

// Marker is what ends a transaction in its partitions.
type Marker struct {
	Producer         int64
	Epoch            int16
	CoordinatorEpoch int32
	Commit           bool
	Version          int16 // see Ending
	Partitions       []Partition
}

// Markers writes markers to the partitions, wherever they are led.
type Markers interface {
	// WriteMarker returns one error, or nil, for each partition: nil also for one that is gone
	// for good. ErrCoordinatorFenced and ErrMarkerRefused are final; anything else is tried again.
	WriteMarker(ctx context.Context, m Marker) []error
}

// Config is what a Coordinator is made from.
type Config struct {
	Store       coordinator.Store
	Topics      coordinator.TopicMaker
	Markers     Markers
	ProducerIDs func(context.Context) (int64, error) // gives an id that nobody has
	Options     func() *Options                      // never nil; asked at every step
	Partitions  func() int32                         // partitions of Topic; 0 while there is no such topic
	Now         func() time.Time
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
}

// Coordinator is the transaction coordinator of one broker: its shards, a method for each
// request, and the writing of markers. The methods return the sentinels of this package and of
// package coordinator.
type Coordinator struct {
	coordinator.InternalTopic
	c       Config
	stats   Stats
	runtime *coordinator.Runtime[*Machine]

	mu      sync.Mutex
	endings map[string]*sending // guarded by mu: whose markers are being written, by transactional id
	wg      sync.WaitGroup      // a goroutine for each of them
}

// New makes a coordinator that leads nothing yet.
func New(c Config) *Coordinator {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Coordinator{InternalTopic: coordinator.InternalTopic{
		Name: Topic, Maker: c.Topics, Partitions: c.Partitions,
		New: func() coordinator.NewTopic { return c.Options().newTopic() },
	}, c: c, endings: map[string]*sending{}}
	t.runtime = coordinator.New(coordinator.Options[*Machine]{
		Name:          "transaction",
		Store:         c.Store,
		New:           func(int32) *Machine { return NewMachine(c.Options, &t.stats) },
		Now:           c.Now,
		SweepEvery:    func() time.Duration { return c.Options().SweepEvery },
		CommitTimeout: func() time.Duration { return commitTimeout },
		MaxBatchBytes: func() int { return c.Options().BatchBytes },
		Codec:         func() record.Codec { return record.None },
		Outside:       func(ctx context.Context, shard, epoch int32, what any) { t.finish(ctx, shard, epoch, what.(Ending)) },
		Logger:        c.Logger,
		Metrics:       coordinator.NewMetrics("transaction", c.Registerer),
	})
	t.register(c.Registerer)
	return t
}

// Led tells that this broker leads a partition of Topic.
func (c *Coordinator) Led(partition, epoch int32) { c.runtime.Led(partition, epoch) }

// Lost tells that this broker no longer leads a partition of Topic.
func (c *Coordinator) Lost(partition int32) { c.runtime.Lost(partition) }

// Unloaded lists the partitions that are led for longer than d and still load.
func (c *Coordinator) Unloaded(d time.Duration) []int32 { return c.runtime.Unloaded(d) }

// Close answers everybody who waits and ends every goroutine. Markers that are not written yet
// are written when the partition is led again.
func (c *Coordinator) Close() {
	c.runtime.Close()
	c.wg.Wait()
}

// do runs a step on an id's shard and gives its answer as what it is.
func do[T any](ctx context.Context, c *Coordinator, id string, step coordinator.Step[*Machine]) (answer T, err error) {
	if id == "" {
		return answer, ErrInvalidID
	}
	v, err := c.runtime.Do(ctx, c.PartitionFor(id), 0, step)
	if err != nil {
		return answer, err
	}
	answer, _ = v.(T)
	return answer, nil
}

// withProducerID runs a step, and once more with a new producer id if it needs one.
func withProducerID(ctx context.Context, c *Coordinator, id string, step func(newID int64) coordinator.Step[*Machine]) (Producer, error) {
	p, err := do[Producer](ctx, c, id, step(-1))
	if !errors.Is(err, errNeedsProducerID) {
		return p, err
	}
	fresh, err := c.c.ProducerIDs(ctx)
	if err != nil {
		return Producer{}, err
	}
	p, err = do[Producer](ctx, c, id, step(fresh))
	return p, err
}

// Init gives a producer the transactional id and returns what the producer is from now on.
func (c *Coordinator) Init(ctx context.Context, r InitRequest) (Producer, error) {
	if err := r.check(c.c.Options()); err != nil {
		return Producer{}, err // on any broker
	}
	return withProducerID(ctx, c, r.ID, func(newID int64) coordinator.Step[*Machine] {
		r := r
		r.NewProducerID = newID
		return func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.Init(now, r, to)
		}
	})
}

// Add adds partitions to the transaction.
func (c *Coordinator) Add(ctx context.Context, r AddRequest) error {
	_, err := do[any](ctx, c, r.ID, func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
		return m.Add(now, r, to)
	})
	return err
}

// Await waits, no longer than it is told, until a transactional id is free to be changed.
func (c *Coordinator) Await(ctx context.Context, id string, most time.Duration) error {
	_, err := do[any](ctx, c, id, func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
		return m.Await(now, id, most, to)
	})
	return err
}

// Patience is how long an Add may wait for a transactional id that is busy.
func (c *Coordinator) Patience() time.Duration { return c.c.Options().Patience }

// Verify tells of each partition whether the transaction has it.
func (c *Coordinator) Verify(ctx context.Context, r AddRequest) ([]error, error) {
	return do[[]error](ctx, c, r.ID, func(m *Machine, _ coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
		return m.Verify(r, to)
	})
}

// End decides the transaction and returns what the producer is from now on.
func (c *Coordinator) End(ctx context.Context, r EndRequest) (Producer, error) {
	return withProducerID(ctx, c, r.ID, func(newID int64) coordinator.Step[*Machine] {
		r := r
		r.NewProducerID = newID
		return func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.End(now, r, to)
		}
	})
}

// Describe returns one transactional id.
func (c *Coordinator) Describe(ctx context.Context, id string) (Described, error) {
	return do[Described](ctx, c, id, func(m *Machine, _ coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
		return m.Describe(id, to)
	})
}

// List returns the transactional ids that this broker coordinates, and which states of the
// filter nobody knows. While a shard loads there is no list.
func (c *Coordinator) List(ctx context.Context, f Filter) (all []Listed, unknown []string, err error) {
	filter, unknown, err := f.compile()
	if err != nil {
		return nil, unknown, err
	}
	all = []Listed{}
	for _, shard := range c.runtime.Shards() {
		v, err := c.runtime.Do(ctx, shard, 0, func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.list(now, &filter, to)
		})
		if errors.Is(err, coordinator.ErrNotCoordinator) {
			continue
		}
		if err != nil {
			return nil, unknown, err
		}
		some, _ := v.([]Listed)
		all = append(all, some...)
	}
	return all, unknown, nil
}

// sending is the writing of one transaction's markers.
type sending struct {
	cancel context.CancelFunc
	left   atomic.Int32  // partitions whose marker could not be written yet
	stuck  atomic.Bool   // all are written, and the record of that could not be yet
	done   chan struct{} // closed when nothing more is written
}

// Pauses between attempts to write markers.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// finish has the markers of a transaction written and reports it to the machine. A shard that
// reads its log anew gives out endings a second time: the first writer is stopped and waited
// for, so that a marker of his can't come so late that it ends the next transaction.
func (c *Coordinator) finish(ctx context.Context, shard, epoch int32, end Ending) {
	ctx, cancel := context.WithCancel(ctx)
	s := &sending{cancel: cancel, done: make(chan struct{})}
	c.mu.Lock()
	before := c.endings[end.ID]
	c.endings[end.ID] = s
	c.mu.Unlock()
	if before != nil {
		before.cancel()
	}
	c.wg.Go(func() {
		if before != nil {
			<-before.done
		}
		if c.write(ctx, epoch, end, s) {
			c.report(ctx, shard, end, s)
		}
		cancel()
		c.mu.Lock()
		if c.endings[end.ID] == s {
			delete(c.endings, end.ID)
		}
		c.mu.Unlock()
		close(s.done)
	})
}

// write writes the markers until every partition has its own; false: this coordinator is not the
// one to do it any more.
func (c *Coordinator) write(ctx context.Context, epoch int32, end Ending, s *sending) bool {
	m := Marker{end.Producer, end.Epoch, epoch, end.Commit, end.Version, end.Partitions}
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		errs := c.c.Markers.WriteMarker(ctx, m)
		var left []Partition
		var last error
		for i, err := range errs {
			p := m.Partitions[i]
			switch {
			case err == nil:
			case errors.Is(err, ErrCoordinatorFenced):
				c.c.Logger.Info("markers of a transaction are another coordinator's to write", "transactional_id", end.ID, "topic", p.Topic, "partition", p.Number, "epoch", epoch)
				return false
			case errors.Is(err, ErrMarkerRefused):
				c.c.Logger.Warn("a partition refused the marker of a transaction", "transactional_id", end.ID, "topic", p.Topic, "partition", p.Number, "err", err)
			default:
				left, last = append(left, p), err
			}
		}
		s.left.Store(int32(len(left)))
		if len(left) == 0 {
			return true
		}
		m.Partitions = left
		c.c.Logger.Debug("markers of a transaction are not written yet", "transactional_id", end.ID, "partitions", len(left), "err", last)
		if !sleep(ctx, pause) {
			return false
		}
	}
	return false
}

// report tells the machine, until it has taken note.
func (c *Coordinator) report(ctx context.Context, shard int32, end Ending, s *sending) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		_, err := c.runtime.Do(ctx, shard, 0, func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.Completed(now, end, to)
		})
		s.stuck.Store(err != nil)
		// A shard that loads gives out the ending again.
		if err == nil || errors.Is(err, coordinator.ErrNotCoordinator) || errors.Is(err, coordinator.ErrLoading) || !sleep(ctx, pause) {
			return
		}
	}
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
