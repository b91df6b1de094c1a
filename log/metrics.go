package log

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the logs count, under the names of Kafka's usual exporters. What belongs to
// a partition is read when it is asked for, and costs nothing in between.
type metrics struct {
	m   *Manager
	reg prometheus.Registerer

	flushSeconds   prometheus.Histogram
	appendedBytes  prometheus.Counter
	rolls          prometheus.Counter
	deleted        prometheus.Counter
	full           prometheus.Counter
	readErrors     prometheus.Counter
	indexesRebuilt prometheus.Counter
	recovered      prometheus.Counter
	cutBytes       prometheus.Counter

	size, start, end, segments, offline, dirOffline, files *prometheus.Desc

	cleaner *cleanerMetrics
}

func newMetrics(reg prometheus.Registerer, m *Manager) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	partition := []string{"topic", "partition"}
	s := &metrics{
		m: m, reg: reg, cleaner: newCleanerMetrics(),
		flushSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ottla_log_flush_seconds", Help: "How long flushes of a log took.",
			Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5},
		}),
		appendedBytes:  counter("ottla_log_appended_bytes_total", "Bytes of record batches that were appended."),
		rolls:          counter("ottla_log_rolls_total", "Segments that were begun."),
		deleted:        counter("ottla_log_deleted_segments_total", "Segments that retention deleted."),
		full:           counter("ottla_log_full_total", "Writes for which the disk had no room."),
		readErrors:     counter("ottla_log_read_errors_total", "Reads that failed."),
		indexesRebuilt: counter("ottla_log_rebuilt_indexes_total", "Segments whose indexes were made anew."),
		recovered:      counter("ottla_log_recovered_segments_total", "Segments that were checked after a crash."),
		cutBytes:       counter("ottla_log_recovery_cut_bytes_total", "Bytes behind a recovery point that were no whole batch."),

		size:       prometheus.NewDesc("kafka_log_log_size", "Bytes of the partition's segments.", partition, nil),
		start:      prometheus.NewDesc("kafka_log_log_logstartoffset", "First offset of the partition.", partition, nil),
		end:        prometheus.NewDesc("kafka_log_log_logendoffset", "Offset of the partition's next record.", partition, nil),
		segments:   prometheus.NewDesc("kafka_log_log_numlogsegments", "Segments of the partition.", partition, nil),
		offline:    prometheus.NewDesc("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that are offline.", nil, nil),
		dirOffline: prometheus.NewDesc("kafka_log_logmanager_logdirectoryoffline", "1 for a log directory that is offline.", []string{"logDirectory"}, nil),
		files:      prometheus.NewDesc("ottla_log_open_files", "Descriptors of segments that are open.", nil, nil),
	}
	if reg != nil {
		reg.MustRegister(s)
	}
	return s
}

func (s *metrics) unregister() {
	if s.reg != nil {
		s.reg.Unregister(s)
	}
}

func (s *metrics) counters() []prometheus.Collector {
	return []prometheus.Collector{s.flushSeconds, s.appendedBytes, s.rolls, s.deleted, s.full, s.readErrors, s.indexesRebuilt, s.recovered, s.cutBytes}
}

// Describe is part of prometheus.Collector.
func (s *metrics) Describe(c chan<- *prometheus.Desc) {
	for _, of := range s.counters() {
		of.Describe(c)
	}
	for _, d := range []*prometheus.Desc{s.size, s.start, s.end, s.segments, s.offline, s.dirOffline, s.files} {
		c <- d
	}
	s.cleaner.describe(c)
}

// Collect is part of prometheus.Collector.
func (s *metrics) Collect(c chan<- prometheus.Metric) {
	for _, of := range s.counters() {
		of.Collect(c)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, l := range s.m.snapshot() {
		p := strconv.Itoa(int(l.partition))
		gauge(s.size, float64(l.Size()), l.topic, p)
		gauge(s.start, float64(l.Start()), l.topic, p)
		gauge(s.end, float64(l.End()), l.topic, p)
		gauge(s.segments, float64(len(l.segments())), l.topic, p)
	}
	offline := 0
	for _, d := range s.m.dirs {
		v := 0.0
		if d.failed() != nil {
			v = 1
			offline++
		}
		gauge(s.dirOffline, v, d.path)
	}
	gauge(s.offline, float64(offline))
	gauge(s.files, float64(s.m.files.count()))
	s.cleaner.collect(s.m, gauge)
}
