package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"ottla/broker/config"
	"ottla/broker/controller"
	"ottla/broker/metadata"
	"ottla/broker/replica"
	"ottla/compat"
	"ottla/coordinator"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/log"
	"ottla/protocol/record"

	"github.com/prometheus/client_golang/prometheus"
)

// How often the watchdog looks, and for how long a coordinator may load before it says so.
const (
	loadingCheck = 30 * time.Second
	loadingLate  = 30 * time.Second
)

// newController makes the controller, and this broker as it and others reach it.
func (b *Broker) newController(settings *config.Broker, reg prometheus.Registerer) *controller.Controller {
	b.own = &controller.Own{
		Meta:  b.meta,
		Epoch: func() int64 { return b.controller.BrokerEpoch() },
		Lead:  b.lead,
		Stop:  b.stopReplicas,
		Known: b.know,
	}
	o := controller.Options{
		Tree: b.tree, BrokerID: settings.ID,
		Registration: b.registration,
		Own:          b.own,
		Defaults: func() (int32, int16) {
			c := b.config.Broker()
			return int32(c.NumPartitions), int16(c.DefaultReplicationFactor)
		},
		Unclean:    func(topic string) bool { return b.config.Topic(topic).UncleanLeaderElection },
		Applied:    b.follower.Applied,
		Features:   newestFeatures(),
		Finalized:  b.setFeatures,
		Logger:     b.log,
		Registerer: reg,
		Now:        b.opts.Now,
	}
	if b.clustered() {
		b.controlCluster(&o, settings)
	}
	b.controller = controller.New(o)
	return b.controller
}

// registration is how the broker is known to clients and to other brokers. A port of 0 is that
// of the listener of the same name.
func (b *Broker) registration() compat.BrokerNode {
	c := b.config.Broker()
	host := ""
	if b.clustered() {
		host = hostName()
	}
	n := compat.BrokerNode{Rack: c.BrokerRack, JMXPort: -1, Timestamp: b.opts.Now().UnixMilli()}
	if b.opts.member != nil { // on ZooKeeper none, as Kafka 3.9 has none: nothing is agreed on there
		n.Features = map[string]compat.FeatureRange{}
		for _, f := range compat.Features {
			n.Features[f.Name] = compat.FeatureRange{Min: f.Min, Max: f.Max}
		}
	}
	for _, l := range c.Advertised {
		port := l.Port
		if port == 0 {
			port = b.server.Port(l.Name)
		}
		if l.Host == "" && host != "" { // others have to find it
			l.Host = host
			if at := slices.IndexFunc(c.Listeners, func(o config.Listener) bool { return o.Name == l.Name && o.Host != "" }); at >= 0 {
				l.Host = c.Listeners[at].Host
			}
		}
		n.Endpoints = append(n.Endpoints, compat.Endpoint{Listener: l.Name, Protocol: l.Protocol, Host: l.Host, Port: int32(port)})
	}
	return n
}

// lead takes over partitions that the controller gives to this broker. Settings of topics are
// read first: a log is made with those that it was created with.
func (b *Broker) lead(_ context.Context, r *controller.LeaderAndIsr) []controller.PartitionError {
	b.know(r.Leaders)
	states := make([]replica.State, len(r.Partitions))
	var topics []string
	for i := range r.Partitions {
		s := &r.Partitions[i]
		states[i] = replica.State{
			Topic: s.Topic, ID: s.ID, Partition: s.Partition, Leader: s.Leader, LeaderEpoch: s.LeaderEpoch,
			ISR: s.ISR, Replicas: s.Replicas, PartitionEpoch: s.PartitionEpoch, New: s.New,
		}
		if s.New && (len(topics) == 0 || topics[len(topics)-1] != s.Topic) {
			topics = append(topics, s.Topic)
		}
	}
	if err := b.follower.Topics(topics...); err != nil {
		b.log.Error("settings of new topics not read", "err", err)
	}
	var failed []controller.PartitionError
	for k, err := range b.replicas.Apply(states) {
		if errors.Is(err, log.ErrStorage) {
			err = fmt.Errorf("%w: %w", controller.ErrReplicaStorage, err)
		}
		failed = append(failed, controller.PartitionError{Topic: k.Topic, Partition: k.Partition, Err: err})
	}
	return failed
}

func (b *Broker) stopReplicas(_ context.Context, r *controller.StopReplica) []controller.PartitionError {
	var failed []controller.PartitionError
	for _, s := range r.Partitions {
		if p, err := b.replicas.Partition(s.Topic, s.Partition); err == nil && s.LeaderEpoch >= 0 {
			if _, epoch := p.Leading(); s.LeaderEpoch < epoch {
				failed = append(failed, controller.PartitionError{Topic: s.Topic, Partition: s.Partition, Err: controller.ErrFencedLeaderEpoch})
				continue
			}
		}
		if err := b.replicas.Stop(s.Topic, s.Partition, s.Delete); err != nil {
			failed = append(failed, controller.PartitionError{Topic: s.Topic, Partition: s.Partition, Err: err})
		}
	}
	return failed
}

// forgetTopics drops what is kept of topics that are gone from the picture: their settings, and
// the offsets that groups have committed for them.
func (b *Broker) forgetTopics(ctx context.Context) error {
	was, changed := b.meta.Next()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		var now *metadata.Picture
		now, changed = b.meta.Next()
		var names []string
		var gone []group.DeletedTopic
		for name, t := range was.Topics {
			if is := now.Topics[name]; is == nil || is.ID != t.ID {
				gone = append(gone, group.DeletedTopic{Name: name, ID: t.ID})
				if is == nil {
					names = append(names, name)
				}
			}
		}
		was = now
		if len(gone) == 0 {
			continue
		}
		b.follower.Forget(names...)
		if err := b.groups.TopicsDeleted(ctx, gone); err != nil && ctx.Err() == nil {
			b.log.Error("committed offsets of deleted topics not removed", "err", err)
		}
	}
}

// watchLoading compares what this broker leads with what its coordinators have loaded, and says
// what hangs.
func (b *Broker) watchLoading(ctx context.Context) error {
	t := time.NewTicker(loadingCheck)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			for _, topic := range []string{group.Topic, txn.Topic} {
				if late := b.coordinators(topic).Unloaded(loadingLate); len(late) > 0 {
					b.log.Warn("coordinator is still loading", "topic", topic, "partitions", late)
				}
			}
		}
	}
}

// applier hands settings from the registry to the store.
type applier struct{ b *Broker }

func (a applier) ApplyConfig(kind, name string, values map[string]string) {
	c := a.b.config
	c.Apply(kind, name, values)
	// A default's change is seen by its value for no topic: names are not empty.
	if kind == config.Topics && c.Topic(name).UncleanLeaderElection || kind == config.Brokers && c.Topic("").UncleanLeaderElection {
		select {
		case a.b.unclean <- struct{}{}:
		default:
		}
	}
}

// electUnclean has the controller look at partitions without a leader when unclean elections
// have come to be allowed.
func (b *Broker) electUnclean(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.unclean:
			if err := b.controller.ElectLeaderless(ctx); err != nil && ctx.Err() == nil {
				b.log.Error("partitions without a leader not looked at", "err", err)
			}
		}
	}
}

// shards is a coordinator as the partitions of its topic see it.
type shards interface {
	Led(partition, epoch int32)
	Lost(partition int32)
	Unloaded(d time.Duration) []int32
}

// coordinators are all, by their internal topic.
func (b *Broker) coordinators(topic string) shards {
	switch topic {
	case group.Topic:
		return b.groups
	case txn.Topic:
		return b.txns
	}
	return nil
}

// watcher tells the coordinators which partitions of their topics this broker leads.
type watcher struct{ b *Broker }

func (w watcher) Led(topic string, partition, epoch int32) {
	if c := w.b.coordinators(topic); c != nil {
		c.Led(partition, epoch)
	}
}

func (w watcher) Lost(topic string, partition int32) {
	if c := w.b.coordinators(topic); c != nil {
		c.Lost(partition)
	}
}

// shardStore keeps the records of a coordinator in the partitions of its topic.
type shardStore struct {
	b     *Broker
	topic string
}

func (s shardStore) Append(_ context.Context, shard, epoch int32, batch []byte) (int64, func(context.Context) error, error) {
	p, err := s.b.replicas.Leader(s.topic, shard)
	if err != nil {
		return 0, nil, storeError(err)
	}
	done, wait, err := p.AppendIn(epoch, log.Append{Records: batch, Origin: record.Coordinator})
	if err != nil {
		return 0, nil, storeError(err)
	}
	if wait == nil {
		return done.First, nil, nil
	}
	return done.First, func(ctx context.Context) error { return storeError(wait(ctx)) }, nil
}

func (s shardStore) Load(ctx context.Context, shard, epoch int32) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		p, err := s.b.replicas.Leader(s.topic, shard)
		if err != nil {
			yield(nil, storeError(err))
			return
		}
		for batch, err := range p.Replay(ctx, epoch) {
			if !yield(batch, storeError(err)) {
				return
			}
		}
	}
}

// storeError says what an error of a partition means to a coordinator.
func storeError(err error) error {
	var as error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, replica.ErrNotLeader), errors.Is(err, replica.ErrOffline), errors.Is(err, log.ErrStorage), errors.Is(err, log.ErrClosed):
		as = coordinator.ErrNotCoordinator
	case errors.Is(err, replica.ErrUnknownPartition), errors.Is(err, replica.ErrNotEnoughReplicas), errors.Is(err, replica.ErrNotEnoughReplicasAfterAppend), errors.Is(err, replica.ErrTimedOut):
		as = coordinator.ErrNotAvailable
	case errors.Is(err, record.ErrTooLarge), errors.Is(err, log.ErrTooLarge):
		as = coordinator.ErrTooLarge
	default:
		return err
	}
	return fmt.Errorf("%w: %w", as, err)
}
