package txn

import "errors"

// What the coordinator answers, beside the errors of package coordinator.
var (
	ErrInvalidID      = errors.New("the transactional id is empty")
	ErrInvalidTimeout = errors.New("the transaction timeout is not above 0 or is larger than transaction.max.timeout.ms")
	// ErrConcurrent: the transactional id is in the middle of a change, or the markers of the
	// transaction before are still being written. The client tries again.
	ErrConcurrent = errors.New("the transactional id is busy with another change")
	// ErrFenced: another producer has taken over the transactional id, or the transaction has
	// timed out.
	ErrFenced          = errors.New("a newer epoch of the producer is known for the transactional id")
	ErrProducerID      = errors.New("the producer id is not the one of the transactional id")
	ErrInvalidState    = errors.New("the transaction is not in a state that allows this")
	ErrNotInTxn        = errors.New("the partition was not added to the transaction")
	ErrNotFound        = errors.New("there is no such transactional id")
	ErrInvalidPattern  = errors.New("the pattern for transactional ids is no regular expression")
	errNeedsProducerID = errors.New("the step needs a new producer id")
)

// What a Markers says of a partition.
var (
	// ErrCoordinatorFenced: the partition has seen a newer coordinator, which finishes the
	// transaction in place of this one.
	ErrCoordinatorFenced = errors.New("a newer coordinator of the transactional id is known")
	// ErrMarkerRefused: the partition knows a newer epoch of the producer, so nothing of the
	// transaction is open there.
	ErrMarkerRefused = errors.New("the partition knows a newer epoch of the producer")
)
