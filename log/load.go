package log

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ottla/log/vfs"
)

// progressEvery is how often a long load says how far it is.
const progressEvery = 5 * time.Second

// noticeable is how long a load may take without a word.
const noticeable = time.Second

// Load opens the logs that are on disk, several at a time. A log that cannot be opened is there
// afterwards and answers ErrStorage; the error of Load is for directories that contradict each
// other. It is called once, before Create.
//
// What a directory is, goes by its name as in Kafka's LogManager: TOPIC-PARTITION is a log,
// *-delete is removed, *-stray and *-future are left alone, and so is everything else. A partition
// whose directory is gone although it had flushed records is not made anew without a word, as Kafka
// does: it is offline until the directory is back, or a Repair has struck it off.
func (m *Manager) Load() error { return m.load(false) }

// LoadUnclean is Load for the directories that were not stopped cleanly. The logs of the others rest
// until Host asks for them: what the checkpoints say of them holds until then.
func (m *Manager) LoadUnclean() error { return m.load(true) }

// load opens logs, but where they rest those of directories that were stopped cleanly.
func (m *Manager) load(rest bool) error {
	type job struct {
		d *dir
		k key
	}
	var jobs []job
	began := m.opts.Now()
	in := map[key]*dir{}
	for _, d := range m.dirs {
		if d.failed() != nil {
			continue
		}
		found, retired, err := m.list(d)
		if err != nil {
			d.fail(fmt.Errorf("list: %w", err))
			continue
		}
		d.missing = d.unaccounted(found, retired)
		for _, k := range found {
			if other := in[k]; other != nil {
				return fmt.Errorf("%s is in both %s and %s; one of them has to go", dirName(k.topic, k.partition), other.path, d.path)
			}
			in[k] = d
			if d.clean && rest {
				d.saved.Lock()
				d.skipped[k] = true
				d.saved.Unlock()
				continue
			}
			jobs = append(jobs, job{d, k})
		}
	}
	for _, d := range m.dirs { // what was moved to another directory is not missing
		maps.DeleteFunc(d.missing, func(k key, _ bool) bool { return in[k] != nil })
	}
	m.progress = newProgress(m, len(jobs))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(m.opts.RecoveryThreads, len(jobs)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					return
				}
				j := jobs[i]
				if j.d.failed() == nil { // else its disk has failed on the way
					m.add(m.loadLog(j.d, j.k.topic, j.k.partition))
				}
				m.progress.logDone()
			}
		})
	}
	wg.Wait()
	level, took := slog.LevelDebug, m.opts.Now().Sub(began)
	if m.recovering.Load() || took > noticeable {
		level = slog.LevelInfo
	}
	m.logger.Log(context.Background(), level, "loaded logs", "partitions", len(jobs), "checked", m.progress.bytes.Load(), "ms", took.Milliseconds())
	m.progress = nil
	return nil
}

// list finds the partitions in a directory, and the names of those that were deleted or set aside,
// and reads what a start needs to know of it.
func (m *Manager) list(d *dir) (found []key, retired []string, err error) {
	if err := d.readCheckpoints(m.logger); err != nil {
		return nil, nil, err
	}
	d.skipped = map[key]bool{}
	switch _, err := m.fs.Stat(d.file(cleanFile)); {
	case err == nil:
		// It must not outlive this start. Should a crash of the system bring it back, the
		// recovery points say what was not clean after all; see Log.load.
		d.clean = true
		if err := m.fs.Remove(d.file(cleanFile)); err != nil {
			return nil, nil, err
		}
	case !notExist(err):
		return nil, nil, err
	}
	entries, err := m.fs.ReadDir(d.path)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || name == remoteIndexCache {
			continue
		}
		topic, partition, kind := parseDirName(name)
		switch {
		case kind == dirDeleted:
			retired = append(retired, name)
			m.removeDirLater(d, name, m.options(topic).FileDeleteDelayMs)
		case kind == dirFuture || kind == dirStray:
			if kind == dirStray {
				retired = append(retired, name)
			}
			m.logger.Warn("leaving a directory alone", "dir", d.file(name))
		case kind == dirUnknown:
			m.logger.Warn("leaving alone a directory that is no partition's", "dir", d.file(name))
		case topic == metadataTopic:
		default:
			found = append(found, key{topic, partition})
		}
	}
	return found, retired, nil
}

// unaccounted are the partitions of which the directory had flushed records, and has nothing any
// more, although nobody deleted them or set them aside.
func (d *dir) unaccounted(found []key, retired []string) map[key]bool {
	missing := map[key]bool{}
	for k, point := range d.saved.points {
		if point > 0 && k.topic != metadataTopic {
			missing[k] = true
		}
	}
	for _, k := range found {
		delete(missing, k)
	}
	for _, name := range retired {
		topic, partition, _ := parseDirName(name)
		delete(missing, key{topic, partition})
		if len(name) == maxDirName { // the topic may be cut short
			maps.DeleteFunc(missing, func(k key, _ bool) bool {
				return k.partition == partition && strings.HasPrefix(k.topic, topic)
			})
		}
	}
	return missing
}

// loadLog opens one log. It is there also if it cannot be used, and says why. One that was there
// before is opened as after a crash.
func (m *Manager) loadLog(d *dir, topic string, partition int32) *Log {
	old := m.Log(topic, partition)
	again := old != nil
	k := key{topic, partition}
	d.saved.Lock()
	point, known := d.saved.points[k]
	start, high := d.saved.starts[k], d.saved.watermarks[k]
	d.saved.Unlock()
	began := m.opts.Now()
	l, err := m.loadSplit(d, topic, partition, func(l *Log) error { return l.load(point, known, start, high, again) })
	if err == nil {
		if took := m.opts.Now().Sub(began); took > progressEvery {
			m.logger.Info("loaded a log", "partition", l.label, "ms", took.Milliseconds())
		}
		if again {
			m.logger.Info("a partition is online again", "topic", topic, "partition", partition, "dir", d.path)
		}
		return l
	}
	if vfs.Full(err) {
		err = l.writeFailed("open", err)
	}
	l.setSegments([]*segment{newSegment(l, 0)})
	l.setFault(err)
	if old != nil && old.Err() != nil && old.Err().Error() == l.Err().Error() {
		return l // that is told already
	}
	var damage *Damage
	if errors.As(err, &damage) {
		m.logger.Error("a partition is offline: its log is damaged", "topic", topic, "partition", partition,
			"file", damage.File, "position", damage.Position, "reason", damage.Reason, "help", damage.help(l))
	} else {
		m.logger.Error("a partition is offline: its log cannot be opened", "topic", topic, "partition", partition, "dir", d.path, "err", err)
	}
	return l
}
