package log

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"iter"

	"ottla/log/vfs"
)

// maxInspectedText bounds the checkpoints: a million partitions with long names.
const maxInspectedText = 64 << 20

// SnapshotProducer is a producer's entry in a .snapshot.
type SnapshotProducer struct {
	ProducerID       int64
	Epoch            int16
	CoordinatorEpoch int32 // of the last marker, -1: none
	TxnFirstOffset   int64 // of the transaction that was open, below 0: none
	Timestamp        int64 // ms, of the last batch
	LastSequence     int32 // -1 after a marker
	LastOffset       int64 // below 0: no batch
	OffsetDelta      int32 // of the last batch
}

// FirstSequence is that of the last batch.
func (p SnapshotProducer) FirstSequence() int32 {
	if p.LastSequence < p.OffsetDelta { // sequences wrap from 2^31-1 to 0
		return 1<<31 - 1 - (p.OffsetDelta - p.LastSequence) + 1
	}
	return p.LastSequence - p.OffsetDelta
}

// SnapshotEntries reads the producers of a .snapshot in turn, after it has compared the checksum
// of all. An error comes alone, and wraps ErrDamaged if it is about the bytes; its text is Kafka's.
func SnapshotEntries(fsys vfs.FS, name string) iter.Seq2[SnapshotProducer, error] {
	return func(yield func(SnapshotProducer, error) bool) {
		f, size, err := openSized(fsys, name)
		if err != nil {
			yield(SnapshotProducer{}, err)
			return
		}
		defer f.Close()
		buf := make([]byte, inspectBytes/snapshotProducer*snapshotProducer)
		count, err := checkSnapshot(f, size, buf)
		for at := int64(snapshotHead); err == nil && count > 0; {
			n, e := f.ReadAt(buf[:min(int64(len(buf)), count*snapshotProducer)], at)
			if e != nil && e != io.EOF {
				err = e
				break
			}
			if n < snapshotProducer {
				err = says(ErrDamaged, "Snapshot failed schema validation: null")
				break
			}
			for b := buf[:n]; len(b) >= snapshotProducer; b = b[snapshotProducer:] {
				if !yield(snapshotEntry(b), nil) {
					return
				}
				at += snapshotProducer
				count--
			}
		}
		if err != nil {
			yield(SnapshotProducer{}, err)
		}
	}
}

// checkSnapshot reads a snapshot's head and compares its checksum. count is how many producers
// there are, for all of which there are bytes.
func checkSnapshot(f vfs.File, size int64, buf []byte) (count int64, err error) {
	n, err := f.ReadAt(buf[:min(snapshotHead, size)], 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	head := buf[:n]
	if len(head) >= 2 {
		if v := int16(binary.BigEndian.Uint16(head)); v != snapshotVersion {
			return 0, says(ErrDamaged, "Snapshot failed schema validation: Snapshot contained an unknown file version %d", v)
		}
	}
	if len(head) < snapshotHead {
		return 0, says(ErrDamaged, "Snapshot failed schema validation: null") // Java says no more of an early end
	}
	stored := binary.BigEndian.Uint32(head[2:])
	count = int64(int32(binary.BigEndian.Uint32(head[6:])))
	switch left := size - snapshotHead; {
	case count < 0:
		return 0, says(ErrDamaged, "Snapshot failed schema validation: non-nullable field producerEntries was serialized as null")
	case count > left:
		return 0, says(ErrDamaged, "Snapshot failed schema validation: Tried to allocate a collection of size %d, but there are only %d bytes remaining.", count, left)
	case count*snapshotProducer > left:
		return 0, says(ErrDamaged, "Snapshot failed schema validation: null")
	}
	sum, table := uint32(0), crc32.MakeTable(crc32.Castagnoli)
	for at := int64(6); at < size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && err != io.EOF {
			return 0, err
		}
		if n == 0 {
			break
		}
		sum = crc32.Update(sum, table, buf[:n])
		at += int64(n)
	}
	if sum != stored {
		return 0, says(ErrDamaged, "Snapshot is corrupt (CRC is no longer valid). Stored crc: %d. Computed crc: %d", stored, sum)
	}
	return count, nil
}

// CheckpointEntry is a line of one of a directory's checkpoints: recovery-point-offset-checkpoint,
// replication-offset-checkpoint, log-start-offset-checkpoint, cleaner-offset-checkpoint.
type CheckpointEntry struct {
	Topic     string
	Partition int32
	Offset    int64
}

// ReadCheckpoint reads such a file. The entries are in the file's order.
func ReadCheckpoint(fsys vfs.FS, name string) ([]CheckpointEntry, error) {
	lines, err := readCheckpointLines(fsys, name)
	if err != nil {
		return nil, err
	}
	entries := make([]CheckpointEntry, 0, len(lines))
	for _, line := range lines {
		e, err := checkpointEntry(line)
		if err != nil {
			return entries, &Damage{name, -1, err.Error()}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// EpochEntry is a line of a leader-epoch-checkpoint: where a leader's epoch begins.
type EpochEntry struct {
	Epoch int32
	Start int64
}

// ReadEpochs reads a leader-epoch-checkpoint. The entries are in the file's order.
func ReadEpochs(fsys vfs.FS, name string) ([]EpochEntry, error) {
	lines, err := readCheckpointLines(fsys, name)
	if err != nil {
		return nil, err
	}
	entries := make([]EpochEntry, 0, len(lines))
	for _, line := range lines {
		e, err := epochLine(line)
		if err != nil {
			return entries, &Damage{name, -1, err.Error()}
		}
		entries = append(entries, EpochEntry{e.epoch, e.start})
	}
	return entries, nil
}

func readCheckpointLines(fsys vfs.FS, name string) ([]string, error) {
	b, err := readAtMost(fsys, name, maxInspectedText)
	if err != nil {
		return nil, err
	}
	lines, err := checkpointLines(b)
	if err != nil {
		return nil, &Damage{name, -1, err.Error()}
	}
	return lines, nil
}

// ReadPartitionMetadata reads the topic id in a partition.metadata.
func ReadPartitionMetadata(fsys vfs.FS, name string) (topicID [16]byte, err error) {
	b, err := readAtMost(fsys, name, maxInspectedText)
	if err != nil {
		return topicID, err
	}
	if topicID, err = parsePartitionFile(b); err != nil {
		return topicID, &Damage{name, -1, err.Error()}
	}
	return topicID, nil
}

// Property is a pair of a properties file.
type Property struct{ Name, Value string }

// ReadMetaProperties reads a meta.properties of version 0 or 1, in the file's order.
func ReadMetaProperties(fsys vfs.FS, name string) ([]Property, error) {
	b, err := readAtMost(fsys, name, maxInspectedText)
	if err != nil {
		return nil, err
	}
	m, err := parseMeta(b)
	if err != nil {
		return nil, &Damage{name, -1, err.Error()}
	}
	var list []Property
	for _, k := range m.props.Keys() {
		v, _ := m.props.Get(k)
		list = append(list, Property{k, v})
	}
	return list, nil
}
