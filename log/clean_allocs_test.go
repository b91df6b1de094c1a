package log

import (
	"fmt"
	"runtime"
	"testing"

	"ottla/protocol/record"
)

// A round allocates nothing for a record: ten times as many in batches of ten times the size cost no more.
func TestCleanAllocatesNothingForRecords(t *testing.T) {
	round := func(codec record.Codec, perBatch int) uint64 {
		b, l := cleanBox(t, func(o *Options) { o.SegmentBytes = 64 << 20 })
		for i := range 50 {
			var recs []kv
			for j := range perBatch {
				recs = append(recs, kv{fmt.Sprint("key ", (i*perBatch+j)%(20*perBatch)), "some value"})
			}
			appendTo(t, l, keyed(record.BuilderOptions{Codec: codec}, startMs, recs...))
		}
		roll(t, l)
		clean(b.m)
		putAll(t, l, kv{"last", "x"})
		roll(t, l)
		l.dir.saveCleaned(l, 0) // all of it once more, with what a first round made being there
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		clean(b.m)
		runtime.ReadMemStats(&after)
		b.close()
		return after.Mallocs - before.Mallocs
	}
	for codec := record.None; codec <= record.Zstd; codec++ {
		few, many := round(codec, 20), round(codec, 200)
		if many > few+2000 { // of 10,000 records
			t.Errorf("%s: %d allocations, with ten times the records %d", codec, few, many)
		}
	}
}
