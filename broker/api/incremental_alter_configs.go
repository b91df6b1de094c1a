package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/broker/config"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// incrementalAlterConfigs sets, deletes, appends to and subtracts from single settings and
// leaves the others as they are (KIP-339). It also changes the level of the log, which is kept
// by this broker alone and not stored (KIP-412).
//
// Versions: 1 flexible. An operation that Kafka does not have is answered with 42; Kafka gives
// -1 for topics and 42 for brokers.
func (s *API) incrementalAlterConfigs(ctx context.Context, p *Peer, req *kmsg.IncrementalAlterConfigsRequest) (*kmsg.IncrementalAlterConfigsResponse, error) {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	resp.Resources = make([]kmsg.IncrementalAlterConfigsResponseResource, 0, len(req.Resources))
	times := map[resource]int{}
	for _, r := range req.Resources {
		times[resource{r.ResourceType, r.ResourceName}]++
	}
	for i := range req.Resources {
		r := &req.Resources[i]
		at := resource{r.ResourceType, r.ResourceName}
		err := s.incrementalAlter(ctx, p, at, times[at], r.Configs, req.ValidateOnly)
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		out.ErrorCode, out.ErrorMessage = code(ctx, err), message(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

// incrementalAlter changes one resource, which the request names times times.
func (s *API) incrementalAlter(ctx context.Context, p *Peer, r resource, times int, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig, validateOnly bool) error {
	edits := make([]config.Edit, 0, len(ops))
	seen := make(map[string]bool, len(ops))
	var nulls []string
	for _, c := range ops {
		e := config.Edit{Op: config.Op(c.Op), Name: c.Name}
		switch {
		case c.Value != nil:
			e.Value = *c.Value
		case e.Op != config.Delete:
			nulls = append(nulls, c.Name)
		}
		seen[c.Name] = true
		edits = append(edits, e)
	}
	if err := wellFormed(times, len(seen) != len(ops), nulls); err != nil {
		return err
	}
	if r.kind == kmsg.ConfigResourceTypeBrokerLogger {
		if err := s.mayConfigure(p, auth.AlterConfigs, r); err != nil {
			return err
		}
		if err := s.ownID(r.name); err != nil {
			return err
		}
		return s.Config.EditLoggers(edits, validateOnly)
	}
	return s.alter(ctx, p, r, validateOnly, func(kind string, now map[string]string) (map[string]string, error) {
		return s.Config.Edit(kind, now, edits)
	})
}
