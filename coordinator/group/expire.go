package group

import (
	"cmp"
	"slices"
	"strings"

	"ottla/coordinator"
)

// Sweep forgets offsets whose time is up (offsets.retention.minutes) and groups that have
// neither members nor offsets (Kafka: OffsetMetadataManager.cleanupExpiredOffsets, KIP-211).
func (m *Machine) Sweep(now coordinator.Instant) coordinator.Effects {
	var gone []place
	var groups []string
	for _, g := range m.sorted() {
		expired, all := m.expired(now, g)
		gone = append(gone, expired...)
		if all && g.empty() && len(g.pending) == 0 && !m.hasOpen(g.id) {
			groups = append(groups, g.id)
		}
	}
	return m.tombstones(gone, groups, &m.stats.Expired)
}

// expired lists the offsets of a group whose time is up; all: it has no others. Offsets that
// came with their own time of expiry go then. Of the others, those of an empty group go when
// it has been empty for the retention; those of a simple group, which has no members ever, and
// those of a stable consumer group for topics that it does not read, when they were committed
// so long ago. Any other group keeps its offsets.
func (m *Machine) expired(now coordinator.Instant, g *group) (gone []place, all bool) {
	if len(g.offsets) == 0 {
		return nil, true
	}
	var since func(offset) int64
	committed := func(o offset) int64 { return o.committed }
	switch {
	case g.protocolType == "": // also of consumer groups
		since = committed
	case g.state == Empty && g.since >= 0:
		since = func(offset) int64 { return g.since }
	case g.state == Empty: // a record of before 2.1 does not say since when
		since = committed
	case g.state == Stable && g.protocolType == consumerProtocol && g.topics != nil:
		since = committed
	default:
		return nil, false
	}
	retention := m.options().Retention.Milliseconds()
	all = true
	for topic, partitions := range g.offsets { // many, of which few have expired: those alone are put in order
		for partition, o := range partitions {
			p := place{g.id, topic, partition}
			over := now.Wall-since(o) >= retention
			if o.expires >= 0 {
				over = now.Wall >= o.expires
			}
			if over && !g.subscribes(topic) && !m.isOpen(p) {
				gone = append(gone, p)
			} else {
				all = false
			}
		}
	}
	slices.SortFunc(gone, comparePlaces)
	return gone, all
}

func comparePlaces(a, b place) int {
	return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
}
