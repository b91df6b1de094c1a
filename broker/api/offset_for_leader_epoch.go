package api

import (
	"context"

	"ottla/broker/auth"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetForLeaderEpoch tells where leader epochs end, so that consumers and followers find out
// whether records they have were truncated (KIP-101, KIP-320).
//
// Versions: 1 the epoch that was found; 2 the current leader epoch is checked; 3 replica id.
func (s *API) offsetForLeaderEpoch(ctx context.Context, p *Peer, req *kmsg.OffsetForLeaderEpochRequest) (*kmsg.OffsetForLeaderEpochResponse, error) {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	resp.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, 0, len(req.Topics))
	cluster := req.Version < 3 || req.ReplicaID >= 0 // followers, and clients that do not say what they are
	trusted := cluster && s.allowed(p, auth.ClusterAction, auth.Cluster, auth.ClusterName)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, 0, len(t.Partitions))
		allowed := trusted || s.allowed(p, auth.Describe, auth.Topic, t.Topic)
		for _, in := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = in.Partition, -1, -1
			if !allowed {
				rp.ErrorCode = kerr.TopicAuthorizationFailed.Code
			} else if err := s.epochEnd(t.Topic, in, &rp); err != nil {
				rp.ErrorCode = code(ctx, err)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (s *API) epochEnd(topic string, in kmsg.OffsetForLeaderEpochRequestTopicPartition, out *kmsg.OffsetForLeaderEpochResponseTopicPartition) error {
	part, err := s.Replicas.Partition(topic, in.Partition)
	if err != nil {
		return err
	}
	out.LeaderEpoch, out.EndOffset, err = part.EpochEnd(in.CurrentLeaderEpoch, in.LeaderEpoch, true)
	return err
}
