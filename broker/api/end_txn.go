package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/coordinator/txn"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// endTxn commits or aborts a transaction. The answer comes when that is decided for good; its
// markers are written afterwards.
//
// Versions: 2 PRODUCER_FENCED, before it is INVALID_PRODUCER_EPOCH; 4 TRANSACTION_ABORTABLE; 5 the
// epoch rises, and the answer says what the producer is from now on (KIP-890).
func (s *API) endTxn(ctx context.Context, p *Peer, req *kmsg.EndTxnRequest) (*kmsg.EndTxnResponse, error) {
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if !s.allowed(p, auth.Write, auth.TransactionalID, req.TransactionalID) {
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return resp, nil
	}
	r := txn.EndRequest{ID: req.TransactionalID, Producer: req.ProducerID, Epoch: req.ProducerEpoch, Commit: req.Commit}
	if req.Version >= 5 {
		r.Version = 2
	}
	is, err := s.Txns.End(ctx, r)
	if err != nil {
		resp.ErrorCode = txnCode(ctx, err, req.Version >= 2)
		return resp, nil
	}
	resp.ProducerID, resp.ProducerEpoch = is.ID, is.Epoch
	return resp, nil
}
