package api

import (
	"context"

	"ottla/broker/controller"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// stopReplica ends replicas of this broker, and deletes those that the controller says.
//
// Versions: 1 broker epochs, partitions by topic; 3 leader epochs, deletion by partition; 4
// isKRaftController, which is not looked at.
func (s *API) stopReplica(ctx context.Context, p *Peer, req *kmsg.StopReplicaRequest) (*kmsg.StopReplicaResponse, error) {
	r := &controller.StopReplica{Fence: fence(req.ControllerID, req.ControllerEpoch, req.BrokerEpoch, req.Version >= 1)}
	for i := range req.Topics {
		t := &req.Topics[i]
		switch {
		case req.Version == 0:
			r.Partitions = append(r.Partitions, controller.StopPartition{Topic: t.Topic, Partition: t.Partition, LeaderEpoch: -1, Delete: req.DeletePartitions})
		case req.Version < 3:
			for _, n := range t.Partitions {
				r.Partitions = append(r.Partitions, controller.StopPartition{Topic: t.Topic, Partition: n, LeaderEpoch: -1, Delete: req.DeletePartitions})
			}
		default:
			for _, in := range t.PartitionStates {
				r.Partitions = append(r.Partitions, controller.StopPartition{Topic: t.Topic, Partition: in.Partition, LeaderEpoch: in.LeaderEpoch, Delete: in.Delete})
			}
		}
	}
	resp := req.ResponseKind().(*kmsg.StopReplicaResponse)
	failed, err := s.Own.StopReplica(ctx, r)
	if err != nil {
		resp.ErrorCode = code(ctx, err)
		return resp, nil
	}
	codes := codesOf(ctx, failed)
	for _, in := range r.Partitions {
		out := kmsg.NewStopReplicaResponsePartition()
		out.Topic, out.Partition, out.ErrorCode = in.Topic, in.Partition, codes[controller.TopicPartition{Topic: in.Topic, Partition: in.Partition}]
		resp.Partitions = append(resp.Partitions, out)
	}
	return resp, nil
}
