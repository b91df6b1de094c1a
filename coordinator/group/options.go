package group

import (
	"strconv"
	"time"

	"ottla/coordinator"
	"ottla/protocol/record"
)

// Options are the settings of groups, swapped whole. The names in the comments are Kafka's.
type Options struct {
	MinSessionTimeout     time.Duration // group.min.session.timeout.ms
	MaxSessionTimeout     time.Duration // group.max.session.timeout.ms
	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms
	MaxSize               int           // group.max.size
	MetadataMaxBytes      int           // offset.metadata.max.bytes; counted in UTF-16 units, as Java's String.length
	Retention             time.Duration // offsets.retention.minutes
	RetentionCheck        time.Duration // offsets.retention.check.interval.ms
	CommitTimeout         time.Duration // offsets.commit.timeout.ms
	Partitions            int32         // offsets.topic.num.partitions, of a topic that is still to be made
	Replication           int16         // offsets.topic.replication.factor
	SegmentBytes          int64         // offsets.topic.segment.bytes
	Codec                 record.Codec  // offsets.topic.compression.codec
	Consumer              ConsumerOptions
	BatchBytes            int // a batch of the coordinator is closed before it grows past this
}

// ConsumerOptions are the settings of groups of the consumer protocol.
type ConsumerOptions struct {
	Assignors []string // group.consumer.assignors; the first is the default
	MaxSize   int      // group.consumer.max.size
	Session   time.Duration
	Heartbeat time.Duration
	// Upgrade and Downgrade are group.consumer.migration.policy: whether a classic group that has
	// members becomes a consumer group with the first that joins with that protocol, and the other
	// way with the last that leaves. With neither a group has members of one kind.
	Upgrade, Downgrade bool
	// Group answers a group's own consumer.session.timeout.ms and consumer.heartbeat.interval.ms,
	// 0 where it has none; nil: no group has any.
	Group func(id string) (session, heartbeat time.Duration)
}

// MetadataFits says whether a committed offset may have this text with it.
func (o *Options) MetadataFits(text string) bool {
	return len(text) <= o.MetadataMaxBytes || utf16Len(text) <= o.MetadataMaxBytes
}

// sessionTimeout is after what silence a member of a group is out.
func (o *Options) sessionTimeout(group string) time.Duration {
	if o.Consumer.Group != nil {
		if own, _ := o.Consumer.Group(group); own > 0 {
			return own
		}
	}
	return o.Consumer.Session
}

// heartbeatInterval is what members of a group are told.
func (o *Options) heartbeatInterval(group string) time.Duration {
	if o.Consumer.Group != nil {
		if _, own := o.Consumer.Group(group); own > 0 {
			return own
		}
	}
	return o.Consumer.Heartbeat
}

// Defaults are Kafka's.
func Defaults() *Options {
	return &Options{
		MinSessionTimeout:     6 * time.Second,
		MaxSessionTimeout:     30 * time.Minute,
		InitialRebalanceDelay: 3 * time.Second,
		MaxSize:               1<<31 - 1,
		MetadataMaxBytes:      4096,
		Retention:             7 * 24 * time.Hour,
		RetentionCheck:        10 * time.Minute,
		CommitTimeout:         5 * time.Second,
		Partitions:            50,
		Replication:           3,
		SegmentBytes:          100 << 20,
		BatchBytes:            1 << 20,
		Consumer: ConsumerOptions{
			Assignors: []string{"uniform", "range"}, MaxSize: 1<<31 - 1,
			Session: 45 * time.Second, Heartbeat: 5 * time.Second, Upgrade: true, Downgrade: true,
		},
	}
}

// newTopic is what Topic is made with.
func (o *Options) newTopic() coordinator.NewTopic {
	return coordinator.NewTopic{
		Partitions: o.Partitions, Replication: o.Replication,
		Configs: map[string]string{
			"cleanup.policy":   "compact",
			"compression.type": "producer",
			"segment.bytes":    strconv.FormatInt(o.SegmentBytes, 10),
		},
	}
}

// newMemberTimeout is how long a member that joins for the first time may wait for its
// generation (Kafka: CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS). Its client may be gone without
// anybody noticing, and it has no session yet.
const newMemberTimeout = 5 * time.Minute
