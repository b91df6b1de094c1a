package compat

import (
	"errors"
	"strconv"
)

// The nodes of Kafka 0.8's consumers (kafka.utils.ZkUtils, kafka.zk.ConsumerOffset). They make these
// themselves; brokers keep there what OffsetCommit of version 0 brings.

// PathConsumerOffset holds the next offset that a group reads of a partition: plain decimal text.
func PathConsumerOffset(group, topic string, p int32) string {
	return PathConsumers + "/" + group + "/offsets/" + topic + "/" + strconv.Itoa(int(p))
}

// EncodeConsumerOffset is the data of an offset's node.
func EncodeConsumerOffset(offset int64) []byte { return strconv.AppendInt(nil, offset, 10) }

// DecodeConsumerOffset reads it.
func DecodeConsumerOffset(data []byte) (int64, error) {
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0, znodeError("offset", data, errors.New("not a number"))
	}
	return n, nil
}
