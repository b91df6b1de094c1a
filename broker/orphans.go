package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ottla/broker/adopt"
	"ottla/broker/controller"
	"ottla/broker/metadata"
	"ottla/broker/replica"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/log"
)

// orphans looks for logs that no topic of the registry has.
//
// A registry without any topic is a new one over data that are not: its file was lost, or the
// directory comes from a Kafka whose metadata were elsewhere, as those of ZooKeeper are. Then the
// topics are made of the logs, with their ids. What settings they had is not known, so they keep
// everything until somebody sets a retention.
//
// Beside topics that are known, also by takeOver, such a log is what is left of a topic that is gone:
// a Kafka that was killed may not have come to remove it. Nobody can read it, and it would be in the way of a new topic of its name, so it is set aside as Kafka
// does (-stray) and kept.
func (b *Broker) orphans(ctx context.Context) error {
	if !b.controller.Active() {
		return nil // what there is comes from the controller, and perhaps later
	}
	if b.adopted != nil {
		if err := b.reserveProducers(ctx); err != nil {
			return err
		}
	}
	defer func() { b.adopted = nil }()
	pic := b.meta.Load()
	found, stray := map[string][]*log.Log{}, []replica.Key{}
	for l := range b.logs.Logs() {
		switch {
		case known(pic, l):
		case l.Partition() >= controller.MaxPartitions:
			b.log.Error("leaving a log alone that no topic has, for its topic would have more partitions than are allowed", "topic", l.Topic(), "partition", l.Partition())
		case len(pic.Topics) == 0:
			found[l.Topic()] = append(found[l.Topic()], l)
		default:
			stray = append(stray, replica.Key{Topic: l.Topic(), Partition: l.Partition()})
		}
	}
	for topic, partition := range b.logs.Rest() { // whose ids are compared when they are opened
		if pic.Partition(topic, partition) == nil {
			stray = append(stray, replica.Key{Topic: topic, Partition: partition})
		}
	}
	if len(found) > 0 {
		if err := b.adopt(ctx, slices.Sorted(maps.Keys(found)), found); err != nil {
			return err
		}
	}
	return b.setAside(ctx, stray)
}

// setAside keeps logs under names that end in -stray. Partitions that have their names are made anew.
func (b *Broker) setAside(ctx context.Context, stray []replica.Key) error {
	if len(stray) == 0 {
		return nil
	}
	var names []string
	for _, k := range stray {
		if err := b.logs.Stray(k.Topic, k.Partition); err != nil {
			return fmt.Errorf("set aside a log that no topic has: %w", err)
		}
		names = append(names, k.Topic)
	}
	slices.Sort(names)
	b.log.Warn("set aside logs that no topic of the registry has; their directories end in -stray", "partitions", len(stray), "topics", slices.Compact(names))
	b.lookAgain(ctx, stray)
	return nil
}

// errDirMissing: partitions that lie in a directory which does not work would be made a second time
// elsewhere, and the next start would have both.
var errDirMissing = errors.New("topics have to be made of the logs that are there, and a log directory does not work")

// adopt makes topics of logs, and sees to it that their producers' ids are not given out again.
func (b *Broker) adopt(ctx context.Context, names []string, found map[string][]*log.Log) error {
	for _, d := range b.logs.Dirs() {
		if d.Err != nil {
			return fmt.Errorf("%w: %w", errDirMissing, d.Err)
		}
	}
	self := b.config.Broker().ID
	dirs := b.config.Broker().LogDirs
	compacted := adopt.Compacted(b.fs, dirs)
	var compact []string
	old, without := 0, 0
	topics := make([]controller.NewTopic, 0, len(names))
	ids := map[metadata.ID]string{}
	for name, t := range b.meta.Load().Topics {
		ids[t.ID] = name
	}
	for _, name := range names {
		if err := b.distinct(ids, name, found[name]); err != nil {
			return err
		}
		t := controller.NewTopic{Name: name, Partitions: -1, Replication: -1}
		for _, l := range found[name] {
			for int(l.Partition()) >= len(t.Assignment) {
				t.Assignment = append(t.Assignment, []int32{self})
			}
			t.LeaderEpoch = max(t.LeaderEpoch, l.LastEpoch()+1)
			if t.ID == (metadata.ID{}) {
				t.ID = l.TopicID()
			}
			if adopt.OldFormat(b.fs, dirs, name, l.Partition()) {
				old++
			}
		}
		// Which partition has a group or a transactional id hangs on how many there are. Where some lay
		// elsewhere, the last ones may have too.
		number := 0
		switch name {
		case group.Topic:
			t.Configs, number = b.groups.TopicConfig(), int(b.config.Broker().OffsetsTopicNumPartitions)
		case txn.Topic:
			t.Configs, number = b.txns.TopicConfig(), int(b.config.Broker().TransactionStateLogNumPartitions)
		default: // what its settings were is not known, and retention must not guess
			t.Configs = map[string]string{"retention.ms": "-1", "retention.bytes": "-1"}
			if compacted[name] {
				t.Configs["cleanup.policy"] = "compact"
				compact = append(compact, name)
			}
		}
		for empty := len(t.Assignment) > len(found[name]); empty && len(t.Assignment) < number; {
			t.Assignment = append(t.Assignment, []int32{self})
		}
		without += len(t.Assignment) - len(found[name])
		topics = append(topics, t)
	}
	if err := b.reserveProducers(ctx); err != nil {
		return err
	}
	made, partitions := 0, 0
	for len(topics) > 0 {
		n, count := 1, len(topics[0].Assignment) // as many at once as may be
		for n < len(topics) && count+len(topics[n].Assignment) <= controller.MaxPartitions {
			count += len(topics[n].Assignment)
			n++
		}
		for _, r := range b.controller.CreateTopics(ctx, topics[:n], false) {
			if r.Err != nil {
				b.log.Error("no topic made of the logs that are there", "topic", r.Name, "err", r.Err)
				continue
			}
			made++
			partitions += int(r.Partitions)
		}
		topics = topics[n:]
	}
	b.log.Warn("the registry did not have the topics of these logs, so they were made of what is there; the settings that they had are not known: they keep everything (retention.ms and retention.bytes are -1), those that a cleaner has worked on are compacted on, all else is the default",
		"topics", made, "partitions", partitions, "compacted", compact, "withOldFormats", old, "withoutLog", without)
	return nil
}

// distinct gives logs that have the id of a topic of another name no id, so that their topic gets a new one:
// somebody copied a partition's directory. With the same id clients would get the one's records for the other's.
func (b *Broker) distinct(ids map[metadata.ID]string, name string, logs []*log.Log) error {
	for _, l := range logs {
		id := l.TopicID()
		if id == (metadata.ID{}) {
			continue
		}
		of, taken := ids[id]
		if !taken {
			ids[id] = name
			continue
		}
		if of == name {
			continue
		}
		if err := l.DropTopicID(); err != nil {
			return fmt.Errorf("give %s-%d an id of its own: %w", name, l.Partition(), err)
		}
		b.log.Warn("a log has the id of another topic, and gets a new one: its directory is a copy", "topic", name, "partition", l.Partition(), "idOf", of)
	}
	return nil
}

// known says whether the picture has a topic by the id of a log.
func known(pic *metadata.Picture, l *log.Log) bool {
	t := pic.Topics[l.Topic()]
	return t != nil && (t.ID == l.TopicID() || l.TopicID() == [16]byte{})
}
