// Package schema reads the records of Kafka's internal topics: __cluster_metadata,
// __consumer_offsets, __transaction_state, __share_group_state, and control records. One table of
// message definitions says how; what comes out is names and values, for tools that print them and
// for those who take over what another broker has written.
//
// Coordinators read their own records with kmsg, which is quicker; this room knows all of them.
package schema

import (
	"errors"
	"fmt"
)

// What a record can be that is not read.
var (
	ErrMalformed   = errors.New("malformed record")
	ErrUnknownType = errors.New("unknown record type") // of a Kafka newer than the table
	ErrVersion     = errors.New("unsupported record version")
)

// Message is one key or value. Type is Kafka's apiKey of it, Name the name of its definition
// (TopicRecord, OffsetCommitKey). Version is that of the fields, not of the frame.
type Message struct {
	Name    string
	Type    int16
	Version int16
	Fields  Struct
	kind    messageKind
}

// Field is one value of a message: bool, int8, int16, uint16, int32, int64, float64, string,
// []byte, [16]byte (a uuid), Struct, or []int16, []int32, []string, [][16]byte, []Struct. Null is nil.
type Field struct {
	Name  string // as in Kafka's JSON: partitionId
	Value any
}

// Struct has the fields that the version has, in the order of their definition; of tagged fields
// those that do not have their default.
type Struct []Field

// Get answers the value of a field; nil where it is null or not there.
func (s Struct) Get(name string) any {
	for i := range s {
		if s[i].Name == name {
			return s[i].Value
		}
	}
	return nil
}

// Has says whether there is a field, be it null.
func (s Struct) Has(name string) bool {
	for i := range s {
		if s[i].Name == name {
			return true
		}
	}
	return false
}

// As answers the value of a field as a T; the zero T where it is null, not there or another type.
func As[T any](s Struct, name string) T {
	v, _ := s.Get(name).(T)
	return v
}

// messageKind is in which form a message is printed.
type messageKind int8

const (
	kindRecord   messageKind = iota // {"type":"TOPIC_RECORD","version":0,"data":{…}}
	kindKey                         // {"type":"1","data":{…}}
	kindValue                       // {"version":"4","data":{…}}
	kindGroup                       // as kindValue; members of consumer groups spelled out
	kindTxnState                    // as kindValue; the state as a word
	kindData                        // {…}
)

// metadataFrame is the only version of the frame around records of __cluster_metadata.
const metadataFrame = 1

// Metadata reads the value of a record of __cluster_metadata (MetadataRecordSerde): frame
// version, type and version as unsigned varints, then the fields, and nothing behind them.
func Metadata(value []byte) (Message, error) {
	d := decoder{b: value}
	frame, id, version := d.uvarint(), d.uvarint(), d.uvarint()
	switch {
	case d.err != nil:
		return Message{}, d.err
	case frame != metadataFrame:
		return Message{}, fmt.Errorf("%w: frame version %d", ErrVersion, frame)
	case id > 1<<15-1:
		return Message{}, fmt.Errorf("%w: type %d", ErrUnknownType, id)
	case version > 1<<15-1:
		return Message{}, fmt.Errorf("%w: type %d in version %d", ErrVersion, id, version)
	}
	m, err := d.message(metadataRecords, kindRecord, int16(id), int16(version))
	if err == nil && len(d.b) > 0 {
		err = fmt.Errorf("%w: %d bytes behind a %s", ErrMalformed, len(d.b), m.Name)
	}
	return m, err
}

// Offsets reads a record of __consumer_offsets: of offsets, and of classic, consumer, share and
// streams groups. A nil value is a tombstone, whose message is zero.
func Offsets(key, value []byte) (k, v Message, err error) {
	k, v, err = keyed(offsetsKeys, offsetsValues, key, value)
	if v.Name == "GroupMetadataValue" {
		v.kind = kindGroup
	}
	return k, v, err
}

// Transactions reads a record of __transaction_state, as Offsets.
func Transactions(key, value []byte) (k, v Message, err error) {
	k, v, err = keyed(transactionsKeys, transactionsValues, key, value)
	if v.Name != "" {
		v.kind = kindTxnState
	}
	return k, v, err
}

// Share reads a record of __share_group_state, as Offsets.
func Share(key, value []byte) (k, v Message, err error) {
	return keyed(shareKeys, shareValues, key, value)
}

// Control reads a control record. Its key is a version and a type: 0 abort, 1 commit, 2 leader
// change, 3 snapshot header, 4 snapshot footer, 5 KRaft version, 6 KRaft voters.
func Control(key, value []byte) (Message, error) {
	d := decoder{b: key}
	_, id := d.int16(), d.int16()
	if d.err != nil {
		return Message{}, d.err
	}
	d = decoder{b: value}
	version := d.int16()
	const endTxnTypes = 1
	if id > endTxnTypes {
		d = decoder{b: value} // the version is a field of these, and the first one
	}
	if d.err != nil {
		return Message{}, d.err
	}
	return d.message(controlRecords, kindData, id, version)
}

// keyed reads a key, which begins with its type, and a value, which begins with its version.
func keyed(keys, values []message, key, value []byte) (k, v Message, err error) {
	d := decoder{b: key}
	id := d.int16()
	if d.err != nil {
		return k, v, d.err
	}
	if k, err = d.message(keys, kindKey, id, 0); err != nil || value == nil {
		return k, v, err
	}
	d = decoder{b: value}
	version := d.int16()
	if d.err != nil {
		return k, v, d.err
	}
	v, err = d.message(values, kindValue, id, version)
	return k, v, err
}
