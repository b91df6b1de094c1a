package log

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// files lists the directory, undoes or finishes what was under way, and finds the segments.
func (ld *loader) files() error {
	l := ld.l
	if err := ld.read(); err != nil {
		return err
	}
	if err := ld.swaps(); err != nil {
		return err
	}
	var bases, alone []int64 // of logs, and of indexes without one
	for name := range ld.names {
		base, suffix, ok := parseOffsetName(name)
		switch {
		case !ok:
		case suffix == logSuffix:
			bases = append(bases, base)
		case suffix == snapshotSuffix:
			l.state.snapshot = append(l.state.snapshot, base)
		case suffix == indexSuffix || suffix == timeSuffix || suffix == txnSuffix:
			if !ld.names[offsetName(base, logSuffix)] {
				if !slices.Contains(alone, base) {
					alone = append(alone, base)
				}
				if err := ld.remove(name); err != nil {
					return err
				}
			}
		}
	}
	slices.Sort(bases)
	slices.Sort(l.state.snapshot)
	ld.tellMissing(bases, alone)
	for _, base := range bases {
		s := newSegment(l, base)
		info, err := l.m.fs.Stat(s.path(logSuffix))
		if err != nil {
			return err
		}
		s.size.Store(info.Size())
		if ld.names[offsetName(base, txnSuffix)] {
			info, err := l.m.fs.Stat(s.path(txnSuffix))
			if err != nil {
				return err
			}
			s.txn.Store(info.Size() / abortedBytes * abortedBytes)
		}
		ld.list = append(ld.list, s)
	}
	return nil
}

func (ld *loader) read() error {
	l := ld.l
	entries, err := l.m.fs.ReadDir(l.path(""))
	if notExist(err) && ld.point > 0 {
		return &Damage{filepath.Clean(l.path("")), -1, fmt.Sprintf("the partition's directory is gone, but everything below offset %d was flushed", ld.point)}
	}
	if err != nil {
		return err
	}
	ld.names = make(map[string]bool, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			ld.names[e.Name()] = true
		}
	}
	return nil
}

// isBack says whether a log is offline because its directory was gone, and it is there again.
func (l *Log) isBack() bool {
	fault := l.fault.Load()
	var damage *Damage
	if fault == nil || !errors.As(*fault, &damage) || damage.File != filepath.Clean(l.path("")) || damage.Position >= 0 {
		return false
	}
	_, err := l.m.fs.Stat(damage.File)
	return err == nil
}

func (ld *loader) remove(name string) error {
	delete(ld.names, name)
	if err := ld.l.m.fs.Remove(ld.l.path(name)); err != nil && !notExist(err) {
		return ld.l.writeFailed("remove "+name, err)
	}
	ld.l.flush.names.Store(true)
	return nil
}

// swaps deals with what compaction leaves when it is interrupted. A .cleaned file is not whole
// and goes, and so do .swap files from its offset on, of a split that was not whole. The other
// .swap files are: they replace the segments whose offsets they cover, but not before every one of
// them has been read. One that is damaged may say anything of what it covers, and nothing is removed.
func (ld *loader) swaps() error {
	l := ld.l
	covers, err := swapped(l.m.fs, l.path(""), ld.names)
	if err != nil {
		return err
	}
	var swaps []string
	for name := range ld.names {
		base, suffix, ok := parseOffsetName(strings.TrimSuffix(name, deletedSuffix))
		if isDeletedLog(name) {
			ld.gone = append(ld.gone, base)
		}
		switch {
		case strings.HasSuffix(name, deletedSuffix) && ok, name == epochFile+temporarySuffix, name == partitionFile+temporarySuffix,
			ok && strings.HasSuffix(suffix, cleanedSuffix),
			ok && strings.HasSuffix(suffix, swapSuffix) && base >= covers.unfinished:
			if err := ld.remove(name); err != nil {
				return err
			}
		case ok && strings.HasSuffix(suffix, swapSuffix):
			swaps = append(swaps, name)
		}
	}
	for name := range ld.names {
		base, suffix, ok := parseOffsetName(name)
		if ok && slices.Contains(segmentSuffixes[:], suffix) && base >= covers.from && base < covers.to {
			if err := ld.remove(name); err != nil {
				return err
			}
		}
	}
	slices.Sort(swaps) // rising, so that those of a split that were renamed when the end came are not taken for the old one
	for _, name := range swaps {
		to := strings.TrimSuffix(name, swapSuffix)
		if err := l.m.fs.Rename(l.path(name), l.path(to)); err != nil {
			return l.writeFailed("rename "+name, err)
		}
		delete(ld.names, name)
		ld.names[to] = true
		l.flush.names.Store(true)
	}
	return nil
}

// nextOffset is the offset after the last entry of a file.
func (ld *loader) nextOffset(name string, base int64) (int64, error) {
	f, size, err := openSized(ld.l.m.fs, ld.l.path(name))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sc := scanner{f: f, end: size, buf: make([]byte, walkBytes)}
	for err = sc.next(); err == nil; err = sc.next() {
		base = max(base, sc.head.NextOffset())
	}
	if err != io.EOF && !torn(err) {
		return 0, err
	}
	return base, nil
}

// identity reads partition.metadata. One that is empty was not durable yet; it is written anew
// when somebody says what it has to be.
func (ld *loader) identity() error {
	if !ld.names[partitionFile] {
		return nil
	}
	name := ld.l.path(partitionFile)
	data, err := readFile(ld.l.m.fs, name)
	if err != nil {
		return err
	}
	id, err := parsePartitionFile(data)
	if err == nil {
		ld.l.id.Store(&id)
		return nil
	}
	if len(strings.Trim(string(data), "\x00")) == 0 || !ld.clean && ld.point == 0 {
		return ld.remove(partitionFile)
	}
	return &Damage{name, -1, err.Error()}
}

// indexes makes the indexes of segments that have none. Those that were recovered have.
func (ld *loader) indexes() error {
	for _, s := range ld.l.segments() {
		if s.size.Load() == 0 || s.checked.Load() ||
			ld.names[offsetName(s.base, indexSuffix)] && ld.names[offsetName(s.base, timeSuffix)] {
			continue
		}
		if err := s.ensure(); err != nil {
			return err
		}
	}
	return nil
}

// hasEpochs says whether the last segment that is not empty begins with a batch that has an epoch.
func (ld *loader) hasEpochs() (bool, error) {
	for _, s := range slices.Backward(ld.list) {
		if s.size.Load() == 0 {
			continue
		}
		h, err := s.get(logData, 0)
		if err != nil {
			return false, err
		}
		defer h.release()
		defer s.closeFiles()
		var buf [headerBytes]byte
		sc := scanner{f: h.f, end: s.size.Load(), buf: buf[:]}
		err = sc.next()
		if err != nil && !torn(err) {
			return false, err
		}
		return err == nil && sc.head.LeaderEpoch() >= 0, nil
	}
	return false, nil
}

// epochs reads leader-epoch-checkpoint. known is false if there should be one and it cannot be
// read: then the batches say it.
func (ld *loader) epochs() (known bool, err error) {
	l := ld.l
	if !ld.names[epochFile] {
		if !ld.clean || ld.point <= ld.list[0].base {
			return ld.point <= ld.list[0].base, nil // or a recovery finds them
		}
		has, err := ld.hasEpochs()
		if has {
			l.m.logger.Warn("reading the leader epochs from the batches", "file", l.path(epochFile), "err", "it is not there")
		}
		return !has, err
	}
	data, err := readFile(l.m.fs, l.path(epochFile))
	if err != nil {
		return false, err
	}
	list, err := parseEpochs(data)
	if err == nil && len(data) > 0 && data[len(data)-1] != '\n' {
		err = errors.New("the last line has no end")
	}
	if err != nil || len(data) == 0 && ld.point > ld.list[0].base {
		l.m.logger.Warn("reading the leader epochs from the batches", "file", l.path(epochFile), "err", err)
		return false, nil
	}
	l.epochs.list = list
	l.epochs.wrote(slices.Clone(list))
	return true, nil
}
