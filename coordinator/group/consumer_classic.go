package group

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// classicSide is what a consumer group keeps of a member that speaks the classic protocol
// (Kafka: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata). It is not changed.
type classicSide struct {
	session   time.Duration
	protocols []Protocol // never empty; the first one is the member's
}

func (c *classicSide) equal(o *classicSide) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.session == o.session && slices.EqualFunc(c.protocols, o.protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}

func (c *classicSide) has(name string) bool {
	return slices.ContainsFunc(c.protocols, func(p Protocol) bool { return p.Name == name })
}

// appendClassic writes it as the body of its tag.
func appendClassic(b []byte, c *classicSide) []byte {
	b = kbin.AppendInt32(append(b, 1), millis(c.session)) // 1: it is not null
	b = kbin.AppendCompactArrayLen(b, len(c.protocols))
	for _, p := range c.protocols {
		b = kbin.AppendCompactString(b, p.Name)
		b = append(kbin.AppendCompactBytes(b, p.Metadata), 0)
	}
	return append(b, 0)
}

// readClassic reads what appendClassic writes; nil for a member of the consumer protocol.
func readClassic(body []byte) (*classicSide, error) {
	if len(body) == 0 || body[0] == 0 {
		return nil, nil
	}
	r := consumerReader{kbin.Reader{Src: body[1:]}}
	c := &classicSide{session: duration(r.Int32())}
	for n := r.CompactArrayLen(); n > 0 && r.Ok(); n-- {
		p := Protocol{Name: r.CompactString(), Metadata: slices.Clone(r.CompactBytes())}
		r.tags(nil)
		c.protocols = append(c.protocols, p)
	}
	r.tags(nil)
	if err := r.done(); err != nil {
		return nil, err
	}
	if len(c.protocols) == 0 {
		return nil, errMalformed
	}
	return c, nil
}

// subscription is what a classic member tells of itself (ConsumerProtocolSubscription).
type subscription struct {
	topics []string // ascending
	rack   *string  // nil: none is told
	owned  []kmsg.ConsumerMemberMetadataOwnedPartition
}

// errUserData is for an assignment of an assignor that tells its members more than partitions.
var errUserData = errors.New("the assignment has user data, which would be lost")

// readSubscription reads a subscription; of versions that are not known, what 3 has.
func readSubscription(b []byte) (subscription, error) {
	var v kmsg.ConsumerMemberMetadata
	if err := v.ReadFrom(b); err != nil {
		return subscription{}, err
	}
	topics := slices.Clone(v.Topics)
	slices.Sort(topics)
	s := subscription{topics: slices.Compact(topics), owned: v.OwnedPartitions}
	if v.Rack != nil && *v.Rack != "" {
		s.rack = v.Rack
	}
	return s, nil
}

// partitions are those that the member says to have, of topics that are there. Never nil: a classic
// member always says.
func (s subscription) partitions(cluster Topics) Assignment {
	a := Assignment{}
	for _, t := range s.owned {
		a.put(cluster, t.Topic, t.Partitions)
	}
	return a
}

// put adds partitions of a topic, those that are there.
func (a Assignment) put(cluster Topics, topic string, partitions []int32) {
	if cluster == nil {
		return
	}
	id, n, ok := cluster.Topic(topic)
	if !ok {
		return
	}
	var more []int32
	for _, p := range partitions {
		if p >= 0 && p < n && !a.has(id, p) {
			more = append(more, p)
		}
	}
	if len(more) > 0 {
		all := slices.Concat(a[id], more)
		slices.Sort(all)
		a[id] = slices.Compact(all)
	}
}

// readAssigned reads a ConsumerProtocolAssignment; no bytes are no partitions.
func readAssigned(b []byte, cluster Topics) (Assignment, error) {
	a := Assignment{}
	if len(b) == 0 {
		return a, nil
	}
	var v kmsg.ConsumerMemberAssignment
	if err := v.ReadFrom(b); err != nil {
		return nil, err
	}
	if len(v.UserData) > 0 {
		return nil, errUserData
	}
	for _, t := range v.Topics {
		a.put(cluster, t.Topic, t.Partitions)
	}
	return a, nil
}

// appendAssigned writes a ConsumerProtocolAssignment in the version of the member's metadata.
// Topics whose name is not known, as they are gone, are left out.
func appendAssigned(a Assignment, metadata []byte, names func(TopicID) (string, bool)) []byte {
	v := kmsg.NewConsumerMemberAssignment()
	if len(metadata) >= 2 {
		v.Version = min(int16(metadata[0])<<8|int16(metadata[1]), 3)
	}
	byName := map[string][]int32{}
	for id, partitions := range a {
		if name, ok := names(id); ok {
			byName[name] = partitions
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		t := kmsg.NewConsumerMemberAssignmentTopic()
		t.Topic, t.Partitions = name, byName[name]
		v.Topics = append(v.Topics, t)
	}
	return v.AppendTo(nil)
}

// names finds the names of the topics that a group reads.
func (c *consumerGroup) names(cluster Topics) func(TopicID) (string, bool) {
	var all map[TopicID]string
	return func(id TopicID) (string, bool) {
		if cluster == nil {
			return "", false
		}
		if all == nil {
			all = map[TopicID]string{}
			note := func(topics []string) {
				for _, name := range topics {
					if tid, _, ok := cluster.Topic(name); ok {
						all[tid] = name
					}
				}
			}
			for _, m := range c.members {
				note(m.topics)
			}
			for _, topics := range c.regexes {
				note(topics)
			}
			if _, ok := all[id]; !ok { // of a subscription that was changed since
				for name := range cluster.Names() {
					tid, _, _ := cluster.Topic(name)
					all[tid] = name
				}
			}
		}
		name, ok := all[id]
		return name, ok
	}
}
