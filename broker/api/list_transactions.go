package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/coordinator/txn"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// listTransactions lists the transactional ids that this broker coordinates (KIP-664), of those
// that the client may see.
//
// Versions: 1 a filter by duration (KIP-994); 2 a filter by a pattern for the transactional id (KIP-1152).
func (s *API) listTransactions(ctx context.Context, p *Peer, req *kmsg.ListTransactionsRequest) (*kmsg.ListTransactionsResponse, error) {
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	resp.UnknownStateFilters = []string{}
	resp.TransactionStates = []kmsg.ListTransactionsResponseTransactionState{}
	f := txn.Filter{States: req.StateFilters, Producers: req.ProducerIDFilters, Longer: -1}
	if req.Version >= 1 {
		f.Longer = req.DurationFilterMillis
	}
	if req.Version >= 2 && req.TransactionalIDPattern != nil {
		f.Pattern = *req.TransactionalIDPattern
	}
	all, unknown, err := s.Txns.List(ctx, f)
	resp.UnknownStateFilters = append(resp.UnknownStateFilters, unknown...)
	if err != nil {
		resp.ErrorCode = code(ctx, err)
		return resp, nil
	}
	for _, l := range all {
		if !s.allowed(p, auth.Describe, auth.TransactionalID, l.ID) {
			continue
		}
		st := kmsg.NewListTransactionsResponseTransactionState()
		st.TransactionalID, st.ProducerID, st.TransactionState = l.ID, l.Producer, l.State.String()
		resp.TransactionStates = append(resp.TransactionStates, st)
	}
	return resp, nil
}
