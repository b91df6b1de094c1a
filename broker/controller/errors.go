package controller

import (
	"errors"
	"fmt"
)

// What a call can end with. Where the text is for a client it is Kafka 3.9's, and the error
// unwraps to one of these.
var (
	ErrNotController              = errors.New("this broker is not the controller")
	ErrStopped                    = errors.New("the controller has stopped")
	ErrTimedOut                   = errors.New("the request timed out")
	ErrTopicExists                = errors.New("topic exists")
	ErrInvalidTopic               = errors.New("invalid topic")
	ErrUnknownTopicOrPartition    = errors.New("unknown topic or partition")
	ErrUnknownTopicID             = errors.New("unknown topic id")
	ErrInvalidPartitions          = errors.New("invalid number of partitions")
	ErrInvalidReplicationFactor   = errors.New("invalid replication factor")
	ErrInvalidReplicaAssignment   = errors.New("invalid replica assignment")
	ErrInvalidRequest             = errors.New("invalid request")
	ErrPolicyViolation            = errors.New("policy violation")
	ErrReassignmentInProgress     = errors.New("reassignment in progress")
	ErrNoReassignment             = errors.New("no reassignment in progress")
	ErrBrokerNotAvailable         = errors.New("broker not available")
	ErrElectionNotNeeded          = errors.New("election not needed")
	ErrPreferredLeaderUnavailable = errors.New("preferred leader not available")
	ErrEligibleLeadersUnavailable = errors.New("eligible leaders not available")
	ErrStaleBrokerEpoch           = errors.New("stale broker epoch")
	ErrStaleControllerEpoch       = errors.New("stale controller epoch")
	ErrFencedLeaderEpoch          = errors.New("fenced leader epoch")
	ErrInvalidUpdateVersion       = errors.New("invalid update version")
	ErrIneligibleReplica          = errors.New("ineligible replica")
	ErrReplicaStorage             = errors.New("replica's storage has failed") // what a Broker answers for a partition
)

// refusal is a sentinel with a text for the client.
type refusal struct {
	sentinel error
	text     string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.sentinel }

func refuse(sentinel error, format string, args ...any) error {
	return &refusal{sentinel, fmt.Sprintf(format, args...)}
}
