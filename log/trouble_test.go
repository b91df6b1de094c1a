package log

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/log/vfs"
)

// count is how many log lines have all of the texts.
func (b *box) count(texts ...string) int {
	n := 0
lines:
	for line := range strings.Lines(b.lines()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		n++
	}
	return n
}

func tryAppend(l *Log, bytes int) error {
	_, err := l.Append(Append{Records: values(1, strings.Repeat("x", bytes)), RequestVersion: 9})
	return err
}

// TestFullDiskIsToldOnce: one line when there is no room any more, one when there is again, also
// where small writes still find some.
func TestFullDiskIsToldOnce(t *testing.T) {
	b, script := failingBox(t, nil)
	b.start()
	l := b.log()
	other, err := b.m.Create("other", 3, [16]byte{2})
	if err != nil {
		t.Fatal(err)
	}
	want := func(gone, back int) {
		t.Helper()
		const where = "topic=t partition=0 dir=" + dataDir
		if n, m := b.count("takes no writes", where), b.count("takes writes again", where); n != gone || m != back {
			t.Errorf("%d lines that there is no room, want %d; %d that there is, want %d:\n%s", n, gone, m, back, b.lines())
		}
	}
	for round := 1; round < 3; round++ {
		for range 5 { // a large one does not fit, a small one does
			script.Add(vfs.Fault{Op: vfs.OpWrite, Err: syscall.ENOSPC})
			if err := tryAppend(l, 1000); !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			script.Clear()
			if err := tryAppend(l, 1); err != nil {
				t.Fatal(err)
			}
		}
		if err := tryAppend(other, 1); err != nil {
			t.Fatal(err)
		}
		want(round, round-1)
		if round == 2 { // or small ones, for a while
			b.advance(settleRoom)
			err = tryAppend(l, 1)
		} else {
			err = tryAppend(l, 2000)
		}
		if err != nil {
			t.Fatal(err)
		}
		want(round, round)
	}
	if n := b.count("topic=other"); n != 0 {
		t.Errorf("%d lines of the other partition", n)
	}

	for _, task := range []task{taskPoints, taskWatermarks, taskPoints, taskStarts, taskWatermarks} {
		script.Add(vfs.Fault{Op: vfs.OpWrite, Err: syscall.ENOSPC})
		l.dir.pointsMoved.Store(true)
		l.dir.watermarksMoved.Store(true)
		b.m.perform(t.Context(), task)
		b.m.perform(t.Context(), taskRetention)
		b.m.perform(t.Context(), taskFiles)
	}
	if n := b.count("cannot write checkpoints", "dir="+dataDir); n != 1 {
		t.Errorf("%d lines of checkpoints", n)
	}
	script.Clear()
	b.m.perform(t.Context(), taskPoints)
	if n := b.count("checkpoints are written again"); n != 0 {
		t.Errorf("%d lines while one is missing", n)
	}
	b.m.perform(t.Context(), taskWatermarks)
	if n := b.count("checkpoints are written again", "dir="+dataDir); n != 1 {
		t.Errorf("%d lines of checkpoints", n)
	}
	b.close()
}

// TestDirectoryOfflineIsToldOnce: one line, and the gauges of Kafka.
func TestDirectoryOfflineIsToldOnce(t *testing.T) {
	b, script := failingBox(t, nil)
	reg := prometheus.NewRegistry()
	b.change = func(o *ManagerOptions) { o.Registerer = reg }
	b.start()
	l := b.log()
	other, err := b.m.Create("other", 0, [16]byte{2})
	if err != nil {
		t.Fatal(err)
	}
	gauges := func(want float64) {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, f := range families {
			switch f.GetName() {
			case "kafka_log_logmanager_offlinelogdirectorycount":
			case "kafka_log_logmanager_logdirectoryoffline":
				if label := f.GetMetric()[0].GetLabel()[0]; label.GetName() != "logDirectory" || label.GetValue() != dataDir {
					t.Errorf("label %v", label)
				}
			default:
				continue
			}
			seen++
			if got := f.GetMetric()[0].GetGauge().GetValue(); got != want {
				t.Errorf("%s is %v, want %v", f.GetName(), got, want)
			}
		}
		if seen != 2 {
			t.Errorf("%d gauges", seen)
		}
	}
	gauges(0)
	script.Add(vfs.Fault{Op: vfs.OpWrite, Err: syscall.EIO})
	for range 5 {
		for _, l := range []*Log{l, other} {
			if err := tryAppend(l, 1); !errors.Is(err, ErrStorage) {
				t.Fatal(err)
			}
		}
		b.m.perform(t.Context(), taskPoints)
		b.m.perform(t.Context(), taskRetention)
	}
	gauges(1)
	if n := b.count("level=ERROR", "log directory is offline", "topic=t partition=0", "dir="+dataDir); n != 1 || b.count("level=") != 1 {
		t.Errorf("%d lines:\n%s", n, b.lines())
	}
}

// TestReadErrorIsToldOnce: and again when it is another one, or after a while.
func TestReadErrorIsToldOnce(t *testing.T) {
	b, script := failingBox(t, nil)
	b.start()
	l := b.log()
	appendTo(t, l, values(1, "a"))
	appendTo(t, l, values(1, "b"))
	fail := func(err error, lines int) {
		t.Helper()
		script.Clear()
		script.Add(vfs.Fault{Op: vfs.OpRead, Err: err})
		for range 5 {
			if _, err := l.Read(0, 2, 1000, true); !errors.Is(err, ErrStorage) {
				t.Fatal(err)
			}
		}
		if n := b.count("cannot read a log", "topic=t partition=0 dir="+dataDir); n != lines {
			t.Errorf("%d lines, want %d:\n%s", n, lines, b.lines())
		}
	}
	fail(syscall.ENOMEM, 1)
	fail(syscall.ESTALE, 2)
	b.advance(tellAgain + time.Second)
	fail(syscall.ESTALE, 3)
	script.Clear()
	b.close()
}
