package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/broker/metadata"
	"ottla/coordinator/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerGroupDescribe tells epochs, members and assignments of consumer groups (KIP-848).
//
// Versions: 1 which protocol a member speaks (KIP-1099).
func (s *API) consumerGroupDescribe(ctx context.Context, p *Peer, req *kmsg.ConsumerGroupDescribeRequest) (*kmsg.ConsumerGroupDescribeResponse, error) {
	resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	resp.Groups = make([]kmsg.ConsumerGroupDescribeResponseGroup, 0, len(req.Groups))
	pic := s.Meta.Load()
	for _, id := range req.Groups {
		g := kmsg.NewConsumerGroupDescribeResponseGroup()
		g.Group = id
		g.Members = []kmsg.ConsumerGroupDescribeResponseGroupMember{}
		switch {
		case !s.consumerGroups():
			g.ErrorCode = kerr.UnsupportedVersion.Code
		case !s.allowed(p, auth.Describe, auth.Group, id):
			g.ErrorCode = kerr.GroupAuthorizationFailed.Code
		case id == "":
			g.ErrorCode = kerr.InvalidGroupID.Code
		default:
			s.describeConsumerGroup(ctx, p, req, pic, &g)
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func (s *API) describeConsumerGroup(ctx context.Context, p *Peer, req *kmsg.ConsumerGroupDescribeRequest, pic *metadata.Picture, g *kmsg.ConsumerGroupDescribeResponseGroup) {
	d, err := s.Groups.DescribeConsumer(ctx, g.Group)
	if err != nil {
		g.ErrorCode, g.ErrorMessage = code(ctx, err), message(err)
		return
	}
	if req.IncludeAuthorizedOperations {
		g.AuthorizedOperations = auth.Group.Operations()
	}
	g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName = d.State, d.Epoch, d.TargetEpoch, d.Assignor
	for _, m := range d.Members {
		rm := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		rm.MemberID, rm.InstanceID, rm.RackID, rm.MemberEpoch = m.ID, m.Instance, m.Rack, m.Epoch
		rm.ClientID, rm.ClientHost = m.Client.ID, m.Client.Host
		rm.SubscribedTopics = append([]string{}, m.Topics...)
		rm.SubscribedTopicRegex = &m.Pattern // as Kafka: not null
		rm.Assignment, rm.TargetAssignment = describedAssignment(pic, m.Assigned), describedAssignment(pic, m.Target)
		rm.MemberType = 1
		if m.Classic {
			rm.MemberType = 0
		}
		for _, a := range []kmsg.Assignment{rm.Assignment, rm.TargetAssignment} {
			for _, t := range a.TopicPartitions {
				if !s.allowed(p, auth.Describe, auth.Topic, t.Topic) {
					g.ErrorCode = kerr.TopicAuthorizationFailed.Code
					g.ErrorMessage = kmsg.StringPtr("The group has described topic(s) that the client is not authorized to describe.")
					g.Members = []kmsg.ConsumerGroupDescribeResponseGroupMember{}
					return
				}
			}
		}
		g.Members = append(g.Members, rm)
	}
}

// describedAssignment names the topics of an assignment; those that are gone are left out.
func describedAssignment(pic *metadata.Picture, a group.Assignment) kmsg.Assignment {
	out := kmsg.NewAssignment()
	out.TopicPartitions = []kmsg.AssignmentTopicPartition{}
	for _, id := range a.Topics() {
		if t := pic.ByID[id]; t != nil {
			tp := kmsg.NewAssignmentTopicPartition()
			tp.TopicID, tp.Topic, tp.Partitions = id, t.Name, a[id]
			out.TopicPartitions = append(out.TopicPartitions, tp)
		}
	}
	return out
}
