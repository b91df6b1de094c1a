package cli

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"ottla/protocol/record"
	"ottla/protocol/schema"
)

// The internal topics whose records can be told apart.
const (
	offsetsTopic     = "__consumer_offsets"
	transactionTopic = "__transaction_state"
	metadataTopic    = "__cluster_metadata"
	shareTopic       = "__share_group_state"
	remoteTopic      = "__remote_log_metadata"
)

// recordParser prints keys and values: as those of an internal topic, else with a decoder each.
type recordParser struct {
	topic      string
	key, value valueDecoder
}

// choose takes one of the internal topics. When several are asked for, Kafka's tool takes the
// first of this order.
func (p *recordParser) choose(topic string) {
	for _, t := range []string{offsetsTopic, transactionTopic, metadataTopic, remoteTopic, shareTopic} {
		if t == p.topic || t == topic {
			p.topic = t
			return
		}
	}
}

// append appends a record's key and value, the first of them after prefix.
func (p *recordParser) append(dst []byte, prefix string, r record.Record) ([]byte, error) {
	switch p.topic {
	case offsetsTopic:
		return appendKeyed(dst, prefix, r, schema.Offsets)
	case transactionTopic:
		return appendKeyed(dst, prefix, r, schema.Transactions)
	case shareTopic:
		return appendKeyed(dst, prefix, r, schema.Share)
	case metadataTopic:
		return appendMetadata(dst, prefix, r), nil
	case remoteTopic:
		return appendRemote(dst, prefix, r), nil
	}
	begun, err := dst, error(nil)
	if r.Key != nil {
		dst = append(append(dst, prefix...), "key: "...)
		if dst, err = p.key.decode(dst, r.Key); err != nil {
			return begun, err
		}
		prefix = " "
	}
	if r.Value != nil {
		dst = append(append(dst, prefix...), "payload: "...)
		if dst, err = p.value.decode(dst, r.Value); err != nil {
			return begun, err
		}
	}
	return dst, nil
}

// appendKeyed appends a record of a coordinator's topic. One that cannot be read is named, and the
// next one is gone on with.
func appendKeyed(dst []byte, prefix string, r record.Record, read func(key, value []byte) (k, v schema.Message, err error)) ([]byte, error) {
	if r.Key == nil {
		return dst, asKafka("Failed to decode message at offset %d using the specified decoder (message had a missing key)", r.Offset)
	}
	k, v, err := read(r.Key, r.Value)
	dst = append(append(dst, prefix...), "key: "...)
	switch {
	case errors.Is(err, schema.ErrUnknownType):
		return fmt.Appendf(dst, "Unknown record type %d at offset %d, skipping.", k.Type, r.Offset), nil
	case err != nil:
		_, _, keyErr := read(r.Key, nil)
		return fmt.Appendf(dst, "Error at offset %d, skipping. %s", r.Offset, keyedError(r, err, keyErr)), nil
	}
	dst = append(k.AppendJSON(dst), " payload: "...)
	if r.Value == nil {
		return append(dst, "<DELETE>"...), nil
	}
	return v.AppendJSON(dst), nil
}

// keyedError is why a record cannot be read, as Kafka words it. keyErr is what is wrong with the key.
func keyedError(r record.Record, err, keyErr error) string {
	part, b := "value", r.Value
	if keyErr != nil {
		part, b, err = "key", r.Key, keyErr
	}
	if len(b) < 2 {
		return fmt.Sprintf("Could not read version from %s's buffer.", part)
	}
	version := int16(binary.BigEndian.Uint16(b))
	if part == "value" && errors.Is(err, schema.ErrVersion) {
		return fmt.Sprintf("Found an unknown record version %d for %d type", version, int16(binary.BigEndian.Uint16(r.Key)))
	}
	return fmt.Sprintf("Could not read record with version %d from %s's buffer due to: %v.", version, part, err)
}

// frame is what stands before the fields of a record of __cluster_metadata or __remote_log_metadata:
// three unsigned varints.
type frame struct {
	kind    int16
	version int16
	rest    []byte
}

// readFrame reads it. known says which types there are. The errors are in Kafka's words.
func readFrame(b []byte, known func(kind int16) bool) (f frame, err error) {
	for i, name := range []string{"frame version", "type", "version"} {
		u, n := binary.Uvarint(b)
		v := int32(u) // Java's reader drops what is above 32 bits
		switch {
		case n <= 0 || n > binary.MaxVarintLen32:
			return f, asKafka("Error while reading %s", name)
		case v > math.MaxInt16:
			return f, asKafka("Value for %s was too large.", name)
		case i == 0 && v == 0:
			return f, asKafka("Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release of KRaft in 2.8 to newer versions are not supported.")
		case i == 0 && v != 1:
			return f, asKafka("Could not deserialize metadata record due to unknown frame version %d(only frame version 1 is supported)", v)
		case i == 1:
			f.kind = int16(v)
		}
		f.version, b = int16(v), b[n:]
	}
	if !known(f.kind) {
		return f, asKafka("org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id %d", f.kind)
	}
	f.rest = b
	return f, nil
}

func appendMetadata(dst []byte, prefix string, r record.Record) []byte {
	dst = append(append(dst, prefix...), "payload: "...)
	m, err := schema.Metadata(r.Value)
	if err != nil {
		f, frameErr := readFrame(r.Value, func(int16) bool { return !errors.Is(err, schema.ErrUnknownType) })
		if frameErr == nil {
			frameErr = asKafka("Failed to deserialize record with type %d", f.kind)
		}
		return fmt.Appendf(dst, "Error at %d, skipping. %v", r.Offset, frameErr)
	}
	return m.AppendJSON(dst)
}

// appendControl appends what a control record says.
func appendControl(dst []byte, r record.Record) ([]byte, error) {
	t, err := record.ParseControl(r.Key)
	if err != nil {
		return dst, err
	}
	name := ""
	switch t {
	case record.Abort, record.Commit:
		m, _, err := record.ParseEndMarker(r)
		if err != nil {
			return dst, err
		}
		if m.Commit {
			dst = append(dst, " endTxnMarker: COMMIT coordinatorEpoch: "...)
		} else {
			dst = append(dst, " endTxnMarker: ABORT coordinatorEpoch: "...)
		}
		return strconv.AppendInt(dst, int64(m.CoordinatorEpoch), 10), nil
	case record.LeaderChange:
		name = " LeaderChange: "
	case record.SnapshotHeader:
		name = " SnapshotHeader "
	case record.SnapshotFooter:
		name = " SnapshotFooter "
	case record.KRaftVersion:
		name = " KRaftVersion "
	case record.KRaftVoters:
		name = " KRaftVoters "
	default:
		id := int16(r.Key[2])<<8 | int16(r.Key[3])
		return fmt.Appendf(dst, " controlType: UNKNOWN(%d)", id), nil
	}
	m, err := schema.Control(r.Key, r.Value)
	if err != nil {
		return dst, err
	}
	return m.AppendJSON(append(dst, name...)), nil
}
