package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"ottla/log"
	"ottla/protocol/record"
)

// replayBytes is how much of a log is in memory while it is replayed.
const replayBytes = 256 << 10

// Replay yields every batch of a led partition from the log's start to its end as it is now,
// each in bytes that are valid until the next one, and ends after all of it is committed. It
// fails with ErrNotLeader once this broker does not lead in the epoch any more. Coordinators
// rebuild themselves by it.
func (p *Partition) Replay(ctx context.Context, epoch int32) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		l, err := p.leading(epoch)
		if err != nil {
			yield(nil, err)
			return
		}
		end := l.End()
		buf := make([]byte, 0, min(replayBytes, int(l.Size())))
		for next := l.Start(); next < end; {
			if l, err = p.leading(epoch); err == nil {
				err = ctx.Err()
			}
			if err == nil {
				buf, err = readChunk(l, buf, next, end)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			before := next
			for b := range record.All(buf) {
				if b.NextOffset() <= next {
					continue // it was read before
				}
				next = b.NextOffset()
				if !yield(b, nil) {
					return
				}
			}
			if next > before {
				continue
			}
			start := l.Start()
			switch {
			case start > next: // retention was faster
				next = start
			case len(buf) > 0:
				yield(nil, fmt.Errorf("%w: no whole batch at offset %d of %s-%d", log.ErrStorage, next, p.topic, p.number))
				return
			default: // what comes behind holds no batch
				next = end
			}
		}
		if err := p.committed(ctx, epoch, end); err != nil && !errors.Is(err, ErrNotEnoughReplicasAfterAppend) {
			yield(nil, err)
		}
	}
}

func (p *Partition) leading(epoch int32) (*log.Log, error) {
	s := p.standing.Load()
	if !s.leads || s.log == nil || s.epoch != epoch {
		return nil, ErrNotLeader
	}
	return s.log, nil
}

// readChunk reads what lies from an offset on into buf.
func readChunk(l *log.Log, buf []byte, from, end int64) ([]byte, error) {
	c, err := l.Read(from, end, replayBytes, true)
	if errors.Is(err, log.ErrOffsetOutOfRange) && l.Start() > from {
		return buf[:0], nil
	}
	if err != nil || c.Range == nil {
		return buf[:0], err
	}
	defer c.Range.Release()
	n := int(c.Range.Len())
	if cap(buf) < n {
		buf = make([]byte, 0, n)
	}
	buf = buf[:n]
	if got, err := c.Range.ReadAt(buf, 0); got < n {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return buf[:0], fmt.Errorf("%w: read %s-%d at offset %d: %w", log.ErrStorage, l.Topic(), l.Partition(), from, err)
	}
	return buf, nil
}
