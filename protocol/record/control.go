package record

import (
	"encoding/binary"
	"fmt"
)

// ControlType is what a control record says, by its key (Kafka's ControlRecordType).
type ControlType int16

const (
	Abort          ControlType = 0
	Commit         ControlType = 1
	LeaderChange   ControlType = 2 // this and the following are KRaft's
	SnapshotHeader ControlType = 3
	SnapshotFooter ControlType = 4
	KRaftVersion   ControlType = 5
	KRaftVoters    ControlType = 6
	UnknownControl ControlType = -1 // of a later release, to be ignored
)

const (
	controlKeySize = 4 // version int16, type int16
	endMarkerSize  = 6 // version int16, coordinator epoch int32
)

// ParseControl reads the key of a record in a control batch.
func ParseControl(key []byte) (ControlType, error) {
	if len(key) < controlKeySize {
		return UnknownControl, fmt.Errorf("%w: invalid value size found for end control record key. Must have at least %d bytes, but found only %d", ErrInvalidRecord, controlKeySize, len(key))
	}
	if v := int16(binary.BigEndian.Uint16(key)); v < 0 {
		return UnknownControl, fmt.Errorf("%w: invalid version found for control record: %d. May indicate data corruption", ErrInvalidRecord, v)
	}
	t := ControlType(binary.BigEndian.Uint16(key[2:]))
	if t < Abort || t > KRaftVoters {
		return UnknownControl, nil
	}
	return t, nil
}

// EndMarker ends a transaction of a producer in one partition.
type EndMarker struct {
	Commit           bool  // else the transaction's records are void
	CoordinatorEpoch int32 // of the transaction coordinator that decided it
}

// ParseEndMarker reads a control record. ok is false if it is none that ends a transaction.
func ParseEndMarker(r Record) (m EndMarker, ok bool, err error) {
	t, err := ParseControl(r.Key)
	if err != nil || t != Abort && t != Commit {
		return m, false, err
	}
	if len(r.Value) < endMarkerSize {
		return m, false, fmt.Errorf("%w: invalid value size found for end transaction marker. Must have at least %d bytes, but found only %d", ErrInvalidRecord, endMarkerSize, len(r.Value))
	}
	if v := int16(binary.BigEndian.Uint16(r.Value)); v < 0 {
		return m, false, fmt.Errorf("%w: invalid version found for end transaction marker: %d. May indicate data corruption", ErrInvalidRecord, v)
	}
	return EndMarker{t == Commit, int32(binary.BigEndian.Uint32(r.Value[2:]))}, true, nil
}

// Batch is the control batch that writes the marker at a time in ms, for a producer id in the
// epoch whose transaction ends.
func (m EndMarker) Batch(producerID int64, epoch int16, ms int64) Batch {
	t := Abort
	if m.Commit {
		t = Commit
	}
	b := NewBuilder(nil, BuilderOptions{Control: true, Producer: &ProducerInfo{producerID, epoch, noSequence, true}})
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(t))
	b.Add(ms, key, binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(m.CoordinatorEpoch)))
	return b.Finish()
}
