package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ottla/broker/auth"
	"ottla/broker/controller"
	"ottla/broker/metadata"
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
	if s.Maker != nil && errors.Is(err, controller.ErrNotController) { // it is elsewhere
		if err = s.Maker.CreateTopic(ctx, nt); err == nil || errors.Is(err, controller.ErrTopicExists) {
			return s.untilKnown(ctx, nt.Name)
		}
	}
	if errors.Is(err, controller.ErrTopicExists) {
		return nil
	}
	return err
}

// TopicMaker makes a topic on the controller, wherever that is.
type TopicMaker interface {
	CreateTopic(ctx context.Context, nt controller.NewTopic) error
}

// patience is how long a topic that another broker has made is waited for.
const patience = 5 * time.Second

// untilKnown waits until a topic is in the picture that this broker has of the cluster.
func (s *API) untilKnown(ctx context.Context, name string) error {
	if !s.awaitPicture(ctx, patience, func(pic *metadata.Picture) bool { return pic.Topics[name] != nil }) {
		return fmt.Errorf("topic %s was made, and this broker has not heard of it: %w", name, controller.ErrTimedOut)
	}
	return nil
}
