package api

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// listPartitionReassignments tells which partitions have replicas being added or removed
// (KIP-455): of those named, or of all.
func (s *API) listPartitionReassignments(ctx context.Context, p *Peer, req *kmsg.ListPartitionReassignmentsRequest) (*kmsg.ListPartitionReassignmentsResponse, error) {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	resp.Topics = []kmsg.ListPartitionReassignmentsResponseTopic{}
	pic := s.Meta.Load()
	add := func(topic string, numbers []int32) {
		rt := kmsg.NewListPartitionReassignmentsResponseTopic()
		rt.Topic = topic
		for _, n := range numbers {
			part := pic.Partition(topic, n)
			if part == nil || len(part.Adding) == 0 && len(part.Removing) == 0 {
				continue
			}
			rp := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			rp.Partition, rp.Replicas = n, ints(part.Replicas)
			rp.AddingReplicas, rp.RemovingReplicas = ints(part.Adding), ints(part.Removing)
			rt.Partitions = append(rt.Partitions, rp)
		}
		if len(rt.Partitions) > 0 {
			resp.Topics = append(resp.Topics, rt)
		}
	}
	if req.Topics == nil {
		for _, name := range slices.Sorted(maps.Keys(pic.Topics)) {
			numbers := make([]int32, len(pic.Topics[name].Partitions))
			for i := range numbers {
				numbers[i] = int32(i)
			}
			add(name, numbers)
		}
		return resp, nil
	}
	for _, t := range req.Topics {
		add(t.Topic, t.Partitions)
	}
	return resp, nil
}
