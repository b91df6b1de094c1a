package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"ottla/broker/config"
	"ottla/broker/controller"
	"ottla/broker/follow"
	"ottla/broker/metadata"
	"ottla/broker/registry"
	"ottla/broker/remote"
	"ottla/broker/replica"
	"ottla/log"
)

// idPatience is how much longer than a session may last a registration of this broker's id is waited
// for that another session owns.
const idPatience = 2 * time.Second

// clustered says that this broker shares its registry with others.
func (b *Broker) clustered() bool {
	return b.opts.member != nil || b.config.Broker().ZooKeeperConnect != ""
}

// openZooKeeper opens the registry of a cluster. It waits for a ZooKeeper for as long as
// zookeeper.connection.timeout.ms says.
func (b *Broker) openZooKeeper(c *config.Broker) (err error) {
	late := time.AfterFunc(time.Second, func() {
		b.log.Warn("ZooKeeper does not answer yet; waiting", "zookeeper.connect", c.ZooKeeperConnect, "zookeeper.connection.timeout.ms", c.ZooKeeperConnectionTimeoutMs)
	})
	defer late.Stop()
	o := zooKeeperOptions(c)
	o.Logger = b.log
	b.tree, err = registry.OpenZooKeeper(o)
	if errors.Is(err, registry.ErrConnectionLoss) {
		return fmt.Errorf("no ZooKeeper has answered within zookeeper.connection.timeout.ms=%d: %w", c.ZooKeeperConnectionTimeoutMs, err)
	}
	return err
}

func zooKeeperOptions(c *config.Broker) registry.ZooKeeperOptions {
	return registry.ZooKeeperOptions{
		Connect: c.ZooKeeperConnect, SessionTimeout: ms(c.ZooKeeperSessionTimeoutMs), Patience: ms(c.ZooKeeperConnectionTimeoutMs),
		MakeChroot: true, InFlight: int(c.ZooKeeperMaxInFlightRequests),
	}
}

// errReserved: an id of those that are given out was set by hand.
var errReserved = errors.New("broker.id must be equal or less than reserved.broker.max.id")

// joinCluster settles this broker's id, and how it reaches others. A broker that nobody has given an
// id gets one from the registry, and keeps it in meta.properties.
func (b *Broker) joinCluster(dirs *log.Dirs) (*config.Broker, error) {
	c := b.config.Broker()
	fixed := b.opts.Settings["broker.id"] != "" || b.opts.Settings["node.id"] != "" // else it is from a directory
	switch {
	case !c.BrokerIDGenerationEnable:
	case fixed && c.IDSet && int64(c.ID) > c.ReservedBrokerMaxID:
		return nil, fmt.Errorf("%w: broker.id=%d, reserved.broker.max.id=%d", errReserved, c.ID, c.ReservedBrokerMaxID)
	case !c.IDSet && dirs.BrokerID() < 0:
		id, err := registry.NextBrokerID(b.tree, int32(c.ReservedBrokerMaxID))
		if err != nil {
			return nil, fmt.Errorf("get a broker id: %w", err)
		}
		if err := b.takeID(id); err != nil {
			return nil, err
		}
		c = b.config.Broker()
		b.log.Info("the cluster has given this broker an id", "broker", id)
	}
	ways := b.waysOf(c)
	b.ways = &ways
	b.asks = ways.Controller(func() int32 { return b.controller.Leader() })
	b.members = ways.Members()
	b.features.Store(&features{epoch: -1})
	return c, nil
}

// waysOf are how other brokers are reached.
func (b *Broker) waysOf(c *config.Broker) remote.Options {
	ways := remote.Options{Self: c.ID, Book: remote.NewBook(c.InterBrokerListener), Timeout: ms(c.ReplicaSocketTimeoutMs)}
	if m := b.opts.member; m != nil {
		ways.Dial = m.dial
	}
	return ways
}

// followOptions are what of the registry is followed: finalized features too where others may
// change them.
func (b *Broker) followOptions() follow.Options {
	o := follow.Options{Tree: b.tree, Applier: applier{b}, Logger: b.log, Now: b.opts.Now}
	if b.clustered() {
		o.Features = b.setFeatures
	}
	return o
}

// inCluster adds what replicas need that have leaders and followers elsewhere.
func (b *Broker) inCluster(o replica.Options) replica.Options {
	c := b.config.Broker()
	o.LagMax = ms(c.ReplicaLagTimeMaxMs)
	if !b.clustered() {
		return o
	}
	o.Source = func(leader int32, n int) replica.Source { return b.ways.Source(leader, n) }
	o.BrokerEpoch = func() int64 { return b.controller.BrokerEpoch() }
	o.Fetchers = func() int { return int(b.config.Broker().NumReplicaFetchers) }
	o.AlterISR = b.alterISR
	o.Pull = replica.PullRules{
		MaxWait: ms(c.ReplicaFetchWaitMaxMs), MinBytes: int32(c.ReplicaFetchMinBytes), MaxBytes: int32(c.ReplicaFetchResponseMaxBytes),
		PartMaxBytes: int32(c.ReplicaFetchMaxBytes), Backoff: ms(c.ReplicaFetchBackoffMs),
	}
	return o
}

// controlCluster adds what a controller needs that has other brokers.
func (b *Broker) controlCluster(o *controller.Options, c *config.Broker) {
	o.Dial = func(m metadata.Broker) controller.Line { return b.ways.Control(m) }
	o.ClusterID = b.meta.Load().ClusterID
	if c.AutoLeaderRebalanceEnable {
		o.Rebalance = &controller.Rebalance{Every: time.Duration(c.LeaderImbalanceCheckIntervalSeconds) * time.Second, Percent: int(c.LeaderImbalancePerBrokerPercentage)}
	}
	o.Elected = func(int32) { b.asks.Turn() }
	if b.opts.member == nil {
		o.Features, o.NoFeatures = nil, true // what a member of Kafka 3.9 cannot do is not agreed on
		o.JoinPatience = ms(c.ZooKeeperSessionTimeoutMs) + idPatience
	}
}

// know notes where brokers are.
func (b *Broker) know(brokers []metadata.Broker) {
	if b.ways != nil {
		b.ways.Book.Know(brokers)
	}
}

// alterISR asks the controller, here or elsewhere, for other in-sync sets.
func (b *Broker) alterISR(ctx context.Context, changes []replica.ISRChange) ([]replica.ISRResult, error) {
	epoch := b.controller.BrokerEpoch()
	if !b.controller.Active() {
		return b.asks.AlterISR(ctx, epoch, changes)
	}
	asked := make([]controller.ISRChange, len(changes))
	for i, ch := range changes {
		asked[i] = controller.ISRChange{Topic: ch.Topic, Partition: ch.Partition, LeaderEpoch: ch.LeaderEpoch, PartitionEpoch: ch.PartitionEpoch, ISR: ch.ISR}
	}
	decided, err := b.controller.AlterPartition(ctx, b.config.Broker().ID, epoch, asked)
	if err != nil {
		return nil, err
	}
	results := make([]replica.ISRResult, len(decided))
	for i, r := range decided {
		results[i] = replica.ISRResult{LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch, ISR: r.ISR, Err: refusedISR(r.Err)}
	}
	return results, nil
}

// refusedISR is what the controller's refusal means to a leader.
func refusedISR(err error) error {
	for _, row := range [...]struct{ from, to error }{
		{controller.ErrIneligibleReplica, replica.ErrNotEligible},
		{controller.ErrFencedLeaderEpoch, replica.ErrFencedEpoch},
		{controller.ErrInvalidUpdateVersion, replica.ErrSuperseded},
		{controller.ErrInvalidRequest, replica.ErrSuperseded},
		{controller.ErrUnknownTopicOrPartition, replica.ErrUnknownPartition},
		{controller.ErrUnknownTopicID, replica.ErrUnknownPartition},
	} {
		if errors.Is(err, row.from) {
			return fmt.Errorf("%w: %w", row.to, err)
		}
	}
	return err
}

// leave hands over what this broker leads before it stops (controlled.shutdown.enable). Clients are
// still served, and find the new leaders; what cannot be handed over has no leader for a while.
func (b *Broker) leave(ctx context.Context) {
	if !b.clustered() || b.opts.member != nil && b.opts.member.killed.Load() {
		return
	}
	b.leaveBy(ctx, b.handOver)
}

// leaveBy tries a way of handing over as often as the settings say.
func (b *Broker) leaveBy(ctx context.Context, handOver func(context.Context) (left int, err error)) {
	c := b.config.Broker()
	if !c.ControlledShutdownEnable {
		return
	}
	for try := int64(0); ; try++ {
		left, err := handOver(ctx)
		switch {
		case err == nil && left == 0:
			return
		case try >= c.ControlledShutdownMaxRetries:
			b.log.Warn("stopping without having handed everything over", "partitions", left, "err", err)
			return
		}
		b.log.Info("not everything is handed over yet; trying again", "partitions", left, "err", err)
		pause := time.NewTimer(ms(c.ControlledShutdownRetryBackoffMs))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

func (b *Broker) handOver(ctx context.Context) (left int, err error) {
	epoch := b.controller.BrokerEpoch()
	if b.controller.Active() {
		led, err := b.controller.ControlledShutdown(ctx, b.config.Broker().ID, epoch)
		left = len(led)
		if len(b.meta.Load().Brokers) < 2 { // nobody else could have them
			left = 0
		}
		return left, err
	}
	return b.asks.ControlledShutdown(ctx, epoch)
}

// hostName is where others find this machine if nothing says so.
func hostName() string {
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "localhost"
}
