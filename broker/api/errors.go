package api

import (
	"context"
	"errors"
	"log/slog"

	"ottla/broker/config"
	"ottla/broker/controller"
	"ottla/broker/registry"
	"ottla/broker/replica"
	"ottla/coordinator"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/log"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kerr"
)

// wire is the one map from the errors of the rooms below to what is said on the wire. The
// first row that errors.Is matches counts, so a wrapped, more special error stands above a
// general one.
var wire = []struct {
	err  error
	code *kerr.Error
}{
	// The coordinators say what a failure of their own log means to a client, whatever it wraps.
	{coordinator.ErrNotCoordinator, kerr.NotCoordinator},
	{coordinator.ErrNotAvailable, kerr.CoordinatorNotAvailable},
	{coordinator.ErrTimedOut, kerr.CoordinatorNotAvailable},
	{coordinator.ErrLoading, kerr.CoordinatorLoadInProgress},
	{coordinator.ErrQueueFull, kerr.CoordinatorLoadInProgress}, // try again, here
	{coordinator.ErrTooLarge, kerr.UnknownServerError},
	{group.ErrInvalidGroupID, kerr.InvalidGroupID},
	{group.ErrInvalidSessionTimeout, kerr.InvalidSessionTimeout},
	{group.ErrUnknownMember, kerr.UnknownMemberID},
	{group.ErrFencedInstance, kerr.FencedInstanceID},
	{group.ErrMemberIDRequired, kerr.MemberIDRequired},
	{group.ErrGroupFull, kerr.GroupMaxSizeReached},
	{group.ErrInconsistentProtocol, kerr.InconsistentGroupProtocol},
	{group.ErrIllegalGeneration, kerr.IllegalGeneration},
	{group.ErrRebalanceInProgress, kerr.RebalanceInProgress},
	{group.ErrGroupNotFound, kerr.GroupIDNotFound},
	{group.ErrNonEmptyGroup, kerr.NonEmptyGroup},
	{group.ErrSubscribed, kerr.GroupSubscribedToTopic},
	{group.ErrMetadataTooLarge, kerr.OffsetMetadataTooLarge},
	{group.ErrUnstableOffset, kerr.UnstableOffsetCommit},
	{group.ErrFencedMemberEpoch, kerr.FencedMemberEpoch},
	{group.ErrUnreleasedInstance, kerr.UnreleasedInstanceID},
	{group.ErrStaleMemberEpoch, kerr.StaleMemberEpoch},
	{group.ErrUnsupportedAssignor, kerr.UnsupportedAssignor},
	{group.ErrUnsupportedVersion, kerr.UnsupportedVersion},
	{group.ErrInvalidRegex, kerr.InvalidRegularExpression},
	{group.ErrInvalidRequest, kerr.InvalidRequest},
	{group.ErrNotConsumerGroup, kerr.GroupIDNotFound},
	{group.ErrTxnEnded, kerr.InvalidTxnState},
	{group.ErrStaleMarker, kerr.InvalidProducerEpoch},

	{txn.ErrInvalidID, kerr.InvalidRequest},
	{txn.ErrInvalidTimeout, kerr.InvalidTransactionTimeout},
	{txn.ErrConcurrent, kerr.ConcurrentTransactions},
	{txn.ErrFenced, kerr.ProducerFenced},
	{txn.ErrProducerID, kerr.InvalidProducerIDMapping},
	{txn.ErrInvalidState, kerr.InvalidTxnState},
	{txn.ErrNotInTxn, kerr.TransactionAbortable},
	{txn.ErrNotFound, kerr.TransactionalIDNotFound},
	{txn.ErrInvalidPattern, kerr.InvalidRegularExpression},

	{context.DeadlineExceeded, kerr.RequestTimedOut},

	{controller.ErrNotController, kerr.NotController},
	{controller.ErrStopped, kerr.NotController},
	{controller.ErrTimedOut, kerr.RequestTimedOut},
	{controller.ErrTopicExists, kerr.TopicAlreadyExists},
	{controller.ErrInvalidTopic, kerr.InvalidTopicException},
	{controller.ErrUnknownTopicOrPartition, kerr.UnknownTopicOrPartition},
	{controller.ErrUnknownTopicID, kerr.UnknownTopicID},
	{controller.ErrInvalidPartitions, kerr.InvalidPartitions},
	{controller.ErrInvalidReplicationFactor, kerr.InvalidReplicationFactor},
	{controller.ErrInvalidReplicaAssignment, kerr.InvalidReplicaAssignment},
	{controller.ErrInvalidRequest, kerr.InvalidRequest},
	{controller.ErrPolicyViolation, kerr.PolicyViolation},
	{controller.ErrReassignmentInProgress, kerr.ReassignmentInProgress},
	{controller.ErrNoReassignment, kerr.NoReassignmentInProgress},
	{controller.ErrBrokerNotAvailable, kerr.BrokerNotAvailable},
	{controller.ErrElectionNotNeeded, kerr.ElectionNotNeeded},
	{controller.ErrPreferredLeaderUnavailable, kerr.PreferredLeaderNotAvailable},
	{controller.ErrEligibleLeadersUnavailable, kerr.EligibleLeadersNotAvailable},
	{controller.ErrStaleBrokerEpoch, kerr.StaleBrokerEpoch},
	{controller.ErrStaleControllerEpoch, kerr.StaleControllerEpoch},
	{controller.ErrFencedLeaderEpoch, kerr.FencedLeaderEpoch},
	{controller.ErrInvalidUpdateVersion, kerr.InvalidUpdateVersion},
	{controller.ErrIneligibleReplica, kerr.IneligibleReplica},
	{controller.ErrReplicaStorage, kerr.KafkaStorageError},

	{registry.ErrStorage, kerr.KafkaStorageError},
	{registry.ErrFull, kerr.KafkaStorageError},
	{registry.ErrClosed, kerr.KafkaStorageError},
	{registry.ErrConnectionLoss, kerr.RequestTimedOut}, // the outcome is not known
	{registry.ErrSessionExpired, kerr.RequestTimedOut},

	{replica.ErrUnknownPartition, kerr.UnknownTopicOrPartition},
	{replica.ErrNotLeader, kerr.NotLeaderForPartition},
	{replica.ErrOffline, kerr.KafkaStorageError},
	{replica.ErrStaleState, kerr.StaleControllerEpoch},
	{replica.ErrTopicID, kerr.InconsistentTopicID},
	{replica.ErrFencedEpoch, kerr.FencedLeaderEpoch},
	{replica.ErrUnknownEpoch, kerr.UnknownLeaderEpoch},
	{replica.ErrNotEnoughReplicasAfterAppend, kerr.NotEnoughReplicasAfterAppend},
	{replica.ErrNotEnoughReplicas, kerr.NotEnoughReplicas},
	{replica.ErrTimedOut, kerr.RequestTimedOut},
	{replica.ErrOffsetNotAvailable, kerr.OffsetNotAvailable},
	{replica.ErrPolicy, kerr.PolicyViolation},

	{log.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{log.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{log.ErrInvalidProducerEpoch, kerr.InvalidProducerEpoch},
	{log.ErrInvalidTxnState, kerr.InvalidTxnState},
	{log.ErrCoordinatorFenced, kerr.TransactionCoordinatorFenced},
	{log.ErrStorage, kerr.KafkaStorageError},
	{log.ErrClosed, kerr.NotLeaderForPartition},
	{log.ErrTopicID, kerr.InconsistentTopicID},
	{log.ErrTooLarge, kerr.RecordListTooLarge},

	{record.ErrShort, kerr.CorruptMessage},
	{record.ErrCorrupt, kerr.CorruptMessage},
	{record.ErrInvalidRecord, kerr.InvalidRecord},
	{record.ErrInvalidTimestamp, kerr.InvalidTimestamp},
	{record.ErrTooLarge, kerr.MessageTooLarge},
	{record.ErrUnsupportedCompression, kerr.UnsupportedCompressionType},
	{record.ErrUnsupportedForFormat, kerr.UnsupportedForMessageFormat},
	{record.ErrCodec, kerr.UnknownServerError}, // as Kafka: no client sends such a batch again

	{config.ErrInvalidConfig, kerr.InvalidConfig},
	{config.ErrInvalidRequest, kerr.InvalidRequest},
}

// code returns the wire code of an error: 0 for nil, the row of wire that matches, the code of
// a kerr.Error. An error that has none of these is logged and answered as
// UNKNOWN_SERVER_ERROR, never as something that a client acts upon.
func code(ctx context.Context, err error) int16 {
	if err == nil {
		return 0
	}
	for i := range wire {
		if errors.Is(err, wire[i].err) {
			return wire[i].code.Code
		}
	}
	if k, ok := errors.AsType[*kerr.Error](err); ok {
		return k.Code
	}
	c, ok := ctx.Value(callKey{}).(*call)
	switch {
	case errors.Is(err, context.Canceled):
		// The broker stops, or the client has left. The connection ends without an answer, which
		// a client tries again; no code says that for every API.
		if ok {
			c.ended = true
		}
	case ok:
		c.peer.api.Metrics.unmapped.Inc()
		c.peer.api.Logger.ErrorContext(ctx, "error without a wire code", "err", err, "request", c.route.Name)
	default:
		slog.ErrorContext(ctx, "error without a wire code", "err", err)
	}
	return kerr.UnknownServerError.Code
}

// message returns the text of an error for the fields that carry one beside a code; nil for nil.
func message(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	return &text
}
