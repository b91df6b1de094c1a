package log

import (
	"errors"
	"fmt"
	"testing"

	"ottla/log/vfs"
)

// TestMisplacedSegment: a file with another segment's content, or with none, under a name in between is not
// what the others are cut for, neither by a start that trusts no recovery point nor by a repair.
func TestMisplacedSegment(t *testing.T) {
	for what, c := range map[string]struct {
		copied, to int64 // base that is copied, -1: an empty file; the copy's name
		moved      bool
		damage     bool // the partition is offline until the repair
		lost       int  // records that a repair gives up
	}{
		"empty in between":        {-1, 3, false, false, 0},
		"a copy in between":       {2, 3, false, true, 0},
		"a copy below":            {4, 1, false, true, 0},
		"a copy at the end":       {2, 8, false, true, 0},
		"a copy far behind":       {2, 1 << 31, false, true, 0},
		"the only one, far ahead": {2, 9, true, true, 2},
		"over the first one":      {4, 0, false, true, 2},
	} {
		for _, clean := range []bool{false, true} {
			t.Run(fmt.Sprint(what, clean), func(t *testing.T) {
				b := newBox(t, vfs.NewCrashable(), func(o *Options) { o.SegmentBytes = 150; o.RetentionMs = -1 })
				b.start()
				for i := range 8 {
					appendTo(t, b.log(), values(int64(i), fmt.Sprint(i)))
				}
				b.close()
				dir := dataDir + "/t-0/"
				var data []byte
				if c.copied >= 0 {
					var err error
					if data, err = readFile(b.fs, dir+offsetName(c.copied, logSuffix)); err != nil {
						t.Fatal(err)
					}
				}
				file := dir + offsetName(c.to, logSuffix)
				if err := writeFile(b.fs, file, data, true); err != nil {
					t.Fatal(err)
				}
				if c.moved {
					b.fs.Remove(dir + offsetName(c.copied, logSuffix))
				}
				if !clean {
					b.fs.Remove(dataDir + "/" + cleanFile)
					b.fs.Remove(dataDir + "/" + recoveryFile)
				}
				report, err := Check(t.Context(), CheckOptions{FS: b.fs, Dir: dataDir})
				if err != nil || (report.Wrong() > 0) != c.damage {
					t.Fatalf("found %+v, %v", report, err)
				}
				b.start()
				_, err = b.m.Create("t", 0, [16]byte{1})
				var damage *Damage
				switch {
				case err == nil && clean: // what is between others is not looked at
					if got := readAll(t, b.log(), 0); len(got) != 8 && c.lost == 0 {
						t.Errorf("read %v", got)
					}
				case (err != nil) != c.damage || err != nil && (!errors.As(err, &damage) || damage.File != file || damage.Position != 0):
					t.Errorf("opened: %v", err)
				}
				b.close()
				if report, err = Check(t.Context(), CheckOptions{FS: b.fs, Dir: dataDir}); err != nil {
					t.Fatal(err)
				}
				if err := report.Repair(t.Context(), func(string) {}); err != nil {
					t.Fatal(err)
				}
				b.start()
				if got := readAll(t, b.log(), b.log().Start()); len(got) != 8-c.lost {
					t.Errorf("read %v", got)
				}
				b.close()
				if c.damage && !exists(b.fs, file+cutSuffix) {
					t.Error("what was set aside is not there")
				}
			})
		}
	}
}
