package log

import (
	"fmt"
	"strings"
	"testing"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// overflowing are a log's files as Kafka of before 1.1.1 could leave them: a segment whose offsets go
// beyond what an index can say, after a clean stop or not.
func overflowing(t *testing.T, clean bool) (fsys *vfs.Memory, want map[int64]string) {
	t.Helper()
	b := newBox(t, vfs.NewCrashable(), compacted)
	b.start()
	l := b.log()
	putAll(t, l, kv{"a", "x"})
	b.close()
	fsys = b.fs.(*vfs.Memory)
	want = map[int64]string{}
	var data []byte
	offsets := []int64{0, 5, 1<<31 - 1, 1 << 31, 1<<31 + 7, 1<<33 + 1, 1<<33 + 2}
	for _, at := range offsets {
		w := record.NewBuilder(nil, record.BuilderOptions{BaseOffset: at})
		w.Add(startMs+at%1000, fmt.Append(nil, at), fmt.Append(nil, "value ", at))
		data = append(data, w.Finish()...)
		want[at] = fmt.Sprint("value ", at)
	}
	dir := dataDir + "/t-0/"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(writeFile(fsys, dir+offsetName(0, logSuffix), data, true))
	for _, suffix := range []string{indexSuffix, timeSuffix} {
		must(writeFile(fsys, dir+offsetName(0, suffix), nil, true))
	}
	must(writeFile(fsys, dir+offsetName(0, txnSuffix), append(formatAborted(Aborted{7, 0, 5, 6}), formatAborted(Aborted{8, 1 << 31, 1<<33 + 1, 1<<33 + 2})...), true))
	w := record.NewBuilder(nil, record.BuilderOptions{BaseOffset: 1 << 34})
	w.Add(startMs, []byte("k"), []byte("behind"))
	must(writeFile(fsys, dir+offsetName(1<<34, logSuffix), w.Finish(), true))
	want[1<<34] = "behind"
	must(fsys.SyncDir(dir))
	point := int64(1<<34 + 1)
	if !clean {
		point = 0
		must(fsys.Remove(dataDir + "/" + cleanFile))
	}
	must(writeFile(fsys, dataDir+"/"+recoveryFile, formatCheckpoint(map[key]int64{{"t", 0}: point}), true))
	must(fsys.SyncDir(dataDir))
	return fsys, want
}

func wantSplit(t *testing.T, what string, b *box, want map[int64]string) {
	t.Helper()
	l := b.log()
	if err := l.Err(); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, b.lines())
	}
	for _, s := range l.segments()[:len(l.segments())-1] {
		if err := s.ensure(); err != nil {
			t.Fatal(err)
		}
	}
	got := readAll(t, l, 0)
	if len(got) != len(want) || l.Start() != 0 {
		t.Fatalf("%s: from %d %v, want %v", what, l.Start(), got, want)
	}
	for at, v := range want {
		if got[at] != v {
			t.Fatalf("%s: offset %d is %q", what, at, got[at])
		}
		if offset, _, _, found, err := l.OffsetForTime(startMs+999999, l.End()); err != nil || found {
			t.Fatal(what, offset, err)
		}
	}
	for _, s := range l.segments() {
		for at := range want {
			if at >= s.base && floor(l.segments(), at) == floor(l.segments(), s.base) && !s.fits(at) {
				t.Fatalf("%s: segment %d has offset %d", what, s.base, at)
			}
		}
	}
	aborted, err := l.AbortedIn(0, l.End())
	if err != nil || strings.Contains(what, "clean true") && len(aborted) != 2 { // a recovery makes them anew
		t.Fatalf("%s: aborted %v, %v", what, aborted, err)
	}
}

func TestSplitsOverflowedSegments(t *testing.T) {
	for _, clean := range []bool{true, false} {
		what := fmt.Sprintf("clean %v", clean)
		fsys, want := overflowing(t, clean)
		b := newBox(t, fsys.KillClone(), compacted)
		b.start()
		wantSplit(t, what, b, want)
		if n := strings.Count(b.lines(), "splitting a segment"); n != 1 {
			t.Errorf("%s: told %d times: %s", what, n, b.lines())
		}
		b.close()
		b.start()
		wantSplit(t, what+", again", b, want)
		b.close()

		// The world ends at each operation.
		for at := 1; ; at++ {
			var left []*vfs.Memory
			tap := &tapFS{Memory: fsys.KillClone(), at: at, take: func(m *vfs.Memory) *vfs.Memory {
				left = append(left, m.KillClone(), m.CrashClone(uint64(at)))
				return m
			}}
			b := newBox(t, tap, compacted)
			b.start()
			b.m.stopTasks()
			for i, m := range left {
				b := newBox(t, m, compacted)
				b.start()
				wantSplit(t, fmt.Sprintf("%s, operation %d, end %d", what, at, i), b, want)
				b.m.stopTasks()
			}
			if left == nil {
				break
			}
		}
	}
}
