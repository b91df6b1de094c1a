// Package log keeps partitions on disk, in Kafka's files: what Kafka wrote opens here, and what
// is written here opens there.
//
//	manager.go dirs.go meta.go     the log directories and the partitions in them; retire.go: their end
//	load.go loader.go progress.go  what a start does
//	recover.go resume.go           after a crash; holes.go: what is missing
//	replay.go                      producers and epochs by what the log has
//	check*.go                      reading a whole directory for what is wrong with it, and a repair
//	close.go syncall.go            a clean stop; many logs made durable at once
//	tasks.go retention.go tidy.go  what happens by itself: one goroutine for all partitions
//	trouble.go                     what is told when a disk fails or is full
//	clean*.go offsetmap.go         compaction: one goroutine, and more while there is something to do
//	log.go append.go read.go       one partition; lookup.go, truncate.go, flush.go, group.go
//	segment.go index.go rebuild.go one file of entries with its indexes; scan.go walks it
//	producers.go snapshot.go txnindex.go epochs.go   what goes along with the records
//	checkpoint.go names.go files.go   small files, names, descriptors
//
// # What holds
//
// A writer holds its log's lock for one write of its bytes. Readers take an immutable list of
// segments, the sizes and the end from atomics, and never wait for a writer.
//
// Appended bytes are in the page cache when Append returns, so that the end of this process
// loses nothing that was acknowledged. The end of the system loses what no Flush covered; see
// flusher for what it makes durable and when. At a start everything below the recovery point
// is taken to be there; if it is not, the partition stays offline and says where the damage is.
// What lies behind it is checked batch by batch. The log ends at the first one that is not whole;
// a segment that is missing, empty, or ends early with a whole batch takes none along and leaves
// a hole in the offsets, as in Kafka.
//
// # Locks, outermost first
//
// Manager.creating, Log.shape, Log.mu, epochs.writing, dir.saved, Manager.mu, segment.checking, segment.imu, fileCache.mu,
// slot.mu. dir.cleaned, epochs.mu, flusher.mu, waker.mu and tasks.mu are taken last. No lock is held across an
// fsync, but Log.shape, that of a log across a truncation's, dir.saved, dir.cleaned and epochs.writing across those of their
// own files.
package log

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/log/vfs"
)

// ManagerOptions say where the logs are and how they are kept.
type ManagerOptions struct {
	FS        vfs.FS   // nil: the operating system's
	Dirs      []string // the log directories, for LockDirs
	Locked    *Dirs    // or those that LockDirs gave; the manager closes them
	BrokerID  int32
	ClusterID string

	TopicOptions func(topic string) *Options // nil: Kafka's defaults. Called at each decision.
	Now          func() time.Time            // nil: time.Now
	Logger       *slog.Logger
	Registerer   prometheus.Registerer // nil: nothing is registered

	RecoveryThreads int // num.recovery.threads.per.data.dir, of all directories together; 0: one a core
	MaxOpenFiles    int // descriptors that may be open under load; 0: a quarter of what the process may have

	// Zero stands for Kafka's default; less than zero for never.
	RetentionCheck      time.Duration // log.retention.check.interval.ms, 5 min
	FlushScheduler      time.Duration // log.flush.scheduler.interval.ms, never
	FlushCheckpoint     time.Duration // log.flush.offset.checkpoint.interval.ms, 1 min
	StartCheckpoint     time.Duration // log.flush.start.offset.checkpoint.interval.ms, 1 min
	WatermarkCheckpoint time.Duration // replica.high.watermark.checkpoint.interval.ms, 5 s
	InitialTaskDelay    time.Duration // log.initial.task.delay.ms, 30 s
	ProducerExpiryCheck time.Duration // producer.id.expiration.check.interval.ms, 10 min

	// Cleaner are the settings of compaction, asked at each round, with what is closed when they
	// change; nil: nothing is compacted (log.cleaner.enable).
	Cleaner func() (o CleanerOptions, changed <-chan struct{})

	// ProducerExpiry is producer.id.expiration.ms, asked at each check; nil: 1 day.
	ProducerExpiry func() time.Duration

	// OnDirFailure is told of each directory that goes offline, on the manager's goroutine.
	OnDirFailure func(path string, err error)
}

// Manager holds all logs of one broker.
type Manager struct {
	opts    ManagerOptions
	fs      vfs.FS
	logger  *slog.Logger
	metrics *metrics
	files   fileCache
	dirs    []*dir

	creating sync.Mutex // held by whoever makes or deletes a log

	mu     sync.RWMutex
	logs   map[key]*Log // guarded by mu
	closed atomic.Bool

	recovering atomic.Bool // a log with records was not as a clean stop leaves it
	progress   *progress   // of Load, nil at any other time

	tasks   tasks
	cleaner *cleaner // nil: nothing is compacted
}

// OpenManager takes over the directories and writes meta.properties where it is missing. The
// logs that are there are opened by Load. ErrMeta: a directory belongs to another broker or
// cluster; the error names both.
func OpenManager(o ManagerOptions) (*Manager, error) {
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.RecoveryThreads <= 0 {
		o.RecoveryThreads = runtime.GOMAXPROCS(0)
	}
	if o.MaxOpenFiles <= 0 {
		o.MaxOpenFiles = openFiles()
	}
	for _, d := range []struct {
		of *time.Duration
		is time.Duration
	}{
		{&o.RetentionCheck, 5 * time.Minute}, {&o.FlushScheduler, -1}, {&o.FlushCheckpoint, time.Minute},
		{&o.StartCheckpoint, time.Minute}, {&o.WatermarkCheckpoint, 5 * time.Second},
		{&o.InitialTaskDelay, 30 * time.Second}, {&o.ProducerExpiryCheck, 10 * time.Minute},
	} {
		if *d.of == 0 {
			*d.of = d.is
		}
	}
	if o.ProducerExpiry == nil {
		o.ProducerExpiry = func() time.Duration { return 24 * time.Hour }
	}
	locked := o.Locked
	if locked == nil {
		var err error
		if locked, err = LockDirs(o.FS, o.Dirs); err != nil {
			return nil, err
		}
	}
	m := &Manager{opts: o, fs: o.FS, logger: o.Logger, dirs: locked.list, logs: map[key]*Log{}}
	m.files = fileCache{fs: o.FS, max: o.MaxOpenFiles}
	m.cleaner = newCleaner(m)
	m.metrics = newMetrics(o.Registerer, m)
	for _, d := range m.dirs {
		d.m = m
		if d.failed() != nil {
			m.logger.Error("log directory is offline", "dir", d.path, "err", d.failed())
			continue
		}
		if err := d.claim(o.BrokerID, o.ClusterID); errors.Is(err, ErrMeta) {
			m.metrics.unregister()
			locked.Close()
			return nil, err
		} else if err != nil {
			d.fail(fmt.Errorf("write %s: %w", metaFile, err))
		}
	}
	m.startTasks()
	m.cleaner.start()
	return m, nil
}

// openFiles is a share of the descriptors that this process may have.
func openFiles() int {
	const least, most = 128, 4096
	return min(max(descriptorLimit()/4, least), most)
}

func (m *Manager) options(topic string) *Options {
	if m.opts.TopicOptions != nil {
		if o := m.opts.TopicOptions(topic); o != nil {
			return o
		}
	}
	return &defaults
}

func (m *Manager) nowMs() int64 { return m.opts.Now().UnixMilli() }

// jitter is what a new segment takes off segment.ms, so that not all roll at once.
func (m *Manager) jitter(o *Options) int64 {
	if n := min(o.SegmentJitterMs, o.SegmentMs); n > 0 {
		return rand.Int64N(n)
	}
	return 0
}

// Log returns a partition's log, nil if there is none. One whose files are damaged or whose
// directory is offline is there and answers ErrStorage.
func (m *Manager) Log(topic string, p int32) *Log {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.logs[key{topic, p}]
}

// Logs are all logs, in no order.
func (m *Manager) Logs() iter.Seq[*Log] { return slices.Values(m.snapshot()) }

// Resting says whether a partition has a log that Load has left to Host.
func (m *Manager) Resting(topic string, p int32) bool {
	for _, d := range m.dirs {
		if d.rests(key{topic, p}) {
			return true
		}
	}
	return false
}

// Rest are the partitions whose logs Load has left to Host.
func (m *Manager) Rest() iter.Seq2[string, int32] {
	var list []key
	for _, d := range m.dirs {
		list = append(list, d.resting()...)
	}
	return func(yield func(string, int32) bool) {
		for _, k := range list {
			if !yield(k.topic, k.partition) {
				return
			}
		}
	}
}

func (m *Manager) snapshot() []*Log {
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := make([]*Log, 0, len(m.logs))
	for _, l := range m.logs {
		list = append(list, l)
	}
	return list
}

// Create returns a partition's log and makes it, in the directory with the fewest, if there is
// none. ErrTopicID: the one that is there belongs to another topic of the same name, deleted
// meanwhile; the error names both ids. ErrStorage: it cannot be used.
func (m *Manager) Create(topic string, p int32, id [16]byte) (*Log, error) {
	return m.Host(topic, p, id, true)
}

// Host is Create for a partition that may have had a log before. One that is not new is made only
// while all directories work (LogManager.getOrCreateLog) and none is empty that stands beside others
// that are not, for it may lie where such a one should be: the error is an ErrStorage. A log that
// could not be opened for want of room is tried again; ErrFull says that there is none yet.
func (m *Manager) Host(topic string, p int32, id [16]byte, isNew bool) (*Log, error) {
	m.creating.Lock()
	defer m.creating.Unlock()
	if m.closed.Load() {
		return nil, ErrClosed
	}
	l := m.Log(topic, p)
	if l == nil {
		if !validTopic(topic) || p < 0 {
			return nil, fmt.Errorf("%q partition %d: not a name that Kafka allows", topic, p)
		}
		var err error
		if l, err = m.open(topic, p, isNew); err != nil {
			return nil, err
		}
	} else if errors.Is(l.Err(), ErrFull) || l.isBack() {
		l = m.add(m.loadLog(l.dir, topic, p))
	}
	if err := l.usable(); err != nil {
		return l, err
	}
	return l, l.claim(id)
}

// open loads a partition that Load was not asked for, or makes a new one.
func (m *Manager) open(topic string, p int32, isNew bool) (*Log, error) {
	k := key{topic, p}
	for _, d := range m.dirs {
		if isNew && d.isMissing(k) {
			d.forget(k) // that was a topic of the same name
		}
		if d.failed() == nil && d.leftOut(k) {
			l := m.add(m.loadLog(d, topic, p))
			d.unskip(k)
			return l, nil
		}
	}
	for _, d := range m.dirs {
		switch err := d.failed(); {
		case isNew:
		case err != nil:
			return nil, fmt.Errorf("%s is not made anew, it may lie in a directory that does not work: %w", dirName(topic, p), err)
		case d.fresh:
			return nil, fmt.Errorf("%s is not made anew, it may lie on a disk that should be at %s, which is empty; the next start will make it: %w", dirName(topic, p), d.path, ErrStorage)
		}
	}
	d := m.emptiest()
	if d == nil {
		return nil, fmt.Errorf("create %s: no log directory works: %w", dirName(topic, p), ErrStorage)
	}
	l := newLog(m, d, topic, p)
	if info, err := m.fs.Stat(d.file(dirName(topic, p))); err == nil && !info.IsDir() { // nothing is wrong with the disk
		return nil, fmt.Errorf("create %s: %s is in the way, which is no directory: %w", dirName(topic, p), d.file(dirName(topic, p)), ErrStorage)
	}
	if err := m.fs.MkdirAll(l.path(""), 0o755); err != nil {
		return nil, l.makeFailed("create", err)
	}
	d.names.changed.Add(1)
	l.flush.names.Store(true)
	l.setSegments([]*segment{newSegment(l, 0)})
	d.pointsMoved.Store(true)
	d.watermarksMoved.Store(true)
	return m.add(l), nil
}

func (m *Manager) add(l *Log) *Log {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs[key{l.topic, l.partition}] = l
	return l
}

// emptiest is the working directory with the fewest partitions.
func (m *Manager) emptiest() *dir {
	if len(m.dirs) == 1 {
		if d := m.dirs[0]; d.failed() == nil {
			return d
		}
		return nil
	}
	count := map[*dir]int{}
	for _, l := range m.snapshot() {
		count[l.dir]++
	}
	var best *dir
	for _, d := range m.dirs {
		if d.failed() == nil && (best == nil || count[d] < count[best]) {
			best = d
		}
	}
	return best
}

// claim makes the id the log's own, if it has none.
func (l *Log) claim(id [16]byte) error {
	var none [16]byte
	switch have := l.TopicID(); {
	case id == none || have == id:
		return nil
	case have != none:
		return fmt.Errorf("%s: it is of topic id %s, not %s: %w", l.path(""), uuid(have), uuid(id), ErrTopicID)
	}
	if err := writeFile(l.m.fs, l.path(partitionFile), formatPartitionFile(id), false); err != nil {
		return l.makeFailed("write "+partitionFile, err)
	}
	l.flush.file.Store(true)
	l.flush.names.Store(true)
	l.id.Store(&id)
	return nil
}

// DropTopicID makes the log one of no topic's id, as after partition.metadata was removed: it is of whoever
// claims it next.
func (l *Log) DropTopicID() error {
	if err := l.usable(); err != nil {
		return err
	}
	if err := l.m.fs.Remove(l.path(partitionFile)); err != nil && !notExist(err) {
		return l.makeFailed("remove "+partitionFile, err)
	}
	l.flush.names.Store(true)
	l.id.Store(new([16]byte))
	return nil
}

// DirState is what DescribeLogDirs tells of a directory.
type DirState struct {
	Path          string
	Err           error // why it is offline, an ErrStorage
	Total, Usable int64 // bytes of its file system, -1 if that is not known
}

// Dirs describes the directories, in the order in which they were given.
func (m *Manager) Dirs() []DirState {
	list := make([]DirState, len(m.dirs))
	for i, d := range m.dirs {
		list[i] = DirState{Path: d.path, Err: d.failed(), Total: -1, Usable: -1}
		if list[i].Err == nil {
			if total, usable, err := m.fs.Space(d.path); err == nil {
				list[i].Total, list[i].Usable = total, usable
			}
		}
	}
	return list
}
