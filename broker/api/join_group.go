package api

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"ottla/broker/auth"
	"ottla/coordinator/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinGroup hands the member to its group and waits for the generation.
//
// Versions: 1 rebalance timeout (KIP-62; before, the session timeout); 4 MEMBER_ID_REQUIRED
// (KIP-394); 5 static members (KIP-345); 6 flexible; 7 protocol type in the answer; 8 reason; 9
// skip assignment (KIP-814).
func (s *API) joinGroup(ctx context.Context, p *Peer, req *kmsg.JoinGroupRequest) (*kmsg.JoinGroupResponse, error) {
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.Generation, resp.MemberID = -1, req.MemberID
	resp.Members = []kmsg.JoinGroupResponseMember{}
	if !s.allowed(p, auth.Read, auth.Group, req.Group) {
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp, nil
	}
	r := group.JoinRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID,
		Client:           group.Client{ID: p.ClientID, Host: javaHost(p.Conn.Remote)},
		ProtocolType:     req.ProtocolType,
		Protocols:        make([]group.Protocol, len(req.Protocols)),
		Session:          time.Duration(req.SessionTimeoutMillis) * time.Millisecond,
		Rebalance:        time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		MemberIDRequired: req.Version >= 4,
		SkipsAssignment:  req.Version >= 9,
		Cluster:          clusterTopics{s.Meta.Load()},
	}
	if req.Version < 1 {
		r.Rebalance = r.Session
	}
	for i, proto := range req.Protocols {
		r.Protocols[i] = group.Protocol{Name: proto.Name, Metadata: proto.Metadata}
	}
	a := s.Groups.Join(ctx, r)
	if a.Err != nil && ctx.Err() != nil {
		return nil, ctx.Err() // the member keeps its place until its session ends
	}
	resp.ErrorCode = code(ctx, a.Err)
	resp.MemberID, resp.Generation, resp.LeaderID = a.MemberID, a.Generation, a.Leader
	resp.ProtocolType, resp.Protocol, resp.SkipAssignment = a.ProtocolType, a.Protocol, a.Skip
	for _, m := range a.Members {
		rm := kmsg.NewJoinGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ProtocolMetadata = m.MemberID, m.InstanceID, m.Metadata
		resp.Members = append(resp.Members, rm)
	}
	return resp, nil
}

// javaHost is an address as Java's InetAddress prints one without a name: "/127.0.0.1", and
// all eight groups of an IPv6 address. Groups and their records tell it.
func javaHost(a net.Addr) string {
	if a == nil {
		return "/"
	}
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return "/" + a.String()
	}
	ip := at.Addr().Unmap()
	if ip.Is4() {
		return "/" + ip.String()
	}
	b := ip.As16()
	groups := make([]string, 0, 8)
	for i := 0; i < 16; i += 2 {
		groups = append(groups, fmt.Sprintf("%x", int(b[i])<<8|int(b[i+1])))
	}
	host := "/" + strings.Join(groups, ":")
	if zone := ip.Zone(); zone != "" {
		host += "%" + zone
	}
	return host
}
