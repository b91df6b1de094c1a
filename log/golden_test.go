package log

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// The directories in testdata are Kafka's own; see testdata/README.md.
var recorded = []struct {
	name, cluster string
	broker        int32
}{
	{"kafka-3.9.1-zk", "14q9fbOAQY2HkitkXsNvLQ", 1},
	{"kafka-4.4.0-kraft", "MkU3OEVBNTcwNTJENDM2Qg", 1},
	{"kafka-3.9.1-zk-old-formats", "", 2},
}

// kafkaOptions are the settings with which the topics were made.
func kafkaOptions(topic string) *Options {
	o := *DefaultOptions()
	o.SegmentIndexBytes = 4096
	o.TimestampAfterMaxMs = 1 << 60
	switch topic {
	case "codecs", "txn", "fmt-v0", "fmt-v1", "fmt-v2":
		o.IndexIntervalBytes = 100
	case "segments":
		o.IndexIntervalBytes = 200
	}
	switch topic {
	case "segments", "trimmed", "compacted":
		o.SegmentMs = 60_000
	case "txn":
		o.SegmentMs = 600_000
	}
	return &o
}

// recordedAt is about when the directories were written, so that no producer has expired.
func recordedAt() time.Time { return time.UnixMilli(1_796_053_500_000) }

// copyRecorded puts a directory into a file system in memory.
func copyRecorded(t testing.TB, name string) *vfs.Memory {
	t.Helper()
	m := vfs.NewCrashable()
	from := filepath.Join("testdata", name, "data")
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dataDir, strings.TrimPrefix(path, from))
		if d.IsDir() {
			return m.MkdirAll(to, 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return writeFile(m, to, b, true)
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// tree is the content of all files, without the lock.
func tree(t testing.TB, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	list, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		name := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			maps.Copy(all, tree(t, fsys, name))
		case e.Name() != lockFile:
			all[strings.TrimPrefix(name, dataDir+"/")] = string(fileBytes(t, fsys, name))
		}
	}
	return all
}

func openRecorded(t testing.TB, fsys vfs.FS, broker int32, cluster string) *Manager {
	t.Helper()
	m, err := OpenManager(ManagerOptions{FS: fsys, Dirs: []string{dataDir}, BrokerID: broker, ClusterID: cluster,
		TopicOptions: kafkaOptions, Now: recordedAt, RetentionCheck: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Load(); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestKafkaDirectory reads everything in Kafka's directories, stops, and finds that nothing
// was changed that had not to be; and the same after a crash, and without indexes.
func TestKafkaDirectory(t *testing.T) {
	for _, r := range recorded {
		for _, how := range []string{"clean", "crashed", "crashed without indexes", "without indexes"} {
			t.Run(r.name+" "+how, func(t *testing.T) {
				fsys := copyRecorded(t, r.name)
				before := tree(t, fsys, dataDir)
				if strings.Contains(how, "crashed") {
					fsys.Remove(dataDir + "/" + cleanFile)
				}
				if strings.Contains(how, "without") {
					for name := range before {
						if (strings.HasSuffix(name, indexSuffix) || strings.HasSuffix(name, timeSuffix)) && !strings.HasPrefix(name, metadataTopic) {
							fsys.Remove(dataDir + "/" + name)
						}
					}
				}
				m := openRecorded(t, fsys, r.broker, r.cluster)
				for l := range m.Logs() {
					if err := l.Err(); err != nil {
						t.Errorf("%s: %v", l, err)
					}
				}
				compareDump(t, m, filepath.Join("testdata", r.name))
				compareOffsets(t, m, before)
				for l := range m.Logs() {
					compareTimes(t, l)
				}
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				compareTrees(t, before, tree(t, fsys, dataDir))
			})
		}
	}
}

// compareOffsets holds the logs against the checkpoints that Kafka wrote.
func compareOffsets(t *testing.T, m *Manager, files map[string]string) {
	t.Helper()
	read := func(name string) map[key]int64 {
		of, err := parseCheckpoint([]byte(files[name]))
		if err != nil {
			t.Fatal(err)
		}
		return of
	}
	starts := read(startFile)
	for k, end := range read(recoveryFile) {
		l := m.Log(k.topic, k.partition)
		if l == nil {
			t.Fatalf("%v is missing", k)
		}
		if l.End() != end || l.Flushed() != end || l.Start() != starts[k] || l.HighWatermark() != end || l.StableOffset() != end {
			t.Errorf("%s: [%d, %d), flushed %d, high watermark %d, stable %d; want [%d, %d)",
				l, l.Start(), l.End(), l.Flushed(), l.HighWatermark(), l.StableOffset(), starts[k], end)
		}
		if e, ok := files[l.String()+"/"+epochFile]; ok && end > 0 { // an empty one has none yet
			if e != string(formatEpochs(l.epochs.list)) {
				t.Errorf("%s: epochs %v", l, l.epochs.list)
			}
		}
		if string(formatPartitionFile(l.TopicID())) != files[l.String()+"/"+partitionFile] {
			t.Errorf("%s: topic id %s", l, uuid(l.TopicID()))
		}
	}
}

// compareTimes looks up every record's time and compares with a walk over all of them.
func compareTimes(t *testing.T, l *Log) {
	t.Helper()
	type at struct{ offset, time int64 }
	var all []at
	for from := l.Start(); from < l.End(); {
		c, err := l.Read(from, l.End(), 1<<20, true)
		if err != nil || c.Range == nil {
			t.Fatalf("%s: read at %d: %v", l, from, err)
		}
		data := make([]byte, c.Range.Len())
		c.Range.ReadAt(data, 0)
		c.Range.Release()
		for b := range record.All(data) {
			for r := range record.Records(b, 0) {
				if r.Offset >= l.Start() && r.Timestamp >= 0 {
					all = append(all, at{r.Offset, r.Timestamp})
				}
			}
			from = b.NextOffset()
		}
	}
	top := at{-1, -1}
	for _, r := range all {
		if r.time > top.time {
			top = r
		}
	}
	for _, r := range all {
		for _, ts := range []int64{r.time - 1, r.time, r.time + 1} {
			want := at{-1, -1}
			for _, r := range all {
				if r.time >= ts {
					want = r
					break
				}
			}
			offset, time, _, _, err := l.OffsetForTime(ts, l.End())
			if err != nil || (at{offset, time}) != want {
				t.Fatalf("%s: time %d is at %d (%d), want %v, %v", l, ts, offset, time, want, err)
			}
		}
	}
	if offset, time, _, _, err := l.MaxTimestamp(l.End()); err != nil || (at{offset, time}) != top {
		t.Errorf("%s: largest time %d at %d, want %v, %v", l, time, offset, top, err)
	}
}

// compareTrees finds what differs, apart from the order of lines in checkpoints.
func compareTrees(t *testing.T, before, after map[string]string) {
	t.Helper()
	for name := range maps.Keys(after) {
		if _, ok := before[name]; !ok {
			t.Errorf("%s is new: %q", name, after[name])
		}
	}
	for name, want := range before {
		got, ok := after[name]
		if suffix := filepath.Ext(name); !ok && want == "" && (suffix == indexSuffix || suffix == timeSuffix) {
			continue // an empty index that was taken away
		}
		if !ok {
			t.Errorf("%s is gone", name)
			continue
		}
		switch filepath.Base(name) {
		case recoveryFile, watermarkFile, startFile:
			a, err := parseCheckpoint([]byte(got))
			b, _ := parseCheckpoint([]byte(want))
			if err != nil || !maps.Equal(a, b) {
				t.Errorf("%s is %q, was %q", name, got, want)
			}
		case cleanFile:
			if got != `{"version":0,"brokerEpoch":-1}` {
				t.Errorf("%s is %q", name, got)
			}
		default:
			if got != want {
				t.Errorf("%s is % x, was % x", name, got, want)
			}
		}
	}
}

// TestConsume reads what a consumer of 4.4.0 got, with both isolation levels.
func TestConsume(t *testing.T) {
	want, err := os.ReadFile("testdata/kafka-4.4.0-kraft/expected-consume.tsv")
	if err != nil {
		t.Fatal(err)
	}
	m := openRecorded(t, copyRecorded(t, "kafka-4.4.0-kraft"), -1, "")
	defer m.Close()
	var lines []string
	text := func(b []byte) string {
		if b == nil {
			return "NULL"
		}
		return string(b)
	}
	for l := range m.Logs() {
		if strings.HasPrefix(l.Topic(), "__") {
			continue
		}
		for _, isolation := range []string{"read_uncommitted", "read_committed"} {
			for r := range consume(t, l, isolation == "read_committed") {
				var headers []string
				for _, h := range r.Headers {
					headers = append(headers, h.Key+"="+text(h.Value))
				}
				lines = append(lines, fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s", isolation, l.Topic(), l.Partition(), r.Offset, r.Timestamp, text(r.Key), text(r.Value), strings.Join(headers, ",")))
			}
		}
	}
	expected := strings.Split(strings.TrimSuffix(string(want), "\n"), "\n")
	slices.Sort(lines)
	slices.Sort(expected)
	for i := range min(len(lines), len(expected)) {
		if lines[i] != expected[i] {
			t.Fatalf("got %q\nwant %q", lines[i], expected[i])
		}
	}
	if len(lines) != len(expected) {
		t.Errorf("%d records, want %d", len(lines), len(expected))
	}
}

// consume yields what a consumer shows: no control records, and with committed none of the
// aborted transactions.
func consume(t *testing.T, l *Log, committed bool) func(func(record.Record) bool) {
	limit := l.HighWatermark()
	if committed {
		limit = l.StableOffset()
	}
	aborted, err := l.AbortedIn(l.Start(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(record.Record) bool) {
		for from := l.Start(); from < limit; {
			c, err := l.Read(from, limit, 300, true)
			if err != nil || c.Range == nil {
				t.Fatalf("%s: read at %d: %v", l, from, err)
			}
			data := make([]byte, c.Range.Len())
			c.Range.ReadAt(data, 0)
			c.Range.Release()
			for b := range record.All(data) {
				from = b.NextOffset()
				if b.IsControl() || committed && slices.ContainsFunc(aborted, func(a Aborted) bool {
					return b.IsTransactional() && a.ProducerID == b.ProducerID() && b.BaseOffset() >= a.First && b.LastOffset() <= a.Last
				}) {
					continue
				}
				for r := range record.Records(b, 0) {
					if r.Offset >= l.Start() && !yield(r) {
						return
					}
				}
			}
		}
	}
}

// TestSameFiles appends the batches of Kafka's partitions one by one and compares each file
// that this makes with Kafka's, byte by byte.
func TestSameFiles(t *testing.T) {
	for _, r := range recorded[:2] {
		from := openRecorded(t, copyRecorded(t, r.name), -1, "")
		defer from.Close()
		for l := range from.Logs() {
			if l.End() == 0 || l.Topic() == "compacted" || l.Topic() == "trimmed" {
				continue // rewritten by Kafka, or without its beginning
			}
			t.Run(r.name+" "+l.String(), func(t *testing.T) {
				m, err := OpenManager(ManagerOptions{FS: vfs.NewCrashable(), Dirs: []string{dataDir}, BrokerID: 1,
					TopicOptions: kafkaOptions, Now: recordedAt, RetentionCheck: -1})
				if err != nil {
					t.Fatal(err)
				}
				to, err := m.Create(l.Topic(), l.Partition(), l.TopicID())
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range l.segments() {
					data := fileBytes(t, from.fs, s.path(logSuffix))
					for b := range record.All(data) {
						if _, err := to.AppendAsFollower(b); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				got, want := tree(t, m.fs, dataDir+"/"+l.String()), tree(t, from.fs, dataDir+"/"+l.String())
				compareTrees(t, want, got)
			})
		}
	}
}

// TestMetaRefused: a directory of another broker or cluster is refused, naming both, and is
// not touched.
func TestMetaRefused(t *testing.T) {
	fsys := copyRecorded(t, "kafka-4.4.0-kraft")
	before := tree(t, fsys, dataDir)
	for _, c := range []struct {
		broker  int32
		cluster string
		names   []string
	}{
		{2, "MkU3OEVBNTcwNTJENDM2Qg", []string{"broker 1", "broker 2"}},
		{1, "other", []string{"MkU3OEVBNTcwNTJENDM2Qg", "other"}},
	} {
		dirs, err := LockDirs(fsys, []string{dataDir})
		if err != nil {
			t.Fatal(err)
		}
		if dirs.BrokerID() != 1 || dirs.ClusterID() != "MkU3OEVBNTcwNTJENDM2Qg" {
			t.Errorf("broker %d, cluster %q", dirs.BrokerID(), dirs.ClusterID())
		}
		_, err = OpenManager(ManagerOptions{FS: fsys, Locked: dirs, BrokerID: c.broker, ClusterID: c.cluster})
		if !errors.Is(err, ErrMeta) {
			t.Fatalf("opened: %v", err)
		}
		for _, name := range append(c.names, dataDir) {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%q does not name %q", err, name)
			}
		}
	}
	if !maps.Equal(before, tree(t, fsys, dataDir)) {
		t.Error("the directory was changed")
	}
}
