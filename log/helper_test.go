package log

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// box is a manager on some file system, with options that a test may change at any time.
type box struct {
	t    testing.TB
	fs   vfs.FS
	o    Options
	mu   sync.Mutex
	now  time.Time
	logs bytes.Buffer
	m    *Manager

	change func(*ManagerOptions) // nil: nothing
}

const (
	dataDir = "/data"
	startMs = 1_700_000_000_000 // the clock of a new box
)

func newBox(t testing.TB, fsys vfs.FS, change func(*Options)) *box {
	b := &box{t: t, fs: fsys, o: *DefaultOptions(), now: time.UnixMilli(startMs)}
	b.o.TimestampAfterMaxMs = 1 << 60
	if change != nil {
		change(&b.o)
	}
	return b
}

func (b *box) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *box) advance(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// Write takes the log lines.
func (b *box) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs.Write(p)
}

func (b *box) lines() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs.String()
}

// start opens the manager and loads what is there.
func (b *box) start() *Manager {
	b.t.Helper()
	m, err := b.open()
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *box) open() (*Manager, error) {
	o := ManagerOptions{
		FS: b.fs, Dirs: []string{dataDir}, BrokerID: 1, ClusterID: "cluster",
		TopicOptions: func(string) *Options { return &b.o }, Now: b.clock, RecoveryThreads: 2,
		Logger:         slog.New(slog.NewTextHandler(b, nil)),
		RetentionCheck: -1, FlushCheckpoint: -1, StartCheckpoint: -1, WatermarkCheckpoint: -1, ProducerExpiryCheck: -1,
	}
	if b.change != nil {
		b.change(&o)
	}
	m, err := OpenManager(o)
	if err != nil {
		return nil, err
	}
	b.m = m
	b.t.Cleanup(m.stopTasks)
	return m, m.Load()
}

func (b *box) log() *Log {
	b.t.Helper()
	l, err := b.m.Create("t", 0, [16]byte{1})
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

func (b *box) close() {
	b.t.Helper()
	if err := b.m.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// restart stops cleanly and starts again.
func (b *box) restart() *Log {
	b.t.Helper()
	b.close()
	b.start()
	return b.log()
}

// kill starts again on what a kill -9 leaves.
func (b *box) kill() *Log {
	b.t.Helper()
	left := b.fs.(*vfs.Memory).KillClone()
	b.m.stopTasks()
	b.fs = left
	b.start()
	return b.log()
}

// rec is a record of a test: value at a time.
type rec struct {
	time  int64
	value string
}

func batchOf(o record.BuilderOptions, recs ...rec) []byte {
	b := record.NewBuilder(nil, o)
	for _, r := range recs {
		b.Add(r.time, []byte("k"), []byte(r.value))
	}
	return b.Finish()
}

func plain(recs ...rec) []byte { return batchOf(record.BuilderOptions{}, recs...) }

// values is a batch with the given values, all at one time.
func values(time int64, vs ...string) []byte {
	var recs []rec
	for _, v := range vs {
		recs = append(recs, rec{time, v})
	}
	return plain(recs...)
}

func idempotent(id int64, epoch int16, seq int32, n int) []byte {
	b := record.NewBuilder(nil, record.BuilderOptions{Producer: &record.ProducerInfo{ID: id, Epoch: epoch, Sequence: seq}})
	for i := range n {
		b.Add(startMs, nil, fmt.Appendf(nil, "%d", i))
	}
	return b.Finish()
}

func transactional(id int64, epoch int16, seq int32, n int) []byte {
	b := record.NewBuilder(nil, record.BuilderOptions{Producer: &record.ProducerInfo{ID: id, Epoch: epoch, Sequence: seq, Transactional: true}})
	for range n {
		b.Add(startMs, nil, []byte("in a transaction"))
	}
	return b.Finish()
}

func appendTo(t testing.TB, l *Log, records []byte) Appended {
	t.Helper()
	a, err := l.Append(Append{Records: records, RequestVersion: 9})
	if err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(l.End())
	return a
}

func appendMarker(t testing.TB, l *Log, commit bool, id int64, epoch int16, coordinator int32) Appended {
	t.Helper()
	m := record.EndMarker{Commit: commit, CoordinatorEpoch: coordinator}
	a, err := l.Append(Append{Records: m.Batch(id, epoch, startMs), Origin: record.Coordinator})
	if err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(l.End())
	return a
}

// readAll reads everything from an offset on, with checksums, as a consumer would.
func readAll(t testing.TB, l *Log, from int64) map[int64]string {
	t.Helper()
	got, err := tryReadAll(l, from, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// errNothing: an append has moved the end, and its bytes are not readable yet.
var errNothing = errors.New("nothing")

func tryReadAll(l *Log, from int64, maxBytes int) (map[int64]string, error) {
	got := map[int64]string{}
	for from < l.End() {
		c, err := l.Read(from, l.End(), maxBytes, true)
		if err != nil {
			return got, err
		}
		if c.Range == nil {
			return got, fmt.Errorf("%w at %d of %d", errNothing, from, l.End())
		}
		b := make([]byte, c.Range.Len())
		n, err := c.Range.ReadAt(b, 0)
		c.Range.Release()
		if n < len(b) {
			return got, fmt.Errorf("short read at %d: %d of %d: %w", from, n, len(b), err)
		}
		next := from
		for batch := range record.All(b) {
			if batch.CRC() != batch.ComputeCRC() {
				return got, fmt.Errorf("wrong checksum at %d", batch.BaseOffset())
			}
			for r, err := range record.Records(batch, 0) {
				if err != nil {
					return got, err
				}
				if r.Offset >= from {
					got[r.Offset] = string(r.Value)
				}
			}
			next = batch.NextOffset()
		}
		if next <= from {
			return got, fmt.Errorf("no whole entry at %d", from)
		}
		from = next
	}
	return got, nil
}

func wantValues(t testing.TB, l *Log, from int64, want ...string) {
	t.Helper()
	got := readAll(t, l, from)
	if len(got) != len(want) {
		t.Fatalf("%d records from %d, want %d: %v", len(got), from, len(want), got)
	}
	for i, v := range want {
		if got[from+int64(i)] != v {
			t.Fatalf("offset %d is %q, want %q", from+int64(i), got[from+int64(i)], v)
		}
	}
}

func fileBytes(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	b, err := readFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// change edits a file's bytes.
func change(t testing.TB, fsys vfs.FS, name string, edit func([]byte) []byte) {
	t.Helper()
	if err := writeFile(fsys, name, edit(fileBytes(t, fsys, name)), true); err != nil {
		t.Fatal(err)
	}
}

func exists(fsys vfs.FS, name string) bool {
	_, err := fsys.Stat(name)
	return err == nil
}

var _ io.ReaderAt = (*Range)(nil)
