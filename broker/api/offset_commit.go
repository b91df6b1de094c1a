package api

import (
	"context"
	"time"

	"ottla/broker/auth"
	"ottla/broker/metadata"
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
// Kafka 3.9 keeps what version 0 commits in ZooKeeper, apart from the coordinator's, and Kafka
// 4 does not serve it. Here it goes to the coordinator.
func (s *API) offsetCommit(ctx context.Context, p *Peer, req *kmsg.OffsetCommitRequest) (*kmsg.OffsetCommitResponse, error) {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, 0, len(req.Topics))
	groupAllowed := s.allowed(p, auth.Read, auth.Group, req.Group)
	pic := s.Meta.Load()
	r := group.CommitRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
		NewErrors: req.Version >= 9, Retention: -1,
	}
	if req.Version >= 2 && req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		r.Retention = time.Duration(min(req.RetentionTimeMillis, maxRetentionMillis)) * time.Millisecond
	}
	type spot struct{ topic, partition int }
	var spots [][]spot // where the answers to r's partitions belong
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, 0, len(t.Partitions))
		topic, missing := topicOf(pic, req.Version >= 10, t.Topic, t.TopicID)
		name := t.Topic
		if topic != nil {
			name = topic.Name
		}
		topicAllowed := groupAllowed && s.allowed(p, auth.Read, auth.Topic, name)
		ct := group.CommitTopic{Name: name}
		if topic != nil {
			ct.ID = topic.ID
		}
		var mine []spot
		for j := range t.Partitions {
			in := &t.Partitions[j]
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = in.Partition
			switch {
			case !groupAllowed:
				rp.ErrorCode = kerr.GroupAuthorizationFailed.Code
			case topic == nil && req.Version >= 10:
				rp.ErrorCode = missing
			case !topicAllowed:
				rp.ErrorCode = kerr.TopicAuthorizationFailed.Code
			case topic == nil || in.Partition < 0 || int(in.Partition) >= len(topic.Partitions):
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			default:
				c := group.CommitPartition{Partition: in.Partition, Offset: in.Offset, LeaderEpoch: in.LeaderEpoch, Time: -1}
				if req.Version == 1 {
					c.Time = in.Timestamp
				}
				if in.Metadata != nil {
					c.Metadata = *in.Metadata
				}
				ct.Partitions = append(ct.Partitions, c)
				mine = append(mine, spot{i, j})
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		if len(mine) > 0 {
			r.Topics, spots = append(r.Topics, ct), append(spots, mine)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(r.Topics) == 0 {
		return resp, nil
	}
	errs, err := s.Groups.Commit(ctx, r)
	all := code(ctx, err)
	for i, mine := range spots {
		for j, at := range mine {
			rp := &resp.Topics[at.topic].Partitions[at.partition]
			if rp.ErrorCode = all; err == nil {
				rp.ErrorCode = code(ctx, errs[i][j])
			}
		}
	}
	return resp, nil
}

// maxRetentionMillis keeps a client's retention within what a Duration holds.
const maxRetentionMillis = int64(1<<63-1) / int64(time.Millisecond)

// topicOf finds a topic by its name, or by its id where a version has ids; the code is for one
// that is not there.
func topicOf(pic *metadata.Picture, byID bool, name string, id [16]byte) (*metadata.Topic, int16) {
	if byID {
		return pic.ByID[id], kerr.UnknownTopicID.Code
	}
	return pic.Topics[name], kerr.UnknownTopicOrPartition.Code
}
