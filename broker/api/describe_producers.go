package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/broker/controller"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeProducers lists the producers that partitions know (KIP-664).
func (s *API) describeProducers(ctx context.Context, p *Peer, req *kmsg.DescribeProducersRequest) (*kmsg.DescribeProducersResponse, error) {
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	resp.Topics = make([]kmsg.DescribeProducersResponseTopic, 0, len(req.Topics))
	pic := s.Meta.Load()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.DescribeProducersResponseTopicPartition, 0, len(t.Partitions))
		allowed := s.allowed(p, auth.Read, auth.Topic, t.Topic)
		for _, n := range t.Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = n
			rp.ActiveProducers = []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{}
			switch invalid := controller.CheckTopicName(t.Topic); {
			case invalid != nil:
				rp.ErrorCode, rp.ErrorMessage = code(ctx, invalid), message(invalid)
			case !allowed:
				rp.ErrorCode = kerr.TopicAuthorizationFailed.Code
			case pic.Topics[t.Topic] == nil:
				rp.ErrorCode, rp.ErrorMessage = kerr.UnknownTopicOrPartition.Code, kmsg.StringPtr(kerr.UnknownTopicOrPartition.Description)
			default:
				if err := s.producersOf(t.Topic, n, &rp); err != nil {
					rp.ErrorCode = code(ctx, err)
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (s *API) producersOf(topic string, n int32, out *kmsg.DescribeProducersResponseTopicPartition) error {
	part, err := s.Replicas.Partition(topic, n)
	if err != nil {
		return err
	}
	l, err := part.Local(-1, false)
	if err != nil {
		return err
	}
	for _, had := range l.Producers() {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch = had.ID, int32(had.Epoch)
		a.LastSequence, a.LastTimestamp = had.LastSequence, had.LastTimestamp
		a.CoordinatorEpoch, a.CurrentTxnStartOffset = had.CoordinatorEpoch, had.TxnStart
		out.ActiveProducers = append(out.ActiveProducers, a)
	}
	return nil
}
