package api

import (
	"context"
	"errors"
	"time"

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
	// Await waits, no longer than it is told, until it may be worth to try an Add again that was
	// answered with ErrConcurrent.
	Await(ctx context.Context, id string, most time.Duration) error
}

// untilFree tries again, for a while, what ErrConcurrent was the answer to: the markers of the
// transaction before are being written. Each time anew from its start, because a guard that was
// taken before such a marker is void (add.partitions.to.txn.retry.backoff.max.ms; Kafka:
// ReplicaManager.handleProduceAppend).
func (s *API) untilFree(ctx context.Context, id string, try func() error) error {
	for deadline := time.Now().Add(s.Txns.Patience()); ; {
		err := try()
		left := time.Until(deadline)
		if !errors.Is(err, txn.ErrConcurrent) || left <= 0 || s.Enroller.Await(ctx, id, left) != nil {
			return err
		}
	}
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
