package remote

import (
	"context"
	"fmt"
	"time"

	"ottla/broker/peer"
	"ottla/broker/replica"
	"ottla/log"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetched is what a leader's codes mean to a follower.
var fetched = meaning{
	{kerr.OffsetOutOfRange, log.ErrOffsetOutOfRange},
	{kerr.NotLeaderForPartition, replica.ErrNotLeader},
	{kerr.FencedLeaderEpoch, replica.ErrFencedEpoch},
	{kerr.UnknownLeaderEpoch, replica.ErrUnknownEpoch},
	{kerr.UnknownTopicOrPartition, replica.ErrUnknownPartition},
	{kerr.UnknownTopicID, replica.ErrUnknownPartition},
	{kerr.InconsistentTopicID, replica.ErrTopicID},
	{kerr.KafkaStorageError, replica.ErrOffline},
	{kerr.FetchSessionIDNotFound, replica.ErrSession},
	{kerr.InvalidFetchSessionEpoch, replica.ErrSession},
	{kerr.FetchSessionTopicIDError, replica.ErrSession},
}

// Source is a broker as followers of its partitions reach it. It implements replica.Source.
type Source struct {
	self int32
	c    *peer.Client
}

// Source makes the n-th way to a leader.
func (o Options) Source(leader int32, n int) *Source {
	return &Source{o.Self, o.client(leader, fmt.Sprintf("broker-%d-fetcher-%d", o.Self, n))}
}

// Close ends it.
func (s *Source) Close() { s.c.Close() }

// Pull implements replica.Source.
func (s *Source) Pull(ctx context.Context, q *replica.PullRequest) (*replica.PullAnswer, error) {
	req := kmsg.NewPtrFetchRequest()
	req.Version = versionFetch
	req.ReplicaState.ID, req.ReplicaState.Epoch = q.Replica, q.BrokerEpoch
	req.MaxWaitMillis = int32(q.MaxWait / time.Millisecond)
	req.MinBytes, req.MaxBytes = q.MinBytes, q.MaxBytes
	req.SessionID, req.SessionEpoch = q.SessionID, q.SessionEpoch
	for i := range q.Parts {
		a := &q.Parts[i]
		if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicID != a.ID {
			t := kmsg.NewFetchRequestTopic()
			t.TopicID = a.ID
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.FetchOffset = a.Partition, a.Epoch, a.Offset
		p.LastFetchedEpoch, p.LogStartOffset, p.PartitionMaxBytes = a.LastEpoch, a.LogStart, a.MaxBytes
		t.Partitions = append(t.Partitions, p)
	}
	for i := range q.Forgotten {
		a := &q.Forgotten[i]
		t := kmsg.NewFetchRequestForgottenTopic()
		t.TopicID, t.Partitions = a.ID, []int32{a.Partition}
		req.ForgottenTopics = append(req.ForgottenTopics, t)
	}
	resp, err := do[*kmsg.FetchResponse](ctx, s.c, req)
	if err != nil {
		return nil, err
	}
	if err := fetched.of(resp.ErrorCode); err != nil {
		return nil, err
	}
	out := &replica.PullAnswer{SessionID: resp.SessionID}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			d := replica.Pulled{
				ID: t.TopicID, Partition: p.Partition, Err: fetched.of(p.ErrorCode),
				HighWatermark: p.HighWatermark, LogStart: p.LogStartOffset, Records: p.RecordBatches,
				DivergedEpoch: p.DivergingEpoch.Epoch, DivergedEnd: p.DivergingEpoch.EndOffset,
			}
			d.Diverged = d.DivergedEpoch >= 0 || d.DivergedEnd >= 0
			out.Parts = append(out.Parts, d)
		}
	}
	return out, nil
}

// What ListOffsets is asked for.
const (
	latest   = -1
	earliest = -2
)

// Ends implements replica.Source.
func (s *Source) Ends(ctx context.Context, k replica.Key, epoch int32) (start, end int64, err error) {
	if end, err = s.offset(ctx, k, epoch, latest); err == nil {
		start, err = s.offset(ctx, k, epoch, earliest)
	}
	return start, end, err
}

func (s *Source) offset(ctx context.Context, k replica.Key, epoch int32, at int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = versionListOffsets, s.self
	t := kmsg.NewListOffsetsRequestTopic()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.Timestamp = k.Partition, epoch, at
	t.Topic, t.Partitions = k.Topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := do[*kmsg.ListOffsetsResponse](ctx, s.c, req)
	if err != nil {
		return 0, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if t.Topic == k.Topic && p.Partition == k.Partition {
				return p.Offset, fetched.of(p.ErrorCode)
			}
		}
	}
	return 0, fmt.Errorf("%w: ListOffsets without %s-%d", peer.ErrAnswer, k.Topic, k.Partition)
}
