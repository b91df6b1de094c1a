package api

import (
	"context"
	"errors"
	"time"

	"ottla/broker/auth"
	"ottla/broker/replica"
	"ottla/coordinator/txn"
	"ottla/log"
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
	x.verify = x.req.Version >= 12 || x.s.Config.Broker().TransactionPartitionVerificationEnable
	r := txn.AddRequest{ID: *x.req.TransactionID, Producer: -1, Version: 2}
	var in []joining
	for i := range x.req.Topics {
		t := &x.req.Topics[i]
		name, known := x.find(t)
		may := known != nil && !internalTopic(name) && x.s.allowed(x.p, auth.Write, auth.Topic, name)
		for j := range t.Partitions {
			at := &t.Partitions[j]
			b, ok := transactionalBatch(at.Records)
			if !ok {
				continue
			}
			if r.Producer >= 0 && (r.Producer != b.ProducerID() || r.Epoch != b.ProducerEpoch()) {
				return errProducers
			}
			r.Producer, r.Epoch = b.ProducerID(), b.ProducerEpoch()
			if !may || !x.verify || at.Partition < 0 || int(at.Partition) >= len(known.Partitions) {
				continue // there is no append to it, or nothing to ask
			}
			if part, err := x.s.Replicas.Leader(name, at.Partition); err == nil {
				in = append(in, joining{at, part, b.BaseSequence()})
			}
		}
	}
	x.txn = r
	x.join(ctx, in)
	return nil
}

// joining is a partition that is to be part of the transaction.
type joining struct {
	at       *kmsg.ProduceRequestTopicPartition
	part     *replica.Partition
	sequence int32
}

// join asks the coordinator about partitions, and keeps what it said of each.
func (x *produceCall) join(ctx context.Context, in []joining) {
	if x.req.Version >= 12 {
		x.s.untilFree(ctx, x.txn.ID, func() error {
			return x.ask(in, func(r txn.AddRequest) ([]error, error) { return nil, x.s.Enroller.Add(ctx, r) })
		})
	} else {
		x.ask(in, func(r txn.AddRequest) ([]error, error) { return x.s.Enroller.Verify(ctx, r) })
	}
	for _, one := range in {
		if is := x.enrolled[one.at]; is != nil && is.err != nil {
			is.err = x.notEnrolled(ctx, is.err)
		}
	}
}

// ask asks about those partitions where the transaction is not open. It returns the error that
// concerns all of them.
func (x *produceCall) ask(in []joining, coordinator func(txn.AddRequest) ([]error, error)) error {
	r := x.txn
	var asked []joining
	for _, one := range in {
		delete(x.enrolled, one.at)
		guard, err := one.part.StartVerification(r.Producer, r.Epoch, one.sequence)
		if err != nil || guard == 0 {
			continue // the append will tell
		}
		if x.enrolled == nil {
			x.enrolled = map[*kmsg.ProduceRequestTopicPartition]*enrolment{}
		}
		x.enrolled[one.at] = &enrolment{guard: guard}
		asked = append(asked, one)
		r.Partitions = append(r.Partitions, txn.Partition{Topic: one.part.Topic(), Number: one.part.Number()})
	}
	if len(asked) == 0 {
		return nil
	}
	begun, failures := time.Now(), 0
	errs, err := coordinator(r)
	defer func() { x.s.Metrics.verifiedIn(time.Since(begun), failures) }()
	for i, one := range asked {
		is := x.enrolled[one.at]
		if is.err = err; err == nil && errs != nil {
			is.err = errs[i]
		}
		if is.err != nil {
			failures++
		}
		if txnRefused(is.err) {
			one.part.DropVerification(r.Producer, is.guard)
		}
	}
	return err
}

// appendTries is how often a batch is tried whose verification a marker overtakes. One may: that
// of the transaction before, written between the guard and the coordinator's answer.
const appendTries = 3

// append appends a partition's records, where they belong to no transaction or to one that the
// coordinator knows to have the partition.
func (x *produceCall) append(ctx context.Context, part *replica.Partition, in *kmsg.ProduceRequestTopicPartition) (done log.Appended, wait func(context.Context) error, err error) {
	a := log.Append{Records: in.Records, Origin: record.Client, RequestVersion: x.req.Version, VerifyTxn: x.verify}
	for try := 1; ; try++ {
		if is := x.enrolled[in]; is != nil {
			if is.err != nil {
				return done, nil, is.err
			}
			a.Guard = is.guard
		}
		done, wait, err = part.AppendFor(wakesOf(ctx), a, x.req.Acks)
		if try == appendTries || !errors.Is(err, log.ErrUnverified) {
			return done, wait, err
		}
		b, _ := transactionalBatch(in.Records)
		x.join(ctx, []joining{{in, part, b.BaseSequence()}})
	}
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
