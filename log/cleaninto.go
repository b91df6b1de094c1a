package log

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// group cleans a group of segments into one that takes their place (Cleaner.cleanSegments).
func (r *cleanRound) group(list []*segment, legacyHorizon int64) (err error) {
	l := r.l
	d, err := r.begin(list[0].base)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.giveUp())
		}
	}()
	r.last = l.lastRecords()
	r.txns.kept = nil
	all := l.segments()
	for i, s := range list {
		r.o = l.options()
		upper := r.job.to
		if next := floor(all, s.base) + 1; next < len(all) {
			upper = all[next].base
		}
		aborted, err := l.AbortedIn(s.base, upper)
		if err != nil {
			return err
		}
		r.txns.add(aborted)
		at, err := s.modified()
		if err != nil {
			return err
		}
		r.legacyStays = at > legacyHorizon
		if err := r.each(s, 0, func(b record.Batch) error { return r.batch(d, b) }); err != nil {
			return err
		}
		if i == len(list)-1 {
			d.modified = at
		}
	}
	if err := d.finish(r.txns.kept); err != nil {
		return err
	}
	if err := r.stopped(); err != nil {
		return err
	}
	r.stats.written += d.s.size.Load()
	return l.replaceSegments([]*segment{d.s}, list)
}

// batch writes what stays of an entry (Cleaner.cleanInto and its RecordFilter).
func (r *cleanRound) batch(d *cleanedSegment, b record.Batch) error {
	r.stats.read += int64(len(b))
	gone, discard := false, false
	if b.IsControl() {
		var err error
		if gone, err = r.txns.marker(b); err != nil {
			return err
		}
		// A marker stays for as long as tombstones do, counted from when nothing of its transaction was left.
		discard = gone && b.HasDeleteHorizon() && b.BaseTimestamp() <= r.now
	} else {
		discard = r.txns.data(b)
	}
	// What a producer wrote last says its sequence number and epoch, and the last batch of the part
	// that is cleaned says where it ends.
	empty := b.HasProducerID() && r.isLast(b) || b.NextOffset() == r.job.to
	if discard && !empty {
		if b.Magic() >= 2 {
			r.stats.readRecs += int64(max(b.Count(), 0))
		}
		return nil
	}
	if b.IsControl() {
		r.deletesStay = true
	} else {
		r.deletesStay = !b.HasDeleteHorizon() || r.now < b.BaseTimestamp()
		if b.Magic() < 2 {
			r.deletesStay = r.legacyStays
		}
	}
	rules := record.FilterRules{DropAll: discard, KeepEmpty: empty, Horizon: r.now + r.o.DeleteRetentionMs, NeedsHorizon: gone && b.IsControl()}
	keep := r.keep
	if b.IsControl() {
		keep = keepAll
	}
	from := len(r.out)
	out, n, err := r.filter.Append(r.out, b, rules, keep)
	if err != nil {
		return err
	}
	r.out = out
	r.stats.readRecs += int64(n.Read)
	r.stats.wroteRecs += int64(n.Kept)
	if len(out) == from {
		return nil
	}
	return d.add(record.Batch(out[from:]))
}

func keepAll(record.Sketch) bool { return true }

// isLast says whether a batch is what has to stay of its producer.
func (r *cleanRound) isLast(b record.Batch) bool {
	last, ok := r.last[b.ProducerID()]
	switch {
	case !ok:
		return false
	case last.offset != noOffset:
		return b.LastOffset() == last.offset
	}
	return b.IsControl() && b.ProducerEpoch() == last.epoch
}

// keeps says whether a record stays (Cleaner.shouldRetainRecord).
func (r *cleanRound) keeps(s record.Sketch) bool {
	switch {
	case s.Offset > r.keys.latest: // the map does not speak about it
		return true
	case s.Key == nil:
		r.stats.invalid++
		return false
	}
	return s.Offset >= r.keys.get(s.Key) && (s.HasValue || r.deletesStay)
}

// cleanedSegment is a segment that is written by compaction: under names that end in .cleaned,
// which a start removes.
type cleanedSegment struct {
	r        *cleanRound
	s        *segment
	f        vfs.File
	at       int64 // of the file; what follows is in r.out
	index    *indexBuilder
	modified int64 // ms, what its file shall say
}

func (r *cleanRound) begin(base int64) (*cleanedSegment, error) {
	l := r.l
	d := &cleanedSegment{r: r, s: newSegment(l, base)}
	if err := d.giveUp(); err != nil { // of a round that was given up
		return nil, err
	}
	f, err := l.m.fs.OpenFile(d.name(logSuffix), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, l.cleanWrite("create a cleaned segment", err)
	}
	d.f, d.index = f, newIndexBuilder(d.s, r.o.IndexIntervalBytes)
	r.out = r.out[:0]
	return d, nil
}

func (d *cleanedSegment) name(suffix string) string {
	return d.s.log.path(offsetName(d.s.base, suffix+cleanedSuffix))
}

// add takes in an entry that was appended to the round's buffer, and writes that if it is full.
func (d *cleanedSegment) add(b record.Batch) error {
	if !d.s.fits(b.LastOffset()) {
		return fmt.Errorf("%w: offset %d does not fit into a segment that begins at %d", record.ErrCorrupt, b.LastOffset(), d.s.base)
	}
	end := d.at + int64(len(d.r.out))
	d.index.add(b, end-int64(len(b)), int64(len(b)))
	if len(d.r.out) >= len(d.r.in) {
		return d.write()
	}
	return nil
}

func (d *cleanedSegment) write() error {
	n := int64(len(d.r.out))
	if n == 0 {
		return nil
	}
	if _, err := d.f.WriteAt(d.r.out, d.at); err != nil {
		return d.s.log.cleanWrite("write a cleaned segment", err)
	}
	d.at += n
	if cap(d.r.out) > 4*len(d.r.in) { // a large batch has made it grow
		d.r.out = make([]byte, 0, len(d.r.in))
	}
	d.r.out = d.r.out[:0]
	return d.r.throttle(n)
}

// finish makes the segment's files whole and durable.
func (d *cleanedSegment) finish(aborted []Aborted) error {
	if err := d.write(); err != nil {
		return err
	}
	s, fsys := d.s, d.s.log.m.fs
	err := d.f.Sync()
	if e := d.f.Close(); err == nil {
		err = e
	}
	d.f = nil
	s.size.Store(d.at)
	if d.at > 0 {
		d.index.addTime()
	}
	if err == nil {
		err = writeFile(fsys, d.name(indexSuffix), d.index.offsets, true)
	}
	if err == nil {
		err = writeFile(fsys, d.name(timeSuffix), d.index.times, true)
	}
	if err == nil && len(aborted) > 0 {
		var b []byte
		for _, a := range aborted {
			b = append(b, formatAborted(a)...)
		}
		err = writeFile(fsys, d.name(txnSuffix), b, true)
		s.txn.Store(int64(len(b)))
	}
	if err == nil {
		err = vfs.SetModTime(fsys, d.name(logSuffix), time.UnixMilli(d.modified))
	}
	if err != nil {
		return s.log.cleanWrite("write a cleaned segment", err)
	}
	s.offsets, s.times = entries{disk: int64(len(d.index.offsets))}, entries{disk: int64(len(d.index.times))}
	s.lastRel, s.lastKey, s.max = d.index.lastRel, d.index.lastKey, d.index.max
	s.exact = true
	s.checked.Store(true)
	return nil
}

// giveUp removes the files, if they are there. The log goes last: without it an index would seem to be
// that of the segment which was to be replaced.
func (d *cleanedSegment) giveUp() error {
	if d.f != nil {
		d.f.Close()
		d.f = nil
	}
	l := d.s.log
	if l.usable() != nil {
		return nil // how far a swap came is for the next start to see
	}
	for _, mark := range []string{cleanedSuffix, swapSuffix} {
		for _, suffix := range slices.Backward(segmentSuffixes[:]) {
			err := l.m.fs.Remove(l.path(offsetName(d.s.base, suffix+mark)))
			if err != nil && !notExist(err) {
				return l.writeFailed("remove a cleaned segment", err)
			}
		}
	}
	return nil
}

// cleanWrite says what a failed write of the cleaner's means: without room the log is as it was, and
// appends may find enough of it; anything else, and the directory cannot be trusted any more.
func (l *Log) cleanWrite(doing string, err error) error {
	if vfs.Full(err) {
		return fmt.Errorf("%s: %s: %w", l, doing, err)
	}
	return l.writeFailed(doing, err)
}
