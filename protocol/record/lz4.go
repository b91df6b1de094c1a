package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// LZ4 frames as Kafka's Lz4BlockInputStream and Lz4BlockOutputStream read and write them:
// independent blocks, no dictionary, and a header checksum that v0 gets wrong on purpose.
const (
	lz4Magic       = 0x184d2204
	lz4Version     = 1 << 6
	lz4Independent = 1 << 5
	lz4BlockSums   = 1 << 4
	lz4HasSize     = 1 << 3
	lz4ContentSum  = 1 << 2
	lz4Plain       = 1 << 31 // in a block's size: the block is not compressed

	lz4OutputBlock = 64 << 10
	keptBuffer     = 1 << 20 // larger buffers are not kept for the next body
)

var (
	errLz4Short = errors.New("stream ended prematurely")
	errLz4Magic = errors.New("stream unsupported (invalid magic bytes)")
)

type lz4Reader struct {
	src   []byte
	flags byte
	most  int // size of an unpacked block
	done  bool
	buf   []byte
}

// reset reads the frame's header. broken lets any checksum of it pass.
func (l *lz4Reader) reset(body []byte, broken bool) error {
	*l = lz4Reader{src: body, buf: l.buf}
	if len(body) < 7 {
		return errLz4Short
	}
	if binary.LittleEndian.Uint32(body) != lz4Magic {
		return errLz4Magic
	}
	l.flags = body[4]
	switch size := body[5] >> 4 & 7; {
	case l.flags&3 != 0 || body[5]&0x8f != 0:
		return errors.New("reserved bits must be 0")
	case l.flags&lz4Independent == 0:
		return errors.New("dependent block stream is unsupported")
	case l.flags>>6 != 1:
		return fmt.Errorf("version %d is unsupported", l.flags>>6)
	case size < 4:
		return fmt.Errorf("block size value must be between 4 and 7, not %d", size)
	default:
		l.most = 1 << (8 + 2*size)
	}
	end := 6
	if l.flags&lz4HasSize != 0 {
		end += 8
	}
	if len(body) <= end {
		return errLz4Short
	}
	if !broken && byte(xxh32(body[4:end])>>8) != body[end] {
		return errors.New("stream frame descriptor corrupted")
	}
	l.src = body[end+1:]
	return nil
}

func (l *lz4Reader) next() ([]byte, error) {
	if l.done {
		return nil, io.EOF
	}
	if len(l.src) < 4 {
		return nil, errLz4Short
	}
	size := binary.LittleEndian.Uint32(l.src)
	l.src = l.src[4:]
	plain := size&lz4Plain != 0
	size &^= lz4Plain
	if size == 0 { // the end mark; like Kafka, a sum of the content is not looked at
		l.done = true
		return nil, io.EOF
	}
	if int(size) > l.most {
		return nil, fmt.Errorf("block size %d exceeded max: %d", size, l.most)
	}
	if len(l.src) < int(size) {
		return nil, errLz4Short
	}
	block := l.src[:size]
	l.src = l.src[size:]
	if l.flags&lz4BlockSums != 0 {
		if len(l.src) < 4 {
			return nil, errLz4Short
		}
		if binary.LittleEndian.Uint32(l.src) != xxh32(block) {
			return nil, errors.New("block checksum mismatch")
		}
		l.src = l.src[4:]
	}
	if plain {
		return block, nil
	}
	// A byte of input makes at most 255 of output, whatever the header says.
	room := min(l.most, 255*len(block)+64)
	if cap(l.buf) < room {
		l.buf = make([]byte, room)
	}
	n, err := lz4.UncompressBlock(block, l.buf[:room])
	if err != nil {
		return nil, err
	}
	return l.buf[:n], nil
}

func (l *lz4Reader) drop() {
	l.src = nil
	if cap(l.buf) > keptBuffer {
		l.buf = nil
	}
}

// lz4Writer packs blocks of 64 KiB.
type lz4Writer struct {
	out    *sink
	level  int
	buf    []byte // not yet packed
	packed []byte
	fast   lz4.Compressor
	high   *lz4.CompressorHC
}

var lz4Writers = sync.Pool{New: func() any {
	return &lz4Writer{buf: make([]byte, 0, lz4OutputBlock), packed: make([]byte, lz4.CompressBlockBound(lz4OutputBlock))}
}}

func newLz4Writer(out *sink, level int, broken bool) *lz4Writer {
	l := lz4Writers.Get().(*lz4Writer)
	l.out, l.level, l.buf = out, level, l.buf[:0]
	at := len(out.b)
	out.b = binary.LittleEndian.AppendUint32(out.b, lz4Magic)
	out.b = append(out.b, lz4Version|lz4Independent, 4<<4)
	summed := out.b[at+4:]
	if broken {
		summed = out.b[at:]
	}
	out.b = append(out.b, byte(xxh32(summed)>>8))
	return l
}

func (l *lz4Writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if len(l.buf) == cap(l.buf) {
			if err := l.flush(); err != nil {
				return 0, err
			}
		}
		m := min(len(p), cap(l.buf)-len(l.buf))
		l.buf = append(l.buf, p[:m]...)
		p = p[m:]
	}
	return n, nil
}

func (l *lz4Writer) flush() (err error) {
	if len(l.buf) == 0 {
		return nil
	}
	n := 0
	if l.level == levelOf(Lz4, 0) {
		n, err = l.fast.CompressBlock(l.buf, l.packed)
	} else {
		if l.high == nil {
			l.high = new(lz4.CompressorHC)
		}
		// The library's levels are search depths, 1<<9 for the first to 1<<17 for the ninth.
		l.high.Level = lz4.CompressionLevel(1 << (8 + min(l.level, 9)))
		n, err = l.high.CompressBlock(l.buf, l.packed)
	}
	if err != nil {
		return err
	}
	if n == 0 || n >= len(l.buf) {
		l.out.b = binary.LittleEndian.AppendUint32(l.out.b, uint32(len(l.buf))|lz4Plain)
		l.out.b = append(l.out.b, l.buf...)
	} else {
		l.out.b = binary.LittleEndian.AppendUint32(l.out.b, uint32(n))
		l.out.b = append(l.out.b, l.packed[:n]...)
	}
	l.buf = l.buf[:0]
	return l.out.check()
}

func (l *lz4Writer) Close() error {
	err := l.flush()
	l.out.b = binary.LittleEndian.AppendUint32(l.out.b, 0)
	return err
}

func (l *lz4Writer) release() {
	l.out = nil
	lz4Writers.Put(l)
}

// xxh32 is xxHash's 32-bit sum with seed 0, which LZ4 frames use.
func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h, n := uint32(p5), uint32(len(b))
	if len(b) >= 16 {
		var seed uint32
		v1, v2, v3, v4 := seed+p1, seed+p2, seed, seed
		v1, v4 = v1+p2, v4-p1
		for ; len(b) >= 16; b = b[16:] {
			v1 = bits.RotateLeft32(v1+binary.LittleEndian.Uint32(b)*p2, 13) * p1
			v2 = bits.RotateLeft32(v2+binary.LittleEndian.Uint32(b[4:])*p2, 13) * p1
			v3 = bits.RotateLeft32(v3+binary.LittleEndian.Uint32(b[8:])*p2, 13) * p1
			v4 = bits.RotateLeft32(v4+binary.LittleEndian.Uint32(b[12:])*p2, 13) * p1
		}
		h = bits.RotateLeft32(v1, 1) + bits.RotateLeft32(v2, 7) + bits.RotateLeft32(v3, 12) + bits.RotateLeft32(v4, 18)
	}
	h += n
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
