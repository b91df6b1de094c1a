package log

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

func checkDir(t testing.TB, fsys vfs.FS) *CheckReport {
	t.Helper()
	r, err := Check(t.Context(), CheckOptions{FS: fsys, Dir: dataDir})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func findingsOf(r *CheckReport) (list []string) {
	for _, f := range r.Findings {
		list = append(list, fmt.Sprintf("%s %d %v: %s (%s)", f.File, f.Position, f.Harmless, f.What, f.Repair))
	}
	return list
}

// TestCheckKafkaDirectories: there is nothing wrong with Kafka's directories, and a check changes
// nothing.
func TestCheckKafkaDirectories(t *testing.T) {
	for _, r := range recorded {
		fsys := copyRecorded(t, r.name)
		before := tree(t, fsys, dataDir)
		report := checkDir(t, fsys)
		if len(report.Findings) > 0 || !report.Clean || report.Batches == 0 || report.Partitions == 0 {
			t.Errorf("%s: %+v\n%s", r.name, report, strings.Join(findingsOf(report), "\n"))
		}
		if !maps.Equal(before, tree(t, fsys, dataDir)) {
			t.Errorf("%s was changed", r.name)
		}
	}
}

// TestCheckAndRepair damages a log in many ways: the check says where, a repair keeps what it cuts,
// and the start after it has all that is whole.
func TestCheckAndRepair(t *testing.T) {
	const first, second = 0, 3 // bases of the segments
	all := []int64{0, 1, 2, 3, 4, 5, 6, 7}
	without := func(which ...int64) (list []int64) {
		for _, o := range all {
			if !strings.Contains(fmt.Sprint(which), fmt.Sprint(o)) {
				list = append(list, o)
			}
		}
		return list
	}
	name := func(base int64, suffix string) string { return dataDir + "/t-0/" + offsetName(base, suffix) }
	for what, c := range map[string]struct {
		file   string
		edit   func(b []byte) []byte // nil: remove
		at     int64                 // position of the first finding
		says   string
		want   []int64 // offsets after the repair
		cut    string  // file with what was cut out
		broken bool    // the start before the repair has the partition offline
	}{
		"bit in a record":           {name(first, logSuffix), func(b []byte) []byte { b[100+66] ^= 1; return b }, 100, "checksum", without(1), "100.cut", false},
		"length in a closed one":    {name(first, logSuffix), func(b []byte) []byte { b[100+8] = 0x7f; return b }, 100, "", without(1), "100.cut", false},
		"swallows the next":         {name(first, logSuffix), func(b []byte) []byte { b[100+11] += 100; return b }, 100, "checksum", without(1), "100.cut", false},
		"a closed one cut":          {name(first, logSuffix), func(b []byte) []byte { return b[:250] }, 200, "", without(2), "200.cut", false},
		"bytes between two batches": {name(first, logSuffix), func(b []byte) []byte { return append(b[:200:200], append([]byte("garbage"), b[200:]...)...) }, 200, "", all, "200.cut", false},
		"magic in the last one":     {name(6, logSuffix), func(b []byte) []byte { b[100+16] = 9; return b }, 100, "invalid magic", without(7), "100.cut", true},
		"last one cut":              {name(6, logSuffix), func(b []byte) []byte { return b[:150] }, 100, "", without(7), "100.cut", true},
		"last one cut at a batch":   {name(6, logSuffix), func(b []byte) []byte { return b[:100] }, -1, "the log ends at offset 7", without(7), "", true},
		"garbage behind the end":    {name(6, logSuffix), func(b []byte) []byte { return append(b, "garbage"...) }, 200, "a start cuts it", all, "", false},
		"last one gone":             {name(6, logSuffix), nil, -1, "", without(6, 7), "", true},
		"closed one gone":           {name(second, logSuffix), nil, -1, "the log of this index is gone", without(3, 4, 5), "", false},
		"offsets overlap":           {name(first, logSuffix), func(b []byte) []byte { b[200+7] = 4; return b }, 200, "next segment begins at 3", without(2), "200.cut", false},
		"index":                     {name(first, indexSuffix), func(b []byte) []byte { b[7]++; return b }, 0, "no batch begins", all, "", false},
		"index cut":                 {name(first, indexSuffix), func(b []byte) []byte { return append(b, 1) }, 16, "cannot be an entry", all, "", false},
		"time index":                {name(first, timeSuffix), func(b []byte) []byte { b[7] ^= 1; return b }, 0, "timestamp", all, "", false},
		"index gone":                {name(first, indexSuffix), nil, -1, "not there", all, "", false},
		"aborted transactions":      {name(second, txnSuffix), func(b []byte) []byte { b[9] ^= 1; return b }, 0, "ends no transaction", all, "", false},
		"aborted gone":              {name(second, txnSuffix), nil, -1, "lacks the transaction", all, "", false},
		"snapshot":                  {name(6, snapshotSuffix), func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, -1, "checksum", all, "", false},
		"epochs":                    {dataDir + "/t-0/" + epochFile, func([]byte) []byte { return []byte("?") }, -1, "unknown version", all, "", false},
		"epochs gone":               {dataDir + "/t-0/" + epochFile, nil, -1, "not there", all, "", false},
		"partition.metadata":        {dataDir + "/t-0/" + partitionFile, func([]byte) []byte { return []byte("version: 9") }, -1, "unknown version", all, "", true},
		"recovery points":           {dataDir + "/" + recoveryFile, func([]byte) []byte { return []byte("9\n") }, -1, "unknown version", all, "", false},
		"log start above the end":   {dataDir + "/" + startFile, func([]byte) []byte { return []byte("0\n1\nt 0 99\n") }, -1, "the log start is 99", nil, "", false},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes, o.IndexIntervalBytes, o.RetentionMs = 350, 1, -1 })
			b.start()
			l := b.log()
			put := func(r record.BuilderOptions) {
				t.Helper()
				r.LeaderEpoch = -1
				n := 100 - len(batchOf(r, rec{startMs, ""}))
				if _, err := l.Append(Append{Records: batchOf(r, rec{startMs + l.End(), strings.Repeat("v", n)}), Epoch: int32(l.End() / 3), RequestVersion: 9}); err != nil {
					t.Fatal(err)
				}
				l.SetHighWatermark(l.End())
			}
			for range 4 {
				put(record.BuilderOptions{})
			}
			put(record.BuilderOptions{Producer: &record.ProducerInfo{ID: 5, Transactional: true}})
			appendMarker(t, l, false, 5, 0, 1)
			put(record.BuilderOptions{})
			put(record.BuilderOptions{})
			if list := l.segments(); len(list) != 3 || list[1].base != second || list[2].base != 6 || list[0].size.Load() != 300 {
				t.Fatalf("segments %v", list)
			}
			b.close()
			if r := checkDir(t, b.fs); len(r.Findings) > 0 || r.Segments != 3 || r.Batches != 8 {
				t.Fatalf("before: %+v", r)
			}
			var had []byte
			if exists(b.fs, c.file) {
				had = fileBytes(t, b.fs, c.file)
			}
			if c.edit == nil {
				b.fs.Remove(c.file)
			} else if had == nil {
				writeFile(b.fs, c.file, c.edit(nil), true)
			} else {
				change(t, b.fs, c.file, c.edit)
			}
			r := checkDir(t, b.fs)
			if len(r.Findings) == 0 {
				t.Fatal("nothing was found")
			}
			f := r.Findings[0]
			for _, g := range r.Findings {
				if g.File == c.file {
					f = g
					break
				}
			}
			if !strings.Contains(f.What, c.says) || f.Position != c.at {
				t.Errorf("found %s", findingsOf(r))
			}
			copied := b.fs.(*vfs.Memory).KillClone()
			kept := b.fs
			b.fs = copied
			b.start()
			if broken := b.m.Log("t", 0).Err() != nil; broken != c.broken {
				t.Errorf("before the repair: %v", b.m.Log("t", 0).Err())
			}
			b.close()
			b.fs = kept

			var steps []string
			if err := r.Repair(t.Context(), func(s string) { steps = append(steps, s) }); err != nil {
				t.Fatal(err)
			}
			if c.cut != "" && !exists(b.fs, c.file+"."+c.cut) {
				t.Errorf("%s is not there: %q", c.file+"."+c.cut, steps)
			}
			if after := checkDir(t, b.fs); after.Wrong() > 0 {
				t.Errorf("after the repair: %s", findingsOf(after))
			}
			b.start()
			l = b.log()
			got, err := rawBatches(l)
			if err != nil {
				t.Fatal(err)
			}
			var offsets []int64
			for batch := range record.All(got) {
				offsets = append(offsets, batch.BaseOffset())
			}
			if fmt.Sprint(offsets) != fmt.Sprint(c.want) && what != "offsets overlap" {
				t.Errorf("has %v, want %v", offsets, c.want)
			}
			for _, o := range c.want {
				if e := l.EpochAt(o); e != int32(o/3) && o != 5 {
					t.Errorf("epoch at %d is %d", o, e)
				}
			}
			if len(c.want) > 6 {
				if a, err := l.AbortedIn(0, l.End()); err != nil || len(a) != 1 || a[0].First != 4 || a[0].Last != 5 {
					t.Errorf("aborted %v, %v", a, err)
				}
			}
			appendTo(t, l, values(startMs, "next"))
			b.close()
			if after := checkDir(t, b.fs); after.Wrong() > 0 {
				t.Errorf("in the end: %s", findingsOf(after))
			}
		})
	}
}

// TestRepairMissingDirectory: the partition is offline until a repair has struck it off.
func TestRepairMissingDirectory(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	appendTo(t, b.log(), values(1, "a"))
	b.close()
	saved := b.fs.(*vfs.Memory).KillClone()
	b.fs.RemoveAll(dataDir + "/t-0")
	r := checkDir(t, b.fs)
	if r.Wrong() != 1 || !strings.Contains(r.Findings[0].What, "directory is gone") {
		t.Fatal(findingsOf(r))
	}
	for range 3 {
		b.start()
		l, err := b.m.Host("t", 0, [16]byte{1}, false)
		var damage *Damage
		if !errors.As(err, &damage) || damage.File != dataDir+"/t-0" || !errors.Is(err, ErrStorage) || l == nil {
			t.Fatalf("%v", err)
		}
		b.m.perform(t.Context(), taskPoints)
		b.close()
	}
	if n := strings.Count(b.lines(), "directory is gone"); n != 3 {
		t.Errorf("%d lines: %s", n, b.lines())
	}
	if exists(b.fs, dataDir+"/t-0") {
		t.Error("it was made anew")
	}
	lost := b.fs.(*vfs.Memory).KillClone()

	if err := r.Repair(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	b.start()
	if l, err := b.m.Host("t", 0, [16]byte{1}, false); err != nil || l.End() != 0 {
		t.Errorf("after the repair: %v", err)
	}
	b.close()

	// It comes back while the broker runs.
	b.fs = lost.KillClone()
	b.start()
	if _, err := b.m.Host("t", 0, [16]byte{1}, false); err == nil {
		t.Fatal("it is there")
	}
	for name, data := range tree(t, saved, dataDir+"/t-0") {
		b.fs.MkdirAll(dataDir+"/t-0", 0o755)
		if err := writeFile(b.fs, dataDir+"/"+name, []byte(data), true); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := b.m.Host("t", 0, [16]byte{1}, false); err != nil {
		t.Error(err)
	} else {
		wantValues(t, l, 0, "a")
	}
	b.close()

	// A topic that is made anew under the name, and one that is deleted, leave no trace of it.
	for _, do := range []func() error{
		func() error { _, err := b.m.Host("t", 0, [16]byte{2}, true); return err },
		func() error { return b.m.Delete("t", 0) },
		func() error { b.m.Host("t", 0, [16]byte{1}, false); return b.m.Delete("t", 0) },
	} {
		b.fs = lost.KillClone()
		b.start()
		if err := do(); err != nil {
			t.Error(err)
		}
		if l, err := b.m.Host("t", 0, [16]byte{2}, false); err != nil || l.End() != 0 || b.m.Dirs()[0].Err != nil {
			t.Errorf("made anew: %v, %v", err, b.m.Dirs()[0].Err)
		}
		b.close()
	}
}

// TestDeletedIsNotMissing: a crash between a deletion and the next checkpoint does not make the
// partition one that is missed.
func TestDeletedIsNotMissing(t *testing.T) {
	for _, topic := range []string{"t", strings.Repeat("long", 60)} {
		for _, do := range []func(*Manager) error{
			func(m *Manager) error { return m.Delete(topic, 0) },
			func(m *Manager) error { return m.Stray(topic, 0) },
		} {
			b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.FileDeleteDelayMs = 0 })
			b.start()
			l, err := b.m.Create(topic, 0, [16]byte{1})
			if err != nil {
				t.Fatal(err)
			}
			appendTo(t, l, values(1, "a"))
			if err := l.Flush(1); err != nil {
				t.Fatal(err)
			}
			b.m.perform(t.Context(), taskPoints)
			b.m.stopTasks()
			if err := do(b.m); err != nil {
				t.Fatal(err)
			}
			b.fs = b.fs.(*vfs.Memory).KillClone()
			b.start()
			for range 2 {
				if l, err := b.m.Host(topic, 0, [16]byte{2}, false); err != nil || l.End() != 0 {
					t.Errorf("%v", err)
				}
				b.m.doDelayed()
				b.close()
				b.start()
			}
			b.close()
		}
	}
}

// TestMissingSegmentIsTold: with from and to, at a start if an index is left, else a little later.
func TestMissingSegmentIsTold(t *testing.T) {
	for _, whole := range []bool{true, false} {
		b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes, o.RetentionMs = 150, -1 })
		b.start()
		l := b.log()
		for i := range int64(6) {
			appendTo(t, l, values(startMs+i, "v"))
		}
		b.close()
		b.fs.Remove(l.path(offsetName(2, logSuffix)))
		if whole {
			for _, suffix := range []string{indexSuffix, timeSuffix, snapshotSuffix} {
				b.fs.Remove(l.path(offsetName(2, suffix)))
			}
		}
		b.start()
		const line = "records are missing between two segments"
		if n := strings.Count(b.lines(), line); (n == 1) != !whole {
			t.Errorf("%d lines at the start", n)
		}
		for range 2 {
			b.m.perform(t.Context(), taskRetention)
		}
		if !strings.Contains(b.lines(), "from=2 to=4") || strings.Count(b.lines(), line) > 2 {
			t.Errorf("lines: %s", b.lines())
		}
		if got := readAll(t, b.log(), 0); len(got) != 4 {
			t.Errorf("has %v", got)
		}
		b.close()
	}
}

// TestDamagedClosedSegment: what is whole before the damage is read, and so is the next segment; what
// lies behind it in the segment is told and not passed over.
func TestDamagedClosedSegment(t *testing.T) {
	for what, edit := range map[string]func([]byte) []byte{
		"cut":      func(b []byte) []byte { return b[:len(b)-5] },
		"garbage":  func(b []byte) []byte { return append(b[:140:140], bytes.Repeat([]byte{0xff}, 70)...) },
		"one flip": func(b []byte) []byte { b[140+16] = 7; return b },
	} {
		for _, indexes := range []bool{true, false} {
			t.Run(fmt.Sprint(what, indexes), func(t *testing.T) {
				b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes, o.IndexIntervalBytes, o.RetentionMs = 250, 1, -1 })
				b.start()
				l := b.log()
				for i := range int64(7) {
					appendTo(t, l, values(startMs+i, "v"))
				}
				b.close()
				file := l.path(offsetName(0, logSuffix))
				change(t, b.fs, file, edit)
				if !indexes {
					b.fs.Remove(l.path(offsetName(0, indexSuffix)))
				}
				b.start()
				l = b.log()
				for range 2 {
					got, err := tryReadAll(l, 0, 1<<20)
					var damage *Damage
					if len(got) != 2 || !errors.As(err, &damage) || damage.File != file || damage.Position != 140 {
						t.Fatalf("read %v, %v", got, err)
					}
				}
				if c, err := l.Read(0, 3, 1<<20, true); err != nil || c.Range.Len() != 140 {
					t.Errorf("%v, %v", c, err)
				}
				if got, err := tryReadAll(l, 3, 1<<20); len(got) != 4 || err != nil {
					t.Errorf("behind it %v, %v", got, err)
				}
				if n := strings.Count(b.lines(), "a segment is damaged"); n != 1 {
					t.Errorf("%d lines: %s", n, b.lines())
				}
				appendTo(t, l, values(startMs, "next"))
				b.close()
			})
		}
	}
}

// TestRecoveryWithoutRoom: a log that could not be recovered for want of room is there once there is some.
func TestRecoveryWithoutRoom(t *testing.T) {
	for _, name := range []string{"*.index", "*.timeindex", "*.snapshot", "*.txnindex"} {
		script := new(vfs.Script)
		mem := vfs.NewCrashable()
		b := newBox(t, vfs.WithErrors(mem, script), func(o *Options) { o.SegmentBytes, o.IndexIntervalBytes = 400, 1 })
		b.start()
		l := b.log()
		for i := range int32(8) {
			appendTo(t, l, transactional(7, 0, 2*i, 2))
		}
		appendMarker(t, l, false, 7, 0, 1)
		end := l.End()
		b.m.stopTasks()
		killed := mem.KillClone()
		for _, s := range l.segments() { // so that a recovery writes them
			killed.Remove(l.path(offsetName(s.base, snapshotSuffix)))
		}
		b.fs = vfs.WithErrors(killed, script)
		script.Add(vfs.Fault{Op: vfs.OpWrite, Name: name, Err: syscall.ENOSPC})
		b.start()
		for range 3 {
			if l, err := b.m.Host("t", 0, [16]byte{1}, false); !errors.Is(err, ErrFull) || l == nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if n := strings.Count(b.lines(), "a partition is offline"); n != 1 {
			t.Errorf("%s: %d lines", name, n)
		}
		script.Clear()
		l = b.log()
		if got := readAll(t, l, 0); l.End() != end || int64(len(got)) != end {
			t.Errorf("%s: %d of %d records", name, len(got), end)
		}
		if a, err := l.AbortedIn(0, end); err != nil || len(a) != 1 {
			t.Errorf("%s: aborted %v, %v", name, a, err)
		}
		appendTo(t, l, values(startMs, "next"))
		if !strings.Contains(b.lines(), "a partition is online again") {
			t.Error("nothing is said")
		}
		b.close()
	}
}
