package log

import (
	"errors"
	"math"
	"slices"
	"strings"
)

// A segment below the recovery point that is gone leaves a hole in the offsets, which neither Kafka
// nor a read here stumbles over: the next segment answers. To look for that at a start would mean
// to read from every segment, so a start tells what the names of the files say, and the rest is
// found a little later.

// tellMissing tells of segments of which only indexes are left, below the recovery point.
func (ld *loader) tellMissing(bases, alone []int64) {
	for _, base := range alone {
		if slices.Contains(ld.gone, base) { // the end came between the renames of one segment's files
			continue
		}
		to := ld.point
		for _, b := range bases {
			if b > base {
				to = min(to, b)
				break
			}
		}
		if base < to {
			ld.l.tellHole(base, to, "missing", ld.l.path(offsetName(base, logSuffix)))
		}
	}
}

// isDeletedLog says whether a file is a segment's log that was deleted, or replaced by compaction.
func isDeletedLog(name string) bool {
	_, suffix, ok := parseOffsetName(name)
	return ok && strings.HasPrefix(suffix, logSuffix+".") && strings.HasSuffix(suffix, deletedSuffix)
}

func (l *Log) tellHole(from, to int64, more ...any) {
	l.m.logger.Error("records are missing between two segments",
		append([]any{"topic", l.topic, "partition", l.partition, "from", from, "to", to}, more...)...)
}

// segmentsLookedAt is about how many segments are looked at in one go, so that those of many logs
// on a slow disk do not hold up what else the manager's goroutine has to do.
const segmentsLookedAt = 1000

// tellHoles looks, once after a start, whether the segments follow one another, if there are any left to
// look at in this go. Those of a topic that is compacted need not. It is called by the manager's
// goroutine.
func (l *Log) tellHoles(left *int) error {
	if l.lookedAt || *left <= 0 || l.usable() != nil {
		return nil
	}
	list := l.segments()
	if len(list) > 1 && !l.options().CleanupCompact {
		*left -= len(list)
		end := list[0].base
		for i, s := range list[:len(list)-1] {
			if s.size.Load() > 0 {
				last, err := s.endBefore(math.MaxInt64)
				if err != nil && !errors.Is(err, ErrDamaged) {
					if s.gone.Load() || l.replaced(list) {
						return nil // another time
					}
					return l.readFailed("look at a segment", err)
				}
				end = max(end, last)
			}
			next := list[i+1]
			if end < next.base && s.damage.Load() == nil && next.base > l.start.Load() {
				l.tellHole(max(end, l.start.Load()), next.base, "between", s.path(logSuffix), "and", next.path(logSuffix))
			}
			end = max(end, next.base)
		}
	}
	l.lookedAt = true
	return nil
}
