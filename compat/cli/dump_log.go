package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"ottla/log"
	"ottla/protocol/record"
)

// maxDumpedRecord is how large a record of a compressed batch may become, in bytes: a few bytes
// can claim any size.
const maxDumpedRecord = log.MaxInspectedEntry

// log prints a segment, or a snapshot of KRaft's metadata.
func (d *dumper) log(name string) error {
	switch base := filepath.Base(name); {
	case strings.HasSuffix(base, ".log"):
		start, err := log.BaseOffset(name)
		if err != nil {
			return err
		}
		d.line = fmt.Appendf(d.line, "Log starting offset: %d", start)
	case base == "bootstrap.checkpoint":
		d.line = append(d.line, "KRaft bootstrap snapshot"...)
	default:
		offset, epoch, ok := log.ParseSnapshotName(name)
		if !ok {
			return fmt.Errorf("%s: the name of a snapshot is OFFSET-EPOCH.checkpoint, with 20 and 10 digits", name)
		}
		d.line = fmt.Appendf(d.line, "Snapshot end offset: %d, epoch: %d", offset, epoch)
	}
	d.end()
	seg, err := log.OpenSegmentFile(d.fs, name)
	if err != nil {
		return err
	}
	defer seg.Close()
	end, whole := seg.Size(), d.o.maxBytes == math.MaxInt32
	if !whole {
		end = min(end, d.o.maxBytes)
	}
	last := int64(-1) // offset of the record before
	es := seg.Entries(0, end)
	for es.Next() {
		if err := d.batch(es); err != nil {
			return err
		}
		if d.o.deep {
			if last, err = d.records(name, es, last); err != nil {
				return err
			}
		}
	}
	if err := es.Err(); err != nil {
		return err
	}
	if left := end - es.End(); left > 0 && whole {
		d.line = fmt.Appendf(d.line, "Found %d invalid bytes at the end of %s", left, filepath.Base(name))
		d.end()
	}
	return nil
}

func errMagic(b record.Batch) error {
	return asKafka("Invalid magic used in LegacyRecord: %d", b.Magic())
}

// number appends a name and a number.
func (d *dumper) number(name string, n int64) {
	d.line = append(d.line, name...)
	d.line = strconv.AppendInt(d.line, n, 10)
}

func (d *dumper) bool(name string, v bool) {
	d.line = append(d.line, name...)
	d.line = strconv.AppendBool(d.line, v)
}

// timeType is Kafka's TimestampType.
func timeType(b record.Batch) string {
	switch {
	case b.Magic() == 0:
		return "NoTimestampType"
	case b.LogAppendTime():
		return "LogAppendTime"
	}
	return "CreateTime"
}

// batch prints the line of a batch, or of a message of v0 or v1.
func (d *dumper) batch(es *log.SegmentEntries) error {
	b := es.Header()
	if b.Magic() >= 2 {
		d.number("baseOffset: ", b.BaseOffset())
		d.number(" lastOffset: ", b.LastOffset())
		d.number(" count: ", int64(b.Count()))
		d.number(" baseSequence: ", int64(b.BaseSequence()))
		d.number(" lastSequence: ", int64(b.LastSequence()))
		d.number(" producerId: ", b.ProducerID())
		d.number(" producerEpoch: ", int64(b.ProducerEpoch()))
		d.number(" partitionLeaderEpoch: ", int64(b.LeaderEpoch()))
		d.bool(" isTransactional: ", b.IsTransactional())
		d.bool(" isControl: ", b.IsControl())
		d.line = append(d.line, " deleteHorizonMs: "...)
		if b.HasDeleteHorizon() {
			d.number("OptionalLong[", b.BaseTimestamp())
			d.line = append(d.line, ']')
		} else {
			d.line = append(d.line, "OptionalLong.empty"...)
		}
	} else {
		d.number("offset: ", b.LastOffset())
	}
	if b.Magic() < 0 {
		return errMagic(b)
	}
	if !b.Codec().Known() {
		return asKafka("Unknown compression type id: %d", b.Codec())
	}
	d.number(" position: ", es.Position())
	d.line = append(append(d.line, ' '), timeType(b)...)
	d.number(": ", b.MaxTimestamp())
	d.number(" size: ", es.Size())
	d.number(" magic: ", int64(b.Magic()))
	d.line = append(append(d.line, " compresscodec: "...), b.Codec().Name()...)
	d.number(" crc: ", int64(b.CRC()))
	valid, err := es.Valid() // header and position are not valid any more
	if err != nil {
		return err
	}
	d.bool(" isvalid: ", valid)
	d.end()
	return nil
}

// wholeEntry reads the current entry, if its records can be looked for in it.
func wholeEntry(es *log.SegmentEntries) (record.Batch, error) {
	b, err := es.Entry()
	if err == nil && b.Magic() < 0 {
		err = errMagic(b)
	}
	if err == nil && b.Magic() >= 2 && len(b) < record.HeaderSize {
		err = fmt.Errorf("the batch at position %d has %d bytes, and its header alone needs %d", es.Position(), len(b), record.HeaderSize)
	}
	return b, err
}

// records prints the records of the current entry. last is the offset of the record before them,
// -1 for none.
func (d *dumper) records(name string, es *log.SegmentEntries, last int64) (int64, error) {
	b, err := wholeEntry(es)
	if err != nil {
		return last, err
	}
	one := func(r record.Record, m *record.Message) error {
		if last != -1 && r.Offset != last+1 {
			note(&d.gaps, absolute(name), pair{last, r.Offset})
		}
		last = r.Offset
		if !d.o.skipMetadata {
			d.record(b, r, m)
			if b.IsControl() {
				if d.line, err = appendControl(d.line, r); err != nil {
					return err
				}
			}
		}
		if d.o.print && !b.IsControl() {
			prefix := " "
			if d.o.skipMetadata {
				prefix = "| "
			}
			if d.line, err = d.o.parser.append(d.line, prefix, r); err != nil {
				return err
			}
		}
		d.end()
		return nil
	}
	if b.Magic() < 2 {
		for m, err := range record.Messages(b, maxDumpedRecord) {
			if err == nil {
				err = one(m.Record, &m)
			}
			if err != nil {
				return last, err
			}
		}
		return last, nil
	}
	for r, err := range record.Records(b, maxDumpedRecord) {
		if err == nil {
			err = one(r, nil)
		}
		if err != nil {
			return last, err
		}
	}
	return last, nil
}

// record begins the line of a record. m is there for one of v0 or v1.
func (d *dumper) record(b record.Batch, r record.Record, m *record.Message) {
	size := func(b []byte) int64 {
		if b == nil {
			return -1
		}
		return int64(len(b))
	}
	d.number("| offset: ", r.Offset)
	d.line = append(append(d.line, ' '), timeType(b)...)
	d.number(": ", r.Timestamp)
	d.number(" keySize: ", size(r.Key))
	d.number(" valueSize: ", size(r.Value))
	if m != nil {
		d.bool(" isValid: ", m.Valid())
		d.number(" crc: ", int64(m.CRC()))
		return
	}
	sequence := int32(-1)
	if b.BaseSequence() >= 0 {
		sequence = record.AddSequence(b.BaseSequence(), int32(r.Offset-b.BaseOffset()))
	}
	d.number(" sequence: ", int64(sequence))
	d.line = append(d.line, " headerKeys: ["...)
	for i, h := range r.Headers {
		if i > 0 {
			d.line = append(d.line, ',')
		}
		d.line = appendUTF8(d.line, []byte(h.Key))
	}
	d.line = append(d.line, ']')
}

// says is an error as Kafka words it: the rooms below put their sentinel before Kafka's words.
func says(err error) string {
	text := err.Error()
	for _, s := range []error{record.ErrInvalidRecord, record.ErrCorrupt, record.ErrCodec} {
		if rest, ok := strings.CutPrefix(text, s.Error()+": "); ok {
			if errors.Is(err, record.ErrCodec) {
				return "Failed to decompress record stream: " + rest
			}
			return strings.ToUpper(rest[:1]) + rest[1:]
		}
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Sprintf("%s: %v", path.Path, path.Err)
	}
	return text
}
