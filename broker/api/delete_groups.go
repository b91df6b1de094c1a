package api

import (
	"context"

	"ottla/broker/auth"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteGroups deletes groups without members, and their offsets.
//
// Versions: 2 flexible; 3 a message, for streams groups.
func (s *API) deleteGroups(ctx context.Context, p *Peer, req *kmsg.DeleteGroupsRequest) (*kmsg.DeleteGroupsResponse, error) {
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, 0, len(req.Groups))
	var ids []string
	var at []int
	seen := make(map[string]bool, len(req.Groups))
	for _, id := range req.Groups {
		if seen[id] {
			continue // answered once
		}
		seen[id] = true
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group = id
		if s.allowed(p, auth.Delete, auth.Group, id) {
			ids, at = append(ids, id), append(at, len(resp.Groups))
		} else {
			g.ErrorCode = kerr.GroupAuthorizationFailed.Code
		}
		resp.Groups = append(resp.Groups, g)
	}
	for i, err := range s.Groups.DeleteGroups(ctx, ids) {
		resp.Groups[at[i]].ErrorCode = code(ctx, err)
	}
	return resp, nil
}
