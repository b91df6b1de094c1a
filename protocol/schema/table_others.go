package schema

// transactionsKeys are the keys of __transaction_state.
var transactionsKeys = []message{
	{name: "TransactionLogKey", fields: []field{
		{name: "transactionalId", kind: tString},
	}},
}

// transactionsValues are the values.
var transactionsValues = []message{
	{name: "TransactionLogValue", most: 1, flexible: v1, fields: []field{
		{name: "producerId", kind: tInt64},
		{name: "previousProducerId", kind: tInt64, since: 1, tagged: v1, def: -1},
		{name: "nextProducerId", kind: tInt64, since: 1, tagged: v1, tag: 1, def: -1},
		{name: "producerEpoch", kind: tInt16},
		{name: "nextProducerEpoch", kind: tInt16, since: 1, tagged: v1, tag: 3, def: -1},
		{name: "transactionTimeoutMs", kind: tInt32},
		{name: "transactionStatus", kind: tInt8},
		{name: "transactionPartitions", kind: tStruct, array: true, null: v0, fields: []field{
			{name: "topic", kind: tString},
			{name: "partitionIds", kind: tInt32, array: true},
		}},
		{name: "transactionLastUpdateTimestampMs", kind: tInt64},
		{name: "transactionStartTimestampMs", kind: tInt64},
		{name: "clientTransactionVersion", kind: tInt16, since: 1, tagged: v1, tag: 2},
	}},
}

// shareKeys are the keys of __share_group_state.
var shareKeys = []message{
	{name: "ShareSnapshotKey", fields: []field{
		{name: "groupId", kind: tString},
		{name: "topicId", kind: tUUID},
		{name: "partition", kind: tInt32},
	}},
	{name: "ShareUpdateKey", id: 1, fields: []field{
		{name: "groupId", kind: tString},
		{name: "topicId", kind: tUUID},
		{name: "partition", kind: tInt32},
	}},
}

// shareValues are the values.
var shareValues = []message{
	{name: "ShareSnapshotValue", flexible: v0, fields: []field{
		{name: "snapshotEpoch", kind: tInt32},
		{name: "stateEpoch", kind: tInt32},
		{name: "leaderEpoch", kind: tInt32},
		{name: "startOffset", kind: tInt64},
		{name: "deliveryCompleteCount", kind: tInt32, tagged: v0, def: -1},
		{name: "createTimestamp", kind: tInt64},
		{name: "writeTimestamp", kind: tInt64},
		{name: "stateBatches", kind: tStruct, array: true, fields: []field{
			{name: "firstOffset", kind: tInt64},
			{name: "lastOffset", kind: tInt64},
			{name: "deliveryState", kind: tInt8},
			{name: "deliveryCount", kind: tInt16},
		}},
	}},
	{name: "ShareUpdateValue", id: 1, flexible: v0, fields: []field{
		{name: "snapshotEpoch", kind: tInt32},
		{name: "leaderEpoch", kind: tInt32},
		{name: "startOffset", kind: tInt64},
		{name: "deliveryCompleteCount", kind: tInt32, tagged: v0, def: -1},
		{name: "stateBatches", kind: tStruct, array: true, fields: []field{
			{name: "firstOffset", kind: tInt64},
			{name: "lastOffset", kind: tInt64},
			{name: "deliveryState", kind: tInt8},
			{name: "deliveryCount", kind: tInt16},
		}},
	}},
}

// controlRecords are the values of control records, by the type in the key; 0 and 1 are the same.
var controlRecords = []message{
	{name: "EndTxnMarker", fields: []field{
		{name: "coordinatorEpoch", kind: tInt32},
	}},
	{name: "EndTxnMarker", id: 1, fields: []field{
		{name: "coordinatorEpoch", kind: tInt32},
	}},
	{name: "LeaderChangeMessage", id: 2, most: 1, flexible: v0, fields: []field{
		{name: "version", kind: tInt16},
		{name: "leaderId", kind: tInt32},
		{name: "voters", kind: tStruct, array: true, fields: []field{
			{name: "voterId", kind: tInt32},
			{name: "voterDirectoryId", kind: tUUID, since: 1},
		}},
		{name: "grantingVoters", kind: tStruct, array: true, fields: []field{
			{name: "voterId", kind: tInt32},
			{name: "voterDirectoryId", kind: tUUID, since: 1},
		}},
	}},
	{name: "SnapshotHeaderRecord", id: 3, flexible: v0, fields: []field{
		{name: "version", kind: tInt16},
		{name: "lastContainedLogTimestamp", kind: tInt64},
	}},
	{name: "SnapshotFooterRecord", id: 4, flexible: v0, fields: []field{
		{name: "version", kind: tInt16},
	}},
	{name: "KRaftVersionRecord", id: 5, flexible: v0, fields: []field{
		{name: "version", kind: tInt16},
		{name: "kRaftVersion", kind: tInt16},
	}},
	{name: "VotersRecord", id: 6, flexible: v0, fields: []field{
		{name: "version", kind: tInt16},
		{name: "voters", kind: tStruct, array: true, fields: []field{
			{name: "voterId", kind: tInt32},
			{name: "voterDirectoryId", kind: tUUID},
			{name: "endpoints", kind: tStruct, array: true, fields: []field{
				{name: "name", kind: tString},
				{name: "host", kind: tString},
				{name: "port", kind: tUint16},
			}},
			{name: "kRaftVersionFeature", kind: tStruct, fields: []field{
				{name: "minSupportedVersion", kind: tInt16},
				{name: "maxSupportedVersion", kind: tInt16},
			}},
		}},
	}},
}

// consumerProtocol is what members of a classic group of consumers tell each other: subscription and assignment.
var consumerProtocol = []message{
	{name: "ConsumerProtocolSubscription", most: 3, fields: []field{
		{name: "topics", kind: tString, array: true},
		{name: "userData", kind: tBytes, null: v0},
		{name: "ownedPartitions", kind: tStruct, array: true, since: 1, fields: []field{
			{name: "topic", kind: tString, since: 1},
			{name: "partitions", kind: tInt32, array: true, since: 1},
		}},
		{name: "generationId", kind: tInt32, since: 2},
		{name: "rackId", kind: tString, since: 3, null: v3},
	}},
	{name: "ConsumerProtocolAssignment", id: 1, most: 3, fields: []field{
		{name: "assignedPartitions", kind: tStruct, array: true, fields: []field{
			{name: "topic", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
		}},
		{name: "userData", kind: tBytes, null: v0},
	}},
}
