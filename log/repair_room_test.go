package log

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"ottla/log/vfs"
)

// TestRepairWithoutRoom: a repair that finds no room has changed nothing. Had it taken the recovery point
// back already, the next start would cut the log at the damage.
func TestRepairWithoutRoom(t *testing.T) {
	for _, name := range []string{"*" + cutSuffix, "*" + cleanedSuffix, recoveryFile + "*"} {
		script := new(vfs.Script)
		b := newBox(t, vfs.WithErrors(vfs.NewCrashable(), script), func(o *Options) { o.SegmentBytes, o.RetentionMs = 250, -1 })
		b.start()
		l := b.log()
		for i := range int64(9) {
			appendTo(t, l, values(startMs+i, "v"))
		}
		b.close()
		for _, base := range []int64{0, 3} { // the second record of two segments
			change(t, b.fs, l.path(offsetName(base, logSuffix)), func(b []byte) []byte { b[75+40] ^= 1; return b })
		}
		script.Add(vfs.Fault{Op: vfs.OpWrite, Name: name, Err: syscall.ENOSPC})
		for range 2 {
			report, err := Check(t.Context(), CheckOptions{FS: b.fs, Dir: dataDir})
			if err != nil || report.Wrong() != 2 {
				t.Fatalf("%s: found %+v, %v", name, report, err)
			}
			if err := report.Repair(t.Context(), func(string) {}); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("%s: repaired: %v", name, err)
			}
		}
		if entries, _ := b.fs.ReadDir(dataDir + "/t-0"); name != recoveryFile+"*" {
			for _, e := range entries {
				if strings.Contains(e.Name(), cutSuffix) || strings.HasSuffix(e.Name(), cleanedSuffix) {
					t.Errorf("%s: %s is left", name, e.Name())
				}
			}
			if !exists(b.fs, dataDir+"/"+cleanFile) {
				t.Errorf("%s: the mark of a clean stop is gone", name)
			}
		}
		script.Clear()
		b.start()
		if got, err := tryReadAll(b.log(), 6, 1<<20); len(got) != 3 || err != nil {
			t.Errorf("%s: behind the damage %v, %v", name, got, err)
		}
		b.close()
	}
}
