package api

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// both runs a test for clients of both kinds.
func both(t *testing.T, f func(t *testing.T, rises bool)) {
	for _, rises := range []bool{false, true} {
		t.Run(fmt.Sprintf("epoch rises %v", rises), func(t *testing.T) { f(t, rises) })
	}
}

func TestTransactionsAreSeenWhole(t *testing.T) {
	both(t, func(t *testing.T, rises bool) {
		h := newStorageHouse(t)
		h.topic("t", 2)
		p := h.transactional("id", rises)
		for i, commit := range []bool{true, false, true} {
			for _, n := range []int32{0, 1} {
				p.write("t", n, fmt.Sprint(i, "a"))
				p.write("t", n, fmt.Sprint(i, "b"))
			}
			before := h.committed("t", 0)
			for _, v := range before {
				if v[0] == byte('0'+i) {
					t.Fatalf("%s is seen before the end", v)
				}
			}
			p.finish(commit)
			p.settled()
		}
		for _, n := range []int32{0, 1} {
			same(t, "committed", h.committed("t", n), []string{"0a", "0b", "2a", "2b"})
			same(t, "all decided", h.Logs.Log("t", n).StableOffset(), h.Logs.Log("t", n).End())
		}
	})
}

func TestSecondProducerFencesTheFirst(t *testing.T) {
	both(t, func(t *testing.T, rises bool) {
		h := newStorageHouse(t)
		h.topic("t", 1)
		first := h.transactional("id", rises)
		first.write("t", 0, "lost")
		second := &producer{storageHouse: h, id: "id", rises: rises}
		same(t, "init while one is open", second.init(5), kerr.ConcurrentTransactions.Code)
		second.untilFree(func() int16 { return second.init(5) })
		same(t, "the same producer", second.is.ID, first.is.ID)
		same(t, "produce of the first", first.send(first.produceVersion(), "t", 0, "x"), kerr.InvalidProducerEpoch.Code)
		same(t, "add of the first, v3", first.add(3, "t", 0)[0], kerr.ProducerFenced.Code)
		same(t, "add of the first, v1", first.add(1, "t", 0)[0], kerr.InvalidProducerEpoch.Code)
		same(t, "end of the first, v4", first.end(4, true), kerr.ProducerFenced.Code)
		same(t, "end of the first, v1", first.end(1, true), kerr.InvalidProducerEpoch.Code)
		same(t, "end of the first, v5", first.end(5, true), kerr.ProducerFenced.Code)
		second.write("t", 0, "kept")
		second.finish(true)
		second.settled()
		same(t, "committed", h.committed("t", 0), []string{"kept"})
	})
}

// TestVerification: nothing gets into a partition that the coordinator does not know to be in the
// transaction.
func TestVerification(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 2)
	p := h.transactional("id", false)
	same(t, "no transaction, v9", p.send(9, "t", 0, "x"), kerr.InvalidTxnState.Code)
	same(t, "no transaction, v11", p.send(11, "t", 0, "x"), kerr.TransactionAbortable.Code)
	p.write("t", 0, "in")
	same(t, "another partition", p.send(11, "t", 1, "x"), kerr.TransactionAbortable.Code)
	same(t, "asked by a broker", p.add(5, "t", 0, 1), []int16{0, kerr.TransactionAbortable.Code})
	same(t, "asked by a broker about what is not there", p.add(5, "t", 0, 7), []int16{kerr.OperationNotAttempted.Code, kerr.UnknownTopicOrPartition.Code})
	p.finish(true)
	p.settled()
	same(t, "after the end", p.send(11, "t", 0, "x"), kerr.TransactionAbortable.Code)
	same(t, "foreign producer", (&producer{storageHouse: h, id: "id", is: txn.Producer{ID: 77}}).send(11, "t", 0, "x"), kerr.InvalidProducerIDMapping.Code)
	same(t, "unknown id", (&producer{storageHouse: h, id: "other", is: p.is}).send(11, "t", 0, "x"), kerr.InvalidProducerIDMapping.Code)

	h.Config.Apply("brokers", "", map[string]string{"transaction.partition.verification.enable": "false"})
	q := h.transactional("q", false)
	same(t, "not verified", q.send(11, "t", 1, "x"), 0)

	req := produceOf(11, "t", 0, batchOf(record.BuilderOptions{Producer: &record.ProducerInfo{ID: 1, Transactional: true}}, 1, "x"))
	req.TransactionID = &p.id
	req.Topics = append(req.Topics, produceOf(11, "t", 1, batchOf(record.BuilderOptions{Producer: &record.ProducerInfo{ID: 2, Transactional: true}}, 1, "x")).Topics...)
	for _, rt := range h.answerTo(req).Topics {
		same(t, "two producers", rt.Partitions[0].ErrorCode, kerr.InvalidProducerIDMapping.Code)
	}
}

// TestStaleMarker: a marker that comes a second time, when the next transaction is open, does not
// end that one.
func TestStaleMarker(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1)
	p := h.transactional("id", true)
	p.write("t", 0, "one")
	p.finish(true)
	p.settled()
	stale := txn.Marker{Producer: p.is.ID, Epoch: p.is.Epoch, Commit: true, Version: 2, Partitions: []txn.Partition{{Topic: "t"}}}
	if err := h.WriteMarker(t.Context(), stale)[0]; err != nil {
		t.Fatalf("with none open: %v", err)
	}
	p.write("t", 0, "two")
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed, m.TransactionVersion = p.is.ID, p.is.Epoch, true, 2
	rt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	rt.Topic, rt.Partitions = "t", []int32{0, 9}
	m.Topics = append(m.Topics, rt)
	req.Markers = append(req.Markers, m)
	resp := ask[*kmsg.WriteTxnMarkersResponse](t, h.peer, req, 2)
	same(t, "with the next one open", resp.Markers[0].Topics[0].Partitions[0].ErrorCode, kerr.InvalidProducerEpoch.Code)
	same(t, "no such partition", resp.Markers[0].Topics[0].Partitions[1].ErrorCode, kerr.UnknownTopicOrPartition.Code)
	same(t, "committed", h.committed("t", 0), []string{"one"})
	p.finish(false)
	p.settled()
	same(t, "committed", h.committed("t", 0), []string{"one"})
	req.Markers[0].CoordinatorEpoch = -1
	req.Markers[0].ProducerEpoch = p.is.Epoch
	resp = ask[*kmsg.WriteTxnMarkersResponse](t, h.peer, req, 1)
	same(t, "of a coordinator of the past", resp.Markers[0].Topics[0].Partitions[0].ErrorCode, kerr.TransactionCoordinatorFenced.Code)
}

// TestMarkerOvertakesAdd: the first requests of a transaction may be there before the markers of
// the one before are. They wait for those, and then count.
func TestMarkerOvertakesAdd(t *testing.T) {
	first := map[string]func(p *producer) int16{
		"produce": func(p *producer) int16 { return p.send(12, "t", 0, "two") },
		"offsets": func(p *producer) int16 { return p.commitOffset(5, "g", 2) },
	}
	for what, do := range first {
		t.Run(what+", waiting", func(t *testing.T) {
			h := newStorageHouse(t)
			h.topic("t", 1)
			p := h.transactional("g", true)
			p.write("t", 0, "one")
			p.untilFree(func() int16 { return p.commitOffset(5, "g", 1) })
			h.markers = make(chan struct{})
			p.finish(true)
			same(t, "patience is over", do(p), kerr.ConcurrentTransactions.Code)
			answered := make(chan int16)
			go func() { answered <- do(p) }()
			close(h.markers)
			same(t, "waited", <-answered, 0)
			p.finish(true)
			p.settled()
		})
		t.Run(what+", overtaken", func(t *testing.T) {
			h := newStorageHouse(t)
			h.topic("t", 1)
			p := h.transactional("g", true)
			p.write("t", 0, "one")
			p.untilFree(func() int16 { return p.commitOffset(5, "g", 1) })
			h.markers = make(chan struct{})
			p.finish(true)
			var once sync.Once
			h.Enroller = overtaken{h.Txns, func() {
				once.Do(func() {
					close(h.markers)
					p.settled()
				})
			}}
			same(t, "error", do(p), 0)
			p.finish(true)
			p.settled()
		})
	}
}

func (p *producer) commitOffset(version int16, groupID string, offset int64) int16 {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = p.id, groupID, p.is.ID, p.is.Epoch, -1
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = "t", p.name["t"]
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.TxnOffsetCommitResponse](p.t, p.peer, req, version).Topics[0].Partitions[0].ErrorCode
}

func (h *storageHouse) offset(groupID string, stable bool) (int64, int16) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.RequireStable = groupID, stable
	rt := kmsg.NewOffsetFetchRequestTopic()
	rt.Topic, rt.Partitions = "t", []int32{0}
	req.Topics = append(req.Topics, rt)
	resp := ask[*kmsg.OffsetFetchResponse](h.t, h.peer, req, 7)
	if resp.ErrorCode != 0 {
		h.t.Fatal(kerr.ErrorForCode(resp.ErrorCode))
	}
	p := resp.Topics[0].Partitions[0]
	return p.Offset, p.ErrorCode
}

func TestOffsetsOfTransactions(t *testing.T) {
	for version := int16(0); version <= 6; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			h := newStorageHouse(t)
			h.topic("t", 1)
			p := h.transactional("g", version >= 5)
			want := int64(-1)
			for i, commit := range []bool{true, false, true} {
				at := int64(10 * (i + 1))
				if version < 5 {
					refused := map[bool]int16{false: kerr.InvalidTxnState.Code, true: kerr.TransactionAbortable.Code}[version >= 4]
					same(t, "before AddOffsetsToTxn", p.commitOffset(version, "g", at), refused)
					p.untilFree(func() int16 {
						req := kmsg.NewPtrAddOffsetsToTxnRequest()
						req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = "g", p.is.ID, p.is.Epoch, "g"
						return ask[*kmsg.AddOffsetsToTxnResponse](t, h.peer, req, min(version, 4)).ErrorCode
					})
				}
				p.untilFree(func() int16 { return p.commitOffset(version, "g", at) })
				got, c := h.offset("g", true)
				same(t, "stable, while open", c, kerr.UnstableOffsetCommit.Code)
				same(t, "offset beside it", got, -1)
				got, c = h.offset("g", false)
				same(t, "while open", c, 0)
				same(t, "offset while open", got, want)
				p.finish(commit)
				p.settled()
				if commit {
					want = at
				}
				got, c = h.offset("g", true)
				same(t, "after the end", c, 0)
				same(t, "offset after the end", got, want)
			}
			old := *p
			fresh := h.transactional("g", version >= 5)
			same(t, "of a fenced producer", old.commitOffset(version, "g", 99), kerr.InvalidProducerEpoch.Code)
			_ = fresh
			l := h.Logs.Log(group.Topic, h.Groups.PartitionFor("g"))
			same(t, "all decided", l.StableOffset(), l.End())
		})
	}
}

func TestDescribeAndListTransactions(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 3)
	h.topic("u", 1)
	open, idle := h.transactional("open", false), h.transactional("idle", true)
	open.untilFree(func() int16 { return open.add(3, "t", 2, 0)[0] })
	open.untilFree(func() int16 { return open.add(3, "u", 0)[0] })

	d := kmsg.NewPtrDescribeTransactionsRequest()
	d.TransactionalIDs = []string{"open", "idle", "none", ""}
	states := ask[*kmsg.DescribeTransactionsResponse](t, h.peer, d, 0).TransactionStates
	same(t, "state", states[0].State, "Ongoing")
	same(t, "producer", txn.Producer{ID: states[0].ProducerID, Epoch: states[0].ProducerEpoch}, open.is)
	same(t, "timeout", states[0].TimeoutMillis, 60000)
	same(t, "topics", len(states[0].Topics), 2)
	same(t, "partitions", states[0].Topics[0].Partitions, []int32{0, 2})
	same(t, "started", states[0].StartTimestamp > 0, true)
	same(t, "state", states[1].State, "Empty")
	same(t, "not started", states[1].StartTimestamp, -1)
	same(t, "none", states[2].ErrorCode, kerr.TransactionalIDNotFound.Code)
	same(t, "without a name", states[3].ErrorCode, kerr.InvalidRequest.Code)

	names := func(change func(*kmsg.ListTransactionsRequest), version int16) (names, unknown []string, c int16) {
		req := kmsg.NewPtrListTransactionsRequest()
		change(req)
		for {
			resp := ask[*kmsg.ListTransactionsResponse](t, h.peer, req, version)
			if resp.ErrorCode == kerr.CoordinatorLoadInProgress.Code {
				continue
			}
			for _, s := range resp.TransactionStates {
				names = append(names, s.TransactionalID)
			}
			return names, resp.UnknownStateFilters, resp.ErrorCode
		}
	}
	pattern := func(s string) func(*kmsg.ListTransactionsRequest) {
		return func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = &s }
	}
	for what, x := range map[string]struct {
		change  func(*kmsg.ListTransactionsRequest)
		version int16
		want    []string
	}{
		"all":            {func(*kmsg.ListTransactionsRequest) {}, 0, []string{"idle", "open"}},
		"by state":       {func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing"} }, 1, []string{"open"}},
		"unknown state":  {func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Nonsense"} }, 1, nil},
		"by producer":    {func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{idle.is.ID} }, 1, []string{"idle"}},
		"by duration":    {func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = time.Hour.Milliseconds() }, 1, []string{"idle"}},
		"by pattern":     {pattern("o.*"), 2, []string{"open"}},
		"by whole names": {pattern("o"), 2, nil},
	} {
		got, unknown, c := names(x.change, x.version)
		same(t, what, c, 0)
		seen := map[string]bool{}
		for _, n := range got {
			seen[n] = true
		}
		for _, n := range x.want {
			same(t, what+": "+n, seen[n], true)
		}
		same(t, what+": number", len(got), len(x.want))
		same(t, what+": unknown", len(unknown), map[bool]int{what == "unknown state": 1}[true])
	}
	_, _, c := names(pattern("("), 2)
	same(t, "a bad pattern", c, kerr.InvalidRegularExpression.Code)
}

// TestBatchedAdd: brokers add for several producers at a time.
func TestBatchedAdd(t *testing.T) {
	h := newStorageHouse(t)
	h.topic("t", 1)
	a, b := h.transactional("a", true), h.transactional("b", true)
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	for _, p := range []*producer{a, b, {id: "none"}} {
		in := kmsg.NewAddPartitionsToTxnRequestTransaction()
		in.TransactionalID, in.ProducerID, in.ProducerEpoch = p.id, p.is.ID, p.is.Epoch
		rt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		rt.Topic, rt.Partitions = "t", []int32{0}
		in.Topics = append(in.Topics, rt)
		req.Transactions = append(req.Transactions, in)
	}
	got := ask[*kmsg.AddPartitionsToTxnResponse](t, h.peer, req, 5).Transactions
	same(t, "transactions", len(got), 3)
	for i, want := range []int16{0, 0, kerr.InvalidProducerIDMapping.Code} {
		same(t, "transactional id", got[i].TransactionalID, req.Transactions[i].TransactionalID)
		same(t, "error", got[i].Topics[0].Partitions[0].ErrorCode, want)
	}
	same(t, "to a topic that is not there", a.add(3, "nowhere", 0), []int16{kerr.UnknownTopicOrPartition.Code})
	same(t, "to an internal topic", a.add(3, group.Topic, 0), []int16{kerr.TopicAuthorizationFailed.Code})
}
