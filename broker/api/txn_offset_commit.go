package api

import (
	"context"
	"errors"

	"ottla/broker/auth"
	"ottla/coordinator"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// txnOffsetCommit keeps a group's offsets aside until the marker of their transaction.
//
// Versions: 2 leader epoch, and COORDINATOR_LOAD_IN_PROGRESS, before it is
// COORDINATOR_NOT_AVAILABLE; 3 member, generation and instance (KIP-447); 4
// TRANSACTION_ABORTABLE, before it is INVALID_TXN_STATE; 5 adds the group to the transaction,
// which until then AddOffsetsToTxn does (KIP-890); 6 topic ids.
func (s *API) txnOffsetCommit(ctx context.Context, p *Peer, req *kmsg.TxnOffsetCommitRequest) (*kmsg.TxnOffsetCommitResponse, error) {
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	resp.Topics = make([]kmsg.TxnOffsetCommitResponseTopic, 0, len(req.Topics))
	c := commitment{api: s, peer: p, byID: req.Version >= 6, picture: s.Meta.Load()}
	switch {
	case !s.allowed(p, auth.Write, auth.TransactionalID, req.TransactionalID):
		c.refused = kerr.TransactionalIDAuthorizationFailed.Code
	case !s.allowed(p, auth.Read, auth.Group, req.Group):
		c.refused = kerr.GroupAuthorizationFailed.Code
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		if len(t.Partitions) == 0 {
			continue // as in offsetCommit
		}
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
		c.begin(t.Topic, t.TopicID)
		for j := range t.Partitions {
			in, rp := &t.Partitions[j], &rt.Partitions[j]
			*rp = kmsg.NewTxnOffsetCommitResponseTopicPartition()
			rp.Partition = in.Partition
			c.add(group.CommitPartition{Partition: in.Partition, Offset: in.Offset, LeaderEpoch: in.LeaderEpoch, Time: -1}, in.Metadata, &rp.ErrorCode)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(c.topics) == 0 {
		return resp, nil
	}
	if req.Group == "" { // before the transaction gets a partition for it
		c.answer(ctx, kerr.InvalidGroupID.Code, nil)
		return resp, nil
	}
	r := group.TxnCommitRequest{Producer: req.ProducerID, Epoch: req.ProducerEpoch, CommitRequest: group.CommitRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation, Retention: -1, Topics: c.topics,
	}}
	if req.Version < 3 {
		r.Generation = -1
	}
	var errs [][]error
	err := s.untilFree(ctx, req.TransactionalID, func() (err error) {
		errs, err = s.Groups.CommitTxn(ctx, r, func(ctx context.Context, partition int32) error {
			return s.enrolGroup(ctx, req, partition)
		})
		return err
	})
	all := code(ctx, err)
	if all == kerr.StaleMemberEpoch.Code { // producers do not know it
		all = kerr.IllegalGeneration.Code
	}
	if all == kerr.CoordinatorLoadInProgress.Code && req.Version < 2 { // these clients may crash on it (KAFKA-7296)
		all = kerr.CoordinatorNotAvailable.Code
	}
	c.answer(ctx, all, errs)
	return resp, nil
}

// enrolGroup adds a partition of __consumer_offsets to the transaction, or finds out whether the
// transaction has it.
func (s *API) enrolGroup(ctx context.Context, req *kmsg.TxnOffsetCommitRequest, partition int32) error {
	r := txn.AddRequest{ID: req.TransactionalID, Producer: req.ProducerID, Epoch: req.ProducerEpoch,
		Partitions: []txn.Partition{{Topic: group.Topic, Number: partition}}}
	var err error
	switch {
	case req.Version >= 5:
		r.Version = 2
		err = s.Enroller.Add(ctx, r)
	case !s.Config.Broker().TransactionPartitionVerificationEnable:
		return nil
	default:
		var errs []error
		if errs, err = s.Enroller.Verify(ctx, r); err == nil {
			err = errs[0]
		}
	}
	switch {
	case errors.Is(err, txn.ErrFenced):
		return kerr.InvalidProducerEpoch
	case errors.Is(err, txn.ErrNotInTxn) && req.Version < 4:
		return kerr.InvalidTxnState
	case txnUnreachable(err): // the group's coordinator is here: the client shall not look for another
		return coordinator.ErrLoading
	}
	return err
}
