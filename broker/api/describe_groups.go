package api

import (
	"context"
	"errors"

	"ottla/broker/auth"
	"ottla/coordinator/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeGroups tells state and members of groups that this broker coordinates.
//
// Versions: 3 authorised operations; 4 instance ids; 5 flexible; 6 an error and a message for a
// group that is not there (KIP-1043), before it is "Dead" without an error.
func (s *API) describeGroups(ctx context.Context, p *Peer, req *kmsg.DescribeGroupsRequest) (*kmsg.DescribeGroupsResponse, error) {
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	resp.Groups = make([]kmsg.DescribeGroupsResponseGroup, 0, len(req.Groups))
	for _, id := range req.Groups {
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group = id
		g.Members = []kmsg.DescribeGroupsResponseGroupMember{}
		if s.allowed(p, auth.Describe, auth.Group, id) {
			s.describeGroup(ctx, req, &g)
		} else {
			g.ErrorCode = kerr.GroupAuthorizationFailed.Code
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func (s *API) describeGroup(ctx context.Context, req *kmsg.DescribeGroupsRequest, g *kmsg.DescribeGroupsResponseGroup) {
	d := s.Groups.Describe(ctx, g.Group)
	g.State, g.ProtocolType, g.Protocol = d.State, d.ProtocolType, d.Protocol
	switch {
	case errors.Is(d.Err, group.ErrGroupNotFound) && req.Version < 6:
	case d.Err != nil:
		g.ErrorCode, g.ErrorMessage = code(ctx, d.Err), message(d.Err)
		return
	}
	if req.IncludeAuthorizedOperations {
		g.AuthorizedOperations = auth.Group.Operations()
	}
	for _, m := range d.Members {
		rm := kmsg.NewDescribeGroupsResponseGroupMember()
		rm.MemberID, rm.InstanceID = m.MemberID, m.InstanceID
		rm.ClientID, rm.ClientHost = m.Client.ID, m.Client.Host
		rm.ProtocolMetadata = append([]byte{}, m.Metadata...)
		rm.MemberAssignment = append([]byte{}, m.Assignment...)
		g.Members = append(g.Members, rm)
	}
}
