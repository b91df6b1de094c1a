package broker

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"ottla/broker/metadata"
	"ottla/broker/server"
	"ottla/compat"

	"github.com/prometheus/client_golang/prometheus"
)

// The states of a broker as Kafka's KafkaServer BrokerState numbers them.
const (
	stateStarting     = 1
	stateRunning      = 3
	stateShuttingDown = 7
)

// picture tells how the cluster looks from this broker, under the names of danielqsj/kafka_exporter,
// which so needs no process of its own. Offsets are those of partitions that this broker leads. All
// of it is read when it is asked for.
type picture struct {
	b     *Broker
	once  sync.Once
	descs [pictureCount]*prometheus.Desc
}

const (
	brokerState = iota
	featureLevel
	buildInfo
	brokers
	brokerInfo
	topicPartitions
	partitionLeader
	partitionPreferred
	partitionReplicas
	partitionInSync
	partitionUnder
	partitionEnd
	partitionStart
	pictureCount
)

func (p *picture) make() {
	one := []string{"topic", "partition"}
	for i, d := range [pictureCount]struct {
		name, help string
		labels     []string
	}{
		brokerState:        {"kafka_server_kafkaserver_brokerstate", "1 starting, 3 running, 7 shutting down.", nil},
		featureLevel:       {"kafka_server_metadataloader_finalizedlevel", "Finalized level of a feature, as Kafka names it here: groupVersion.", []string{"featureName"}},
		buildInfo:          {"ottla_build_info", "1, with the version.", []string{"version"}},
		brokers:            {"kafka_brokers", "Brokers of the cluster that are alive.", nil},
		brokerInfo:         {"kafka_broker_info", "1 for each broker that is alive.", []string{"id", "address"}},
		topicPartitions:    {"kafka_topic_partitions", "Partitions of the topic.", []string{"topic"}},
		partitionLeader:    {"kafka_topic_partition_leader", "Id of the broker that leads the partition; -1: none.", one},
		partitionPreferred: {"kafka_topic_partition_leader_is_preferred", "1 if the partition's first replica leads it.", one},
		partitionReplicas:  {"kafka_topic_partition_replicas", "Replicas of the partition.", one},
		partitionInSync:    {"kafka_topic_partition_in_sync_replica", "Replicas of the partition that are in sync.", one},
		partitionUnder:     {"kafka_topic_partition_under_replicated_partition", "1 if a replica is not in sync.", one},
		partitionEnd:       {"kafka_topic_partition_current_offset", "End of the partition as consumers see it.", one},
		partitionStart:     {"kafka_topic_partition_oldest_offset", "First offset of the partition.", one},
	} {
		p.descs[i] = prometheus.NewDesc(d.name, d.help, d.labels, nil)
	}
}

// Describe names nothing: what is described has to be made at the start, and is not looked at then.
func (p *picture) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (p *picture) Collect(out chan<- prometheus.Metric) {
	p.once.Do(p.make)
	gauge := func(what int, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(p.descs[what], prometheus.GaugeValue, float64(v), labels...)
	}
	gauge(brokerState, int64(p.b.state.Load()))
	for _, f := range compat.Features {
		gauge(featureLevel, int64(p.b.feature(f.Name)), strings.TrimSuffix(f.Name, ".version")+"Version")
	}
	gauge(buildInfo, 1, p.b.opts.Version)
	now := p.b.meta.Load()
	gauge(brokers, int64(len(now.Brokers)))
	for i := range now.Brokers {
		gauge(brokerInfo, 1, strconv.Itoa(int(now.Brokers[i].ID)), p.b.address(&now.Brokers[i]))
	}
	for name, t := range now.Topics {
		gauge(topicPartitions, int64(len(t.Partitions)), name)
		for n := range t.Partitions {
			x, number := &t.Partitions[n], strconv.Itoa(n)
			gauge(partitionLeader, int64(x.Leader), name, number)
			gauge(partitionPreferred, flag(len(x.Replicas) > 0 && x.Leader == x.Replicas[0]), name, number)
			gauge(partitionReplicas, int64(len(x.Replicas)), name, number)
			gauge(partitionInSync, int64(len(x.ISR)), name, number)
			gauge(partitionUnder, flag(len(x.ISR) < len(x.Replicas)), name, number)
			if x.Leader != p.b.config.Broker().ID {
				continue
			}
			if l := p.b.logs.Log(name, int32(n)); l != nil {
				gauge(partitionEnd, l.HighWatermark(), name, number)
				gauge(partitionStart, l.Start(), name, number)
			}
		}
	}
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// address is host:port of a broker's first listener. Where that has no host to tell clients, it is
// the socket's.
func (b *Broker) address(of *metadata.Broker) string {
	if len(of.Endpoints) == 0 {
		return ""
	}
	e := of.Endpoints[0]
	addrs := b.server.Addrs()
	if i := slices.IndexFunc(addrs, func(a server.Bound) bool { return a.Listener == e.Listener }); e.Host == "" && i >= 0 {
		return addrs[i].Addr.String()
	}
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}
