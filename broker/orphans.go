package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"ottla/broker/controller"
	"ottla/broker/metadata"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/log"
)

// metadataTopic is KRaft's own log. It lies among the partitions and is none of a topic.
const metadataTopic = "__cluster_metadata"

// orphans looks for logs that no topic of the registry has.
//
// A registry without any topic is a new one over data that are not: its file was lost, or the
// directory comes from a Kafka whose metadata were elsewhere. Then the topics are made of the
// logs, with their ids. What settings they had is not known, so they keep everything until
// somebody sets a retention.
//
// Beside topics that are known such a log is what is left of a topic that is gone. Nobody can
// read it, and it would be in the way of a new topic of its name, so it is set aside as Kafka
// does (-stray) and kept.
func (b *Broker) orphans(ctx context.Context) error {
	if !b.controller.Active() {
		return nil // what there is comes from the controller, and perhaps later
	}
	pic := b.meta.Load()
	found := map[string][]*log.Log{}
	for l := range b.logs.Logs() {
		if l.Topic() != metadataTopic && !known(pic, l) {
			found[l.Topic()] = append(found[l.Topic()], l)
		}
	}
	if len(found) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(found))
	if len(pic.Topics) == 0 {
		return b.adopt(ctx, names, found)
	}
	count := 0
	for _, name := range names {
		for _, l := range found[name] {
			if err := b.logs.Stray(name, l.Partition()); err != nil {
				return fmt.Errorf("set aside a log that no topic has: %w", err)
			}
			count++
		}
	}
	b.log.Warn("set aside logs that no topic of the registry has; their directories end in -stray", "partitions", count, "topics", names)
	return nil
}

// adopt makes topics of logs, and sees to it that their producers' ids are not given out again.
func (b *Broker) adopt(ctx context.Context, names []string, found map[string][]*log.Log) error {
	self := b.config.Broker().ID
	topics := make([]controller.NewTopic, 0, len(names))
	producer := int64(-1)
	for _, name := range names {
		t := controller.NewTopic{Name: name, Partitions: -1, Replication: -1, ID: found[name][0].TopicID()}
		for _, l := range found[name] {
			for int(l.Partition()) >= len(t.Assignment) {
				t.Assignment = append(t.Assignment, []int32{self})
			}
			t.LeaderEpoch = max(t.LeaderEpoch, l.LastEpoch()+1)
			for _, p := range l.Producers() {
				producer = max(producer, p.ID)
			}
		}
		switch name {
		case group.Topic:
			t.Configs = b.groups.TopicConfig()
		case txn.Topic:
			t.Configs = b.txns.TopicConfig()
		default: // what its settings were is not known, and retention must not guess
			t.Configs = map[string]string{"retention.ms": "-1", "retention.bytes": "-1"}
		}
		topics = append(topics, t)
	}
	if err := b.controller.ReserveProducerIDs(ctx, producer); err != nil {
		return fmt.Errorf("producer ids above those of the logs: %w", err)
	}
	partitions := 0
	for _, r := range b.controller.CreateTopics(ctx, topics, false) {
		if r.Err != nil {
			b.log.Error("no topic made of the logs that are there", "topic", r.Name, "err", r.Err)
			continue
		}
		partitions += int(r.Partitions)
	}
	b.log.Warn("the registry had no topics, so they were made of the logs that are there; the settings that they had are not known: they keep everything (retention.ms and retention.bytes are -1), all else is the default",
		"topics", len(topics), "partitions", partitions)
	return nil
}

// known says whether the picture has a topic by the id of a log.
func known(pic *metadata.Picture, l *log.Log) bool {
	t := pic.Topics[l.Topic()]
	return t != nil && (t.ID == l.TopicID() || l.TopicID() == [16]byte{})
}
