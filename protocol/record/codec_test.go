package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

func TestCodecNames(t *testing.T) {
	for c, name := range codecNames {
		got, err := ParseCodec(strings.ToUpper(name))
		if got != Codec(c) || err != nil || got.Name() != name {
			t.Error(name, got, err)
		}
	}
	for name, want := range map[string]Codec{"producer": Producer, "uncompressed": None} {
		if got, err := ParseCodec(name); got != want || err != nil {
			t.Error(name, got, err)
		}
	}
	if _, err := ParseCodec("lzma"); err == nil || Codec(5).Known() || Producer.Known() {
		t.Error("unknown codecs are known")
	}
	if Producer.Name() != "producer" || Codec(6).String() != "unknown(6)" {
		t.Error(Producer, Codec(6))
	}
}

func packed(t testing.TB, c Codec, level int, magic int8, plain []byte) []byte {
	t.Helper()
	var out sink
	w := deflate(c, level, magic, &out)
	for rest := plain; len(rest) > 0; { // in pieces
		n := min(len(rest), 1+len(plain)/3)
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.release()
	return out.b
}

func unpacked(c Codec, body []byte, magic int8) ([]byte, error) {
	f, err := inflate(c, body, magic, true)
	if err != nil {
		return nil, err
	}
	defer f.close()
	return io.ReadAll(f)
}

// pieces to pack: nothing, little, a block exactly, many blocks, what packs well and what does not.
func pieces() [][]byte {
	noise := make([]byte, 300_000)
	x := uint32(7)
	for i := range noise {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	text := bytes.Repeat([]byte("so it goes, and goes; "), 20_000)
	return [][]byte{nil, {1}, noise[:100], text[:100], noise[:64<<10], text[:32<<10], noise, text, append(bytes.Clone(noise), text...)}
}

func TestCodecsAtEveryLevel(t *testing.T) {
	levels := map[Codec][]int{
		None: {0}, Snappy: {0, 99},
		Gzip: {0, -1, 1, 2, 6, 8, 9, 99, -99},
		Lz4:  {0, 1, 2, 5, 8, 9, 10, 17, 99, -1},
		Zstd: {0, -131072, 1, 5, 8, 22, 99, -1 << 30},
	}
	for c, all := range levels {
		for _, level := range all {
			for i, plain := range pieces() {
				for _, magic := range []int8{0, 2} {
					body := packed(t, c, level, magic, plain)
					if c == None {
						continue
					}
					got, err := unpacked(c, body, magic)
					if len(plain) == 0 && len(body) == 0 && err != nil {
						continue // an empty body of zstd is no frame
					}
					if err != nil || !bytes.Equal(got, plain) {
						t.Errorf("%s at level %d, piece %d: %d of %d bytes, %v", c, level, i, len(got), len(plain), err)
					}
				}
			}
		}
	}
}

func TestLevels(t *testing.T) {
	text := pieces()[7]
	for _, c := range []struct {
		codec     Codec
		low, high int
	}{{Gzip, 1, 9}, {Lz4, 9, 17}, {Zstd, 1, 22}} {
		if low, high := len(packed(t, c.codec, c.low, 2, text)), len(packed(t, c.codec, c.high, 2, text)); low < high {
			t.Errorf("%s: %d bytes at level %d, %d at %d", c.codec, low, c.low, high, c.high)
		}
	}
	if d, want := len(packed(t, Lz4, 0, 2, text)), len(packed(t, Lz4, 9, 2, text)); d != want {
		t.Error("lz4's default is 9")
	}
}

// What other writers make of the formats.
func TestForeignForms(t *testing.T) {
	text := pieces()[7]
	rawSnappy := snappy.Encode(nil, text)
	xerial := packed(t, Snappy, 0, 2, text)
	gz := packed(t, Gzip, 0, 2, text)
	zs := packed(t, Zstd, 0, 2, text)
	frame := func(o ...lz4.Option) []byte {
		var out bytes.Buffer
		w := lz4.NewWriter(&out)
		if err := w.Apply(o...); err != nil {
			t.Fatal(err)
		}
		w.Write(text)
		w.Close()
		return out.Bytes()
	}
	oldLz4 := packed(t, Lz4, 0, 0, text)
	twice := append(bytes.Clone(text), text...)
	skippable := append([]byte{0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}, zs...)
	for _, c := range []struct {
		name  string
		codec Codec
		magic int8
		body  []byte
		want  []byte
		ok    bool
	}{
		{"raw snappy", Snappy, 2, rawSnappy, text, true},
		{"raw snappy in v0", Snappy, 0, rawSnappy, text, true},
		{"xerial twice", Snappy, 2, append(bytes.Clone(xerial), xerial...), twice, true},
		{"xerial and less than a length", Snappy, 2, append(bytes.Clone(xerial), 1, 2, 3), text, true},
		{"xerial cut", Snappy, 2, xerial[:len(xerial)-1], nil, false},
		{"xerial of version 0", Snappy, 2, append([]byte(xerialMagic+"\x00\x00\x00\x00"), xerial[12:]...), nil, false},
		{"gzip members", Gzip, 2, append(bytes.Clone(gz), gz...), twice, true},
		{"gzip and rubbish", Gzip, 2, append(bytes.Clone(gz), "rubbish after it"...), text, true},
		{"gzip cut", Gzip, 2, gz[:len(gz)-9], nil, false},
		{"zstd frames", Zstd, 2, append(bytes.Clone(zs), zs...), twice, true},
		{"zstd and a frame to skip", Zstd, 2, skippable, text, true},
		{"zstd cut", Zstd, 2, zs[:len(zs)-1], nil, false},
		{"lz4 with large blocks", Lz4, 2, frame(lz4.BlockSizeOption(lz4.Block4Mb)), text, true},
		{"lz4 with sums", Lz4, 2, frame(lz4.BlockChecksumOption(true), lz4.ChecksumOption(true), lz4.BlockSizeOption(lz4.Block64Kb)), text, true},
		{"lz4 with size", Lz4, 2, frame(lz4.SizeOption(uint64(len(text)))), text, true},
		{"lz4 of v0", Lz4, 0, oldLz4, text, true},
		{"lz4 of v0 in v2", Lz4, 2, oldLz4, nil, false},
		{"right lz4 in v0", Lz4, 0, frame(), text, true},
		{"lz4 cut", Lz4, 2, frame()[:100], nil, false},
		{"nothing", Lz4, 2, nil, nil, false},
		{"nothing", Gzip, 2, nil, nil, false},
		{"nothing", Snappy, 2, nil, nil, false},
		{"nothing", Zstd, 2, nil, nil, false},
	} {
		got, err := unpacked(c.codec, c.body, c.magic)
		if c.ok && (err != nil || !bytes.Equal(got, c.want)) {
			t.Errorf("%s: %d of %d bytes, %v", c.name, len(got), len(c.want), err)
		}
		if !c.ok && !errors.Is(err, ErrCodec) {
			t.Errorf("%s, %s: %v", c.codec, c.name, err)
		}
	}
}

// Kafka's old producers sum the frame's magic too; this header is from 0.8.2.2.
func TestLz4Header(t *testing.T) {
	for magic, want := range map[int8]string{0: "\x04\x22\x4d\x18\x60\x40\x1a", 1: "\x04\x22\x4d\x18\x60\x40\x82", 2: "\x04\x22\x4d\x18\x60\x40\x82"} {
		if got := packed(t, Lz4, 0, magic, []byte("v")); string(got[:7]) != want {
			t.Errorf("v%d: %x, want %x", magic, got[:7], want)
		}
	}
}

func TestXXH32(t *testing.T) {
	for s, want := range map[string]uint32{"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff, "Nobody inspects the spammish repetition": 0xe2293b2f} {
		if got := xxh32([]byte(s)); got != want {
			t.Errorf("%q: %08x, want %08x", s, got, want)
		}
	}
}

func TestSnappyExtensionsAreRefused(t *testing.T) {
	for _, block := range [][]byte{
		{5, 0, 'a', 1, 0},                    // S2's repeat: a copy from 0 back
		{5, 0, 'a', 0x01, 2},                 // a copy from before the beginning
		{0x80, 0x80, 0x80, 0x80, 0x08, 0, 1}, // 2 GiB, it says
		{1, 0xfc, 0xff, 0xff, 0xff, 0xff},    // a literal of 4 GiB
		{2, 0, 'a'},                          // less than it says
	} {
		if _, err := unpacked(Snappy, block, 2); !errors.Is(err, ErrCodec) {
			t.Errorf("%x: %v", block, err)
		}
	}
}

// allocated is how many bytes were allocated during do.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // the pools are empty now
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Memory follows the bytes that are there, not what they claim or what they unpack to.
func TestMemoryIsBounded(t *testing.T) {
	zeros := make([]byte, 32<<20)
	record := appendRecord(nil, 0, 0, nil, zeros, nil)
	claim := func(at int, b []byte, value byte) []byte { b = bytes.Clone(b); b[at] = value; return b }
	small := packed(t, Zstd, 0, 2, []byte("some bytes"))
	streamed := func() []byte { // as Java does it: no size, a window of 2 MiB
		var out bytes.Buffer
		w, _ := zstd.NewWriter(&out, zstd.WithWindowSize(2<<20), zstd.WithSingleSegment(false))
		w.Write([]byte("some "))
		w.Flush()
		w.Write([]byte("bytes"))
		w.Close()
		return out.Bytes()
	}()
	const mib = 1 << 20
	for _, c := range []struct {
		name  string
		codec Codec
		body  []byte
		most  uint64
	}{
		{"gzip bomb", Gzip, packed(t, Gzip, 0, 2, record), 2 * mib},
		{"snappy bomb", Snappy, packed(t, Snappy, 0, 2, record), mib},
		{"lz4 bomb", Lz4, packed(t, Lz4, 0, 2, record), mib},
		{"zstd bomb", Zstd, packed(t, Zstd, 0, 2, record), 4 * mib},
		{"lz4 claims blocks of 4 MiB", Lz4, []byte("\x04\x22\x4d\x18\x60\x70\x73\x02\x00\x00\x00\x10a\x00\x00\x00\x00"), mib},
		{"zstd window of 2 MiB", Zstd, streamed, mib},
		{"zstd claims a window of 128 MiB", Zstd, claim(5, streamed, 17<<3), mib},
		{"snappy claims 1 GiB", Snappy, append(binary.AppendUvarint(nil, 1<<30), 0, 'a'), mib},
		{"gzip of zeros", Gzip, bytes.Repeat([]byte{0}, 1000), mib},
		{"plain zstd", Zstd, small, mib},
	} {
		b := change(raw(None, 1, c.body), func(b Batch) { b.SetAttributes(int16(c.codec)) })
		got := allocated(func() {
			_, err := Validate(b, open())
			if strings.HasSuffix(c.name, "bomb") != (err == nil) {
				t.Errorf("%s: %v", c.name, err)
			}
		})
		if got > c.most {
			t.Errorf("%s: %d KiB allocated for %d bytes", c.name, got>>10, len(c.body))
		}
	}
	// A record that says it is 2 GiB, for those who want its content.
	huge := raw(Gzip, 1, append(appendVarint(nil, 1<<31-1), make([]byte, 1000)...))
	if got := allocated(func() {
		for _, err := range Records(huge, 0) {
			if !errors.Is(err, ErrInvalidRecord) {
				t.Error(err)
			}
		}
	}); got > mib {
		t.Errorf("%d KiB for a claimed record", got>>10)
	}
	inner := nest(1, Gzip, append(make([]byte, 8), 0x7f, 0xff, 0xff, 0xff, 1, 2, 3))
	if got := allocated(func() {
		r := open()
		r.RequestVersion = 2
		if _, err := Validate(inner, r); !errors.Is(err, ErrInvalidRecord) {
			t.Error(err)
		}
	}); got > 2*mib { // most of it the writer for what the set is converted to
		t.Errorf("%d KiB for a claimed message", got>>10)
	}
}

func TestLargeZstdWindows(t *testing.T) {
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, zstd.WithWindowSize(16<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	record := appendRecord(nil, 0, 0, nil, make([]byte, 20<<20), nil)
	w.Write(record)
	w.Close()
	b := change(raw(None, 1, out.Bytes()), func(b Batch) { b.SetAttributes(int16(Zstd)) })
	var done sync.WaitGroup
	for range 3 { // they wait for each other
		done.Go(func() {
			if _, err := Validate(bytes.Clone(b), open()); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if !largeWindow.TryLock() {
		t.Fatal("the lock is still held")
	}
	largeWindow.Unlock()
	// An iterator may be used inside of another, so it does not wait.
	for r1, err1 := range Records(b, 0) {
		for r2, err2 := range Records(b, 0) {
			if err1 != nil || err2 != nil || !bytes.Equal(r1.Value, r2.Value) {
				t.Error(err1, err2)
			}
		}
	}
	if _, err := unpacked(Zstd, []byte("\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x08\x01\x00\x00"), 2); !errors.Is(err, ErrCodec) {
		t.Error("a single segment that cannot be that large:", err)
	}
}

func TestZstdWindow(t *testing.T) {
	for _, size := range []uint64{0, 1, 1024, 1025, 1152, 1153, 128 << 10, 1<<20 + 1, 100 << 20} {
		window, d := zstdWindow(size)
		base := uint64(1) << (10 + d>>3)
		if window < size || window != base+base/8*uint64(d&7) || size > 2048 && window > size+size/4 {
			t.Errorf("%d: %d, %02x", size, window, d)
		}
	}
}

func TestDecodersHaveNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 10 {
		if _, err := unpacked(Zstd, packed(t, Zstd, 0, 2, pieces()[8]), 2); err != nil {
			t.Fatal(err)
		}
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines more", after-before)
	}
}

func TestCodecsFromManyGoroutines(t *testing.T) {
	var done sync.WaitGroup
	for _, c := range []Codec{Gzip, Snappy, Lz4, Zstd} {
		for range 4 {
			done.Go(func() {
				for _, plain := range slices.Backward(pieces()) {
					body := packed(t, c, 0, 2, plain)
					if got, err := unpacked(c, body, 2); len(body) > 0 && (err != nil || !bytes.Equal(got, plain)) {
						t.Error(c, err)
					}
				}
			})
		}
	}
	done.Wait()
}
