package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/coordinator/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetDelete forgets a group's offsets for partitions that exist and that no member reads
// (KIP-496). Version 0 alone.
func (s *API) offsetDelete(ctx context.Context, p *Peer, req *kmsg.OffsetDeleteRequest) (*kmsg.OffsetDeleteResponse, error) {
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	resp.Topics = []kmsg.OffsetDeleteResponseTopic{}
	if !s.allowed(p, auth.Delete, auth.Group, req.Group) {
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp, nil
	}
	pic := s.Meta.Load()
	type spot struct{ topic, partition int }
	var topics []group.FetchTopic
	var spots [][]spot
	all := make([]kmsg.OffsetDeleteResponseTopic, 0, len(req.Topics))
	for _, t := range req.Topics {
		if len(t.Partitions) == 0 {
			continue // as in offsetCommit
		}
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, 0, len(t.Partitions))
		allowed := s.allowed(p, auth.Read, auth.Topic, t.Topic)
		ft := group.FetchTopic{Name: t.Topic}
		var mine []spot
		for j, in := range t.Partitions {
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition = in.Partition
			switch {
			case !allowed:
				rp.ErrorCode = kerr.TopicAuthorizationFailed.Code
			case pic.Partition(t.Topic, in.Partition) == nil:
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			default:
				ft.Partitions = append(ft.Partitions, in.Partition)
				mine = append(mine, spot{len(all), j})
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		topics, spots = append(topics, ft), append(spots, mine)
		all = append(all, rt)
	}
	errs, err := s.Groups.DeleteOffsets(ctx, req.Group, topics)
	if err != nil {
		resp.ErrorCode = code(ctx, err)
		return resp, nil
	}
	for i, mine := range spots {
		for j, at := range mine {
			all[at.topic].Partitions[at.partition].ErrorCode = code(ctx, errs[i][j])
		}
	}
	resp.Topics = all
	return resp, nil
}
