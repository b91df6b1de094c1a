package api

import (
	"context"
	"errors"

	"ottla/broker/auth"
	"ottla/broker/controller"
	"ottla/coordinator/group"
)

// mayCreate says whether the peer may create a topic: by a right on the cluster or on the topic.
func (s *API) mayCreate(p *Peer, name string) bool {
	return s.allowed(p, auth.Create, auth.Cluster, auth.ClusterName) || s.allowed(p, auth.Create, auth.Topic, name)
}

// ensureTopic creates a topic that is missing, as a look-up with auto.create.topics.enable does
// (AutoTopicCreationManager): the topic of groups with settings of its own, others with the
// broker's defaults.
func (s *API) ensureTopic(ctx context.Context, name string) error {
	if s.Meta.Load().Topics[name] != nil {
		return nil
	}
	if name == group.Topic {
		return s.Groups.EnsureTopic(ctx)
	}
	nt := controller.NewTopic{Name: name, Partitions: -1, Replication: -1}
	err := s.Control.CreateTopics(ctx, []controller.NewTopic{nt}, false)[0].Err
	if errors.Is(err, controller.ErrTopicExists) {
		return nil
	}
	return err
}
