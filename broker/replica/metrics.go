package replica

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// topicStats counts what clients do with one topic. It is Kafka's BrokerTopicMetrics.
type topicStats struct {
	messagesIn, bytesIn, bytesOut, bytesRejected atomic.Int64
	produces, failedProduces                     atomic.Int64
	fetches, failedFetches                       atomic.Int64
	fetchConversions, produceConversions         atomic.Int64
}

// meters are the counters under the names of Kafka's beans: without PerSec as the JMX
// exporter's example rules write them, with persec as the Strimzi metrics reporter does.
var meters = []struct {
	name string
	of   func(*topicStats) *atomic.Int64
}{
	{"messagesin", func(s *topicStats) *atomic.Int64 { return &s.messagesIn }},
	{"bytesin", func(s *topicStats) *atomic.Int64 { return &s.bytesIn }},
	{"bytesout", func(s *topicStats) *atomic.Int64 { return &s.bytesOut }},
	{"bytesrejected", func(s *topicStats) *atomic.Int64 { return &s.bytesRejected }},
	{"totalproducerequests", func(s *topicStats) *atomic.Int64 { return &s.produces }},
	{"totalfetchrequests", func(s *topicStats) *atomic.Int64 { return &s.fetches }},
	{"failedproducerequests", func(s *topicStats) *atomic.Int64 { return &s.failedProduces }},
	{"failedfetchrequests", func(s *topicStats) *atomic.Int64 { return &s.failedFetches }},
	{"fetchmessageconversions", func(s *topicStats) *atomic.Int64 { return &s.fetchConversions }},
	{"producemessageconversions", func(s *topicStats) *atomic.Int64 { return &s.produceConversions }},
}

// Metrics are the room's metrics. They are read when they are scraped: a partition costs
// nothing in between.
type Metrics struct {
	m          *Manager
	reg        prometheus.Registerer
	descs      [gaugeCount]*prometheus.Desc
	topicDescs []*prometheus.Desc // two names for each of meters

	mu     sync.RWMutex
	topics map[string]*topicStats // guarded by mu
	gone   topicStats             // what topics had that are not here any more, for the sums

	isrShrinks, isrExpands atomic.Int64
}

func newMetrics(reg prometheus.Registerer, m *Manager) *Metrics {
	x := &Metrics{m: m, reg: reg, topics: map[string]*topicStats{}}
	if reg != nil {
		x.descs, x.topicDescs = newDescs()
		reg.MustRegister(x)
	}
	return x
}

func (x *Metrics) unregister() {
	if x.reg != nil {
		x.reg.Unregister(x)
	}
}

// topic returns a topic's counters.
func (x *Metrics) topic(name string) *topicStats {
	x.mu.RLock()
	s := x.topics[name]
	x.mu.RUnlock()
	if s != nil {
		return s
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if s = x.topics[name]; s == nil {
		s = &topicStats{}
		x.topics[name] = s
	}
	return s
}

// forget drops a topic that this broker has no partition of.
func (x *Metrics) forget(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.topics[name]; s != nil {
		for _, m := range meters {
			m.of(&x.gone).Add(m.of(s).Load())
		}
		delete(x.topics, name)
	}
}

// Produced counts one partition of a Produce request: as many messages and bytes were stored.
func (p *Partition) Produced(messages, bytes int, converted bool) {
	p.stats.produces.Add(1)
	p.stats.messagesIn.Add(int64(messages))
	p.stats.bytesIn.Add(int64(bytes))
	if converted {
		p.stats.produceConversions.Add(int64(messages))
	}
}

// ProduceFailed counts one that was refused: unexpected says that it is not the client's doing.
func (p *Partition) ProduceFailed(bytes int, tooLarge, unexpected bool) {
	p.stats.produces.Add(1)
	if tooLarge {
		p.stats.bytesRejected.Add(int64(bytes))
	}
	if unexpected {
		p.stats.failedProduces.Add(1)
	}
}

// Sent counts the records of one partition of a Fetch answer.
func (r *Read) Sent(bytes int, converted bool) {
	if r.p == nil {
		return
	}
	r.p.stats.bytesOut.Add(int64(bytes))
	if converted {
		r.p.stats.fetchConversions.Add(1)
	}
}

// gauges are the metrics of single partitions and of the whole, by their place in Metrics.descs.
const (
	replicasCount = iota
	inSyncReplicasCount
	underReplicated
	underMinISR
	atMinISR
	stableLag
	partitionCount
	leaderCount
	offlineCount
	underReplicatedCount
	underMinISRCount
	atMinISRCount
	producerIDCount
	lateTransactions
	isrShrinks
	isrShrinksPerSec
	isrExpands
	isrExpandsPerSec
	gaugeCount
)

func newDescs() (descs [gaugeCount]*prometheus.Desc, topics []*prometheus.Desc) {
	one := []string{"topic", "partition"}
	for i, d := range [gaugeCount]struct {
		name, help string
		labels     []string
	}{
		replicasCount:        {"cluster_partition_replicascount", "Replicas of the partition.", one},
		inSyncReplicasCount:  {"cluster_partition_insyncreplicascount", "Replicas of the partition that are in sync.", one},
		underReplicated:      {"cluster_partition_underreplicated", "1 if a replica is not in sync.", one},
		underMinISR:          {"cluster_partition_underminisr", "1 if fewer replicas are in sync than min.insync.replicas.", one},
		atMinISR:             {"cluster_partition_atminisr", "1 if just as many replicas are in sync as min.insync.replicas.", one},
		stableLag:            {"cluster_partition_laststableoffsetlag", "Records between the last stable offset and the high watermark.", one},
		partitionCount:       {"server_replicamanager_partitioncount", "Partitions of this broker.", nil},
		leaderCount:          {"server_replicamanager_leadercount", "Partitions that this broker leads.", nil},
		offlineCount:         {"server_replicamanager_offlinereplicacount", "Partitions of this broker whose log is offline.", nil},
		underReplicatedCount: {"server_replicamanager_underreplicatedpartitions", "Led partitions with a replica that is not in sync.", nil},
		underMinISRCount:     {"server_replicamanager_underminisrpartitioncount", "Led partitions with fewer in-sync replicas than min.insync.replicas.", nil},
		atMinISRCount:        {"server_replicamanager_atminisrpartitioncount", "Led partitions with just as many in-sync replicas as min.insync.replicas.", nil},
		producerIDCount:      {"server_replicamanager_produceridcount", "Producers that partitions of this broker know, once for each.", nil},
		lateTransactions:     {"server_replicamanager_partitionswithlatetransactionscount", "Led partitions with an open transaction that should be over.", nil},
		isrShrinks:           {"server_replicamanager_isrshrinks_total", "Replicas taken out of an ISR.", nil},
		isrShrinksPerSec:     {"server_replicamanager_isrshrinkspersec_total", "Replicas taken out of an ISR.", nil},
		isrExpands:           {"server_replicamanager_isrexpands_total", "Replicas taken into an ISR.", nil},
		isrExpandsPerSec:     {"server_replicamanager_isrexpandspersec_total", "Replicas taken into an ISR.", nil},
	} {
		descs[i] = prometheus.NewDesc("kafka_"+d.name, d.help, d.labels, nil)
	}
	for _, m := range meters {
		help := "Kafka's BrokerTopicMetrics " + m.name + "; the topic is empty for the sum of all."
		for _, suffix := range []string{"_total", "persec_total"} {
			topics = append(topics, prometheus.NewDesc("kafka_server_brokertopicmetrics_"+m.name+suffix, help, []string{"topic"}, nil))
		}
	}
	return descs, topics
}

// Describe names all metrics of the room.
func (x *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range x.descs {
		out <- d
	}
	for _, d := range x.topicDescs {
		out <- d
	}
}

// Collect gives all metrics of the room.
func (x *Metrics) Collect(out chan<- prometheus.Metric) {
	x.collectTopics(out)
	x.collectPartitions(out)
}

func (x *Metrics) collectTopics(out chan<- prometheus.Metric) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for i, m := range meters {
		sum := m.of(&x.gone).Load()
		for _, s := range x.topics {
			sum += m.of(s).Load()
		}
		for _, d := range x.topicDescs[2*i : 2*i+2] {
			for topic, s := range x.topics {
				out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(m.of(s).Load()), topic)
			}
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(sum), "")
		}
	}
}

func (x *Metrics) collectPartitions(out chan<- prometheus.Metric) {
	var sums [gaugeCount]float64
	late := x.m.opts.LateTxn
	if late == 0 {
		late = 20 * time.Minute
	}
	since := x.m.opts.Now().Add(-late).UnixMilli()
	x.m.each(func(p *Partition) {
		sums[partitionCount]++
		s := p.standing.Load()
		if s.late != nil {
			sums[leaderCount]++
			return
		}
		if s.log == nil {
			sums[offlineCount]++
			return
		}
		producers, late := s.log.Census(since)
		sums[producerIDCount] += float64(producers)
		if !s.leads {
			return
		}
		sums[lateTransactions] += flag(late)
		sums[leaderCount]++
		minISR := p.minISR()
		p.mu.Lock()
		replicas, isr, enough := len(p.rules.replicas), len(p.rules.isr), p.rules.enough(minISR)
		p.mu.Unlock()
		n := strconv.Itoa(int(p.number))
		under, underMin, atMin := flag(isr < replicas), flag(!enough), flag(isr == min(minISR, replicas))
		sums[underReplicatedCount] += under
		sums[underMinISRCount] += underMin
		sums[atMinISRCount] += atMin
		for i, v := range [...]float64{
			replicasCount: float64(replicas), inSyncReplicasCount: float64(isr), underReplicated: under,
			underMinISR: underMin, atMinISR: atMin, stableLag: float64(s.log.HighWatermark() - s.log.StableOffset()),
		} {
			out <- prometheus.MustNewConstMetric(x.descs[i], prometheus.GaugeValue, v, p.topic, n)
		}
	})
	for i := partitionCount; i <= lateTransactions; i++ {
		out <- prometheus.MustNewConstMetric(x.descs[i], prometheus.GaugeValue, sums[i])
	}
	for i, v := range map[int]int64{
		isrShrinks: x.isrShrinks.Load(), isrShrinksPerSec: x.isrShrinks.Load(),
		isrExpands: x.isrExpands.Load(), isrExpandsPerSec: x.isrExpands.Load(),
	} {
		out <- prometheus.MustNewConstMetric(x.descs[i], prometheus.CounterValue, float64(v))
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
