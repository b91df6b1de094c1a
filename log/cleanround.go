package log

import (
	"errors"
	"fmt"
	"io"
	"time"

	"ottla/protocol/record"
)

// cleanBuffers are what a thread needs to clean, kept from one log to the next.
type cleanBuffers struct {
	in     []byte
	out    []byte
	filter record.Filter
}

// cleanRound cleans one log once (Kafka's Cleaner.doClean): the last offset of each key in the dirty
// part goes into a map, and then all segments up to the end of that part are written again without
// the records that the map knows a later one for.
type cleanRound struct {
	*cleanBuffers
	pass  *cleanPass
	job   *cleanJob
	l     *Log
	keys  *offsetMap
	txns  cleanedTxns
	now   int64
	stats cleanStats

	o           *Options
	last        map[int64]lastRecord // of each producer, what has to stay
	legacyStays bool                 // tombstones of v0 and v1 in the segment in work stay
	deletesStay bool                 // those of the batch in work stay
	keep        func(record.Sketch) bool
	index       func(record.Sketch) bool
	full        bool
}

// lastRecord is what has to stay of a producer that is known (Kafka's LastRecord).
type lastRecord struct {
	offset int64 // of its last batch, noOffset if the last that is known is a marker
	epoch  int16
}

// run cleans and returns the offset up to which the log is clean now. The caller holds shape.
func (r *cleanRound) run() (next int64, err error) {
	began := time.Now()
	l, o := r.l, r.l.options()
	r.o, r.now = o, l.m.nowMs()
	r.keep, r.index = r.keeps, r.indexes
	if size := max(r.pass.o.BufferBytes/max(r.pass.o.Threads, 1)/2, headerBytes); len(r.in) != size {
		r.in, r.out = make([]byte, size), make([]byte, 0, size)
	}
	bytes := r.pass.o.keyBytes()
	r.keys = newOffsetMap(bytes, r.pass.o.LoadFactor, r.job.to-r.job.from)
	defer r.keys.free()
	list := l.segments()
	if err := r.buildMap(list); err != nil {
		return 0, err
	}
	r.stats.mapping = time.Since(began)
	next = r.keys.latest + 1
	r.stats.utilization = r.keys.utilization(bytes)
	if next <= r.job.from {
		return r.job.from, nil
	}

	legacy := int64(0) // tombstones of v0 and v1 go that are older than the last clean segment by delete.retention.ms
	if r.job.from > list[0].base {
		at, err := list[floor(list, r.job.from-1)].modified()
		if err != nil {
			return 0, err
		}
		legacy = at - o.DeleteRetentionMs
	}
	groups, err := r.groups(list[:floor(list, next-1)+1])
	if err != nil {
		return 0, err
	}
	for _, g := range groups {
		if err := r.group(g, legacy); err != nil {
			return 0, err
		}
	}
	r.stats.took = time.Since(began)
	r.stats.tell(l, r.job.from, next)
	return next, nil
}

// stopped says whether somebody waits for the log, or nobody wants it cleaned any more.
func (r *cleanRound) stopped() error {
	switch {
	case r.pass.ctx.Err() != nil, r.l.hurry.Load() > 0, !r.l.options().CleanupCompact:
		return errStopped
	}
	return r.l.usable()
}

func (r *cleanRound) throttle(n int64) error {
	return r.pass.c.throttle.take(n, r.pass.rate, r.stopped)
}

// each calls do for the entries of a segment from a position on, whole and with a checksum that is
// right. A wrong one ends the round: nothing is made of bytes that are not what was written.
func (r *cleanRound) each(s *segment, pos int64, do func(record.Batch) error) error {
	h, err := s.get(logData, 0)
	if err != nil {
		return fmt.Errorf("open a segment: %w", err)
	}
	defer h.release()
	sc := scanner{f: h.f, pos: pos, end: s.size.Load(), buf: r.in, whole: true}
	asked := int64(0)
	for {
		err := sc.next()
		if err == io.EOF {
			return r.throttle(sc.pos - pos - asked)
		}
		if err == nil {
			err = sc.check() // in pieces, so that a false length costs no memory
		}
		var b record.Batch
		if err == nil {
			b, err = sc.entry()
		}
		if torn(err) {
			return &Damage{s.path(logSuffix), sc.pos, err.Error()}
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", s.path(logSuffix), err)
		}
		if err := do(b); err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
		}
		if done := sc.pos + sc.size - pos; done-asked >= int64(len(r.in)) {
			if err := r.throttle(done - asked); err != nil {
				return err
			}
			asked = done
			if err := r.stopped(); err != nil {
				return err
			}
		}
	}
}

// buildMap takes in the keys from the first dirty offset on, up to the end of the dirty part or as
// far as they fit (Cleaner.buildOffsetMap).
func (r *cleanRound) buildMap(list []*segment) error {
	from, to := r.job.from, r.job.to
	aborted, err := r.l.AbortedIn(from, to)
	if err != nil {
		return err
	}
	var txns cleanedTxns
	txns.add(aborted)
	for i := floor(list, from); i < len(list) && list[i].base < to && !r.full; i++ {
		if err := r.stopped(); err != nil {
			return err
		}
		s, pos := list[i], int64(0)
		if from > s.base {
			if pos, err = s.position(from); err != nil {
				return err
			}
		}
		err := r.each(s, pos, func(b record.Batch) error { return r.indexBatch(b, &txns) })
		if errors.Is(err, errFull) {
			break
		}
		if err != nil {
			return err
		}
		r.keys.latest = max(r.keys.latest, list[i+1].base-1) // also where offsets are missing
	}
	return nil
}

// errFull ends the building of the map.
var errFull = errors.New("the map is full")

func (r *cleanRound) indexBatch(b record.Batch, txns *cleanedTxns) error {
	if b.IsControl() {
		if _, err := txns.marker(b); err != nil {
			return err
		}
	} else if !txns.data(b) && b.LastOffset() >= r.job.from {
		if err := r.filter.Scan(b, r.index); err != nil {
			return err
		}
		if r.full {
			return errFull
		}
	}
	if b.LastOffset() >= r.job.from {
		r.keys.latest = max(r.keys.latest, b.LastOffset())
	}
	return nil
}

// indexes takes a record's key into the map; it is false if that is full.
func (r *cleanRound) indexes(s record.Sketch) bool {
	if s.Key != nil && s.Offset >= r.job.from && !r.keys.put(s.Key, s.Offset) {
		r.full = true
	}
	return !r.full
}

// groups puts segments together that make one (Cleaner.groupSegmentsBySize): no larger than a
// segment may be, nor its indexes, and with offsets that fit.
func (r *cleanRound) groups(list []*segment) ([][]*segment, error) {
	var groups [][]*segment
	all := r.l.segments()
	for i := 0; i < len(list); {
		first := i
		var size, offsets, times int64
		for ; i < len(list); i++ {
			s := list[i]
			if err := s.ensure(); err != nil {
				return nil, err
			}
			s.imu.Lock()
			ob, tb := s.offsets.bytes(), s.times.bytes()
			s.imu.Unlock()
			end := r.job.to
			if i+1 < len(all) {
				end = all[i+1].base
			}
			fits := size+s.size.Load() <= r.o.SegmentBytes && offsets+ob <= r.o.SegmentIndexBytes && times+tb <= r.o.SegmentIndexBytes &&
				(s.size.Load() == 0 || list[first].fits(end-1))
			if i > first && !fits {
				break
			}
			size, offsets, times = size+s.size.Load(), offsets+ob, times+tb
		}
		groups = append(groups, list[first:i:i])
	}
	return groups, nil
}

// lastRecords is what has to stay of each producer.
func (l *Log) lastRecords() map[int64]lastRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := make(map[int64]lastRecord, len(l.state.byID))
	for id, p := range l.state.byID {
		r := lastRecord{noOffset, p.epoch}
		if p.n > 0 {
			r.offset = p.batches[p.n-1].lastOffset
		}
		last[id] = r
	}
	return last
}

// modified is when the segment's file was last written, in ms.
func (s *segment) modified() (int64, error) {
	info, err := s.log.m.fs.Stat(s.path(logSuffix))
	if err != nil {
		if notExist(err) && s.size.Load() == 0 {
			return s.created.Load(), nil
		}
		return 0, err
	}
	return info.ModTime().UnixMilli(), nil
}
