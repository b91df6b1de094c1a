package txn

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// register makes the counters of Stats and the markers in flight known; Kafka has the latter in
// TransactionMarkerChannelManager.
func (c *Coordinator) register(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	counter := func(name, help string, v *atomic.Int64) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "kafka", Subsystem: "server_transaction_coordinator_metrics", Name: name, Help: help,
		}, func() float64 { return float64(v.Load()) }))
	}
	counter("commit_count", "Transactions that were committed.", &c.stats.Commits)
	counter("abort_count", "Transactions that were aborted.", &c.stats.Aborts)
	counter("timeout_count", "Transactions that were aborted because their time was up.", &c.stats.Timeouts)
	counter("expired_id_count", "Transactional ids that were forgotten.", &c.stats.Expired)
	counter("malformed_record_count", "Records of __transaction_state that could not be read.", &c.stats.Malformed)
	for _, g := range []struct {
		name, help string
		of         func(*sending) int
	}{
		{"pending_transactions", "Decided transactions whose markers are being written.", func(*sending) int { return 1 }},
		{"unknowndestinationqueuesize", "Markers that could not be written yet, as no leader took them.", func(s *sending) int { return int(s.left.Load()) }},
		{"logappendretryqueuesize", "Transactions that have all their markers, and whose completion could not be written yet.", func(s *sending) int {
			if s.stuck.Load() {
				return 1
			}
			return 0
		}},
	} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "kafka", Subsystem: "coordinator_transaction_transactionmarkerchannelmanager", Name: g.name, Help: g.help,
		}, func() float64 { return float64(c.sum(g.of)) }))
	}
}

// sum adds up something of the transactions whose markers are being written.
func (c *Coordinator) sum(of func(*sending) int) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.endings {
		n += of(s)
	}
	return n
}
