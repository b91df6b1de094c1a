package record

import (
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// sink collects what is packed.
type sink struct {
	b    []byte
	from int // where this entry begins in b
	most int // bytes that the entry may have; 0 for no bound
}

func (s *sink) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), s.check()
}

// check ends the packing of something that will be refused for its size anyway.
func (s *sink) check() error {
	if n := len(s.b) - s.from; s.most > 0 && n > s.most {
		return fmt.Errorf("%w: %d bytes and more after conversion, which exceeds the maximum configured value of %d", ErrTooLarge, n, s.most)
	}
	return nil
}

// deflater packs records. It is pooled: after Close comes release.
type deflater interface {
	io.WriteCloser
	release()
}

// deflate begins to pack into out, in the form that the given message format has. Level 0 is
// the codec's default.
func deflate(codec Codec, level int, magic int8, out *sink) deflater {
	level = levelOf(codec, level)
	switch codec {
	case Gzip:
		return newGzipWriter(out, level)
	case Snappy:
		return newSnappyWriter(out)
	case Lz4:
		return newLz4Writer(out, level, magic == 0)
	case Zstd:
		return newZstdWriter(out, level)
	}
	return plainWriter{out}
}

type plainWriter struct{ *sink }

func (plainWriter) Close() error { return nil }
func (plainWriter) release()     {}

type gzipWriter struct {
	*gzip.Writer
	pool *sync.Pool
}

var gzipWriters [11]sync.Pool // by level + 1: -1 to 9

func newGzipWriter(out *sink, level int) *gzipWriter {
	pool := &gzipWriters[level+1]
	if g, ok := pool.Get().(*gzipWriter); ok {
		g.Reset(out)
		return g
	}
	w, err := gzip.NewWriterLevel(out, level)
	if err != nil {
		panic(err) // levelOf knows the range
	}
	return &gzipWriter{w, pool}
}

func (g *gzipWriter) release() {
	g.Reset(nil)
	g.pool.Put(g)
}

type zstdWriter struct {
	*zstd.Encoder
	pool *sync.Pool
}

var zstdWriters [zstd.SpeedBestCompression + 1]sync.Pool

func newZstdWriter(out *sink, level int) *zstdWriter {
	speed := zstd.EncoderLevelFromZstd(level)
	pool := &zstdWriters[speed]
	if z, ok := pool.Get().(*zstdWriter); ok {
		z.Reset(out)
		return z
	}
	// One encoder works on the caller's goroutine. A batch is rarely above the default
	// max.message.bytes, so a window of 1 MiB loses little, and readers must set it aside.
	w, err := zstd.NewWriter(out, zstd.WithEncoderLevel(speed), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20))
	if err != nil {
		panic(err) // the options are constant but for the level, which the library chose
	}
	return &zstdWriter{w, pool}
}

func (z *zstdWriter) release() {
	z.Reset(nil)
	z.pool.Put(z)
}
