package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ottla/broker/adopt"
	"ottla/broker/config"
	"ottla/broker/registry"
	"ottla/compat"
	"ottla/log"
	"ottla/log/vfs"
)

// takeOver fills a new registry with what a Kafka in KRaft mode has left in __cluster_metadata:
// topics with their ids and settings, users, ACLs, quotas. It is one transaction, and what makes
// it once only is that it makes nodes which no start goes without. Metadata that are broken, or older than
// the logs, leave the topics to be made of the logs, see orphans; the metadata's files are only read.
func (b *Broker) takeOver(fs vfs.FS, dirs *log.Dirs, settings *config.Broker, cluster string) error {
	if id := dirs.BrokerID(); b.opts.InMemory || id >= 0 && id != settings.ID { // the latter cannot start, and OpenManager says why
		return nil
	}
	switch _, err := b.tree.Exists(compat.PathTopics, nil); {
	case err == nil:
		return nil
	case !errors.Is(err, registry.ErrNoNode):
		return err
	}
	places := slices.Clone(settings.LogDirs)
	if d := settings.MetadataLogDir; d != "" && !slices.Contains(places, d) {
		places = slices.Insert(places, 0, d)
	}
	image, from, err := adopt.Read(fs, places, cluster)
	switch {
	case errors.Is(err, adopt.ErrBroken):
		b.log.Warn("the cluster metadata of Kafka's KRaft mode cannot be read, so topics are made of the logs alone: their settings, users, ACLs and quotas are not known", "dir", from, "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("cluster metadata of Kafka's KRaft mode in %s: %w", from, err)
	case image == nil:
		return nil
	}
	plan := image.Plan(fs, settings.LogDirs, settings.ID, newestFeatures())
	if len(plan.Newer) > 0 { // it was taken over once, and the registry has been lost since
		b.log.Warn("the cluster metadata of Kafka's KRaft mode are older than the logs, which others have led since; topics are made of the logs alone: their settings, users, ACLs and quotas are not known",
			"dir", from, "topics", plan.Newer)
		return nil
	}
	ops := make([]registry.Op, len(plan.Nodes))
	for i, n := range plan.Nodes {
		ops[i] = registry.Create(n.Path, n.Data, registry.Persistent)
	}
	if _, err := b.tree.Multi(ops...); err != nil {
		return fmt.Errorf("take over the cluster metadata of %s: %w", from, err)
	}
	b.adopted = plan.IDs
	b.log.Info("found a data directory of Kafka in KRaft mode and took its cluster metadata over",
		"dir", from, "snapshot", image.From, "offset", image.Offset, "topics", plan.Topics, "partitions", plan.Partitions,
		"settings", plan.Settings, "users", plan.Users, "acls", plan.ACLs, "quotas", plan.Quotas)
	if len(plan.Lost)+plan.Empty > 0 || image.Torn {
		b.log.Warn("not all of the cluster metadata was taken over as it was", "lost", plan.Lost, "partitionsWithoutLog", plan.Empty,
			"topicsOfOtherBrokers", plan.Elsewhere, "unfinishedAppend", image.Torn)
	}
	return nil
}

// strangers sets aside logs of topics that had a name before the topic which the metadata know by
// it, before that is led. Kafka had not come to remove them.
func (b *Broker) strangers() error {
	if b.adopted == nil {
		return nil
	}
	for l := range b.logs.Logs() {
		if id, ok := b.adopted[l.Topic()]; ok && l.TopicID() != id && l.TopicID() != [16]byte{} {
			if err := b.logs.Stray(l.Topic(), l.Partition()); err != nil {
				return fmt.Errorf("set aside a log of another topic: %w", err)
			}
		}
	}
	return nil
}

// reserveProducers sees to it that no producer id of a log is given out again.
func (b *Broker) reserveProducers(ctx context.Context) error {
	highest := int64(-1)
	for l := range b.logs.Logs() {
		for _, p := range l.Producers() {
			highest = max(highest, p.ID)
		}
	}
	if err := b.controller.ReserveProducerIDs(ctx, highest); err != nil {
		return fmt.Errorf("producer ids above those of the logs: %w", err)
	}
	return nil
}
