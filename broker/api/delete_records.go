package api

import (
	"context"
	"time"

	"ottla/broker/auth"
	"ottla/broker/replica"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteRecords moves the start of logs.
//
// Versions: 0 to 2 differ in their encoding alone.
func (s *API) deleteRecords(ctx context.Context, p *Peer, req *kmsg.DeleteRecordsRequest) (*kmsg.DeleteRecordsResponse, func(context.Context) error, error) {
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, 0, len(req.Topics))
	type pending struct {
		rp   *kmsg.DeleteRecordsResponseTopicPartition
		wait func(context.Context) (int64, error)
	}
	var waits []pending
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, 0, len(t.Partitions))
		allowed := s.allowed(p, auth.Delete, auth.Topic, t.Topic)
		for j := range t.Partitions {
			rp := kmsg.NewDeleteRecordsResponseTopicPartition()
			rp.Partition, rp.LowWatermark = t.Partitions[j].Partition, -1
			rt.Partitions = append(rt.Partitions, rp)
			out := &rt.Partitions[len(rt.Partitions)-1]
			if !allowed {
				out.ErrorCode = kerr.TopicAuthorizationFailed.Code
				continue
			}
			low, wait, err := s.deleteRecordsOf(t.Topic, t.Partitions[j])
			if err != nil {
				out.ErrorCode = code(ctx, err)
				continue
			}
			out.LowWatermark = low
			if wait != nil {
				waits = append(waits, pending{out, wait})
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(waits) == 0 {
		return resp, nil, nil
	}
	deadline := time.Now().Add(time.Duration(req.TimeoutMillis) * time.Millisecond)
	return resp, func(ctx context.Context) error {
		limited, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		for _, w := range waits {
			low, err := w.wait(limited)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			w.rp.LowWatermark, w.rp.ErrorCode = low, code(ctx, err)
		}
		return nil
	}, nil
}

func (s *API) deleteRecordsOf(topic string, in kmsg.DeleteRecordsRequestTopicPartition) (int64, func(context.Context) (int64, error), error) {
	if s.Meta.Load().Partition(topic, in.Partition) == nil {
		return -1, nil, replica.ErrUnknownPartition
	}
	if internalTopic(topic) {
		return -1, nil, kerr.InvalidTopicException
	}
	part, err := s.Replicas.Leader(topic, in.Partition)
	if err != nil {
		return -1, nil, err
	}
	return part.DeleteRecords(in.Offset)
}
