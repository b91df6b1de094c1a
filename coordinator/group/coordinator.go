package group

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/coordinator"
	"ottla/protocol/record"
)

// Config is what a Coordinator is made from.
type Config struct {
	Store      coordinator.Store
	Topics     coordinator.TopicMaker
	Options    func() *Options // never nil; asked at every step
	Partitions func() int32    // partitions of Topic; 0 while there is no such topic
	EndOffset  EndOffset       // for the lag in the metrics; nil: no lag
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Coordinator is the group coordinator of one broker: its shards, and a method for each
// request. The methods return the sentinels of this package and of package coordinator.
type Coordinator struct {
	coordinator.InternalTopic
	c       Config
	stats   Stats
	runtime *coordinator.Runtime[*Machine]
	collect *collector
}

// New makes a coordinator that leads nothing yet.
func New(c Config) *Coordinator {
	g := &Coordinator{InternalTopic: coordinator.InternalTopic{
		Name: Topic, Maker: c.Topics, Partitions: c.Partitions,
		New: func() coordinator.NewTopic { return c.Options().newTopic() },
	}, c: c}
	g.runtime = coordinator.New(coordinator.Options[*Machine]{
		Name:          "group",
		Store:         c.Store,
		New:           func(int32) *Machine { return NewMachine(c.Options, &g.stats) },
		Now:           c.Now,
		SweepEvery:    func() time.Duration { return c.Options().RetentionCheck },
		CommitTimeout: func() time.Duration { return c.Options().CommitTimeout },
		MaxBatchBytes: func() int { return c.Options().BatchBytes },
		Codec:         func() record.Codec { return c.Options().Codec },
		Logger:        c.Logger,
		Metrics:       coordinator.NewMetrics("group", c.Registerer),
	})
	if c.Registerer != nil {
		end := c.EndOffset
		if end == nil {
			end = func(string, int32) (int64, bool) { return 0, false }
		}
		g.collect = newCollector(g, end)
		c.Registerer.MustRegister(g.collect)
	}
	return g
}

// Led tells that this broker leads a partition of Topic.
func (c *Coordinator) Led(partition, epoch int32) { c.runtime.Led(partition, epoch) }

// Lost tells that this broker no longer leads a partition of Topic.
func (c *Coordinator) Lost(partition int32) { c.runtime.Lost(partition) }

// Unloaded lists the partitions that are led for longer than d and still load.
func (c *Coordinator) Unloaded(d time.Duration) []int32 { return c.runtime.Unloaded(d) }

// MetadataFits says whether a committed offset may have this text with it; version 0 of OffsetCommit,
// whose offsets the coordinator does not keep, asks.
func (c *Coordinator) MetadataFits(text string) bool { return c.c.Options().MetadataFits(text) }

// Close answers everybody who waits and ends every goroutine.
func (c *Coordinator) Close() {
	if c.collect != nil {
		c.c.Registerer.Unregister(c.collect)
	}
	c.runtime.Close()
}

// do runs a step on a group's shard and gives its answer as what it is.
func do[T any](ctx context.Context, c *Coordinator, shard int32, how coordinator.How, step coordinator.Step[*Machine]) (answer T, err error) {
	v, err := c.runtime.Do(ctx, shard, how, step)
	if err != nil {
		return answer, err
	}
	answer, _ = v.(T)
	return answer, nil
}

// Join waits for the generation. An answer's Err is set for what the group refuses.
func (c *Coordinator) Join(ctx context.Context, r JoinRequest) JoinAnswer {
	r.Protocols = slices.Clone(r.Protocols)
	for i := range r.Protocols {
		r.Protocols[i].Metadata = bytes.Clone(r.Protocols[i].Metadata)
	}
	r.NewMemberIDSuffix = uuid()
	a, err := do[JoinAnswer](ctx, c, c.PartitionFor(r.Group), coordinator.Parks,
		func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.Join(now, r, to)
		})
	if err != nil {
		return JoinAnswer{Err: err, MemberID: r.MemberID, Generation: -1}
	}
	return a
}

// Sync waits for the assignment. An answer's Err is set for what the group refuses.
func (c *Coordinator) Sync(ctx context.Context, r SyncRequest) SyncAnswer {
	r.Assignment = slices.Clone(r.Assignment)
	for i := range r.Assignment {
		r.Assignment[i].Data = bytes.Clone(r.Assignment[i].Data)
	}
	a, err := do[SyncAnswer](ctx, c, c.PartitionFor(r.Group), coordinator.Parks,
		func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.Sync(now, r, to)
		})
	if err != nil {
		return SyncAnswer{Err: err}
	}
	return a
}

// Heartbeat is answered with nil while the group is still loaded, as in Kafka.
func (c *Coordinator) Heartbeat(ctx context.Context, r HeartbeatRequest) error {
	_, err := c.runtime.Do(ctx, c.PartitionFor(r.Group), 0,
		func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.Heartbeat(now, r, to)
		})
	if errors.Is(err, coordinator.ErrLoading) {
		return nil
	}
	return err
}

// Leave returns an error, or nil, for each member.
func (c *Coordinator) Leave(ctx context.Context, r LeaveRequest) ([]error, error) {
	return do[[]error](ctx, c, c.PartitionFor(r.Group), 0,
		func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.Leave(now, r, to)
		})
}

// Commit returns an error, or nil, for each partition by topic.
func (c *Coordinator) Commit(ctx context.Context, r CommitRequest) ([][]error, error) {
	return do[[][]error](ctx, c, c.PartitionFor(r.Group), 0,
		func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.Commit(now, r, to)
		})
}

// Fetch returns the committed offsets of one group.
func (c *Coordinator) Fetch(ctx context.Context, r FetchRequest) ([]FetchedTopic, error) {
	return do[[]FetchedTopic](ctx, c, c.PartitionFor(r.Group), 0,
		func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.Fetch(now, r, to)
		})
}

// DeleteOffsets returns an error, or nil, for each partition by topic.
func (c *Coordinator) DeleteOffsets(ctx context.Context, group string, topics []FetchTopic) ([][]error, error) {
	return do[[][]error](ctx, c, c.PartitionFor(group), coordinator.Exclusive,
		func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.DeleteOffsets(now, group, topics, to)
		})
}

// DeleteGroups returns an error, or nil, for each group.
func (c *Coordinator) DeleteGroups(ctx context.Context, ids []string) []error {
	errs := make([]error, len(ids))
	byShard := map[int32][]int{}
	for i, id := range ids {
		p := c.PartitionFor(id)
		byShard[p] = append(byShard[p], i)
	}
	for shard, places := range byShard {
		mine := make([]string, len(places))
		for i, at := range places {
			mine[i] = ids[at]
		}
		got, err := do[[]error](ctx, c, shard, coordinator.Exclusive,
			func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
				return m.DeleteGroups(now, mine, to)
			})
		for i, at := range places {
			if errs[at] = err; err == nil {
				errs[at] = got[i]
			}
		}
	}
	return errs
}

// TopicsDeleted forgets the offsets of topics that are gone, in every shard that is led; one
// that still loads does it afterwards.
func (c *Coordinator) TopicsDeleted(ctx context.Context, topics []DeletedTopic) error {
	var errs []error
	for _, shard := range c.runtime.Shards() {
		_, err := c.runtime.Do(ctx, shard, coordinator.Exclusive|coordinator.AwaitsLoad,
			func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
				return m.TopicsDeleted(now, topics, to)
			})
		if err != nil && !errors.Is(err, coordinator.ErrNotCoordinator) {
			errs = append(errs, fmt.Errorf("offsets in partition %d of %s: %w", shard, Topic, err))
		}
	}
	return errors.Join(errs...)
}

// List returns the groups that this broker coordinates.
func (c *Coordinator) List(ctx context.Context, states, types []string) ([]Listed, error) {
	all := []Listed{}
	for _, shard := range c.runtime.Shards() {
		some, err := do[[]Listed](ctx, c, shard, 0,
			func(m *Machine, _ coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
				return m.List(states, types, to)
			})
		if errors.Is(err, coordinator.ErrNotCoordinator) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Describe returns one group. Its Err is set where there is nothing to tell.
func (c *Coordinator) Describe(ctx context.Context, id string) Described {
	d, err := do[Described](ctx, c, c.PartitionFor(id), 0,
		func(m *Machine, _ coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.Describe(id, to)
		})
	if err != nil {
		return Described{Group: id, Err: err}
	}
	return d
}

// summaries is what the metrics need; shards that load or are slow are left out.
func (c *Coordinator) summaries(ctx context.Context) (all []Summary) {
	for _, shard := range c.runtime.Shards() {
		some, err := do[[]Summary](ctx, c, shard, 0,
			func(m *Machine, _ coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
				return m.Summarize(to)
			})
		if err == nil {
			all = append(all, some...)
		}
	}
	return all
}

// uuid is a random UUID (version 4) as Java prints it.
func uuid() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// memberID is a random UUID as Kafka prints its own: base64 without padding.
func memberID() string {
	var b [16]byte
	for b[0] == 0 || b[0]>>2 == 62 { // Kafka's do not begin with a dash
		rand.Read(b[:])
	}
	return base64.RawURLEncoding.EncodeToString(b[:])
}
