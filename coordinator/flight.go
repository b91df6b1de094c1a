package coordinator

import (
	"context"
	"errors"
	"slices"
)

// entry is one step's part of a batch.
type entry struct {
	first, n int // its records
	answers  []Answer
	then     func(Commit) Effects
	producer *Producer
	outside  []any
	err      error // why its records alone are not in the log
}

// batch is what was collected of several steps.
type batch struct {
	records []Record
	entries []entry
}

// flight is a batch on its way.
type flight struct {
	batch
	offsets []int64 // one a record
	written bool    // something is in the log
	done    chan error
}

// absorb collects what a step wants written; without records its effects take place at once.
func (s *shard[M]) absorb(e Effects) {
	records := e.Records
	if e.Producer != nil && e.Producer.End != nil {
		records = []Record{{}} // the place of the marker
	}
	if len(records) == 0 {
		release(e.Answers...)
		s.outside(e.Outside)
		return
	}
	b := &s.batch
	b.entries = append(b.entries, entry{first: len(b.records), n: len(records), answers: e.Answers, then: e.Then, producer: e.Producer, outside: e.Outside})
	b.records = append(b.records, records...)
}

// flush appends what was collected, unless a batch is on its way: one at a time keeps the
// outcome of each clear, and collects more into the next.
func (s *shard[M]) flush() {
	for s.flight == nil && len(s.batch.entries) > 0 && s.ctx.Err() == nil {
		f := s.takeOff()
		waits, err := s.append(f)
		switch {
		case err != nil && !f.written:
			s.unwritten(len(f.records), err)
			s.fail(f, err)
			s.land(f)
		case err != nil:
			s.flight = f
			s.settle(err)
		case len(waits) == 0:
			s.flight = f
			s.settle(nil)
		default:
			f.done = make(chan error, 1)
			s.flight = f
			go func() { // ends with s.ctx; end waits for it
				for _, wait := range waits {
					if err := wait(s.ctx); err != nil {
						f.done <- err
						return
					}
				}
				f.done <- nil
			}()
		}
	}
}

// takeOff makes a flight of what was collected.
func (s *shard[M]) takeOff() *flight {
	f := s.settled
	if f == nil {
		f = &flight{}
	}
	s.settled = nil
	s.batch, f.batch = f.batch, s.batch
	f.offsets = slices.Grow(f.offsets[:0], len(f.records))[:len(f.records)]
	f.written, f.done = false, nil
	return f
}

// land keeps the memory of a flight that is over for the next one, unless it was large.
func (s *shard[M]) land(f *flight) {
	if cap(f.records) > keptRequests || cap(f.entries) > keptRequests {
		return
	}
	clear(f.entries)
	clear(f.records)
	f.entries, f.records = f.entries[:0], f.records[:0]
	s.settled = f
}

// append writes a flight: the records of transactions as a batch for each step, what is between
// them as one batch, or as several where one would be too large. An error of the latter is
// returned; one of the former concerns its step alone.
func (s *shard[M]) append(f *flight) (waits []func(context.Context) error, err error) {
	for i := 0; i < len(f.entries); {
		e := &f.entries[i]
		if e.producer != nil {
			wait, err := s.write(f, e.first, e.first+e.n, e.producer)
			switch e.err = err; {
			case err == nil:
			case errors.Is(err, ErrNotCoordinator), errors.Is(err, ErrNotAvailable):
				s.unwritten(e.n, err)
			default: // of this producer
				s.r.o.Metrics.AppendErrors.Inc()
				s.r.o.Logger.Debug("coordinator could not write for a transaction", "coordinator", s.r.o.Name, "shard", s.id, "err", err)
			}
			if wait != nil {
				waits = append(waits, wait)
			}
			i++
			continue
		}
		from, to := e.first, e.first
		for ; i < len(f.entries) && f.entries[i].producer == nil; i++ {
			to += f.entries[i].n
		}
		for from < to {
			end := s.fits(f.records[:to], from)
			wait, err := s.write(f, from, end, nil)
			if err != nil {
				return waits, err
			}
			if wait != nil {
				waits = append(waits, wait)
			}
			from = end
		}
	}
	return waits, nil
}

// fits is the end of the records from an index on that one batch has room for.
func (s *shard[M]) fits(records []Record, from int) int {
	limit := s.r.o.MaxBatchBytes() - batchOverhead
	to, size := from, 0
	for to < len(records) {
		size += len(records[to].Key) + len(records[to].Value) + recordOverhead
		if to > from && size > limit {
			break
		}
		to++
	}
	return to
}

// write appends records of a flight as one batch and fills in their offsets.
func (s *shard[M]) write(f *flight, from, to int, p *Producer) (wait func(context.Context) error, err error) {
	data := buildBatch(f.records[from:to], s.r.now().Wall, s.r.o.Codec(), p)
	base, wait, err := s.r.o.Store.Append(s.ctx, s.id, s.epoch, data)
	if err != nil {
		return nil, err
	}
	f.written = true
	s.wrote(to - from)
	s.r.o.Metrics.Batches.Inc()
	s.r.o.Metrics.Records.Add(float64(to - from))
	for i := range to - from {
		f.offsets[from+i] = base + int64(i)
	}
	return wait, nil
}

// settle takes the outcome of the flight. A flight whose outcome is not known makes the log
// the only one who knows: the machine is dropped and the log read again.
func (s *shard[M]) settle(err error) {
	f := s.flight
	s.flight, s.barrier = nil, false
	if err == nil {
		now := s.r.now()
		for _, e := range f.entries {
			if e.err != nil {
				s.refuse(e, now, e.err)
				continue
			}
			if e.then != nil {
				s.absorb(e.then(Commit{Now: now, Offsets: f.offsets[e.first : e.first+e.n]}))
			}
			release(e.answers...)
			s.outside(e.outside)
		}
		s.land(f)
		return
	}
	if s.ctx.Err() == nil {
		s.r.o.Metrics.UnknownWrites.Inc()
		s.r.o.Logger.Warn("coordinator does not know whether its records are committed; it reads its log again",
			"coordinator", s.r.o.Name, "shard", s.id, "err", err)
	}
	for _, e := range f.entries {
		refuseAnswers(e.answers, ErrNotCoordinator)
	}
	s.drop()
}

// fail answers a batch of which nothing is in the log, the last step first, so that each
// finds what it changed as it left it.
func (s *shard[M]) fail(f *flight, err error) {
	s.barrier = false
	now := s.r.now()
	for i := len(f.entries) - 1; i >= 0; i-- {
		e := f.entries[i]
		cause := err
		if e.err != nil {
			cause = e.err
		}
		s.refuse(e, now, cause)
	}
}

// refuse tells a step that its records are not in the log.
func (s *shard[M]) refuse(e entry, now Instant, err error) {
	refuseAnswers(e.answers, err)
	if e.then != nil {
		s.absorb(e.then(Commit{Now: now, Err: err}))
	}
}

func refuseAnswers(answers []Answer, err error) {
	for _, a := range answers {
		release(Answer{To: a.To, Err: err})
	}
}
