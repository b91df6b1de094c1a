package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"ottla/log/vfs"
)

// Dirs are the log directories of one broker (log.dirs), locked and with their meta.properties
// read. Several may be given: a partition lies whole in one, and one that fails goes offline
// alone.
type Dirs struct {
	fs   vfs.FS
	list []*dir
}

// dir is one log directory.
type dir struct {
	fs   vfs.FS
	path string
	lock io.Closer // nil: it was never usable
	meta meta
	// fresh: there was no meta.properties. Beside directories that have one, it may stand where a
	// disk should be that is not there.
	fresh bool
	m     *Manager // set by OpenManager

	fault atomic.Pointer[error] // why it is offline; never taken back

	clean   bool         // the last stop was clean; fixed by load
	skipped map[key]bool // partitions that load was not asked for; guarded by saved
	missing map[key]bool // partitions that had flushed records, and whose directories are gone

	names struct { // of partitions' directories; a change is durable once synced has reached it
		sync.Mutex
		changed atomic.Int64
		synced  atomic.Int64
	}

	saved struct { // what the checkpoint files say
		sync.Mutex
		points, starts, watermarks map[key]int64
	}
	pointsMoved, startsMoved, watermarksMoved atomic.Bool

	cleaned struct { // what cleaner-offset-checkpoint says
		sync.Mutex
		offsets map[key]int64
	}

	full uint // checkpoints that found no room, a bit for each task; the manager's goroutine's
}

// LockDirs makes the directories if need be, takes their locks, and reads meta.properties. An
// error of the disk is kept to its directory as long as another one works. ErrLocked: a
// directory is used by another Kafka or ottla. ErrMeta: a meta.properties cannot be read, or
// the directories belong to different brokers or clusters. From here on the directories go by their
// absolute paths, as clients and tools see them in Kafka.
func LockDirs(fsys vfs.FS, paths []string) (*Dirs, error) {
	ds := &Dirs{fs: fsys}
	seen := map[string]bool{}
	var first error
	usable, fresh := 0, 0
	for _, path := range paths {
		clean, err := filepath.Abs(path)
		if err != nil {
			clean = filepath.Clean(path) // nobody knows where we are; the system does
		}
		if seen[clean] {
			ds.Close()
			return nil, fmt.Errorf("log directory %s is given twice", path)
		}
		seen[clean] = true
		d := &dir{fs: fsys, path: clean}
		d.saved.points, d.saved.starts, d.saved.watermarks = map[key]int64{}, map[key]int64{}, map[key]int64{}
		ds.list = append(ds.list, d)
		err = d.open()
		if errors.Is(err, ErrLocked) || errors.Is(err, ErrMeta) {
			ds.Close()
			return nil, err
		}
		if err != nil {
			d.fault.Store(&err)
			first = errors.Join(first, err)
			continue
		}
		usable++
		if d.fresh {
			fresh++
		}
	}
	for _, d := range ds.list { // they are all new
		d.fresh = d.fresh && fresh < usable
	}
	if usable == 0 {
		ds.Close()
		if first == nil {
			first = errors.New("no log directory is given")
		}
		return nil, first
	}
	if err := ds.agree(); err != nil {
		ds.Close()
		return nil, err
	}
	return ds, nil
}

func (d *dir) open() error {
	if _, err := d.fs.Stat(d.path); notExist(err) {
		if err := d.make(); err != nil {
			return fmt.Errorf("create log directory: %w: %w", ErrStorage, err)
		}
	}
	lock, err := d.fs.Lock(filepath.Join(d.path, lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%w: a broker in another process or in this one has locked %s", ErrLocked, filepath.Join(d.path, lockFile))
	}
	if err != nil {
		return fmt.Errorf("lock log directory: %w: %w", ErrStorage, err)
	}
	d.lock = lock
	data, err := readFile(d.fs, filepath.Join(d.path, metaFile))
	switch {
	case notExist(err):
		d.meta.id, d.fresh = -1, true
		return nil
	case err != nil:
		return fmt.Errorf("read %s: %w: %w", metaFile, ErrStorage, err)
	}
	if d.meta, err = parseMeta(data); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMeta, filepath.Join(d.path, metaFile), err)
	}
	return nil
}

// make makes the directory and those above it that are missing, durably: what will be flushed is
// below their names. A parent that may not be read is left to the system.
func (d *dir) make() error {
	var parents []string
	for path := d.path; ; {
		parent := filepath.Dir(path)
		parents = append(parents, parent)
		if _, err := d.fs.Stat(parent); err == nil || parent == path {
			break
		}
		path = parent
	}
	if err := d.fs.MkdirAll(d.path, 0o755); err != nil {
		return err
	}
	for _, parent := range parents {
		if err := d.fs.SyncDir(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// agree finds directories that cannot be of one broker.
func (ds *Dirs) agree() error {
	var id, cluster *dir
	for _, d := range ds.list {
		if d.failed() != nil {
			continue
		}
		if d.meta.id >= 0 {
			if id != nil && id.meta.id != d.meta.id {
				return fmt.Errorf("%w: %s belongs to broker %d, %s to broker %d", ErrMeta, id.path, id.meta.id, d.path, d.meta.id)
			}
			id = d
		}
		if d.meta.cluster != "" {
			if cluster != nil && cluster.meta.cluster != d.meta.cluster {
				return fmt.Errorf("%w: %s belongs to cluster %s, %s to cluster %s", ErrMeta, cluster.path, cluster.meta.cluster, d.path, d.meta.cluster)
			}
			cluster = d
		}
	}
	return nil
}

// BrokerID is the broker that the directories belong to, -1 if they are new.
func (ds *Dirs) BrokerID() int32 {
	for _, d := range ds.list {
		if d.failed() == nil && d.meta.id >= 0 {
			return d.meta.id
		}
	}
	return -1
}

// ClusterID is the cluster that the directories belong to, empty if they are new.
func (ds *Dirs) ClusterID() string {
	for _, d := range ds.list {
		if d.failed() == nil && d.meta.cluster != "" {
			return d.meta.cluster
		}
	}
	return ""
}

// Close gives up the locks. It is for a start that ends before OpenManager, which takes over.
func (ds *Dirs) Close() error {
	var first error
	for _, d := range ds.list {
		if d.lock != nil {
			first = errors.Join(first, d.lock.Close())
			d.lock = nil
		}
	}
	return first
}

func (d *dir) file(name string) string { return d.path + string(filepath.Separator) + name }

// claim writes meta.properties if it lacks something.
func (d *dir) claim(broker int32, cluster string) error {
	meta, write, err := d.meta.with(broker, cluster)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMeta, d.file(metaFile), err)
	}
	if !write {
		return nil
	}
	d.meta = meta
	if err := replaceFile(d.fs, d.file(metaFile), meta.format(d.m.opts.Now())); err != nil {
		return err
	}
	return d.fs.SyncDir(d.path)
}

// failed is why the directory is offline, as an ErrStorage; nil if it is not.
func (d *dir) failed() error {
	if fault := d.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// fail takes the directory offline until the next start: its disk did not do what it was told,
// and what it still has is not known. All its logs answer ErrStorage from now on. What it was
// doing that for goes into the log line, as pairs.
func (d *dir) fail(err error, of ...any) {
	err = fmt.Errorf("log directory %s is offline: %w: %w", d.path, ErrStorage, err)
	if !d.fault.CompareAndSwap(nil, &err) {
		return
	}
	d.m.logger.Error("log directory is offline", append([]any{"dir", d.path, "err", err}, of...)...)
	for _, l := range d.m.snapshot() {
		if l.dir == d {
			l.wake.all()
		}
	}
	if tell := d.m.opts.OnDirFailure; tell != nil {
		d.m.later(0, func() error { tell(d.path, err); return nil })
	}
}

// syncNames makes the partitions' directories themselves durable.
func (d *dir) syncNames() error {
	if d.names.synced.Load() == d.names.changed.Load() {
		return nil
	}
	d.names.Lock()
	defer d.names.Unlock()
	changed := d.names.changed.Load()
	if d.names.synced.Load() == changed {
		return nil
	}
	if err := d.fs.SyncDir(d.path); err != nil {
		return unsynced(err)
	}
	d.names.synced.Store(changed)
	return nil
}

// readCheckpoint reads an offset checkpoint; one that cannot be read counts as empty, as in
// Kafka: more is checked then.
func (d *dir) readCheckpoint(name string, logger *slog.Logger) (map[key]int64, error) {
	data, err := readFile(d.fs, d.file(name))
	if notExist(err) {
		return map[key]int64{}, nil
	}
	if err != nil {
		return nil, err
	}
	offsets, err := parseCheckpoint(data)
	if err != nil {
		logger.Warn("ignoring a checkpoint that cannot be read", "file", d.file(name), "err", err)
		return map[key]int64{}, nil
	}
	return offsets, nil
}

func (d *dir) readCheckpoints(logger *slog.Logger) (err error) {
	if d.saved.points, err = d.readCheckpoint(recoveryFile, logger); err != nil {
		return err
	}
	if d.saved.starts, err = d.readCheckpoint(startFile, logger); err != nil {
		return err
	}
	if d.saved.watermarks, err = d.readCheckpoint(watermarkFile, logger); err != nil {
		return err
	}
	d.cleaned.offsets, err = d.readCheckpoint(cleanerFile, logger)
	return err
}

// savedPoint is the recovery point that a start after a crash would find.
func (d *dir) savedPoint(l *Log) int64 {
	d.saved.Lock()
	defer d.saved.Unlock()
	return d.saved.points[key{l.topic, l.partition}]
}

// savePoints, saveStarts and saveWatermarks write a checkpoint if something moved. What they
// say about partitions that are not in use is kept.
func (d *dir) savePoints() error {
	return d.save(recoveryFile, &d.pointsMoved, &d.saved.points, func(l *Log) (int64, bool) { return l.Flushed(), true })
}

func (d *dir) saveStarts() error {
	return d.save(startFile, &d.startsMoved, &d.saved.starts, func(l *Log) (int64, bool) {
		start := l.start.Load()
		return start, start > l.segments()[0].base
	})
}

func (d *dir) saveWatermarks() error {
	return d.save(watermarkFile, &d.watermarksMoved, &d.saved.watermarks, func(l *Log) (int64, bool) { return l.high.Load(), true })
}

func (d *dir) save(name string, moved *atomic.Bool, saved *map[key]int64, of func(*Log) (int64, bool)) error {
	d.saved.Lock()
	defer d.saved.Unlock()
	if d.failed() != nil || !moved.Swap(false) {
		return d.failed()
	}
	offsets := make(map[key]int64, len(*saved))
	for _, l := range d.m.snapshot() {
		if l.dir != d {
			continue
		}
		k := key{l.topic, l.partition}
		if fault := l.fault.Load(); fault != nil && errors.Is(*fault, ErrStorage) || len(l.segments()) == 0 {
			if old, ok := (*saved)[k]; ok {
				offsets[k] = old
			}
			continue
		}
		if offset, ok := of(l); ok {
			offsets[k] = offset
		}
	}
	for _, apart := range []map[key]bool{d.skipped, d.missing} {
		for k := range apart {
			if old, ok := (*saved)[k]; ok {
				offsets[k] = old
			}
		}
	}
	err := replaceFile(d.fs, d.file(name), formatCheckpoint(offsets))
	if err == nil {
		err = d.fs.SyncDir(d.path)
	}
	if err != nil {
		moved.Store(true)
		return err
	}
	*saved = offsets
	return nil
}

// leftOut says whether a partition is there that load left out, or should be.
func (d *dir) leftOut(k key) bool {
	d.saved.Lock()
	defer d.saved.Unlock()
	return d.skipped[k] || d.missing[k]
}

// unskip counts such a partition as loaded. Its log has to be among the manager's by then: a checkpoint
// that is written meanwhile keeps what the one before said of it.
func (d *dir) unskip(k key) {
	d.saved.Lock()
	defer d.saved.Unlock()
	delete(d.skipped, k)
	delete(d.missing, k)
	d.pointsMoved.Store(true)
	d.startsMoved.Store(true)
	d.watermarksMoved.Store(true)
}

// rests says whether a partition is there that load left out; resting are all of them.
func (d *dir) rests(k key) bool {
	d.saved.Lock()
	defer d.saved.Unlock()
	return d.skipped[k]
}

func (d *dir) resting() []key {
	d.saved.Lock()
	defer d.saved.Unlock()
	return slices.Collect(maps.Keys(d.skipped))
}

// isMissing says whether a partition had flushed records here, and its directory is gone.
func (d *dir) isMissing(k key) bool {
	d.saved.Lock()
	defer d.saved.Unlock()
	return d.missing[k]
}

// forget takes a deleted partition out of the checkpoints.
func (d *dir) forget(k key) {
	d.saved.Lock()
	defer d.saved.Unlock()
	delete(d.saved.points, k)
	delete(d.saved.starts, k)
	delete(d.saved.watermarks, k)
	delete(d.skipped, k)
	delete(d.missing, k)
	d.pointsMoved.Store(true)
	d.startsMoved.Store(true)
	d.watermarksMoved.Store(true)
}
