package coordinator

import (
	"context"
	"fmt"
	"sync"
)

// TopicMaker makes an internal topic where there is none yet. It returns when the topic can be
// used, or tells why not.
type TopicMaker interface {
	EnsureTopic(ctx context.Context, name string, partitions int32, replication int16, configs map[string]string) error
}

// InternalTopic is the topic whose partitions are the shards of a coordinator. Functions are
// asked anew each time, so that settings can change.
type InternalTopic struct {
	Name       string
	Maker      TopicMaker
	Partitions func() int32    // that it has; 0 while there is no such topic
	New        func() NewTopic // what it is made with

	making sync.Mutex // held while it is made, so that it is asked for once
}

// NewTopic is what an InternalTopic is made with.
type NewTopic struct {
	Partitions  int32
	Replication int16
	Configs     map[string]string
}

// PartitionFor places a key (a group, a transactional id) on a partition. Before there is a
// topic it is that of the topic that is to be made.
func (t *InternalTopic) PartitionFor(key string) int32 {
	n := t.Partitions()
	if n <= 0 {
		n = t.New().Partitions
	}
	return PartitionOf(key, n)
}

// TopicConfig is the settings that the topic is made with.
func (t *InternalTopic) TopicConfig() map[string]string { return t.New().Configs }

// EnsureTopic makes the topic if there is none yet. Its errors wrap ErrNotAvailable.
func (t *InternalTopic) EnsureTopic(ctx context.Context) error {
	if t.Partitions() > 0 {
		return nil
	}
	t.making.Lock()
	defer t.making.Unlock()
	if t.Partitions() > 0 {
		return nil
	}
	n := t.New()
	if err := t.Maker.EnsureTopic(ctx, t.Name, n.Partitions, n.Replication, n.Configs); err != nil {
		return fmt.Errorf("%w: %s can't be made: %w", ErrNotAvailable, t.Name, err)
	}
	return nil
}
