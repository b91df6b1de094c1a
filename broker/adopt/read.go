// Package adopt reads what a data directory says of the cluster that it comes from, for a broker
// whose registry is new: the metadata log of a Kafka in KRaft mode, and the small files beside
// the logs. It reads only; what follows from it is a Plan, which the broker writes.
//
//	read.go        the snapshot and the log of __cluster_metadata-0
//	image.go       its records, replayed
//	plan.go        the nodes of a registry that say the same
//	checkpoint.go  small files of a log directory
package adopt

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ottla/log/vfs"
	"ottla/protocol/record"
	"ottla/protocol/schema"
)

// Names of Kafka's raft log, in metadata.log.dir or in the first of log.dirs.
const (
	metadataDir      = "__cluster_metadata-0"
	bootstrapFile    = "bootstrap.checkpoint" // what kafka-storage format wrote before 4.0: settings of a cluster that has not begun
	checkpointSuffix = ".checkpoint"
	logSuffix        = ".log"
	cleanFile        = ".kafka_cleanshutdown"
	metaFile         = "meta.properties"
)

// maxRecord bounds one record of a compressed batch of metadata; they are never compressed.
const maxRecord = 64 << 20

// Read looks for the metadata of a Kafka in KRaft mode in the directories and reads it. dir is
// where it is, empty if there is none, and then the image is nil. Cluster is the id that the
// directories are of; metadata of another cluster is an error. A directory that cannot be listed has
// none: it is offline, which its room says. ErrBroken: it is there and cannot be used.
func Read(fsys vfs.FS, dirs []string, cluster string) (i *Image, dir string, err error) {
	for _, d := range dirs {
		inner := filepath.Join(d, metadataDir)
		r := reader{fs: fsys, dir: inner}
		if entries, err := fsys.ReadDir(inner); err == nil {
			r.list(entries)
		}
		if len(r.logs) == 0 && len(r.snapshots) == 0 {
			if _, err := fsys.Stat(filepath.Join(d, bootstrapFile)); err != nil {
				continue
			}
			r.dir, r.snapshots = d, []snapshot{{name: bootstrapFile}}
		}
		if is := clusterOf(fsys, d); is != "" && cluster != "" && is != cluster {
			return nil, r.dir, fmt.Errorf("%s is of cluster %s, this is cluster %s", r.dir, is, cluster)
		}
		_, err = fsys.Stat(filepath.Join(d, cleanFile))
		r.clean = err == nil
		i, err := r.read()
		return i, r.dir, err
	}
	return nil, "", nil
}

// clusterOf is the cluster.id of a directory's meta.properties, empty where it says none.
func clusterOf(fsys vfs.FS, dir string) string {
	data, err := readFile(fsys, filepath.Join(dir, metaFile))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == "cluster.id" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

type reader struct {
	fs        vfs.FS
	dir       string
	snapshots []snapshot
	logs      []segment
	clean     bool // Kafka stopped as it should, so nothing is torn
	image     *Image

	open    bool             // between BeginTransactionRecord and its end
	pending []schema.Message // records of that transaction
}

type snapshot struct {
	name          string
	offset, epoch int64 // it has all records before offset
}

type segment struct {
	name string
	base int64
}

func (r *reader) list(entries []fs.DirEntry) {
	for _, e := range entries {
		name := e.Name()
		if base, ok := strings.CutSuffix(name, logSuffix); ok {
			if n, err := strconv.ParseInt(base, 10, 64); err == nil {
				r.logs = append(r.logs, segment{name, n})
			}
		}
		if base, ok := strings.CutSuffix(name, checkpointSuffix); ok {
			offset, epoch, _ := strings.Cut(base, "-")
			at, err1 := strconv.ParseInt(offset, 10, 64)
			in, err2 := strconv.ParseInt(epoch, 10, 64)
			if err1 == nil && err2 == nil {
				r.snapshots = append(r.snapshots, snapshot{name, at, in})
			}
		}
	}
	slices.SortFunc(r.logs, func(a, b segment) int { return cmp.Compare(a.base, b.base) })
	slices.SortFunc(r.snapshots, func(a, b snapshot) int { // the newest first
		return cmp.Or(cmp.Compare(b.offset, a.offset), cmp.Compare(b.epoch, a.epoch))
	})
}

// read begins with the newest snapshot that can be read and replays the log behind it.
func (r *reader) read() (*Image, error) {
	var unread error
	for _, s := range r.snapshots {
		r.image, r.open, r.pending = newImage(), false, nil
		if err := r.snapshot(s); err != nil {
			unread = errors.Join(unread, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		r.image.From, r.image.Offset = s.name, s.offset
		break
	}
	if r.image == nil || r.image.From == "" {
		r.image, r.open, r.pending = newImage(), false, nil
	}
	if err := r.log(); err != nil {
		return nil, errors.Join(err, unread)
	}
	if r.image.From == "" && len(r.logs) == 0 {
		return nil, unread
	}
	return r.image, r.image.check()
}

// snapshot reads a snapshot file: a header, the records, a footer, without which it is not whole.
func (r *reader) snapshot(s snapshot) error {
	whole := false
	_, err := r.file(s.name, func(b record.Batch) error {
		return each(b, func(rec record.Record) error {
			if !b.IsControl() {
				return r.record(rec)
			}
			m, err := schema.Control(rec.Key, rec.Value)
			switch {
			case errors.Is(err, schema.ErrUnknownType):
				return nil
			case err != nil:
				return fmt.Errorf("%w: %w", ErrBroken, err)
			}
			whole = whole || m.Name == "SnapshotFooterRecord"
			return nil
		})
	})
	switch {
	case err != nil:
		return err
	case r.open:
		return fmt.Errorf("%w: a transaction without an end", ErrBroken)
	case !whole:
		return fmt.Errorf("%w: no footer", ErrBroken)
	}
	return nil
}

// log replays the records from the image's offset on. The offsets of a raft log have no holes. An
// append that was under way when Kafka died is no damage, and was never acknowledged.
func (r *reader) log() error {
	from, began := r.image.Offset, false
	next := from
	for n, s := range r.logs {
		if n+1 < len(r.logs) && r.logs[n+1].base <= from {
			continue // all of it is in the snapshot
		}
		if !began && s.base > from || began && s.base != next {
			return fmt.Errorf("%w: %s: records from offset %d to %d are missing", ErrBroken, s.name, next, s.base)
		}
		began, next = true, s.base
		torn, err := r.file(s.name, func(b record.Batch) error {
			if b.Magic() < 2 || b.BaseOffset() != next {
				return fmt.Errorf("%w: offset %d where %d comes", ErrBroken, b.BaseOffset(), next)
			}
			next = b.NextOffset()
			if b.IsControl() || next <= from {
				return nil
			}
			return each(b, func(rec record.Record) error {
				if rec.Offset < from {
					return nil
				}
				return r.record(rec)
			})
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if r.image.Torn = torn; torn && (n+1 < len(r.logs) || r.clean) {
			return fmt.Errorf("%w: %s is cut off at offset %d", ErrBroken, s.name, next)
		}
	}
	r.image.Offset = max(from, next)
	r.pending = nil // of a transaction that did not end
	return nil
}

// file reads a file's batches, whose checksums must be right. torn: it ends within one.
func (r *reader) file(name string, use func(record.Batch) error) (torn bool, err error) {
	f, err := r.fs.OpenFile(filepath.Join(r.dir, name), 0, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return false, err
	}
	s := record.NewScanner(f, 0, size, true)
	var buf []byte
	for s.Next() {
		if buf, err = s.Entry(buf); err != nil {
			return false, err
		}
		if err := use(buf); err != nil {
			return false, fmt.Errorf("at position %d: %w", s.Position(), err)
		}
	}
	switch err := s.Err(); {
	case errors.Is(err, record.ErrShort):
		return true, nil
	case errors.Is(err, record.ErrCorrupt):
		return false, fmt.Errorf("%w: %w", ErrBroken, err)
	default:
		return false, err
	}
}

func each(b record.Batch, use func(record.Record) error) error {
	for rec, err := range record.Records(b, maxRecord) {
		if err == nil {
			err = use(rec)
		} else {
			err = fmt.Errorf("%w: %w", ErrBroken, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// record replays one record; those between the marks of a transaction (KIP-868) when it ends.
func (r *reader) record(rec record.Record) error {
	m, err := schema.Metadata(rec.Value)
	if err != nil {
		return fmt.Errorf("%w: offset %d: %w", ErrBroken, rec.Offset, err)
	}
	switch m.Name {
	case "BeginTransactionRecord":
		r.open = true
		return nil
	case "AbortTransactionRecord":
		r.open, r.pending = false, nil
		return nil
	case "EndTransactionRecord":
		for _, m := range r.pending {
			if err := r.image.apply(m); err != nil {
				return err
			}
		}
		r.open, r.pending = false, nil
		return nil
	}
	if r.open {
		r.pending = append(r.pending, m)
		return nil
	}
	if err := r.image.apply(m); err != nil {
		return fmt.Errorf("offset %d: %w", rec.Offset, err)
	}
	return nil
}

func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, 0, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if n == len(b) {
		err = nil
	}
	return b[:n], err
}
