package log

import (
	"errors"
	"fmt"
	"math"
)

// Chunk is what a Read found: a range of one segment's file, which begins with a whole entry
// (that may begin below the offset asked for) and may end within one, as Kafka's fetch
// answers do. With a nil Range nothing is there yet.
type Chunk struct {
	Range *Range // the caller releases it
	First BatchInfo
}

// BatchInfo describes the first entry of a chunk.
type BatchInfo struct {
	Base, Last int64 // offsets; of a v0 or v1 wrapper both are that of its last record
	Size       int   // bytes; the chunk has fewer if not even this entry fits
	Magic      int8
	Epoch      int32 // leader epoch, -1 in v0 and v1
}

// Read finds the entries from an offset up to but not including limit, at most maxBytes of
// them. With atLeastOne the first entry is whole even if it is larger than that. A chunk never
// goes on into the next segment: read again behind it.
//
// Nothing is copied and, apart from a few headers, nothing is read. Errors:
// ErrOffsetOutOfRange below the log start and above the log end; ErrStorage.
func (l *Log) Read(from, limit int64, maxBytes int, atLeastOne bool) (Chunk, error) {
	for {
		if err := l.usable(); err != nil {
			return Chunk{}, err
		}
		list := l.segments()
		if start, end := l.start.Load(), l.end.Load(); from < start || from > end {
			return Chunk{}, fmt.Errorf("%s: offset %d of [%d, %d]: %w", l, from, start, end, ErrOffsetOutOfRange)
		} else if from >= limit || from == end {
			return Chunk{}, nil
		}
		c, gone, err := l.read(list, from, limit, maxBytes, atLeastOne)
		if gone {
			continue
		}
		return c, err
	}
}

// read looks through a list of segments. gone: one that was needed was deleted meanwhile.
func (l *Log) read(list []*segment, from, limit int64, maxBytes int, atLeastOne bool) (c Chunk, gone bool, err error) {
	for i := floor(list, from); i < len(list); i++ {
		s := list[i]
		if s.base >= limit {
			return Chunk{}, false, nil
		}
		next := int64(math.MaxInt64)
		if i < len(list)-1 {
			next = list[i+1].base
		}
		c, err := s.read(from, limit, next, maxBytes, atLeastOne)
		if err != nil {
			if s.gone.Load() || l.replaced(list) {
				return Chunk{}, true, nil
			}
			return Chunk{}, false, l.readFailed("read", err)
		}
		if c.Range != nil || next > l.end.Load() {
			return c, false, nil
		}
	}
	return Chunk{}, false, nil
}

// replaced says whether another list of segments holds by now.
func (l *Log) replaced(list []*segment) bool {
	now := l.segments()
	return len(now) != len(list) || &now[0] != &list[0]
}

// read finds the chunk in one segment; next is the base of the one after it.
func (s *segment) read(from, limit, next int64, maxBytes int, atLeastOne bool) (Chunk, error) {
	// size is loaded before end, and stored after it: the bytes below size are of offsets
	// below the end that is seen here.
	size := s.size.Load()
	if size == 0 {
		return Chunk{}, nil
	}
	end := min(s.log.end.Load(), next)
	p, ok, err := s.locate(from, size)
	if err != nil || !ok {
		return Chunk{}, err
	}
	upto := size
	if limit < end {
		var damage *Damage
		switch q, ok, err := s.locate(limit, size); {
		case errors.As(err, &damage):
			upto = damage.Position // what is whole before it can be had
		case err != nil:
			return Chunk{}, err
		case ok:
			upto = q.pos
		}
	}
	if d := s.damage.Load(); d != nil && p.pos < d.Position {
		upto = min(upto, d.Position) // what lies behind is told to who asks for it
	}
	n := upto - p.pos
	if n <= 0 {
		return Chunk{}, nil
	}
	most := int64(max(maxBytes, 0))
	if atLeastOne {
		most = max(most, p.size)
	}
	if n = min(n, most); n == 0 {
		return Chunk{First: p.info()}, nil
	}
	h, err := s.get(logData, 0)
	if err != nil {
		return Chunk{}, err
	}
	return Chunk{&Range{h, p.pos, n}, p.info()}, nil
}

func (p place) info() BatchInfo {
	return BatchInfo{Base: p.base, Last: p.last, Size: int(p.size), Magic: p.magic, Epoch: p.epoch}
}
