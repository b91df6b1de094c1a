package log

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ottla/protocol/record"
)

// step does one random operation to the log and to the model.
func (w *world) step() error {
	w.now += w.r.Int64N(20)
	switch n := w.r.IntN(100); {
	case n < 55:
		return w.append()
	case n < 62:
		return w.appendAsFollower()
	case n < 70:
		to := w.r.Int64N(w.is().end() + 1)
		w.note("flush", to)
		if err := w.l.Flush(to); err != nil {
			return err
		}
		w.flushed(to)
	case n < 74:
		if w.r.IntN(2) == 0 {
			w.note("tidy", w.l.End())
			w.l.tidyUp()
		}
		w.m.flushDue(context.Background())
	case n < 78:
		w.note("checkpoints")
		w.m.perform(context.Background(), task([]task{taskPoints, taskStarts, taskWatermarks}[w.r.IntN(3)]))
	case n < 82:
		w.m.perform(context.Background(), taskFiles)
	case n < 86:
		return w.retain()
	case n < 89:
		to := w.is().start + w.r.Int64N(w.is().end()-w.is().start+1)
		w.note("delete records", to)
		if _, err := w.l.DeleteRecords(to); err != nil {
			return err
		}
		s := w.is()
		s.start = max(s.start, to)
		w.becomes(s)
	case n < 93:
		return w.truncate()
	case n < 94:
		to := w.r.Int64N(w.is().end() + 20)
		if w.blind {
			to = max(to, w.is().start) // what lies below it may be there, and an end within this brings it back
		}
		w.note("truncate fully", to)
		w.becomes(state{})
		w.durable, w.blind = 0, true
		w.pending = []state{{begin: to, start: to}}
		if err := w.l.TruncateFully(to); err != nil {
			return err
		}
		w.pending = nil
		w.becomes(state{begin: to, start: to})
		// An end within it may leave records without what snapshots said of the time before them.
		w.blind = w.fs.taken != nil
		if w.fs.taken == nil {
			w.past = w.past[len(w.past)-1:]
		}
		w.resetProducers()
	case n < 96:
		w.epoch += int32(1 + w.r.IntN(2))
		w.note("epoch", w.epoch)
		return w.l.AssignEpoch(w.epoch)
	default:
		return w.restart()
	}
	return nil
}

func (w *world) flushed(to int64) {
	w.durable = max(w.durable, to)
	if w.l.Flushed() < to {
		w.durable = w.l.Flushed() + 1<<40 // seen by the next check
	}
}

func (w *world) batch(base int64) (record.BuilderOptions, []rec) {
	o := record.BuilderOptions{BaseOffset: base, LeaderEpoch: w.epoch, Codec: []record.Codec{record.None, record.None, record.Lz4}[w.r.IntN(3)]}
	recs := make([]rec, 1+w.r.IntN(4))
	for i := range recs {
		recs[i] = rec{startMs + w.r.Int64N(1000), strings.Repeat(string(rune('a'+w.r.IntN(26))), w.r.IntN(40))}
	}
	return o, recs
}

func (w *world) append() error {
	s := w.is()
	o, recs := w.batch(s.end())
	id := int64(w.r.IntN(5))
	if id > 0 {
		o.Producer = &record.ProducerInfo{ID: id, Sequence: w.seqs[id], Transactional: id > 2}
	}
	if id > 2 && w.txns[id] && w.r.IntN(3) == 0 {
		return w.mark(id)
	}
	stored := batchOf(o, recs...)
	o.BaseOffset, o.LeaderEpoch = 0, -1
	w.note("append", s.end(), len(recs), "records of producer", id, len(stored), "bytes")
	w.pending = []state{s.with(stored)}
	a, err := w.l.Append(Append{Records: batchOf(o, recs...), Epoch: w.epoch, RequestVersion: 9})
	if err != nil {
		return w.refused(err)
	}
	if a.First != s.end() || a.Last != s.end()+int64(len(recs))-1 || a.Duplicate {
		return fmt.Errorf("appended %+v, want at %d", a, s.end())
	}
	if id > 0 {
		w.seqs[id] += int32(len(recs))
		w.txns[id] = id > 2
		again, err := w.l.Append(Append{Records: batchOf(o, recs...), Epoch: w.epoch, RequestVersion: 9})
		if err != nil || !again.Duplicate || again.First != a.First {
			return fmt.Errorf("again: %+v, %v", again, err)
		}
	}
	w.becomes(s.with(stored))
	w.pending = nil
	w.l.SetHighWatermark(w.l.End())
	return nil
}

// refused says what an append's error means. For want of room nothing has happened.
func (w *world) refused(err error) error {
	switch {
	case errors.Is(err, ErrTooLarge):
	case errors.Is(err, ErrFull) && w.l.Err() == nil && w.script.Fired() && w.fs.taken == nil:
		w.note("no room")
		w.pending = nil
		return w.compare(w.l)
	default:
		return err
	}
	return nil
}

func (w *world) mark(id int64) error {
	s := w.is()
	m := record.EndMarker{Commit: w.r.IntN(2) == 0}
	w.note("marker", s.end(), "of producer", id, "commit", m.Commit)
	b := m.Batch(id, 0, startMs)
	stored := slices.Clone(b)
	stored.SetBaseOffset(s.end())
	stored.SetLeaderEpoch(w.epoch)
	w.pending = []state{s.with(stored)}
	if _, err := w.l.Append(Append{Records: b, Epoch: w.epoch, Origin: record.Coordinator}); err != nil {
		return w.refused(err)
	}
	w.pending = nil
	w.txns[id] = false
	w.becomes(s.with(stored))
	w.l.SetHighWatermark(w.l.End())
	return nil
}

func (w *world) appendAsFollower() error {
	s := w.is()
	var data []byte
	for range 1 + w.r.IntN(3) {
		if w.r.IntN(4) == 0 {
			w.epoch++
		}
		b := batchOf(w.batch2(s.end()))
		if int64(len(data)+len(b)) > w.o.SegmentBytes {
			break
		}
		s = s.with(b)
		data = append(data, b...)
	}
	w.note("append as follower", w.is().end(), "to", s.end(), len(data), "bytes")
	if len(data) == 0 {
		return nil
	}
	for i, at := len(w.is().batches), w.is(); i < len(s.batches); i++ {
		at = at.with(s.batches[i])
		w.pending = append(w.pending, at)
	}
	if _, err := w.l.AppendAsFollower(data); err != nil {
		return w.refused(err)
	}
	w.pending = nil
	// A write of several batches may be torn between them.
	for i := len(w.is().batches); i < len(s.batches); i++ {
		w.becomes(w.is().with(s.batches[i]))
	}
	w.l.SetHighWatermark(w.l.End())
	return nil
}

func (w *world) batch2(base int64) (record.BuilderOptions, rec) {
	o, recs := w.batch(base)
	return o, recs[0]
}

func (w *world) retain() error {
	n, err := w.l.retain()
	w.note("retention", n)
	if err != nil {
		return err
	}
	s := w.is()
	if w.l.Start() < s.start || w.l.Start() > s.end() {
		return fmt.Errorf("retention moved the start from %d to %d of %d", s.start, w.l.Start(), s.end())
	}
	s.start = w.l.Start()
	w.becomes(s)
	_ = w.m.doDelayed()
	return nil
}

func (w *world) truncate() error {
	s := w.is()
	to := s.start + w.r.Int64N(s.end()-s.start+2)
	w.note("truncate", to)
	next := s.cut(to)
	if to >= s.end() {
		next = s
	}
	w.durable = min(w.durable, next.end())
	w.becomes(next)
	if err := w.l.TruncateTo(to); err != nil {
		return err
	}
	if end := w.l.End(); w.holes && end > next.end() && end <= to { // a segment began in the hole
		next.upto, next.start = end, min(s.start, end)
		w.past[len(w.past)-1] = next
	}
	if w.fs.taken == nil {
		w.past = w.past[len(w.past)-1:]
	}
	w.resetProducers()
	w.epoch = max(w.epoch, w.l.LastEpoch())
	w.l.SetHighWatermark(w.l.End())
	return nil
}

func (w *world) restart() error {
	w.note("restart")
	if err := w.m.Close(); err != nil {
		return err
	}
	w.durable = w.is().end()
	if err := w.open(); err != nil {
		return err
	}
	w.l.SetHighWatermark(w.l.End())
	w.resetProducers()
	return nil
}
