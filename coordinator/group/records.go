package group

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/coordinator"
)

// The records of __consumer_offsets that belong to classic groups and to offsets. The key
// begins with its version, which is also its type: 0 and 1 an offset, 2 a group; Kafka 4 has
// 3 to 8 and others for the newer kinds of group, which are left alone here.
const (
	keyOffsetOld = 0
	keyOffset    = 1
	keyGroup     = 2
)

// Versions written. 3 for groups and 4 for offsets are 4.4's; 4 is flexible, keeps the topic
// id in a tag and is read by every broker since 3.5 (KIP-915). An offset with a retention of
// its own (OffsetCommit v2 to v4) is written in version 1, the only one that can say so.
const (
	groupValueVersion   = 3
	offsetValueVersion  = 4
	offsetValueExpiring = 1
)

var errMalformed = errors.New("malformed record")

// offset is one committed offset.
type offset struct {
	at        int64
	epoch     int32 // leader epoch of the last consumed record, -1 unknown
	metadata  string
	committed int64 // milliseconds since 1970
	expires   int64 // milliseconds since 1970; -1: by offsets.retention.minutes
	topicID   [16]byte
	record    int64 // where it stands in the log
}

// place is what an offset is for.
type place struct {
	group, topic string
	partition    int32
}

func offsetKey(p place) []byte {
	k := kmsg.NewOffsetCommitKey()
	k.Version, k.Group, k.Topic, k.Partition = keyOffset, p.group, p.topic, p.partition
	return k.AppendTo(make([]byte, 0, offsetKeySize+len(p.group)+len(p.topic)))
}

func groupKey(group string) []byte {
	k := kmsg.NewGroupMetadataKey()
	k.Version, k.Group = keyGroup, group
	return k.AppendTo(nil)
}

func offsetRecord(p place, o offset) coordinator.Record {
	v := kmsg.NewOffsetCommitValue()
	v.Version = offsetValueVersion
	v.Offset, v.LeaderEpoch, v.Metadata, v.CommitTimestamp = o.at, o.epoch, o.metadata, o.committed
	v.TopicID = o.topicID
	if o.expires >= 0 {
		v.Version, v.ExpireTimestamp = offsetValueExpiring, o.expires
	}
	return coordinator.Record{Key: offsetKey(p), Value: v.AppendTo(make([]byte, 0, offsetValueSize+len(o.metadata)))}
}

// What the fixed fields of an offset's key, and of its value with a topic id, take: a buffer of that size need not grow.
const (
	offsetKeySize   = 2 + 2 + 2 + 4
	offsetValueSize = 2 + 8 + 4 + 2 + 8 + 20
)

func offsetTombstone(p place) coordinator.Record { return coordinator.Record{Key: offsetKey(p)} }

func groupTombstone(group string) coordinator.Record {
	return coordinator.Record{Key: groupKey(group)}
}

// groupRecord writes a group's generation with an assignment for each member. Members that
// are not in assigned have an empty one.
func groupRecord(g *group, assigned func(*member) []byte) coordinator.Record {
	v := kmsg.NewGroupMetadataValue()
	v.Version = groupValueVersion
	v.ProtocolType, v.Generation, v.Protocol = g.protocolType, g.generation, g.protocol
	if g.leader != "" {
		v.Leader = kmsg.StringPtr(g.leader)
	}
	v.CurrentStateTimestamp = g.since
	for _, m := range g.order {
		e := kmsg.NewGroupMetadataValueMember()
		e.MemberID, e.InstanceID, e.ClientID, e.ClientHost = m.id, m.instance, m.client.ID, m.client.Host
		e.RebalanceTimeoutMillis, e.SessionTimeoutMillis = millis(m.rebalance), millis(m.session)
		e.Subscription = m.metadata(g.protocol)
		e.Assignment = assigned(m)
		v.Members = append(v.Members, e)
	}
	return coordinator.Record{Key: groupKey(g.id), Value: v.AppendTo(nil)}
}

// readKey tells what a key is about; known is false for kinds that are not ours.
func readKey(key []byte) (group string, p place, isOffset, known bool, err error) {
	if len(key) < 2 {
		return "", p, false, false, fmt.Errorf("key of %d bytes: %w", len(key), errMalformed)
	}
	switch int16(key[0])<<8 | int16(key[1]) {
	case keyOffsetOld, keyOffset:
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(key); err != nil {
			return "", p, true, true, fmt.Errorf("key of an offset: %w: %w", errMalformed, err)
		}
		return k.Group, place{k.Group, k.Topic, k.Partition}, true, true, nil
	case keyGroup:
		var k kmsg.GroupMetadataKey
		if err := k.ReadFrom(key); err != nil {
			return "", p, false, true, fmt.Errorf("key of a group: %w: %w", errMalformed, err)
		}
		return k.Group, p, false, true, nil
	}
	return "", p, false, false, nil
}

// readOffset reads the value of an offset, versions 0 to 4.
func readOffset(value []byte) (offset, error) {
	var v kmsg.OffsetCommitValue
	if err := v.ReadFrom(value); err != nil {
		return offset{}, fmt.Errorf("value of an offset: %w: %w", errMalformed, err)
	}
	if v.Version < 0 || v.Version > 4 {
		return offset{}, fmt.Errorf("value of an offset in version %d: %w", v.Version, errMalformed)
	}
	o := offset{at: v.Offset, epoch: -1, metadata: v.Metadata, committed: v.CommitTimestamp, expires: -1, topicID: v.TopicID}
	if v.Version >= 3 {
		o.epoch = v.LeaderEpoch
	}
	if v.Version == 1 {
		o.expires = v.ExpireTimestamp
	}
	return o, nil
}

// readGroup reads the value of a group, versions 0 to 4.
func readGroup(value []byte) (*kmsg.GroupMetadataValue, error) {
	v := kmsg.NewGroupMetadataValue()
	if err := v.ReadFrom(value); err != nil {
		return nil, fmt.Errorf("value of a group: %w: %w", errMalformed, err)
	}
	if v.Version < 0 || v.Version > 4 {
		return nil, fmt.Errorf("value of a group in version %d: %w", v.Version, errMalformed)
	}
	return &v, nil
}
