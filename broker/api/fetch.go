package api

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"ottla/broker/auth"
	"ottla/broker/metadata"
	"ottla/broker/quota"
	"ottla/broker/replica"
	"ottla/log"
	"ottla/protocol"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetch reads partitions and waits for new records where there are too few.
//
// Versions: 0-1 message format v0, 2-3 format v1 (converted), 4 batches as they are stored and
// isolation levels; 3 max_bytes; 5 log start offsets, and KAFKA_STORAGE_ERROR not before 6; 7
// sessions (KIP-227); 9 leader epochs (KIP-320); 10 zstd; 11 reads from followers (KIP-392); 12
// last fetched epochs (KIP-595); 13 topic ids; 16 leaders named where ours is the wrong broker
// (KIP-951).
//
// Other than in Kafka the first batch of every partition is whole in versions 0 to 2 too,
// however small the limit: those clients could not go on otherwise.
func (s *API) fetch(ctx context.Context, p *Peer, h protocol.Header, req *kmsg.FetchRequest) (*protocol.Answer, *fetchCall, error) {
	follower, brokerEpoch := req.ReplicaID, int64(-1)
	if req.Version >= 15 {
		follower, brokerEpoch = req.ReplicaState.ID, req.ReplicaState.Epoch
	}
	f := s.FetchSessions.begin(req, s.Now())
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	resp.Topics = []kmsg.FetchResponseTopic{}
	if f.code != 0 {
		resp.ErrorCode = f.code
		s.Metrics.fetched(resp)
		return protocol.EncodeFetch(h, resp, nil), nil, nil
	}

	x := &fetchCall{s: s, p: p, h: h, req: req, resp: resp, f: &f, follower: follower, pic: s.Meta.Load()}
	x.reads = x.sort(borrowReads(len(f.parts)))
	if len(x.reads) > 0 {
		most := s.Config.Broker().FetchMaxBytes
		if req.Version >= 3 {
			most = min(most, int64(req.MaxBytes))
		}
		most = min(most, math.MaxInt32)
		if x.waits = s.Replicas.Begin(replica.Fetch{
			Replica:     follower,
			BrokerEpoch: brokerEpoch,
			MaxWait:     time.Duration(req.MaxWaitMillis) * time.Millisecond,
			MinBytes:    int(min(int64(req.MinBytes), most)),
			MaxBytes:    int(most),
			Isolation:   isolation(follower, req.IsolationLevel),
			OnlyLeader:  x.onlyLeader(),
			EachFirst:   req.Version < 3,
		}, x.reads); x.waits != nil {
			return nil, x, nil
		}
	}
	a, err := x.finish(ctx)
	return a, nil, err
}

// finish makes the answer of what was read.
func (x *fetchCall) finish(ctx context.Context) (*protocol.Answer, error) {
	defer returnReads(x.reads)
	defer replica.Release(x.reads) // of what the answer does not carry
	if err := x.answer(ctx, x.reads); err != nil {
		return nil, err
	}
	if x.follower < 0 {
		x.resp.ThrottleMillis = int32(min(x.s.charge(x.p, quota.FetchBytes, x.bytes).Milliseconds(), math.MaxInt32))
	}
	x.s.Metrics.fetched(x.resp)
	return protocol.EncodeFetch(x.h, x.resp, x.holes), nil
}

// debugging is the replica id of kafka-replica-verification (FetchRequest.DEBUGGING_CONSUMER_ID), which compares
// what followers have with what their leaders have.
const debugging = -2

// onlyLeader says whether a follower may not answer. Those of before KIP-392 that ask for that are debugging.
func (x *fetchCall) onlyLeader() bool {
	return x.follower >= 0 || x.follower != debugging && x.req.Version < 11
}

func isolation(follower int32, level int8) replica.Isolation {
	switch {
	case follower >= 0:
		return replica.LogEnd
	case level == 1:
		return replica.ReadCommitted
	}
	return replica.ReadUncommitted
}

// readsPool keeps lists of reads for the next fetch; those of more partitions are left to the
// garbage collector.
var readsPool = sync.Pool{New: func() any { return new([]replica.Read) }}

const keepReads = 4096

func borrowReads(n int) []replica.Read {
	r := readsPool.Get().(*[]replica.Read)
	if cap(*r) < n {
		return make([]replica.Read, 0, n)
	}
	return (*r)[:0]
}

func returnReads(r []replica.Read) {
	r = r[:cap(r)]
	if len(r) == 0 || len(r) > keepReads {
		return
	}
	clear(r)
	r = r[:0]
	readsPool.Put(&r)
}

// fetchCall is one Fetch on its way.
type fetchCall struct {
	s        *API
	p        *Peer
	h        protocol.Header
	reads    []replica.Read
	waits    *replica.Waiting // nil: it does not
	req      *kmsg.FetchRequest
	resp     *kmsg.FetchResponse
	f        *fetching
	follower int32
	pic      *metadata.Picture

	at      []int32 // index in f.parts of each read
	refused []refusedPart
	holes   []protocol.Range
	bytes   int64 // of records in the answer
}

// refusedPart is a partition that is not read at all.
type refusedPart struct {
	part int32 // index in f.parts
	code int16
}

// sort makes reads of what may be read, and notes what is refused.
func (x *fetchCall) sort(reads []replica.Read) []replica.Read {
	x.at = make([]int32, 0, len(x.f.parts))
	for i := range x.f.parts {
		part := &x.f.parts[i]
		topic, code := x.topic(part)
		if code != 0 {
			x.refused = append(x.refused, refusedPart{int32(i), code})
			continue
		}
		x.at = append(x.at, int32(i))
		reads = append(reads, replica.Read{
			Topic: topic, ID: part.id, Partition: part.partition,
			Offset: part.offset, LogStart: part.logStart, MaxBytes: part.maxBytes,
			Epoch: part.epoch, LastEpoch: part.lastEpoch,
		})
	}
	return reads
}

// topic finds the name of a part's topic, or says why the part is not read.
func (x *fetchCall) topic(part *fetchPart) (name string, code int16) {
	t := x.pic.Topics[part.topic]
	if x.req.Version >= 13 {
		if t = x.pic.ByID[part.id]; t == nil {
			return "", kerr.UnknownTopicID.Code
		}
	}
	name = part.topic
	if t != nil {
		name = t.Name
	}
	allowed := false
	if x.follower >= 0 {
		allowed = x.s.allowed(x.p, auth.ClusterAction, auth.Cluster, auth.ClusterName)
	} else {
		allowed = x.s.allowed(x.p, auth.Read, auth.Topic, name)
	}
	switch {
	case !allowed:
		return "", kerr.TopicAuthorizationFailed.Code
	case t == nil || part.partition < 0 || int(part.partition) >= len(t.Partitions):
		return "", kerr.UnknownTopicOrPartition.Code
	}
	return name, 0
}

// answer fills in the response from the reads: all of it, or what changed in the session.
func (x *fetchCall) answer(ctx context.Context, reads []replica.Read) error {
	n := len(reads) + len(x.refused)
	var all []fetched
	if x.f.create {
		all = make([]fetched, len(x.f.parts))
	}
	s := x.f.session
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		x.resp.SessionID = s.id
		if s.epoch != x.f.epoch { // another request of the session came in between
			x.resp.ErrorCode = kerr.InvalidFetchSessionEpoch.Code
			return nil
		}
	} else {
		x.resp.Topics = make([]kmsg.FetchResponseTopic, 0, min(n, 16))
		x.holes = make([]protocol.Range, 0, n)
	}
	for i := range reads {
		r, part := &reads[i], x.at[i]
		code := x.code(ctx, r)
		rec := records{}
		if code == 0 && r.Filled {
			var err error
			if rec, code, err = x.records(ctx, r); err != nil {
				return err
			}
		}
		told := fetched{code: code, records: rec.size() > 0, diverged: r.Diverged, hw: r.HighWatermark, start: r.Start}
		if all != nil {
			all[part] = told
		}
		if s != nil && !s.fresh(x.f.parts[part].fetchKey, told) {
			continue
		}
		x.add(r, part, code, rec, n)
	}
	for _, bad := range x.refused {
		told := fetched{code: bad.code, hw: -1, start: -1}
		if all != nil {
			all[bad.part] = told
		}
		if s != nil {
			s.fresh(x.f.parts[bad.part].fetchKey, told)
		}
		x.part(bad.part, n).ErrorCode = bad.code
	}
	if x.f.create {
		x.resp.SessionID = x.s.FetchSessions.create(x.f, all, x.follower >= 0, x.s.Now())
	}
	return nil
}

// code is the wire code of a read. Clients that do not know KAFKA_STORAGE_ERROR are told to
// look for the leader anew.
func (x *fetchCall) code(ctx context.Context, r *replica.Read) int16 {
	c := code(ctx, r.Err)
	if c == kerr.KafkaStorageError.Code && x.req.Version <= 5 {
		return kerr.NotLeaderForPartition.Code
	}
	return c
}

// part adds a partition to the answer, with the defaults of a failed one.
func (x *fetchCall) part(i int32, most int) *kmsg.FetchResponseTopicPartition {
	key := &x.f.parts[i].fetchKey
	ts := x.resp.Topics
	if len(ts) == 0 || ts[len(ts)-1].Topic != key.topic || ts[len(ts)-1].TopicID != key.id {
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = key.topic, key.id
		if x.f.session == nil && len(ts) == 0 {
			t.Partitions = make([]kmsg.FetchResponseTopicPartition, 0, min(most, 64))
		}
		ts = append(ts, t)
		x.resp.Topics = ts
	}
	t := &ts[len(ts)-1]
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition, rp.HighWatermark = key.partition, -1
	t.Partitions = append(t.Partitions, rp)
	x.holes = append(x.holes, nil)
	return &t.Partitions[len(t.Partitions)-1]
}

// add adds a partition that was read.
func (x *fetchCall) add(r *replica.Read, part int32, code int16, rec records, most int) {
	rp := x.part(part, most)
	rp.ErrorCode = code
	rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = r.HighWatermark, r.StableOffset, r.Start
	if code != 0 {
		if x.req.Version >= 16 && (code == kerr.NotLeaderForPartition.Code || code == kerr.FencedLeaderEpoch.Code) {
			x.leader(r, rp)
		}
		return
	}
	if r.Diverged {
		rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = r.DivergedEpoch, r.DivergedEnd
	}
	if x.follower < 0 && x.req.IsolationLevel == 1 {
		rp.AbortedTransactions = make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, 0, len(r.Aborted))
		for _, a := range r.Aborted {
			ra := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			ra.ProducerID, ra.FirstOffset = a.ProducerID, a.First
			rp.AbortedTransactions = append(rp.AbortedTransactions, ra)
		}
	}
	rp.RecordBatches = rec.bytes
	if rec.hole != nil {
		x.holes[len(x.holes)-1] = rec.hole
		r.Filled = false // it is the answer's to release
	}
	x.bytes += int64(rec.size())
	r.Sent(rec.size(), rec.bytes != nil)
}

// leader names the partition's leader and where it is.
func (x *fetchCall) leader(r *replica.Read, rp *kmsg.FetchResponseTopicPartition) {
	id, epoch := x.s.leaderOf(r.Topic, r.Partition)
	rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = id, epoch
	for i := range x.resp.Brokers {
		if x.resp.Brokers[i].NodeID == id {
			return
		}
	}
	if n, ok := x.s.leaderNode(x.p, id); ok {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.id, n.host, n.port, n.rack
		x.resp.Brokers = append(x.resp.Brokers, b)
	}
}

// records are what one partition is sent: a range of its file, or converted bytes.
type records struct {
	hole  protocol.Range
	bytes []byte
}

func (r *records) size() int {
	if r.hole != nil {
		return int(r.hole.Len())
	}
	return len(r.bytes)
}

// records gives what was read in a form that the request's version knows.
func (x *fetchCall) records(ctx context.Context, r *replica.Read) (out records, code int16, err error) {
	if x.req.Version < 10 && x.s.Config.Topic(r.Topic).Log.Compression == "zstd" {
		return records{}, kerr.UnsupportedCompressionType.Code, nil
	}
	if x.req.Version >= 4 {
		return records{hole: r.Chunk.Range}, 0, nil
	}
	magic := int8(0)
	if x.req.Version >= 2 {
		magic = 1
	}
	bytes, cerr := x.convert(ctx, r, magic)
	if cerr != nil {
		if ctx.Err() != nil {
			return records{}, 0, cerr
		}
		return records{}, x.convertCode(ctx, r, cerr), nil
	}
	return records{bytes: bytes}, 0, nil
}

func (x *fetchCall) convertCode(ctx context.Context, r *replica.Read, err error) int16 {
	return code(ctx, fmt.Errorf("convert %s-%d for fetch version %d: %w", r.Topic, r.Partition, x.req.Version, err))
}

// convert turns what was read into a set of old messages. What holds only control batches has
// none: then it goes on behind them, as the client would ask for the same offset for ever.
func (x *fetchCall) convert(ctx context.Context, r *replica.Read, magic int8) ([]byte, error) {
	from := r.Offset
	next := []replica.Read{*r} // a copy: its records are released here, r's by the caller
	for own := false; ; own = true {
		raw := make([]byte, next[0].Chunk.Range.Len())
		n, err := next[0].Chunk.Range.ReadAt(raw, 0)
		if own {
			replica.Release(next)
		}
		if n < len(raw) {
			return nil, fmt.Errorf("%w: %w", log.ErrStorage, err)
		}
		out, err := record.DownConvert(raw, magic, from)
		if len(out) > 0 {
			return out, nil // an error behind it is the next fetch's
		}
		if err != nil {
			return nil, err
		}
		for b := range record.All(raw) {
			from = b.NextOffset()
		}
		again := replica.Read{Topic: r.Topic, Partition: r.Partition, Offset: from, LogStart: -1, MaxBytes: r.MaxBytes, Epoch: r.Epoch, LastEpoch: -1}
		if again.Offset <= next[0].Offset {
			return nil, nil
		}
		next[0] = again
		if err := x.s.Replicas.Fetch(ctx, replica.Fetch{Replica: x.follower, MaxBytes: int(max(r.MaxBytes, 1)), OnlyLeader: x.onlyLeader(), EachFirst: true}, next); err != nil {
			return nil, err
		}
		if next[0].Err != nil || !next[0].Filled {
			replica.Release(next)
			return nil, nil
		}
	}
}
