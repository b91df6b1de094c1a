package coordinator

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of a runtime. Kafka's new coordinators have the like as
// kafka.server:type=group-coordinator-metrics; the names follow.
type Metrics struct {
	Loads         prometheus.Counter   // shards loaded
	LoadSeconds   prometheus.Histogram // one load
	LoadErrors    prometheus.Counter   // loads that failed and are tried again
	AppendErrors  prometheus.Counter   // batches that could not be appended
	UnknownWrites prometheus.Counter   // batches whose commit was not learnt: the shard was read again
	Refused       prometheus.Counter   // steps refused because MaxQueued waited already
	Batches       prometheus.Counter
	Records       prometheus.Counter

	subsystem string
	reg       prometheus.Registerer // nil: nowhere

	mu    sync.Mutex
	loads int           // guarded by mu: that took
	spent time.Duration // guarded by mu: all together
	most  time.Duration // guarded by mu: and this the longest
}

// loaded takes in that a shard was loaded.
func (m *Metrics) loaded(took time.Duration) {
	m.Loads.Inc()
	m.LoadSeconds.Observe(took.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	m.spent += took
	m.most = max(m.most, took)
}

// Census is in which state shards are, and how much waits for them.
type Census struct {
	Active, Loading, Failed int // Failed: the last attempt to load did, and another one comes
	Replayed                int // records that were read so far by those that load
	Queued                  int // requests
}

// watch makes known what can be asked of a runtime, by the names of Kafka's CoordinatorRuntimeMetrics and
// TransactionStateManager. Kafka's longest and mean time of a load are those of the last minute; here they are those
// of all loads, as a shard is seldom loaded.
func (m *Metrics) watch(census func() Census) {
	if m.reg == nil {
		return
	}
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "kafka", Subsystem: m.subsystem, Name: name, Help: help, ConstLabels: labels,
		}, value))
	}
	for state, of := range map[string]func(Census) int{
		"active":  func(c Census) int { return c.Active },
		"loading": func(c Census) int { return c.Loading },
		"failed":  func(c Census) int { return c.Failed },
	} {
		gauge("num_partitions", "Shards of the coordinator that this broker leads, by state.", prometheus.Labels{"state": state},
			func() float64 { return float64(of(census())) })
	}
	gauge("event_queue_size", "Requests that wait for a shard.", nil, func() float64 { return float64(census().Queued) })
	gauge("partition_load_record_count", "Records read so far by the shards that are being loaded.", nil, func() float64 { return float64(census().Replayed) })
	ms := func(of func() time.Duration) func() float64 {
		return func() float64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			return float64(of().Microseconds()) / 1000
		}
	}
	gauge("partition_load_time_max", "The longest time that loading a shard took, in milliseconds.", nil, ms(func() time.Duration { return m.most }))
	gauge("partition_load_time_avg", "The mean time that loading a shard took, in milliseconds.", nil, ms(func() time.Duration { return m.spent / time.Duration(max(m.loads, 1)) }))
}

// NewMetrics makes the metrics of a runtime, called as Options.Name ("group"); a nil registerer
// leaves them unregistered.
func NewMetrics(name string, reg prometheus.Registerer) *Metrics {
	subsystem := "server_" + name + "_coordinator_metrics"
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "kafka", Subsystem: subsystem, Name: name, Help: help})
		if reg != nil {
			reg.MustRegister(c)
		}
		return c
	}
	m := &Metrics{
		subsystem: subsystem, reg: reg,
		Loads:         counter("partition_load_count", "Shards of the coordinator that were loaded."),
		LoadErrors:    counter("partition_load_error_count", "Loads of a shard that failed and were tried again."),
		AppendErrors:  counter("append_error_count", "Batches of the coordinator that could not be appended."),
		UnknownWrites: counter("unknown_commit_count", "Batches whose commit was not learnt, so that the shard was read again."),
		Refused:       counter("refused_count", "Requests refused because too many waited for the shard."),
		Batches:       counter("batch_count", "Batches that the coordinator appended."),
		Records:       counter("record_count", "Records that the coordinator appended."),
		LoadSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "kafka", Subsystem: subsystem,
			Name: "partition_load_time_seconds", Help: "Time to load a shard.", Buckets: []float64{.001, .01, .1, 1, 10, 60}}),
	}
	if reg != nil {
		reg.MustRegister(m.LoadSeconds)
	}
	return m
}
