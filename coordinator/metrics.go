package coordinator

import "github.com/prometheus/client_golang/prometheus"

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
