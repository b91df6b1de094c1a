package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"ottla/log/vfs"
)

// CheckOptions say what Check reads.
type CheckOptions struct {
	FS     vfs.FS   // nil: the operating system's
	Dir    string   // a log directory
	Topics []string // only these; none: all
	Beside []string // the broker's other log directories: what lies there is not missing here
	// Progress is told of each partition before it is read; nil: nobody is.
	Progress func(partition string, number, of int)
}

// Finding is one thing that is wrong in a log directory, or that a start would have to do.
type Finding struct {
	Topic     string // empty: it concerns the directory
	Partition int32
	File      string
	Position  int64 // byte in the file, -1 when the whole file is meant
	What      string
	Repair    string // what Repair would do; empty: nothing
	// Harmless: nothing that was flushed is lost, and a start deals with it by itself.
	Harmless bool

	do      repairKind
	bytes   stretch
	offset  int64 // for repairStart: the log start to write
	recheck bool  // after the repair the whole log has to be read again
}

// stretch is from a byte of a file up to but not including another.
type stretch struct{ from, to int64 }

// CheckReport is what Check found.
type CheckReport struct {
	Dir        string
	Clean      bool // the last stop was clean
	Partitions int
	Segments   int
	Batches    int64
	Bytes      int64 // of segments
	Findings   []Finding

	fs vfs.FS
}

// Wrong is how many findings are not harmless.
func (r *CheckReport) Wrong() int {
	return len(r.Findings) - r.count(func(f *Finding) bool { return f.Harmless })
}

// Repairable is how many findings Repair would do something about.
func (r *CheckReport) Repairable() int {
	return r.count(func(f *Finding) bool { return f.do != repairNone })
}

func (r *CheckReport) count(is func(*Finding) bool) (n int) {
	for i := range r.Findings {
		if is(&r.Findings[i]) {
			n++
		}
	}
	return n
}

// InUse says whether somebody, a broker most likely, has locked the log directory.
func InUse(fsys vfs.FS, dir string) (bool, error) {
	name := filepath.Join(dir, lockFile)
	if _, err := fsys.Stat(name); err != nil {
		if notExist(err) {
			err = nil
		}
		return false, err
	}
	lock, err := fsys.Lock(name)
	if err != nil {
		if errors.Is(err, vfs.ErrLocked) {
			return true, nil
		}
		return false, err
	}
	return false, lock.Close()
}

// LockDir takes the lock of a log directory, which no broker can use until it is closed. ErrLocked: one
// uses it.
func LockDir(fsys vfs.FS, dir string) (io.Closer, error) {
	if _, err := fsys.Stat(dir); err != nil {
		return nil, err
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w: a broker has locked %s", ErrLocked, filepath.Join(dir, lockFile))
	}
	return lock, err
}

// checker reads a directory, and changes nothing in it.
type checker struct {
	ctx    context.Context
	fs     vfs.FS
	dir    string
	report *CheckReport

	points, starts map[key]int64
	cleaned        map[key]int64 // up to where logs were compacted
}

// Check reads all that a log directory has, every batch with its checksum, and changes nothing. Beside a
// broker that runs it may find what is about to be written. An error means that the directory could
// not be read.
func Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	path := filepath.Clean(o.Dir)
	c := &checker{ctx: ctx, fs: o.FS, dir: path, report: &CheckReport{Dir: path, fs: o.FS}}
	entries, err := c.fs.ReadDir(path)
	if err != nil {
		return nil, err
	}
	if err := c.directory(); err != nil {
		return nil, err
	}
	var found []key
	var retired []string
	known := false
	for _, e := range entries {
		known = known || e.Name() == metaFile || e.Name() == recoveryFile
		if !e.IsDir() || e.Name() == remoteIndexCache {
			continue
		}
		switch topic, partition, kind := parseDirName(e.Name()); {
		case kind == dirDeleted || kind == dirStray:
			retired = append(retired, e.Name())
		case kind == dirPartition && topic != metadataTopic:
			found = append(found, key{topic, partition})
		}
	}
	if !known && len(found) == 0 && len(entries) > 0 {
		return nil, fmt.Errorf("%s is no log directory: it has neither %s nor partitions", path, metaFile)
	}
	d := &dir{}
	d.saved.points = c.points
	for k := range d.unaccounted(found, retired) {
		if c.asked(o.Topics, k.topic) && !slices.ContainsFunc(o.Beside, func(dir string) bool {
			info, err := c.fs.Stat(filepath.Join(dir, dirName(k.topic, k.partition)))
			return err == nil && info.IsDir()
		}) {
			c.add(k, Finding{File: c.path(dirName(k.topic, k.partition)), Position: -1, do: repairStrike,
				What:   fmt.Sprintf("the partition's directory is gone, but everything below offset %d was flushed; unless it is in another log directory, the partition is offline", c.points[k]),
				Repair: "strike the partition off the checkpoints; a start then begins it anew, empty"})
		}
	}
	found = slices.DeleteFunc(found, func(k key) bool { return !c.asked(o.Topics, k.topic) })
	slices.SortFunc(found, func(a, b key) int {
		if n := strings.Compare(a.topic, b.topic); n != 0 {
			return n
		}
		return int(a.partition) - int(b.partition)
	})
	for i, k := range found {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(dirName(k.topic, k.partition), i+1, len(found))
		}
		if err := c.partition(k); err != nil {
			return nil, fmt.Errorf("%s: %w", dirName(k.topic, k.partition), err)
		}
		c.report.Partitions++
	}
	return c.report, nil
}

func (c *checker) asked(topics []string, topic string) bool {
	return len(topics) == 0 || slices.Contains(topics, topic)
}

func (c *checker) path(names ...string) string {
	return c.dir + string(filepath.Separator) + strings.Join(names, string(filepath.Separator))
}

func (c *checker) add(k key, f Finding) {
	f.Topic, f.Partition = k.topic, k.partition
	c.report.Findings = append(c.report.Findings, f)
}

// directory checks the directory's own files.
func (c *checker) directory() error {
	switch _, err := c.fs.Stat(c.path(cleanFile)); {
	case err == nil:
		c.report.Clean = true
	case !notExist(err):
		return err
	}
	if data, err := readFile(c.fs, c.path(metaFile)); err == nil {
		if _, err := parseMeta(data); err != nil {
			c.add(key{}, Finding{File: c.path(metaFile), Position: -1, What: err.Error() + "; the broker does not start"})
		}
	} else if !notExist(err) {
		return err
	}
	of := map[string]map[key]int64{}
	for name, lost := range map[string]string{
		recoveryFile:  "a start reads all logs of the directory again",
		startFile:     "records that were deleted with DeleteRecords come back",
		watermarkFile: "the high watermarks begin at the log starts",
		cleanerFile:   "compaction begins at the log starts",
	} {
		data, err := readFile(c.fs, c.path(name))
		if notExist(err) {
			continue
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			return err
		}
		if err == nil {
			of[name], err = parseCheckpoint(data)
		}
		if err != nil {
			c.add(key{}, Finding{File: c.path(name), Position: -1, What: fmt.Sprintf("%v; it counts as empty: %s", err, lost), do: repairAside, Repair: "set it aside"})
		}
	}
	c.points, c.starts, c.cleaned = of[recoveryFile], of[startFile], of[cleanerFile]
	if c.points == nil {
		c.points = map[key]int64{}
	}
	for k, offset := range c.points {
		if offset < 0 {
			delete(c.points, k)
		}
	}
	return nil
}

// partition checks the directory of a partition.
func (c *checker) partition(k key) error {
	p := &partitionCheck{checker: c, k: k, name: dirName(k.topic, k.partition), open: map[int64]int64{}}
	p.point, p.start = c.points[k], c.starts[k]
	if err := p.list(); err != nil {
		return err
	}
	if err := p.small(); err != nil {
		return err
	}
	if err := p.segments(); err != nil {
		return err
	}
	return p.snapshots()
}

// partitionCheck is the check of one partition.
type partitionCheck struct {
	*checker
	k     key
	name  string // of its directory
	names map[string]bool
	bases []int64        // of the segments
	empty map[int64]bool // those of them, apart from the last one, that have nothing
	under bool           // a compaction was interrupted, which a start finishes
	cut   bool           // a repair has taken something out

	point, start int64

	end     int64           // of what is whole up to now
	gaps    bool            // within a segment offsets are missing, as in a topic that is compacted
	open    map[int64]int64 // first offset of each producer's open transaction
	aborted []Aborted       // whose markers are in the current segment
	markers map[int64]int64 // markers of aborts in the current segment: offset to producer
	epochs  bool            // a batch has a leader epoch
}

func (p *partitionCheck) file(name string) string { return p.path(p.name, name) }

func (p *partitionCheck) find(f Finding) { p.add(p.k, f) }

// list reads the names in the directory.
func (p *partitionCheck) list() error {
	entries, err := p.fs.ReadDir(p.path(p.name))
	if err != nil {
		return err
	}
	p.names = map[string]bool{}
	for _, e := range entries {
		if !e.IsDir() {
			p.names[e.Name()] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.names)) {
		base, suffix, ok := parseOffsetName(name)
		switch {
		case strings.Contains(name, cutSuffix):
			p.cut = true
		case !ok:
		case suffix == logSuffix:
			p.bases = append(p.bases, base)
		case strings.HasSuffix(suffix, swapSuffix) || strings.HasSuffix(suffix, cleanedSuffix):
			p.under = true
		}
	}
	slices.Sort(p.bases)
	if err := p.swaps(); err != nil {
		return err
	}
	gone := map[int64]bool{}
	for name := range p.names {
		if isDeletedLog(name) {
			base, _, _ := parseOffsetName(name)
			gone[base] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.names)) {
		base, suffix, ok := parseOffsetName(name)
		if ok && slices.Contains(segmentSuffixes[1:], suffix) && !p.names[offsetName(base, logSuffix)] && !gone[base] && base < p.point {
			p.find(Finding{File: p.file(name), Position: -1, What: "the log of this index is gone",
				do: repairRemove, Repair: "remove it, as a start does"})
		}
	}
	return nil
}

// swaps tells of the files of a compaction that was interrupted. Where one of them is damaged, all .swap
// files have to be set aside: the segments that they would replace may all be there still.
func (p *partitionCheck) swaps() error {
	if !p.under {
		return nil
	}
	_, err := swapped(p.fs, p.path(p.name), p.names)
	var damage *Damage
	if err != nil && !errors.As(err, &damage) {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p.names)) {
		_, suffix, ok := parseOffsetName(name)
		switch {
		case !ok || !strings.HasSuffix(suffix, swapSuffix) && !strings.HasSuffix(suffix, cleanedSuffix):
		case damage == nil || strings.HasSuffix(suffix, cleanedSuffix):
			p.find(Finding{File: p.file(name), Position: -1, Harmless: true, What: "left by a compaction that was interrupted; a start finishes it or removes the file"})
		case name == filepath.Base(damage.File):
			p.find(Finding{File: p.file(name), Position: damage.Position, do: repairAside, recheck: true, Repair: "set it aside, and what else the compaction has left",
				What: damage.Reason + "; it was left by a compaction that was interrupted, and the partition is offline"})
		default:
			p.find(Finding{File: p.file(name), Position: -1, do: repairAside, recheck: true, Repair: "set it aside",
				What: "left by a compaction that was interrupted, of which another file is damaged"})
		}
	}
	return nil
}

// small checks partition.metadata and leader-epoch-checkpoint.
func (p *partitionCheck) small() error {
	if p.names[partitionFile] {
		data, err := readFile(p.fs, p.file(partitionFile))
		if err != nil {
			return err
		}
		if _, err := parsePartitionFile(data); err != nil {
			p.find(Finding{File: p.file(partitionFile), Position: -1, What: err.Error() + "; unless the file is empty, the partition is offline", do: repairAside,
				Repair: "set it aside; the topic that has the partition's name then takes it over"})
		}
	}
	if p.names[epochFile] {
		data, err := readFile(p.fs, p.file(epochFile))
		if err != nil {
			return err
		}
		if _, err := parseEpochs(data); err != nil {
			p.find(Finding{File: p.file(epochFile), Position: -1, What: err.Error() + "; a start reads the leader epochs from the batches", do: repairAside, recheck: true,
				Repair: "set it aside; the next start reads all of the log again"})
		}
	}
	return nil
}

// snapshots checks the producer snapshots.
func (p *partitionCheck) snapshots() error {
	for _, name := range slices.Sorted(maps.Keys(p.names)) {
		at, suffix, ok := parseOffsetName(name)
		if !ok || suffix != snapshotSuffix {
			continue
		}
		data, err := readFile(p.fs, p.file(name))
		if notExist(err) {
			continue
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			return err
		}
		if err == nil {
			_, err = parseSnapshot(data)
		}
		switch {
		case err != nil:
			p.find(Finding{File: p.file(name), Position: -1, What: err.Error() + "; a start reads the producers from an older one and the batches", do: repairAside, Repair: "set it aside"})
		case at > p.end:
			p.find(Finding{File: p.file(name), Position: -1, Harmless: true, What: fmt.Sprintf("it is of an offset above the log's end, %d; a start removes it", p.end)})
		}
	}
	return nil
}
