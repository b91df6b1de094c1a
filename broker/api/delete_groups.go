package api

import (
	"context"

	"ottla/broker/auth"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteGroups deletes groups without members, and their offsets.
//
// Versions: 2 flexible; 3 a message with an error.
func (s *API) deleteGroups(ctx context.Context, p *Peer, req *kmsg.DeleteGroupsRequest) (*kmsg.DeleteGroupsResponse, error) {
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, 0, len(req.Groups))
	var ids []string
	var at []int
	for i, id := range req.Groups {
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group = id
		if s.allowed(p, auth.Delete, auth.Group, id) {
			ids, at = append(ids, id), append(at, i)
		} else {
			g.ErrorCode = kerr.GroupAuthorizationFailed.Code
			g.ErrorMessage = kmsg.StringPtr(kerr.GroupAuthorizationFailed.Description)
		}
		resp.Groups = append(resp.Groups, g)
	}
	for i, err := range s.Groups.DeleteGroups(ctx, ids) {
		resp.Groups[at[i]].ErrorCode, resp.Groups[at[i]].ErrorMessage = code(ctx, err), message(err)
	}
	return resp, nil
}
