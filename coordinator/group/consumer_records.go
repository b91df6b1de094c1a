package group

import (
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"

	"ottla/coordinator"
)

// The records of consumer groups (KIP-848), in Kafka's formats: ConsumerGroup…Key and …Value of
// its group coordinator. Values are of version 0, which is flexible; keys are not.
const (
	keyConsumerGroup      = 3  // ConsumerGroupMetadata
	keyConsumerPartitions = 4  // ConsumerGroupPartitionMetadata: before 4.1; only deleted here
	keyConsumerMember     = 5  // ConsumerGroupMemberMetadata
	keyConsumerTarget     = 6  // ConsumerGroupTargetAssignmentMetadata
	keyConsumerTargetOf   = 7  // ConsumerGroupTargetAssignmentMember
	keyConsumerCurrent    = 8  // ConsumerGroupCurrentMemberAssignment
	keyConsumerRegex      = 16 // ConsumerGroupRegularExpression
)

// isConsumerKey tells whether records of a type are of consumer groups.
func isConsumerKey(kind int16) bool {
	return kind >= keyConsumerGroup && kind <= keyConsumerCurrent || kind == keyConsumerRegex
}

// consumerKey is a key: of a group, and of what in it (a member, a regular expression) where the
// type has that.
func consumerKey(kind int16, group, of string) []byte {
	b := kbin.AppendString(kbin.AppendInt16(nil, kind), group)
	switch kind {
	case keyConsumerMember, keyConsumerTargetOf, keyConsumerCurrent, keyConsumerRegex:
		b = kbin.AppendString(b, of)
	}
	return b
}

// readConsumerKey reads what consumerKey makes.
func readConsumerKey(key []byte) (kind int16, group, of string, err error) {
	r := kbin.Reader{Src: key}
	kind = r.Int16()
	group = r.String()
	switch kind {
	case keyConsumerMember, keyConsumerTargetOf, keyConsumerCurrent, keyConsumerRegex:
		of = r.String()
	}
	if err := r.Complete(); err != nil {
		return kind, "", "", fmt.Errorf("key of type %d: %w: %w", kind, errMalformed, err)
	}
	return kind, group, of, nil
}

func tombstone(kind int16, group, of string) coordinator.Record {
	return coordinator.Record{Key: consumerKey(kind, group, of)}
}

var version0 = [...]byte{0, 0}

func value0() []byte { return append([]byte(nil), version0[:]...) }

// epochRecord is a group's epoch, with the hash of what its topics were like.
func epochRecord(group string, epoch int32, hash int64) coordinator.Record {
	b := kbin.AppendInt32(value0(), epoch)
	if hash == 0 {
		b = append(b, 0)
	} else {
		b = kbin.AppendInt64(append(b, 1, 0, 8), hash)
	}
	return coordinator.Record{Key: consumerKey(keyConsumerGroup, group, ""), Value: b}
}

// memberRecord is what a member has told of itself.
func memberRecord(group string, m *consumerMember) coordinator.Record {
	b := kbin.AppendCompactNullableString(value0(), m.instance)
	b = kbin.AppendCompactNullableString(b, m.rack)
	b = kbin.AppendCompactString(b, m.client.ID)
	b = kbin.AppendCompactString(b, m.client.Host)
	b = kbin.AppendCompactArrayLen(b, len(m.topics))
	for _, t := range m.topics {
		b = kbin.AppendCompactString(b, t)
	}
	b = kbin.AppendCompactNullableString(b, m.regex)
	b = kbin.AppendInt32(b, m.rebalance)
	b = kbin.AppendCompactNullableString(b, m.assignor)
	if m.classic == nil {
		b = append(b, 1, 0, 1, 0) // Kafka writes the null
	} else {
		body := appendClassic(nil, m.classic)
		b = kbin.AppendUvarint(append(b, 1, 0), uint32(len(body)))
		b = append(b, body...)
	}
	return coordinator.Record{Key: consumerKey(keyConsumerMember, group, m.id), Value: b}
}

// targetRecord is the epoch of the target assignment and when it was made; 0: nobody was there.
func targetRecord(group string, epoch int32, at int64) coordinator.Record {
	b := kbin.AppendInt32(value0(), epoch)
	if at == 0 {
		b = append(b, 0)
	} else {
		b = kbin.AppendInt64(append(b, 1, 0, 8), at)
	}
	return coordinator.Record{Key: consumerKey(keyConsumerTarget, group, ""), Value: b}
}

// targetOfRecord is what a member shall have.
func targetOfRecord(group, member string, a Assignment) coordinator.Record {
	b := append(appendAssignment(value0(), a), 0)
	return coordinator.Record{Key: consumerKey(keyConsumerTargetOf, group, member), Value: b}
}

// currentRecord is what a member has.
func currentRecord(group string, m *consumerMember) coordinator.Record {
	b := kbin.AppendInt32(value0(), m.epoch)
	b = kbin.AppendInt32(b, m.previous)
	b = kbin.AppendInt8(b, int8(m.state))
	b = appendHeld(b, m.assigned, m.since)
	b = append(appendHeld(b, m.revoking, m.since), 0)
	return coordinator.Record{Key: consumerKey(keyConsumerCurrent, group, m.id), Value: b}
}

// regexRecord is which topics a regular expression stands for, and when that was found out.
func regexRecord(group, regex string, topics []string, version, at int64) coordinator.Record {
	b := kbin.AppendCompactArrayLen(value0(), len(topics))
	for _, t := range topics {
		b = kbin.AppendCompactString(b, t)
	}
	b = append(kbin.AppendInt64(kbin.AppendInt64(b, version), at), 0)
	return coordinator.Record{Key: consumerKey(keyConsumerRegex, group, regex), Value: b}
}

func appendAssignment(b []byte, a Assignment) []byte {
	b = kbin.AppendCompactArrayLen(b, len(a))
	for _, id := range a.Topics() {
		b = kbin.AppendCompactArrayLen(kbin.AppendUuid(b, id), len(a[id]))
		for _, p := range a[id] {
			b = kbin.AppendInt32(b, p)
		}
		b = append(b, 0)
	}
	return b
}

// appendHeld is an assignment with the epoch of each partition in a tag.
func appendHeld(b []byte, a Assignment, since map[topicPartition]int32) []byte {
	b = kbin.AppendCompactArrayLen(b, len(a))
	for _, id := range a.Topics() {
		epochs := kbin.AppendCompactArrayLen(nil, len(a[id]))
		b = kbin.AppendCompactArrayLen(kbin.AppendUuid(b, id), len(a[id]))
		for _, p := range a[id] {
			b = kbin.AppendInt32(b, p)
			epochs = kbin.AppendInt32(epochs, since[topicPartition{id, p}])
		}
		b = kbin.AppendUvarint(append(b, 1, 0), uint32(len(epochs)))
		b = append(b, epochs...)
	}
	return b
}

// consumerReader reads values. Fields behind those that are read, in tags, are passed over.
type consumerReader struct{ kbin.Reader }

// newConsumerReader begins with a value; ok is false for a version that is not known.
func newConsumerReader(value []byte) (r *consumerReader, ok bool) {
	r = &consumerReader{kbin.Reader{Src: value}}
	return r, r.Int16() == 0 && r.Ok()
}

func (r *consumerReader) done() error {
	if err := r.Complete(); err != nil {
		return fmt.Errorf("value of a consumer group: %w: %w", errMalformed, err)
	}
	return nil
}

// tags reads tagged fields: want gets the body of each.
func (r *consumerReader) tags(want func(tag uint32, body []byte)) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag, size := r.Uvarint(), r.Uvarint()
		body := r.Span(int(size))
		if want != nil && r.Ok() {
			want(tag, body)
		}
	}
}

func (r *consumerReader) assignment() Assignment { return r.held(0, map[topicPartition]int32{}) }

// held reads an assignment and the epoch of each partition into since; those that are not told
// are of the member's epoch.
func (r *consumerReader) held(epoch int32, since map[topicPartition]int32) Assignment {
	a := Assignment{}
	for n := r.CompactArrayLen(); n > 0 && r.Ok(); n-- {
		id := r.Uuid()
		var all []int32
		for m := r.CompactArrayLen(); m > 0 && r.Ok(); m-- {
			all = append(all, r.Int32())
			since[topicPartition{id, all[len(all)-1]}] = epoch
		}
		r.tags(func(tag uint32, body []byte) {
			if tag != 0 {
				return
			}
			t := kbin.Reader{Src: body}
			if int(t.CompactArrayLen()) != len(all) {
				return
			}
			for _, p := range all {
				since[topicPartition{id, p}] = t.Int32()
			}
		})
		if len(all) > 0 {
			slices.Sort(all)
			a[id] = slices.Compact(all)
		}
	}
	return a
}

func (r *consumerReader) strings() (all []string) {
	for n := r.CompactArrayLen(); n > 0 && r.Ok(); n-- {
		all = append(all, r.CompactString())
	}
	return all
}

// member reads what memberRecord writes into m.
func (r *consumerReader) member(m *consumerMember) error {
	m.instance, m.rack = r.CompactNullableString(), r.CompactNullableString()
	m.client = Client{ID: r.CompactString(), Host: r.CompactString()}
	m.topics = r.strings()
	slices.Sort(m.topics)
	m.regex = r.CompactNullableString()
	m.rebalance, m.assignor = r.Int32(), r.CompactNullableString()
	m.classic = nil
	var err error
	r.tags(func(tag uint32, body []byte) {
		if tag == 0 {
			m.classic, err = readClassic(body)
		}
	})
	return errors.Join(err, r.done())
}

// current reads what currentRecord writes into m.
func (r *consumerReader) current(m *consumerMember) error {
	m.epoch, m.previous, m.state = r.Int32(), r.Int32(), memberState(r.Int8())
	m.since = map[topicPartition]int32{}
	m.assigned = r.held(m.epoch, m.since)
	m.revoking = r.held(m.epoch, m.since)
	r.tags(nil)
	return r.done()
}
