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
	first := int32(0)
	if from.src == nil {
		first, from.at, maxTime = c.plain(from.buf, count, baseTime, b)
	}
	for i := first; i < count; i++ {
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

// plain is the loop of batch for what nearly all records of an uncompressed batch are: sound,
// without headers, with their offsets in a row. It stops before the first that is not, which the
// loop looks at anew, and returns how many came before, and where they end.
func (c *checker) plain(body []byte, count int32, baseTime int64, b Batch) (n int32, at int, maxTime int64) {
	maxTime = noTimestamp
	known, knownKey, appended := int64(noTimestamp), false, b.MaxTimestamp()
	for ; n < count; n++ {
		// The shortest record has seven bytes: its size, attributes, two deltas, key, value, headers.
		if len(body)-at < 7 {
			break
		}
		size, i := skimVarint(body, at)
		if i < 0 || size < 6 || int(size) > len(body)-i {
			break
		}
		r, next := body[i:i+int(size)], i+int(size)
		i = 1
		delta := int64(0)
		if u, v := uint64(r[1]), uint64(r[2]); u < 0x80 {
			delta, i = int64(u>>1)^-int64(u&1), 2
		} else if v < 0x80 {
			u = u&0x7f | v<<7
			delta, i = int64(u>>1)^-int64(u&1), 3
		} else {
			break
		}
		offset, keySize, valueSize := int32(0), int32(-1), int32(0)
		if offset, i = skimVarint(r, i); i < 0 || offset != n || i >= len(r) {
			break
		}
		if r[i] == 1 { // no key
			i++
		} else if keySize, i = skimVarint(r, i); i < 0 || int(keySize) > len(r)-i {
			break
		} else {
			i += int(max(keySize, 0))
		}
		if valueSize, i = skimVarint(r, i); i < 0 || int(valueSize) != len(r)-i-1 && valueSize >= 0 {
			break
		}
		if i += int(max(valueSize, 0)); i+1 != len(r) || r[i] != 0 {
			break
		}
		timestamp := baseTime + delta
		if c.batchAppendTime {
			timestamp = appended
		}
		if hasKey := keySize >= 0; n == 0 || timestamp != known || hasKey != knownKey { // else it is as good as the last
			if c.record(hasKey, timestamp) != faultless {
				break
			}
			known, knownKey = timestamp, hasKey
			maxTime = max(maxTime, timestamp)
		}
		at = next
	}
	return n, at, maxTime
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
