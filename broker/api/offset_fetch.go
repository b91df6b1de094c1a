package api

import (
	"context"
	"errors"

	"ottla/broker/auth"
	"ottla/broker/metadata"
	"ottla/coordinator"
	"ottla/coordinator/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetFetch tells the committed offsets of groups. Where there is none the offset is -1.
//
// Versions: 1 offsets of the coordinator; 2 all topics, an error for the group; 5 leader epoch
// (KIP-320); 6 flexible; 7 stable offsets only (KIP-447); 8 several groups (KIP-709); 9 member id
// and epoch, which count in consumer groups; 10 topic ids. Version 0 reads what version 0 of
// OffsetCommit and the consumers of 0.8 have kept in the registry's tree.
func (s *API) offsetFetch(ctx context.Context, p *Peer, req *kmsg.OffsetFetchRequest) (*kmsg.OffsetFetchResponse, error) {
	if req.Version == 0 {
		return s.fetchFromTree(ctx, p, req), nil
	}
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	resp.Topics = []kmsg.OffsetFetchResponseTopic{}
	resp.Groups = make([]kmsg.OffsetFetchResponseGroup, 0, len(req.Groups))
	for i := range req.Groups {
		resp.Groups = append(resp.Groups, s.fetchGroupOffsets(ctx, p, req, &req.Groups[i]))
	}
	if req.Version >= 8 {
		return resp, nil
	}
	in := kmsg.NewOffsetFetchRequestGroup()
	in.Group = req.Group
	if req.Topics != nil {
		in.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(req.Topics))
	}
	for _, t := range req.Topics {
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = t.Topic, t.Partitions
		in.Topics = append(in.Topics, gt)
	}
	g := s.fetchGroupOffsets(ctx, p, req, &in)
	resp.ErrorCode = g.ErrorCode
	if g.ErrorCode != 0 && req.Version < 2 { // there is no place for the group's error
		g.Topics = failedOffsets(&in, g.ErrorCode)
	}
	for _, t := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.OffsetFetchResponseTopicPartition, 0, len(t.Partitions))
		for _, f := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = f.Partition, f.Offset, f.LeaderEpoch, f.Metadata, f.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

// fetchGroupOffsets answers for one group.
func (s *API) fetchGroupOffsets(ctx context.Context, p *Peer, req *kmsg.OffsetFetchRequest, in *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = in.Group
	out.Topics = []kmsg.OffsetFetchResponseGroupTopic{}
	if !s.allowed(p, auth.Describe, auth.Group, in.Group) {
		out.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return out
	}
	pic := s.Meta.Load()
	byID := req.Version >= 10
	r := group.FetchRequest{Group: in.Group, MemberEpoch: -1, RequireStable: req.Version >= 7 && req.RequireStable}
	if req.Version >= 9 {
		r.MemberID, r.MemberEpoch = in.MemberID, in.MemberEpoch
	}
	var refused []kmsg.OffsetFetchResponseGroupTopic // they come last
	if in.Topics != nil {
		r.Topics = []group.FetchTopic{}
	}
	for _, t := range in.Topics {
		topic, missing := topicOf(pic, byID, t.Topic, t.TopicID)
		ft := group.FetchTopic{Name: t.Topic, Partitions: t.Partitions}
		if topic != nil {
			ft.Name, ft.ID = topic.Name, topic.ID
		}
		switch {
		case topic == nil && byID:
			refused = append(refused, offsetsOf(t.Topic, t.TopicID, t.Partitions, missing))
		case !s.allowed(p, auth.Describe, auth.Topic, ft.Name):
			refused = append(refused, offsetsOf(t.Topic, t.TopicID, t.Partitions, kerr.TopicAuthorizationFailed.Code))
		default:
			out.Topics = append(out.Topics, offsetsOf(t.Topic, t.TopicID, t.Partitions, 0))
			r.Topics = append(r.Topics, ft)
		}
	}
	got, err := s.Groups.Fetch(ctx, r)
	if err != nil {
		out.ErrorCode = fetchOffsetsCode(ctx, err)
		out.Topics = []kmsg.OffsetFetchResponseGroupTopic{}
		return out
	}
	for i, t := range got {
		if in.Topics != nil {
			fillOffsets(ctx, &out.Topics[i], t)
			continue
		}
		if !s.allowed(p, auth.Describe, auth.Topic, t.Name) {
			continue
		}
		id, ok := idOf(pic, t)
		if byID && !ok {
			continue // it can't be said which topic this is
		}
		gt := kmsg.NewOffsetFetchResponseGroupTopic()
		gt.Topic, gt.TopicID = t.Name, id
		fillOffsets(ctx, &gt, t)
		out.Topics = append(out.Topics, gt)
	}
	out.Topics = append(out.Topics, refused...)
	return out
}

// idOf is the id of a topic that the group has offsets for: the one kept with them, else that
// of the topic that has the name now.
func idOf(pic *metadata.Picture, t group.FetchedTopic) (id [16]byte, ok bool) {
	if t.ID != [16]byte{} {
		return t.ID, true
	}
	if topic := pic.Topics[t.Name]; topic != nil {
		return topic.ID, topic.ID != metadata.ID{}
	}
	return id, false
}

// fetchOffsetsCode is the group's error. Consumers before 3.9 know no other one that makes them
// look for the coordinator again.
func fetchOffsetsCode(ctx context.Context, err error) int16 {
	if errors.Is(err, coordinator.ErrNotAvailable) || errors.Is(err, coordinator.ErrTimedOut) {
		return kerr.NotCoordinator.Code
	}
	return code(ctx, err)
}

// offsetsOf is a topic of the answer without offsets.
func offsetsOf(name string, id [16]byte, partitions []int32, errorCode int16) kmsg.OffsetFetchResponseGroupTopic {
	t := kmsg.NewOffsetFetchResponseGroupTopic()
	t.Topic, t.TopicID = name, id
	t.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, 0, len(partitions))
	for _, n := range partitions {
		f := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		f.Partition, f.Offset, f.LeaderEpoch, f.Metadata, f.ErrorCode = n, -1, -1, kmsg.StringPtr(""), errorCode
		t.Partitions = append(t.Partitions, f)
	}
	return t
}

// failedOffsets is every topic of a request with an error.
func failedOffsets(in *kmsg.OffsetFetchRequestGroup, errorCode int16) []kmsg.OffsetFetchResponseGroupTopic {
	all := make([]kmsg.OffsetFetchResponseGroupTopic, 0, len(in.Topics))
	for _, t := range in.Topics {
		all = append(all, offsetsOf(t.Topic, t.TopicID, t.Partitions, errorCode))
	}
	return all
}

func fillOffsets(ctx context.Context, out *kmsg.OffsetFetchResponseGroupTopic, t group.FetchedTopic) {
	out.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, 0, len(t.Partitions))
	for _, f := range t.Partitions {
		rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = f.Partition, f.Offset, f.LeaderEpoch
		rp.Metadata, rp.ErrorCode = kmsg.StringPtr(f.Metadata), code(ctx, f.Err)
		out.Partitions = append(out.Partitions, rp)
	}
}
