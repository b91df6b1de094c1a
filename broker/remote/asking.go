package remote

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"ottla/broker/controller"
	"ottla/broker/peer"
	"ottla/broker/replica"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// altered is what the controller's codes mean to a leader that asks for another in-sync set.
var altered = meaning{
	{kerr.IneligibleReplica, replica.ErrNotEligible},
	{kerr.OperationNotAttempted, replica.ErrNotEligible},
	{kerr.FencedLeaderEpoch, replica.ErrFencedEpoch},
	{kerr.InvalidUpdateVersion, replica.ErrSuperseded},
	{kerr.InvalidRequest, replica.ErrSuperseded},
	{kerr.NewLeaderElected, replica.ErrSuperseded},
	{kerr.UnknownTopicOrPartition, replica.ErrUnknownPartition},
	{kerr.UnknownTopicID, replica.ErrUnknownPartition},
	{kerr.NotController, controller.ErrNotController},
	{kerr.StaleBrokerEpoch, controller.ErrStaleBrokerEpoch},
	{kerr.BrokerNotAvailable, controller.ErrBrokerNotAvailable},
	{kerr.TopicAlreadyExists, controller.ErrTopicExists},
	{kerr.InvalidTopicException, controller.ErrInvalidTopic},
	{kerr.InvalidReplicationFactor, controller.ErrInvalidReplicationFactor},
	{kerr.InvalidPartitions, controller.ErrInvalidPartitions},
	{kerr.RequestTimedOut, controller.ErrTimedOut},
}

// Controller is the controller as other brokers reach it: whichever it is at the moment. Requests go
// one after the other.
type Controller struct {
	o  Options
	id func() int32

	mu sync.Mutex
	to int32        // guarded by mu
	c  *peer.Client // guarded by mu
}

// Controller makes the way to the controller; id says who it is, below 0: nobody.
func (o Options) Controller(id func() int32) *Controller { return &Controller{o: o, id: id, to: -1} }

// Close ends it.
func (r *Controller) Close() {
	r.mu.Lock()
	c := r.c
	r.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// Turn ends a request to a broker that is the controller no more: it may stand still, and is not
// waited for.
func (r *Controller) Turn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c != nil && r.to != r.id() {
		r.c.End()
		r.c = nil
	}
}

func (r *Controller) client() (*peer.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.id()
	if id < 0 {
		return nil, fmt.Errorf("%w: there is none", controller.ErrNotController)
	}
	if r.c == nil || r.to != id {
		if r.c != nil {
			r.c.End()
		}
		r.to, r.c = id, r.o.client(id, strconv.Itoa(int(r.o.Self)))
	}
	return r.c, nil
}

// AlterISR asks for other in-sync sets, as replica.Options.AlterISR.
func (r *Controller) AlterISR(ctx context.Context, epoch int64, changes []replica.ISRChange) ([]replica.ISRResult, error) {
	c, err := r.client()
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = versionAlterPartition, r.o.Self, epoch
	topics := map[[16]byte]int{}
	places := map[topicPartition]int{}
	for i := range changes {
		ch := &changes[i]
		at, ok := topics[ch.ID]
		if !ok {
			at = len(req.Topics)
			topics[ch.ID] = at
			t := kmsg.NewAlterPartitionRequestTopic()
			t.TopicID = ch.ID
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewAlterPartitionRequestTopicPartition()
		p.Partition, p.LeaderEpoch, p.PartitionEpoch = ch.Partition, ch.LeaderEpoch, ch.PartitionEpoch
		for _, id := range ch.ISR {
			e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			e.BrokerID, e.BrokerEpoch = id, -1
			p.NewEpochISR = append(p.NewEpochISR, e)
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, p)
		places[topicPartition{ch.ID, ch.Partition}] = i
	}
	resp, err := do[*kmsg.AlterPartitionResponse](ctx, c, req)
	if err != nil {
		return nil, err
	}
	if err := altered.of(resp.ErrorCode); err != nil {
		return nil, err
	}
	results := make([]replica.ISRResult, len(changes))
	for i := range results {
		results[i].Err = fmt.Errorf("%w: the partition is not in it", peer.ErrAnswer)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if i, ok := places[topicPartition{t.TopidID, p.Partition}]; ok {
				results[i] = replica.ISRResult{LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, ISR: p.ISR, Err: altered.of(p.ErrorCode)}
			}
		}
	}
	return results, nil
}

type topicPartition struct {
	id [16]byte
	n  int32
}

// ControlledShutdown asks to be relieved of all that this broker leads, and says how many partitions
// it still has to.
func (r *Controller) ControlledShutdown(ctx context.Context, epoch int64) (left int, err error) {
	c, err := r.client()
	if err != nil {
		return 0, err
	}
	req := kmsg.NewPtrControlledShutdownRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = versionControlledShutdown, r.o.Self, epoch
	resp, err := do[*kmsg.ControlledShutdownResponse](ctx, c, req)
	if err != nil {
		return 0, err
	}
	return len(resp.PartitionsRemaining), altered.of(resp.ErrorCode)
}

// CreateTopic has the controller create a topic, with its default assignment.
func (r *Controller) CreateTopic(ctx context.Context, nt controller.NewTopic) error {
	c, err := r.client()
	if err != nil {
		return err
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = versionCreateTopics
	req.TimeoutMillis = int32(r.timeout() / time.Millisecond)
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = nt.Name, nt.Partitions, nt.Replication
	for name, value := range nt.Configs {
		x := kmsg.NewCreateTopicsRequestTopicConfig()
		x.Name, x.Value = name, kmsg.StringPtr(value)
		t.Configs = append(t.Configs, x)
	}
	req.Topics = append(req.Topics, t)
	resp, err := do[*kmsg.CreateTopicsResponse](ctx, c, req)
	if err != nil {
		return fmt.Errorf("%w: %w", controller.ErrTimedOut, err)
	}
	for _, t := range resp.Topics {
		if t.Topic == nt.Name {
			err := altered.of(t.ErrorCode)
			if err != nil && t.ErrorMessage != nil {
				err = fmt.Errorf("%w: %s", err, *t.ErrorMessage)
			}
			return err
		}
	}
	return fmt.Errorf("%w: CreateTopics without %s", peer.ErrAnswer, nt.Name)
}

func (r *Controller) timeout() time.Duration {
	if r.o.Timeout > 0 {
		return r.o.Timeout
	}
	return peer.AnswerTimeout
}
