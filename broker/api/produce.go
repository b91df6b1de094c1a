package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"ottla/broker/auth"
	"ottla/broker/metadata"
	"ottla/broker/quota"
	"ottla/broker/replica"
	"ottla/coordinator/txn"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errUnansweredProduce closes the connection of a client that asked for no answer and whose
// records were not stored: it has no other way to learn of it (as Kafka).
var errUnansweredProduce = errors.New("a produce request with acks=0 failed")

// What a client reads about records that are refused here.
var errNullRecords = fmt.Errorf("%w: the records are null", record.ErrInvalidRecord)

// produce appends records to the partitions that this broker leads, in the order of the
// request; what happens to one partition does not concern another.
//
// Versions: 0-2 message sets of the old formats (converted); 1 throttle time; 2 log append
// time; 3 transactional ids, and exactly one batch v2 a partition; 5 log start offset; 7 zstd; 8
// record errors (KIP-467); 10 leaders named where ours is the wrong broker (KIP-951); 11
// TRANSACTION_ABORTABLE; 12 adds partitions to the transaction (KIP-890); 13 topic ids.
//
// Other than in Kafka null records are answered (INVALID_RECORD; Kafka never answers), and a
// partition that is named twice is appended to and answered twice (Kafka stores the last).
func (s *API) produce(ctx context.Context, p *Peer, req *kmsg.ProduceRequest) (*kmsg.ProduceResponse, func(context.Context) error, error) {
	x := produceCall{s: s, p: p, req: req, pic: s.Meta.Load(), deadline: time.Now().Add(time.Duration(req.TimeoutMillis) * time.Millisecond)}
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	resp.Topics = make([]kmsg.ProduceResponseTopic, 0, len(req.Topics))
	x.resp = resp
	refused := x.refuse(ctx)
	for i := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		rt.Partitions = make([]kmsg.ProduceResponseTopicPartition, 0, len(req.Topics[i].Partitions))
		resp.Topics = append(resp.Topics, rt)
		x.topic(ctx, &req.Topics[i], &resp.Topics[len(resp.Topics)-1], refused)
	}
	throttle := s.charge(p, quota.ProduceBytes, x.bytes)
	if req.Acks == 0 {
		return nil, nil, x.unanswered(ctx)
	}
	resp.ThrottleMillis = int32(min(throttle.Milliseconds(), math.MaxInt32))
	if len(x.waits) == 0 {
		return resp, nil, nil
	}
	return resp, x.wait(), nil
}

// produceCall is one Produce on its way.
type produceCall struct {
	s        *API
	p        *Peer
	req      *kmsg.ProduceRequest
	resp     *kmsg.ProduceResponse
	pic      *metadata.Picture
	deadline time.Time
	bytes    int64
	waits    []produceWait
	failed   error // of any partition

	txn      txn.AddRequest // whose transaction it is, of transactional batches
	verify   bool           // such batches must belong to a transaction that is known
	enrolled map[*kmsg.ProduceRequestTopicPartition]*enrolment
}

// produceWait is a partition whose answer is not complete yet.
type produceWait struct {
	topic string
	rp    *kmsg.ProduceResponseTopicPartition
	wait  func(context.Context) error
}

// refuse looks for what refuses the request in all its partitions.
func (x *produceCall) refuse(ctx context.Context) error {
	transactional := false
	for i := range x.req.Topics {
		for j := range x.req.Topics[i].Partitions {
			_, is := transactionalBatch(x.req.Topics[i].Partitions[j].Records)
			transactional = transactional || is
		}
	}
	if !transactional {
		return nil
	}
	if x.req.TransactionID == nil || !x.s.allowed(x.p, auth.Write, auth.TransactionalID, *x.req.TransactionID) {
		return kerr.TransactionalIDAuthorizationFailed
	}
	if x.req.Acks < -1 || x.req.Acks > 1 {
		return nil // nothing will be appended
	}
	return x.enrol(ctx)
}

// find returns the topic of a request, nil where there is none, and its name.
func (x *produceCall) find(t *kmsg.ProduceRequestTopic) (name string, known *metadata.Topic) {
	if x.req.Version < 13 {
		return t.Topic, x.pic.Topics[t.Topic]
	}
	if known = x.pic.ByID[t.TopicID]; known != nil {
		name = known.Name
	}
	return name, known
}

func (x *produceCall) topic(ctx context.Context, t *kmsg.ProduceRequestTopic, rt *kmsg.ProduceResponseTopic, refused error) {
	name, known := x.find(t)
	err := refused
	switch {
	case err != nil:
	case x.req.Version >= 13 && known == nil:
		err = kerr.UnknownTopicID
	case !x.s.allowed(x.p, auth.Write, auth.Topic, name):
		err = kerr.TopicAuthorizationFailed
	case known == nil:
		err = replica.ErrUnknownPartition
	}
	for j := range t.Partitions {
		in := &t.Partitions[j]
		rp := kmsg.NewProduceResponseTopicPartition()
		rp.Partition = in.Partition
		rp.BaseOffset, rp.LogAppendTime, rp.LogStartOffset = -1, -1, -1
		rt.Partitions = append(rt.Partitions, rp)
		x.bytes += int64(len(in.Records))
		out := &rt.Partitions[len(rt.Partitions)-1]
		if err != nil {
			x.fail(ctx, out, name, err)
			continue
		}
		x.partition(ctx, name, known, in, out)
	}
}

// partition appends to one partition.
func (x *produceCall) partition(ctx context.Context, topic string, known *metadata.Topic, in *kmsg.ProduceRequestTopicPartition, out *kmsg.ProduceResponseTopicPartition) {
	switch {
	case in.Partition < 0 || int(in.Partition) >= len(known.Partitions):
		x.fail(ctx, out, topic, replica.ErrUnknownPartition)
		return
	case in.Records == nil:
		x.fail(ctx, out, topic, errNullRecords)
		return
	case x.req.Acks < -1 || x.req.Acks > 1:
		x.fail(ctx, out, topic, kerr.InvalidRequiredAcks)
		return
	case internalTopic(topic) && x.p.ClientID != "__admin_client": // AdminUtils.ADMIN_CLIENT_ID
		x.fail(ctx, out, topic, kerr.InvalidTopicException)
		return
	}
	part, err := x.s.Replicas.Leader(topic, in.Partition)
	if err != nil {
		x.fail(ctx, out, topic, err)
		return
	}
	done, wait, err := x.append(ctx, part, in)
	if err != nil {
		c := x.fail(ctx, out, topic, err)
		part.ProduceFailed(len(in.Records), c == kerr.MessageTooLarge.Code || c == kerr.RecordListTooLarge.Code, !kafkaKnows(c))
		if l := part.Log(); l != nil && !kafkaKnows(c) {
			out.LogStartOffset = l.Start()
		}
		return
	}
	part.Produced(done.Count, len(in.Records), x.req.Version < 3)
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = done.First, done.AppendTime, done.Start
	if wait != nil {
		x.waits = append(x.waits, produceWait{topic, out, wait})
	}
}

// kafkaKnows says whether Kafka counts an error of an append as one of the usual ones, which
// are no failed requests and come without a log start offset.
func kafkaKnows(c int16) bool {
	switch c {
	case kerr.UnknownTopicOrPartition.Code, kerr.NotLeaderForPartition.Code, kerr.MessageTooLarge.Code,
		kerr.RecordListTooLarge.Code, kerr.CorruptMessage.Code, kerr.KafkaStorageError.Code:
		return true
	}
	return false
}

// fail answers a partition with an error, and with what is wrong with which record.
func (x *produceCall) fail(ctx context.Context, out *kmsg.ProduceResponseTopicPartition, topic string, err error) int16 {
	if x.failed == nil {
		x.failed = fmt.Errorf("%s-%d: %w", topic, out.Partition, err)
	}
	out.ErrorCode = code(ctx, err)
	if out.ErrorCode == kerr.NotLeaderForPartition.Code && x.req.Version >= 10 {
		x.leader(topic, out)
	}
	if out.ErrorCode == kerr.KafkaStorageError.Code && x.req.Version <= 3 { // not known to these clients
		out.ErrorCode = kerr.NotLeaderForPartition.Code
	}
	if bad, ok := errors.AsType[*record.RecordError](err); ok {
		for _, r := range bad.Records {
			e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			e.RelativeOffset = r.Index
			if r.Message != "" {
				e.ErrorMessage = kmsg.StringPtr(r.Message)
			}
			out.ErrorRecords = append(out.ErrorRecords, e)
		}
		out.ErrorMessage = kmsg.StringPtr(bad.Message)
		return out.ErrorCode
	}
	if _, ok := errors.AsType[*refusal](err); ok {
		out.ErrorMessage = message(err)
	}
	switch out.ErrorCode {
	case kerr.CorruptMessage.Code, kerr.InvalidRecord.Code, kerr.InvalidTimestamp.Code, kerr.MessageTooLarge.Code,
		kerr.RecordListTooLarge.Code, kerr.OutOfOrderSequenceNumber.Code, kerr.InvalidProducerEpoch.Code,
		kerr.UnsupportedForMessageFormat.Code, kerr.UnsupportedCompressionType.Code, kerr.InvalidTxnState.Code:
		out.ErrorMessage = message(err)
	}
	return out.ErrorCode
}

// leader names the partition's leader and where it is.
func (x *produceCall) leader(topic string, out *kmsg.ProduceResponseTopicPartition) {
	id, epoch := x.s.leaderOf(topic, out.Partition)
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = id, epoch
	for i := range x.resp.Brokers {
		if x.resp.Brokers[i].NodeID == id {
			return
		}
	}
	if n, ok := x.s.leaderNode(x.p, id); ok {
		b := kmsg.NewProduceResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.id, n.host, n.port, n.rack
		x.resp.Brokers = append(x.resp.Brokers, b)
	}
}

// unanswered ends a request with acks=0. There is nobody who could wait for an fsync later.
func (x *produceCall) unanswered(ctx context.Context) error {
	for i := range x.waits {
		if err := x.waits[i].wait(ctx); err != nil && x.failed == nil {
			x.failed = err
		}
	}
	if x.failed != nil {
		return fmt.Errorf("%w: %w", errUnansweredProduce, x.failed)
	}
	return nil
}

// wait returns what completes the answer. It runs beside the connection's reader, and by then
// the frame with the records may be another request's.
func (x *produceCall) wait() func(context.Context) error {
	w := &produceCall{s: x.s, p: &Peer{Conn: x.p.Conn}, req: &kmsg.ProduceRequest{Version: x.req.Version}, resp: x.resp, deadline: x.deadline, waits: x.waits}
	return func(ctx context.Context) error {
		limited, cancel := context.WithDeadline(ctx, w.deadline)
		defer cancel()
		for i := range w.waits {
			one := &w.waits[i]
			err := one.wait(limited)
			if err != nil && ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil { // else it is answered, though the broker stops: it would be sent again
				w.fail(ctx, one.rp, one.topic, err)
			}
		}
		return nil
	}
}
