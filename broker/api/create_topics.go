package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/broker/controller"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// createTopics checks names and settings of new topics and has the controller create them.
//
// Versions: 1 validate only and messages; 4 defaults by -1; 5 flexible, the answer has partitions,
// replicas and settings; 7 topic ids. The topic is led and in every answer when this returns.
func (s *API) createTopics(ctx context.Context, p *Peer, req *kmsg.CreateTopicsRequest) (*kmsg.CreateTopicsResponse, error) {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	times := make(map[string]int, len(req.Topics))
	for _, t := range req.Topics {
		times[t.Topic]++
	}
	resp.Topics = make([]kmsg.CreateTopicsResponseTopic, 0, len(times))
	var news []controller.NewTopic
	var at []int // index in resp.Topics of each of news
	for i := range req.Topics {
		t := &req.Topics[i]
		n := times[t.Topic]
		if n == 0 {
			continue // a duplicate that has its entry
		}
		times[t.Topic] = 0
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = t.Topic, -1, -1
		rt.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
		nt, err := s.newTopic(t)
		switch {
		case n > 1:
			rt.ErrorCode, rt.ErrorMessage = kerr.InvalidRequest.Code, kmsg.StringPtr("Found multiple entries for this topic.")
		case t.Topic == "__cluster_metadata":
			rt.ErrorCode, rt.ErrorMessage = kerr.InvalidRequest.Code, kmsg.StringPtr("Creation of internal topic __cluster_metadata is prohibited.")
		case !s.mayCreate(p, t.Topic):
			rt.ErrorCode, rt.ErrorMessage = kerr.TopicAuthorizationFailed.Code, kmsg.StringPtr("Authorization failed.")
		case err != nil:
			rt.ErrorCode, rt.ErrorMessage = code(ctx, err), message(err)
		default:
			news, at = append(news, nt), append(at, len(resp.Topics))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	for i, r := range s.Control.CreateTopics(ctx, news, req.ValidateOnly && req.Version >= 1) {
		rt := &resp.Topics[at[i]]
		if r.Err != nil {
			rt.ErrorCode, rt.ErrorMessage = code(ctx, r.Err), message(r.Err)
			continue
		}
		rt.TopicID, rt.NumPartitions, rt.ReplicationFactor = r.ID, r.Partitions, r.Replication
		if req.Version < 5 {
			continue
		}
		if !s.allowed(p, auth.DescribeConfigs, auth.Topic, rt.Topic) {
			rt.ConfigErrorCode, rt.NumPartitions, rt.ReplicationFactor = kerr.TopicAuthorizationFailed.Code, -1, -1
			continue
		}
		for _, e := range s.Config.DescribeNewTopic(news[i].Configs) {
			c := kmsg.NewCreateTopicsResponseTopicConfig()
			c.Name, c.Value, c.ReadOnly, c.Source, c.IsSensitive = e.Name, e.Value, e.ReadOnly, int8(e.Source), e.Sensitive
			rt.Configs = append(rt.Configs, c)
		}
	}
	return resp, nil
}

// newTopic is a topic of a request as the controller takes it. What concerns the request alone
// is checked here, what concerns the cluster by the controller.
func (s *API) newTopic(t *kmsg.CreateTopicsRequestTopic) (controller.NewTopic, error) {
	nt := controller.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, Replication: t.ReplicationFactor}
	if err := controller.CheckTopicName(t.Topic); err != nil {
		return nt, err
	}
	if len(t.ReplicaAssignment) > 0 {
		if t.NumPartitions != -1 {
			return nt, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
		}
		if t.ReplicationFactor != -1 {
			return nt, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
		}
		numbers := make([]int32, len(t.ReplicaAssignment))
		replicas := make([][]int32, len(t.ReplicaAssignment))
		for i, a := range t.ReplicaAssignment {
			numbers[i], replicas[i] = a.Partition, ints(a.Replicas)
		}
		var err error
		if nt.Assignment, err = controller.OrderAssignment(numbers, replicas); err != nil {
			return nt, err
		}
	}
	nt.Configs = make(map[string]string, len(t.Configs))
	for _, c := range t.Configs {
		if c.Value == nil {
			return nt, refuse(kerr.InvalidConfig, "Null value not supported for topic configs: %s", c.Name)
		}
		nt.Configs[c.Name] = *c.Value
	}
	return nt, s.Config.CheckTopic(nt.Configs)
}
