package cli

import (
	"encoding/base64"
	"errors"
	"fmt"

	"ottla/log"
)

// snapshot prints the producers of a .snapshot. What is wrong with its bytes is said, and is no
// failure, as with Kafka's tool.
func (d *dumper) snapshot(name string) error {
	for p, err := range log.SnapshotEntries(d.fs, name) {
		if errors.Is(err, log.ErrDamaged) {
			if err := d.out.Flush(); err != nil {
				return err
			}
			_, err = fmt.Fprintln(d.errOut, err)
			return err
		}
		if err != nil {
			return err
		}
		first := "OptionalLong.empty"
		if p.TxnFirstOffset >= 0 {
			first = fmt.Sprintf("OptionalLong[%d]", p.TxnFirstOffset)
		}
		d.line = fmt.Appendf(d.line, "producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d",
			p.ProducerID, p.Epoch, p.CoordinatorEpoch, first, p.Timestamp)
		if p.LastOffset >= 0 {
			d.line = fmt.Appendf(d.line, " firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d",
				p.FirstSequence(), p.LastSequence, p.LastOffset, p.OffsetDelta, p.Timestamp)
		}
		d.end()
	}
	return nil
}

// checkpoint prints one of a directory's checkpoints.
func (d *dumper) checkpoint(name string) error {
	entries, err := log.ReadCheckpoint(d.fs, name)
	for _, e := range entries {
		d.line = fmt.Appendf(d.line, "topic: %s partition: %d offset: %d", e.Topic, e.Partition, e.Offset)
		d.end()
	}
	return err
}

// epochs prints a leader-epoch-checkpoint.
func (d *dumper) epochs(name string) error {
	entries, err := log.ReadEpochs(d.fs, name)
	for _, e := range entries {
		d.line = fmt.Appendf(d.line, "epoch: %d startOffset: %d", e.Epoch, e.Start)
		d.end()
	}
	return err
}

func (d *dumper) partitionMetadata(name string) error {
	id, err := log.ReadPartitionMetadata(d.fs, name)
	if err != nil {
		return err
	}
	d.line = append(append(d.line, "topicId: "...), base64.RawURLEncoding.EncodeToString(id[:])...)
	d.end()
	return nil
}

func (d *dumper) metaProperties(name string) error {
	list, err := log.ReadMetaProperties(d.fs, name)
	if err != nil {
		return err
	}
	for _, p := range list {
		d.line = append(d.line, p.Name...)
		d.line = append(d.line, ": "...)
		d.line = append(d.line, p.Value...)
		d.end()
	}
	return nil
}
