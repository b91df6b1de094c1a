package api

import (
	"context"
	"time"

	"ottla/broker/auth"
	"ottla/coordinator/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetCommit keeps a group's offsets. Only those of partitions that exist are handed on.
//
// Versions: 1 the time of a commit; 2 to 4 how long to keep it; 6 leader epoch (KIP-320); 7
// static members (KIP-345); 8 flexible; 9 GROUP_ID_NOT_FOUND for an unknown group with a
// generation, before ILLEGAL_GENERATION; 10 topic ids.
//
// What version 0 commits is kept in the registry's tree, apart from the coordinator's, as Kafka 3.9
// keeps it in ZooKeeper (see offsets_tree.go).
func (s *API) offsetCommit(ctx context.Context, p *Peer, req *kmsg.OffsetCommitRequest) (*kmsg.OffsetCommitResponse, error) {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, 0, len(req.Topics))
	c := commitment{api: s, peer: p, byID: req.Version >= 10, picture: s.Meta.Load()}
	if !s.allowed(p, auth.Read, auth.Group, req.Group) {
		c.refused = kerr.GroupAuthorizationFailed.Code
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		if len(t.Partitions) == 0 {
			continue // Kafka answers topics with the first of their partitions
		}
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		c.begin(t.Topic, t.TopicID)
		for j := range t.Partitions {
			in, rp := &t.Partitions[j], &rt.Partitions[j]
			*rp = kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = in.Partition
			o := group.CommitPartition{Partition: in.Partition, Offset: in.Offset, LeaderEpoch: in.LeaderEpoch, Time: -1}
			if req.Version == 1 {
				o.Time = in.Timestamp
			}
			c.add(o, in.Metadata, &rp.ErrorCode)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(c.topics) == 0 {
		return resp, nil
	}
	if req.Version == 0 {
		s.commitToTree(ctx, req.Group, &c)
		return resp, nil
	}
	r := group.CommitRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
		NewErrors: req.Version >= 9, Retention: -1, Topics: c.topics,
	}
	if req.Version >= 2 && req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		r.Retention = time.Duration(min(req.RetentionTimeMillis, maxRetentionMillis)) * time.Millisecond
	}
	errs, err := s.Groups.Commit(ctx, r)
	c.answer(ctx, code(ctx, err), errs)
	return resp, nil
}

// maxRetentionMillis keeps a client's retention within what a Duration holds.
const maxRetentionMillis = int64(1<<63-1) / int64(time.Millisecond)
