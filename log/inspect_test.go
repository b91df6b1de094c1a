package log

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// TestInspect reads every file of Kafka's directories, and compares with what the log makes of them.
func TestInspect(t *testing.T) {
	for _, r := range recorded {
		files := copyRecorded(t, r.name)
		for name, content := range tree(t, files, dataDir) {
			path := filepath.Join(dataDir, name)
			switch filepath.Ext(name) {
			case logSuffix, ".checkpoint":
				inspectSegment(t, files, path, content)
			case indexSuffix:
				inspectLookup(t, files, path)
			case snapshotSuffix:
				list, err := parseSnapshot([]byte(content))
				i := 0
				for p, e := range SnapshotEntries(files, path) {
					if e != nil || p.ProducerID != list[i].id || p.Epoch != list[i].epoch || p.CoordinatorEpoch != list[i].coordinatorEpoch || max(p.TxnFirstOffset, -1) != list[i].txnFirst {
						t.Errorf("%s: %+v, %v; want %+v, %v", path, p, e, list[i], err)
					}
					i++
				}
				if i != len(list) {
					t.Errorf("%s: %d producers, want %d", path, i, len(list))
				}
			case txnSuffix:
				base, _ := BaseOffset(path)
				list, err := parseAborted([]byte(content), base)
				i := 0
				for e, err2 := range TxnEntries(files, path) {
					if err2 != nil || e.Aborted != list[i] {
						t.Errorf("%s: %+v, %v; want %+v, %v", path, e, err2, list[i], err)
					}
					i++
				}
				if i != len(list) {
					t.Errorf("%s: %d entries, want %d", path, i, len(list))
				}
			}
			switch filepath.Base(name) {
			case recoveryFile, watermarkFile, startFile:
				of, err := parseCheckpoint([]byte(content))
				list, err2 := ReadCheckpoint(files, path)
				for _, e := range list {
					if of[key{e.Topic, e.Partition}] != e.Offset {
						t.Errorf("%s: %+v", path, e)
					}
				}
				if err != nil || err2 != nil || len(list) != len(of) {
					t.Errorf("%s: %v, %v", path, err, err2)
				}
			case epochFile:
				if _, err := ReadEpochs(files, path); err != nil {
					t.Error(err)
				}
			case partitionFile:
				if id, err := ReadPartitionMetadata(files, path); err != nil || string(formatPartitionFile(id)) != content {
					t.Errorf("%s: %v, %v", path, id, err)
				}
			case metaFile:
				if list, err := ReadMetaProperties(files, path); err != nil || len(list) < 3 {
					t.Errorf("%s: %v, %v", path, list, err)
				}
			}
		}
	}
}

func inspectSegment(t *testing.T, files vfs.FS, path, content string) {
	t.Helper()
	s, err := OpenSegmentFile(files, path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	at := int64(0)
	es := s.Entries(0, s.Size())
	for es.Next() {
		if es.Position() != at {
			t.Fatalf("%s: entry at %d, want %d", path, es.Position(), at)
		}
		at += es.Size()
		if ok, err := es.Valid(); !ok || err != nil {
			t.Errorf("%s at %d: %v, %v", path, es.Position(), ok, err)
		}
		b, err := es.Entry()
		if err != nil || string(b) != content[es.Position():at] {
			t.Errorf("%s at %d: %v", path, es.Position(), err)
		}
	}
	if es.Err() != nil || es.End() != int64(len(content)) {
		t.Errorf("%s: ends at %d of %d, %v", path, es.End(), len(content), es.Err())
	}
}

// inspectLookup holds the search against a walk.
func inspectLookup(t *testing.T, files vfs.FS, path string) {
	t.Helper()
	x, err := OpenIndexFile(files, path)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for offset := x.Base() - 1; offset < x.Base()+60; offset++ {
		want := OffsetEntry{Offset: x.Base()}
		for i := range x.Len() {
			if e, err := x.OffsetEntry(i); err != nil || e.Offset <= offset {
				want = e
			}
		}
		if got, err := x.Lookup(offset); err != nil || got != want {
			t.Errorf("%s: %d is at %+v, want %+v, %v", path, offset, got, want, err)
		}
	}
}

// TestInspectErrors: what is wrong wraps a sentinel of its kind.
func TestInspectErrors(t *testing.T) {
	files := vfs.NewMemory()
	if err := files.MkdirAll(dataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name, content string) string {
		if err := writeFile(files, dataDir+"/"+name, []byte(content), false); err != nil {
			t.Fatal(err)
		}
		return dataDir + "/" + name
	}
	entries := func(name string) error {
		s, err := OpenSegmentFile(files, name)
		if err != nil {
			return err
		}
		defer s.Close()
		es := s.Entries(0, s.Size())
		for es.Next() {
		}
		return es.Err()
	}
	_, index := OpenIndexFile(files, put("x.index", ""))
	_, missing := OpenIndexFile(files, dataDir+"/1.index")
	_, checkpoint := ReadCheckpoint(files, put(recoveryFile, "0\n1\nt 0\n"))
	_, epochs := ReadEpochs(files, put(epochFile, "1\n0\n"))
	_, partition := ReadPartitionMetadata(files, put(partitionFile, "version: 0\ntopic_id: ?"))
	_, meta := ReadMetaProperties(files, put(metaFile, "version=7\n"))
	var snapshot, aborted error
	for _, err := range SnapshotEntries(files, put("1.snapshot", "\x00\x01")) {
		snapshot = err
	}
	for _, err := range TxnEntries(files, put("1.txnindex", strings.Repeat("\x01", 34))) {
		aborted = err
	}
	for name, c := range map[string]struct{ got, want error }{
		"zeros": {entries(put("1.log", strings.Repeat("\x00", 100))), record.ErrCorrupt}, "torn": {entries(put("2.log", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x02\x00")), nil},
		"missing": {missing, fs.ErrNotExist}, "checkpoint": {checkpoint, ErrDamaged}, "epochs": {epochs, ErrDamaged}, "partition": {partition, ErrDamaged},
		"meta": {meta, ErrDamaged}, "snapshot": {snapshot, ErrDamaged}, "aborted": {aborted, ErrDamaged},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if index == nil {
		t.Error("a name without an offset was taken")
	}
}
