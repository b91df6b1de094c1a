package log

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// TestGarbageBehindCleanStop: what lies behind the recovery point is cut after a clean stop too,
// in segments of any size.
func TestGarbageBehindCleanStop(t *testing.T) {
	for name, garbage := range map[string]string{
		"zeros": strings.Repeat("\x00", 100), "ones": strings.Repeat("\xff", 100), "one byte": "x", "text": strings.Repeat("garbage ", 1000),
		"an old batch": string(values(1, "a")), "half a batch": string(batchOf(record.BuilderOptions{BaseOffset: 20}, rec{1, "x"})[:65]),
		"a wrong checksum": strings.Replace(string(batchOf(record.BuilderOptions{BaseOffset: 20}, rec{1, "vvvv"})), "vvvv", "vvvw", 1),
	} {
		for _, bytes := range []int{10, 10_000, 200_000} { // small, large, and such that recovery resumes
			t.Run(fmt.Sprint(name, bytes), func(t *testing.T) {
				b := newBox(t, vfs.NewCrashable(), nil)
				b.start()
				l := b.log()
				value := strings.Repeat("v", bytes)
				var want []string
				for i := range int64(20) {
					appendTo(t, l, values(startMs+i, value))
					want = append(want, value)
				}
				size := l.Size()
				file := l.path(offsetName(0, logSuffix))
				b.close()
				change(t, b.fs, file, func(b []byte) []byte { return append(b, garbage...) })
				b.start()
				l = b.m.Log("t", 0)
				if err := l.Err(); err != nil {
					t.Fatal(err)
				}
				wantValues(t, l, 0, want...)
				if got := int64(len(fileBytes(t, b.fs, file))); l.End() != 20 || l.Size() != size || got != size {
					t.Errorf("ends at %d with %d bytes, the file has %d, want %d", l.End(), l.Size(), got, size)
				}
				if !strings.Contains(b.lines(), "cutting a torn log") {
					t.Error("nothing is said about what was cut")
				}
				appendTo(t, l, values(startMs, "next"))
				wantValues(t, b.restart(), 0, append(want, "next")...)
				b.close()
			})
		}
	}
}

// TestDamageHelp: what the log line tells an operator to do leads to a partition that has what is
// whole before the damage.
func TestDamageHelp(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	l := b.log()
	appendTo(t, l, values(1, "a"))
	appendTo(t, l, values(1, "b"))
	appendTo(t, l, values(1, "c"))
	file, identity := l.path(offsetName(0, logSuffix)), l.path(partitionFile)
	b.close()
	change(t, b.fs, file, func(b []byte) []byte { b[70+65] ^= 1; b[70+8] = 0x7f; return b })
	for range 2 {
		b.start()
		if err := b.m.Log("t", 0).Err(); !errors.Is(err, ErrDamaged) {
			t.Fatalf("error %v", err)
		}
		b.close()
	}
	if !strings.Contains(b.lines(), "ottla check --repair --topic t "+dataDir) {
		t.Error("nothing is said about what to do")
	}
	b.fs.Remove(dataDir + "/" + recoveryFile)
	b.start()
	wantValues(t, b.log(), 0, "a")
	appendTo(t, b.log(), values(1, "d"))
	wantValues(t, b.restart(), 0, "a", "d")
	b.close()

	change(t, b.fs, identity, func([]byte) []byte { return []byte("version: 9") })
	b.start()
	if err := b.m.Log("t", 0).Err(); !errors.Is(err, ErrDamaged) {
		t.Fatalf("error %v", err)
	}
	b.close()
	if !strings.Contains(b.lines(), "remove it") {
		t.Error("nothing is said about what to do")
	}
	b.fs.Remove(identity)
	b.start()
	wantValues(t, b.log(), 0, "a", "d")
	b.close()
}

// TestHolesAreKept: after a kill a segment that is missing, emptied, or ends early at a whole
// batch takes none of those behind it along; one that is torn does.
func TestHolesAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		at   int64 // the segment that something is done to
		edit func(b []byte) []byte
		want []int64
	}{
		"missing":       {2, nil, []int64{0, 1, 4, 5, 6}},
		"emptied":       {2, func([]byte) []byte { return nil }, []int64{0, 1, 4, 5, 6}},
		"short":         {2, func(b []byte) []byte { return b[:70] }, []int64{0, 1, 2, 4, 5, 6}},
		"torn":          {2, func(b []byte) []byte { return b[:75] }, []int64{0, 1, 2}},
		"first missing": {0, nil, []int64{2, 3, 4, 5, 6}},
		"first emptied": {0, func([]byte) []byte { return nil }, []int64{2, 3, 4, 5, 6}},
		"last emptied":  {6, func([]byte) []byte { return nil }, []int64{0, 1, 2, 3, 4, 5}},
	} {
		for _, flushed := range []int64{0, 1, 3, 4, 5} {
			if flushed > 2 && name == "torn" {
				continue // that is damage
			}
			t.Run(fmt.Sprint(name, flushed), func(t *testing.T) {
				b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 150; o.RetentionMs = -1 })
				b.start()
				b.m.stopTasks()
				l := b.log()
				for i := range int64(7) {
					appendTo(t, l, values(startMs+i, fmt.Sprint(i)))
				}
				b.fs = b.fs.(*vfs.Memory).KillClone()
				if err := writeFile(b.fs, dataDir+"/"+recoveryFile, formatCheckpoint(map[key]int64{{"t", 0}: flushed}), true); err != nil {
					t.Fatal(err)
				}
				file := l.path(offsetName(c.at, logSuffix))
				if c.edit == nil {
					b.fs.Remove(file)
				} else {
					change(t, b.fs, file, c.edit)
				}
				for range 2 {
					b.start()
					l = b.log()
					last := c.want[len(c.want)-1]
					wantEnd := last + 1
					got := readAll(t, l, l.Start())
					for _, i := range c.want {
						if got[i] != fmt.Sprint(i) {
							t.Errorf("offset %d is %q", i, got[i])
						}
						if offset, _, _, found, err := l.OffsetForTime(startMs+i, l.End()); offset != i || !found || err != nil {
							t.Errorf("time of %d is at %d, %v", i, offset, err)
						}
					}
					if len(got) != len(c.want) || l.End() != wantEnd {
						t.Errorf("has %v up to %d, want %v", got, l.End(), c.want)
					}
					if _, _, _, found, err := l.OffsetForTime(startMs+last+1, l.End()); found || err != nil {
						t.Errorf("a time behind the last: %v, %v", found, err)
					}
					b.close()
				}
				b.start()
				l = b.log()
				appendTo(t, l, values(startMs+9, "next"))
				if got := readAll(t, l, l.Start()); len(got) != len(c.want)+1 {
					t.Errorf("has %v", got)
				}
				b.close()
			})
		}
	}
}

// TestCheckpointLost: without the recovery points a hole may be damage to what was flushed. What lies
// behind it is kept under another name, and with them it is deleted, as what a crash has left.
func TestCheckpointLost(t *testing.T) {
	for _, known := range []bool{true, false} {
		b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 100 })
		b.start()
		for i := range 4 {
			appendTo(t, b.log(), values(1, fmt.Sprint("value ", i)))
		}
		third := b.log().path(offsetName(2, logSuffix))
		last := fileBytes(t, b.fs, b.log().path(offsetName(3, logSuffix)))
		b.close()
		if err := b.fs.Remove(dataDir + "/" + cleanFile); err != nil {
			t.Fatal(err)
		}
		points := "0\n1\nt 0 1\n"
		if !known {
			points = "0\n0\n"
		}
		if err := writeFile(b.fs, dataDir+"/"+recoveryFile, []byte(points), true); err != nil {
			t.Fatal(err)
		}
		change(t, b.fs, third, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
		b.start()
		if end := b.log().End(); end != 2 {
			t.Errorf("known %v: the log ends at %d", known, end)
		}
		entries, err := b.fs.ReadDir(dataDir + "/t-0")
		if err != nil {
			t.Fatal(err)
		}
		kept := ""
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), cutSuffix) {
				kept = e.Name()
			}
		}
		if known != (kept == "") {
			t.Errorf("known %v: kept %q", known, kept)
		}
		if kept != "" && !bytes.Equal(fileBytes(t, b.fs, dataDir+"/t-0/"+kept), last) {
			t.Error("what was kept is something else")
		}
		b.close()
	}
}
