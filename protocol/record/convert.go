package record

import (
	"fmt"
	"io"
)

// convertUp makes one v2 batch of a set of v0 or v1 messages (LogValidator's
// convertAndAssignOffsetsNonCompressed and buildRecordsAndAssignOffsets). The set is either
// one wrapper or any number of messages that are not compressed.
func convertUp(data []byte, r *Rules, source Codec) (Validated, error) {
	o := BuilderOptions{Codec: r.Codec, Level: r.Level, LogAppend: r.LogAppend, AppendTime: r.Now}
	if r.Codec == Producer {
		o.Codec, o.Level = source, 0
	}
	b := new(Builder)
	b.begin(nil, o, r.MaxBatchBytes)
	err := addMessages(b, data, r)
	batch, finishErr := b.finish()
	if err == nil {
		err = finishErr
	}
	if err != nil {
		return Validated{}, err
	}
	v := Validated{Records: batch, Rewritten: true, Count: b.Count(), MaxTimestamp: batch.MaxTimestamp(),
		ShallowOffsetOfMax: batch.LastOffset(), AppendTime: noTimestamp}
	if r.LogAppend {
		v.AppendTime = r.Now
	}
	if v.MaxTimestamp == noTimestamp {
		v.ShallowOffsetOfMax = -1
	}
	return v, nil
}

// addMessages checks the messages of a set and adds them to a batch.
func addMessages(b *Builder, data []byte, r *Rules) error {
	first, index := Batch(nil), int32(0)
	for {
		entry, rest, err := next(data)
		if err != nil || entry == nil {
			return err
		}
		if first == nil {
			first = entry
		}
		if entry.Magic() != first.Magic() {
			return fmt.Errorf("%w: batch magic %d is not the same as the first batch's magic byte %d in topic partition %s",
				ErrInvalidRecord, entry.Magic(), first.Magic(), r.Partition)
		}
		check := checker{rules: r, batchAppendTime: entry.LogAppendTime()}
		var refused faults
		err = eachMessage(entry, r.MaxDecompressedBytes, true, func(inner Batch, m message) error {
			defer func() { index++ }()
			if inner.Magic() != entry.Magic() {
				return fmt.Errorf("%w: record's magic %d does not match outer magic %d in topic partition %s",
					ErrInvalidRecord, inner.Magic(), entry.Magic(), r.Partition)
			}
			if entry.Codec() != None {
				if err := checkCRC(inner); err != nil {
					return err
				}
			}
			if f := check.record(m.key != nil, m.timestamp); f != faultless {
				refused.add(&check, index, f, inner.BaseOffset(), m.timestamp, shape{keySize: int32(len(m.key)), valueSize: int32(len(m.value))})
				return nil
			}
			if m.timestamp < noTimestamp {
				return fmt.Errorf("%w: invalid negative timestamp %d", ErrInvalidTimestamp, m.timestamp)
			}
			if refused.total == 0 {
				b.Add(m.timestamp, m.key, m.value)
			}
			return b.err
		})
		if err != nil {
			return err
		}
		if err := refused.err(); err != nil {
			return err
		}
		data = rest
	}
}

// rebuild writes a checked v2 batch anew: with another codec, or with the offsets that the
// records should have had. Records pass through one at a time. maxTime is what the header is
// to say.
func rebuild(b Batch, r *Rules, target Codec, consecutive bool, maxTime int64) (Batch, error) {
	level := r.Level
	if r.Codec == Producer {
		level = 0
	}
	if consecutive && !b.LogAppendTime() {
		return recode(b, r, target, level, maxTime)
	}
	o := BuilderOptions{Codec: target, Level: level, Control: b.IsControl(), LogAppend: r.LogAppend, AppendTime: r.Now,
		LeaderEpoch: b.LeaderEpoch(),
		Producer:    &ProducerInfo{b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.IsTransactional()}}
	n := new(Builder)
	n.begin(make([]byte, 0, len(b)), o, r.MaxBatchBytes)
	err := batchRecords(b, r.MaxDecompressedBytes, true, func(rec Record) bool {
		n.Add(rec.Timestamp, rec.Key, rec.Value, rec.Headers...)
		return n.err == nil
	})
	batch, finishErr := n.finish()
	if err == nil {
		err = finishErr
	}
	return batch, err
}

// recode packs the same records with another codec, without looking at them.
func recode(b Batch, r *Rules, target Codec, level int, maxTime int64) (Batch, error) {
	out := sink{b: append(make([]byte, 0, len(b)), b[:HeaderSize]...), most: r.MaxBatchBytes}
	pack := deflate(target, level, 2, &out)
	err := copyBody(pack, b)
	if closeErr := pack.Close(); err == nil {
		err = closeErr
	}
	pack.release()
	if err == nil {
		err = out.check()
	}
	if err != nil {
		return nil, err
	}
	batch := Batch(out.b)
	batch.SetBaseOffset(0)
	batch.SetAttributes(b.Attributes()&^codecMask | int16(target))
	batch.setLength(len(batch))
	setTime(batch, r.LogAppend, maxTime)
	batch.UpdateCRC()
	return batch, nil
}

func copyBody(dst io.Writer, b Batch) error {
	if b.Codec() == None {
		_, err := dst.Write(b.Body())
		return err
	}
	c, err := openCursor(b, 0, true)
	if err != nil {
		return err
	}
	defer c.close()
	for {
		if err := c.want(1); err != nil {
			return err
		}
		if c.at == len(c.buf) {
			return nil
		}
		if _, err := dst.Write(c.buf[c.at:]); err != nil {
			return err
		}
		c.at = len(c.buf)
	}
}
