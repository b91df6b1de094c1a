package cli

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"ottla/protocol/record"
)

// The records of __remote_log_metadata are printed as Kafka's classes print themselves
// (RemoteLogMetadataSerde, and toString of what it reads), not as JSON.

// appendRemote appends such a record. One that cannot be read is named, and the next one is gone
// on with.
func appendRemote(dst []byte, prefix string, r record.Record) []byte {
	dst = append(append(dst, prefix...), "payload: "...)
	text, err := remoteText(r.Value)
	if err != nil {
		return fmt.Appendf(dst, "Error at offset %d, skipping. %v", r.Offset, err)
	}
	return append(dst, text...)
}

const (
	remoteSegment   = 0         // RemoteLogSegmentMetadataRecord
	remoteUpdate    = 1         // RemoteLogSegmentMetadataUpdateRecord
	remoteDelete    = 2         // RemotePartitionDeleteMetadataRecord
	remoteSnapshot  = 3         // RemoteLogSegmentMetadataSnapshotRecord
	remoteLeaderLen = 4 + 8 + 1 // an epoch's entry, with its tagged fields
)

func remoteText(value []byte) (string, error) {
	f, err := readFrame(value, func(kind int16) bool { return kind <= remoteSnapshot })
	if err != nil {
		return "", err
	}
	kind, d := f.kind, remoteReader{b: f.rest}
	if f.version != 0 {
		return "", asKafka("Failed to deserialize record with type %d", kind)
	}
	var text, end string // the end says what only a tagged field has
	switch kind {
	case remoteSegment:
		text, end = d.segment(), remoteTxnEnd
	case remoteUpdate:
		id, broker, event := d.segmentID(), d.int32(), d.int64()
		custom, state := d.custom(), d.segmentState()
		text = fmt.Sprintf("RemoteLogSegmentMetadataUpdate{remoteLogSegmentId=%s, customMetadata=%s, state=%s, eventTimestampMs=%d, brokerId=%d}", id, custom, state, event, broker)
	case remoteDelete:
		partition, broker, event := d.partition(), d.int32(), d.int64()
		state := d.word("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")
		text = fmt.Sprintf("RemotePartitionDeleteMetadata{topicPartition=%s, state=%s, eventTimestampMs=%d, brokerId=%d}", partition, state, event, broker)
	case remoteSnapshot:
		id, first, last := d.uuid(), d.int64(), d.int64()
		d.int32() // broker
		most := d.int64()
		d.int64() // when it was written
		epochs, size, custom, state := d.epochs(), d.int32(), d.custom(), d.segmentState()
		text = fmt.Sprintf("RemoteLogSegmentMetadataSnapshot{segmentId=%s, startOffset=%d, endOffset=%d, maxTimestampMs=%d, segmentLeaderEpochs=%s, segmentSizeInBytes=%d, customMetadata=%s, state=%s",
			id, first, last, most, epochs, size, custom, state)
		end = remoteTxnEnd
	}
	noTxnIndex := d.tags()
	switch {
	case d.err == errRemoteShort:
		return "", asKafka("Failed to deserialize record with type %d", kind)
	case d.err != nil:
		return "", d.err
	case len(d.b) > 0:
		return "", asKafka("Found %d byte(s) of garbage after %d", len(d.b), kind)
	}
	if end != "" {
		text += fmt.Sprintf(end, noTxnIndex)
	}
	return text, nil
}

// remoteTxnEnd is said of a segment: whether it has no aborted transactions.
const remoteTxnEnd = ", txnIdxEmpty=%v}"

func (d *remoteReader) segment() string {
	id, start, end := d.segmentID(), d.int64(), d.int64()
	broker, most, event := d.int32(), d.int64(), d.int64()
	epochs, size, custom, state := d.epochs(), d.int32(), d.custom(), d.segmentState()
	return fmt.Sprintf("RemoteLogSegmentMetadata{remoteLogSegmentId=%s, startOffset=%d, endOffset=%d, brokerId=%d, maxTimestampMs=%d, eventTimestampMs=%d, segmentLeaderEpochs=%s, segmentSizeInBytes=%d, customMetadata=%s, state=%s",
		id, start, end, broker, most, event, epochs, size, custom, state)
}

var errRemoteShort = errors.New("the record ends too early")

// remoteReader reads flexible messages. After an error it reads zeros.
type remoteReader struct {
	b   []byte
	err error
}

func (d *remoteReader) take(n int) []byte {
	if d.err == nil && (n < 0 || n > len(d.b)) {
		d.err = errRemoteShort
	}
	if d.err != nil {
		return make([]byte, min(max(n, 0), 16))
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *remoteReader) int32() int32 { return int32(binary.BigEndian.Uint32(d.take(4))) }
func (d *remoteReader) int64() int64 { return int64(binary.BigEndian.Uint64(d.take(8))) }
func (d *remoteReader) uuid() string { return base64.RawURLEncoding.EncodeToString(d.take(16)) }

func (d *remoteReader) uvarint() uint32 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > binary.MaxVarintLen32 || v > 1<<32-1 {
		if d.err == nil {
			d.err = errRemoteShort
		}
		return 0
	}
	d.b = d.b[n:]
	return uint32(v)
}

// bytes is nil for null.
func (d *remoteReader) bytes() []byte {
	n := int64(d.uvarint()) - 1
	if n < 0 || n > int64(len(d.b)) {
		if n >= 0 && d.err == nil {
			d.err = errRemoteShort
		}
		return nil
	}
	return d.take(int(n))
}

// tags reads the tagged fields behind a struct, of which Kafka has one: the bool of tag 0.
func (d *remoteReader) tags() (first bool) {
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		tag, size := d.uvarint(), d.uvarint()
		if int64(size) > int64(len(d.b)) && d.err == nil {
			d.err = errRemoteShort
			return false
		}
		if body := d.take(int(size)); tag == 0 && len(body) > 0 {
			first = body[0] != 0
		}
	}
	return first
}

// partition is a TopicIdPartition.
func (d *remoteReader) partition() string {
	name, id, n := d.bytes(), d.uuid(), d.int32()
	d.tags()
	return fmt.Sprintf("%s:%s-%d", id, appendUTF8(nil, name), n)
}

func (d *remoteReader) segmentID() string {
	partition, id := d.partition(), d.uuid()
	d.tags()
	return fmt.Sprintf("RemoteLogSegmentId{topicIdPartition=%s, id=%s}", partition, id)
}

// epochs are the start offsets of leader epochs, by epoch; of equal epochs the last.
func (d *remoteReader) epochs() string {
	n := int64(d.uvarint()) - 1
	if n < 0 || n*remoteLeaderLen > int64(len(d.b)) {
		if d.err == nil {
			d.err = errRemoteShort
		}
		return ""
	}
	var list []pair
	for range n {
		list = append(list, pair{int64(d.int32()), d.int64()})
		d.tags()
	}
	slices.SortStableFunc(list, func(a, b pair) int { return cmp.Compare(a.a, b.a) })
	text := []byte{'{'}
	for i, p := range lastOfEqual(list) {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = fmt.Appendf(text, "%d=%d", p.a, p.b)
	}
	return string(append(text, '}'))
}

func (d *remoteReader) custom() string {
	if b := d.bytes(); b != nil {
		return fmt.Sprintf("Optional[CustomMetadata{%d bytes}]", len(b))
	}
	return "Optional.empty"
}

func (d *remoteReader) segmentState() string {
	return d.word("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
}

// word reads a number that stands for one of the words.
func (d *remoteReader) word(words ...string) string {
	n := int(int8(d.take(1)[0]))
	if n < 0 || n >= len(words) {
		if d.err == nil {
			d.err = fmt.Errorf("unknown state %d", n)
		}
		return ""
	}
	return words[n]
}
