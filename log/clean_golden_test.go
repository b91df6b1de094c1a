package log

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// TestCleanLikeKafka writes what Kafka's topic "compacted" had before it was cleaned: 30 records on 5
// keys, 5 s apart, the last one a tombstone, and two more in later segments. Cleaned at the time when
// Kafka did it, the log and its time index are Kafka's, byte for byte.
func TestCleanLikeKafka(t *testing.T) {
	for _, from := range []string{"kafka-4.4.0-kraft", "kafka-3.9.1-zk"} {
		t.Run(from, func(t *testing.T) {
			dir := filepath.Join("testdata", from, "data", "compacted-0")
			read := func(name string) []byte {
				data, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				return data
			}
			want := read("00000000000000000000.log")
			times, horizon := map[int64]int64{}, int64(0)
			for b := range record.All(append(bytes.Clone(want), read("00000000000000000031.log")...)) {
				times[b.BaseOffset()] = b.MaxTimestamp()
				if b.HasDeleteHorizon() {
					horizon = b.BaseTimestamp()
				}
			}
			b := newBox(t, vfs.NewCrashable(), func(o *Options) {
				o.CleanupDelete, o.CleanupCompact, o.MinCleanableDirtyRatio = false, true, 0.01
				o.DeleteRetentionMs, o.SegmentMs = 1000, 60_000
			})
			b.now = time.UnixMilli(horizon - b.o.DeleteRetentionMs)
			b.start()
			l := b.log()
			for i := range int64(32) {
				key, value := fmt.Sprint("key-", i%5), fmt.Appendf(nil, "version-%d", i)
				at, ok := times[i]
				switch {
				case !ok:
					at = times[25] - (25-i)*5000
				case i == 29:
					value = nil
				case i == 30:
					key, value = "last", []byte("active segment")
				case i == 31:
					key, value = "last", []byte("active segment 2")
				}
				w := record.NewBuilder(nil, record.BuilderOptions{BaseOffset: i})
				w.Add(at, []byte(key), value)
				if _, err := l.AppendAsFollower(w.Finish()); err != nil {
					t.Fatal(err)
				}
			}
			l.SetHighWatermark(32)
			clean(b.m)
			for suffix, want := range map[string][]byte{logSuffix: want, timeSuffix: read("00000000000000000000.timeindex"), indexSuffix: read("00000000000000000000.index")} {
				if got := fileBytes(t, b.fs, l.path(offsetName(0, suffix))); !bytes.Equal(got, want) {
					t.Errorf("%s is\n%x\nwant\n%x\n%s", suffix, got, want, contents(t, l))
				}
			}
			if got := fileBytes(t, b.fs, l.path(offsetName(31, logSuffix))); !bytes.Equal(got, read("00000000000000000031.log")) {
				t.Error("the active segment is another")
			}
			if at, _ := l.dir.cleanedUpTo(l); at != 31 {
				t.Errorf("cleaned up to %d", at)
			}
		})
	}
}
