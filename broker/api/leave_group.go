package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/coordinator/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaveGroup takes members out of their group.
//
// Versions: 3 several members, by instance id too (KIP-345); 4 flexible; 5 reason. Before 3 the
// one member's error is the answer's.
func (s *API) leaveGroup(ctx context.Context, p *Peer, req *kmsg.LeaveGroupRequest) (*kmsg.LeaveGroupResponse, error) {
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	resp.Members = []kmsg.LeaveGroupResponseMember{}
	if !s.allowed(p, auth.Read, auth.Group, req.Group) {
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp, nil
	}
	r := group.LeaveRequest{Group: req.Group, Cluster: clusterTopics{s.Meta.Load()}}
	for _, m := range req.Members {
		r.Members = append(r.Members, group.Leaver{MemberID: m.MemberID, InstanceID: m.InstanceID})
	}
	if req.Version < 3 {
		r.Members = []group.Leaver{{MemberID: req.MemberID}}
	}
	errs, err := s.Groups.Leave(ctx, r)
	if err != nil {
		resp.ErrorCode = code(ctx, err)
		return resp, nil
	}
	if req.Version < 3 {
		resp.ErrorCode = code(ctx, errs[0])
		return resp, nil
	}
	for i, m := range r.Members {
		rm := kmsg.NewLeaveGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ErrorCode = m.MemberID, m.InstanceID, code(ctx, errs[i])
		resp.Members = append(resp.Members, rm)
	}
	return resp, nil
}
