package log

import (
	"fmt"
	"slices"

	"ottla/protocol/record"
)

// Append is what a leader appends.
type Append struct {
	// Records are batches, or messages of v0 and v1, as a client sent them. Offsets and leader
	// epoch are written into them; the log keeps nothing of the slice.
	Records        []byte
	Epoch          int32 // the leader's, written into the batches
	Origin         record.Origin
	RequestVersion int16 // of Produce

	// VerifyTxn: a client's transactional batch must continue a transaction that is open in this
	// log, or come with the Guard of a StartVerification that no marker has overtaken.
	VerifyTxn bool
	Guard     uint64
	// TxnVersion is the transaction.version by which a marker ends its transaction; from 2 on its
	// epoch is above that of the records.
	TxnVersion int16
}

// Appended is what became of it.
type Appended struct {
	First, Last int64 // offsets
	AppendTime  int64 // ms, -1 unless the topic's timestamps are those of the append
	Start       int64 // the log start
	Count       int
	// Duplicate: nothing was appended, because the producer sent the batch before; First, Last
	// and AppendTime are those of then.
	Duplicate bool
	// MustFlush: flush.messages is reached. The records must not be acknowledged before
	// Flush(Last+1) has returned.
	MustFlush bool
}

// Append validates records, gives them offsets and writes them with one write. It does not
// wait for a disk: see MustFlush.
//
// Errors: those of record.Validate, ErrTooLarge, ErrOutOfOrderSequence,
// ErrInvalidProducerEpoch, ErrInvalidTxnState, ErrCoordinatorFenced, ErrStorage, ErrFull,
// ErrClosed. After any of them nothing was appended.
func (l *Log) Append(a Append) (Appended, error) {
	if err := l.usable(); err != nil {
		return Appended{}, err
	}
	o := l.options()
	now := l.m.nowMs()
	v, err := record.Validate(a.Records, o.rules(l.label, a, now))
	if err != nil {
		return Appended{}, err
	}
	done := Appended{First: noOffset, Last: noOffset, AppendTime: v.AppendTime, Start: l.start.Load(), Count: v.Count}
	if len(v.Records) == 0 {
		return done, nil
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return Appended{}, err
	}
	done.Start = l.start.Load()
	if dup, ok, err := l.checkProducers(v.Records, &a); err != nil || ok {
		if ok {
			done.Duplicate, done.AppendTime = true, dup.time
			done.First, done.Last = dup.firstOffset(), dup.lastOffset
			done.MustFlush = o.FlushMessages == 1 && l.Flushed() <= done.Last
		}
		return done, err
	}
	next := l.end.Load()
	done.First = next
	for b := range record.All(v.Records) {
		b.SetBaseOffset(next)
		b.SetLeaderEpoch(a.Epoch)
		next = b.NextOffset()
	}
	done.Last = next - 1
	if a.Epoch > l.epochs.last() {
		l.epochs.assign(a.Epoch, done.First)
	}
	if err := l.appendLocked(v.Records, done.First, next, v.MaxTimestamp, now, o); err != nil {
		return Appended{}, err
	}
	done.MustFlush = l.mustFlush(o, next)
	return done, nil
}

// AppendAsFollower appends what a leader sent, with its offsets and epochs. Bytes at the end
// that are no whole batch are left out. ErrUnexpectedOffset: the first batch begins below the
// log's end, so that the log has to be truncated first. record.ErrCorrupt: a checksum is
// wrong. After any error nothing was appended.
func (l *Log) AppendAsFollower(records []byte) (Appended, error) {
	if err := l.usable(); err != nil {
		return Appended{}, err
	}
	done := Appended{AppendTime: noTime, First: noOffset, Last: noOffset}
	whole, last, maxTime := 0, int64(-1), int64(noTime)
	for b := range record.All(records) {
		if err := sameCRC(b, b.ComputeCRC()); err != nil {
			return Appended{}, fmt.Errorf("%s: batch at offset %d: %w", l, b.BaseOffset(), err)
		}
		if b.LastOffset() <= last || b.BaseOffset() < 0 || b.LastOffset() < b.BaseOffset() {
			return Appended{}, fmt.Errorf("%s: offset %d after %d: %w", l, b.LastOffset(), last, ErrUnexpectedOffset)
		}
		if whole == 0 {
			done.First = b.BaseOffset()
		}
		whole += len(b)
		last = b.LastOffset()
		maxTime = max(maxTime, b.MaxTimestamp())
		done.Count += entryCount(b)
	}
	if whole == 0 {
		return done, nil
	}
	done.Last = last
	records = records[:whole]
	o := l.options()

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return Appended{}, err
	}
	done.Start = l.start.Load()
	if end := l.end.Load(); done.First < end {
		return Appended{}, fmt.Errorf("%s: offset %d, log ends at %d: %w", l, done.First, end, ErrUnexpectedOffset)
	}
	var before []epochEntry
	changed := false
	for b := range record.All(records) {
		if b.Magic() >= 2 && b.LeaderEpoch() == l.epochs.last() {
			continue
		}
		if !changed {
			before, changed = l.epochs.entries(), true
		}
		if b.Magic() < 2 {
			l.epochs.clear() // as Kafka: truncation goes by the high watermark then
		} else {
			l.epochs.assign(b.LeaderEpoch(), b.BaseOffset())
		}
	}
	if err := l.appendLocked(records, done.First, last+1, maxTime, l.m.nowMs(), o); err != nil {
		if changed {
			l.epochs.restore(before)
		}
		return Appended{}, err
	}
	done.MustFlush = l.mustFlush(o, last+1)
	return done, nil
}

func entryCount(b record.Batch) int {
	if b.Magic() < 2 {
		return 1
	}
	return int(b.Count())
}

// checkProducers says whether the records may follow what their producers wrote before. dup is
// the stored batch that a client's repeats.
func (l *Log) checkProducers(records []byte, a *Append) (dup batchMeta, ok bool, err error) {
	client := a.Origin == record.Client
	for b := range record.All(records) {
		if !b.HasProducerID() {
			continue
		}
		if client {
			if p := l.state.byID[b.ProducerID()]; p != nil {
				if p.precedes(b) {
					if err := l.recall(p); err != nil {
						return dup, false, err
					}
				}
				if dup, ok := p.duplicate(b); ok {
					return dup, true, nil
				}
			}
		}
		if b.IsControl() {
			m, ok, err := parseMarker(b)
			if err == nil && ok {
				err = l.state.errOfMarker(b, m, a.TxnVersion)
			}
			if err != nil {
				return dup, false, fmt.Errorf("%s: %w", l, err)
			}
			continue
		}
		if err := l.state.errOf(b, a); err != nil {
			return dup, false, fmt.Errorf("%s: %w", l, err)
		}
	}
	return dup, false, nil
}

// appendLocked writes batches that have their offsets, from first up to but not including
// next, and makes them visible. The caller holds mu.
func (l *Log) appendLocked(records []byte, first, next, maxTime, now int64, o *Options) error {
	if int64(len(records)) > o.SegmentBytes {
		return fmt.Errorf("%s: %d bytes, a segment has %d: %w", l, len(records), o.SegmentBytes, ErrTooLarge)
	}
	s := l.active()
	roll, err := s.shouldRoll(o, now, int64(len(records)), next-1, maxTime)
	if err != nil {
		return l.readFailed("read the active segment", err)
	}
	if roll || !s.fits(next-1) {
		if s, err = l.rollLocked(first); err != nil {
			return err
		}
	} else if err := l.readyLocked(s); err != nil {
		return err
	}
	if len(l.state.open) > 0 {
		if err := l.expectAborted(s, records); err != nil {
			if cut := s.dropExpected(); cut != nil {
				l.dir.fail(fmt.Errorf("cut back a partial write of %s: %w", l, cut), "topic", l.topic, "partition", l.partition)
			}
			return l.writeFailed("write an aborted transaction", err)
		}
	}
	pos := s.size.Load()
	if err, cut := s.write(records); err != nil {
		if len(l.state.open) > 0 && cut == nil {
			cut = s.dropExpected()
		}
		if cut != nil {
			l.dir.fail(fmt.Errorf("cut back a partial write of %s: %w", l, cut), "topic", l.topic, "partition", l.partition)
			err = fmt.Errorf("%w: %w", ErrStorage, cut)
		}
		return l.writeOf(int64(len(records)), "append", err)
	}

	// The bytes are in the file. What follows must not fail the append; end is stored before
	// size, so that a reader who sees bytes knows an end that is not before them.
	top := stamp{noTime, s.base}
	for b := range record.All(records) {
		if t := b.MaxTimestamp(); t > top.time {
			top = stamp{t, b.LastOffset()}
		}
		s.wrote(placeOf(b, pos), top, o.IndexIntervalBytes)
		pos += int64(len(b))
		if b.HasProducerID() {
			l.applyLocked(s, b)
		}
	}
	l.end.Store(next)
	s.size.Store(pos)
	var full error
	if s.pendingFull() {
		if err := s.writeIndexes(); err != nil { // they stay in memory
			full = l.writeFailed("write an index", err)
		}
	}
	if full == nil && l.trouble.full.Load() {
		l.room(int64(len(records)))
	}
	l.tidyLaterLocked()
	l.m.metrics.appendedBytes.Add(float64(len(records)))
	l.wake.all()
	return nil
}

// readyLocked prepares a segment from disk, or one whose first record this is, for an append.
func (l *Log) readyLocked(s *segment) error {
	if s.size.Load() == 0 && !s.checked.Load() {
		return l.writeFailed("create a segment", s.create())
	}
	if err := s.ensure(); err != nil {
		return l.readFailed("read the active segment's indexes", err)
	}
	return nil
}

// applyLocked updates the state of the batch's producer.
func (l *Log) applyLocked(s *segment, b record.Batch) {
	if !b.IsControl() {
		l.state.apply(b)
	} else if m, ok, err := parseMarker(b); err == nil && ok {
		ended, stable, ok := l.state.applyMarker(b, m)
		if ok && !m.Commit {
			err := s.addAborted(Aborted{ended.id, ended.first, ended.last, stable})
			if err != nil {
				// Without the entry a reader would take the aborted records for committed ones.
				l.fail(l.writeFailed("write an aborted transaction", err))
			}
			l.flush.names.Store(true)
		}
	}
	l.first.Store(l.state.firstUnstable())
}

// mustFlush says whether so much is not flushed that an acknowledgement has to wait.
func (l *Log) mustFlush(o *Options, end int64) bool {
	return o.FlushMessages > 0 && end-l.Flushed() >= o.FlushMessages
}

// rollLocked closes the active segment and begins the next one at an offset. The caller holds
// mu. If it fails the log is as it was.
func (l *Log) rollLocked(base int64) (*segment, error) {
	old := l.active()
	if old.base == base {
		return old, l.readyLocked(old) // it is empty
	}
	if err := old.finish(); err != nil {
		return nil, l.writeFailed("close a segment", err)
	}
	if err := l.snapshotLocked(base); err != nil {
		return nil, l.writeFailed("write a producer snapshot", err)
	}
	s := newSegment(l, base)
	if err := s.create(); err != nil {
		return nil, l.writeFailed("create a segment", err)
	}
	l.setSegments(append(slices.Clip(l.segments()), s))
	l.m.metrics.rolls.Inc()
	l.scheduleFlushLocked()
	return s, nil
}

// snapshotLocked writes the producers' state as that of an offset. It becomes durable with
// the next flush.
func (l *Log) snapshotLocked(offset int64) error {
	if n := len(l.state.snapshot); n > 0 && l.state.snapshot[n-1] >= offset {
		return nil
	}
	err := writeFile(l.m.fs, l.path(offsetName(offset, snapshotSuffix)), formatSnapshot(l.state.byID), false)
	if err != nil {
		return err
	}
	l.state.snapshot = append(l.state.snapshot, offset)
	l.flush.snapped(offset)
	l.flush.names.Store(true)
	return nil
}
