package api

import (
	"context"
	"fmt"
	"slices"

	"ottla/broker/auth"
	"ottla/broker/controller"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeTopicPartitions pages through topics and their partitions (KIP-966), topics in order of
// their names, at most max.request.partition.size.limit partitions an answer. A cursor that is not
// among the topics asked for is refused; Kafka's answer to that has the code in every topic.
func (s *API) describeTopicPartitions(ctx context.Context, p *Peer, req *kmsg.DescribeTopicPartitionsRequest) (*kmsg.DescribeTopicPartitionsResponse, error) {
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	resp.Topics = []kmsg.DescribeTopicPartitionsResponseTopic{}
	pic := s.Meta.Load()

	from, first := "", int32(0)
	if req.Cursor != nil {
		from, first = req.Cursor.Topic, req.Cursor.Partition
	}
	all := len(req.Topics) == 0
	var names []string
	if all {
		for name := range pic.Topics {
			names = append(names, name)
		}
	} else {
		for _, t := range req.Topics {
			names = append(names, t.Topic)
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n < from })
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor != nil && (first < 0 || !all && !slices.Contains(names, from)) {
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, describedTopic(t.Topic, kerr.InvalidRequest.Code))
		}
		return resp, nil
	}

	left := max(1, min(int(s.Config.Broker().MaxRequestPartitionSizeLimit), int(req.ResponsePartitionLimit)))
	next := func(topic string, partition int) {
		c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
		c.Topic, c.Partition = topic, int32(partition)
		resp.NextCursor = &c
	}
	for _, name := range names {
		t := pic.Topics[name]
		if !s.allowed(p, auth.Describe, auth.Topic, name) {
			if !all {
				resp.Topics = append(resp.Topics, describedTopic(name, kerr.TopicAuthorizationFailed.Code))
			}
			continue
		}
		if t == nil {
			if !all {
				why := error(fmt.Errorf("%w: %s", controller.ErrUnknownTopicOrPartition, name))
				if err := controller.CheckTopicName(name); err != nil {
					why = err
				}
				resp.Topics = append(resp.Topics, describedTopic(name, code(ctx, why)))
			}
			continue
		}
		if left == 0 {
			next(name, 0)
			break
		}
		rt := describedTopic(name, 0)
		rt.TopicID = t.ID
		rt.AuthorizedOperations = s.authorizedOperations(p, auth.Topic, name)
		n := 0
		if name == from {
			n = int(first)
		}
		for ; n < len(t.Partitions) && left > 0; n++ {
			part := &t.Partitions[n]
			rp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
			rp.Partition = int32(n)
			rp.LeaderID, rp.LeaderEpoch = part.Leader, part.LeaderEpoch
			rp.ErrorCode = leaderCode(p, pic, part, true)
			if rp.ErrorCode != 0 {
				rp.LeaderID = -1
			}
			rp.Replicas, rp.ISR = ints(part.Replicas), ints(part.ISR)
			rp.OfflineReplicas = offlineReplicas(p, pic, part)
			rp.EligibleLeaderReplicas, rp.LastKnownELR = []int32{}, []int32{}
			rt.Partitions = append(rt.Partitions, rp)
			left--
		}
		resp.Topics = append(resp.Topics, rt)
		if n < len(t.Partitions) {
			next(name, n)
			break
		}
	}
	return resp, nil
}

func describedTopic(name string, code int16) kmsg.DescribeTopicPartitionsResponseTopic {
	rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
	rt.Topic, rt.ErrorCode, rt.IsInternal = &name, code, internalTopic(name)
	rt.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	return rt
}
