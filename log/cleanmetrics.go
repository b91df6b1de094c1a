package log

import "github.com/prometheus/client_golang/prometheus"

// cleanerMetrics are Kafka's metrics of compaction (LogCleaner and LogCleanerManager), worked out when
// they are asked for.
type cleanerMetrics struct {
	recopy, utilization, cleanTime, delay, dead, dirty, idle, parts, bytes *prometheus.Desc
}

func newCleanerMetrics() *cleanerMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kafka_log_logcleaner"+name, help, labels, nil)
	}
	return &cleanerMetrics{
		recopy:      desc("_cleaner_recopy_percent", "Bytes that the last rounds of compaction left, in percent of what they read."),
		utilization: desc("_max_buffer_utilization_percent", "How full the memory for keys was in the last round."),
		cleanTime:   desc("_max_clean_time_secs", "Seconds that the last round took."),
		delay:       desc("_max_compaction_delay_secs", "Seconds by which a record was compacted later than max.compaction.lag.ms wants it."),
		dead:        desc("_deadthreadcount", "Cleaner threads that have ended; always 0."),
		dirty:       desc("manager_max_dirty_percent", "The largest share of bytes of a log that were not compacted yet, in percent."),
		idle:        desc("manager_time_since_last_run_ms", "Time since it was looked for logs to compact."),
		parts:       desc("manager_uncleanable_partitions_count", "Logs that cannot be compacted.", "logDirectory"),
		bytes:       desc("manager_uncleanable_bytes", "Bytes of logs that cannot be compacted and should be.", "logDirectory"),
	}
}

func (s *cleanerMetrics) describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.recopy, s.utilization, s.cleanTime, s.delay, s.dead, s.dirty, s.idle, s.parts, s.bytes} {
		c <- d
	}
}

// collect tells of a manager that has a cleaner.
func (s *cleanerMetrics) collect(m *Manager, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	c := m.cleaner
	if c == nil {
		return
	}
	c.mu.Lock()
	var read, written int64
	var utilization, took float64
	for _, last := range c.last {
		read += last.read
		written += last.written
		utilization, took = max(utilization, last.utilization), max(took, last.took.Seconds())
	}
	dirtiest, delay, lastRun := c.dirtiest, c.delay, c.lastRun
	c.mu.Unlock()
	whole := func(f float64) float64 { return float64(int64(f)) } // as Kafka's, which are int32
	gauge(s.recopy, whole(100*float64(written)/float64(max(read, 1))))
	gauge(s.utilization, whole(100*utilization))
	gauge(s.cleanTime, whole(took))
	gauge(s.delay, whole(float64(delay)/1000))
	gauge(s.dead, 0)
	gauge(s.dirty, whole(100*dirtiest))
	gauge(s.idle, float64(m.nowMs()-lastRun))
	for _, d := range m.dirs {
		n, bytes := 0, int64(0)
		for _, l := range m.snapshot() {
			if l.dir == d && l.uncleanable.Load() {
				n++
				bytes += l.uncleanableBytes()
			}
		}
		gauge(s.parts, float64(n), d.path)
		gauge(s.bytes, float64(bytes), d.path)
	}
}

// uncleanableBytes is how much of a log would be cleaned.
func (l *Log) uncleanableBytes() int64 {
	if !l.shape.TryLock() {
		return 0
	}
	defer l.shape.Unlock()
	if l.usable() != nil {
		return 0
	}
	j, err := l.cleanable(l.options(), l.m.nowMs())
	if err != nil || j == nil {
		return 0
	}
	return j.dirty
}
