package log

import (
	"fmt"
	"slices"
	"strconv"
)

// replaceSegments puts segments that were written with the suffix .cleaned into the place of others
// (LocalLog.replaceSegments). The caller holds shape. A start finishes or undoes it, whereever the end
// came: while a .cleaned name is left, the new segments go; once all are .swap, the old ones do. Names
// are durable before the old ones change, and when it returns.
//
// Readers that have the old segments go on with their files, which stay under names that end in
// .deleted for file.delete.delay.ms.
func (l *Log) replaceSegments(fresh, old []*segment) error {
	fsys := l.m.fs
	file := func(s *segment, suffix, mark string) string { return l.path(offsetName(s.base, suffix+mark)) }
	each := func(s *segment, from, to string) error {
		for i, suffix := range segmentSuffixes {
			if i == 3 && s.txn.Load() == 0 {
				continue
			}
			if err := fsys.Rename(file(s, suffix, from), file(s, suffix, to)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, s := range slices.Backward(fresh) {
		if err := each(s, cleanedSuffix, swapSuffix); err != nil {
			return l.cleanWrite("swap a segment", err)
		}
	}
	if err := fsys.SyncDir(l.path("")); err != nil {
		return l.writeFailed("sync directory", unsynced(err))
	}
	if err := l.swapLocked(fresh, old, each); err != nil {
		return err
	}
	if err := fsys.SyncDir(l.path("")); err != nil {
		return l.writeFailed("sync directory", unsynced(err))
	}
	l.m.removeLater(l, old)
	return nil
}

// swapLocked does what readers and writers see of it.
func (l *Log) swapLocked(fresh, old []*segment, each func(s *segment, from, to string) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	// A segment may be replaced again before the files of the one before are removed.
	if l.swaps++; l.swaps > 1 {
		for _, s := range old {
			s.grave = "." + strconv.Itoa(l.swaps)
		}
	}
	for _, s := range old {
		if err := s.rename(); err != nil {
			return l.halfSwapped(err)
		}
	}
	for _, s := range fresh {
		if err := each(s, swapSuffix, ""); err != nil {
			return l.halfSwapped(err)
		}
	}
	list := l.segments()
	at := slices.Index(list, old[0])
	l.setSegments(slices.Concat(list[:at], fresh, list[at+len(old):]))
	bases := map[int64]bool{}
	for _, s := range old {
		bases[s.base] = true
	}
	for _, s := range fresh {
		delete(bases, s.base)
	}
	err := l.dropSnapshots(func(offset int64) bool { return bases[offset] })
	return l.writeFailed("delete a producer snapshot", err)
}

// halfSwapped takes the directory offline, whatever went wrong: the next start goes on from there.
func (l *Log) halfSwapped(err error) error {
	l.dir.fail(fmt.Errorf("swap a segment of %s: %w", l, err), "topic", l.topic, "partition", l.partition)
	return fmt.Errorf("%s: swap a segment: %w: %w", l, ErrStorage, err)
}
