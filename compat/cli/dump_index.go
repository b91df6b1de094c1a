package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"ottla/log"
	"ottla/protocol/record"
)

// kafkaError is an error in the words of Kafka's tool.
type kafkaError string

func (e kafkaError) Error() string { return string(e) }

func asKafka(format string, args ...any) error { return kafkaError(fmt.Sprintf(format, args...)) }

// sibling is another file of the same segment, by its absolute path.
func sibling(name, suffix string) string {
	name = absolute(name)
	dir, base := "", name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		dir, base = name[:i+1], name[i+1:]
	}
	digits, _, _ := strings.Cut(base, ".")
	return dir + digits + suffix
}

// index prints a .index, and compares it with the log: the batch at each position must have the
// last offset that the entry says.
func (d *dumper) index(name string) error {
	seg, err := log.OpenSegmentFile(d.fs, sibling(name, ".log"))
	if err != nil {
		return err
	}
	defer seg.Close()
	x, err := log.OpenIndexFile(d.fs, name)
	if err != nil {
		return err
	}
	defer x.Close()
	if x.Len() == 0 {
		d.line = append(append(d.line, name...), " is empty."...)
		d.end()
		return nil
	}
	if d.o.sanity {
		return d.offsetSanity(name, x)
	}
	for i := range x.Len() {
		e, err := x.OffsetEntry(i)
		if err != nil {
			return err
		}
		if i > 0 && e.Offset == x.Base() {
			return nil // room that was never used
		}
		last, err := lastOffsetAt(seg, sibling(name, ".log"), int64(e.Position), d.o.maxMessage)
		if err != nil {
			return err
		}
		if last != e.Offset {
			note(&d.mismatches, absolute(name), pair{e.Offset, last})
		}
		if !d.o.verify {
			d.line = append(d.line, "offset: "...)
			d.line = strconv.AppendInt(d.line, e.Offset, 10)
			d.line = append(d.line, " position: "...)
			d.line = strconv.AppendInt(d.line, int64(e.Position), 10)
			d.end()
		}
	}
	return nil
}

// checkPosition refuses a position that is not in the log.
func checkPosition(seg *log.SegmentFile, name string, position int64) error {
	text := ""
	switch {
	case position < 0:
		text = "Invalid position: %d in read from"
	case position > seg.Size():
		text = "Slice from position %d exceeds end position of"
	default:
		return nil
	}
	return asKafka(text+" FileRecords(size=%d, file=%s, start=0, end=2147483647)", position, seg.Size(), name)
}

// lastOffsetAt is the last offset of the batch at a position.
func lastOffsetAt(seg *log.SegmentFile, name string, position, most int64) (int64, error) {
	if err := checkPosition(seg, name, position); err != nil {
		return 0, err
	}
	es := seg.Entries(position, position+most)
	if !es.Next() {
		if err := es.Err(); err != nil {
			return 0, err
		}
		return 0, asKafka("no batch of at most %d bytes begins at position %d of %s", most, position, name)
	}
	return es.Header().LastOffset(), nil
}

func (d *dumper) passed(name string) error {
	d.line = append(append(d.line, name...), " passed sanity check."...)
	d.end()
	return nil
}

// offsetSanity is OffsetIndex.sanityCheck.
func (d *dumper) offsetSanity(name string, x *log.IndexFile) error {
	last, err := x.OffsetEntry(x.Len() - 1)
	switch {
	case err != nil:
		return err
	case last.Offset < x.Base():
		return asKafka("Corrupt index found, index file %s has non-zero size but the last offset is %d which is less than the base offset %d", absolute(name), last.Offset, x.Base())
	case x.Size()%x.EntryBytes() != 0:
		return asKafka("Index file %s is corrupt, found %d bytes which is neither positive nor a multiple of %d", absolute(name), x.Size(), x.EntryBytes())
	}
	return d.passed(name)
}

// timeSanity is TimeIndex.sanityCheck.
func (d *dumper) timeSanity(name string, x *log.IndexFile) error {
	if n := x.Len(); n > 0 {
		last, err1 := x.TimeEntry(n - 1)
		first, err2 := x.TimeEntry(0)
		switch {
		case err1 != nil || err2 != nil:
			return errors.Join(err1, err2)
		case last.Timestamp < first.Timestamp:
			return asKafka("Corrupt time index found, time index file (%s) has non-zero size but the last timestamp is %d which is less than the first timestamp %d", absolute(name), last.Timestamp, first.Timestamp)
		case last.Offset < x.Base():
			return asKafka("Corrupt time index found, time index file (%s) has non-zero size but the last offset is %d which is less than the first offset %d", absolute(name), last.Offset, x.Base())
		}
	}
	if x.Size()%x.EntryBytes() != 0 {
		return asKafka("Time index file %s is corrupt, found %d bytes which is neither positive nor a multiple of %d", absolute(name), x.Size(), x.EntryBytes())
	}
	return d.passed(name)
}

// timeIndex prints a .timeindex, and compares it with the log: the batch of each offset must have
// the timestamp as its largest, and timestamps must rise.
func (d *dumper) timeIndex(name string) error {
	seg, err := log.OpenSegmentFile(d.fs, sibling(name, ".log"))
	if err != nil {
		return err
	}
	defer seg.Close()
	offsets, err := log.OpenIndexFile(d.fs, sibling(name, ".index"))
	if errors.Is(err, fs.ErrNotExist) {
		offsets, err = nil, nil // the log is searched from its start
	}
	if err != nil {
		return err
	}
	if offsets != nil {
		defer offsets.Close()
	}
	x, err := log.OpenIndexFile(d.fs, name)
	if err != nil {
		return err
	}
	defer x.Close()
	if d.o.sanity {
		return d.timeSanity(name, x)
	}
	before := int64(-1)
	for i := range x.Len() {
		e, err := x.TimeEntry(i)
		if err != nil {
			return err
		}
		if i > 0 && e.Offset == x.Base() {
			return nil // room that was never used
		}
		if err := d.compareTime(name, seg, offsets, e, before); err != nil {
			return err
		}
		if !d.o.verify {
			d.line = append(d.line, "timestamp: "...)
			d.line = strconv.AppendInt(d.line, e.Timestamp, 10)
			d.line = append(d.line, " offset: "...)
			d.line = strconv.AppendInt(d.line, e.Offset, 10)
			d.end()
		}
		before = e.Timestamp
	}
	return nil
}

func (d *dumper) compareTime(name string, seg *log.SegmentFile, offsets *log.IndexFile, e log.TimeEntry, before int64) error {
	from := int64(0)
	if offsets != nil {
		at, err := offsets.Lookup(e.Offset)
		if err != nil {
			return err
		}
		from = int64(at.Position)
	}
	if err := checkPosition(seg, sibling(name, ".log"), from); err != nil {
		return err
	}
	es := seg.Entries(from, math.MaxInt64)
	for es.Next() {
		last := es.Header().LastOffset()
		if last < e.Offset {
			continue
		}
		if last != e.Offset {
			note(&d.notFound, absolute(name), pair{e.Offset, last})
			return nil
		}
		most, err := maxTimestamp(es)
		if err != nil {
			return err
		}
		if most != e.Timestamp {
			note(&d.timestamps, absolute(name), pair{e.Timestamp, most})
		}
		if before >= e.Timestamp {
			note(&d.disorder, absolute(name), pair{e.Timestamp, before})
		}
		return nil
	}
	if err := es.Err(); err != nil {
		return err
	}
	note(&d.notFound, absolute(name), pair{e.Offset, -1})
	return nil
}

// maxTimestamp is the largest timestamp of a batch's records.
func maxTimestamp(es *log.SegmentEntries) (int64, error) {
	b, err := wholeEntry(es)
	if err != nil {
		return 0, err
	}
	most := int64(-1)
	for r, err := range record.Records(b, maxDumpedRecord) {
		if err != nil {
			return 0, err
		}
		most = max(most, r.Timestamp)
	}
	return most, nil
}

// txnIndex prints a .txnindex.
func (d *dumper) txnIndex(name string) error {
	if _, err := log.BaseOffset(name); err != nil {
		return err
	}
	for e, err := range log.TxnEntries(d.fs, absolute(name)) {
		if err != nil {
			return err
		}
		d.line = fmt.Appendf(d.line, "version: %d producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d",
			e.Version, e.ProducerID, e.First, e.Last, e.StableOffset)
		d.end()
	}
	return nil
}
