package remote

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"ottla/broker/peer"
	"ottla/broker/replica"
	"ottla/coordinator"
	"ottla/coordinator/txn"
	"ottla/log"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	versionWriteTxnMarkers    = 1
	versionAddPartitionsToTxn = 5
)

// marked is what a leader's codes mean to a transaction coordinator that writes markers there.
var marked = meaning{
	{kerr.InvalidProducerEpoch, log.ErrInvalidProducerEpoch},
	{kerr.TransactionCoordinatorFenced, log.ErrCoordinatorFenced},
	{kerr.UnknownTopicOrPartition, replica.ErrUnknownPartition},
	{kerr.NotLeaderForPartition, replica.ErrNotLeader},
	{kerr.KafkaStorageError, replica.ErrOffline},
}

// enrolled is what a transaction coordinator's codes mean to a leader that asks it.
var enrolled = meaning{
	{kerr.NotCoordinator, coordinator.ErrNotCoordinator},
	{kerr.CoordinatorNotAvailable, coordinator.ErrNotAvailable},
	{kerr.CoordinatorLoadInProgress, coordinator.ErrLoading},
	{kerr.ConcurrentTransactions, txn.ErrConcurrent},
	{kerr.ProducerFenced, txn.ErrFenced},
	{kerr.InvalidProducerEpoch, txn.ErrFenced},
	{kerr.InvalidProducerIDMapping, txn.ErrProducerID},
	{kerr.InvalidTxnState, txn.ErrNotInTxn},
	{kerr.TransactionAbortable, txn.ErrNotInTxn},
	{kerr.InvalidRequest, txn.ErrInvalidID},
	{kerr.UnknownTopicOrPartition, replica.ErrUnknownPartition},
}

// Members are other brokers as transactions need them: leaders that markers are written to, and
// coordinators that are asked. One request at a time is under way to each.
type Members struct {
	o Options

	mu     sync.Mutex
	by     map[int32]*peer.Client // guarded by mu
	closed bool                   // guarded by mu
}

// Members makes the ways to all.
func (o Options) Members() *Members { return &Members{o: o, by: map[int32]*peer.Client{}} }

func (m *Members) client(id int32) (*peer.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, peer.ErrClosed
	}
	c := m.by[id]
	if c == nil {
		c = m.o.client(id, strconv.Itoa(int(m.o.Self)))
		m.by[id] = c
	}
	return c, nil
}

// Close ends all.
func (m *Members) Close() {
	m.mu.Lock()
	m.closed = true
	all := m.by
	m.by = nil
	m.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}

// numbered are partitions of one topic.
type numbered struct {
	topic   string
	numbers []int32
}

// byTopic gathers partitions by their topics, in the order in which these come, and says where each
// partition was.
func byTopic(partitions []txn.Partition) (topics []numbered, places map[txn.Partition]int) {
	places = make(map[txn.Partition]int, len(partitions))
	at := map[string]int{}
	for i, p := range partitions {
		places[p] = i
		t, ok := at[p.Topic]
		if !ok {
			t = len(topics)
			at[p.Topic] = t
			topics = append(topics, numbered{topic: p.Topic})
		}
		topics[t].numbers = append(topics[t].numbers, p.Number)
	}
	return topics, places
}

// WriteMarker writes a marker to partitions that a broker leads: one error, or nil, for each, by those
// of replica and log.
func (m *Members) WriteMarker(ctx context.Context, broker int32, mk txn.Marker) []error {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = versionWriteTxnMarkers
	if mk.Version >= 2 { // which only brokers have agreed on that know the version with it
		req.Version = 2
	}
	in := kmsg.NewWriteTxnMarkersRequestMarker()
	in.ProducerID, in.ProducerEpoch, in.Committed, in.CoordinatorEpoch = mk.Producer, mk.Epoch, mk.Commit, mk.CoordinatorEpoch
	in.TransactionVersion = int8(mk.Version)
	topics, places := byTopic(mk.Partitions)
	for _, of := range topics {
		t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		t.Topic, t.Partitions = of.topic, of.numbers
		in.Topics = append(in.Topics, t)
	}
	req.Markers = append(req.Markers, in)
	errs := make([]error, len(mk.Partitions))
	fail := func(err error) []error {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	c, err := m.client(broker)
	if err != nil {
		return fail(err)
	}
	resp, err := do[*kmsg.WriteTxnMarkersResponse](ctx, c, req)
	if err != nil {
		return fail(err)
	}
	fail(fmt.Errorf("%w: WriteTxnMarkers without the partition", peer.ErrAnswer))
	for _, out := range resp.Markers {
		for _, t := range out.Topics {
			for _, p := range t.Partitions {
				if i, ok := places[txn.Partition{Topic: t.Topic, Number: p.Partition}]; ok && out.ProducerID == mk.Producer {
					errs[i] = marked.of(p.ErrorCode)
				}
			}
		}
	}
	return errs
}

// Enroll asks the coordinator of a transactional id whether the transaction has partitions, or with
// add has them added: one error, or nil, for each.
func (m *Members) Enroll(ctx context.Context, broker int32, r txn.AddRequest, add bool) ([]error, error) {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = versionAddPartitionsToTxn
	in := kmsg.NewAddPartitionsToTxnRequestTransaction()
	in.TransactionalID, in.ProducerID, in.ProducerEpoch, in.VerifyOnly = r.ID, r.Producer, r.Epoch, !add
	topics, places := byTopic(r.Partitions)
	for _, of := range topics {
		t := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		t.Topic, t.Partitions = of.topic, of.numbers
		in.Topics = append(in.Topics, t)
	}
	req.Transactions = append(req.Transactions, in)
	c, err := m.client(broker)
	if err != nil {
		return nil, err
	}
	resp, err := do[*kmsg.AddPartitionsToTxnResponse](ctx, c, req)
	if err == nil {
		err = enrolled.of(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(r.Partitions))
	for i := range errs {
		errs[i] = fmt.Errorf("%w: AddPartitionsToTxn without the partition", peer.ErrAnswer)
	}
	for _, out := range resp.Transactions {
		for _, t := range out.Topics {
			for _, p := range t.Partitions {
				if i, ok := places[txn.Partition{Topic: t.Topic, Number: p.Partition}]; ok && out.TransactionalID == r.ID {
					errs[i] = enrolled.of(p.ErrorCode)
				}
			}
		}
	}
	return errs, nil
}
