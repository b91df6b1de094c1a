package api

import (
	"context"
	"iter"
	"maps"
	"slices"

	"ottla/broker/auth"
	"ottla/broker/metadata"
	"ottla/compat"
	"ottla/coordinator/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerGroupHeartbeat lets a member of a consumer group join, go on or leave (KIP-848).
//
// Versions: 1 regular expressions, and members that choose their ids.
func (s *API) consumerGroupHeartbeat(ctx context.Context, p *Peer, req *kmsg.ConsumerGroupHeartbeatRequest) (*kmsg.ConsumerGroupHeartbeatResponse, error) {
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	switch {
	case !s.consumerGroups():
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		return resp, nil
	case !s.allowed(p, auth.Read, auth.Group, req.Group):
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp, nil
	}
	for _, t := range req.SubscribedTopicNames {
		if !s.allowed(p, auth.Describe, auth.Topic, t) {
			resp.ErrorCode = kerr.TopicAuthorizationFailed.Code
			return resp, nil
		}
	}
	r := group.ConsumerHeartbeatRequest{
		Group: req.Group, MemberID: req.MemberID, Epoch: req.MemberEpoch, InstanceID: req.InstanceID, RackID: req.RackID,
		Client:    group.Client{ID: p.ClientID, Host: javaHost(p.Conn.Remote)},
		Rebalance: req.RebalanceTimeoutMillis, Topics: req.SubscribedTopicNames, Regex: req.SubscribedTopicRegex,
		Assignor: req.ServerAssignor, NamesItself: req.Version >= 1, Cluster: clusterTopics{s.Meta.Load()},
	}
	if req.Topics != nil {
		r.Owned = group.Assignment{}
		for _, t := range req.Topics {
			all := append(slices.Clone(r.Owned[t.TopicID]), t.Partitions...)
			slices.Sort(all)
			r.Owned[t.TopicID] = slices.Compact(all)
		}
	}
	a, err := s.Groups.ConsumerHeartbeat(ctx, r)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = code(ctx, err), message(err)
		return resp, nil
	}
	resp.MemberID, resp.MemberEpoch = &a.MemberID, a.Epoch
	resp.HeartbeatIntervalMillis = int32(a.Interval.Milliseconds())
	if a.Assignment != nil {
		as := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
		as.Topics = []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}
		for _, id := range a.Assignment.Topics() {
			t := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
			t.TopicID, t.Partitions = id, a.Assignment[id]
			as.Topics = append(as.Topics, t)
		}
		resp.Assignment = &as
	}
	return resp, nil
}

// consumerGroups tells whether groups of the consumer protocol are served: the cluster has agreed
// on them, and group.coordinator.rebalance.protocols has them.
func (s *API) consumerGroups() bool {
	if s.Features != nil {
		if levels, epoch := s.Features(); epoch < 0 || levels[compat.GroupVersion] < 1 {
			return false
		}
	}
	return slices.Contains(s.Config.Broker().GroupCoordinatorRebalanceProtocols, "consumer")
}

// clusterTopics is a picture as groups see it.
type clusterTopics struct{ pic *metadata.Picture }

func (c clusterTopics) Topic(name string) (id group.TopicID, partitions int32, ok bool) {
	t := c.pic.Topics[name]
	if t == nil {
		return id, 0, false
	}
	return t.ID, int32(len(t.Partitions)), true
}

func (c clusterTopics) Racks(name string, partition int32) (racks []string) {
	p := c.pic.Partition(name, partition)
	if p == nil {
		return nil
	}
	for _, id := range p.Replicas {
		if b := c.pic.Broker(id); b != nil && b.Rack != "" {
			racks = append(racks, b.Rack)
		}
	}
	return racks
}

func (c clusterTopics) Names() iter.Seq[string] { return maps.Keys(c.pic.Topics) }
func (c clusterTopics) Version() int64          { return c.pic.Serial }
