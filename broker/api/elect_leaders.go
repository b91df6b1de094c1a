package api

import (
	"context"
	"maps"
	"slices"

	"ottla/broker/controller"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// electLeaders has the controller elect leaders: preferred ones (type 0, the only one before v1)
// or unclean ones (1), for the partitions named, or for all. Asked for all, only the partitions
// that changed or failed are answered.
func (s *API) electLeaders(ctx context.Context, p *Peer, req *kmsg.ElectLeadersRequest) (*kmsg.ElectLeadersResponse, error) {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	resp.Topics = []kmsg.ElectLeadersResponseTopic{}
	if req.Version >= 1 && req.ElectionType != 0 && req.ElectionType != 1 {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp, nil
	}
	var asked map[string][]int32
	if req.Topics != nil {
		asked = make(map[string][]int32, len(req.Topics))
		for _, t := range req.Topics {
			asked[t.Topic] = append(asked[t.Topic], t.Partitions...)
		}
	}
	results := s.Control.ElectLeaders(ctx, req.Version >= 1 && req.ElectionType == 1, asked)
	for _, topic := range slices.Sorted(maps.Keys(results)) {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic, rt.Partitions = topic, []kmsg.ElectLeadersResponseTopicPartition{}
		for _, n := range slices.Sorted(maps.Keys(results[topic])) {
			err := results[topic][n]
			rp := kmsg.NewElectLeadersResponseTopicPartition()
			rp.Partition = n
			if err != nil {
				rp.ErrorCode, rp.ErrorMessage = code(ctx, err), message(err)
			}
			if asked == nil && rp.ErrorCode == code(ctx, controller.ErrElectionNotNeeded) {
				continue
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		if asked != nil || len(rt.Partitions) > 0 {
			resp.Topics = append(resp.Topics, rt)
		}
	}
	return resp, nil
}
