package log

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"ottla/log/vfs"
)

// errOverflow: a segment has offsets that do not fit into its indexes, which count from its base in 31
// bits. Kafka of before 1.1.1 wrote such by compaction (KAFKA-6264).
var errOverflow = errors.New("a segment has offsets beyond 2^31 from its base")

// overflows looks for such a segment. It is followed by another one, as the one that is written is never
// compacted, and what it has lies below that; else an offset, which no checksum covers, is damaged, and
// not the first to be thought too large. Where the bases are not that far apart nothing is read.
func (ld *loader) overflows() error {
	for i, s := range ld.list {
		if i+1 == len(ld.list) || s.size.Load() == 0 || s.fits(ld.list[i+1].base-1) {
			continue
		}
		next, err := ld.nextOffset(offsetName(s.base, logSuffix), s.base)
		if err != nil {
			return err
		}
		if next > s.base && !s.fits(next-1) && next <= ld.list[i+1].base {
			return errOverflow
		}
	}
	return nil
}

// split makes several of each segment whose offsets overflow (LocalLog.splitOverflowedSegment). A crash
// leaves either the old one or the new ones; see loader.swaps. Nothing of the log is open.
func (l *Log) split() error {
	ld := &loader{l: l}
	if err := ld.read(); err != nil {
		return err
	}
	if err := ld.swaps(); err != nil {
		return err
	}
	var bases []int64
	for name := range ld.names {
		if base, suffix, ok := parseOffsetName(name); ok && suffix == logSuffix {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	for i, base := range bases {
		s := newSegment(l, base)
		if i+1 == len(bases) || s.fits(bases[i+1]-1) {
			continue
		}
		if err := ld.splitSegment(s); err != nil {
			return l.writeFailed("split a segment", err)
		}
	}
	return nil
}

// splitSegment copies a segment's entries into new ones, each of which begins where the one before is
// full. The first one has the old base, also if it is empty, so that the log begins where it did.
func (ld *loader) splitSegment(s *segment) error {
	l, fsys := ld.l, ld.l.m.fs
	name := l.path(offsetName(s.base, logSuffix))
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	info, err := fsys.Stat(name)
	if err != nil {
		return err
	}
	type piece struct {
		base, from, to int64
		index          *indexBuilder
	}
	interval := l.options().IndexIntervalBytes
	pieces := []piece{{base: s.base, index: newIndexBuilder(s, interval)}}
	sc := scanner{f: f, end: size, buf: make([]byte, walkBytes)}
	for err = sc.next(); err == nil; err = sc.next() {
		p := &pieces[len(pieces)-1]
		if !p.index.s.fits(sc.head.LastOffset()) {
			p.to = sc.pos
			base := sc.head.BaseOffset()
			pieces = append(pieces, piece{base: base, from: sc.pos, index: newIndexBuilder(newSegment(l, base), interval)})
			p = &pieces[len(pieces)-1]
		}
		p.index.add(sc.head, sc.pos-p.from, sc.size)
	}
	pieces[len(pieces)-1].to = size // a torn end goes along
	if err != io.EOF && !torn(err) {
		return err
	}
	if len(pieces) == 1 {
		return nil
	}
	var aborted []Aborted
	if ld.names[offsetName(s.base, txnSuffix)] {
		data, err := readFile(fsys, l.path(offsetName(s.base, txnSuffix)))
		if err != nil {
			return err
		}
		aborted, _ = parseAborted(data, s.base)
	}
	l.m.logger.Info("splitting a segment whose offsets do not fit into its indexes", "file", name, "into", len(pieces))
	for i, p := range pieces {
		p.index.addTime()
		files := map[string][]byte{indexSuffix: p.index.offsets, timeSuffix: p.index.times}
		for _, a := range aborted {
			if a.Last >= p.base && (i+1 == len(pieces) || a.Last < pieces[i+1].base) {
				files[txnSuffix] = append(files[txnSuffix], formatAborted(a)...)
			}
		}
		log := l.path(offsetName(p.base, logSuffix+cleanedSuffix))
		if err := copyRange(fsys, log, f, p.from, p.to); err != nil {
			return err
		}
		for suffix, data := range files {
			if err := writeFile(fsys, l.path(offsetName(p.base, suffix+cleanedSuffix)), data, true); err != nil {
				return err
			}
		}
		if err := vfs.SetModTime(fsys, log, info.ModTime()); err != nil {
			return err
		}
	}
	for _, p := range slices.Backward(pieces) {
		for _, suffix := range segmentSuffixes {
			from := l.path(offsetName(p.base, suffix))
			if err := fsys.Rename(from+cleanedSuffix, from+swapSuffix); err != nil && !(suffix == txnSuffix && notExist(err)) {
				return err
			}
		}
	}
	if err := fsys.SyncDir(l.path("")); err != nil {
		return unsynced(err)
	}
	if err := ld.read(); err != nil {
		return err
	}
	if err := ld.swaps(); err != nil { // as a start does it
		return err
	}
	return unsynced(fsys.SyncDir(l.path("")))
}

// copyRange writes a piece of a file into a new one, durably.
func copyRange(fsys vfs.FS, name string, from vfs.File, at, to int64) error {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	buf := make([]byte, min(checkBytes, to-at))
	for pos := at; pos < to && err == nil; pos += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), to-pos)]
		if _, err = from.ReadAt(buf, pos); err == nil || err == io.EOF {
			_, err = f.WriteAt(buf, pos-at)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// loadSplit loads a log, and again if a segment had to be split.
func (m *Manager) loadSplit(d *dir, topic string, partition int32, load func(*Log) error) (*Log, error) {
	for tries := 0; ; tries++ {
		l := newLog(m, d, topic, partition)
		l.leftovers = true
		err := load(l)
		if tries > 0 || !errors.Is(err, errOverflow) {
			return l, err
		}
		for _, s := range l.segments() {
			s.closeFiles()
		}
		if err := l.split(); err != nil {
			return l, fmt.Errorf("%w: %w", errOverflow, err)
		}
	}
}
