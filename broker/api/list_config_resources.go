package api

import (
	"context"
	"slices"
	"strconv"

	"ottla/broker/config"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listConfigResources names what has settings: all topics, brokers and their loggers, and the
// groups and client metrics subscriptions that have some of their own.
//
// Versions: 0 knows only client metrics subscriptions (KIP-1000); 1 has types, none of them
// meaning all (KIP-1142).
func (s *API) listConfigResources(ctx context.Context, p *Peer, req *kmsg.ListConfigResourcesRequest) (*kmsg.ListConfigResourcesResponse, error) {
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	resp.ConfigResources = []kmsg.ListConfigResourcesResponseConfigResource{}
	order := []kmsg.ConfigResourceType{kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigResourceTypeClientMetrics,
		kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeTopic}
	wanted := order
	switch {
	case req.Version == 0:
		wanted = []kmsg.ConfigResourceType{kmsg.ConfigResourceTypeClientMetrics}
	case len(req.ResourceTypes) > 0:
		wanted = nil
		for _, t := range req.ResourceTypes {
			kind := kmsg.ConfigResourceType(t)
			if !slices.Contains(order, kind) {
				resp.ErrorCode = kerr.UnsupportedVersion.Code
				return resp, nil
			}
			if !slices.Contains(wanted, kind) {
				wanted = append(wanted, kind)
			}
		}
	}
	for _, kind := range order {
		if !slices.Contains(wanted, kind) {
			continue
		}
		for _, name := range s.configResources(kind) {
			r := kmsg.NewListConfigResourcesResponseConfigResource()
			r.Name, r.Type = name, int8(kind)
			resp.ConfigResources = append(resp.ConfigResources, r)
		}
	}
	return resp, nil
}

// configResources names the resources of a kind.
func (s *API) configResources(kind kmsg.ConfigResourceType) []string {
	switch kind {
	case kmsg.ConfigResourceTypeGroupConfig:
		return s.Config.Names(config.Groups)
	case kmsg.ConfigResourceTypeClientMetrics:
		return s.Config.Names(config.ClientMetrics)
	case kmsg.ConfigResourceTypeTopic:
		return sorted(s.Meta.Load().Topics)
	}
	var ids []string
	for _, b := range s.Meta.Load().Brokers {
		ids = append(ids, strconv.Itoa(int(b.ID)))
	}
	return ids
}
