package api

import (
	"context"
	"time"

	"ottla/broker/auth"
	"ottla/broker/metadata"
	"ottla/coordinator/txn"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// addPartitionsToTxn adds partitions to a transaction, and begins it with the first. Where one
// partition can't be added none is.
//
// Versions: 0 to 3 come from clients: 2 PRODUCER_FENCED, before it is INVALID_PRODUCER_EPOCH. 4
// and 5 come from brokers (KIP-890), with several transactions at a time; they may also ask
// whether a transaction has partitions. 5 knows TRANSACTION_ABORTABLE.
//
// While the transaction before is still being ended a request waits a little, for
// add.partitions.to.txn.retry.backoff.max.ms, before it is answered CONCURRENT_TRANSACTIONS;
// Kafka's coordinator answers at once.
func (s *API) addPartitionsToTxn(ctx context.Context, p *Peer, req *kmsg.AddPartitionsToTxnRequest) (*kmsg.AddPartitionsToTxnResponse, error) {
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if req.Version < 4 {
		return s.addPartitionsOfClient(ctx, p, req, resp), nil
	}
	resp.Transactions = []kmsg.AddPartitionsToTxnResponseTransaction{}
	if !s.allowed(p, auth.ClusterAction, auth.Cluster, auth.ClusterName) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp, nil
	}
	patience := time.Duration(0)
	if len(req.Transactions) == 1 { // several must not wait for each other
		patience = s.Txns.Patience()
	}
	pic := s.Meta.Load()
	for i := range req.Transactions {
		in := &req.Transactions[i]
		r := txn.AddRequest{ID: in.TransactionalID, Producer: in.ProducerID, Epoch: in.ProducerEpoch, Version: 2, Patience: patience}
		out := kmsg.NewAddPartitionsToTxnResponseTransaction()
		out.TransactionalID = in.TransactionalID
		out.Topics = make([]kmsg.AddPartitionsToTxnResponseTransactionTopic, 0, len(in.Topics))
		var codes []*int16 // where the answers to r's partitions belong
		for _, t := range in.Topics {
			rt := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			rt.Topic = t.Topic
			rt.Partitions = make([]kmsg.AddPartitionsToTxnResponseTransactionTopicPartition, len(t.Partitions))
			for j, n := range t.Partitions {
				rp := &rt.Partitions[j]
				*rp = kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				rp.Partition = n
				r.Partitions, codes = append(r.Partitions, txn.Partition{Topic: t.Topic, Number: n}), append(codes, &rp.ErrorCode)
			}
			out.Topics = append(out.Topics, rt)
		}
		if !refuseMissing(pic, r.Partitions, codes) {
			s.addOrVerify(ctx, r, in.VerifyOnly, codes)
		}
		resp.Transactions = append(resp.Transactions, out)
	}
	return resp, nil
}

// addOrVerify gives a code to each partition.
func (s *API) addOrVerify(ctx context.Context, r txn.AddRequest, verifyOnly bool, codes []*int16) {
	var errs []error
	var err error
	if verifyOnly {
		errs, err = s.Txns.Verify(ctx, r)
	} else {
		err = s.Txns.Add(ctx, r)
	}
	all := code(ctx, err)
	for i, at := range codes {
		*at = all
		if errs != nil {
			*at = code(ctx, errs[i])
		}
	}
}

// refuseMissing gives a code to each partition if one of them does not exist, and says whether
// that is so.
func refuseMissing(pic *metadata.Picture, all []txn.Partition, codes []*int16) (refused bool) {
	for i, p := range all {
		*codes[i] = kerr.OperationNotAttempted.Code
		if !hasPartition(pic, p.Topic, p.Number) {
			*codes[i], refused = kerr.UnknownTopicOrPartition.Code, true
		}
	}
	return refused
}

func (s *API) addPartitionsOfClient(ctx context.Context, p *Peer, req *kmsg.AddPartitionsToTxnRequest, resp *kmsg.AddPartitionsToTxnResponse) *kmsg.AddPartitionsToTxnResponse {
	r := txn.AddRequest{ID: req.TransactionalID, Producer: req.ProducerID, Epoch: req.ProducerEpoch, Patience: s.Txns.Patience()}
	var codes []*int16 // where the answers to r's partitions belong
	failed := false
	pic := s.Meta.Load()
	resp.Topics = make([]kmsg.AddPartitionsToTxnResponseTopic, 0, len(req.Topics))
	for _, t := range req.Topics {
		may := !internalTopic(t.Topic) && s.allowed(p, auth.Write, auth.Topic, t.Topic)
		rt := kmsg.NewAddPartitionsToTxnResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.AddPartitionsToTxnResponseTopicPartition, len(t.Partitions))
		for j, n := range t.Partitions {
			rp := &rt.Partitions[j]
			*rp = kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			rp.Partition, rp.ErrorCode = n, kerr.OperationNotAttempted.Code
			switch {
			case !may:
				rp.ErrorCode, failed = kerr.TopicAuthorizationFailed.Code, true
			case !hasPartition(pic, t.Topic, n):
				rp.ErrorCode, failed = kerr.UnknownTopicOrPartition.Code, true
			}
			r.Partitions, codes = append(r.Partitions, txn.Partition{Topic: t.Topic, Number: n}), append(codes, &rp.ErrorCode)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	var all int16
	switch {
	case !s.allowed(p, auth.Write, auth.TransactionalID, req.TransactionalID):
		all = kerr.TransactionalIDAuthorizationFailed.Code
	case failed: // each partition has its code
		return resp
	default:
		all = txnCode(ctx, s.Txns.Add(ctx, r), req.Version >= 2)
	}
	for _, at := range codes {
		*at = all
	}
	return resp
}
