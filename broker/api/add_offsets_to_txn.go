package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// addOffsetsToTxn adds the partition of __consumer_offsets that a group is on to a transaction.
// Clients of transaction.version 2 leave that to TxnOffsetCommit.
//
// Versions: 2 PRODUCER_FENCED, before it is INVALID_PRODUCER_EPOCH; 4 TRANSACTION_ABORTABLE.
func (s *API) addOffsetsToTxn(ctx context.Context, p *Peer, req *kmsg.AddOffsetsToTxnRequest) (*kmsg.AddOffsetsToTxnResponse, error) {
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	switch {
	case !s.allowed(p, auth.Write, auth.TransactionalID, req.TransactionalID):
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
	case !s.allowed(p, auth.Read, auth.Group, req.Group):
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
	default:
		resp.ErrorCode = txnCode(ctx, s.Txns.Add(ctx, txn.AddRequest{
			ID: req.TransactionalID, Producer: req.ProducerID, Epoch: req.ProducerEpoch, Patience: s.Txns.Patience(),
			Partitions: []txn.Partition{{Topic: group.Topic, Number: s.Groups.PartitionFor(req.Group)}},
		}), req.Version >= 2)
	}
	return resp, nil
}
