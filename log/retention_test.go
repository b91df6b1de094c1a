package log

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ottla/log/vfs"
)

// bases are the base offsets of a log's segments.
func bases(l *Log) string {
	var list []string
	for _, s := range l.segments() {
		list = append(list, fmt.Sprint(s.base))
	}
	return strings.Join(list, " ")
}

// TestRetention follows store-3 and the rules of UnifiedLog.deleteOldSegments. Each record is a
// segment of its own; the clock stands at startMs.
func TestRetention(t *testing.T) {
	const hour = 3600_000
	for name, c := range map[string]struct {
		change func(*Options)
		times  []int64
		high   int64 // 0: the end
		start  int64
		left   string
	}{
		"by time":                   {func(o *Options) { o.RetentionMs = hour }, []int64{startMs - 3*hour, startMs - 2*hour, startMs, startMs}, 0, 2, "2 3"},
		"just not":                  {func(o *Options) { o.RetentionMs = hour }, []int64{startMs - hour, startMs}, 0, 0, "0 1"},
		"just so":                   {func(o *Options) { o.RetentionMs = hour }, []int64{startMs - hour - 1, startMs}, 0, 1, "1"},
		"all, the active one too":   {func(o *Options) { o.RetentionMs = hour }, []int64{startMs - 3*hour, startMs - 2*hour}, 0, 2, "2"},
		"seconds for milliseconds":  {func(o *Options) { o.RetentionMs = 60_000 }, []int64{startMs / 1000, startMs / 1000}, 0, 2, "2"},
		"the future stays":          {func(o *Options) { o.RetentionMs = 60_000 }, []int64{startMs + 9000*hour, startMs - 9*hour, startMs - 9*hour}, 0, 0, "0 1 2"},
		"never past high watermark": {func(o *Options) { o.RetentionMs = 60_000 }, []int64{startMs - hour, startMs - hour, startMs - hour}, 2, 2, "2"},
		"no timestamps: file time":  {func(o *Options) { o.RetentionMs = 60_000 }, []int64{-1, -1}, 0, 0, "0 1"},
		"by size":                   {func(o *Options) { o.RetentionBytes = 210 }, []int64{startMs, startMs, startMs, startMs, startMs}, 0, 2, "2 3 4"},
		"size, just not":            {func(o *Options) { o.RetentionBytes = 281 }, []int64{startMs, startMs, startMs, startMs, startMs}, 0, 0, "0 1 2 3 4"},
		"no limits":                 {func(o *Options) { o.RetentionMs = -1 }, []int64{1, 2}, 0, 0, "0 1"},
		"compacted only": {func(o *Options) { o.RetentionMs, o.CleanupDelete, o.CleanupCompact = hour, false, true },
			[]int64{1, 2}, 0, 0, "0 1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, vfs.NewCrashable(), func(o *Options) {
				o.SegmentBytes = 80
				o.RetentionMs = -1
				c.change(o)
			})
			b.start()
			l := b.log()
			for _, time := range c.times {
				appendTo(t, l, values(time, "x"))
			}
			if c.high > 0 {
				l.high.Store(c.high)
			}
			if name == "no timestamps: file time" {
				b.now = time.Now()
			}
			if _, err := l.retain(); err != nil {
				t.Fatal(err)
			}
			if l.Start() != c.start || bases(l) != c.left {
				t.Errorf("start %d, segments %s; want %d, %s", l.Start(), bases(l), c.start, c.left)
			}
			end := l.End()
			if l = b.restart(); l.Start() != c.start || l.End() != end || bases(l) != c.left {
				t.Errorf("after a restart [%d, %d), segments %s", l.Start(), l.End(), bases(l))
			}
			appendTo(t, l, values(startMs, "next"))
		})
	}
}

// TestRetentionKeepsReaders: who reads a segment that is deleted reads on; the files are
// renamed at once and removed after their delay.
func TestRetentionKeepsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMemory()
		o := *DefaultOptions()
		o.SegmentBytes, o.FileDeleteDelayMs, o.RetentionMs = 80, 60_000, 1000
		m, err := OpenManager(ManagerOptions{FS: fsys, Dirs: []string{dataDir}, TopicOptions: func(string) *Options { return &o },
			InitialTaskDelay: time.Second, RetentionCheck: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l, err := m.Create("t", 0, [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().UnixMilli()
		appendTo(t, l, values(now, "a"))
		appendTo(t, l, values(now+3600_000, "b"))
		c, err := l.Read(0, 1, 1000, true)
		if err != nil {
			t.Fatal(err)
		}
		name := dataDir + "/t-0/" + offsetName(0, logSuffix)
		time.Sleep(12 * time.Second)
		if l.Start() != 1 || exists(fsys, name) || !exists(fsys, name+deletedSuffix) {
			t.Errorf("start %d, renamed %v", l.Start(), exists(fsys, name+deletedSuffix))
		}
		time.Sleep(time.Minute)
		if exists(fsys, name+deletedSuffix) {
			t.Error("not removed")
		}
		buf := make([]byte, 5)
		if _, err := c.Range.ReadAt(buf, 0); err != nil {
			t.Errorf("the reader: %v", err)
		}
		c.Range.Release()
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
