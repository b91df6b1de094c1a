package remote

import (
	"context"
	"slices"
	"strconv"

	"ottla/broker/controller"
	"ottla/broker/metadata"
	"ottla/broker/peer"
	"ottla/compat"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions of the requests between brokers at inter.broker.protocol.version 3.9.
const (
	versionLeaderAndIsr       = 7
	versionUpdateMetadata     = 8
	versionStopReplica        = 3 // as 4, whose fields kmsg writes in another order than Kafka reads them
	versionControlledShutdown = 3
	versionAlterPartition     = 3
	versionFetch              = 17
	versionListOffsets        = 9
	versionCreateTopics       = 7
)

// controlled is what a broker's codes mean to the controller.
var controlled = meaning{
	{kerr.KafkaStorageError, controller.ErrReplicaStorage},
	{kerr.StaleBrokerEpoch, controller.ErrStaleBrokerEpoch},
	{kerr.StaleControllerEpoch, controller.ErrStaleControllerEpoch},
	{kerr.FencedLeaderEpoch, controller.ErrFencedLeaderEpoch},
}

// Controlled is a broker as the controller reaches it. It implements controller.Line.
type Controlled struct {
	c        *peer.Client
	listener string
}

// Control makes the way of a controller to a broker, which is where its registration says.
func (o Options) Control(b metadata.Broker) *Controlled {
	o.Book.Know([]metadata.Broker{b})
	return &Controlled{o.client(b.ID, strconv.Itoa(int(o.Self))), o.Book.listener}
}

// Close ends it.
func (r *Controlled) Close() { r.c.Close() }

// LeaderAndIsr implements controller.Broker.
func (r *Controlled) LeaderAndIsr(ctx context.Context, q *controller.LeaderAndIsr) ([]controller.PartitionError, error) {
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.Version = versionLeaderAndIsr
	req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = q.ControllerID, q.ControllerEpoch, q.BrokerEpoch
	names := map[[16]byte]string{}
	for i := range q.Partitions {
		s := &q.Partitions[i]
		if n := len(req.TopicStates); n == 0 || req.TopicStates[n-1].Topic != s.Topic {
			t := kmsg.NewLeaderAndISRRequestTopicState()
			t.Topic, t.TopicID = s.Topic, s.ID
			req.TopicStates = append(req.TopicStates, t)
			names[s.ID] = s.Topic
		}
		t := &req.TopicStates[len(req.TopicStates)-1]
		p := kmsg.NewLeaderAndISRRequestTopicPartition()
		p.Partition, p.ControllerEpoch, p.Leader, p.LeaderEpoch = s.Partition, s.ControllerEpoch, s.Leader, s.LeaderEpoch
		p.ISR, p.ZKVersion, p.Replicas, p.AddingReplicas, p.RemovingReplicas = s.ISR, s.PartitionEpoch, s.Replicas, s.Adding, s.Removing
		p.IsNew, p.LeaderRecoveryState = s.New, s.Recovery
		t.PartitionStates = append(t.PartitionStates, p)
	}
	for i := range q.Leaders {
		if e, ok := q.Leaders[i].Endpoint(r.listener); ok {
			l := kmsg.NewLeaderAndISRRequestLiveLeader()
			l.BrokerID, l.Host, l.Port = q.Leaders[i].ID, e.Host, e.Port
			req.LiveLeaders = append(req.LiveLeaders, l)
		}
	}
	resp, err := do[*kmsg.LeaderAndISRResponse](ctx, r.c, req)
	if err != nil {
		return nil, err
	}
	if err := controlled.of(resp.ErrorCode); err != nil {
		return nil, err
	}
	var failed []controller.PartitionError
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := controlled.of(p.ErrorCode); err != nil {
				failed = append(failed, controller.PartitionError{Topic: names[t.TopicID], Partition: p.Partition, Err: err})
			}
		}
	}
	return failed, nil
}

// UpdateMetadata implements controller.Broker.
func (r *Controlled) UpdateMetadata(ctx context.Context, q *controller.UpdateMetadata) error {
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.Version = versionUpdateMetadata
	req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = q.ControllerID, q.ControllerEpoch, q.BrokerEpoch
	for i := range q.Partitions {
		s := &q.Partitions[i]
		if n := len(req.TopicStates); n == 0 || req.TopicStates[n-1].Topic != s.Topic {
			t := kmsg.NewUpdateMetadataRequestTopicState()
			t.Topic, t.TopicID = s.Topic, s.ID
			req.TopicStates = append(req.TopicStates, t)
		}
		t := &req.TopicStates[len(req.TopicStates)-1]
		p := kmsg.NewUpdateMetadataRequestTopicPartition()
		p.Partition, p.ControllerEpoch, p.Leader, p.LeaderEpoch = s.Partition, s.ControllerEpoch, s.Leader, s.LeaderEpoch
		p.ISR, p.ZKVersion, p.Replicas, p.OfflineReplicas = s.ISR, s.PartitionEpoch, s.Replicas, s.Offline
		t.PartitionStates = append(t.PartitionStates, p)
	}
	for i := range q.Brokers {
		b := &q.Brokers[i]
		l := kmsg.NewUpdateMetadataRequestLiveBroker()
		l.ID = b.ID
		if b.Rack != "" {
			l.Rack = kmsg.StringPtr(b.Rack)
		}
		for _, e := range b.Endpoints {
			x := kmsg.NewUpdateMetadataRequestLiveBrokerEndpoint()
			x.Host, x.Port, x.ListenerName = e.Host, e.Port, e.Listener
			if n := slices.Index(compat.SecurityProtocols[:], e.Protocol); n >= 0 {
				x.SecurityProtocol = int16(n)
			}
			l.Endpoints = append(l.Endpoints, x)
		}
		req.LiveBrokers = append(req.LiveBrokers, l)
	}
	resp, err := do[*kmsg.UpdateMetadataResponse](ctx, r.c, req)
	if err != nil {
		return err
	}
	return controlled.of(resp.ErrorCode)
}

// StopReplica implements controller.Broker.
func (r *Controlled) StopReplica(ctx context.Context, q *controller.StopReplica) ([]controller.PartitionError, error) {
	req := kmsg.NewPtrStopReplicaRequest()
	req.Version = versionStopReplica
	req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = q.ControllerID, q.ControllerEpoch, q.BrokerEpoch
	for _, s := range q.Partitions {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != s.Topic {
			t := kmsg.NewStopReplicaRequestTopic()
			t.Topic = s.Topic
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		p := kmsg.NewStopReplicaRequestTopicPartitionState()
		p.Partition, p.LeaderEpoch, p.Delete = s.Partition, s.LeaderEpoch, s.Delete
		t.PartitionStates = append(t.PartitionStates, p)
	}
	resp, err := do[*kmsg.StopReplicaResponse](ctx, r.c, req)
	if err != nil {
		return nil, err
	}
	if err := controlled.of(resp.ErrorCode); err != nil {
		return nil, err
	}
	var failed []controller.PartitionError
	for _, p := range resp.Partitions {
		if err := controlled.of(p.ErrorCode); err != nil {
			failed = append(failed, controller.PartitionError{Topic: p.Topic, Partition: p.Partition, Err: err})
		}
	}
	return failed, nil
}
