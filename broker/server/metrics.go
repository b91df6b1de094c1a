package server

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// closeReason is why a connection ended.
type closeReason int

const (
	closedByPeer closeReason = iota
	closedIdle
	closedMalformed // a frame or request that is none
	closedRequest   // a request that is not answered: version, login
	closedLimit     // too many connections from its address
	closedBroken    // a read or write failed
	closedPanic
	closedStop
	closeReasons
)

var closeReasonNames = [closeReasons]string{"peer", "idle", "malformed", "request", "limit", "broken", "panic", "stop"}

// metrics are the server's, under the names of Kafka's socket-server-metrics.
type metrics struct {
	listeners []listenerMetrics
	reasons   [closeReasons]atomic.Uint64
}

// listenerMetrics are one listener's.
type listenerMetrics struct {
	name    string
	opened  atomic.Uint64
	ended   atomic.Uint64
	in, out atomic.Uint64 // bytes
}

func newMetrics(reg prometheus.Registerer, ls []Listener) *metrics {
	m := &metrics{listeners: make([]listenerMetrics, len(ls))}
	for i, l := range ls {
		m.listeners[i].name = l.Name
	}
	if reg != nil {
		reg.MustRegister(m)
	}
	return m
}

func (m *metrics) closed(r closeReason) { m.reasons[r].Add(1) }

const metricPrefix = "kafka_server_socket_server_metrics_"

var (
	listenerLabel = []string{"listener"}

	connectionsDesc = prometheus.NewDesc(metricPrefix+"connection_count", "Open connections.", listenerLabel, nil)
	openedDesc      = prometheus.NewDesc(metricPrefix+"connection_creation_total", "Connections accepted.", listenerLabel, nil)
	endedDesc       = prometheus.NewDesc(metricPrefix+"connection_close_total", "Connections ended.", listenerLabel, nil)
	inDesc          = prometheus.NewDesc(metricPrefix+"incoming_byte_total", "Bytes read from connections.", listenerLabel, nil)
	outDesc         = prometheus.NewDesc(metricPrefix+"outgoing_byte_total", "Bytes written to connections.", listenerLabel, nil)
	reasonDesc      = prometheus.NewDesc("ottla_connections_closed_total", "Connections ended, by the reason.", []string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{connectionsDesc, openedDesc, endedDesc, inDesc, outDesc, reasonDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), label)
	}
	for i := range m.listeners {
		l := &m.listeners[i]
		ended := l.ended.Load() // before opened, so that the difference is not negative
		opened := l.opened.Load()
		ch <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(opened-ended), l.name)
		counter(openedDesc, opened, l.name)
		counter(endedDesc, ended, l.name)
		counter(inDesc, l.in.Load(), l.name)
		counter(outDesc, l.out.Load(), l.name)
	}
	for r := range closeReasons {
		counter(reasonDesc, m.reasons[r].Load(), closeReasonNames[r])
	}
}
