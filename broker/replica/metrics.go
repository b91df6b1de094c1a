package replica

import (
	"strconv"
	"sync"
	"sync/atomic"

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
	m   *Manager
	reg prometheus.Registerer

	mu     sync.RWMutex
	topics map[string]*topicStats // guarded by mu
	gone   topicStats             // what topics had that are not here any more, for the sums

	isrShrinks, isrExpands atomic.Int64
}

func newMetrics(reg prometheus.Registerer, m *Manager) *Metrics {
	x := &Metrics{m: m, reg: reg, topics: map[string]*topicStats{}}
	if reg != nil {
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

// Describe describes nothing: names with and without labels are made when they are scraped.
func (x *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect gives all metrics of the room.
func (x *Metrics) Collect(out chan<- prometheus.Metric) {
	emit := func(kind prometheus.ValueType, value float64, name, help string, labels []string, values ...string) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, labels, nil), kind, value, values...)
	}
	x.collectTopics(emit)
	x.collectPartitions(emit)
}

type emitter func(kind prometheus.ValueType, value float64, name, help string, labels []string, values ...string)

func (x *Metrics) collectTopics(emit emitter) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	label := []string{"topic"}
	for _, m := range meters {
		sum := m.of(&x.gone).Load()
		help := "Kafka's BrokerTopicMetrics " + m.name + "; the topic is empty for the sum of all."
		for _, suffix := range []string{"_total", "persec_total"} {
			name := "kafka_server_brokertopicmetrics_" + m.name + suffix
			for topic, s := range x.topics {
				v := m.of(s).Load()
				if suffix == "_total" {
					sum += v
				}
				emit(prometheus.CounterValue, float64(v), name, help, label, topic)
			}
			emit(prometheus.CounterValue, float64(sum), name, help, label, "")
		}
	}
}

func (x *Metrics) collectPartitions(emit emitter) {
	label := []string{"topic", "partition"}
	var total, leading, offline, under, underMin, atMin float64
	x.m.each(func(p *Partition) {
		total++
		s := p.standing.Load()
		if s.log == nil {
			offline++
			return
		}
		n := strconv.Itoa(int(p.number))
		if !s.leads {
			return
		}
		leading++
		minISR := p.minISR()
		p.mu.Lock()
		replicas, isr, enough := len(p.rules.replicas), len(p.rules.isr), p.rules.enough(minISR)
		p.mu.Unlock()
		isUnder, isUnderMin, isAtMin := flag(isr < replicas), flag(!enough), flag(isr == min(minISR, replicas))
		under, underMin, atMin = under+isUnder, underMin+isUnderMin, atMin+isAtMin
		emit(prometheus.GaugeValue, float64(replicas), "kafka_cluster_partition_replicascount", "Replicas of the partition.", label, p.topic, n)
		emit(prometheus.GaugeValue, float64(isr), "kafka_cluster_partition_insyncreplicascount", "Replicas of the partition that are in sync.", label, p.topic, n)
		emit(prometheus.GaugeValue, isUnder, "kafka_cluster_partition_underreplicated", "1 if a replica is not in sync.", label, p.topic, n)
		emit(prometheus.GaugeValue, isUnderMin, "kafka_cluster_partition_underminisr", "1 if fewer replicas are in sync than min.insync.replicas.", label, p.topic, n)
		emit(prometheus.GaugeValue, isAtMin, "kafka_cluster_partition_atminisr", "1 if just as many replicas are in sync as min.insync.replicas.", label, p.topic, n)
		emit(prometheus.GaugeValue, float64(s.log.HighWatermark()-s.log.StableOffset()), "kafka_cluster_partition_laststableoffsetlag", "Records between the last stable offset and the high watermark.", label, p.topic, n)
	})
	for _, g := range []struct {
		name, help string
		value      float64
	}{
		{"partitioncount", "Partitions of this broker.", total},
		{"leadercount", "Partitions that this broker leads.", leading},
		{"offlinereplicacount", "Partitions of this broker whose log is offline.", offline},
		{"underreplicatedpartitions", "Led partitions with a replica that is not in sync.", under},
		{"underminisrpartitioncount", "Led partitions with fewer in-sync replicas than min.insync.replicas.", underMin},
		{"atminisrpartitioncount", "Led partitions with just as many in-sync replicas as min.insync.replicas.", atMin},
	} {
		emit(prometheus.GaugeValue, g.value, "kafka_server_replicamanager_"+g.name, g.help, nil)
	}
	for _, suffix := range []string{"_total", "persec_total"} {
		emit(prometheus.CounterValue, float64(x.isrShrinks.Load()), "kafka_server_replicamanager_isrshrinks"+suffix, "Replicas taken out of an ISR.", nil)
		emit(prometheus.CounterValue, float64(x.isrExpands.Load()), "kafka_server_replicamanager_isrexpands"+suffix, "Replicas taken into an ISR.", nil)
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
