package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"ottla/broker/config"
	"ottla/broker/controller"
	"ottla/broker/server"
	"ottla/coordinator"
	"ottla/coordinator/group"
	"ottla/log"
	"ottla/log/vfs"
	"ottla/protocol"
	"ottla/protocol/record"

	"github.com/prometheus/client_golang/prometheus"
)

// ms is a setting in milliseconds as a duration; what is too long for one is the longest.
func ms(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}

// every is the time between two runs of something; Kafka's scheduler does not repeat what comes
// every 0 ms or less.
func every(n int64) time.Duration {
	if n <= 0 {
		return -1 // never
	}
	return ms(n)
}

// logOptions are the settings of logs. A zero stands for the room's own default, so none is given.
func logOptions(b *Broker, fs vfs.FS, dirs *log.Dirs, clusterID string, reg prometheus.Registerer) log.ManagerOptions {
	c := b.config.Broker()
	return log.ManagerOptions{
		FS: fs, Locked: dirs, BrokerID: c.ID, ClusterID: clusterID,
		TopicOptions:        func(topic string) *log.Options { return &b.config.Topic(topic).Log },
		Now:                 b.opts.Now,
		Logger:              b.log,
		Registerer:          reg,
		RecoveryThreads:     int(c.NumRecoveryThreadsPerDataDir),
		RetentionCheck:      every(c.LogRetentionCheckIntervalMs),
		FlushScheduler:      every(c.LogFlushSchedulerIntervalMs),
		FlushCheckpoint:     every(c.LogFlushOffsetCheckpointIntervalMs),
		StartCheckpoint:     every(c.LogFlushStartOffsetCheckpointIntervalMs),
		WatermarkCheckpoint: every(c.ReplicaHighWatermarkCheckpointIntervalMs),
		InitialTaskDelay:    max(ms(c.LogInitialTaskDelayMs), 1),
		ProducerExpiry:      func() time.Duration { return ms(b.config.Broker().ProducerIDExpirationMs) },
		ProducerExpiryCheck: ms(c.ProducerIDExpirationCheckIntervalMs),
		OnDirFailure:        b.dirFailed,
		Cleaner:             cleaner(b.config),
	}
}

// cleaner gives the settings of compaction, which can be changed while the broker runs; nil without a
// cleaner.
func cleaner(store *config.Store) func() (log.CleanerOptions, <-chan struct{}) {
	if !store.Broker().LogCleanerEnable {
		return nil
	}
	return func() (log.CleanerOptions, <-chan struct{}) {
		c, changed := store.Next()
		return log.CleanerOptions{
			Threads:        int(c.LogCleanerThreads),
			DedupeBytes:    c.LogCleanerDedupeBufferSize,
			LoadFactor:     c.LogCleanerIOBufferLoadFactor,
			BufferBytes:    int(c.LogCleanerIOBufferSize),
			BytesPerSecond: c.LogCleanerIOMaxBytesPerSecond,
			Backoff:        ms(c.LogCleanerBackoffMs),
		}, changed
	}
}

func serverOptions(b *Broker, open func(protocol.Conn) server.Session, reg prometheus.Registerer) server.Options {
	c := b.config.Broker()
	o := server.Options{
		Open:                  open,
		MaxRequestBytes:       int(c.SocketRequestMaxBytes),
		MaxOtherBytes:         int(c.RequestMaxBytes),
		QueuedMaxRequestBytes: c.QueuedMaxRequestBytes,
		Limits:                b.limits,
		IdleTimeout:           ms(c.ConnectionsMaxIdleMs),
		SendBuffer:            int(c.SocketSendBufferBytes),
		ReceiveBuffer:         int(c.SocketReceiveBufferBytes),
		Backlog:               int(c.SocketListenBacklogSize),
		Logger:                b.log,
		Registerer:            reg,
	}
	for _, l := range c.Listeners {
		o.Listeners = append(o.Listeners, server.Listener{Name: l.Name, Protocol: l.Protocol, Host: l.Host, Port: l.Port})
	}
	return o
}

// limits are those of connections, which can be changed while the broker runs.
func (b *Broker) limits() (server.Limits, <-chan struct{}) {
	c, changed := b.config.Next()
	l := server.Limits{Connections: int(c.MaxConnections), PerIP: int(c.MaxConnectionsPerIP)}
	if len(c.MaxConnectionsPerIPOverrides) > 0 {
		l.Overrides = make(map[string]int, len(c.MaxConnectionsPerIPOverrides))
		for host, n := range c.MaxConnectionsPerIPOverrides {
			l.Overrides[host] = int(n)
		}
	}
	return l, changed
}

// kept gives what is made of settings, and makes it anew only when they are others: coordinators ask at every step.
func kept[K comparable, T any](settings func() K, made func() *T) func() *T {
	type last struct {
		of K
		is *T
	}
	var at atomic.Pointer[last]
	return func() *T {
		of := settings()
		if l := at.Load(); l != nil && l.of == of {
			return l.is
		}
		l := &last{of, made()} // which may be of newer ones: then they are found to be others the next time
		at.Store(l)
		return l.is
	}
}

// coordinated are the settings that a coordinator's options are made of. A Store replaces them, and changes none in place.
type coordinated struct {
	broker *config.Broker
	topic  *config.Topic // the internal topic's
	level  int16         // of the feature
}

// groupOptions are the settings of groups that are in force.
func groupOptions(c *config.Store) *group.Options {
	b := c.Broker()
	return &group.Options{
		MinSessionTimeout:     ms(b.GroupMinSessionTimeoutMs),
		MaxSessionTimeout:     ms(b.GroupMaxSessionTimeoutMs),
		InitialRebalanceDelay: ms(b.GroupInitialRebalanceDelayMs),
		MaxSize:               int(b.GroupMaxSize),
		MetadataMaxBytes:      int(b.OffsetMetadataMaxBytes),
		Retention:             ms(b.OffsetsRetentionMinutes * time.Minute.Milliseconds()),
		RetentionCheck:        ms(b.OffsetsRetentionCheckIntervalMs),
		CommitTimeout:         ms(b.OffsetsCommitTimeoutMs),
		Partitions:            int32(b.OffsetsTopicNumPartitions),
		Replication:           int16(b.OffsetsTopicReplicationFactor),
		SegmentBytes:          b.OffsetsTopicSegmentBytes,
		Codec:                 record.Codec(b.OffsetsTopicCompressionCodec),
		Consumer: group.ConsumerOptions{
			Assignors: b.GroupConsumerAssignors,
			MaxSize:   int(b.GroupConsumerMaxSize),
			Session:   ms(b.GroupConsumerSessionTimeoutMs),
			Heartbeat: ms(b.GroupConsumerHeartbeatIntervalMs),
			Group:     c.ConsumerGroup,
			Upgrade:   migrates(b, "upgrade"),
			Downgrade: migrates(b, "downgrade"),
		},
		BatchBytes: int(c.Topic(group.Topic).Log.MaxMessageBytes),
	}
}

// migrates tells whether group.consumer.migration.policy has groups converted in a direction.
func migrates(b *config.Broker, direction string) bool {
	return strings.EqualFold(b.GroupConsumerMigrationPolicy, direction) || strings.EqualFold(b.GroupConsumerMigrationPolicy, "bidirectional")
}

// groupConfig is what the group coordinator is made from.
func groupConfig(b *Broker, reg prometheus.Registerer) group.Config {
	return group.Config{
		Store:  shardStore{b, group.Topic},
		Topics: topicMaker{b},
		Options: kept(func() coordinated { return coordinated{broker: b.config.Broker(), topic: b.config.Topic(group.Topic)} },
			func() *group.Options { return groupOptions(b.config) }),
		Partitions: b.partitionsOf(group.Topic),
		EndOffset: func(topic string, partition int32) (int64, bool) {
			if l := b.logs.Log(topic, partition); l != nil {
				return l.HighWatermark(), true
			}
			return 0, false
		},
		Now: b.opts.Now, Logger: b.log, Registerer: reg,
	}
}

// topicMaker creates topics for the coordinators, with at most as many replicas as there are
// brokers alive.
type topicMaker struct{ b *Broker }

func (m topicMaker) EnsureTopic(ctx context.Context, name string, partitions int32, replication int16, configs map[string]string) error {
	if err := m.b.api.MakeTopic(ctx, controller.NewTopic{Name: name, Partitions: partitions, Replication: replication, Configs: configs}); err != nil {
		if errors.Is(err, controller.ErrNotController) || errors.Is(err, controller.ErrTimedOut) {
			err = fmt.Errorf("%w: %w", coordinator.ErrNotAvailable, err) // the controller is elsewhere, and not reached
		}
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}
