package controller

import "github.com/prometheus/client_golang/prometheus"

// metrics under the names by which dashboards know the MBeans of kafka.controller.
type metrics struct {
	active, topics, partitions, offline, imbalance, brokers prometheus.Gauge
	unclean                                                 prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "kafka_controller_kafkacontroller_" + name, Help: help})
	}
	m := &metrics{
		active:     gauge("activecontrollercount", "1 on the broker whose controller is active."),
		topics:     gauge("globaltopiccount", "Topics of the cluster, known to the active controller."),
		partitions: gauge("globalpartitioncount", "Partitions of the cluster, known to the active controller."),
		offline:    gauge("offlinepartitionscount", "Partitions without a leader."),
		imbalance:  gauge("preferredreplicaimbalancecount", "Partitions not led by their first replica."),
		brokers:    gauge("activebrokercount", "Registered brokers."),
		unclean: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kafka_controller_controllerstats_uncleanleaderelections_total",
			Help: "Elections of a leader that was not in sync.",
		}),
	}
	if r != nil {
		r.MustRegister(m.active, m.topics, m.partitions, m.offline, m.imbalance, m.brokers, m.unclean)
	}
	return m
}

// show sets the gauges; nil: not active.
func (m *metrics) show(c *cluster) {
	if c == nil {
		c = &cluster{}
		m.active.Set(0)
	} else {
		m.active.Set(1)
	}
	m.topics.Set(float64(c.live))
	m.partitions.Set(float64(c.partitions))
	m.offline.Set(float64(c.offline))
	m.imbalance.Set(float64(c.imbalanced))
	m.brokers.Set(float64(len(c.members)))
}
