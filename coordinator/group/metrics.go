package group

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Stats counts what machines do, over all shards of a broker and for as long as it runs.
type Stats struct {
	Commits            atomic.Int64 // offsets committed
	Expired            atomic.Int64 // offsets whose time was up
	Deleted            atomic.Int64 // offsets deleted by request or with their topic
	Rebalances         atomic.Int64 // generations that became stable
	ConsumerRebalances atomic.Int64 // epochs that consumer groups began
	Malformed          atomic.Int64 // records that could not be read and were passed over
}

// EndOffset returns the end of a partition as consumers see it, the high watermark; false
// where this broker does not know it.
type EndOffset func(topic string, partition int32) (int64, bool)

// collector tells the groups of the shards that this broker leads: the gauges of Kafka's
// GroupMetadataManager and the names of danielqsj/kafka_exporter, which need no second process
// here. It asks the shards when it is asked.
type collector struct {
	c   *Coordinator
	end EndOffset

	total   *prometheus.Desc
	byState [4]*prometheus.Desc
	offsets, members, offset, offsetSum, lag, lagSum,
	commits, expired, deleted, rebalances, malformed,
	byType, classics, consumers, consumerRebalances *prometheus.Desc
}

func newCollector(c *Coordinator, end EndOffset) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kafka_"+name, help, labels, nil)
	}
	numGroups := func(suffix, what string) *prometheus.Desc {
		return desc("coordinator_group_groupmetadatamanager_numgroups"+suffix, "Groups that this broker coordinates"+what+".")
	}
	return &collector{
		c: c, end: end,
		total: numGroups("", ""),
		byState: [4]*prometheus.Desc{
			Empty:               numGroups("empty", ", without members"),
			PreparingRebalance:  numGroups("preparingrebalance", ", waiting for joins"),
			CompletingRebalance: numGroups("completingrebalance", ", waiting for the leader's assignment"),
			Stable:              numGroups("stable", ", stable"),
		},
		offsets:            desc("coordinator_group_groupmetadatamanager_numoffsets", "Committed offsets of the groups that this broker coordinates."),
		members:            desc("consumergroup_members", "Members of the group.", "consumergroup"),
		offset:             desc("consumergroup_current_offset", "Committed offset of the group for the partition.", "consumergroup", "topic", "partition"),
		offsetSum:          desc("consumergroup_current_offset_sum", "Committed offsets of the group, summed over the topic.", "consumergroup", "topic"),
		lag:                desc("consumergroup_lag", "Records between the committed offset and the end of the partition.", "consumergroup", "topic", "partition"),
		lagSum:             desc("consumergroup_lag_sum", "Lag of the group, summed over the topic.", "consumergroup", "topic"),
		commits:            desc("server_group_coordinator_metrics_offset_commit_count", "Offsets committed."),
		expired:            desc("server_group_coordinator_metrics_offset_expiration_count", "Offsets removed because their time was up."),
		deleted:            desc("server_group_coordinator_metrics_offset_deletion_count", "Offsets deleted by request or with their topic."),
		rebalances:         desc("server_group_coordinator_metrics_group_completed_rebalance_count", "Rebalances of classic groups that were completed."),
		byType:             desc("server_group_coordinator_metrics_group_count", "Groups that this broker coordinates, by protocol.", "protocol"),
		classics:           desc("server_group_coordinator_metrics_classic_group_count", "Groups of the classic protocol that this broker coordinates, by state.", "state"),
		consumers:          desc("server_group_coordinator_metrics_consumer_group_count", "Groups of the consumer protocol that this broker coordinates, by state.", "state"),
		consumerRebalances: desc("server_group_coordinator_metrics_consumer_group_rebalance_count", "Epochs that groups of the consumer protocol began."),
		malformed:          desc("server_group_coordinator_metrics_malformed_record_count", "Records of __consumer_offsets that could not be read."),
	}
}

// dead is there because dashboards read it; a dead group is gone here.
var deadDesc = prometheus.NewDesc("kafka_coordinator_group_groupmetadatamanager_numgroupsdead", "Groups that are being removed; always 0.", nil, nil)

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.byState {
		out <- d
	}
	for _, d := range []*prometheus.Desc{c.total, c.offsets, deadDesc, c.members, c.offset, c.offsetSum, c.lag, c.lagSum,
		c.commits, c.expired, c.deleted, c.rebalances, c.malformed, c.byType, c.classics, c.consumers, c.consumerRebalances} {
		out <- d
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v *atomic.Int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v.Load()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	groups := c.c.summaries(ctx)
	counts := map[string]int64{} // of classic groups by state
	types := map[string]int64{typeClassic: 0, typeConsumer: 0}
	consumers := map[string]int64{"Empty": 0, "Assigning": 0, "Reconciling": 0, "Stable": 0, "Dead": 0}
	var committed int64
	for _, g := range groups {
		if types[g.Type]++; g.Type == typeConsumer {
			consumers[g.State]++
		} else {
			counts[g.State]++
		}
		id := label(g.Group)
		gauge(c.members, int64(g.Members), id)
		for topic, partitions := range g.Offsets {
			var offsets, lags int64
			committed += int64(len(partitions))
			known := false
			for partition, at := range partitions {
				p := strconv.Itoa(int(partition))
				gauge(c.offset, at, id, topic, p)
				offsets += at
				if end, ok := c.end(topic, partition); ok {
					lag := max(end-at, 0)
					gauge(c.lag, lag, id, topic, p)
					lags, known = lags+lag, true
				}
			}
			gauge(c.offsetSum, offsets, id, topic)
			if known {
				gauge(c.lagSum, lags, id, topic)
			}
		}
	}
	gauge(c.total, int64(len(groups)))
	gauge(c.offsets, committed)
	gauge(deadDesc, 0)
	gauge(c.classics, 0, "Dead")
	for state, d := range c.byState {
		gauge(d, counts[State(state).String()])
		gauge(c.classics, counts[State(state).String()], State(state).String())
	}
	for protocol, n := range types {
		gauge(c.byType, n, protocol)
	}
	for state, n := range consumers {
		gauge(c.consumers, n, state)
	}
	s := &c.c.stats
	counter(c.commits, &s.Commits)
	counter(c.expired, &s.Expired)
	counter(c.deleted, &s.Deleted)
	counter(c.rebalances, &s.Rebalances)
	counter(c.consumerRebalances, &s.ConsumerRebalances)
	counter(c.malformed, &s.Malformed)
}

// label makes a group id fit for Prometheus, which takes UTF-8 alone.
func label(id string) string {
	if utf8.ValidString(id) {
		return id
	}
	return strconv.QuoteToASCII(id)
}
