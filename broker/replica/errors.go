package replica

import "errors"

// What can be wrong with a request to a replica. Errors of the log (log.ErrStorage,
// log.ErrOffsetOutOfRange and the rest) pass through as they are.
var (
	// ErrUnknownPartition: the cluster has no such partition.
	ErrUnknownPartition = errors.New("unknown topic or partition")
	// ErrNotLeader: the partition exists, but this broker does not lead it (or, for reads by
	// any replica, has no copy of it).
	ErrNotLeader = errors.New("not the leader of the partition")
	// ErrOffline: the partition's log could not be opened; its directory is offline.
	ErrOffline = errors.New("the partition's log directory is offline")
	// ErrTopicID: the partition here belongs to another topic of the same name.
	ErrTopicID = errors.New("topic id does not match the one of the log")
	// ErrStaleState: a state that is older than the one the replica has.
	ErrStaleState = errors.New("partition state is older than the known one")
	// ErrFencedEpoch: the leader epoch that was asked for is older than the partition's.
	ErrFencedEpoch = errors.New("leader epoch is older than the partition's")
	// ErrUnknownEpoch: the leader epoch that was asked for is newer than the partition's.
	ErrUnknownEpoch = errors.New("leader epoch is newer than the partition's")
	// ErrNotEnoughReplicas: too few replicas are in sync; nothing was appended.
	ErrNotEnoughReplicas = errors.New("fewer in-sync replicas than min.insync.replicas")
	// ErrNotEnoughReplicasAfterAppend: the records are in the leader's log, but too few
	// replicas are in sync.
	ErrNotEnoughReplicasAfterAppend = errors.New("fewer in-sync replicas than min.insync.replicas after the append")
	// ErrTimedOut: the wait for the replicas took longer than the request allows.
	ErrTimedOut = errors.New("timed out waiting for the replicas")
	// ErrOffsetNotAvailable: a new leader does not know yet how far the records are committed.
	ErrOffsetNotAvailable = errors.New("the high watermark has not reached the start of the leader epoch yet")
	// ErrPolicy: the topic's cleanup.policy does not allow to delete records.
	ErrPolicy = errors.New("records cannot be deleted: cleanup.policy has no delete")
)
