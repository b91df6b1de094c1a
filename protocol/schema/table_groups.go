package schema

// offsetsKeys are the keys of __consumer_offsets; a key begins with its type.
var offsetsKeys = []message{
	{name: "LegacyOffsetCommitKey", fields: []field{
		{name: "group", kind: tString},
		{name: "topic", kind: tString},
		{name: "partition", kind: tInt32},
	}},
	{name: "OffsetCommitKey", id: 1, fields: []field{
		{name: "group", kind: tString},
		{name: "topic", kind: tString},
		{name: "partition", kind: tInt32},
	}},
	{name: "GroupMetadataKey", id: 2, fields: []field{
		{name: "group", kind: tString},
	}},
	{name: "ConsumerGroupMetadataKey", id: 3, fields: []field{
		{name: "groupId", kind: tString},
	}},
	{name: "ConsumerGroupPartitionMetadataKey", id: 4, fields: []field{
		{name: "groupId", kind: tString},
	}},
	{name: "ConsumerGroupMemberMetadataKey", id: 5, fields: []field{
		{name: "groupId", kind: tString},
		{name: "memberId", kind: tString},
	}},
	{name: "ConsumerGroupTargetAssignmentMetadataKey", id: 6, fields: []field{
		{name: "groupId", kind: tString},
	}},
	{name: "ConsumerGroupTargetAssignmentMemberKey", id: 7, fields: []field{
		{name: "groupId", kind: tString},
		{name: "memberId", kind: tString},
	}},
	{name: "ConsumerGroupCurrentMemberAssignmentKey", id: 8, fields: []field{
		{name: "groupId", kind: tString},
		{name: "memberId", kind: tString},
	}},
	{name: "ShareGroupMemberMetadataKey", id: 10, fields: []field{
		{name: "groupId", kind: tString},
		{name: "memberId", kind: tString},
	}},
	{name: "ShareGroupMetadataKey", id: 11, fields: []field{
		{name: "groupId", kind: tString},
	}},
	{name: "ShareGroupTargetAssignmentMetadataKey", id: 12, fields: []field{
		{name: "groupId", kind: tString},
	}},
	{name: "ShareGroupTargetAssignmentMemberKey", id: 13, fields: []field{
		{name: "groupId", kind: tString},
		{name: "memberId", kind: tString},
	}},
	{name: "ShareGroupCurrentMemberAssignmentKey", id: 14, fields: []field{
		{name: "groupId", kind: tString},
		{name: "memberId", kind: tString},
	}},
	{name: "ShareGroupStatePartitionMetadataKey", id: 15, fields: []field{
		{name: "groupId", kind: tString},
	}},
	{name: "ConsumerGroupRegularExpressionKey", id: 16, fields: []field{
		{name: "groupId", kind: tString},
		{name: "regularExpression", kind: tString},
	}},
	{name: "StreamsGroupMetadataKey", id: 17, fields: []field{
		{name: "groupId", kind: tString},
	}},
	{name: "StreamsGroupMemberMetadataKey", id: 19, fields: []field{
		{name: "groupId", kind: tString},
		{name: "memberId", kind: tString},
	}},
	{name: "StreamsGroupTargetAssignmentMetadataKey", id: 20, fields: []field{
		{name: "groupId", kind: tString},
	}},
	{name: "StreamsGroupTargetAssignmentMemberKey", id: 21, fields: []field{
		{name: "groupId", kind: tString},
		{name: "memberId", kind: tString},
	}},
	{name: "StreamsGroupCurrentMemberAssignmentKey", id: 22, fields: []field{
		{name: "groupId", kind: tString},
		{name: "memberId", kind: tString},
	}},
	{name: "StreamsGroupTopologyKey", id: 23, fields: []field{
		{name: "groupId", kind: tString},
	}},
}

// offsetsValues are the values, by the type of their key.
var offsetsValues = []message{
	{name: "LegacyOffsetCommitValue", fields: []field{
		{name: "offset", kind: tInt64},
		{name: "metadata", kind: tString},
		{name: "commitTimestamp", kind: tInt64},
	}},
	{name: "OffsetCommitValue", id: 1, most: 4, flexible: v4, fields: []field{
		{name: "offset", kind: tInt64},
		{name: "leaderEpoch", kind: tInt32, since: 3},
		{name: "metadata", kind: tString},
		{name: "commitTimestamp", kind: tInt64},
		{name: "expireTimestamp", kind: tInt64, since: 1, until: v1},
		{name: "topicId", kind: tUUID, since: 4, tagged: v4},
	}},
	{name: "GroupMetadataValue", id: 2, most: 4, flexible: v4, fields: []field{
		{name: "protocolType", kind: tString},
		{name: "generation", kind: tInt32},
		{name: "protocol", kind: tString, null: v0},
		{name: "leader", kind: tString, null: v0},
		{name: "currentStateTimestamp", kind: tInt64, since: 2},
		{name: "members", kind: tStruct, array: true, fields: []field{
			{name: "memberId", kind: tString},
			{name: "groupInstanceId", kind: tString, since: 3, null: v3},
			{name: "clientId", kind: tString},
			{name: "clientHost", kind: tString},
			{name: "rebalanceTimeout", kind: tInt32, since: 1},
			{name: "sessionTimeout", kind: tInt32},
			{name: "subscription", kind: tBytes},
			{name: "assignment", kind: tBytes},
		}},
	}},
	{name: "ConsumerGroupMetadataValue", id: 3, flexible: v0, fields: []field{
		{name: "epoch", kind: tInt32},
		{name: "metadataHash", kind: tInt64, tagged: v0},
	}},
	{name: "ConsumerGroupPartitionMetadataValue", id: 4, flexible: v0, fields: []field{
		{name: "topics", kind: tStruct, array: true, fields: []field{
			{name: "topicId", kind: tUUID},
			{name: "topicName", kind: tString},
			{name: "numPartitions", kind: tInt32},
			{name: "partitionMetadata", kind: tStruct, array: true, fields: []field{
				{name: "partition", kind: tInt32},
				{name: "racks", kind: tString, array: true},
			}},
		}},
	}},
	{name: "ConsumerGroupMemberMetadataValue", id: 5, flexible: v0, fields: []field{
		{name: "instanceId", kind: tString, null: v0},
		{name: "rackId", kind: tString, null: v0},
		{name: "clientId", kind: tString},
		{name: "clientHost", kind: tString},
		{name: "subscribedTopicNames", kind: tString, array: true},
		{name: "subscribedTopicRegex", kind: tString, null: v0},
		{name: "rebalanceTimeoutMs", kind: tInt32},
		{name: "serverAssignor", kind: tString, null: v0},
		{name: "classicMemberMetadata", kind: tStruct, null: v0, tagged: v0, fields: []field{
			{name: "sessionTimeoutMs", kind: tInt32},
			{name: "supportedProtocols", kind: tStruct, array: true, fields: []field{
				{name: "name", kind: tString},
				{name: "metadata", kind: tBytes},
			}},
		}},
	}},
	{name: "ConsumerGroupTargetAssignmentMetadataValue", id: 6, flexible: v0, fields: []field{
		{name: "assignmentEpoch", kind: tInt32},
		{name: "assignmentTimestamp", kind: tInt64, tagged: v0},
	}},
	{name: "ConsumerGroupTargetAssignmentMemberValue", id: 7, flexible: v0, fields: []field{
		{name: "topicPartitions", kind: tStruct, array: true, fields: []field{
			{name: "topicId", kind: tUUID},
			{name: "partitions", kind: tInt32, array: true},
		}},
	}},
	{name: "ConsumerGroupCurrentMemberAssignmentValue", id: 8, flexible: v0, fields: []field{
		{name: "memberEpoch", kind: tInt32},
		{name: "previousMemberEpoch", kind: tInt32},
		{name: "state", kind: tInt8},
		{name: "assignedPartitions", kind: tStruct, array: true, fields: []field{
			{name: "topicId", kind: tUUID},
			{name: "partitions", kind: tInt32, array: true},
			{name: "assignmentEpochs", kind: tInt32, array: true, null: v0, tagged: v0},
		}},
		{name: "partitionsPendingRevocation", kind: tStruct, array: true, fields: []field{
			{name: "topicId", kind: tUUID},
			{name: "partitions", kind: tInt32, array: true},
			{name: "assignmentEpochs", kind: tInt32, array: true, null: v0, tagged: v0},
		}},
	}},
	{name: "ShareGroupMemberMetadataValue", id: 10, flexible: v0, fields: []field{
		{name: "rackId", kind: tString, null: v0},
		{name: "clientId", kind: tString},
		{name: "clientHost", kind: tString},
		{name: "subscribedTopicNames", kind: tString, array: true},
	}},
	{name: "ShareGroupMetadataValue", id: 11, flexible: v0, fields: []field{
		{name: "epoch", kind: tInt32},
		{name: "metadataHash", kind: tInt64},
	}},
	{name: "ShareGroupTargetAssignmentMetadataValue", id: 12, flexible: v0, fields: []field{
		{name: "assignmentEpoch", kind: tInt32},
		{name: "assignmentTimestamp", kind: tInt64, tagged: v0},
	}},
	{name: "ShareGroupTargetAssignmentMemberValue", id: 13, flexible: v0, fields: []field{
		{name: "topicPartitions", kind: tStruct, array: true, fields: []field{
			{name: "topicId", kind: tUUID},
			{name: "partitions", kind: tInt32, array: true},
		}},
	}},
	{name: "ShareGroupCurrentMemberAssignmentValue", id: 14, flexible: v0, fields: []field{
		{name: "memberEpoch", kind: tInt32},
		{name: "previousMemberEpoch", kind: tInt32},
		{name: "state", kind: tInt8},
		{name: "assignedPartitions", kind: tStruct, array: true, fields: []field{
			{name: "topicId", kind: tUUID},
			{name: "partitions", kind: tInt32, array: true},
		}},
	}},
	{name: "ShareGroupStatePartitionMetadataValue", id: 15, flexible: v0, fields: []field{
		{name: "initializingTopics", kind: tStruct, array: true, fields: []field{
			{name: "topicId", kind: tUUID},
			{name: "topicName", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
		}},
		{name: "initializedTopics", kind: tStruct, array: true, fields: []field{
			{name: "topicId", kind: tUUID},
			{name: "topicName", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
		}},
		{name: "deletingTopics", kind: tStruct, array: true, fields: []field{
			{name: "topicId", kind: tUUID},
			{name: "topicName", kind: tString},
		}},
	}},
	{name: "ConsumerGroupRegularExpressionValue", id: 16, flexible: v0, fields: []field{
		{name: "topics", kind: tString, array: true},
		{name: "version", kind: tInt64},
		{name: "timestamp", kind: tInt64},
	}},
	{name: "StreamsGroupMetadataValue", id: 17, flexible: v0, fields: []field{
		{name: "epoch", kind: tInt32},
		{name: "metadataHash", kind: tInt64},
		{name: "validatedTopologyEpoch", kind: tInt32, tagged: v0, def: -1},
		{name: "lastAssignmentConfigs", kind: tStruct, array: true, null: v0, tagged: v0, tag: 1, fields: []field{
			{name: "key", kind: tString},
			{name: "value", kind: tString},
		}},
		{name: "storedDescriptionTopologyEpoch", kind: tInt32, tagged: v0, tag: 2, def: -1},
		{name: "failedDescriptionTopologyEpoch", kind: tInt32, tagged: v0, tag: 3, def: -1},
	}},
	{name: "StreamsGroupMemberMetadataValue", id: 19, flexible: v0, fields: []field{
		{name: "instanceId", kind: tString, null: v0},
		{name: "rackId", kind: tString, null: v0},
		{name: "clientId", kind: tString},
		{name: "clientHost", kind: tString},
		{name: "rebalanceTimeoutMs", kind: tInt32},
		{name: "topologyEpoch", kind: tInt32},
		{name: "processId", kind: tString},
		{name: "userEndpoint", kind: tStruct, null: v0, fields: []field{
			{name: "host", kind: tString},
			{name: "port", kind: tUint16},
		}},
		{name: "clientTags", kind: tStruct, array: true, fields: []field{
			{name: "key", kind: tString},
			{name: "value", kind: tString},
		}},
	}},
	{name: "StreamsGroupTargetAssignmentMetadataValue", id: 20, flexible: v0, fields: []field{
		{name: "assignmentEpoch", kind: tInt32},
		{name: "assignmentTimestamp", kind: tInt64, tagged: v0},
	}},
	{name: "StreamsGroupTargetAssignmentMemberValue", id: 21, flexible: v0, fields: []field{
		{name: "activeTasks", kind: tStruct, array: true, fields: []field{
			{name: "subtopologyId", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
		}},
		{name: "standbyTasks", kind: tStruct, array: true, fields: []field{
			{name: "subtopologyId", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
		}},
		{name: "warmupTasks", kind: tStruct, array: true, fields: []field{
			{name: "subtopologyId", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
		}},
	}},
	{name: "StreamsGroupCurrentMemberAssignmentValue", id: 22, flexible: v0, fields: []field{
		{name: "memberEpoch", kind: tInt32},
		{name: "previousMemberEpoch", kind: tInt32},
		{name: "state", kind: tInt8},
		{name: "activeTasks", kind: tStruct, array: true, fields: []field{
			{name: "subtopologyId", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
			{name: "assignmentEpochs", kind: tInt32, array: true, null: v0, tagged: v0},
		}},
		{name: "standbyTasks", kind: tStruct, array: true, fields: []field{
			{name: "subtopologyId", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
			{name: "assignmentEpochs", kind: tInt32, array: true, null: v0, tagged: v0},
		}},
		{name: "warmupTasks", kind: tStruct, array: true, fields: []field{
			{name: "subtopologyId", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
			{name: "assignmentEpochs", kind: tInt32, array: true, null: v0, tagged: v0},
		}},
		{name: "activeTasksPendingRevocation", kind: tStruct, array: true, fields: []field{
			{name: "subtopologyId", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
			{name: "assignmentEpochs", kind: tInt32, array: true, null: v0, tagged: v0},
		}},
		{name: "standbyTasksPendingRevocation", kind: tStruct, array: true, fields: []field{
			{name: "subtopologyId", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
			{name: "assignmentEpochs", kind: tInt32, array: true, null: v0, tagged: v0},
		}},
		{name: "warmupTasksPendingRevocation", kind: tStruct, array: true, fields: []field{
			{name: "subtopologyId", kind: tString},
			{name: "partitions", kind: tInt32, array: true},
			{name: "assignmentEpochs", kind: tInt32, array: true, null: v0, tagged: v0},
		}},
	}},
	{name: "StreamsGroupTopologyValue", id: 23, flexible: v0, fields: []field{
		{name: "epoch", kind: tInt32},
		{name: "subtopologies", kind: tStruct, array: true, fields: []field{
			{name: "subtopologyId", kind: tString},
			{name: "sourceTopics", kind: tString, array: true},
			{name: "sourceTopicRegex", kind: tString, array: true},
			{name: "stateChangelogTopics", kind: tStruct, array: true, fields: []field{
				{name: "name", kind: tString},
				{name: "partitions", kind: tInt32},
				{name: "replicationFactor", kind: tInt16},
				{name: "topicConfigs", kind: tStruct, array: true, fields: []field{
					{name: "key", kind: tString},
					{name: "value", kind: tString},
				}},
			}},
			{name: "repartitionSinkTopics", kind: tString, array: true},
			{name: "repartitionSourceTopics", kind: tStruct, array: true, fields: []field{
				{name: "name", kind: tString},
				{name: "partitions", kind: tInt32},
				{name: "replicationFactor", kind: tInt16},
				{name: "topicConfigs", kind: tStruct, array: true, fields: []field{
					{name: "key", kind: tString},
					{name: "value", kind: tString},
				}},
			}},
			{name: "copartitionGroups", kind: tStruct, array: true, fields: []field{
				{name: "sourceTopics", kind: tInt16, array: true},
				{name: "sourceTopicRegex", kind: tInt16, array: true},
				{name: "repartitionSourceTopics", kind: tInt16, array: true},
			}},
		}},
	}},
}
