package controller

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics under the names by which dashboards know the MBeans of kafka.controller.
type metrics struct {
	active, topics, partitions, offline, imbalance, brokers prometheus.Gauge
	unclean                                                 atomic.Int64
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
	}
	if r != nil {
		r.MustRegister(m.active, m.topics, m.partitions, m.offline, m.imbalance, m.brokers)
		for _, suffix := range []string{"", "persec"} { // of the JMX exporter's example rules, and of the Strimzi metrics reporter
			r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "kafka_controller_controllerstats_uncleanleaderelections" + suffix + "_total",
				Help: "Elections of a leader that was not in sync.",
			}, func() float64 { return float64(m.unclean.Load()) }))
		}
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
