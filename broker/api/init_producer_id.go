package api

import (
	"context"
	"sync"

	"ottla/broker/auth"
	"ottla/coordinator/txn"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// initProducerID gives out a producer id: to an idempotent producer a new one with epoch 0 every
// time, whatever it had before, as in Kafka; to a transactional one that of its transactional id,
// with an epoch that fences whoever had it.
//
// Versions: 3 id and epoch that the producer had (KIP-360); 4 PRODUCER_FENCED, before it is
// INVALID_PRODUCER_EPOCH.
func (s *API) initProducerID(ctx context.Context, p *Peer, req *kmsg.InitProducerIDRequest) (*kmsg.InitProducerIDResponse, error) {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, 0
	switch {
	case req.TransactionalID != nil && !s.allowed(p, auth.Write, auth.TransactionalID, *req.TransactionalID):
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
	case req.TransactionalID == nil && !s.mayProduceIdempotently(p):
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
	case (req.ProducerID == -1) != (req.ProducerEpoch == -1):
		resp.ProducerEpoch, resp.ErrorCode = -1, kerr.InvalidRequest.Code
	case req.TransactionalID != nil:
		r := txn.InitRequest{ID: *req.TransactionalID, Timeout: req.TransactionTimeoutMillis}
		if req.ProducerID != -1 {
			r.Expected = &txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
		}
		is, err := s.Txns.Init(ctx, r)
		if err != nil {
			resp.ProducerEpoch, resp.ErrorCode = -1, txnCode(ctx, err, req.Version >= 4)
			break
		}
		resp.ProducerID, resp.ProducerEpoch = is.ID, is.Epoch
	default:
		id, err := s.ProducerIDs.Next(ctx)
		if err != nil {
			resp.ErrorCode = code(ctx, err)
			break
		}
		resp.ProducerID = id
	}
	return resp, nil
}

// mayProduceIdempotently: whoever may write to the cluster idempotently, or to any topic.
func (s *API) mayProduceIdempotently(p *Peer) bool {
	if s.allowed(p, auth.IdempotentWrite, auth.Cluster, auth.ClusterName) {
		return true
	}
	for name := range s.Meta.Load().Topics {
		if s.allowed(p, auth.Write, auth.Topic, name) {
			return true
		}
	}
	return false
}

// ProducerIDs gives out producer ids of blocks that the controller hands to this broker. What
// is left of a block at the end is lost, so no id is given out twice (ProducerIdManager).
type ProducerIDs struct {
	block func(context.Context) (first, count int64, err error)

	mu        sync.Mutex // held while a block is fetched: one is enough for all who wait
	next, end int64      // guarded by mu
}

// NewProducerIDs takes blocks from a function, the first when the first id is asked for.
func NewProducerIDs(block func(context.Context) (first, count int64, err error)) *ProducerIDs {
	return &ProducerIDs{block: block}
}

// Next returns a producer id that nobody has.
func (ids *ProducerIDs) Next(ctx context.Context) (int64, error) {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if ids.next == ids.end {
		first, count, err := ids.block(ctx)
		if err != nil {
			return -1, err
		}
		ids.next, ids.end = first, first+count
	}
	id := ids.next
	ids.next++
	return id, nil
}
