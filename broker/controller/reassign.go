package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ottla/broker/registry"
	"ottla/compat"
)

// A partition is moved in two steps, as in KafkaController.onPartitionReassignment: its new replicas
// are added to those that it has, and when all that it shall have are in sync it has these alone. In
// Kafka either is several writes of the partition's state; here each is one.

// originals are the replicas that a partition has but for a reassignment.
func (p *partition) originals() []int32 {
	return without(p.replicas, p.adding)
}

// target are those that it shall have.
func (p *partition) target() []int32 {
	return without(p.replicas, p.removing)
}

func (p *partition) moving() bool { return len(p.adding)+len(p.removing) > 0 }

// reassign decides to move a partition to other replicas; nil ends a move that is under way. Errors
// are those of KafkaController.validateReplicas.
func (c *cluster) reassign(k at, target []int32) (*step, error) {
	t, old := c.topics[k.topic], c.get(k)
	switch {
	case old == nil:
		return nil, refuse(ErrUnknownTopicOrPartition, "The partition does not exist.")
	case target == nil && !old.moving():
		return nil, refuse(ErrNoReassignment, "No partition reassignment is in progress.")
	case target == nil:
		target = old.originals()
	case len(target) == 0:
		return nil, refuse(ErrInvalidReplicaAssignment, "Empty replica list specified in partition reassignment.")
	case !inAssignment(target, target):
		return nil, refuse(ErrInvalidReplicaAssignment, "Duplicate replica ids in partition reassignment replica list: %s", joinIDs(target))
	}
	origin := old.originals()
	next := *old
	next.replicas = slices.Clone(target)
	next.replicas = append(next.replicas, without(origin, target)...)
	next.adding, next.removing = without(next.replicas, origin), without(next.replicas, target)
	for _, id := range next.adding {
		if id < 0 {
			return nil, refuse(ErrInvalidReplicaAssignment, "Invalid broker id in replica list: %s", joinIDs(target))
		}
		if c.members[id] == nil {
			return nil, refuse(ErrInvalidReplicaAssignment, "Replica assignment has brokers that are not alive. Replica list: %s, live broker list: %s", joinIDs(next.adding), joinIDs(c.ids()))
		}
	}
	s := &step{}
	unneeded := without(old.replicas, next.replicas)
	if next.version >= 0 {
		if isr := without(next.isr, unneeded); len(isr) > 0 {
			next.isr = isr
		} else {
			return nil, refuse(ErrInvalidReplicaAssignment, "None of the replicas %s is in sync.", joinIDs(next.replicas))
		}
		if slices.Contains(unneeded, next.leader) && !c.leadBy(k, &next, next.replicas) {
			return nil, refuse(ErrEligibleLeadersUnavailable, "None of the replicas %s can lead.", joinIDs(next.replicas))
		}
	}
	s.move(c, t, k, next, old, unneeded)
	return s, nil
}

// leadBy gives a partition the first of some replicas that is in sync and online as its leader.
func (c *cluster) leadBy(k at, p *partition, of []int32) bool {
	i := slices.IndexFunc(of, func(id int32) bool { return slices.Contains(p.isr, id) && c.online(id, k) })
	if i >= 0 {
		p.leader = of[i]
	}
	return i >= 0
}

// finishMove decides the end of a move; nil while not all replicas are in sync that the partition shall
// have, or none of them can lead.
func (c *cluster) finishMove(k at) *step {
	p := c.get(k)
	if p == nil || !p.moving() || p.version < 0 {
		return nil
	}
	target := p.target()
	if len(without(target, p.isr)) > 0 {
		return nil
	}
	next := *p
	next.replicas, next.adding, next.removing = target, nil, nil
	next.isr = keep(p.isr, func(id int32) bool { return slices.Contains(target, id) })
	if !slices.Contains(target, p.leader) && !c.leadBy(k, &next, target) {
		return nil
	}
	s := &step{}
	s.move(c, c.topics[k.topic], k, next, p, without(p.replicas, target))
	return s
}

// move writes a partition's replicas and its state, tells those that it has, and ends those that it has not
// any more.
func (s *step) move(c *cluster, old *topic, k at, next partition, was *partition, gone []int32) {
	t := *old
	t.partitions = slices.Clone(old.partitions)
	t.partitions[k.n].replicas, t.partitions[k.n].adding, t.partitions[k.n].removing = next.replicas, next.adding, next.removing
	s.ops = append(s.ops, registry.Set(compat.PathTopic(t.name), t.node().Encode(), t.version))
	t.version++
	s.topics = append(s.topics, &t)
	if next.version >= 0 {
		next.leaderEpoch++
		s.put(c, k, next)
		for _, id := range next.replicas {
			if c.online(id, k) {
				s.out.addLead(id, k, !slices.Contains(was.replicas, id))
			}
		}
	}
	for _, id := range gone {
		s.out.addStop(id, StopPartition{Topic: k.topic, Partition: k.n, LeaderEpoch: next.leaderEpoch, Delete: true})
	}
}

// Reassign asks for partitions to be moved: to the replicas of each, or nil to end the move of a
// partition that is under way. The answer has an error, or nil, for each.
func (c *Controller) Reassign(ctx context.Context, moves map[TopicPartition][]int32) (map[TopicPartition]error, error) {
	results := make(map[TopicPartition]error, len(moves))
	err := c.active(ctx, func() error {
		keys := map[at]struct{}{}
		for tp := range moves {
			keys[at{tp.Topic, tp.Partition}] = struct{}{}
		}
		for _, k := range sortedKeys(keys) {
			tp := TopicPartition{k.topic, k.n}
			s, err := c.state.reassign(k, moves[tp])
			if err == nil {
				if err = c.write(c.tree, s); err == nil {
					err = c.finishMoves(c.tree, []at{k})
				}
			}
			if errors.Is(err, ErrNotController) {
				return err
			}
			results[tp] = err
		}
		return nil
	})
	return results, err
}

// finishMoves ends the moves of those partitions that have come to their end.
func (c *Controller) finishMoves(t registry.Tree, keys []at) error {
	ended := false
	for _, k := range keys { // one after the other: they may be of one topic
		if s := c.state.finishMove(k); s != nil {
			if err := c.write(t, s); err != nil {
				return fmt.Errorf("end a reassignment: %w", err)
			}
			ended = ended || c.state.asked[k]
		}
	}
	if !ended {
		return nil
	}
	return c.writeMoves(t)
}

// moves are the partitions that are being moved.
func (c *cluster) moves() (keys []at) {
	c.all(func(k at, p *partition) {
		if p.moving() {
			keys = append(keys, k)
		}
	})
	return keys
}
