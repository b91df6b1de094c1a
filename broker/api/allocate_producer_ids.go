package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// allocateProducerIDs gives a block of producer ids to another broker (KIP-730).
func (s *API) allocateProducerIDs(ctx context.Context, p *Peer, req *kmsg.AllocateProducerIDsRequest) (*kmsg.AllocateProducerIDsResponse, error) {
	resp := req.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	first, count, err := s.Control.AllocateProducerIDsFor(ctx, req.BrokerID, req.BrokerEpoch)
	if err != nil {
		resp.ErrorCode = code(ctx, err)
		return resp, nil
	}
	resp.ProducerIDStart, resp.ProducerIDLen = first, int32(count)
	return resp, nil
}
