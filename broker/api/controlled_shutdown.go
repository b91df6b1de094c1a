package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// controlledShutdown has the controller move leaderships away from a broker that is about to stop.
//
// Versions: 2 broker epochs.
func (s *API) controlledShutdown(ctx context.Context, p *Peer, req *kmsg.ControlledShutdownRequest) (*kmsg.ControlledShutdownResponse, error) {
	epoch := int64(-1)
	if req.Version >= 2 {
		epoch = req.BrokerEpoch
	}
	resp := req.ResponseKind().(*kmsg.ControlledShutdownResponse)
	left, err := s.Control.ControlledShutdown(ctx, req.BrokerID, epoch)
	resp.ErrorCode = code(ctx, err)
	for _, tp := range left {
		r := kmsg.NewControlledShutdownResponsePartitionsRemaining()
		r.Topic, r.Partition = tp.Topic, tp.Partition
		resp.PartitionsRemaining = append(resp.PartitionsRemaining, r)
	}
	return resp, nil
}
