package log

import (
	"strings"
	"testing"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// TestCheckAfterCompaction: what compaction leaves is nothing wrong, though the first segments have no
// records any more, or the index of a later one tells of a transaction whose first batches are gone.
func TestCheckAfterCompaction(t *testing.T) {
	b, l := cleanBox(t, nil)
	putAll(t, l, kv{"a", "1"}, kv{"b", "1"})
	roll(t, l)
	putAll(t, l, kv{"a", "2"}, kv{"b", "2"})
	roll(t, l)
	aborted := func(seq int32, key string) []byte {
		return keyed(record.BuilderOptions{Producer: &record.ProducerInfo{ID: 7, Sequence: seq, Transactional: true}}, startMs, kv{key, "never"})
	}
	appendTo(t, l, aborted(0, "x"))
	appendTo(t, l, aborted(1, "y"))
	roll(t, l)
	appendMarker(t, l, false, 7, 0, 0)
	clean(b.m)
	check := func() *CheckReport {
		t.Helper()
		r, err := Check(t.Context(), CheckOptions{FS: b.fs, Dir: dataDir})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if got := readAll(t, l, 0); got[2] != "2" || got[3] != "2" {
		t.Fatalf("read %v", got)
	}
	b.close()
	if r := check(); r.Wrong() != 0 {
		t.Errorf("%+v", r.Findings)
	}

	// The first segment has nothing left, and those after it have no gaps.
	first := l.path(offsetName(0, logSuffix))
	change(t, b.fs, first, func([]byte) []byte { return nil })
	for _, suffix := range []string{indexSuffix, timeSuffix} {
		change(t, b.fs, l.path(offsetName(0, suffix)), func([]byte) []byte { return nil })
	}
	if r := check(); r.Wrong() != 0 {
		t.Errorf("an empty first segment: %+v", r.Findings)
	}
	if err := b.fs.Remove(l.dir.file(cleanerFile)); err != nil {
		t.Fatal(err)
	}
	if r := check(); r.Wrong() == 0 {
		t.Error("a log that was never compacted has lost its first records, and nothing is wrong")
	}
}

// TestKilledWhileSegmentsGo: an end between the renames of one segment's files is no segment that is
// missing.
func TestKilledWhileSegmentsGo(t *testing.T) {
	for _, grave := range []string{"", ".2"} {
		b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes, o.RetentionMs = 150, -1 })
		b.start()
		l := b.log()
		for i := range int64(6) {
			appendTo(t, l, values(startMs+i, "v"))
		}
		b.close()
		name := l.path(offsetName(2, logSuffix))
		if err := b.fs.Rename(name, name+grave+deletedSuffix); err != nil {
			t.Fatal(err)
		}
		b.fs.Remove(dataDir + "/" + cleanFile)
		r, err := Check(t.Context(), CheckOptions{FS: b.fs, Dir: dataDir})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			if strings.Contains(f.What, "is gone") {
				t.Errorf("%+v", f)
			}
		}
		b.start()
		if strings.Contains(b.lines(), "records are missing") {
			t.Errorf("lines: %s", b.lines())
		}
		b.close()
	}
}

// TestEmptyTxnIndexGoes: a recovery may leave a .txnindex without entries. It goes along with its segment,
// and no start takes it for what is left of one that is missing.
func TestEmptyTxnIndexGoes(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes, o.RetentionMs, o.FileDeleteDelayMs = 150, -1, 0 })
	b.start()
	l := b.log()
	for i := range int64(6) {
		appendTo(t, l, values(startMs+i, "v"))
	}
	name := l.path(offsetName(2, txnSuffix))
	if err := writeFile(b.fs, name, nil, true); err != nil {
		t.Fatal(err)
	}
	l = b.kill()
	s := l.segments()[1]
	if err := s.rename(); err != nil || exists(b.fs, name) {
		t.Fatalf("%v, it is there: %v", err, exists(b.fs, name))
	}
	if err := s.remove(); err != nil || exists(b.fs, s.path(txnSuffix)) {
		t.Fatalf("%v, it is there: %v", err, exists(b.fs, s.path(txnSuffix)))
	}
}
