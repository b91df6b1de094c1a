package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/broker/controller"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// createPartitions has the controller add partitions to topics.
func (s *API) createPartitions(ctx context.Context, p *Peer, req *kmsg.CreatePartitionsRequest) (*kmsg.CreatePartitionsResponse, error) {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	resp.Topics = make([]kmsg.CreatePartitionsResponseTopic, 0, len(req.Topics))
	times := make(map[string]int, len(req.Topics))
	for _, t := range req.Topics {
		times[t.Topic]++
	}
	var more []controller.MorePartitions
	var at []int
	for _, t := range req.Topics {
		n := times[t.Topic]
		if n == 0 {
			continue
		}
		times[t.Topic] = 0
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic = t.Topic
		if !s.allowed(p, auth.Alter, auth.Topic, t.Topic) {
			rt.ErrorCode = kerr.TopicAuthorizationFailed.Code
		} else if n > 1 {
			rt.ErrorCode, rt.ErrorMessage = kerr.InvalidRequest.Code, kmsg.StringPtr("Duplicate topic name.")
		} else {
			m := controller.MorePartitions{Name: t.Topic, Count: t.Count}
			for _, a := range t.Assignment {
				m.Assignment = append(m.Assignment, ints(a.Replicas))
			}
			more, at = append(more, m), append(at, len(resp.Topics))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	for i, r := range s.Control.CreatePartitions(ctx, more, req.ValidateOnly) {
		if r.Err != nil {
			resp.Topics[at[i]].ErrorCode, resp.Topics[at[i]].ErrorMessage = code(ctx, r.Err), message(r.Err)
		}
	}
	return resp, nil
}
