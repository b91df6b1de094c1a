package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/broker/replica"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Times of ListOffsets that name an offset (ListOffsetsRequest).
const (
	latestOffset          = -1
	earliestOffset        = -2
	maxTimestampOffset    = -3 // KIP-734
	earliestLocalOffset   = -4 // KIP-405
	latestTieredOffset    = -5 // KIP-1005
	earliestPendingOffset = -6 // KIP-1023: the first one that is not tiered yet
)

// offsetSince is the version in which each of these came, by its negated number.
var offsetSince = [...]int16{0, 1, 1, 7, 8, 9, 11}

// listOffsets looks up offsets by time.
//
// Versions: 0 a list of offsets not after a time, of the largest first; 1 the first record at
// or after it; 2 isolation levels; 4 leader epochs (KIP-320); 5 OFFSET_NOT_AVAILABLE; 7 to 11 the
// times above; 10 timeout (there is nothing here to wait for: no log is tiered).
//
// Kafka's list in version 0 are base offsets of segments by the age of their files. Here it is
// the offset that the records' times give, and the log's start.
func (s *API) listOffsets(ctx context.Context, p *Peer, req *kmsg.ListOffsetsRequest) (*kmsg.ListOffsetsResponse, error) {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, 0, len(req.Topics))
	twice := duplicates(req)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, 0, len(t.Partitions))
		allowed := s.allowed(p, auth.Describe, auth.Topic, t.Topic)
		for j := range t.Partitions {
			in := &t.Partitions[j]
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = in.Partition
			rp.Offset, rp.Timestamp, rp.LeaderEpoch = -1, -1, -1
			rp.OldStyleOffsets = []int64{}
			switch {
			case !allowed:
				rp.ErrorCode = kerr.TopicAuthorizationFailed.Code
			case req.Version > 0 && twice[replica.Key{Topic: t.Topic, Partition: in.Partition}]:
				rp.ErrorCode = kerr.InvalidRequest.Code
			case in.Timestamp < 0 && unknownOffset(in.Timestamp, req.Version):
				rp.ErrorCode = kerr.UnsupportedVersion.Code
			default:
				if err := s.listOffset(req, t.Topic, in, &rp); err != nil {
					rp.ErrorCode = code(ctx, err)
					if rp.ErrorCode == kerr.OffsetNotAvailable.Code && req.Version < 5 {
						rp.ErrorCode = kerr.LeaderNotAvailable.Code
					}
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// unknownOffset says whether a negative time means nothing in a version.
func unknownOffset(at int64, version int16) bool {
	if version == 0 {
		return at < earliestOffset
	}
	return at <= -int64(len(offsetSince)) || version < offsetSince[-at]
}

// duplicates are the partitions that a request names more than once; nil if there are none.
func duplicates(req *kmsg.ListOffsetsRequest) map[replica.Key]bool {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if n < 2 {
		return nil
	}
	seen := make(map[replica.Key]bool, n)
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			k := replica.Key{Topic: req.Topics[i].Topic, Partition: req.Topics[i].Partitions[j].Partition}
			_, again := seen[k]
			seen[k] = again
		}
	}
	return seen
}

// listOffset answers for one partition.
func (s *API) listOffset(req *kmsg.ListOffsetsRequest, topic string, in *kmsg.ListOffsetsRequestTopicPartition, out *kmsg.ListOffsetsResponseTopicPartition) error {
	part, err := s.Replicas.Partition(topic, in.Partition)
	if err != nil {
		return err
	}
	epoch := in.CurrentLeaderEpoch
	if req.Version < 4 {
		epoch = -1
	}
	look := replica.Lookup{Epoch: epoch, OnlyLeader: req.ReplicaID != debugging, Isolation: replica.LogEnd}
	if req.ReplicaID == -1 {
		look.Isolation = isolation(-1, req.IsolationLevel)
	}
	if req.Version == 0 {
		out.OldStyleOffsets, err = part.OffsetsBefore(look, in.Timestamp, in.MaxNumOffsets)
		return err
	}
	var found replica.Found
	switch in.Timestamp {
	case latestOffset:
		found, err = part.Latest(look)
	case earliestOffset, earliestLocalOffset:
		found, err = part.Earliest(look)
	case latestTieredOffset, earliestPendingOffset:
		_, err = part.Local(epoch, look.OnlyLeader)
		return err // nothing is tiered
	case maxTimestampOffset:
		found, err = part.MaxTimestamp(look)
	default:
		found, err = part.AtTime(look, in.Timestamp)
	}
	if err != nil {
		return err
	}
	out.Offset, out.Timestamp, out.LeaderEpoch = found.Offset, found.Timestamp, found.Epoch
	return nil
}
