package log

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"ottla/log/vfs"
)

// repairKind is what Repair does about a finding.
type repairKind uint8

const (
	repairNone       repairKind = iota
	repairCut                   // cut bytes out of a log
	repairRemove                // remove an index
	repairGiveUp                // note that offsets before a segment are missing
	repairAside                 // give a file a name that nobody reads
	repairStrike                // take a partition out of the checkpoints
	repairStart                 // set the log start
	repairCheckAgain            // take the recovery point back
)

// Repair does what the findings say, and tells each step. The caller holds the lock of LockDir since
// before the Check. What is cut out of a log, and files whose content cannot be made again, stay
// beside as *.cut; who does not want them any more removes them. Where something was done to a
// partition's log, the next start reads all of it again.
func (r *CheckReport) Repair(ctx context.Context, tell func(step string)) error {
	f := &repairer{ctx: ctx, fs: r.fs, dir: r.Dir, tell: tell}
	cuts := map[string][]stretch{}
	for i := range r.Findings {
		if c := &r.Findings[i]; c.do == repairCut {
			cuts[c.File] = append(cuts[c.File], c.bytes)
		}
	}
	// What needs room and time comes first. With the recovery point taken back, a start would cut the log
	// at the damage, with all that follows: until then nothing has changed.
	names := slices.Sorted(maps.Keys(cuts))
	for _, name := range names {
		if err := f.copies(name, cuts[name]); err != nil {
			for _, made := range f.made {
				_ = f.fs.Remove(made)
			}
			return fmt.Errorf("cut %s: %w", name, err)
		}
	}
	if err := f.checkpoints(r.Findings); err != nil {
		return err
	}
	for _, name := range names {
		if err := f.cut(name, cuts[name]); err != nil {
			return fmt.Errorf("cut %s: %w", name, err)
		}
	}
	dirs := map[string]bool{r.Dir: true}
	for i := range r.Findings {
		c := &r.Findings[i]
		if c.do == repairNone || c.do == repairStrike {
			continue
		}
		if c.Topic != "" {
			dirs[r.Dir+string(os.PathSeparator)+dirName(c.Topic, c.Partition)] = true
		}
		var err error
		switch c.do {
		case repairRemove:
			f.tell("removing " + c.File)
			err = f.fs.Remove(c.File)
		case repairGiveUp:
			name := fmt.Sprintf("%s.from-%d%s", c.File, c.bytes.from, cutSuffix)
			f.tell("writing " + name)
			err = writeFile(f.fs, name, nil, true)
		case repairAside:
			f.tell("setting aside " + c.File)
			err = setAside(f.fs, c.File)
		}
		if err != nil && !notExist(err) {
			return err
		}
	}
	for _, d := range slices.Sorted(maps.Keys(dirs)) {
		if err := f.fs.SyncDir(d); err != nil {
			return err
		}
	}
	return nil
}

type repairer struct {
	ctx  context.Context
	fs   vfs.FS
	dir  string
	tell func(string)
	made []string // files that copies has written
}

func (f *repairer) path(name string) string { return f.dir + string(os.PathSeparator) + name }

// checkpoints comes before the logs change: whatever becomes of the rest, the next start takes nothing for
// granted.
func (f *repairer) checkpoints(findings []Finding) error {
	strike, starts, again := map[key]bool{}, map[key]int64{}, map[key]bool{}
	for i := range findings {
		c := &findings[i]
		k := key{c.Topic, c.Partition}
		switch c.do {
		case repairStrike:
			strike[k] = true
		case repairStart:
			starts[k] = c.offset
		}
		if c.do != repairNone && c.recheck {
			again[k] = true
		}
	}
	if len(again) > 0 {
		f.tell("removing the mark of a clean stop")
		if err := f.fs.Remove(f.path(cleanFile)); err != nil && !notExist(err) {
			return err
		}
		if err := f.fs.SyncDir(f.dir); err != nil {
			return err
		}
	}
	change := func(name string, edit func(map[key]int64) bool) error {
		data, err := readFile(f.fs, f.path(name))
		if notExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		offsets, err := parseCheckpoint(data)
		if err != nil || !edit(offsets) {
			return nil // it cannot be read, and counts as empty
		}
		f.tell("writing " + f.path(name))
		return replaceFile(f.fs, f.path(name), formatCheckpoint(offsets))
	}
	struck := func(offsets map[key]int64) (changed bool) {
		for k := range strike {
			_, ok := offsets[k]
			changed = changed || ok
			delete(offsets, k)
		}
		return changed
	}
	if err := change(recoveryFile, func(offsets map[key]int64) bool {
		changed := struck(offsets)
		for k := range again {
			changed = changed || offsets[k] > 0
			offsets[k] = 0
		}
		return changed
	}); err != nil {
		return err
	}
	if err := change(startFile, func(offsets map[key]int64) bool {
		changed := struck(offsets) || len(starts) > 0
		maps.Copy(offsets, starts)
		return changed
	}); err != nil {
		return err
	}
	for _, name := range []string{watermarkFile, cleanerFile} {
		if err := change(name, struck); err != nil {
			return err
		}
	}
	return f.fs.SyncDir(f.dir)
}

// copies writes stretches of a log, which rise, into a file each, and what is to be left into another one,
// unless only the log's end goes.
func (f *repairer) copies(name string, bad []stretch) error {
	log, size, err := openSized(f.fs, name)
	if err != nil {
		return err
	}
	defer log.Close()
	for _, s := range bad {
		to, err := freeName(f.fs, fmt.Sprintf("%s.%d%s", name, s.from, cutSuffix))
		if err != nil {
			return err
		}
		f.tell(fmt.Sprintf("cutting %d bytes at byte %d of %s, into %s", s.to-s.from, s.from, name, to))
		f.made = append(f.made, to)
		if err := f.write(to, log, s); err != nil {
			return err
		}
	}
	if atEnd(bad, size) {
		return nil
	}
	var keep []stretch
	from := int64(0)
	for _, s := range bad {
		keep = append(keep, stretch{from, s.from})
		from = s.to
	}
	// A start removes a file of this name.
	f.made = append(f.made, name+cleanedSuffix)
	return f.write(name+cleanedSuffix, log, append(keep, stretch{from, size})...)
}

func atEnd(bad []stretch, size int64) bool { return len(bad) == 1 && bad[0].to == size }

// cut takes the stretches out of the log, of which there are copies.
func (f *repairer) cut(name string, bad []stretch) error {
	log, err := f.fs.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	size, err := log.Size()
	if err != nil {
		return err
	}
	if atEnd(bad, size) {
		if err := log.Truncate(bad[0].from); err != nil {
			return err
		}
		if err := log.Sync(); err != nil {
			return err
		}
	} else if err := f.fs.Rename(name+cleanedSuffix, name); err != nil {
		return err
	}
	base := name[:len(name)-len(logSuffix)]
	for _, suffix := range []string{indexSuffix, timeSuffix} { // the next start makes them anew
		if err := f.fs.Remove(base + suffix); err != nil && !notExist(err) {
			return err
		}
	}
	return nil
}

// write makes a file of pieces of another, durably.
func (f *repairer) write(name string, from vfs.File, pieces ...stretch) error {
	to, err := f.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	buf, at := make([]byte, checkBytes), int64(0)
	for _, s := range pieces {
		for s.from < s.to && err == nil {
			var n int
			n, err = from.ReadAt(buf[:min(int64(len(buf)), s.to-s.from)], s.from)
			if err == io.EOF && n > 0 {
				err = nil
			}
			if err == nil {
				_, err = to.WriteAt(buf[:n], at)
			}
			if err == nil {
				err = f.ctx.Err()
			}
			at += int64(n)
			s.from += int64(n)
		}
	}
	if err == nil {
		err = to.Sync()
	}
	if e := to.Close(); err == nil {
		err = e
	}
	return err
}
