package log

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// BenchmarkClean cleans a log on disk whose keys are written four times each. MB/s are those of the
// log that is read and written again, as in the line that Kafka logs.
func BenchmarkClean(b *testing.B) {
	for _, size := range []int{100, 1000} {
		for _, codec := range []record.Codec{record.None, record.Lz4, record.Zstd} {
			b.Run(fmt.Sprintf("%dB/%s", size, codec), func(b *testing.B) { benchmarkClean(b, size, codec) })
		}
	}
}

func benchmarkClean(b *testing.B, size int, codec record.Codec) {
	const total = 64 << 20
	for b.Loop() {
		b.StopTimer()
		box := newBox(b, vfs.OS(), func(o *Options) { compacted(o); o.SegmentBytes, o.IndexIntervalBytes = 16<<20, 4096 })
		dir := b.TempDir()
		box.change = func(o *ManagerOptions) { o.Dirs = []string{dir} }
		box.start()
		l := box.log()
		r := rand.New(rand.NewPCG(1, 1))
		keys := total / size / 4
		value := make([]byte, size-30)
		for i := range value {
			value[i] = byte('a' + r.IntN(26))
		}
		for written := 0; written < total; {
			w := record.NewBuilder(nil, record.BuilderOptions{Codec: codec})
			for range max(16000/size, 1) {
				key := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(r.IntN(keys)))
				binary.BigEndian.PutUint64(value, r.Uint64())
				w.Add(startMs, append(key, "12345678"...), value)
				written += size
			}
			appendTo(b, l, w.Finish())
		}
		roll(b, l)
		o := someCleaner
		o.DedupeBytes, o.BufferBytes = 128<<20, 512<<10
		bytes := l.Size()
		b.StartTimer()
		c := cleanWith(box.m, o)
		b.StopTimer()
		s := c.last[0]
		if s.wroteRecs != int64(countKeys(l)) {
			b.Fatalf("%d records left", s.wroteRecs)
		}
		b.ReportMetric(float64(bytes)/1e6/s.took.Seconds(), "MB/s")
		b.ReportMetric(float64(s.readRecs)/1e6/s.took.Seconds(), "Mrec/s")
		box.close()
		b.StartTimer()
	}
}

func countKeys(l *Log) int {
	n := 0
	for from := int64(0); from < l.End(); {
		c, err := l.Read(from, l.End(), 1<<20, true)
		if err != nil || c.Range == nil {
			break
		}
		buf := make([]byte, c.Range.Len())
		c.Range.ReadAt(buf, 0)
		c.Range.Release()
		for batch := range record.All(buf) {
			n += int(batch.Count())
			from = batch.NextOffset()
		}
	}
	return n
}
