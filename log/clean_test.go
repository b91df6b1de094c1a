package log

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

var someCleaner = CleanerOptions{Threads: 1, DedupeBytes: 1 << 20, LoadFactor: 0.9, BufferBytes: 4 << 10, Backoff: time.Second}

// compacted are options of a topic that is compacted whenever there is something to do.
func compacted(o *Options) {
	o.CleanupDelete, o.CleanupCompact = false, true
	o.SegmentBytes, o.IndexIntervalBytes, o.MinCleanableDirtyRatio = 400, 100, 0
	o.DeleteRetentionMs, o.RetentionMs = 1000, -1
}

// cleanWith does what the cleaner does after each backoff.
func cleanWith(m *Manager, o CleanerOptions) *cleaner {
	c := &cleaner{m: m}
	c.pass(context.Background(), o)
	return c
}

func clean(m *Manager) *cleaner { return cleanWith(m, someCleaner) }

// kv is a record of a compacted topic; "" as the value is a tombstone.
type kv struct{ key, value string }

func keyed(o record.BuilderOptions, now int64, recs ...kv) []byte {
	b := record.NewBuilder(nil, o)
	for _, r := range recs {
		var key, value []byte
		if r.key != "" {
			key = []byte(r.key)
		}
		if r.value != "" {
			value = []byte(r.value)
		}
		b.Add(now, key, value)
	}
	return b.Finish()
}

func putAll(t testing.TB, l *Log, recs ...kv) {
	t.Helper()
	for _, r := range recs {
		appendTo(t, l, keyed(record.BuilderOptions{}, l.m.nowMs(), r))
	}
}

// roll closes the active segment.
func roll(t testing.TB, l *Log) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.rollLocked(l.end.Load()); err != nil {
		t.Fatal(err)
	}
}

// contents are all entries of the log as text: each batch with what its header says, and its records.
func contents(t testing.TB, l *Log) string {
	t.Helper()
	var s strings.Builder
	for _, seg := range l.segments() {
		fmt.Fprintf(&s, "segment %d\n", seg.base)
		if seg.size.Load() == 0 {
			continue
		}
		data := fileBytes(t, l.m.fs, seg.path(logSuffix))
		for b := range record.All(data) {
			if b.CRC() != b.ComputeCRC() {
				t.Fatalf("wrong checksum at %d", b.BaseOffset())
			}
			fmt.Fprintf(&s, " %d-%d", b.BaseOffset(), b.LastOffset())
			if b.HasDeleteHorizon() {
				fmt.Fprintf(&s, " horizon %d", b.BaseTimestamp()-startMs)
			}
			if b.IsControl() {
				s.WriteString(" control")
			}
			for r, err := range record.Records(b, 0) {
				if err != nil {
					t.Fatal(err)
				}
				key, value := string(r.Key), string(r.Value)
				if r.Value == nil {
					value = "null"
				}
				if b.IsControl() {
					key, value = "marker", fmt.Sprint(r.Key[3])
				}
				fmt.Fprintf(&s, " %d:%s=%s", r.Offset, key, value)
			}
			s.WriteString("\n")
		}
	}
	return s.String()
}

func wantContents(t testing.TB, l *Log, want string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(want), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	var got []string
	for line := range strings.Lines(contents(t, l)) {
		got = append(got, strings.TrimSpace(line))
	}
	if !slices.Equal(got, lines) {
		t.Fatalf("the log is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

func cleanBox(t testing.TB, change func(*Options)) (*box, *Log) {
	b := newBox(t, vfs.NewCrashable(), func(o *Options) {
		compacted(o)
		o.SegmentBytes = 1 << 20
		if change != nil {
			change(o)
		}
	})
	b.start()
	return b, b.log()
}

// The rules for records: latest by key, tombstones with their horizon, keyless ones, what lies

// behind the dirty part.
func TestCleanKeepsTheLatest(t *testing.T) {
	b, l := cleanBox(t, nil)
	appendTo(t, l, keyed(record.BuilderOptions{}, startMs, kv{"a", "1"}, kv{"b", "1"}, kv{"a", "2"}))
	appendTo(t, l, keyed(record.BuilderOptions{}, startMs, kv{"b", ""}, kv{"c", "1"}))
	appendTo(t, l, keyed(record.BuilderOptions{}, startMs, kv{"d", "1"}))
	roll(t, l)
	putAll(t, l, kv{"a", "3"})
	clean(b.m)
	wantContents(t, l, `
		segment 0
		0-2 2:a=2
		3-4 horizon 1000 3:b=null 4:c=1
		5-5 5:d=1
		segment 6
		6-6 6:a=3`)
	if at, known := l.dir.cleanedUpTo(l); !known || at != 6 {
		t.Fatalf("cleaned up to %d, %v", at, known)
	}
	b.advance(999 * time.Millisecond)
	putAll(t, l, kv{"d", "2"})
	roll(t, l)
	clean(b.m)
	wantContents(t, l, `
		segment 0
		3-4 horizon 1000 3:b=null 4:c=1
		6-6 6:a=3
		7-7 7:d=2
		segment 8`)
	b.advance(time.Millisecond)
	putAll(t, l, kv{"e", "1"})
	roll(t, l)
	clean(b.m)
	wantContents(t, l, `
		segment 0
		3-4 horizon 1000 4:c=1
		6-6 6:a=3
		7-7 7:d=2
		8-8 8:e=1
		segment 9`)
	if got := readAll(t, l, 0); len(got) != 4 || got[4] != "1" || got[8] != "1" {
		t.Fatalf("reads %v", got)
	}
	l = b.kill()
	if got := readAll(t, l, 0); len(got) != 4 {
		t.Fatalf("reads %v after a kill", got)
	}
}

func TestCleanDropsRecordsWithoutKey(t *testing.T) {
	b, l := cleanBox(t, func(o *Options) { o.CleanupCompact = false })
	putAll(t, l, kv{"", "1"}, kv{"a", "1"}, kv{"", "2"}, kv{"b", "1"})
	roll(t, l)
	b.o.CleanupCompact = true
	clean(b.m)
	wantContents(t, l, `
		segment 0
		1-1 1:a=1
		3-3 3:b=1
		segment 4`)
	if !strings.Contains(b.lines(), "without a key") {
		t.Fatal(b.lines())
	}
}

// The last batch of a producer, and that of the part which is cleaned, stay as headers.
func TestCleanKeepsProducers(t *testing.T) {
	b, l := cleanBox(t, nil)
	from := func(id int64, seq int32) record.BuilderOptions {
		return record.BuilderOptions{Producer: &record.ProducerInfo{ID: id, Sequence: seq}}
	}
	appendTo(t, l, keyed(from(1, 0), startMs, kv{"a", "1"}))
	appendTo(t, l, keyed(from(1, 1), startMs, kv{"a", "2"}, kv{"a", "3"}))
	appendTo(t, l, keyed(from(2, 0), startMs, kv{"a", "4"}))
	appendTo(t, l, keyed(from(2, 1), startMs, kv{"b", "1"}))
	roll(t, l)
	clean(b.m)
	putAll(t, l, kv{"b", "2"})
	roll(t, l)
	clean(b.m)
	wantContents(t, l, `
		segment 0
		1-2
		3-3 3:a=4
		4-4
		5-5 5:b=2
		segment 6`)
	for _, restart := range []func() *Log{b.restart, b.kill} {
		l = restart()
		again, err := l.Append(Append{Records: keyed(from(1, 1), startMs, kv{"a", "2"}, kv{"a", "3"}), RequestVersion: 9})
		if err != nil || !again.Duplicate || again.First != 1 {
			t.Fatalf("%+v, %v", again, err)
		}
		if _, err := l.Append(Append{Records: keyed(from(2, 3), startMs, kv{"a", "2"}), RequestVersion: 9}); !errors.Is(err, ErrOutOfOrderSequence) {
			t.Fatal(err)
		}
	}
	// A producer that is forgotten leaves nothing.
	l.expireProducers(startMs + 1<<40)
	putAll(t, l, kv{"c", "1"})
	roll(t, l)
	clean(b.m)
	wantContents(t, l, `
		segment 0
		3-3 3:a=4
		5-5 5:b=2
		6-6 6:c=1
		segment 7`)
}

// What was aborted goes at once, its marker when delete.retention.ms has passed since, and so does

// one of a transaction that left nothing.
func TestCleanTransactions(t *testing.T) {
	b, l := cleanBox(t, nil)
	in := func(id int64, seq int32) record.BuilderOptions {
		return record.BuilderOptions{Producer: &record.ProducerInfo{ID: id, Sequence: seq, Transactional: true}}
	}
	appendTo(t, l, keyed(in(1, 0), startMs, kv{"a", "1"}))
	appendTo(t, l, keyed(in(2, 0), startMs, kv{"a", "2"}))
	appendMarker(t, l, true, 1, 0, 0)
	appendMarker(t, l, false, 2, 0, 0)
	roll(t, l)
	appendTo(t, l, keyed(in(1, 1), startMs, kv{"b", "1"}))
	appendTo(t, l, keyed(in(2, 1), startMs, kv{"b", "2"}))
	appendMarker(t, l, true, 1, 0, 0)
	appendMarker(t, l, true, 2, 0, 0)
	roll(t, l)
	putAll(t, l, kv{"c", "1"})
	clean(b.m)
	wantContents(t, l, `
		segment 0
		0-0 0:a=1
		2-2 control 2:marker=1
		3-3 control 3:marker=0
		4-4
		5-5 5:b=2
		6-6 control 6:marker=1
		7-7 control 7:marker=1
		segment 8
		8-8 8:c=1`)
	if got, err := l.AbortedIn(0, 8); err != nil || len(got) != 1 || got[0].Last != 3 {
		t.Fatalf("aborted: %v, %v", got, err)
	}
	if got := readAll(t, l, 0); got[0] != "1" || got[5] != "2" {
		t.Fatal(got)
	}
	l.expireProducers(startMs + 1<<40)
	putAll(t, l, kv{"d", "1"})
	roll(t, l)
	clean(b.m)
	// Nothing was left of the aborted transaction: from now on its marker has a horizon. Of the second
	// one of producer 1 the last header went just now.
	wantContents(t, l, `
		segment 0
		0-0 0:a=1
		2-2 control 2:marker=1
		3-3 horizon 1000 control 3:marker=0
		5-5 5:b=2
		6-6 control 6:marker=1
		7-7 control 7:marker=1
		8-8 8:c=1
		9-9 9:d=1
		segment 10`)
	if got, err := l.AbortedIn(0, 8); err != nil || len(got) != 0 {
		t.Fatalf("aborted: %v, %v", got, err)
	}
	b.advance(time.Second)
	putAll(t, l, kv{"e", "1"})
	roll(t, l)
	clean(b.m)
	wantContents(t, l, `
		segment 0
		0-0 0:a=1
		2-2 control 2:marker=1
		5-5 5:b=2
		6-6 horizon 2000 control 6:marker=1
		7-7 control 7:marker=1
		8-8 8:c=1
		9-9 9:d=1
		10-10 10:e=1
		segment 11`)
	if err := b.m.Log("t", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// Small segments become one, no larger than one may be.
func TestCleanGroups(t *testing.T) {
	b, l := cleanBox(t, func(o *Options) { o.SegmentBytes = 400 })
	for i := range 40 {
		putAll(t, l, kv{fmt.Sprint(i), "x"})
	}
	for i := range 40 {
		if i%4 > 0 {
			putAll(t, l, kv{fmt.Sprint(i), "y"})
		}
	}
	clean(b.m) // each group is as large as a segment, and loses three quarters
	putAll(t, l, kv{"z", "z"}, kv{"z", "z"})
	roll(t, l)
	before := len(l.segments())
	clean(b.m)
	bases := map[int64]bool{}
	for _, s := range l.segments() {
		bases[s.base] = true
		if s.size.Load() > 400 {
			t.Fatalf("a segment has %d bytes", s.size.Load())
		}
	}
	if len(bases) > before-3 {
		t.Fatalf("%d segments of %d", len(bases), before)
	}
	if got := readAll(t, l, 0); len(got) != 41 {
		t.Fatalf("%d records", len(got))
	}
	for _, at := range l.state.snapshot {
		if !bases[at] {
			t.Errorf("a snapshot at %d, where no segment begins", at)
		}
	}
	b.close()
	b.start()
	if got := readAll(t, b.log(), 0); len(got) != 41 {
		t.Fatalf("%d records after a stop", len(got))
	}
}

// A batch with a wrong checksum is not compacted, and nothing of its log.
func TestCleanRefusesDamage(t *testing.T) {
	b, l := cleanBox(t, nil)
	putAll(t, l, kv{"a", "1"}, kv{"a", "2"}, kv{"a", "3"})
	roll(t, l)
	name := l.segments()[0].path(logSuffix)
	change(t, b.fs, name, func(d []byte) []byte { d[len(d)-1] ^= 1; return d })
	before := fileBytes(t, b.fs, name)
	clean(b.m)
	clean(b.m)
	if got := fileBytes(t, b.fs, name); !slices.Equal(got, before) {
		t.Fatal("the file changed")
	}
	if n := strings.Count(b.lines(), "not compacted any more"); n != 1 || !l.uncleanable.Load() {
		t.Fatalf("told %d times: %s", n, b.lines())
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	if exists(b.fs, name+cleanedSuffix) || exists(b.fs, name+swapSuffix) {
		t.Fatal("something is left")
	}
}

// Whatever fails while a log is cleaned, the log is whole, and without room it is cleaned later.

// The world ends at each operation of a round, by kill and by power failure; what is opened then has

// the latest value of each key, and the next round ends what this one began.

// Rounds come between all kinds of writes, kills and power failures.

// keyedWorld is a compacted log with what was written to it.

// step appends a batch or a marker.

// check reads the log as a consumer of committed data.

// reopen ends the world after a flush, and opens what is left.
