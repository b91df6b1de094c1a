package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/coordinator/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// syncGroup takes the leader's assignment and waits for the member's part of it.
//
// Versions: 3 static members (KIP-345); 4 flexible; 5 protocol type and name, which must then be
// there and be the group's (KIP-559).
func (s *API) syncGroup(ctx context.Context, p *Peer, req *kmsg.SyncGroupRequest) (*kmsg.SyncGroupResponse, error) {
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	resp.MemberAssignment = []byte{}
	switch {
	case req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil):
		resp.ErrorCode = kerr.InconsistentGroupProtocol.Code
		return resp, nil
	case !s.allowed(p, auth.Read, auth.Group, req.Group):
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp, nil
	}
	r := group.SyncRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
		ProtocolType: req.ProtocolType, Protocol: req.Protocol,
		Assignment: make([]group.Assigned, len(req.GroupAssignment)), Cluster: clusterTopics{s.Meta.Load()},
	}
	for i, a := range req.GroupAssignment {
		r.Assignment[i] = group.Assigned{MemberID: a.MemberID, Data: a.MemberAssignment}
	}
	a := s.Groups.Sync(ctx, r)
	if a.Err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	resp.ErrorCode = code(ctx, a.Err)
	resp.ProtocolType, resp.Protocol = a.ProtocolType, a.Protocol
	resp.MemberAssignment = append(resp.MemberAssignment, a.Assignment...)
	return resp, nil
}
