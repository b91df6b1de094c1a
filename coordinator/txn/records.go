package txn

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/coordinator"
)

// Topic is the internal topic that keeps the transactional ids.
const Topic = "__transaction_state"

// keyVersion is the only version of a key: 0, a transactional id (TransactionLogKey).
const keyVersion = 0

// maxValueVersion is the newest version of a value that is read (TransactionLogValue); 1 is
// flexible and keeps in tags what transaction.version 2 needs.
const maxValueVersion = 1

var errMalformed = errors.New("malformed record")

// Partition is a partition of a topic.
type Partition struct {
	Topic  string
	Number int32
}

func comparePartitions(a, b Partition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return int(a.Number) - int(b.Number)
}

// meta is what the log keeps of a transactional id (Kafka's TransactionMetadata). It is a value:
// a change makes another one, and partitions is never changed in place.
type meta struct {
	producer, previous, next int64 // -1: none; next takes over when the transaction is complete
	epoch, last              int16 // -1: none; last is not in the log
	timeout                  int32 // ms
	state                    State
	partitions               []Partition // ascending
	updated, started         int64       // ms since 1970; started -1: no transaction yet
	version                  int16       // transaction.version that the client goes by
}

// idRecord is the record that makes a transactional id what meta says, in the format of a
// finalized level of transaction.version.
func idRecord(id string, m meta, level int16) coordinator.Record {
	v := kmsg.NewTxnMetadataValue()
	v.Version = min(level, maxValueVersion)
	v.ProducerID, v.ProducerEpoch, v.TimeoutMillis, v.State = m.producer, m.epoch, m.timeout, kmsg.TransactionState(m.state)
	v.LastUpdateTimestamp, v.StartTimestamp = m.updated, m.started
	v.PreviousProducerID, v.NextProducerID, v.ClientTransactionVersion = m.previous, m.next, m.version
	if m.state != Empty {
		v.Topics = []kmsg.TxnMetadataValueTopic{}
	}
	for i, p := range m.partitions {
		if i == 0 || m.partitions[i-1].Topic != p.Topic {
			t := kmsg.NewTxnMetadataValueTopic()
			t.Topic = p.Topic
			v.Topics = append(v.Topics, t)
		}
		t := &v.Topics[len(v.Topics)-1]
		t.Partitions = append(t.Partitions, p.Number)
	}
	return coordinator.Record{Key: idKey(id), Value: v.AppendTo(nil)}
}

func idKey(id string) []byte {
	k := kmsg.NewTxnMetadataKey()
	k.Version, k.TransactionalID = keyVersion, id
	return k.AppendTo(nil)
}

// readKey gives the transactional id of a key; known is false for kinds that are not ours.
func readKey(key []byte) (id string, known bool, err error) {
	if len(key) < 2 {
		return "", false, fmt.Errorf("key of %d bytes: %w", len(key), errMalformed)
	}
	if int16(key[0])<<8|int16(key[1]) != keyVersion {
		return "", false, nil
	}
	var k kmsg.TxnMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return "", true, fmt.Errorf("key of a transactional id: %w: %w", errMalformed, err)
	}
	return k.TransactionalID, true, nil
}

// readMeta reads a value, versions 0 and 1.
func readMeta(value []byte) (meta, error) {
	v := kmsg.NewTxnMetadataValue()
	if err := v.ReadFrom(value); err != nil {
		return meta{}, fmt.Errorf("value of a transactional id: %w: %w", errMalformed, err)
	}
	if v.Version < 0 || v.Version > maxValueVersion {
		return meta{}, fmt.Errorf("value of a transactional id in version %d: %w", v.Version, errMalformed)
	}
	m := meta{
		producer: v.ProducerID, previous: v.PreviousProducerID, next: v.NextProducerID, epoch: v.ProducerEpoch, last: -1,
		timeout: v.TimeoutMillis, state: State(v.State), updated: v.LastUpdateTimestamp, started: v.StartTimestamp,
		version: v.ClientTransactionVersion,
	}
	if m.state < Empty || m.state > CompleteAbort {
		return meta{}, fmt.Errorf("value of a transactional id with state %d: %w", v.State, errMalformed)
	}
	if m.state == Empty {
		return m, nil
	}
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			m.partitions = append(m.partitions, Partition{t.Topic, p})
		}
	}
	slices.SortFunc(m.partitions, comparePartitions)
	m.partitions = slices.Compact(m.partitions)
	return m, nil
}
