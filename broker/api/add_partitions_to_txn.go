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
		for _, t := range in.Topics {
			for _, n := range t.Partitions {
				r.Partitions = append(r.Partitions, txn.Partition{Topic: t.Topic, Number: n})
			}
		}
		codes := missingPartitions(pic, r.Partitions)
		if codes == nil {
			codes = s.addOrVerify(ctx, r, in.VerifyOnly)
		}
		out := kmsg.NewAddPartitionsToTxnResponseTransaction()
		out.TransactionalID = in.TransactionalID
		out.Topics = make([]kmsg.AddPartitionsToTxnResponseTransactionTopic, 0, len(in.Topics))
		for _, t := range in.Topics {
			rt := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			rt.Topic = t.Topic
			rt.Partitions = make([]kmsg.AddPartitionsToTxnResponseTransactionTopicPartition, 0, len(t.Partitions))
			for _, n := range t.Partitions {
				rp := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				rp.Partition, rp.ErrorCode = n, codes[0]
				codes = codes[1:]
				rt.Partitions = append(rt.Partitions, rp)
			}
			out.Topics = append(out.Topics, rt)
		}
		resp.Transactions = append(resp.Transactions, out)
	}
	return resp, nil
}

// addOrVerify gives a code for each partition.
func (s *API) addOrVerify(ctx context.Context, r txn.AddRequest, verifyOnly bool) []int16 {
	codes := make([]int16, len(r.Partitions))
	var errs []error
	var err error
	if verifyOnly {
		errs, err = s.Txns.Verify(ctx, r)
	} else {
		err = s.Txns.Add(ctx, r)
	}
	all := code(ctx, err)
	for i := range codes {
		codes[i] = all
		if errs != nil {
			codes[i] = code(ctx, errs[i])
		}
	}
	return codes
}

// missingPartitions gives a code for each partition if one of them does not exist, else nil.
func missingPartitions(pic *metadata.Picture, all []txn.Partition) (codes []int16) {
	for i, p := range all {
		if hasPartition(pic, p.Topic, p.Number) {
			continue
		}
		if codes == nil {
			codes = make([]int16, len(all))
			for j := range codes {
				codes[j] = kerr.OperationNotAttempted.Code
			}
		}
		codes[i] = kerr.UnknownTopicOrPartition.Code
	}
	return codes
}

func (s *API) addPartitionsOfClient(ctx context.Context, p *Peer, req *kmsg.AddPartitionsToTxnRequest, resp *kmsg.AddPartitionsToTxnResponse) *kmsg.AddPartitionsToTxnResponse {
	r := txn.AddRequest{ID: req.TransactionalID, Producer: req.ProducerID, Epoch: req.ProducerEpoch, Patience: s.Txns.Patience()}
	var codes []int16
	failed := false
	pic := s.Meta.Load()
	for _, t := range req.Topics {
		may := !internalTopic(t.Topic) && s.allowed(p, auth.Write, auth.Topic, t.Topic)
		for _, n := range t.Partitions {
			c := kerr.OperationNotAttempted.Code
			switch {
			case !may:
				c, failed = kerr.TopicAuthorizationFailed.Code, true
			case !hasPartition(pic, t.Topic, n):
				c, failed = kerr.UnknownTopicOrPartition.Code, true
			}
			codes = append(codes, c)
			r.Partitions = append(r.Partitions, txn.Partition{Topic: t.Topic, Number: n})
		}
	}
	all := int16(-1)
	switch {
	case !s.allowed(p, auth.Write, auth.TransactionalID, req.TransactionalID):
		all = kerr.TransactionalIDAuthorizationFailed.Code
	case !failed:
		all = txnCode(ctx, s.Txns.Add(ctx, r), req.Version >= 2)
	}
	resp.Topics = make([]kmsg.AddPartitionsToTxnResponseTopic, 0, len(req.Topics))
	for _, t := range req.Topics {
		rt := kmsg.NewAddPartitionsToTxnResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.AddPartitionsToTxnResponseTopicPartition, 0, len(t.Partitions))
		for _, n := range t.Partitions {
			rp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			rp.Partition, rp.ErrorCode = n, all
			if all < 0 {
				rp.ErrorCode = codes[0]
			}
			codes = codes[1:]
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}
