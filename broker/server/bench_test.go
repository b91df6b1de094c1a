package server

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"testing"

	"ottla/protocol"
)

// cpu returns the processor time that this process has used, in nanoseconds.
func cpu() int64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkRange compares the two ways of sending records; cpu/op counts both ends. It is what
// sendfileFrom comes from.
func BenchmarkRange(b *testing.B) {
	for _, size := range []int64{4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 1 << 20} {
		for _, way := range []string{"pread", "sendfile"} {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, way), func(b *testing.B) {
				f, _ := randomFile(b, int(size))
				var released atomic.Int32
				var r protocol.Range = fileRange{f, 0, size, &released}
				if way == "pread" {
					r = memRange{fileRange{f, 0, size, &released}}
				}
				s := start(b, options(func(context.Context, []byte) (protocol.Reply, error) {
					a, _ := rangesAnswer(&released, r)
					return protocol.Reply{Answer: a}, nil
				}))
				nc := dial(b, s)
				request := frameOf("x")
				buf := make([]byte, size+5)
				b.SetBytes(size)
				begun := cpu()
				for b.Loop() {
					nc.Write(request)
					if _, err := io.ReadFull(nc, buf); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(cpu()-begun)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// BenchmarkEcho is one small request and its answer, and sixteen in a row.
func BenchmarkEcho(b *testing.B) {
	for _, pipelined := range []int{1, 16} {
		b.Run(fmt.Sprint(pipelined), func(b *testing.B) {
			s := start(b, options(echo))
			nc := dial(b, s)
			var request []byte
			for range pipelined {
				request = append(request, frameOf("a request of some bytes, as they are")...)
			}
			buf := make([]byte, len(request))
			b.ReportAllocs()
			begun := cpu()
			for b.Loop() {
				nc.Write(request)
				if _, err := io.ReadFull(nc, buf); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu()-begun)/float64(b.N), "cpu-ns/op")
		})
	}
}
