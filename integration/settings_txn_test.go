package integration

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fewTxn makes the topic of transactions small.
const fewTxn = "transaction.state.log.num.partitions=1"

// initProducer asks for the producer of a transactional id.
func (h *house) initProducer(id string, timeoutMs int32) *kmsg.InitProducerIDResponse {
	h.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, timeoutMs, -1, -1
	return ask[*kmsg.InitProducerIDResponse](h.wire, req, 4)
}

// transactional waits until the broker coordinates transactions.
func (h *house) transactional() {
	h.Helper()
	eventually(h, "a coordinator", patience, func() bool { return findCoordinator(h, 1, "first") == 0 })
	eventually(h, "its transactions", patience, func() bool { return h.initProducer("first", 1000).ErrorCode == 0 })
}

func seeTxnMaxTimeout(t *testing.T) {
	h := open(t, fewTxn, "transaction.max.timeout.ms=2000")
	h.transactional()
	equal(t, "2000 ms", h.initProducer("x", 2000).ErrorCode, 0)
	equal(t, "2001 ms", h.initProducer("x", 2001).ErrorCode, 50)
}

func seeTxnTopic(t *testing.T) {
	h := open(t, "transaction.state.log.num.partitions=3", "transaction.state.log.min.isr=1", "transaction.state.log.segment.bytes=1048576")
	h.transactional()
	equal(t, "partitions", len(h.metadata("__transaction_state").Topics[0].Partitions), 3)
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = forTopic, "__transaction_state"
	rr.ConfigNames = []string{"min.insync.replicas", "segment.bytes"}
	req.Resources = append(req.Resources, rr)
	for i, want := range []string{"1", "1048576"} {
		if c := ask[*kmsg.DescribeConfigsResponse](h.wire, req, 4).Resources[0].Configs[i]; c.Value == nil || *c.Value != want {
			t.Errorf("%s: %v, want %s", c.Name, c.Value, want)
		}
	}
}

func seeTxnVerification(t *testing.T) {
	const setting = "transaction.partition.verification.enable"
	// stored sees that records of a transaction are stored in a partition that it does not have.
	stored := func(h *house) bool {
		h.Helper()
		id := fresh("txn")
		h.topic(id)
		p := h.initProducer(id, 60000)
		equal(h, "producer", p.ErrorCode, 0)
		req := kmsg.NewPtrProduceRequest()
		req.TransactionID, req.Acks, req.TimeoutMillis = &id, -1, 10000
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = id
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Records = newBatch(func(b *kmsg.RecordBatch) {
			from(p.ProducerID, p.ProducerEpoch, 0)(b)
			b.Attributes |= 1 << 4
		}, values("v")...)
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return ask[*kmsg.ProduceResponse](h.wire, req, 9).Topics[0].Partitions[0].ErrorCode == 0
	}
	h := open(t, fewTxn)
	h.transactional()
	equal(t, "stored by default", stored(h), false)
	for _, broker := range []string{"", "1"} {
		h.alter(forBroker, broker, setting+"=false")
		equal(t, "stored without verification", stored(h), true)
		h.alter(forBroker, broker, setting)
		equal(t, "stored with it again", stored(h), false)
	}
	h = open(t, fewTxn, setting+"=false")
	h.transactional()
	equal(t, "stored", stored(h), true)
}

func seeTxnExpiration(t *testing.T) {
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	h := reopen(t, filepath.Join(t.TempDir(), "data"), now, fewTxn,
		"transactional.id.expiration.ms=60000", "transaction.remove.expired.transaction.cleanup.interval.ms=10")
	defer h.shut()
	h.transactional()
	id := strings.Repeat("x", 10)
	equal(t, "producer", h.initProducer(id, 1000).ErrorCode, 0)
	state := func() int16 {
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{id}
		return ask[*kmsg.DescribeTransactionsResponse](h.wire, req, 0).TransactionStates[0].ErrorCode
	}
	equal(t, "described", state(), 0)
	ahead.Store(int64(2 * time.Minute))
	eventually(t, "the id is forgotten", patience, func() bool { return state() == 105 })
}
