package record

import (
	"fmt"
	"testing"
)

func BenchmarkValidate(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		for _, c := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
			batch := bulk(c, 100_000/size, size)
			b.Run(fmt.Sprintf("%s/%d", c, size), func(b *testing.B) {
				r := open()
				b.SetBytes(int64(len(batch)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Validate(batch, r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkCRC(b *testing.B) {
	batch := bulk(None, 1000, 100)
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		batch.ComputeCRC()
	}
}

func BenchmarkRecords(b *testing.B) {
	batch := bulk(None, 1000, 100)
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range Records(batch, 0) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkBuilder(b *testing.B) {
	value, buf := make([]byte, 100), []byte(nil)
	b.ReportAllocs()
	for b.Loop() {
		n := NewBuilder(buf[:0], BuilderOptions{})
		for range 100 {
			n.Add(1, nil, value)
		}
		buf = n.Finish()
	}
}
