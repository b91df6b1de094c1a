package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/coordinator/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// heartbeat keeps a member's session alive.
//
// Versions: 3 static members (KIP-345); 4 flexible.
func (s *API) heartbeat(ctx context.Context, p *Peer, req *kmsg.HeartbeatRequest) (*kmsg.HeartbeatResponse, error) {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	if !s.allowed(p, auth.Read, auth.Group, req.Group) {
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp, nil
	}
	resp.ErrorCode = code(ctx, s.Groups.Heartbeat(ctx, group.HeartbeatRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
	}))
	return resp, nil
}
