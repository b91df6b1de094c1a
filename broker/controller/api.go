package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ottla/broker/registry"
	"ottla/compat"
)

// CreateTopics creates topics, or with validateOnly says what would become of them; results are
// in the order of the topics. When it returns, this broker leads what it has to and its picture
// has the topics. Topics stand or fall each by itself; on an embedded root they are one
// transaction on disk.
func (c *Controller) CreateTopics(ctx context.Context, topics []NewTopic, validateOnly bool) []Result {
	names := make([]string, len(topics))
	for i := range topics {
		names[i] = topics[i].Name
	}
	return c.eachTopic(ctx, names, func(t registry.Tree, results []Result) error {
		room := MaxPartitions
		var made []string
		for i, n := range topics {
			s, res := c.state.createTopic(c.rules(), n, room, validateOnly)
			if s != nil {
				err := c.write(t, s)
				if errors.Is(err, registry.ErrNodeExists) {
					err = refuse(ErrTopicExists, "Topic '%s' already exists.", n.Name)
				}
				if res.Err = err; errors.Is(err, ErrNotController) {
					return err
				}
				made = append(made, n.Name)
			}
			if res.Err == nil {
				room -= int(res.Partitions)
			}
			results[i] = res
		}
		return c.watchTopics(t, made)
	})
}

// watchTopics watches topics that this controller has made.
func (c *Controller) watchTopics(t registry.Tree, names []string) error {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = compat.PathTopic(name)
	}
	_, err := t.GetAll(paths, c.watcher)
	return err
}

// CreatePartitions adds partitions to topics, otherwise as CreateTopics.
func (c *Controller) CreatePartitions(ctx context.Context, topics []MorePartitions, validateOnly bool) []Result {
	names := make([]string, len(topics))
	for i := range topics {
		names[i] = topics[i].Name
	}
	return c.eachTopic(ctx, names, func(t registry.Tree, results []Result) error {
		room := MaxPartitions
		for i, m := range topics {
			before := 0
			if old := c.state.topics[m.Name]; old != nil {
				before = len(old.partitions)
			}
			s, res := c.state.createPartitions(c.rules(), m, room, validateOnly)
			if s != nil {
				if res.Err = c.write(t, s); errors.Is(res.Err, ErrNotController) {
					return res.Err
				}
			}
			if res.Err == nil {
				room -= int(res.Partitions) - before
			}
			results[i] = res
		}
		return nil
	})
}

// eachTopic runs f, which fills the results by index, in one group of writes. An error of it or
// of the group is every topic's.
func (c *Controller) eachTopic(ctx context.Context, names []string, f func(registry.Tree, []Result) error) []Result {
	results := make([]Result, len(names))
	if len(names) == 0 {
		return results
	}
	err := c.active(ctx, func() error {
		err := c.tree.Group(func(t registry.Tree) error { return f(t, results) })
		if err != nil && c.state != nil { // what f has applied may not be in the tree
			c.out, c.reload = outbox{}, true
		}
		return err
	})
	if err != nil {
		for i, name := range names {
			results[i] = Result{Name: name, Err: err}
		}
	}
	return results
}

// DeleteTopics deletes topics and waits until they are gone from all their brokers, or ctx ends:
// that is ErrTimedOut, and the deletion goes on. What is being deleted already is waited for.
func (c *Controller) DeleteTopics(ctx context.Context, names []string) []Result {
	results := make([]Result, len(names))
	waits := make([]chan error, len(names))
	err := c.active(ctx, func() error {
		for i, name := range names {
			results[i].Name = name
			t := c.state.topics[name]
			if t == nil {
				results[i].Err = refuse(ErrUnknownTopicOrPartition, "This server does not host this topic-partition.")
				continue
			}
			results[i].ID, results[i].Partitions = t.id, int32(len(t.partitions))
			waits[i] = make(chan error, 1)
			c.waiting[name] = append(c.waiting[name], waits[i])
		}
		return c.write(c.tree, c.state.markDeleted(slices.Clone(names), true))
	})
	for i, name := range names {
		switch {
		case err != nil:
			results[i] = Result{Name: name, Err: err}
		case waits[i] != nil:
			select {
			case results[i].Err = <-waits[i]:
			case <-ctx.Done():
				results[i].Err = fmt.Errorf("%w: %w", ErrTimedOut, context.Cause(ctx))
			case <-c.stopped:
				results[i].Err = ErrStopped
			}
		}
	}
	return results
}

// ElectLeaders elects the preferred leaders of partitions, or with unclean a live replica even
// if it is not in sync; nil: all partitions. The answer has nil for a partition with a new
// leader and an error for one without; of all partitions only those that needed an election.
func (c *Controller) ElectLeaders(ctx context.Context, unclean bool, partitions map[string][]int32) map[string]map[int32]error {
	answer := map[string]map[int32]error{}
	set := func(k at, err error) {
		if answer[k.topic] == nil {
			answer[k.topic] = map[int32]error{}
		}
		answer[k.topic][k.n] = err
	}
	asked := map[at]struct{}{}
	for name, numbers := range partitions {
		for _, n := range numbers {
			asked[at{name, n}] = struct{}{}
		}
	}
	err := c.active(ctx, func() error {
		keys := sortedKeys(asked)
		if partitions == nil {
			c.state.all(func(k at, _ *partition) { keys = append(keys, k) })
		}
		s, errs := c.state.elect(unclean, keys)
		if err := c.write(c.tree, s); err != nil {
			return err
		}
		for _, k := range keys {
			if partitions != nil || !errors.Is(errs[k], ErrElectionNotNeeded) {
				set(k, errs[k])
			}
		}
		return nil
	})
	if err != nil {
		for k := range asked {
			set(k, err)
		}
	}
	return answer
}

// ElectLeaderless gives the partitions without a leader one where that is possible now, after
// unclean.leader.election.enable was switched on (KafkaController.processUncleanLeaderElectionEnable).
// It does nothing where another broker is the controller.
func (c *Controller) ElectLeaderless(ctx context.Context) error {
	err := c.active(ctx, func() error { return c.write(c.tree, c.state.electLeaderless(c.rules())) })
	if errors.Is(err, ErrNotController) {
		return nil
	}
	return err
}

// LookAgain tells this broker once more of replicas that it has to have, and takes its answers in:
// what it cannot have goes offline, what it has again can be led. It is for failed log directories
// and for those that are mended (KafkaController.processLogDirEventNotification). It does nothing
// where another broker is the controller.
func (c *Controller) LookAgain(ctx context.Context, replicas []TopicPartition) error {
	err := c.active(ctx, func() error {
		for _, r := range replicas {
			k := at{r.Topic, r.Partition}
			if p := c.state.get(k); p != nil && p.version >= 0 && slices.Contains(p.replicas, c.o.BrokerID) {
				c.out.addLead(c.o.BrokerID, k, false)
			}
		}
		return nil
	})
	if errors.Is(err, ErrNotController) {
		return nil
	}
	return err
}

// AlterPartition does what a leader asks for: other in-sync sets. Epoch is that of the asking
// broker; another is ErrStaleBrokerEpoch. Results are in the order of the changes.
func (c *Controller) AlterPartition(ctx context.Context, broker int32, epoch int64, changes []ISRChange) ([]ISRResult, error) {
	var results []ISRResult
	err := c.active(ctx, func() error {
		if m := c.state.members[broker]; m == nil || m.Epoch != epoch {
			return fmt.Errorf("%w: broker %d, epoch %d", ErrStaleBrokerEpoch, broker, epoch)
		}
		var s *step
		s, results = c.state.alterISR(broker, changes)
		if err := c.write(c.tree, s); err != nil {
			return err
		}
		changed := make([]at, len(s.changes))
		for i := range s.changes {
			changed[i] = s.changes[i].at
		}
		return c.finishMoves(c.tree, changed)
	})
	return results, err
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// ControlledShutdown moves what it can away from a broker that is about to stop and answers what
// that still leads. Epoch -1 is of brokers that know none.
func (c *Controller) ControlledShutdown(ctx context.Context, broker int32, epoch int64) ([]TopicPartition, error) {
	var left []TopicPartition
	err := c.active(ctx, func() error {
		m := c.state.members[broker]
		switch {
		case m == nil:
			return refuse(ErrBrokerNotAvailable, "Broker id %d does not exist.", broker)
		case epoch != -1 && epoch < m.Epoch:
			return fmt.Errorf("%w: broker %d, epoch %d", ErrStaleBrokerEpoch, broker, epoch)
		}
		m.leaving = true
		if err := c.write(c.tree, c.state.leave(broker)); err != nil {
			return err
		}
		for _, k := range c.state.led(broker) {
			left = append(left, TopicPartition{k.topic, k.n})
		}
		return nil
	})
	return left, err
}

// Reassignment is a partition whose replicas are being moved.
type Reassignment struct {
	Replicas, Adding, Removing []int32
}

// Reassignments lists the partitions that are being moved; nil: of all topics.
func (c *Controller) Reassignments(ctx context.Context, partitions map[string][]int32) (map[string]map[int32]Reassignment, error) {
	moving := map[string]map[int32]Reassignment{}
	err := c.active(ctx, func() error {
		c.state.all(func(k at, p *partition) {
			if !p.moving() || partitions != nil && !slices.Contains(partitions[k.topic], k.n) {
				return
			}
			if moving[k.topic] == nil {
				moving[k.topic] = map[int32]Reassignment{}
			}
			moving[k.topic][k.n] = Reassignment{p.replicas, p.adding, p.removing}
		})
		return nil
	})
	return moving, err
}

// producerBlock is how many producer ids a broker gets at once (ProducerIdsBlock).
const producerBlock = 1000

// AllocateProducerIDsFor is AllocateProducerIDs of the active controller for a member, whose epoch
// must be that of its registration: else ErrStaleBrokerEpoch.
func (c *Controller) AllocateProducerIDsFor(ctx context.Context, broker int32, epoch int64) (first, count int64, err error) {
	err = c.active(ctx, func() error {
		if m := c.state.members[broker]; m == nil || m.Epoch != epoch {
			return fmt.Errorf("%w: broker %d, epoch %d", ErrStaleBrokerEpoch, broker, epoch)
		}
		var err error
		first, err = c.takeProducerIDs(ctx, broker, func(last int64) int64 { return last + producerBlock })
		return err
	})
	return first, producerBlock, err
}

// AllocateProducerIDs takes the next block of producer ids out of the tree. Any broker may.
func (c *Controller) AllocateProducerIDs(ctx context.Context) (first, count int64, err error) {
	first, err = c.takeProducerIDs(ctx, c.o.BrokerID, func(last int64) int64 { return last + producerBlock })
	return first, producerBlock, err
}

// ReserveProducerIDs sees to it that no id up to one that is in use already will be allocated.
func (c *Controller) ReserveProducerIDs(ctx context.Context, used int64) error {
	used = min(used, 1<<63-1-producerBlock)
	_, err := c.takeProducerIDs(ctx, c.o.BrokerID, func(last int64) int64 {
		if used <= last {
			return last
		}
		return used - used%producerBlock + producerBlock - 1 // blocks stay where they would be
	})
	return err
}

// takeProducerIDs moves the last id that is taken to what to says of it, at once however far that
// is, for a broker, and answers the first one of those that this takes.
func (c *Controller) takeProducerIDs(ctx context.Context, broker int32, to func(last int64) int64) (first int64, err error) {
	for {
		data, st, err := c.tree.Get(compat.PathProducerIDs, nil)
		if err != nil {
			return 0, err
		}
		last, err := compat.DecodeProducerBlock(data)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", compat.PathProducerIDs, err)
		}
		if last.End > 1<<63-1-producerBlock {
			return 0, fmt.Errorf("%w: producer ids are used up", ErrInvalidRequest)
		}
		next := compat.ProducerBlockNode{Broker: broker, Start: last.End + 1, End: to(last.End)}
		if next.End == last.End {
			return next.Start, nil
		}
		_, err = c.tree.Set(compat.PathProducerIDs, next.Encode(), st.Version)
		if err == nil {
			return next.Start, nil
		}
		if !errors.Is(err, registry.ErrBadVersion) || ctx.Err() != nil {
			return 0, err
		}
	}
}
