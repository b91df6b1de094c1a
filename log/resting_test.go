package log

import (
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"ottla/log/vfs"
)

// listFS calls back when a partition's directory is listed.
type listFS struct {
	vfs.FS
	listed func(name string)
}

func (f *listFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if f.listed != nil {
		f.listed(name)
	}
	return f.FS.ReadDir(name)
}

// TestCheckpointWhileOpening: a checkpoint that is written while a log that rested is opened, as after
// the removal of a deleted topic, keeps what the last one said of it: its start and its recovery point,
// which alone tells that records are missing.
func TestCheckpointWhileOpening(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		fsys := &listFS{FS: vfs.NewCrashable()}
		b := newBox(t, fsys, nil)
		b.start()
		l := b.log()
		for i := range int64(4) {
			appendTo(t, l, values(startMs+i, "v"))
		}
		if _, err := l.DeleteRecords(2); err != nil {
			t.Fatal(err)
		}
		b.close()
		if damaged {
			change(t, fsys, l.path(offsetName(0, logSuffix)), func(b []byte) []byte { return b[:len(b)-7] })
		}
		m, err := OpenManager(ManagerOptions{FS: fsys, Dirs: []string{dataDir}, BrokerID: 1, ClusterID: "cluster", Now: b.clock, Logger: slog.New(slog.NewTextHandler(b, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.LoadUnclean(); err != nil {
			t.Fatal(err)
		}
		d := m.dirs[0]
		fsys.listed = func(name string) {
			if strings.HasSuffix(strings.TrimSuffix(name, "/"), "t-0") {
				d.pointsMoved.Store(true)
				d.startsMoved.Store(true)
				d.watermarksMoved.Store(true)
				for _, err := range []error{d.savePoints(), d.saveStarts(), d.saveWatermarks()} {
					if err != nil {
						t.Error(err)
					}
				}
			}
		}
		l, err = m.Host("t", 0, [16]byte{1}, false)
		fsys.listed = nil
		if (err != nil) != damaged {
			t.Fatalf("damaged %v: %v", damaged, err)
		}
		if !damaged && l.Start() != 2 {
			t.Errorf("starts at %d", l.Start())
		}
		points, _ := parseCheckpoint(fileBytes(t, fsys, d.file(recoveryFile)))
		starts, _ := parseCheckpoint(fileBytes(t, fsys, d.file(startFile)))
		if k := (key{"t", 0}); points[k] != 4 || starts[k] != 2 {
			t.Errorf("damaged %v: the checkpoints say %v and %v", damaged, points, starts)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
