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
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "kafka", Subsystem: "coordinator_transaction_transactionmarkerchannelmanager", Name: "pending_transactions",
		Help: "Decided transactions whose markers are being written.",
	}, func() float64 { return float64(c.unfinished()) }))
}

// unfinished counts the transactions whose markers are being written.
func (c *Coordinator) unfinished() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.endings)
}
