package record

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// The decoder sets aside a frame's whole window at its first block, and the window is only a
// claim: Java's producer claims 2 MiB for a hundred bytes, and 128 MiB can be had by anybody.
// So the frames' block headers are walked first, which says how much they can unpack to at
// most, and the decoder is shown a window no larger than that.
const (
	maxZstdWindow  = 128 << 20 // as zstd's own decoders, and so Kafka's, have it
	freeZstdWindow = 8 << 20   // above it one at a time, and the decoder is not kept
	maxZstdBlock   = 128 << 10
	minZstdWindow  = 1 << 10
)

// largeWindow is held while a frame with a window above freeZstdWindow is read.
var largeWindow sync.Mutex

var errZstdFrame = errors.New("broken zstd frame")

type zstdReader struct {
	dec    *zstd.Decoder
	src    zstdSource
	locked bool
	large  bool
}

func (z *zstdReader) reset(body []byte, alone bool) (err error) {
	if len(body) == 0 {
		return io.ErrUnexpectedEOF
	}
	window := uint64(0)
	for rest := body; len(rest) > 0; {
		f, err := parseZstdFrame(rest)
		if err != nil {
			return err
		}
		window = max(window, f.window)
		rest = rest[f.size:]
	}
	if window > maxZstdWindow {
		return errors.New("zstd window too large")
	}
	z.large = window > freeZstdWindow
	if z.large && alone {
		largeWindow.Lock()
		z.locked = true
	}
	z.src = zstdSource{data: body}
	if z.dec == nil {
		// With one decoder it works on the caller's goroutine and has none of its own, so that
		// the garbage collector may take it out of the pool without a Close.
		z.dec, err = zstd.NewReader(&z.src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
		return err
	}
	return z.dec.Reset(&z.src)
}

func (z *zstdReader) Read(p []byte) (int, error) { return z.dec.Read(p) }

func (z *zstdReader) drop() {
	if z.dec != nil {
		z.dec.Reset(nil)
	}
	if z.large {
		z.dec = nil
	}
	if z.locked {
		largeWindow.Unlock()
	}
	z.src, z.large, z.locked = zstdSource{}, false, false
}

// zstdSource reads frames, each with the window that it needs instead of the one it claims.
type zstdSource struct {
	data  []byte
	pos   int
	end   int  // of the frame at pos
	at    int  // where the byte to change lies, 0 for none
	value byte // what it becomes
}

func (s *zstdSource) Read(p []byte) (int, error) {
	if s.pos == s.end {
		if s.pos == len(s.data) {
			return 0, io.EOF
		}
		f, err := parseZstdFrame(s.data[s.pos:])
		if err != nil {
			return 0, err
		}
		s.at, s.value = 0, f.descriptor
		if f.descriptorAt > 0 {
			s.at = s.pos + f.descriptorAt
		}
		s.end += f.size
	}
	n := copy(p, s.data[s.pos:s.end])
	if s.at >= s.pos && s.at < s.pos+n && s.at > 0 {
		p[s.at-s.pos] = s.value
	}
	s.pos += n
	return n, nil
}

type zstdFrame struct {
	size         int    // of the whole frame in bytes
	window       uint64 // that it needs
	descriptorAt int    // where the claimed window stands, 0 if nowhere
	descriptor   byte   // the needed one in its form
}

// parseZstdFrame walks one frame (RFC 8878, section 3) without unpacking anything.
func parseZstdFrame(b []byte) (f zstdFrame, err error) {
	if len(b) < 8 {
		return f, errZstdFrame
	}
	magic := binary.LittleEndian.Uint32(b)
	if magic&^0xf == 0x184d2a50 { // a frame to be skipped
		size := uint64(binary.LittleEndian.Uint32(b[4:])) + 8
		if size > uint64(len(b)) {
			return f, errZstdFrame
		}
		return zstdFrame{size: int(size)}, nil
	}
	if magic != 0xfd2fb528 {
		return f, errZstdFrame
	}
	flags := b[4]
	single, checksum := flags&0x20 != 0, flags&0x04 != 0
	at := 5
	claimed := uint64(0)
	if !single {
		d := b[at]
		base := uint64(1) << (10 + d>>3)
		claimed = base + base/8*uint64(d&7)
		f.descriptorAt = at
		at++
	}
	at += [...]int{0, 1, 2, 4}[flags&3] // dictionary id
	contentSize := [...]int{0, 2, 4, 8}[flags>>6]
	if single && contentSize == 0 {
		contentSize = 1
	}
	if len(b) < at+contentSize {
		return f, errZstdFrame
	}
	if single {
		var le [8]byte
		copy(le[:], b[at:at+contentSize])
		claimed = binary.LittleEndian.Uint64(le[:])
		if contentSize == 2 {
			claimed += 256
		}
	}
	at += contentSize

	possible := uint64(0) // bytes that the blocks can unpack to
	for last := false; !last; {
		if len(b) < at+3 {
			return f, errZstdFrame
		}
		h := uint32(b[at]) | uint32(b[at+1])<<8 | uint32(b[at+2])<<16
		at += 3
		last = h&1 != 0
		size := int(h >> 3)
		switch h >> 1 & 3 {
		case 0: // as it is
			possible += uint64(size)
		case 1: // one byte, many times
			possible += uint64(size)
			size = 1
		case 2:
			possible += min(maxZstdBlock, max(claimed, minZstdWindow))
		default:
			return f, errZstdFrame
		}
		if size > len(b)-at {
			return f, errZstdFrame
		}
		at += size
	}
	if checksum {
		at += 4
	}
	if at > len(b) || single && claimed > possible {
		return f, errZstdFrame
	}
	f.size = at
	f.window = max(claimed, minZstdWindow)
	if !single && f.window > possible {
		f.window, f.descriptor = zstdWindow(possible)
	} else if f.descriptorAt > 0 {
		f.descriptor = b[f.descriptorAt]
	}
	return f, nil
}

// zstdWindow is the smallest window of at least size bytes, and its descriptor.
func zstdWindow(size uint64) (window uint64, descriptor byte) {
	for exponent := range uint64(32) {
		base := uint64(1) << (10 + exponent)
		for mantissa := range uint64(8) {
			if window = base + base/8*mantissa; window >= size {
				return window, byte(exponent<<3 | mantissa)
			}
		}
	}
	return window, 0xff
}
