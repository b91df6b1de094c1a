package log

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// TestRecoveryProgress: a recovery that takes long says how far it is, for all logs and for each.
func TestRecoveryProgress(t *testing.T) {
	for _, slow := range []bool{true, false} {
		b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 3 << 20 })
		b.start()
		value := strings.Repeat("x", 500_000)
		for p := range int32(3) {
			l, err := b.m.Create("t", p, [16]byte{1})
			if err != nil {
				t.Fatal(err)
			}
			for range 12 {
				appendTo(t, l, values(startMs, value))
			}
		}
		b.m.stopTasks()
		b.fs = b.fs.(*vfs.Memory).KillClone()
		var clock atomic.Int64
		b.change = func(o *ManagerOptions) {
			o.RecoveryThreads = 1
			o.Now = func() time.Time { // each look at the clock is a second later
				if slow {
					clock.Add(1)
				}
				return time.Unix(startMs/1000+clock.Load(), 0)
			}
		}
		b.start()
		var all, one []string
		for line := range strings.Lines(b.lines()) {
			switch {
			case strings.Contains(line, "loading logs"):
				all = append(all, line)
			case strings.Contains(line, `"recovering a log"`):
				one = append(one, line)
			}
		}
		if slow != (len(all) >= 3) || slow != (len(one) >= 3) {
			t.Errorf("%d and %d lines:\n%s", len(all), len(one), b.lines())
		}
		if slow {
			for _, want := range []string{"loaded=", "of=3", "checked="} {
				if !strings.Contains(all[0], want) {
					t.Errorf("%q lacks %s", all[0], want)
				}
			}
			for _, want := range []string{"partition=t-", "checked=", "of=6000", "file=" + dataDir + "/t-"} {
				if !strings.Contains(one[0], want) {
					t.Errorf("%q lacks %s", one[0], want)
				}
			}
			if total := fmt.Sprintf("partitions=3 checked=%d", 36*len(values(startMs, value))); !strings.Contains(b.lines(), total) {
				t.Errorf("no %q in %s", total, b.lines())
			}
		}
		b.close()
	}
}

// sparseLog makes a log of ten segments of 1 GiB that take next to no room on the disk: of what was
// flushed there are the headers alone. Behind the recovery point there are a few whole batches.
func sparseLog(tb testing.TB, dir string) (size int64, end int64) {
	tb.Helper()
	const segments, perSegment, stride = 10, 1023, 1 << 20
	partition := filepath.Join(dir, "t-0")
	if err := os.MkdirAll(partition, 0o755); err != nil {
		tb.Fatal(err)
	}
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	offset := int64(0)
	for s := range segments {
		base := offset
		f, err := os.Create(filepath.Join(partition, offsetName(base, logSuffix)))
		must(err)
		var offsets, times []byte
		for i := range int64(perSegment) {
			b := record.Batch(batchOf(record.BuilderOptions{BaseOffset: offset}, rec{startMs + offset, ""}))
			head := append([]byte(nil), b[:headerBytes]...)
			length := uint32(stride - 12)
			head[8], head[9], head[10], head[11] = byte(length>>24), byte(length>>16), byte(length>>8), byte(length)
			_, err := f.WriteAt(head, i*stride)
			must(err)
			if i > 0 {
				offsets = appendOffsetEntry(offsets, offset-base, i*stride)
				times = appendTimeEntry(times, startMs+offset, offset-base)
			}
			offset++
		}
		must(f.Truncate(perSegment * stride))
		size += perSegment * stride
		must(os.WriteFile(filepath.Join(partition, offsetName(base, indexSuffix)), offsets, 0o644))
		must(os.WriteFile(filepath.Join(partition, offsetName(base, timeSuffix)), times, 0o644))
		if s > 0 {
			must(os.WriteFile(filepath.Join(partition, offsetName(base, snapshotSuffix)), formatSnapshot(nil), 0o644))
		}
		if s == segments-1 {
			must(os.WriteFile(filepath.Join(dir, recoveryFile), formatCheckpoint(map[key]int64{{"t", 0}: offset}), 0o644))
			for i := range 20 {
				b := batchOf(record.BuilderOptions{BaseOffset: offset}, rec{startMs + offset, fmt.Sprint(i)})
				_, err := f.WriteAt(b, size-9*perSegment*stride)
				must(err)
				size += int64(len(b))
				offset++
			}
			_, err := f.WriteAt([]byte("a torn batch"), size-9*perSegment*stride)
			must(err)
		}
		must(f.Close())
	}
	must(os.WriteFile(filepath.Join(partition, epochFile), []byte("0\n0\n"), 0o644))
	return size, offset
}

// TestLargeLogAfterKill: a start after kill -9 reads what lies behind the recovery point of 10 GB, and
// little more.
func TestLargeLogAfterKill(t *testing.T) {
	dir := t.TempDir()
	size, end := sparseLog(t, dir)
	reads := &countingFS{FS: vfs.OS()}
	o := *DefaultOptions()
	o.RetentionMs = -1
	began := time.Now()
	m, err := OpenManager(ManagerOptions{FS: reads, Dirs: []string{dir}, BrokerID: 1, ClusterID: "c", RetentionCheck: -1,
		TopicOptions: func(string) *Options { return &o }})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Load(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	l := m.Log("t", 0)
	if l.Err() != nil || l.End() != end || l.Size() != size {
		t.Fatalf("%v, ends at %d with %d bytes, want %d with %d", l.Err(), l.End(), l.Size(), end, size)
	}
	if reads.bytes > 3<<20 {
		t.Errorf("%d bytes were read", reads.bytes)
	}
	t.Logf("%d bytes of log: %d read, ready in %v", size, reads.bytes, took)
}
