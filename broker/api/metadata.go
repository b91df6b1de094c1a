package api

import (
	"context"
	"slices"

	"ottla/broker/auth"
	"ottla/broker/controller"
	"ottla/broker/metadata"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadata tells brokers, topics and leaders, and creates topics that are looked up.
//
// Versions: 0 an empty list is all topics, and an unreachable replica is left out; 1 null is all;
// 4 the client may forbid creation; 6 a leader without the listener is told apart; 8-10 cluster
// operations; 12 topics by id; 13 top-level error.
//
// Kafka answers a look-up that creates a topic with LEADER_NOT_AVAILABLE and the client asks
// again; here the topic is there when the answer is made.
func (s *API) metadata(ctx context.Context, p *Peer, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	all := req.Topics == nil || req.Version == 0 && len(req.Topics) == 0

	if code := checkMetadataTopics(req); code != 0 {
		for _, t := range req.Topics {
			rt := metadataTopic(t.Topic, t.TopicID, code)
			if rt.Topic == nil && req.Version < 12 {
				rt.Topic = kmsg.StringPtr("")
			}
			resp.Topics = append(resp.Topics, rt)
		}
	} else if all {
		pic := s.Meta.Load()
		resp.Topics = make([]kmsg.MetadataResponseTopic, 0, len(pic.Topics))
		for _, t := range pic.Topics {
			if !s.allowed(p, auth.Describe, auth.Topic, t.Name) {
				continue
			}
			resp.Topics = append(resp.Topics, s.topicMetadata(p, pic, t, req))
		}
	} else {
		resp.Topics = s.namedMetadata(ctx, p, req)
	}

	pic := s.Meta.Load()
	resp.ClusterID = kmsg.StringPtr(pic.ClusterID)
	resp.ControllerID = pic.Controller
	resp.Brokers = []kmsg.MetadataResponseBroker{}
	nodes(p, pic, func(b *metadata.Broker, host string, port int32) {
		rb := kmsg.NewMetadataResponseBroker()
		rb.NodeID, rb.Host, rb.Port = b.ID, host, port
		if b.Rack != "" {
			rb.Rack = kmsg.StringPtr(b.Rack)
		}
		resp.Brokers = append(resp.Brokers, rb)
	})
	if req.Version >= 8 && req.Version <= 10 && req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = 0
		if s.allowed(p, auth.Describe, auth.Cluster, auth.ClusterName) {
			resp.AuthorizedOperations = s.authorizedOperations(p, auth.Cluster, auth.ClusterName)
		}
	}
	return resp, nil
}

// checkMetadataTopics refuses what Kafka's handler throws on.
func checkMetadataTopics(req *kmsg.MetadataRequest) int16 {
	for _, t := range req.Topics {
		if req.Version < 12 && (t.Topic == nil || t.TopicID != [16]byte{}) {
			return kerr.InvalidRequest.Code
		}
	}
	return 0
}

// namedMetadata answers for the topics that were asked for. As in Kafka one id among them makes
// all of them be looked up by id.
func (s *API) namedMetadata(ctx context.Context, p *Peer, req *kmsg.MetadataRequest) []kmsg.MetadataResponseTopic {
	out := make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
	byID := slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool { return t.TopicID != [16]byte{} })
	if byID {
		pic := s.Meta.Load()
		seen := map[metadata.ID]bool{{}: true}
		for _, t := range req.Topics {
			if seen[t.TopicID] {
				continue
			}
			seen[t.TopicID] = true
			switch found := pic.ByID[t.TopicID]; {
			case found == nil:
				out = append(out, metadataTopic(nil, t.TopicID, kerr.UnknownTopicID.Code))
			case !s.allowed(p, auth.Describe, auth.Topic, found.Name):
				out = append(out, metadataTopic(nil, t.TopicID, kerr.TopicAuthorizationFailed.Code))
			default:
				out = append(out, s.topicMetadata(p, pic, found, req))
			}
		}
		return out
	}
	seen := make(map[string]bool, len(req.Topics))
	var missing []string
	failed := map[string]int16{}
	pic := s.Meta.Load()
	for _, t := range req.Topics {
		if t.Topic == nil || seen[*t.Topic] {
			continue
		}
		seen[*t.Topic] = true
		if !s.allowed(p, auth.Describe, auth.Topic, *t.Topic) {
			failed[*t.Topic] = kerr.TopicAuthorizationFailed.Code // whether or not it exists
		} else if pic.Topics[*t.Topic] == nil {
			missing = append(missing, *t.Topic)
		}
	}
	if len(missing) > 0 {
		create := s.Config.Broker().AutoCreateTopicsEnable && (req.Version < 4 || req.AllowAutoTopicCreation)
		for i, err := range s.missingTopics(ctx, p, missing, create) {
			failed[missing[i]] = code(ctx, err)
		}
		pic = s.Meta.Load()
	}
	clear(seen)
	for _, t := range req.Topics {
		if t.Topic == nil || seen[*t.Topic] {
			continue
		}
		seen[*t.Topic] = true
		c := failed[*t.Topic]
		if found := pic.Topics[*t.Topic]; found != nil && c == 0 {
			out = append(out, s.topicMetadata(p, pic, found, req))
			continue
		}
		if c == 0 {
			c = kerr.UnknownTopicOrPartition.Code
		}
		out = append(out, metadataTopic(t.Topic, [16]byte{}, c))
	}
	return out
}

// missingTopics creates the named topics, or says for each why it is not there.
func (s *API) missingTopics(ctx context.Context, p *Peer, names []string, create bool) []error {
	errs := make([]error, len(names))
	for i, name := range names {
		if err := controller.CheckTopicName(name); err != nil {
			errs[i] = err
		} else if create && !s.mayCreate(p, name) {
			errs[i] = kerr.TopicAuthorizationFailed
		} else if create {
			errs[i] = s.ensureTopic(ctx, name)
		} else {
			errs[i] = controller.ErrUnknownTopicOrPartition
		}
	}
	return errs
}

func metadataTopic(name *string, id [16]byte, code int16) kmsg.MetadataResponseTopic {
	rt := kmsg.NewMetadataResponseTopic()
	rt.Topic, rt.TopicID, rt.ErrorCode = name, id, code
	rt.Partitions = []kmsg.MetadataResponseTopicPartition{}
	if name != nil {
		rt.IsInternal = internalTopic(*name)
	}
	return rt
}

func (s *API) topicMetadata(p *Peer, pic *metadata.Picture, t *metadata.Topic, req *kmsg.MetadataRequest) kmsg.MetadataResponseTopic {
	rt := metadataTopic(kmsg.StringPtr(t.Name), t.ID, 0)
	if req.Version >= 8 && req.IncludeTopicAuthorizedOperations {
		rt.AuthorizedOperations = s.authorizedOperations(p, auth.Topic, t.Name)
	}
	rt.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(t.Partitions))
	for n := range t.Partitions {
		part := &t.Partitions[n]
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition = int32(n)
		rp.Leader, rp.LeaderEpoch = part.Leader, part.LeaderEpoch
		rp.Replicas, rp.ISR = ints(part.Replicas), ints(part.ISR)
		rp.OfflineReplicas = offlineReplicas(p, pic, part)
		rp.ErrorCode = leaderCode(p, pic, part, req.Version >= 6)
		if rp.ErrorCode != 0 {
			rp.Leader = -1
		}
		if req.Version == 0 {
			if gone := func(id int32) bool { return slices.Contains(rp.OfflineReplicas, id) }; len(rp.OfflineReplicas) > 0 {
				rp.Replicas, rp.ISR = slices.DeleteFunc(rp.Replicas, gone), slices.DeleteFunc(rp.ISR, gone)
				if rp.ErrorCode == 0 {
					rp.ErrorCode = kerr.ReplicaNotAvailable.Code
				}
			}
		}
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}
