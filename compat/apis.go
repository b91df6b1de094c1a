// Package compat holds what outsiders rely on, as tables.
package compat

import "slices"

// State says what ottla does with an API.
type State int8

const (
	Served    State = iota // in ApiVersions, in every version from Min to Max
	Later                  // to be built; Why names with what. Not in ApiVersions
	Refused                // never; Why says the reason. Not in ApiVersions
	Clustered              // served, and in ApiVersions, where brokers make a cluster; Why says which
)

func (s State) String() string { return [...]string{"served", "later", "refused", "in a cluster"}[s] }

// API is one row of the table: an API that a broker listener of Kafka 3.9.1 or 4.4.0 serves.
// Min is 3.9.1's lowest version and Max 4.4.0's highest stable one; what is not served yet
// has the range that it will be served in.
type API struct {
	Key      int16
	Name     string
	Min, Max int16
	State    State
	Why      string
}

// The APIs, by Kafka's key.
var (
	Produce                               = API{0, "Produce", 0, 13, Served, ""}
	Fetch                                 = API{1, "Fetch", 0, 18, Served, ""}
	ListOffsets                           = API{2, "ListOffsets", 0, 11, Served, ""}
	Metadata                              = API{3, "Metadata", 0, 13, Served, ""}
	LeaderAndIsr                          = API{4, "LeaderAndIsr", 0, 7, Clustered, "among the brokers of a cluster on ZooKeeper"}
	StopReplica                           = API{5, "StopReplica", 0, 4, Clustered, "among the brokers of a cluster on ZooKeeper"}
	UpdateMetadata                        = API{6, "UpdateMetadata", 0, 8, Clustered, "among the brokers of a cluster on ZooKeeper"}
	ControlledShutdown                    = API{7, "ControlledShutdown", 0, 3, Clustered, "among the brokers of a cluster on ZooKeeper"}
	OffsetCommit                          = API{8, "OffsetCommit", 0, 10, Served, ""}
	OffsetFetch                           = API{9, "OffsetFetch", 0, 10, Served, ""}
	FindCoordinator                       = API{10, "FindCoordinator", 0, 6, Served, ""}
	JoinGroup                             = API{11, "JoinGroup", 0, 9, Served, ""}
	Heartbeat                             = API{12, "Heartbeat", 0, 4, Served, ""}
	LeaveGroup                            = API{13, "LeaveGroup", 0, 5, Served, ""}
	SyncGroup                             = API{14, "SyncGroup", 0, 5, Served, ""}
	DescribeGroups                        = API{15, "DescribeGroups", 0, 6, Served, ""}
	ListGroups                            = API{16, "ListGroups", 0, 5, Served, ""}
	SaslHandshake                         = API{17, "SaslHandshake", 0, 1, Later, "security"}
	ApiVersions                           = API{18, "ApiVersions", 0, 5, Served, ""}
	CreateTopics                          = API{19, "CreateTopics", 0, 7, Served, ""}
	DeleteTopics                          = API{20, "DeleteTopics", 0, 6, Served, ""}
	DeleteRecords                         = API{21, "DeleteRecords", 0, 2, Served, ""}
	InitProducerId                        = API{22, "InitProducerId", 0, 5, Served, ""}
	OffsetForLeaderEpoch                  = API{23, "OffsetForLeaderEpoch", 0, 4, Served, ""}
	AddPartitionsToTxn                    = API{24, "AddPartitionsToTxn", 0, 5, Served, ""}
	AddOffsetsToTxn                       = API{25, "AddOffsetsToTxn", 0, 4, Served, ""}
	EndTxn                                = API{26, "EndTxn", 0, 5, Served, ""}
	WriteTxnMarkers                       = API{27, "WriteTxnMarkers", 0, 2, Served, ""}
	TxnOffsetCommit                       = API{28, "TxnOffsetCommit", 0, 6, Served, ""}
	DescribeAcls                          = API{29, "DescribeAcls", 0, 3, Later, "security"}
	CreateAcls                            = API{30, "CreateAcls", 0, 3, Later, "security"}
	DeleteAcls                            = API{31, "DeleteAcls", 0, 3, Later, "security"}
	DescribeConfigs                       = API{32, "DescribeConfigs", 0, 4, Served, ""}
	AlterConfigs                          = API{33, "AlterConfigs", 0, 2, Served, ""}
	AlterReplicaLogDirs                   = API{34, "AlterReplicaLogDirs", 0, 2, Later, "moving replicas between directories"}
	DescribeLogDirs                       = API{35, "DescribeLogDirs", 0, 5, Served, ""}
	SaslAuthenticate                      = API{36, "SaslAuthenticate", 0, 2, Later, "security"}
	CreatePartitions                      = API{37, "CreatePartitions", 0, 3, Served, ""}
	CreateDelegationToken                 = API{38, "CreateDelegationToken", 0, 3, Later, "security"}
	RenewDelegationToken                  = API{39, "RenewDelegationToken", 0, 2, Later, "security"}
	ExpireDelegationToken                 = API{40, "ExpireDelegationToken", 0, 2, Later, "security"}
	DescribeDelegationToken               = API{41, "DescribeDelegationToken", 0, 3, Later, "security"}
	DeleteGroups                          = API{42, "DeleteGroups", 0, 3, Served, ""}
	ElectLeaders                          = API{43, "ElectLeaders", 0, 2, Served, ""}
	IncrementalAlterConfigs               = API{44, "IncrementalAlterConfigs", 0, 1, Served, ""}
	AlterPartitionReassignments           = API{45, "AlterPartitionReassignments", 0, 1, Served, ""}
	ListPartitionReassignments            = API{46, "ListPartitionReassignments", 0, 0, Served, ""}
	OffsetDelete                          = API{47, "OffsetDelete", 0, 0, Served, ""}
	DescribeClientQuotas                  = API{48, "DescribeClientQuotas", 0, 1, Later, "security"}
	AlterClientQuotas                     = API{49, "AlterClientQuotas", 0, 1, Later, "security"}
	DescribeUserScramCredentials          = API{50, "DescribeUserScramCredentials", 0, 0, Later, "security"}
	AlterUserScramCredentials             = API{51, "AlterUserScramCredentials", 0, 0, Later, "security"}
	DescribeQuorum                        = API{55, "DescribeQuorum", 0, 2, Refused, "there is no Raft quorum; consoles take a refused DescribeQuorum for a ZooKeeper cluster and go on"}
	AlterPartition                        = API{56, "AlterPartition", 0, 3, Clustered, "among the brokers of a cluster on ZooKeeper"}
	UpdateFeatures                        = API{57, "UpdateFeatures", 0, 2, Served, ""}
	Envelope                              = API{58, "Envelope", 0, 0, Refused, "a request is sent to the controller by the client itself, never wrapped by a broker"}
	DescribeCluster                       = API{60, "DescribeCluster", 0, 2, Served, ""}
	DescribeProducers                     = API{61, "DescribeProducers", 0, 0, Served, ""}
	UnregisterBroker                      = API{64, "UnregisterBroker", 0, 0, Later, "the ZooKeeper cluster"}
	DescribeTransactions                  = API{65, "DescribeTransactions", 0, 0, Served, ""}
	ListTransactions                      = API{66, "ListTransactions", 0, 2, Served, ""}
	AllocateProducerIds                   = API{67, "AllocateProducerIds", 0, 0, Clustered, "among the brokers of a cluster on ZooKeeper"}
	ConsumerGroupHeartbeat                = API{68, "ConsumerGroupHeartbeat", 0, 1, Served, ""}
	ConsumerGroupDescribe                 = API{69, "ConsumerGroupDescribe", 0, 1, Served, ""}
	GetTelemetrySubscriptions             = API{71, "GetTelemetrySubscriptions", 0, 0, Later, "client telemetry"}
	PushTelemetry                         = API{72, "PushTelemetry", 0, 0, Later, "client telemetry"}
	ListConfigResources                   = API{74, "ListConfigResources", 0, 1, Served, ""}
	DescribeTopicPartitions               = API{75, "DescribeTopicPartitions", 0, 0, Served, ""}
	ShareGroupHeartbeat                   = API{76, "ShareGroupHeartbeat", 0, 1, Later, "share groups"}
	ShareGroupDescribe                    = API{77, "ShareGroupDescribe", 0, 1, Later, "share groups"}
	ShareFetch                            = API{78, "ShareFetch", 0, 2, Later, "share groups"}
	ShareAcknowledge                      = API{79, "ShareAcknowledge", 0, 2, Later, "share groups"}
	AddRaftVoter                          = API{80, "AddRaftVoter", 0, 1, Refused, "there is no Raft quorum to add a voter to"}
	RemoveRaftVoter                       = API{81, "RemoveRaftVoter", 0, 0, Refused, "there is no Raft quorum to remove a voter from"}
	InitializeShareGroupState             = API{83, "InitializeShareGroupState", 0, 0, Later, "share groups"}
	ReadShareGroupState                   = API{84, "ReadShareGroupState", 0, 0, Later, "share groups"}
	WriteShareGroupState                  = API{85, "WriteShareGroupState", 0, 1, Later, "share groups"}
	DeleteShareGroupState                 = API{86, "DeleteShareGroupState", 0, 0, Later, "share groups"}
	ReadShareGroupStateSummary            = API{87, "ReadShareGroupStateSummary", 0, 1, Later, "share groups"}
	StreamsGroupHeartbeat                 = API{88, "StreamsGroupHeartbeat", 0, 1, Later, "streams groups"}
	StreamsGroupDescribe                  = API{89, "StreamsGroupDescribe", 0, 1, Later, "streams groups"}
	DescribeShareGroupOffsets             = API{90, "DescribeShareGroupOffsets", 0, 1, Later, "share groups"}
	AlterShareGroupOffsets                = API{91, "AlterShareGroupOffsets", 0, 0, Later, "share groups"}
	DeleteShareGroupOffsets               = API{92, "DeleteShareGroupOffsets", 0, 0, Later, "share groups"}
	StreamsGroupTopologyDescriptionUpdate = API{93, "StreamsGroupTopologyDescriptionUpdate", 0, 0, Later, "streams groups"}
	UnregisterController                  = API{94, "UnregisterController", 0, 0, Refused, "controllers are not registered apart from brokers"}
)

// APIs is the whole table, ascending by key.
var APIs = []API{
	Produce, Fetch, ListOffsets, Metadata, LeaderAndIsr, StopReplica,
	UpdateMetadata, ControlledShutdown, OffsetCommit, OffsetFetch, FindCoordinator, JoinGroup,
	Heartbeat, LeaveGroup, SyncGroup, DescribeGroups, ListGroups, SaslHandshake,
	ApiVersions, CreateTopics, DeleteTopics, DeleteRecords, InitProducerId, OffsetForLeaderEpoch,
	AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit, DescribeAcls,
	CreateAcls, DeleteAcls, DescribeConfigs, AlterConfigs, AlterReplicaLogDirs, DescribeLogDirs,
	SaslAuthenticate, CreatePartitions, CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken,
	DeleteGroups, ElectLeaders, IncrementalAlterConfigs, AlterPartitionReassignments, ListPartitionReassignments, OffsetDelete,
	DescribeClientQuotas, AlterClientQuotas, DescribeUserScramCredentials, AlterUserScramCredentials, DescribeQuorum, AlterPartition,
	UpdateFeatures, Envelope, DescribeCluster, DescribeProducers, UnregisterBroker, DescribeTransactions,
	ListTransactions, AllocateProducerIds, ConsumerGroupHeartbeat, ConsumerGroupDescribe, GetTelemetrySubscriptions, PushTelemetry,
	ListConfigResources, DescribeTopicPartitions, ShareGroupHeartbeat, ShareGroupDescribe, ShareFetch, ShareAcknowledge,
	AddRaftVoter, RemoveRaftVoter, InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState,
	ReadShareGroupStateSummary, StreamsGroupHeartbeat, StreamsGroupDescribe, DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets,
	StreamsGroupTopologyDescriptionUpdate, UnregisterController,
}

// Find returns the row of a key.
func Find(key int16) (API, bool) {
	i, ok := slices.BinarySearchFunc(APIs, key, func(a API, k int16) int { return int(a.Key) - int(k) })
	if !ok {
		return API{}, false
	}
	return APIs[i], true
}
