package schema

// The definitions are those in the jars of Kafka 4.4.0 (common/metadata, common/message), without their
// texts; versions, tags and defaults are what a decoder needs of them.

// metadataRecords are the records of __cluster_metadata by their apiKey.
var metadataRecords = []message{
	{name: "RegisterBrokerRecord", most: 4, flexible: v0, fields: []field{
		{name: "brokerId", kind: tInt32},
		{name: "isMigratingZkBroker", kind: tBool, since: 2},
		{name: "incarnationId", kind: tUUID},
		{name: "brokerEpoch", kind: tInt64},
		{name: "endPoints", kind: tStruct, array: true, fields: []field{
			{name: "name", kind: tString},
			{name: "host", kind: tString},
			{name: "port", kind: tUint16},
			{name: "securityProtocol", kind: tInt16},
		}},
		{name: "features", kind: tStruct, array: true, fields: []field{
			{name: "name", kind: tString},
			{name: "minSupportedVersion", kind: tInt16},
			{name: "maxSupportedVersion", kind: tInt16},
		}},
		{name: "rack", kind: tString, null: v0},
		{name: "fenced", kind: tBool},
		{name: "inControlledShutdown", kind: tBool, since: 1},
		{name: "logDirs", kind: tUUID, array: true, since: 3, tagged: v3},
		{name: "cordonedLogDirs", kind: tUUID, array: true, since: 4, null: v4, tagged: v4, tag: 1, nullDefault: true},
	}},
	{name: "UnregisterBrokerRecord", id: 1, flexible: v0, fields: []field{
		{name: "brokerId", kind: tInt32},
		{name: "brokerEpoch", kind: tInt64},
	}},
	{name: "TopicRecord", id: 2, flexible: v0, fields: []field{
		{name: "name", kind: tString},
		{name: "topicId", kind: tUUID},
	}},
	{name: "PartitionRecord", id: 3, most: 2, flexible: v0, fields: []field{
		{name: "partitionId", kind: tInt32},
		{name: "topicId", kind: tUUID},
		{name: "replicas", kind: tInt32, array: true},
		{name: "isr", kind: tInt32, array: true},
		{name: "removingReplicas", kind: tInt32, array: true},
		{name: "addingReplicas", kind: tInt32, array: true},
		{name: "leader", kind: tInt32},
		{name: "leaderRecoveryState", kind: tInt8, tagged: v0},
		{name: "leaderEpoch", kind: tInt32},
		{name: "partitionEpoch", kind: tInt32},
		{name: "directories", kind: tUUID, array: true, since: 1},
		{name: "eligibleLeaderReplicas", kind: tInt32, array: true, since: 2, null: v2, tagged: v2, tag: 1, nullDefault: true},
		{name: "lastKnownElr", kind: tInt32, array: true, since: 2, null: v2, tagged: v2, tag: 2, nullDefault: true},
	}},
	{name: "ConfigRecord", id: 4, flexible: v0, fields: []field{
		{name: "resourceType", kind: tInt8},
		{name: "resourceName", kind: tString},
		{name: "name", kind: tString},
		{name: "value", kind: tString, null: v0},
	}},
	{name: "PartitionChangeRecord", id: 5, most: 2, flexible: v0, fields: []field{
		{name: "partitionId", kind: tInt32},
		{name: "topicId", kind: tUUID},
		{name: "isr", kind: tInt32, array: true, null: v0, tagged: v0, nullDefault: true},
		{name: "leader", kind: tInt32, tagged: v0, tag: 1, def: -2},
		{name: "replicas", kind: tInt32, array: true, null: v0, tagged: v0, tag: 2, nullDefault: true},
		{name: "removingReplicas", kind: tInt32, array: true, null: v0, tagged: v0, tag: 3, nullDefault: true},
		{name: "addingReplicas", kind: tInt32, array: true, null: v0, tagged: v0, tag: 4, nullDefault: true},
		{name: "leaderRecoveryState", kind: tInt8, tagged: v0, tag: 5, def: -1},
		{name: "directories", kind: tUUID, array: true, since: 1, null: v1, tagged: v1, tag: 8, nullDefault: true},
		{name: "eligibleLeaderReplicas", kind: tInt32, array: true, since: 2, null: v2, tagged: v2, tag: 6, nullDefault: true},
		{name: "lastKnownElr", kind: tInt32, array: true, since: 2, null: v2, tagged: v2, tag: 7, nullDefault: true},
	}},
	{name: "FenceBrokerRecord", id: 7, flexible: v0, fields: []field{
		{name: "id", kind: tInt32},
		{name: "epoch", kind: tInt64},
	}},
	{name: "UnfenceBrokerRecord", id: 8, flexible: v0, fields: []field{
		{name: "id", kind: tInt32},
		{name: "epoch", kind: tInt64},
	}},
	{name: "RemoveTopicRecord", id: 9, flexible: v0, fields: []field{
		{name: "topicId", kind: tUUID},
	}},
	{name: "DelegationTokenRecord", id: 10, flexible: v0, fields: []field{
		{name: "owner", kind: tString},
		{name: "requester", kind: tString},
		{name: "renewers", kind: tString, array: true},
		{name: "issueTimestamp", kind: tInt64},
		{name: "maxTimestamp", kind: tInt64},
		{name: "expirationTimestamp", kind: tInt64},
		{name: "tokenId", kind: tString},
	}},
	{name: "UserScramCredentialRecord", id: 11, flexible: v0, fields: []field{
		{name: "name", kind: tString},
		{name: "mechanism", kind: tInt8},
		{name: "salt", kind: tBytes},
		{name: "storedKey", kind: tBytes},
		{name: "serverKey", kind: tBytes},
		{name: "iterations", kind: tInt32},
	}},
	{name: "FeatureLevelRecord", id: 12, flexible: v0, fields: []field{
		{name: "name", kind: tString},
		{name: "featureLevel", kind: tInt16},
	}},
	{name: "ClientQuotaRecord", id: 14, flexible: v0, fields: []field{
		{name: "entity", kind: tStruct, array: true, fields: []field{
			{name: "entityType", kind: tString},
			{name: "entityName", kind: tString, null: v0},
		}},
		{name: "key", kind: tString},
		{name: "value", kind: tFloat64},
		{name: "remove", kind: tBool},
	}},
	{name: "ProducerIdsRecord", id: 15, flexible: v0, fields: []field{
		{name: "brokerId", kind: tInt32},
		{name: "brokerEpoch", kind: tInt64},
		{name: "nextProducerId", kind: tInt64},
	}},
	{name: "BrokerRegistrationChangeRecord", id: 17, most: 3, flexible: v0, fields: []field{
		{name: "brokerId", kind: tInt32},
		{name: "brokerEpoch", kind: tInt64},
		{name: "fenced", kind: tInt8, tagged: v0},
		{name: "inControlledShutdown", kind: tInt8, since: 1, tagged: v1, tag: 1},
		{name: "logDirs", kind: tUUID, array: true, since: 2, tagged: v2, tag: 2},
		{name: "cordonedLogDirs", kind: tUUID, array: true, since: 3, null: v3, tagged: v3, tag: 3, nullDefault: true},
	}},
	{name: "AccessControlEntryRecord", id: 18, flexible: v0, fields: []field{
		{name: "id", kind: tUUID},
		{name: "resourceType", kind: tInt8},
		{name: "resourceName", kind: tString},
		{name: "patternType", kind: tInt8},
		{name: "principal", kind: tString},
		{name: "host", kind: tString},
		{name: "operation", kind: tInt8},
		{name: "permissionType", kind: tInt8},
	}},
	{name: "RemoveAccessControlEntryRecord", id: 19, flexible: v0, fields: []field{
		{name: "id", kind: tUUID},
	}},
	{name: "NoOpRecord", id: 20, flexible: v0},
	{name: "ZkMigrationStateRecord", id: 21, flexible: v0, fields: []field{
		{name: "zkMigrationState", kind: tInt8},
	}},
	{name: "RemoveUserScramCredentialRecord", id: 22, flexible: v0, fields: []field{
		{name: "name", kind: tString},
		{name: "mechanism", kind: tInt8},
	}},
	{name: "BeginTransactionRecord", id: 23, flexible: v0, fields: []field{
		{name: "name", kind: tString, null: v0, tagged: v0, nullDefault: true},
	}},
	{name: "EndTransactionRecord", id: 24, flexible: v0},
	{name: "AbortTransactionRecord", id: 25, flexible: v0, fields: []field{
		{name: "reason", kind: tString, null: v0, tagged: v0, nullDefault: true},
	}},
	{name: "RemoveDelegationTokenRecord", id: 26, flexible: v0, fields: []field{
		{name: "tokenId", kind: tString},
	}},
	{name: "RegisterControllerRecord", id: 27, flexible: v0, fields: []field{
		{name: "controllerId", kind: tInt32},
		{name: "incarnationId", kind: tUUID},
		{name: "zkMigrationReady", kind: tBool},
		{name: "endPoints", kind: tStruct, array: true, fields: []field{
			{name: "name", kind: tString},
			{name: "host", kind: tString},
			{name: "port", kind: tUint16},
			{name: "securityProtocol", kind: tInt16},
		}},
		{name: "features", kind: tStruct, array: true, fields: []field{
			{name: "name", kind: tString},
			{name: "minSupportedVersion", kind: tInt16},
			{name: "maxSupportedVersion", kind: tInt16},
		}},
	}},
	{name: "ClearElrRecord", id: 28, flexible: v0, fields: []field{
		{name: "topicName", kind: tString},
	}},
	{name: "UnregisterControllerRecord", id: 29, flexible: v0, fields: []field{
		{name: "controllerId", kind: tInt32},
	}},
}
