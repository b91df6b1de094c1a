package log

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// progressEvery is how often a long load says how far it is.
const progressEvery = 5 * time.Second

// noticeable is how long a load may take without a word.
const noticeable = time.Second

// Load opens the logs that are on disk, or only those of the topics that are named, several at
// a time. A log that cannot be opened is there afterwards and answers ErrStorage; the error of
// Load is for directories that contradict each other. It is called once, before Create.
//
// What a directory is, goes by its name as in Kafka's LogManager: TOPIC-PARTITION is a log,
// *-delete is removed, *-stray and *-future are left alone, and so is everything else.
func (m *Manager) Load(topics ...string) error {
	type job struct {
		d *dir
		k key
	}
	var jobs []job
	began := time.Now()
	in := map[key]*dir{}
	for _, d := range m.dirs {
		if d.failed() != nil {
			continue
		}
		found, err := m.list(d)
		if err != nil {
			d.fail(fmt.Errorf("list: %w", err))
			continue
		}
		for _, k := range found {
			if other := in[k]; other != nil {
				return fmt.Errorf("%s is in both %s and %s; one of them has to go", dirName(k.topic, k.partition), other.path, d.path)
			}
			in[k] = d
			if len(topics) > 0 && !slices.Contains(topics, k.topic) {
				d.skipped[k] = true
				continue
			}
			jobs = append(jobs, job{d, k})
		}
	}
	var next, done atomic.Int64
	var mu sync.Mutex
	told := began
	var wg sync.WaitGroup
	for range min(m.opts.RecoveryThreads, len(jobs)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					return
				}
				j := jobs[i]
				m.add(m.loadLog(j.d, j.k.topic, j.k.partition))
				n := done.Add(1)
				mu.Lock()
				if now := time.Now(); now.Sub(told) > progressEvery {
					told = now
					m.logger.Info("loading logs", "loaded", n, "of", len(jobs))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	level, took := slog.LevelDebug, time.Since(began)
	if m.recovering.Load() || took > noticeable {
		level = slog.LevelInfo
	}
	m.logger.Log(context.Background(), level, "loaded logs", "partitions", len(jobs), "ms", took.Milliseconds())
	return nil
}

// list finds the partitions in a directory, and reads what a start needs to know of it.
func (m *Manager) list(d *dir) ([]key, error) {
	if err := d.readCheckpoints(m.logger); err != nil {
		return nil, err
	}
	d.skipped = map[key]bool{}
	switch _, err := m.fs.Stat(d.file(cleanFile)); {
	case err == nil:
		// It must not outlive this start. Should a crash of the system bring it back, the
		// recovery points say what was not clean after all; see Log.load.
		d.clean = true
		if err := m.fs.Remove(d.file(cleanFile)); err != nil {
			return nil, err
		}
	case !notExist(err):
		return nil, err
	}
	entries, err := m.fs.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var found []key
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || name == remoteIndexCache {
			continue
		}
		topic, partition, kind := parseDirName(name)
		switch {
		case kind == dirDeleted:
			m.removeDirLater(d, name, m.options(topic).FileDeleteDelayMs)
		case kind == dirFuture || kind == dirStray:
			m.logger.Warn("leaving a directory alone", "dir", d.file(name))
		case kind == dirUnknown:
			m.logger.Warn("leaving alone a directory that is no partition's", "dir", d.file(name))
		case topic == metadataTopic:
		default:
			found = append(found, key{topic, partition})
		}
	}
	return found, nil
}

// loadLog opens one log. It is there also if it cannot be used, and says why.
func (m *Manager) loadLog(d *dir, topic string, partition int32) *Log {
	l := newLog(m, d, topic, partition)
	l.leftovers = true
	k := key{topic, partition}
	d.saved.Lock()
	point, known := d.saved.points[k]
	start, high := d.saved.starts[k], d.saved.watermarks[k]
	d.saved.Unlock()
	began := time.Now()
	err := l.load(point, known, start, high)
	if err == nil {
		if took := time.Since(began); took > progressEvery {
			m.logger.Info("loaded a log", "partition", l.label, "ms", took.Milliseconds())
		}
		return l
	}
	var damage *Damage
	if errors.As(err, &damage) {
		m.logger.Error("a partition is offline: its log is damaged", "topic", topic, "partition", partition,
			"file", damage.File, "position", damage.Position, "reason", damage.Reason, "help", damage.help(l))
	} else {
		m.logger.Error("a partition is offline: its log cannot be opened", "topic", topic, "partition", partition, "dir", d.path, "err", err)
	}
	l.setSegments([]*segment{newSegment(l, 0)})
	l.setFault(err)
	return l
}
