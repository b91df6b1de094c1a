package replica

import "ottla/log"

// Lookup says how an offset is looked up: what the client knows of the leader epoch (-1: it
// does not say), whether only the leader may answer, and up to where it sees.
type Lookup struct {
	Epoch      int32
	OnlyLeader bool
	Isolation  Isolation
}

// Found is an offset with the time and the leader epoch of its record; all are -1 where there
// is none, time and epoch also where they are not known.
type Found struct {
	Offset, Timestamp int64
	Epoch             int32
}

var nothing = Found{-1, -1, -1}

// look returns the log and the offset up to which is looked. lagging is ErrOffsetNotAvailable
// on a leader whose high watermark has not come to its epoch yet: then records may be
// committed that it does not show (Partition.fetchOffsetForTimestamp).
func (p *Partition) look(q Lookup) (l *log.Log, to int64, epoch int32, lagging, err error) {
	s := p.standing.Load()
	if l, err = s.local(q.Epoch, q.OnlyLeader); err != nil {
		return nil, 0, 0, nil, err
	}
	hw := l.HighWatermark()
	if q.Isolation != LogEnd && s.start > hw {
		lagging = ErrOffsetNotAvailable
	}
	return l, limit(q.Isolation, l.End(), hw, l.StableOffset()), s.epoch, lagging, nil
}

// Latest is the offset after the last record that the client may see.
func (p *Partition) Latest(q Lookup) (Found, error) {
	_, to, epoch, lagging, err := p.look(q)
	if err != nil || lagging != nil {
		return nothing, first(err, lagging)
	}
	return Found{Offset: to, Timestamp: -1, Epoch: epoch}, nil
}

// Earliest is the offset of the log's first record.
func (p *Partition) Earliest(q Lookup) (Found, error) {
	l, _, _, _, err := p.look(q)
	if err != nil {
		return nothing, err
	}
	start := l.Start()
	return Found{Offset: start, Timestamp: -1, Epoch: l.EpochAt(start)}, nil
}

// AtTime is the first record with a timestamp (ms) at or after a time.
func (p *Partition) AtTime(q Lookup, at int64) (Found, error) {
	l, to, _, lagging, err := p.look(q)
	if err != nil {
		return nothing, err
	}
	offset, time, epoch, found, err := l.OffsetForTime(at, l.End())
	return seen(offset, time, epoch, found, to, lagging, err)
}

// MaxTimestamp is the record with the largest timestamp, the first if there are several.
func (p *Partition) MaxTimestamp(q Lookup) (Found, error) {
	l, to, _, lagging, err := p.look(q)
	if err != nil {
		return nothing, err
	}
	offset, time, epoch, found, err := l.MaxTimestamp(l.End())
	return seen(offset, time, epoch, found, to, lagging, err)
}

// seen is what a client may hear of a record that was found in the whole log.
func seen(offset, time int64, epoch int32, found bool, to int64, lagging, err error) (Found, error) {
	switch {
	case err != nil:
		return nothing, err
	case !found:
		return nothing, lagging
	case offset >= to:
		return nothing, lagging
	}
	return Found{Offset: offset, Timestamp: time, Epoch: epoch}, nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// OffsetsBefore is the look-up of the oldest clients: at most n offsets not after a time (-1
// the end, -2 the start), the largest first, the last of them the log's start.
func (p *Partition) OffsetsBefore(q Lookup, at int64, n int32) ([]int64, error) {
	l, to, _, _, err := p.look(q)
	if err != nil {
		return []int64{}, err
	}
	start, found := l.Start(), true
	upper := to
	switch {
	case at == -2:
		upper = start
	case at >= 0:
		var offset int64
		if offset, _, _, found, err = l.OffsetForTime(at, l.End()); err != nil {
			return []int64{}, err
		}
		if found {
			upper = min(offset, to)
			if upper <= start {
				return []int64{}, nil // even the first record is younger
			}
		}
	}
	out := []int64{upper, start}
	if upper <= start {
		out = out[1:]
	}
	return out[:max(0, min(len(out), int(n)))], nil
}

// EpochEnd is the end of the largest leader epoch in the log that is not above the one asked
// for, and that epoch; both -1 where there is none (KIP-101).
func (p *Partition) EpochEnd(current, epoch int32, onlyLeader bool) (found int32, end int64, err error) {
	l, err := p.Local(current, onlyLeader)
	if err != nil {
		return -1, -1, err
	}
	found, end = l.EpochEnd(epoch)
	if found < 0 || end < 0 {
		return -1, -1, nil
	}
	return found, end, nil
}
