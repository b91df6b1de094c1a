package api

import (
	"context"

	"ottla/broker/controller"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterPartitionReassignments has the controller move partitions to other replicas, or end such moves
// (KIP-455).
//
// Versions: 1 allow_replication_factor_change.
func (s *API) alterPartitionReassignments(ctx context.Context, p *Peer, req *kmsg.AlterPartitionAssignmentsRequest) (*kmsg.AlterPartitionAssignmentsResponse, error) {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	resp.Topics = make([]kmsg.AlterPartitionAssignmentsResponseTopic, 0, len(req.Topics))
	moves, refused := map[controller.TopicPartition][]int32{}, map[controller.TopicPartition]error{}
	pic := s.Meta.Load()
	for i := range req.Topics {
		for _, in := range req.Topics[i].Partitions {
			tp := controller.TopicPartition{Topic: req.Topics[i].Topic, Partition: in.Partition}
			if known := pic.Partition(tp.Topic, tp.Partition); req.Version >= 1 && !req.AllowReplicationFactorChange && in.Replicas != nil && known != nil &&
				len(in.Replicas) != len(known.Replicas)-len(known.Adding) {
				refused[tp] = refuse(kerr.InvalidReplicationFactor, "The replication factor is changed from %d to %d", len(known.Replicas)-len(known.Adding), len(in.Replicas))
				continue
			}
			moves[tp] = in.Replicas
		}
	}
	results, err := s.Control.Reassign(ctx, moves)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = code(ctx, err), message(err)
		return resp, nil
	}
	for i := range req.Topics {
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = req.Topics[i].Topic
		for _, in := range req.Topics[i].Partitions {
			tp := controller.TopicPartition{Topic: rt.Topic, Partition: in.Partition}
			rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			rp.Partition = in.Partition
			err := refused[tp]
			if err == nil {
				err = results[tp]
			}
			if err != nil {
				rp.ErrorCode, rp.ErrorMessage = code(ctx, err), message(err)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}
