package api

import (
	"context"
	"errors"

	"ottla/broker/auth"
	"ottla/broker/replica"
	"ottla/coordinator/txn"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errProducers: a request is one producer's.
var errProducers = refuse(kerr.InvalidProducerIDMapping, "Transactional records contained more than one producer ID")

// enrolment says that a partition belongs to the request's transaction: what the append rests
// on, or why there must be none.
type enrolment struct {
	guard uint64
	err   error
}

// transactionalBatch gives the first batch if it is one of a transaction: records of a
// transaction are batches v2, and such a batch comes alone.
func transactionalBatch(b []byte) (record.Batch, bool) {
	first, _, err := record.Split(b)
	ok := err == nil && first.Magic() == 2 && len(first) >= record.HeaderSize && first.IsTransactional()
	return first, ok
}

// enrol makes sure that the transaction's coordinator knows of the partitions, before anything
// is appended to them (KIP-890). Those where the transaction is open already need no asking.
// Produce v12 and later adds them to the transaction; before, the client has done so, and the
// coordinator is asked whether it has, unless transaction.partition.verification.enable is off.
func (x *produceCall) enrol(ctx context.Context) error {
	adds := x.req.Version >= 12
	x.verify = adds || x.s.Config.Broker().TransactionPartitionVerificationEnable
	type open struct {
		at   *kmsg.ProduceRequestTopicPartition
		part *replica.Partition
	}
	var ask []open
	r := txn.AddRequest{ID: *x.req.TransactionID, Producer: -1, Version: 2}
	for i := range x.req.Topics {
		t := &x.req.Topics[i]
		name, known := x.find(t)
		may := known != nil && !internalTopic(name) && x.s.allowed(x.p, auth.Write, auth.Topic, name)
		for j := range t.Partitions {
			in := &t.Partitions[j]
			b, ok := transactionalBatch(in.Records)
			if !ok {
				continue
			}
			if r.Producer >= 0 && (r.Producer != b.ProducerID() || r.Epoch != b.ProducerEpoch()) {
				return errProducers
			}
			r.Producer, r.Epoch = b.ProducerID(), b.ProducerEpoch()
			if !may || !x.verify || in.Partition < 0 || int(in.Partition) >= len(known.Partitions) {
				continue // there is no append to it, or nothing to ask
			}
			part, err := x.s.Replicas.Leader(name, in.Partition)
			if err != nil {
				continue // as well
			}
			guard, err := part.StartVerification(b.ProducerID(), b.ProducerEpoch(), b.BaseSequence())
			if err != nil || guard == 0 {
				continue
			}
			x.enrolled[in] = &enrolment{guard: guard}
			ask = append(ask, open{in, part})
			r.Partitions = append(r.Partitions, txn.Partition{Topic: name, Number: in.Partition})
		}
	}
	if len(ask) == 0 {
		return nil
	}
	var errs []error
	var err error
	if adds {
		r.Patience = x.s.Txns.Patience()
		err = x.s.Enroller.Add(ctx, r)
	} else {
		errs, err = x.s.Enroller.Verify(ctx, r)
	}
	for i, one := range ask {
		e := err
		if e == nil && errs != nil {
			e = errs[i]
		}
		is := x.enrolled[one.at]
		if e != nil {
			if txnRefused(e) {
				one.part.DropVerification(r.Producer, is.guard)
			}
			is.err = x.notEnrolled(ctx, e)
		}
	}
	return nil
}

// notEnrolled is what a producer reads of an error of the transaction coordinator: codes that
// clients of the request's version know and act rightly upon (ReplicaManager.handleProduceAppend,
// AddPartitionsToTxnManager).
func (x *produceCall) notEnrolled(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, txn.ErrFenced):
		return refuse(kerr.InvalidProducerEpoch, "%v", err)
	case errors.Is(err, txn.ErrNotInTxn) && x.req.Version >= 11:
		return refuse(kerr.TransactionAbortable, "%v", err)
	case errors.Is(err, txn.ErrNotInTxn):
		return refuse(kerr.InvalidTxnState, "Partition was not added to the transaction")
	case errors.Is(err, txn.ErrConcurrent) && x.req.Version >= 12:
		return err
	case errors.Is(err, txn.ErrConcurrent), txnUnreachable(err):
		// Of all codes that make a client try again, this is the one that does not make it look for the leader.
		return refuse(kerr.NotEnoughReplicas, "Unable to verify the partition has been added to the transaction. Underlying error: %s", codeName(ctx, err))
	}
	return err
}

// codeName is Kafka's name of an error's code.
func codeName(ctx context.Context, err error) string {
	if k := kerr.TypedErrorForCode(code(ctx, err)); k != nil {
		return k.Message
	}
	return "UNKNOWN_SERVER_ERROR"
}
