package log

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ottla/log/vfs"
)

// addFiles makes Kafka's files of some name the seeds.
func addFiles(f *testing.F, pattern string) {
	names, err := filepath.Glob("testdata/*/data/" + pattern)
	if err != nil || len(names) == 0 {
		f.Fatalf("no %s in testdata: %v", pattern, err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{})
}

func FuzzSnapshot(f *testing.F) {
	addFiles(f, "*/*.snapshot")
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseSnapshot(data)
		if err != nil {
			return
		}
		var s producerState
		s.load(list, 0, 1<<60)
		again, err := parseSnapshot(formatSnapshot(s.byID))
		if err != nil || len(again) != len(s.byID) {
			t.Fatalf("%d producers, written and read again %d, %v", len(s.byID), len(again), err)
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	addFiles(f, "*-checkpoint")
	f.Fuzz(func(t *testing.T, data []byte) {
		offsets, err := parseCheckpoint(data)
		if err != nil {
			return
		}
		again, err := parseCheckpoint(formatCheckpoint(offsets))
		if err != nil || len(again) != len(offsets) {
			t.Fatalf("%v, written and read again %v, %v", offsets, again, err)
		}
	})
}

func FuzzEpochs(f *testing.F) {
	addFiles(f, "*/leader-epoch-checkpoint")
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseEpochs(data)
		if err != nil {
			return
		}
		for i := 1; i < len(list); i++ {
			if list[i].epoch <= list[i-1].epoch || list[i].start <= list[i-1].start {
				t.Fatalf("epochs do not rise: %v", list)
			}
		}
		again, err := parseEpochs(formatEpochs(list))
		if err != nil || !slices.Equal(again, list) {
			t.Fatalf("%v, written and read again %v, %v", list, again, err)
		}
	})
}

func FuzzMeta(f *testing.F) {
	addFiles(f, "meta.properties")
	f.Add([]byte("version=1\nnode.id=\\\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseMeta(data)
		if err != nil {
			return
		}
		m, _, err = m.with(m.id, "cluster")
		if err != nil {
			return
		}
		again, err := parseMeta(m.format(time.UnixMilli(0)))
		if err != nil || again.id != m.id || again.cluster != m.cluster || again.version != m.version || again.props.Len() != m.props.Len() {
			t.Fatalf("%v, written and read again %v, %v", m, again, err)
		}
	})
}

func FuzzPartitionFile(f *testing.F) {
	addFiles(f, "*/partition.metadata")
	f.Fuzz(func(t *testing.T, data []byte) {
		id, err := parsePartitionFile(data)
		if err != nil {
			return
		}
		if again, err := parsePartitionFile(formatPartitionFile(id)); err != nil || again != id {
			t.Fatalf("%x, written and read again %x, %v", id, again, err)
		}
	})
}

func FuzzDirName(f *testing.F) {
	for _, s := range []string{"t-0", "a-b-12", "x-delete", "a-1.0123456789abcdef0123456789abcdef-delete", "a.b-1-future", "-1", "a-", "a-01", "a--1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		topic, partition, kind := parseDirName(name)
		if kind == dirPartition && dirName(topic, partition) != name {
			t.Fatalf("%q is %q partition %d", name, topic, partition)
		}
		if kind == dirUnknown || len(topic) > maxTopic {
			return
		}
		gone := retiredDirName(topic, partition, deleteDirSuffix)
		if cut, p, kind := parseDirName(gone); kind != dirDeleted || p != partition || topic[:len(cut)] != cut || len(gone) > maxDirName {
			t.Fatalf("%q is %q partition %d", gone, cut, p)
		}
	})
}

func FuzzOffsetName(f *testing.F) {
	for _, s := range []string{"00000000000000000000.log", "00000000000000000012.index.swap", "1.log", "99999999999999999999.log", ".log"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		offset, suffix, ok := parseOffsetName(name)
		if !ok {
			return
		}
		if again, s, ok := parseOffsetName(offsetName(offset, suffix)); !ok || again != offset || s != suffix {
			t.Fatalf("%q is %d and %q, then %d and %q", name, offset, suffix, again, s)
		}
	})
}

func FuzzAborted(f *testing.F) {
	addFiles(f, "*/*.txnindex")
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseAborted(data, 0)
		var again []byte
		for _, a := range list {
			again = append(again, formatAborted(a)...)
		}
		if !bytes.HasPrefix(data, again) || err == nil && len(again) != len(data) {
			t.Fatalf("% x is %v", data, list)
		}
	})
}

func FuzzIndexEntries(f *testing.F) {
	addFiles(f, "*/*.index")
	addFiles(f, "*/*.timeindex")
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, k := range []fileKind{offsetIndex, timeIndex} {
			valid, _ := soundEntries(k, data, 1<<20)
			if valid%k.entryBytes() != 0 || valid > int64(len(data)) {
				t.Fatalf("%d valid bytes of %d", valid, len(data))
			}
			if valid > 0 {
				last := data[valid-k.entryBytes():]
				if i := lastAtMost(k, data[:valid], k.entryKey(last)); i != valid/k.entryBytes()-1 {
					t.Fatalf("the last entry is found at %d", i)
				}
			}
		}
	})
}

// FuzzDirectory changes one file of Kafka's directory. A start repairs what it can and keeps
// offline what it cannot; it never panics, never hangs, and what can be read is sound.
func FuzzDirectory(f *testing.F) {
	files := []string{"txn-0/00000000000000000004.log", "txn-0/00000000000000000004.index", "txn-0/00000000000000000004.timeindex",
		"txn-0/00000000000000000004.txnindex", "txn-0/00000000000000000017.snapshot", "txn-0/" + epochFile, "txn-0/" + partitionFile,
		recoveryFile, startFile, watermarkFile, "codecs-0/00000000000000000000.log", "segments-0/00000000000000000007.log"}
	for i := range files {
		f.Add(uint8(i), uint16(40), []byte{0xff, 0}, true)
		f.Add(uint8(i), uint16(3), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, false)
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint16, with []byte, clean bool) {
		fsys := copyRecorded(t, "kafka-3.9.1-zk")
		change(t, fsys, dataDir+"/"+files[int(which)%len(files)], func(b []byte) []byte {
			n := int(at) % (len(b) + 1)
			if len(with) == 0 {
				return b[:n]
			}
			c := append([]byte(nil), b...)
			copy(c[n:], with)
			return c
		})
		if !clean {
			fsys.Remove(dataDir + "/" + cleanFile)
		}
		m := openRecorded(t, fsys, -1, "")
		for l := range m.Logs() {
			if err := l.Err(); err != nil {
				if !errors.Is(err, ErrStorage) {
					t.Fatalf("%s: %v", l, err)
				}
				continue
			}
			tryReadAll(l, l.Start(), 500)
			l.OffsetForTime(1_700_000_000_000, l.End())
			l.MaxTimestamp(l.End())
			l.AbortedIn(l.Start(), l.End())
			if _, err := l.Append(Append{Records: values(startMs, "x"), RequestVersion: 9}); err != nil && !errors.Is(err, ErrStorage) {
				t.Fatalf("%s: append: %v", l, err)
			}
		}
		if err := m.Close(); err != nil && !errors.Is(err, ErrStorage) {
			t.Fatal(err)
		}
	})
}

var _ vfs.FS = (*vfs.Memory)(nil)
