package broker

import (
	"context"
	"errors"
	"fmt"

	"ottla/broker/registry"
	"ottla/broker/replica"
	"ottla/compat"
	"ottla/log"
)

// loadLogs opens the logs that the start cannot do without: all after a stop that was not clean, and
// all where topics have to be made of them. Coordinators open theirs as they load.
func (b *Broker) loadLogs() error {
	topics, err := b.tree.Exists(compat.PathTopics, nil)
	if err != nil && !errors.Is(err, registry.ErrNoNode) {
		return fmt.Errorf("look for topics: %w", err)
	}
	if topics.NumberOfNodes == 0 || b.adopted != nil {
		return b.logs.Load()
	}
	return b.logs.LoadUnclean()
}

// settle opens the logs that the start left for later, and tells the controller which it cannot
// count on. A log of another topic's id than that which has its name is set aside.
func (b *Broker) settle(ctx context.Context) error {
	var stray, failed []replica.Key
	for k, err := range b.replicas.Settle(ctx) {
		if errors.Is(err, log.ErrTopicID) && b.controller.Active() {
			stray = append(stray, k)
		} else {
			failed = append(failed, k)
		}
	}
	if len(failed) > 0 {
		b.lookAgain(ctx, failed)
	}
	return b.setAside(ctx, stray)
}
