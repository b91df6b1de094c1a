package api

import (
	"context"
	"errors"

	"ottla/broker/auth"
	"ottla/broker/controller"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
)

// mayCreate says whether the peer may create a topic: by a right on the cluster or on the topic.
func (s *API) mayCreate(p *Peer, name string) bool {
	return s.allowed(p, auth.Create, auth.Cluster, auth.ClusterName) || s.allowed(p, auth.Create, auth.Topic, name)
}

// ensureTopic creates a topic that is missing, as a look-up with auto.create.topics.enable does
// (AutoTopicCreationManager): the topics of coordinators with settings of their own, others with the
// broker's defaults, of replicas never more than there are brokers.
func (s *API) ensureTopic(ctx context.Context, name string) error {
	if s.Meta.Load().Topics[name] != nil {
		return nil
	}
	switch name {
	case group.Topic:
		return s.Groups.EnsureTopic(ctx)
	case txn.Topic:
		return s.Txns.EnsureTopic(ctx)
	}
	return s.MakeTopic(ctx, controller.NewTopic{Name: name, Partitions: -1, Replication: int16(s.Config.Broker().DefaultReplicationFactor)})
}

// MakeTopic creates a topic for somebody who only wants it to be there: one that is there already
// is no error, and it gets as many of its replicas as there are brokers alive.
func (s *API) MakeTopic(ctx context.Context, nt controller.NewTopic) error {
	nt.Replication = int16(min(int(nt.Replication), max(1, len(s.Meta.Load().Brokers))))
	err := s.Control.CreateTopics(ctx, []controller.NewTopic{nt}, false)[0].Err
	if errors.Is(err, controller.ErrTopicExists) {
		return nil
	}
	return err
}
