package controller

import (
	"slices"

	"ottla/broker/metadata"
	"ottla/broker/registry"
	"ottla/compat"
)

// newID is a topic id that no topic has. None begins with a dash, as Kafka's.
func (c *cluster) newID(r rules) metadata.ID {
	for {
		if id := metadata.ID(r.newID()); id.String()[0] != '-' && c.names[id] == "" {
			return id
		}
	}
}

// identify gives a topic that has no id in the tree the one that it had before, or a new one
// (KafkaController.processTopicIds). Tools of before Kafka 2.8 make topics without an id, and drop
// the id of a topic that they add partitions to; by that node Kafka would give the topic another one at the
// next fail-over, which no replica takes.
func (s *step) identify(c *cluster, r rules, t *topic, before metadata.ID) {
	if t.id != (metadata.ID{}) {
		return
	}
	next := *t
	next.partitions = slices.Clone(t.partitions)
	if next.id = before; before == (metadata.ID{}) {
		next.id = c.newID(r)
	}
	s.ops = append(s.ops, registry.Set(compat.PathTopic(t.name), next.node().Encode(), t.version))
	next.version++
	s.topics = append(s.topics, &next)
}
