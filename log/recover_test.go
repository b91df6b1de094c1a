package log

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// TestTornTail: behind the recovery point the log is cut at the last whole batch, wherever it
// is torn and whatever stands there.
func TestTornTail(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	l := b.log()
	appendTo(t, l, values(1, "a"))
	appendTo(t, l, values(2, "b", "c"))
	name := l.path(offsetName(0, logSuffix))
	whole := fileBytes(t, b.fs, name)
	first := len(values(1, "a"))
	killed := b.fs.(*vfs.Memory).KillClone()
	for cut := range len(whole) {
		for _, tail := range []string{"", "\x00", strings.Repeat("\x00", 100), strings.Repeat("\xff", 100)} {
			b.fs = killed.KillClone()
			if err := writeFile(b.fs, name, append(whole[:cut:cut], tail...), true); err != nil {
				t.Fatal(err)
			}
			b.m.stopTasks()
			b.start()
			l = b.log()
			var want []string
			if left := string(whole[:cut]) + tail; strings.HasPrefix(left, string(whole)) {
				want = []string{"a", "b", "c"}
			} else if strings.HasPrefix(left, string(whole[:first])) {
				want = []string{"a"}
			}
			wantValues(t, l, 0, want...)
			if got := len(fileBytes(t, b.fs, name)); int64(got) != l.Size() {
				t.Fatalf("cut at %d: the file has %d bytes, the log %d", cut, got, l.Size())
			}
			if cut%20 == 0 {
				appendTo(t, l, values(3, "next"))
				wantValues(t, b.restart(), 0, append(want, "next")...)
			}
		}
	}
	if !strings.Contains(b.lines(), "cutting a torn log") {
		t.Error("nothing is said about what was cut")
	}
}

// TestFlippedBits: any byte changed behind the recovery point cuts the log there; changed
// before it in a header, it is damage and the partition is offline.
func TestFlippedBits(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), nil)
	b.start()
	l := b.log()
	appendTo(t, l, values(1, "a"))
	appendTo(t, l, values(2, "b"))
	name := l.path(offsetName(0, logSuffix))
	whole := fileBytes(t, b.fs, name)
	first := len(values(1, "a"))
	for i := first; i < len(whole); i++ {
		if i >= first+12 && i < first+16 {
			continue // the leader epoch is not under the checksum
		}
		b.fs = b.fs.(*vfs.Memory).KillClone()
		change(t, b.fs, name, func([]byte) []byte {
			c := append([]byte(nil), whole...)
			c[i] ^= 0x40
			return c
		})
		b.m.stopTasks()
		b.start()
		if i > first && i < first+8 {
			continue // a base offset may be larger by chance: a hole
		}
		wantValues(t, b.log(), 0, "a")
	}
}

func TestDamageBeforeRecoveryPoint(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(b []byte) []byte
		file string
		pos  int64
	}{
		"length":          {func(b []byte) []byte { b[8+80] = 0x7f; return b }, logSuffix, 70},
		"magic":           {func(b []byte) []byte { b[16] = 9; return b }, logSuffix, 0},
		"cut":             {func(b []byte) []byte { return b[:len(b)-10] }, logSuffix, 70},
		"nothing left":    {func(b []byte) []byte { return nil }, logSuffix, 0},
		"offsets go back": {func(b []byte) []byte { b[70+7] = 0; return b }, logSuffix, 70},
	} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprint(name, clean), func(t *testing.T) {
				b := newBox(t, vfs.NewCrashable(), nil)
				b.start()
				l := b.log()
				appendTo(t, l, values(1, "a")) // 70 bytes
				appendTo(t, l, values(1, "b"))
				if n := len(values(1, "a")); n != 70 {
					t.Fatalf("a batch has %d bytes", n)
				}
				if name == "length" {
					c.edit = func(b []byte) []byte { b[70+8] = 0x7f; return b }
				}
				file := l.path(offsetName(0, c.file))
				b.close()
				before := fileBytes(t, b.fs, dataDir+"/"+recoveryFile)
				change(t, b.fs, file, c.edit)
				changed := fileBytes(t, b.fs, file)
				if !clean {
					b.fs.Remove(dataDir + "/" + cleanFile)
				}
				for range 2 { // it stays so
					b.start()
					l = b.m.Log("t", 0)
					var damage *Damage
					if err := l.Err(); !errors.As(err, &damage) || !errors.Is(err, ErrStorage) || !errors.Is(err, ErrDamaged) {
						t.Fatalf("error %v", err)
					}
					if damage.File != file || damage.Position != c.pos {
						t.Errorf("damage in %s at %d, want %s at %d: %s", damage.File, damage.Position, file, c.pos, damage.Reason)
					}
					if _, err := l.Append(Append{Records: values(1, "x"), RequestVersion: 9}); !errors.Is(err, ErrStorage) {
						t.Errorf("append: %v", err)
					}
					if _, err := l.Read(0, 1, 1, true); !errors.Is(err, ErrStorage) {
						t.Errorf("read: %v", err)
					}
					if _, err := b.m.Create("t", 0, [16]byte{1}); !errors.Is(err, ErrStorage) {
						t.Errorf("create: %v", err)
					}
					other, err := b.m.Create("other", 0, [16]byte{2})
					if err != nil {
						t.Fatal(err)
					}
					appendTo(t, other, values(1, "x"))
					if !strings.Contains(b.lines(), file) {
						t.Error("the file is not named in the log")
					}
					b.m.Close()
					if exists(b.fs, dataDir+"/"+cleanFile) {
						t.Error("marked clean with a damaged partition")
					}
					if got := fileBytes(t, b.fs, file); string(got) != string(changed) {
						t.Error("the damaged file was changed")
					}
					points, _ := parseCheckpoint(fileBytes(t, b.fs, dataDir+"/"+recoveryFile))
					if old, _ := parseCheckpoint(before); points[key{"t", 0}] != old[key{"t", 0}] {
						t.Errorf("recovery point %d, was %d", points[key{"t", 0}], old[key{"t", 0}])
					}
				}
			})
		}
	}
}

// TestMissingSegments: files that were flushed and are gone are damage too.
func TestMissingSegments(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 100 })
	b.start()
	l := b.log()
	for range 3 {
		appendTo(t, l, values(1, "a"))
	}
	b.close()
	b.fs.Remove(l.path(offsetName(2, logSuffix)))
	b.start()
	if err := b.m.Log("t", 0).Err(); !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v", err)
	}
	b.m.Close()
	b.fs.Remove(l.path(offsetName(1, logSuffix)))
	b.fs.Remove(l.path(offsetName(0, logSuffix)))
	b.start()
	if err := b.m.Log("t", 0).Err(); !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v", err)
	}
}

// TestGarbledIndexes follows store-1: whatever the index files hold, look-ups are right and the
// files are made anew, in closed and in active segments, after both kinds of stop.
func TestGarbledIndexes(t *testing.T) {
	garble := map[string]func([]byte) []byte{
		"zeros": func(b []byte) []byte { clear(b); return b },
		"ones": func(b []byte) []byte {
			for i := range b {
				b[i] = 0xff
			}
			return b
		},
		"cut":       func(b []byte) []byte { return b[:len(b)/2] },
		"odd":       func(b []byte) []byte { return b[:max(len(b)-1, 0)] },
		"empty":     func(b []byte) []byte { return nil },
		"swapped":   func(b []byte) []byte { return append(b[len(b)/2:len(b):len(b)], b[:len(b)/2]...) },
		"first bit": func(b []byte) []byte { b[0] ^= 0x20; return b },
		"last bit":  func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"last time": func(b []byte) []byte { b[len(b)-5] ^= 1; return b },
		"room":      func(b []byte) []byte { return append(b, make([]byte, 4096)...) },
		"rubbish":   func(b []byte) []byte { return append(b, "rubbish behind the end!!"...) },
	}
	for name, edit := range garble {
		for _, which := range []string{indexSuffix, timeSuffix} {
			for _, clean := range []bool{true, false} {
				t.Run(fmt.Sprint(name, which, clean), func(t *testing.T) {
					b := newBox(t, vfs.NewCrashable(), func(o *Options) {
						o.SegmentBytes, o.IndexIntervalBytes, o.RetentionMs = 2500, 100, -1
					})
					b.start()
					l := b.log()
					for i := range int64(60) {
						appendTo(t, l, values(startMs+i*1000, fmt.Sprint(i)))
					}
					if err := l.Flush(50); err != nil {
						t.Fatal(err)
					}
					b.close()
					sound := tree(t, b.fs, dataDir+"/t-0")
					for _, s := range l.segments() {
						change(t, b.fs, s.path(which), edit)
					}
					if !clean {
						b.fs.Remove(dataDir + "/" + cleanFile)
					}
					b.start()
					l = b.log()
					for i := range int64(60) {
						offset, _, _, found, err := l.OffsetForTime(startMs+i*1000-1, 60)
						if !found || offset != i || err != nil {
							t.Fatalf("time of %d is at %d, %v", i, offset, err)
						}
						if got := readAll(t, l, i); len(got) != int(60-i) || got[i] != fmt.Sprint(i) {
							t.Fatalf("from %d: %d records", i, len(got))
						}
					}
					if offset, _, _, _, err := l.MaxTimestamp(60); offset != 59 || err != nil {
						t.Errorf("largest at %d, %v", offset, err)
					}
					b.close()
					switch name {
					case "cut", "odd", "empty", "zeros", "room", "last time":
						return // enough of an offset index is right
					}
					got := tree(t, b.fs, dataDir+"/t-0")
					for file, want := range sound {
						if got[file] != want {
							t.Errorf("%s was not made anew:\n% x\n% x", file, got[file], want)
						}
					}
				})
			}
		}
	}
}

// TestSmallFilesDamaged: what can be made again from the batches is.
func TestSmallFilesDamaged(t *testing.T) {
	for _, file := range []string{"t-0/" + epochFile, "t-0/" + offsetName(6, snapshotSuffix), recoveryFile, watermarkFile, startFile} {
		for name, edit := range map[string]func([]byte) []byte{
			"empty":   func([]byte) []byte { return nil },
			"rubbish": func([]byte) []byte { return []byte("rubbish\nrubbish\n") },
			"cut":     func(b []byte) []byte { return b[:len(b)/2] },
			"flipped": func(b []byte) []byte { b[len(b)/2] ^= 0x10; return b },
		} {
			t.Run(file+" "+name, func(t *testing.T) {
				b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 300 })
				b.start()
				l := b.log()
				for i := range int32(6) {
					if _, err := l.Append(Append{Records: idempotent(1, 0, i, 1), Epoch: i / 2, RequestVersion: 9}); err != nil {
						t.Fatal(err)
					}
				}
				l.SetHighWatermark(6)
				b.close()
				if !exists(b.fs, dataDir+"/"+file) {
					t.Fatal("no such file")
				}
				change(t, b.fs, dataDir+"/"+file, edit)
				b.start()
				l = b.log()
				wantValues(t, l, 0, "0", "0", "0", "0", "0", "0")
				if e, end := l.EpochEnd(1); (e != 1 || end != 4 || l.LastEpoch() != 2) && name != "flipped" {
					t.Errorf("epoch 1 ends at %d (%d), last %d", end, e, l.LastEpoch())
				}
				a, err := l.Append(Append{Records: idempotent(1, 0, 5, 1), Epoch: 2, RequestVersion: 9})
				if err != nil || !a.Duplicate || a.First != 5 {
					t.Errorf("the last batch again: %+v, %v", a, err)
				}
			})
		}
	}
}

// TestDamagedSwap: a file of an interrupted compaction that is not what was made durable replaces nothing,
// and a repair sets it aside: all segments are there still.
func TestDamagedSwap(t *testing.T) {
	sound := batchOf(record.BuilderOptions{BaseOffset: 2}, rec{2, "2"}, rec{3, "3"})
	for what, c := range map[string]struct {
		edit func(b []byte) []byte
		at   int64
	}{
		"a record":       {func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, 0},
		"the offset":     {func(b []byte) []byte { b[4] ^= 1; return b }, -1},
		"a lower offset": {func(b []byte) []byte { b[7] = 0; return b }, 0},
		"cut":            {func(b []byte) []byte { return b[:len(b)-1] }, 0},
		"random":         {func([]byte) []byte { return []byte("twenty bytes of noise") }, 0},
		"a second batch": {func(b []byte) []byte { return append(b[:len(b):len(b)], b...) }, int64(len(sound))},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 150; o.RetentionMs = -1 })
			b.start()
			for i := range 8 {
				appendTo(t, b.log(), values(int64(i), fmt.Sprint(i)))
			}
			b.close()
			name := dataDir + "/t-0/" + offsetName(2, logSuffix+swapSuffix)
			for _, suffix := range []string{indexSuffix, timeSuffix} {
				if err := writeFile(b.fs, dataDir+"/t-0/"+offsetName(2, suffix+swapSuffix), nil, true); err != nil {
					t.Fatal(err)
				}
			}
			if err := writeFile(b.fs, name, c.edit(slices.Clone(sound)), true); err != nil {
				t.Fatal(err)
			}
			b.start()
			var damage *Damage
			if _, err := b.m.Create("t", 0, [16]byte{1}); !errors.As(err, &damage) || damage.File != name || damage.Position != c.at {
				t.Errorf("opened: %v", err)
			}
			b.close()
			report, err := Check(t.Context(), CheckOptions{FS: b.fs, Dir: dataDir})
			if err != nil || report.Wrong() != 3 || report.Repairable() != 3 {
				t.Fatalf("found %+v, %v", report, err)
			}
			if err := report.Repair(t.Context(), func(string) {}); err != nil {
				t.Fatal(err)
			}
			b.start()
			if got := readAll(t, b.log(), 0); len(got) != 8 {
				t.Errorf("read %v", got)
			}
			b.close()
			if !exists(b.fs, name+cutSuffix) {
				t.Error("what was set aside is not there")
			}
		})
	}
}

// TestLeftovers: what the suffixes say is done, as Kafka's LogLoader does.
func TestLeftovers(t *testing.T) {
	b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 150; o.RetentionMs = -1 })
	b.start()
	l := b.log()
	for i := range 8 {
		appendTo(t, l, values(int64(i), fmt.Sprint(i)))
	}
	b.close()
	dir := dataDir + "/t-0/"
	put := func(name string, data []byte) {
		t.Helper()
		if err := writeFile(b.fs, dir+name, data, true); err != nil {
			t.Fatal(err)
		}
	}
	// A compaction of offsets 2 to 5 was about to replace its segments: 3 is what is left.
	put(offsetName(2, logSuffix+swapSuffix), batchOf(record.BuilderOptions{BaseOffset: 3}, rec{3, "3"}, rec{4, "4"}, rec{5, "5"}))
	put(offsetName(2, indexSuffix+swapSuffix), nil)
	put(offsetName(2, timeSuffix+swapSuffix), nil)
	// One was not whole yet.
	put(offsetName(6, logSuffix+cleanedSuffix), []byte("half"))
	put(offsetName(7, logSuffix+swapSuffix), []byte("a split that was not whole"))
	put(offsetName(0, logSuffix+deletedSuffix), []byte("old"))
	put(offsetName(9, indexSuffix), []byte("an index without a log"))
	put(epochFile+temporarySuffix, []byte("half"))
	put("notes.txt", []byte("somebody's"))
	b.fs.MkdirAll(dataDir+"/t-1.0123456789abcdef0123456789abcdef-delete", 0)
	b.fs.MkdirAll(dataDir+"/t-2.0123456789abcdef0123456789abcdef-future", 0)
	b.fs.MkdirAll(dataDir+"/t-3.0123456789abcdef0123456789abcdef-stray", 0)
	b.fs.MkdirAll(dataDir+"/lost+found", 0)
	b.o.FileDeleteDelayMs = 0
	b.start()
	l = b.log()
	if got := readAll(t, l, 0); len(got) != 7 || got[1] != "1" || got[3] != "3" || got[7] != "7" {
		t.Errorf("read %v", got)
	}
	b.close()
	names, _ := b.fs.ReadDir(dir)
	for _, e := range names {
		if base, suffix, ok := parseOffsetName(e.Name()); ok && (strings.Count(suffix, ".") > 1 || base == 9) || strings.HasSuffix(e.Name(), ".tmp") {
			t.Errorf("%s is left", e.Name())
		}
	}
	if !exists(b.fs, dir+"notes.txt") || !exists(b.fs, dataDir+"/lost+found") {
		t.Error("something was deleted that nobody understood")
	}
	for i, want := range []bool{false, true, true} {
		name := fmt.Sprintf("%s/t-%d.0123456789abcdef0123456789abcdef-%s", dataDir, i+1, []string{"delete", "future", "stray"}[i])
		if exists(b.fs, name) != want {
			t.Errorf("%s: there is %v", name, !want)
		}
	}
	if b.m.Log("t", 1) != nil || b.m.Log("t", 2) != nil {
		t.Error("they were loaded")
	}
}

// TestOldIndexesKept: a start after a kill does not walk what was flushed, if the indexes of
// the active segment lead to the recovery point, and makes the same files.
func TestRecoveryResumes(t *testing.T) {
	reads := &countingFS{FS: vfs.NewCrashable()}
	b := newBox(t, reads, nil)
	b.start()
	l := b.log()
	const n = 400
	value := strings.Repeat("x", 10_000)
	for i := range int64(n) {
		appendTo(t, l, values(startMs+i%100, value)) // times that go back, too
		if i == n-20 {
			if err := l.Flush(l.End()); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.m.perform(t.Context(), taskFiles)
	if err := l.dir.savePoints(); err != nil {
		t.Fatal(err)
	}
	b.m.stopTasks()
	killed := reads.FS.(*vfs.Memory).KillClone()
	reads.FS = killed
	reads.bytes = 0
	b.start()
	l = b.log()
	if l.End() != n {
		t.Fatalf("end %d", l.End())
	}
	if reads.bytes > 8<<20 {
		t.Errorf("recovery read %d bytes of %d", reads.bytes, l.Size())
	}
	b.close()
	got := tree(t, killed, dataDir+"/t-0")

	// The same without indexes to begin with.
	b.fs = killed
	for _, suffix := range []string{indexSuffix, timeSuffix} {
		killed.Remove(l.path(offsetName(0, suffix)))
	}
	b.start()
	b.log()
	b.close()
	for name, want := range tree(t, killed, dataDir+"/t-0") {
		if got[name] != want {
			t.Errorf("%s differs", name)
		}
	}
	for _, i := range []int64{0, 1, 50, 98, 99} {
		b.fs = killed.KillClone()
		b.start()
		if offset, _, _, _, err := b.log().OffsetForTime(startMs+i, n); offset != i || err != nil {
			t.Fatalf("time %d is at %d, %v", i, offset, err)
		}
		b.close()
	}
}

// countingFS counts the bytes that are read from .log files.
type countingFS struct {
	vfs.FS
	bytes int64
}

type countingFile struct {
	vfs.File
	fs *countingFS
}

func (c *countingFS) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err == nil && strings.HasSuffix(name, logSuffix) {
		f = &countingFile{f, c}
	}
	return f, err
}

func (f *countingFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.bytes += int64(len(p))
	return f.File.ReadAt(p, off)
}
