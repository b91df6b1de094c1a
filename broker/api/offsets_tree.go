package api

import (
	"context"
	"errors"

	"ottla/broker/auth"
	"ottla/broker/registry"
	"ottla/compat"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Offsets of the clients of before 0.8.2, whose groups no broker coordinates: version 0 of OffsetCommit and
// OffsetFetch. They are in the registry's tree, where the consumers of that time write theirs
// themselves when there is a ZooKeeper (KafkaApis.commitOffsetsToZookeeper). There is no place for metadata.

// commitToTree keeps what a request has for partitions that exist, and answers it.
func (s *API) commitToTree(ctx context.Context, id string, c *commitment) {
	var offsets []registry.Offset
	var answers []*int16
	for i, t := range c.topics {
		for j, p := range t.Partitions {
			if !s.Groups.MetadataFits(p.Metadata) {
				*c.codes[i][j] = kerr.OffsetMetadataTooLarge.Code
				continue
			}
			offsets = append(offsets, registry.Offset{Topic: t.Name, Partition: p.Partition, Offset: p.Offset})
			answers = append(answers, c.codes[i][j])
		}
	}
	all := treeCode(ctx, registry.CommitOffsets(s.Tree, id, offsets))
	for _, code := range answers {
		*code = all
	}
}

// fetchFromTree answers a request of version 0. What is not there is UNKNOWN_TOPIC_OR_PARTITION, whether the
// partition or the offset.
func (s *API) fetchFromTree(ctx context.Context, p *Peer, req *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	resp.Topics = make([]kmsg.OffsetFetchResponseTopic, 0, len(req.Topics))
	var all int16
	if !s.allowed(p, auth.Describe, auth.Group, req.Group) {
		all = kerr.GroupAuthorizationFailed.Code
	}
	pic := s.Meta.Load()
	var wanted []registry.Offset
	var answers []*kmsg.OffsetFetchResponseTopicPartition
	for _, t := range req.Topics {
		code, topic := all, pic.Topics[t.Topic]
		if code == 0 && !s.allowed(p, auth.Describe, auth.Topic, t.Topic) {
			code = kerr.TopicAuthorizationFailed.Code
		}
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.OffsetFetchResponseTopicPartition, len(t.Partitions))
		for i, n := range t.Partitions {
			rp := &rt.Partitions[i]
			*rp = kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.Metadata, rp.ErrorCode = n, -1, kmsg.StringPtr(""), code
			switch {
			case code != 0:
			case topic == nil || n < 0 || int(n) >= len(topic.Partitions):
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			default:
				wanted = append(wanted, registry.Offset{Topic: t.Topic, Partition: n})
				answers = append(answers, rp)
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	offsets, errs, err := registry.CommittedOffsets(s.Tree, req.Group, wanted)
	all = treeCode(ctx, err)
	for i, rp := range answers {
		switch {
		case all != 0:
			rp.ErrorCode = all
		case errors.Is(errs[i], registry.ErrNoNode):
			rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
		case errs[i] != nil:
			s.Logger.WarnContext(ctx, "an offset is ignored", "err", errs[i])
			rp.ErrorCode = treeCode(ctx, errs[i])
		default:
			rp.Offset = offsets[i]
		}
	}
	return resp
}

// treeCode is code, and Kafka's for a group whose name is no path and for a node that has no number.
func treeCode(ctx context.Context, err error) int16 {
	if errors.Is(err, registry.ErrBadPath) || errors.Is(err, compat.ErrZnode) {
		return kerr.UnknownServerError.Code
	}
	return code(ctx, err)
}
