package api

import (
	"context"

	"ottla/broker/controller"
	"ottla/broker/metadata"
	"ottla/compat"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// updateMetadata takes over the picture of the cluster that clients are told.
//
// Versions: 1 several endpoints a broker; 2 racks; 3 listener names; 4 offline replicas; 5 broker
// epochs, partitions by topic; 7 topic ids; 8 isKRaftController, which is not looked at.
func (s *API) updateMetadata(ctx context.Context, p *Peer, req *kmsg.UpdateMetadataRequest) (*kmsg.UpdateMetadataResponse, error) {
	r := &controller.UpdateMetadata{Fence: fence(req.ControllerID, req.ControllerEpoch, req.BrokerEpoch, req.Version >= 5)}
	add := func(topic string, id [16]byte, in *kmsg.UpdateMetadataRequestTopicPartition) {
		r.Partitions = append(r.Partitions, controller.PartitionState{
			Topic: topic, ID: id, Partition: in.Partition, ControllerEpoch: in.ControllerEpoch,
			Leader: in.Leader, LeaderEpoch: in.LeaderEpoch, ISR: in.ISR, Replicas: in.Replicas,
			Offline: in.OfflineReplicas, PartitionEpoch: in.ZKVersion,
		})
	}
	for i := range req.PartitionStates {
		add(req.PartitionStates[i].Topic, [16]byte{}, &req.PartitionStates[i])
	}
	for i := range req.TopicStates {
		t := &req.TopicStates[i]
		for j := range t.PartitionStates {
			add(t.Topic, t.TopicID, &t.PartitionStates[j])
		}
	}
	for i := range req.LiveBrokers {
		in := &req.LiveBrokers[i]
		b := metadata.Broker{ID: in.ID, Epoch: -1}
		if in.Rack != nil {
			b.Rack = *in.Rack
		}
		if req.Version == 0 {
			b.Endpoints = []metadata.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: in.Host, Port: in.Port}}
		}
		for _, e := range in.Endpoints {
			protocol := ""
			if n := e.SecurityProtocol; n >= 0 && int(n) < len(compat.SecurityProtocols) {
				protocol = compat.SecurityProtocols[n]
			}
			if req.Version < 3 {
				e.ListenerName = protocol
			}
			b.Endpoints = append(b.Endpoints, metadata.Endpoint{Listener: e.ListenerName, Protocol: protocol, Host: e.Host, Port: e.Port})
		}
		r.Brokers = append(r.Brokers, b)
	}
	resp := req.ResponseKind().(*kmsg.UpdateMetadataResponse)
	resp.ErrorCode = code(ctx, s.Own.UpdateMetadata(ctx, r))
	return resp, nil
}
