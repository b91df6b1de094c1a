package api

import (
	"context"

	"ottla/broker/controller"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterPartition has the controller change in-sync sets, as their leaders ask for it.
//
// Versions: 1 leader_recovery_state; 2 topic ids; 3 the epochs of the brokers in the set, which a
// controller on ZooKeeper does not compare (KIP-903).
func (s *API) alterPartition(ctx context.Context, p *Peer, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	var changes []controller.ISRChange
	pic := s.Meta.Load()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewAlterPartitionResponseTopic()
		rt.Topic, rt.TopidID = t.Topic, t.TopicID
		name, missing := t.Topic, controller.ErrUnknownTopicOrPartition
		if req.Version >= 2 {
			name, missing = "", controller.ErrUnknownTopicID
			if known := pic.ByID[t.TopicID]; known != nil {
				name = known.Name
			}
		}
		for j := range t.Partitions {
			in := &t.Partitions[j]
			out := kmsg.NewAlterPartitionResponseTopicPartition()
			out.Partition = in.Partition
			if name == "" {
				out.ErrorCode = code(ctx, missing)
			} else {
				ch := controller.ISRChange{Topic: name, Partition: in.Partition, LeaderEpoch: in.LeaderEpoch, PartitionEpoch: in.PartitionEpoch, ISR: in.NewISR, Recovery: in.LeaderRecoveryState}
				for _, e := range in.NewEpochISR {
					ch.ISR = append(ch.ISR, e.BrokerID)
				}
				changes = append(changes, ch)
			}
			rt.Partitions = append(rt.Partitions, out)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	results, err := s.Control.AlterPartition(ctx, req.BrokerID, req.BrokerEpoch, changes)
	if err != nil {
		resp.ErrorCode, resp.Topics = code(ctx, err), []kmsg.AlterPartitionResponseTopic{}
		return resp, nil
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			out := &resp.Topics[i].Partitions[j]
			if out.ErrorCode != 0 {
				continue
			}
			r := &results[0]
			results = results[1:]
			out.ErrorCode = code(ctx, r.Err)
			if r.Err == nil {
				out.LeaderID, out.LeaderEpoch, out.PartitionEpoch = r.Leader, r.LeaderEpoch, r.PartitionEpoch
				out.ISR, out.LeaderRecoveryState = ints(r.ISR), r.Recovery
			}
		}
	}
	return resp, nil
}
