package api

import (
	"context"
	"errors"

	"ottla/broker/metadata"
	"ottla/coordinator"
	"ottla/coordinator/txn"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Enroller tells the coordinator of a transactional id, whichever broker that is, that a
// transaction has partitions here, or asks it whether it does (KIP-890).
type Enroller interface {
	Add(ctx context.Context, r txn.AddRequest) error
	Verify(ctx context.Context, r txn.AddRequest) ([]error, error) // one error, or nil, for each partition
}

// txnCode is the code of an error of the transaction coordinator. Clients of before KIP-588 know a
// fenced producer by another one.
func txnCode(ctx context.Context, err error, knowsFenced bool) int16 {
	if errors.Is(err, txn.ErrFenced) && !knowsFenced {
		return kerr.InvalidProducerEpoch.Code
	}
	return code(ctx, err)
}

// txnUnreachable: it could not be found out, for now, what the transaction coordinator knows.
func txnUnreachable(err error) bool {
	return errors.Is(err, coordinator.ErrNotCoordinator) || errors.Is(err, coordinator.ErrNotAvailable) ||
		errors.Is(err, coordinator.ErrLoading) || errors.Is(err, coordinator.ErrTimedOut) || errors.Is(err, coordinator.ErrQueueFull)
}

// txnRefused: what the transaction coordinator said will not change by itself.
func txnRefused(err error) bool {
	return errors.Is(err, txn.ErrFenced) || errors.Is(err, txn.ErrProducerID) || errors.Is(err, txn.ErrNotInTxn) || errors.Is(err, txn.ErrInvalidID)
}

// hasPartition says whether the cluster has a partition.
func hasPartition(pic *metadata.Picture, topic string, n int32) bool {
	return pic.Partition(topic, n) != nil
}
