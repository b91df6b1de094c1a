package api

import (
	"context"

	"ottla/broker/controller"
	"ottla/broker/metadata"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaderAndIsr takes over what the controller says of this broker's replicas.
//
// Versions: 1 isNew; 2 broker epochs, partitions by topic; 3 adding and removing replicas; 5 topic
// ids, also in the answer; 6 leader_recovery_state; 7 isKRaftController, which is not looked at.
func (s *API) leaderAndIsr(ctx context.Context, p *Peer, req *kmsg.LeaderAndISRRequest) (*kmsg.LeaderAndISRResponse, error) {
	r := &controller.LeaderAndIsr{Fence: fence(req.ControllerID, req.ControllerEpoch, req.BrokerEpoch, req.Version >= 2)}
	add := func(topic string, id [16]byte, in *kmsg.LeaderAndISRRequestTopicPartition) {
		r.Partitions = append(r.Partitions, controller.PartitionState{
			Topic: topic, ID: id, Partition: in.Partition, ControllerEpoch: in.ControllerEpoch,
			Leader: in.Leader, LeaderEpoch: in.LeaderEpoch, ISR: in.ISR, Replicas: in.Replicas,
			Adding: in.AddingReplicas, Removing: in.RemovingReplicas, PartitionEpoch: in.ZKVersion, New: in.IsNew, Recovery: in.LeaderRecoveryState,
		})
	}
	for i := range req.PartitionStates {
		add(req.PartitionStates[i].Topic, [16]byte{}, &req.PartitionStates[i])
	}
	for i := range req.TopicStates {
		t := &req.TopicStates[i]
		for j := range t.PartitionStates {
			add(t.Topic, t.TopicID, &t.PartitionStates[j])
		}
	}
	for i := range req.LiveLeaders {
		l := &req.LiveLeaders[i]
		r.Leaders = append(r.Leaders, metadata.Broker{ID: l.BrokerID, Endpoints: []metadata.Endpoint{{Listener: s.Config.Broker().InterBrokerListener, Host: l.Host, Port: l.Port}}})
	}
	resp := req.ResponseKind().(*kmsg.LeaderAndISRResponse)
	failed, err := s.Own.LeaderAndIsr(ctx, r)
	if err != nil {
		resp.ErrorCode = code(ctx, err)
		return resp, nil
	}
	codes := codesOf(ctx, failed)
	for i := range r.Partitions {
		in := &r.Partitions[i]
		out := kmsg.NewLeaderAndISRResponseTopicPartition()
		out.Topic, out.Partition, out.ErrorCode = in.Topic, in.Partition, codes[controller.TopicPartition{Topic: in.Topic, Partition: in.Partition}]
		if req.Version < 5 {
			resp.Partitions = append(resp.Partitions, out)
			continue
		}
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].TopicID != in.ID {
			t := kmsg.NewLeaderAndISRResponseTopic()
			t.TopicID = in.ID
			resp.Topics = append(resp.Topics, t)
		}
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, out)
	}
	return resp, nil
}

// fence is what a request of a controller is judged by. knows says that its version has the broker's epoch.
func fence(id, controllerEpoch int32, brokerEpoch int64, knows bool) controller.Fence {
	if !knows {
		brokerEpoch = -1
	}
	return controller.Fence{ControllerID: id, ControllerEpoch: controllerEpoch, BrokerEpoch: brokerEpoch}
}

// codesOf are the codes of those partitions that failed.
func codesOf(ctx context.Context, failed []controller.PartitionError) map[controller.TopicPartition]int16 {
	codes := map[controller.TopicPartition]int16{}
	for _, f := range failed {
		codes[controller.TopicPartition{Topic: f.Topic, Partition: f.Partition}] = code(ctx, f.Err)
	}
	return codes
}
