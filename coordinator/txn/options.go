package txn

import (
	"strconv"
	"time"

	"ottla/coordinator"
)

// Options are the settings of transactions, swapped whole. The names in the comments are Kafka's.
type Options struct {
	MaxTimeout   time.Duration // transaction.max.timeout.ms
	Expiration   time.Duration // transactional.id.expiration.ms
	SweepEvery   time.Duration // transaction.remove.expired.transaction.cleanup.interval.ms
	Patience     time.Duration // add.partitions.to.txn.retry.backoff.max.ms: how long a partition to be added waits for the transaction before
	Partitions   int32         // transaction.state.log.num.partitions, of a topic that is still to be made
	Replication  int16         // transaction.state.log.replication.factor
	MinISR       int64         // transaction.state.log.min.isr
	SegmentBytes int64         // transaction.state.log.segment.bytes
	BatchBytes   int           // a batch of the coordinator is closed before it grows past this
	// Version is the finalized level of transaction.version: 1 writes flexible records, 2 lets
	// the epoch of a producer rise with the end of every transaction (KIP-890).
	Version int16
}

// Defaults are Kafka's.
func Defaults() *Options {
	return &Options{
		MaxTimeout:   15 * time.Minute,
		Expiration:   7 * 24 * time.Hour,
		SweepEvery:   time.Hour,
		Patience:     100 * time.Millisecond,
		Partitions:   50,
		Replication:  3,
		MinISR:       2,
		SegmentBytes: 100 << 20,
		BatchBytes:   1 << 20,
		Version:      2,
	}
}

// newTopic is what Topic is made with.
func (o *Options) newTopic() coordinator.NewTopic {
	return coordinator.NewTopic{
		Partitions: o.Partitions, Replication: o.Replication,
		Configs: map[string]string{
			"cleanup.policy":                 "compact",
			"compression.type":               "uncompressed",
			"min.insync.replicas":            strconv.FormatInt(o.MinISR, 10),
			"segment.bytes":                  strconv.FormatInt(o.SegmentBytes, 10),
			"unclean.leader.election.enable": "false",
		},
	}
}

// commitTimeout is how long a request waits for its record to be committed; Kafka takes the
// transaction's own timeout, which a client may well set to hours.
const commitTimeout = 30 * time.Second

// abortRetry is how long to wait before a transaction that has timed out is aborted again, when
// the record of it could not be written.
const abortRetry = time.Second
