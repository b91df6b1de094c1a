package group

import (
	"context"

	"ottla/coordinator"
)

// ConsumerDescribed is one group of ConsumerGroupDescribe.
type ConsumerDescribed struct {
	Group, State, Assignor string
	Epoch, TargetEpoch     int32
	Members                []ConsumerDescribedMember // by id
}

// ConsumerDescribedMember is one member of a ConsumerDescribed.
type ConsumerDescribedMember struct {
	ID, Pattern      string
	Instance, Rack   *string
	Client           Client
	Epoch            int32
	Classic          bool // it speaks the classic protocol
	Topics           []string
	Assigned, Target Assignment
}

// DescribeConsumer answers with a ConsumerDescribed, ErrGroupNotFound or ErrNotConsumerGroup.
func (m *Machine) DescribeConsumer(id string, to *coordinator.Ticket) coordinator.Effects {
	g := m.groups[id]
	switch {
	case g == nil:
		return reply(to, nil, notFound(id))
	case g.consumer == nil:
		return reply(to, nil, notConsumer(id))
	}
	c := g.consumer
	s := newStep(id, c, m.options(), c.seen, coordinator.Instant{})
	d := ConsumerDescribed{Group: id, State: c.state(), Assignor: s.assignorName(), Epoch: c.epoch, TargetEpoch: c.targetAt}
	for _, mb := range c.sorted() {
		d.Members = append(d.Members, ConsumerDescribedMember{ID: mb.id, Pattern: mb.pattern(), Instance: mb.instance, Rack: mb.rack,
			Client: mb.client, Epoch: mb.epoch, Classic: mb.classic != nil, Topics: mb.topics,
			Assigned: mb.has(), Target: c.targets[mb.id]})
	}
	return reply(to, d, nil)
}

// has is what the member may still have: its partitions, and those that it has been told to give back.
func (m *consumerMember) has() Assignment {
	if len(m.revoking) == 0 {
		return m.assigned
	}
	all := Assignment{}
	for _, some := range []Assignment{m.assigned, m.revoking} {
		for id, partitions := range some {
			for _, p := range partitions {
				all.add(id, p)
			}
		}
	}
	return all
}

// ConsumerHeartbeat lets a member of a consumer group join, go on or leave.
func (c *Coordinator) ConsumerHeartbeat(ctx context.Context, r ConsumerHeartbeatRequest) (ConsumerHeartbeatAnswer, error) {
	r.NewMemberID = memberID()
	return do[ConsumerHeartbeatAnswer](ctx, c, c.PartitionFor(r.Group), 0,
		func(m *Machine, now coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.ConsumerHeartbeat(now, r, to)
		})
}

// DescribeConsumer returns one consumer group.
func (c *Coordinator) DescribeConsumer(ctx context.Context, id string) (ConsumerDescribed, error) {
	return do[ConsumerDescribed](ctx, c, c.PartitionFor(id), 0,
		func(m *Machine, _ coordinator.Instant, to *coordinator.Ticket) coordinator.Effects {
			return m.DescribeConsumer(id, to)
		})
}
