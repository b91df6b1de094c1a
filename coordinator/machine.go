// Package coordinator runs replicated state machines over the partitions of an internal topic.
// It knows nothing of groups: a machine is pure, this package does its reading, writing,
// waiting and timing.
//
// A shard is one partition of the topic, led by this broker. Its machine is rebuilt by replay
// when the partition is won and dropped when it is lost. Everything that a machine does runs on
// the shard's goroutine, which exists only while there is something to do or to wait for.
//
// # What may be seen before it is committed
//
// Nothing that a record says. A step returns records and what is to happen once they are
// committed (Effects.Then, Effects.Answers); only then the machine changes what the records
// describe. So a failed append has nothing to roll back, and an answer never promises what a
// new leader would not find. Records of several steps go out as one batch; while it is on its
// way, later steps run on what is committed and collect the next one. A step that must see
// everything before it, and be seen by everything after it, is Exclusive.
//
// An append whose outcome is not known (the wait for the commit fails) is settled by reading
// the log again.
//
// Locks, outermost first: Runtime.mu, then shard.mu. Neither is held during a step or I/O.
package coordinator

import (
	"context"
	"errors"
	"iter"
	"time"

	"ottla/protocol/record"
)

// Errors that answers may carry. A Store wraps its own with the first four.
var (
	// ErrNotCoordinator: the shard is not led here, or no longer, or its log cannot be written
	// (Kafka: NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR become NOT_COORDINATOR).
	ErrNotCoordinator = errors.New("this broker is not the coordinator")
	// ErrNotAvailable: the write can't be done now: too few replicas in sync, time is up, no
	// such topic yet (Kafka: COORDINATOR_NOT_AVAILABLE).
	ErrNotAvailable = errors.New("the coordinator is not available")
	// ErrTooLarge: the records are larger than the topic takes.
	ErrTooLarge = errors.New("the coordinator's records are too large for its topic")
	// ErrLoading: the shard is led but has not read its log to the end.
	ErrLoading = errors.New("the coordinator is loading")
	// ErrTimedOut: the commit takes longer than offsets.commit.timeout.ms. The records may
	// still become committed.
	ErrTimedOut = errors.New("the coordinator's write was not committed in time")
	// ErrQueueFull: more requests wait for the shard than Options.MaxQueued.
	ErrQueueFull = errors.New("too many requests wait for the coordinator")
)

// Instant is one point in time by two clocks.
type Instant struct {
	Mono time.Duration // since the runtime was made; never steps; for everything that is a duration
	Wall int64         // milliseconds since 1970; may step; for what is written down
}

// Never is a wake-up time that does not come.
const Never = time.Duration(1<<63 - 1)

// Record is one record that a machine wants in the log. A nil Value is a tombstone.
type Record struct {
	Key, Value []byte
}

// Logged is a record read back; Key and Value are only valid during the call that gets them.
// Producer is -1 for a record outside a transaction.
type Logged struct {
	Record
	Offset   int64
	Time     int64 // milliseconds since 1970
	Producer int64
	Epoch    int16 // of the producer
}

// Ticket stands for one request that waits for its answer. A machine keeps it and names it in
// an Answer, once.
type Ticket struct {
	result chan result
}

type result struct {
	value any
	err   error
}

func newTicket() *Ticket { return &Ticket{result: make(chan result, 1)} }

// Answer is what one request gets: a value, or an error.
type Answer struct {
	To    *Ticket
	Value any
	Err   error
}

// Effects is what comes out of a step.
type Effects struct {
	Records []Record // appended in order; what Then and Answers say holds once they are committed
	Answers []Answer // released when Records are committed, with Records' error if they can't be appended
	Then    func(Commit) Effects

	// Producer is not nil for records of a transaction: they become a batch of their own, and
	// if that can't be appended it concerns this step alone.
	Producer *Producer
	// Outside is what somebody outside of the shard has to do once Records are committed; each
	// is handed to Options.Outside. It is dropped when they can't be appended.
	Outside []any
}

// Producer is whose transaction the records of a step belong to.
type Producer struct {
	ID    int64
	Epoch int16
	// End is not nil for a step that ends the transaction: the marker is its only record, and
	// Effects.Records is empty.
	End *record.EndMarker
}

// Commit tells Then how its records fared: their offsets, or why they are not in the log.
// After an error the machine is as it was before the records, but for what Then does.
type Commit struct {
	Now     Instant
	Offsets []int64 // one a record; only valid during the call
	Err     error
}

// Machine is a state machine of one shard. It has no clock, no randomness and no I/O.
type Machine interface {
	// Replay takes one record of the log, in order. It must not fail: what it can't read it
	// leaves out and counts.
	Replay(Logged)
	// ReplayMarker ends the transaction of a producer.
	ReplayMarker(producer int64, commit bool)
	// Start is called once, when everything has been replayed.
	Start(Instant) Effects
	// Stop is called once when the shard is lost: answers for everybody who waits.
	Stop() []Answer
	// Wake tells when Tick wants to be called, by Instant.Mono.
	Wake() time.Duration
	// Tick does what is due.
	Tick(Instant) Effects
	// Sweep is called every Options.SweepEvery, as an exclusive step.
	Sweep(Instant) Effects
	// Idle tells that the machine waits for nothing: no timer, nothing to sweep.
	Idle() bool
}

// Store keeps the shards' logs. The broker wires it to the partitions of the internal topic.
// Its errors wrap ErrNotCoordinator, ErrNotAvailable or ErrTooLarge where they mean that.
type Store interface {
	// Append adds one v2 batch to a shard's log at a leader epoch and returns its base offset.
	// After an error nothing was appended. wait returns when the batch is committed (nil), or
	// when this can't be known any more; it is nil when the batch is committed already.
	// batch may be kept until wait has returned.
	Append(ctx context.Context, shard, epoch int32, batch []byte) (base int64, wait func(context.Context) error, err error)
	// Load yields every batch from the start of the log to its end as it is at the call, whole
	// batches in slices that are valid until the next one, and ends after all of it is committed.
	Load(ctx context.Context, shard, epoch int32) iter.Seq2[[]byte, error]
}

// Step is one step of a machine. The answer to `to` may come with a later step.
type Step[M Machine] func(m M, now Instant, to *Ticket) Effects
