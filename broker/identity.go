package broker

import (
	"errors"
	"fmt"
	"slices"

	"ottla/broker/config"
	"ottla/broker/registry"
	"ottla/compat"
	"ottla/log"
)

// errNoID: this broker's id is a guess, and the registry belies it.
var errNoID = errors.New("nothing says which broker this is")

// identity holds the broker's id against the replicas that the registry has. Where meta.properties has
// lost its id and no setting has one, the default would be a broker without any replica, and would be
// written down. It comes before that. The first topic that is met says it, as a rule.
func (b *Broker) identity(dirs *log.Dirs, settings *config.Broker) error {
	topics, _, err := b.tree.Children(compat.PathTopics, nil)
	if err != nil && !errors.Is(err, registry.ErrNoNode) {
		return fmt.Errorf("look for topics: %w", err)
	}
	other := int32(-1)
	for _, name := range topics {
		data, _, err := b.tree.Get(compat.PathTopic(name), nil)
		if err != nil {
			return fmt.Errorf("look at topic %s: %w", name, err)
		}
		topic, err := compat.DecodeTopic(data)
		if err != nil {
			continue // the controller tells it
		}
		for _, replicas := range topic.Partitions {
			if slices.Contains(replicas, settings.ID) {
				return nil
			}
			if len(replicas) > 0 {
				other = replicas[0]
			}
		}
	}
	switch {
	case other < 0:
		return nil
	case settings.IDSet || dirs.BrokerID() >= 0:
		b.log.Warn("no replica in the registry is of this broker", "broker", settings.ID, "replicasOf", other)
		return nil
	}
	return fmt.Errorf("%w: no meta.properties and no setting has its id, and the replicas in the registry are of broker %d; restore meta.properties, or set broker.id=%d", errNoID, other, other)
}
