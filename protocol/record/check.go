package record

import (
	"fmt"
	"strings"
)

// fault is what can be wrong with one record while its batch is sound.
type fault int8

const (
	faultless fault = iota
	faultKey
	faultTime
	faultTimeType
)

// checker holds records to a topic's rules: LogValidator's validateRecord.
type checker struct {
	rules           *Rules
	batchAppendTime bool // the batch says LogAppendTime
	skimmed         bool // Kafka would only skim these records, which shows in a message
}

// faults collects the records that were refused: LogValidator's processRecordErrors. It is
// apart from the checker so that rules need not be on the heap when there are none.
type faults struct {
	list       []RecordFault
	total      int
	timestamps bool // one of them is of a timestamp
}

// batch checks every record of a v2 batch. consecutive says that their offsets count from 0 as
// they should.
func (c *checker) batch(b Batch) (maxTime int64, consecutive bool, err error) {
	count := b.Count()
	if count < 0 {
		return 0, false, fmt.Errorf("%w: found invalid record count %d in magic v%d batch", ErrInvalidRecord, count, b.Magic())
	}
	maxTime, consecutive = noTimestamp, true
	if count == 0 {
		return maxTime, consecutive, nil
	}
	from, err := openCursor(b, c.rules.MaxDecompressedBytes, true)
	if err != nil {
		return 0, false, err
	}
	defer from.close()
	var refused faults
	baseTime := b.BaseTimestamp()
	for i := range count {
		s, err := from.walk()
		if err != nil {
			return 0, false, err
		}
		timestamp := baseTime + s.timestampDelta
		if c.batchAppendTime {
			timestamp = b.MaxTimestamp()
		}
		maxTime = max(maxTime, timestamp)
		consecutive = consecutive && s.offsetDelta == i
		if f := c.record(s.keySize >= 0, timestamp); f != faultless {
			refused.add(c, i, f, b.BaseOffset()+int64(s.offsetDelta), timestamp, s)
		}
	}
	if err := from.finish(); err != nil {
		return 0, false, err
	}
	return maxTime, consecutive, refused.err()
}

// record checks one record without keeping anything.
func (c *checker) record(hasKey bool, timestamp int64) fault {
	r := c.rules
	switch {
	case r.Compacted && !hasKey:
		return faultKey
	case !r.LogAppend && timestamp != noTimestamp:
		// As in Kafka the difference may wrap around.
		if age := r.Now - timestamp; age > r.BeforeMax || -age > r.AfterMax {
			return faultTime
		}
	case c.batchAppendTime:
		return faultTimeType
	}
	return faultless
}

// text is Kafka's for a record that was refused.
func (c *checker) text(f fault, offset, timestamp int64, s shape) string {
	r := c.rules
	switch f {
	case faultKey:
		return "Compacted topic cannot accept message without key in topic partition " + r.Partition
	case faultTime:
		return fmt.Sprintf("Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]",
			timestamp, offset, r.Now-r.BeforeMax, r.Now+r.AfterMax)
	}
	shown := fmt.Sprintf("DefaultRecord(offset=%d, timestamp=%d, key=%d bytes, value=%d bytes)", offset, timestamp, max(s.keySize, 0), max(s.valueSize, 0))
	if c.skimmed {
		shown = fmt.Sprintf("PartialDefaultRecord(offset=%d, timestamp=%d, key=%d bytes, value=%d bytes)", offset, timestamp, s.keySize, s.valueSize)
	}
	return "Invalid timestamp type in message " + shown + ". Producer should not set timestamp type to LogAppendTime."
}

// add notes a record that was refused.
func (f *faults) add(c *checker, index int32, of fault, offset, timestamp int64, s shape) {
	f.total++
	f.timestamps = f.timestamps || of != faultKey
	if len(f.list) < maxRecordFaults {
		f.list = append(f.list, RecordFault{index, c.text(of, offset, timestamp, s)})
	}
}

// err is nil if no record was refused.
func (f *faults) err() error {
	if f.total == 0 {
		return nil
	}
	e := &RecordError{Err: ErrInvalidRecord, Records: f.list, Total: f.total}
	if f.timestamps {
		e.Err = ErrInvalidTimestamp
		e.Message = "One or more records have been rejected due to invalid timestamp"
		return e
	}
	var first []string
	for _, r := range f.list[:min(3, len(f.list))] {
		first = append(first, fmt.Sprintf("RecordError(batchIndex=%d, message='%s')", r.Index, r.Message))
	}
	e.Message = fmt.Sprintf("One or more records have been rejected due to %d record errors in total, and only showing the first three errors at most: [%s]",
		f.total, strings.Join(first, ", "))
	return e
}
