package api

import (
	"context"

	"ottla/broker/auth"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// listGroups lists the groups that this broker coordinates: all to whoever may describe the
// cluster, else those that the client may describe.
//
// Versions: 3 flexible; 4 states and a filter by them (KIP-518); 5 types and a filter by them
// (KIP-848).
func (s *API) listGroups(ctx context.Context, p *Peer, req *kmsg.ListGroupsRequest) (*kmsg.ListGroupsResponse, error) {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	resp.Groups = []kmsg.ListGroupsResponseGroup{}
	all, err := s.Groups.List(ctx, req.StatesFilter, req.TypesFilter)
	if err != nil {
		resp.ErrorCode = code(ctx, err)
		return resp, nil
	}
	every := s.allowed(p, auth.Describe, auth.Cluster, auth.ClusterName)
	for _, l := range all {
		if !every && !s.allowed(p, auth.Describe, auth.Group, l.Group) {
			continue
		}
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = l.Group, l.ProtocolType, l.State, l.Type
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}
