package api

import (
	"context"

	"ottla/compat"
	"ottla/protocol"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// apiVersions tells what is served.
//
// Versions: 3 flexible, with the client's name and version (KIP-511), which must look like
// names, and features (KIP-584); 4 features whose lowest level is 0; 5 the cluster and broker that
// the client believes it reached (KIP-1242).
func (s *API) apiVersions(_ context.Context, p *Peer, req *kmsg.ApiVersionsRequest) (*kmsg.ApiVersionsResponse, error) {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if req.Version >= 3 {
		if !softwareName(req.ClientSoftwareName) || !softwareName(req.ClientSoftwareVersion) {
			resp.ErrorCode = kerr.InvalidRequest.Code
			return resp, nil
		}
		p.Software, p.SoftwareVersion = req.ClientSoftwareName, req.ClientSoftwareVersion
	}
	if req.Version >= 5 {
		if resp.ErrorCode = s.misled(req.ClusterID, req.NodeID); resp.ErrorCode != 0 {
			return resp, nil
		}
	}
	resp.ApiKeys = s.versions
	s.tellFeatures(resp)
	return resp, nil
}

// tellFeatures tells which features this broker has, and the levels that the cluster has agreed on.
func (s *API) tellFeatures(resp *kmsg.ApiVersionsResponse) {
	for _, f := range compat.Features {
		if f.Min == 0 && resp.Version < 4 { // these clients take it for an error
			continue
		}
		sf := kmsg.NewApiVersionsResponseSupportedFeature()
		sf.Name, sf.MinVersion, sf.MaxVersion = f.Name, f.Min, f.Max
		resp.SupportedFeatures = append(resp.SupportedFeatures, sf)
	}
	if s.Features == nil {
		return
	}
	levels, epoch := s.Features()
	resp.FinalizedFeaturesEpoch = epoch
	for _, f := range compat.Features {
		if level := levels[f.Name]; level > 0 {
			ff := kmsg.NewApiVersionsResponseFinalizedFeature()
			ff.Name, ff.MinVersionLevel, ff.MaxVersionLevel = f.Name, level, level
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, ff)
		}
	}
}

// misled returns the code for a client that reached another broker than it believes.
func (s *API) misled(cluster *string, node int32) int16 {
	switch {
	case cluster == nil && node == -1:
		return 0
	case cluster == nil || node == -1:
		return kerr.InvalidRequest.Code
	case *cluster != s.Meta.Load().ClusterID || node != s.BrokerID:
		return kerr.RebootstrapRequired.Code
	}
	return 0
}

// unknownApiVersions answers an ApiVersions request of a version that is not served: in the
// form of version 0, with the code 35 and the versions of ApiVersions alone, so that the client can
// ask again on the same connection (KIP-511). The request's body is not looked at.
func (s *API) unknownApiVersions(h protocol.Header) protocol.Reply {
	h.Version, h.Flexible = 0, false
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	for _, k := range s.versions {
		if k.ApiKey == h.Key {
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
	}
	return protocol.Reply{Answer: protocol.EncodeResponse(h, resp)}
}

// softwareName reports whether s is a client's name or version as Kafka accepts it:
// [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?
func softwareName(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case (c == '-' || c == '.') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return s != ""
}
