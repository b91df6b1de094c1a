package controller

import (
	"context"
	"maps"
	"slices"
	"sync"

	"ottla/broker/metadata"
)

// Own is this broker as controllers reach it: its own by a call, those of other brokers through
// the API of the inter-broker requests. It fences them, keeps the picture, and hands replicas on.
type Own struct {
	Meta *metadata.Holder
	// Epoch is that of this broker's registration (Controller.BrokerEpoch); -1: not known yet.
	Epoch func() int64
	// Lead makes this broker the leader or follower of partitions, and creates their logs. What
	// it does not name has succeeded; ErrReplicaStorage marks a failed directory.
	Lead func(context.Context, *LeaderAndIsr) []PartitionError
	// Known hears which brokers are alive, before the picture shows it. Nil: nobody does.
	Known func([]metadata.Broker)
	// Stop stops replicas, and deletes the logs of those that say so.
	Stop func(context.Context, *StopReplica) []PartitionError

	mu         sync.Mutex // held across Lead and Stop: requests take effect one after the other
	controller int32      // guarded by mu: epoch of the last one heard
}

// fence refuses what an old controller sends, or what was meant for an earlier life of this
// broker (KafkaApis.handleLeaderAndIsrRequest and its neighbours).
func (o *Own) fenceLocked(f Fence) error {
	if o.Epoch != nil {
		if epoch := o.Epoch(); epoch >= 0 && f.BrokerEpoch >= 0 && f.BrokerEpoch < epoch {
			return ErrStaleBrokerEpoch
		}
	}
	if f.ControllerEpoch < o.controller {
		return ErrStaleControllerEpoch
	}
	o.controller = f.ControllerEpoch
	return nil
}

// LeaderAndIsr implements Broker.
func (o *Own) LeaderAndIsr(ctx context.Context, r *LeaderAndIsr) ([]PartitionError, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.fenceLocked(r.Fence); err != nil {
		return nil, err
	}
	return o.Lead(ctx, r), nil
}

// StopReplica implements Broker.
func (o *Own) StopReplica(ctx context.Context, r *StopReplica) ([]PartitionError, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.fenceLocked(r.Fence); err != nil {
		return nil, err
	}
	return o.Stop(ctx, r), nil
}

// UpdateMetadata implements Broker.
func (o *Own) UpdateMetadata(_ context.Context, r *UpdateMetadata) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.fenceLocked(r.Fence); err != nil {
		return err
	}
	if o.Known != nil {
		o.Known(r.Brokers)
	}
	o.Meta.Store(ApplyMetadata(o.Meta.Load(), r))
	return nil
}

// ApplyMetadata makes the picture that follows from a request, as ZkMetadataCache.updateMetadata:
// live brokers and controller are replaced, partitions that are named take their new state, and
// those with the leader LeaderGoing take their topic away. What has not changed is shared.
func ApplyMetadata(p *metadata.Picture, r *UpdateMetadata) *metadata.Picture {
	next := *p
	next.Controller, next.Brokers = r.ControllerID, r.Brokers
	if len(r.Partitions) == 0 {
		return &next
	}
	next.Topics, next.ByID = maps.Clone(p.Topics), maps.Clone(p.ByID)
	fresh := map[string]*metadata.Topic{} // made here, so still open for changes
	for i := range r.Partitions {
		s := &r.Partitions[i]
		t := fresh[s.Topic]
		if s.Leader == LeaderGoing {
			if old := next.Topics[s.Topic]; old != nil {
				delete(next.Topics, s.Topic)
				delete(next.ByID, old.ID)
			}
			delete(fresh, s.Topic)
			continue
		}
		if t == nil {
			t = &metadata.Topic{Name: s.Topic, ID: s.ID}
			if old := next.Topics[s.Topic]; old != nil {
				if old.ID == s.ID {
					t.Partitions = slices.Clone(old.Partitions)
				} else {
					delete(next.ByID, old.ID) // the topic was deleted and made again
				}
			}
			fresh[s.Topic], next.Topics[s.Topic] = t, t
			if s.ID != (metadata.ID{}) {
				next.ByID[s.ID] = t
			}
		}
		for int(s.Partition) >= len(t.Partitions) {
			t.Partitions = append(t.Partitions, metadata.Partition{Leader: NoLeader, LeaderEpoch: -1})
		}
		t.Partitions[s.Partition] = metadata.Partition{
			Leader: s.Leader, LeaderEpoch: s.LeaderEpoch, Replicas: s.Replicas, ISR: s.ISR,
			Adding: s.Adding, Removing: s.Removing, Offline: s.Offline,
		}
	}
	return &next
}
