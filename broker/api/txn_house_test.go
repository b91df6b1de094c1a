package api

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"time"

	"ottla/coordinator"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/log"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// houseStore keeps the shards of a coordinator in the partitions of a storageHouse.
type houseStore struct {
	h     *storageHouse
	topic string
}

func (s houseStore) Append(_ context.Context, shard, epoch int32, batch []byte) (int64, func(context.Context) error, error) {
	p, err := s.h.Replicas.Leader(s.topic, shard)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", coordinator.ErrNotCoordinator, err)
	}
	refused, lost := s.h.faults.append()
	if refused {
		return 0, nil, coordinator.ErrNotAvailable
	}
	done, wait, err := p.AppendIn(epoch, log.Append{Records: batch, Origin: record.Coordinator})
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", coordinator.ErrNotCoordinator, err)
	}
	if lost {
		return done.First, func(context.Context) error { return coordinator.ErrNotAvailable }, nil
	}
	return done.First, wait, nil
}

func (s houseStore) Load(ctx context.Context, shard, epoch int32) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		p, err := s.h.Replicas.Leader(s.topic, shard)
		if err != nil {
			yield(nil, err)
			return
		}
		for b, err := range p.Replay(ctx, epoch) {
			if !yield(b, err) {
				return
			}
		}
	}
}

// houseMarkers writes markers here, as a broker without others does.
type houseMarkers struct{ h *storageHouse }

func (m houseMarkers) WriteMarker(ctx context.Context, k txn.Marker) []error {
	if m.h.markers != nil {
		select {
		case <-m.h.markers:
		case <-ctx.Done():
		}
	}
	n := m.h.faults.marked(len(k.Partitions))
	some := k
	some.Partitions = k.Partitions[:n]
	errs := m.h.WriteMarker(ctx, some)
	for range k.Partitions[n:] {
		errs = append(errs, errors.New("no leader"))
	}
	for i, err := range errs {
		if errors.Is(err, log.ErrInvalidProducerEpoch) {
			errs[i] = txn.ErrMarkerRefused
		}
	}
	return errs
}

// overtaken answers an Add only after a marker, which so overtakes the guard of before.
type overtaken struct {
	Enroller
	marker func()
}

func (o overtaken) Add(ctx context.Context, r txn.AddRequest) error {
	o.marker()
	return o.Enroller.Add(ctx, r)
}

// houseTopics makes the topics of coordinators, led here and loaded.
type houseTopics struct{ h *storageHouse }

func (m houseTopics) EnsureTopic(_ context.Context, name string, partitions int32, _ int16, configs map[string]string) error {
	var settings []string
	for k, v := range configs {
		settings = append(settings, k, v)
	}
	m.h.topic(name, int(partitions), settings...)
	for n := range partitions {
		if name == group.Topic {
			m.h.Groups.Led(n, 0)
		} else {
			m.h.Txns.Led(n, 0)
		}
	}
	for len(m.h.Groups.Unloaded(-1))+len(m.h.Txns.Unloaded(-1)) > 0 {
		runtime.Gosched()
	}
	return nil
}

// coordinators gives a house its groups and transactions, of two partitions each.
func (h *storageHouse) coordinators() {
	groups, txns := group.Defaults(), txn.Defaults()
	groups.InitialRebalanceDelay, groups.Partitions, txns.Partitions = 0, 2, 2
	count := func(topic string) func() int32 {
		return func() int32 {
			if t := h.Meta.Load().Topics[topic]; t != nil {
				return int32(len(t.Partitions))
			}
			return 0
		}
	}
	h.Groups = group.New(group.Config{Store: houseStore{h, group.Topic}, Topics: houseTopics{h}, Options: func() *group.Options { return groups },
		Partitions: count(group.Topic), Now: time.Now})
	h.Txns = txn.New(txn.Config{Store: houseStore{h, txn.Topic}, Topics: houseTopics{h}, Markers: houseMarkers{h}, ProducerIDs: h.ProducerIDs.Next,
		Options: func() *txn.Options { return txns }, Partitions: count(txn.Topic), Now: time.Now})
	h.Enroller = h.Txns
	h.bind(routes())
	h.t.Cleanup(func() {
		h.Txns.Close()
		h.Groups.Close()
	})
}

// producer is a transactional producer, by the transaction.version that its requests stand for.
type producer struct {
	*storageHouse
	id    string
	is    txn.Producer
	seqs  map[string]int32 // the next sequence number by partition
	rises bool             // transaction.version 2
}

func (h *storageHouse) transactional(id string, rises bool) *producer {
	h.t.Helper()
	for _, kind := range []int8{0, 1} {
		f := kmsg.NewPtrFindCoordinatorRequest()
		f.CoordinatorKeys, f.CoordinatorType = []string{id}, kind
		if c := ask[*kmsg.FindCoordinatorResponse](h.t, h.peer, f, 4).Coordinators[0]; c.ErrorCode != 0 || c.NodeID != 1 {
			h.t.Fatalf("FindCoordinator: %+v", c)
		}
	}
	p := &producer{storageHouse: h, id: id, rises: rises}
	p.untilFree(func() int16 { return p.init(5) })
	return p
}

// untilFree asks until the coordinator has loaded and the transaction before is complete, and
// wants that it works then.
func (p *producer) untilFree(do func() int16) {
	p.t.Helper()
	for {
		switch c := do(); c {
		case 0:
			return
		case kerr.CoordinatorLoadInProgress.Code, kerr.ConcurrentTransactions.Code, kerr.NotEnoughReplicas.Code:
		default:
			p.t.Fatalf("error %v", kerr.ErrorForCode(c))
		}
	}
}

func (p *producer) init(version int16) int16 {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &p.id, 60000
	resp := ask[*kmsg.InitProducerIDResponse](p.t, p.peer, req, version)
	if resp.ErrorCode == 0 {
		p.is, p.seqs = txn.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}, map[string]int32{}
	}
	return resp.ErrorCode
}

func (p *producer) add(version int16, topic string, partitions ...int32) []int16 {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	if version < 4 {
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.id, p.is.ID, p.is.Epoch
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	} else {
		in := kmsg.NewAddPartitionsToTxnRequestTransaction()
		in.TransactionalID, in.ProducerID, in.ProducerEpoch, in.VerifyOnly = p.id, p.is.ID, p.is.Epoch, true
		t := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		t.Topic, t.Partitions = topic, partitions
		in.Topics = append(in.Topics, t)
		req.Transactions = append(req.Transactions, in)
	}
	resp := ask[*kmsg.AddPartitionsToTxnResponse](p.t, p.peer, req, version)
	var codes []int16
	for _, t := range resp.Topics {
		for _, one := range t.Partitions {
			codes = append(codes, one.ErrorCode)
		}
	}
	for _, in := range resp.Transactions {
		for _, one := range in.Topics[0].Partitions {
			codes = append(codes, one.ErrorCode)
		}
	}
	return codes
}

func (p *producer) produceVersion() int16 {
	if p.rises {
		return 12
	}
	return 11
}

// send produces one record in the transaction.
func (p *producer) send(version int16, topic string, partition int32, value string) int16 {
	p.t.Helper()
	at := fmt.Sprint(topic, "-", partition)
	req := produceOf(version, topic, partition, batchOf(record.BuilderOptions{
		Producer: &record.ProducerInfo{ID: p.is.ID, Epoch: p.is.Epoch, Sequence: p.seqs[at], Transactional: true},
	}, time.Now().UnixMilli(), value)) // as old as the markers, else they are in another segment
	req.TransactionID = &p.id
	c := p.answerTo(req).Topics[0].Partitions[0].ErrorCode
	if c == 0 {
		p.seqs[at]++
	}
	return c
}

// write puts a record into a transaction, which it begins if there is none.
func (p *producer) write(topic string, partition int32, value string) {
	p.t.Helper()
	if !p.rises {
		p.untilFree(func() int16 { return p.add(3, topic, partition)[0] })
	}
	p.untilFree(func() int16 { return p.send(p.produceVersion(), topic, partition, value) })
}

func (p *producer) end(version int16, commit bool) int16 {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.is.ID, p.is.Epoch, commit
	resp := ask[*kmsg.EndTxnResponse](p.t, p.peer, req, version)
	if resp.ErrorCode == 0 && version >= 5 {
		p.is, p.seqs = txn.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}, map[string]int32{}
	}
	return resp.ErrorCode
}

func (p *producer) finish(commit bool) {
	p.t.Helper()
	version := int16(3)
	if p.rises {
		version = 5
	}
	p.untilFree(func() int16 { return p.end(version, commit) })
}

// settled waits until the markers of the transaction are written.
func (p *producer) settled() {
	p.t.Helper()
	for {
		d, err := p.Txns.Describe(p.t.Context(), p.id)
		if err != nil {
			p.t.Fatal(err)
		}
		if d.State == txn.Empty || d.State == txn.CompleteCommit || d.State == txn.CompleteAbort {
			return
		}
	}
}

// committed reads what a consumer of committed records sees of a partition.
func (h *storageHouse) committed(topic string, partition int32) []string {
	h.t.Helper()
	req := fetchOf(11, topic, [16]byte{}, partition)
	req.IsolationLevel = 1
	p := h.get(req).Topics[0].Partitions[0]
	aborted := map[int64]int64{} // first offset by producer
	for _, a := range p.AbortedTransactions {
		if at, ok := aborted[a.ProducerID]; !ok || a.FirstOffset < at {
			aborted[a.ProducerID] = a.FirstOffset
		}
	}
	var out []string
	for b := range record.All(p.RecordBatches) {
		at, void := aborted[b.ProducerID()]
		switch {
		case b.IsControl():
			delete(aborted, b.ProducerID())
			for _, a := range p.AbortedTransactions {
				if next, ok := aborted[a.ProducerID]; a.ProducerID == b.ProducerID() && a.FirstOffset > b.BaseOffset() && (!ok || a.FirstOffset < next) {
					aborted[a.ProducerID] = a.FirstOffset
				}
			}
		case b.IsTransactional() && void && b.BaseOffset() >= at:
		default:
			out = append(out, values(h.t, b)...)
		}
	}
	return out
}
