package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// maxInflated is how much one batch may unpack to, whatever the settings: Kafka counts these
// bytes in an int32.
const maxInflated = 1<<31 - 1

// inflater reads one compressed body as a stream, in memory that does not depend on what the
// body claims. Inflaters and what they need are made when first used, kept in pools that the
// garbage collector empties, and are of one codec for life.
type inflater struct {
	codec    Codec
	unpacked int64

	plain  bytes.Reader // gzip's source
	gzip   *gzip.Reader
	zstd   zstdReader
	blocks blockReader // lz4 and snappy
	block  []byte      // what is left of the current block
}

// blockReader unpacks a body block by block.
type blockReader interface {
	// next returns a block, valid until the next call, or io.EOF.
	next() ([]byte, error)
	// drop forgets the body, and buffers too large to keep.
	drop()
}

var inflaters [Zstd + 1]sync.Pool // of *inflater

// inflate begins to read the body of an entry of the given format. alone says that the caller
// reads it to the end in one go, without calling anything that may inflate meanwhile; large
// zstd windows are then granted to one caller at a time.
func inflate(codec Codec, body []byte, magic int8, alone bool) (*inflater, error) {
	if codec <= None || codec > Zstd {
		return nil, fmt.Errorf("%w: unknown compression type id: %d", ErrCodec, int8(codec))
	}
	f, _ := inflaters[codec].Get().(*inflater)
	if f == nil {
		f = &inflater{codec: codec}
	}
	if err := f.reset(body, magic, alone); err != nil {
		f.close()
		return nil, fmt.Errorf("%w: %s: %w", ErrCodec, codec, err)
	}
	return f, nil
}

func (f *inflater) reset(body []byte, magic int8, alone bool) (err error) {
	f.unpacked, f.block = 0, nil
	switch f.codec {
	case Gzip:
		f.plain.Reset(body)
		if f.gzip == nil {
			f.gzip = new(gzip.Reader)
		}
		return noEOF(f.gzip.Reset(&f.plain))
	case Zstd:
		return f.zstd.reset(body, alone)
	case Lz4:
		lz, _ := f.blocks.(*lz4Reader)
		if lz == nil {
			lz = new(lz4Reader)
			f.blocks = lz
		}
		// Producers of before 0.10 computed the frame header's checksum over too much.
		return lz.reset(body, magic == 0)
	case Snappy:
		sn, _ := f.blocks.(*snappyReader)
		if sn == nil {
			sn = new(snappyReader)
			f.blocks = sn
		}
		return sn.reset(body)
	}
	return nil
}

// Read answers io.EOF at the end of the body and ErrCodec for everything else that is wrong.
func (f *inflater) Read(p []byte) (n int, err error) {
	switch f.codec {
	case Gzip:
		n, err = f.gzip.Read(p)
		if err == gzip.ErrHeader && f.unpacked+int64(n) > 0 {
			err = io.EOF // bytes after the last member: Java's reader ignores them
		}
	case Zstd:
		n, err = f.zstd.Read(p)
	default:
		for len(f.block) == 0 && err == nil {
			f.block, err = f.blocks.next()
		}
		if err == nil {
			n = copy(p, f.block)
			f.block = f.block[n:]
		}
	}
	if f.unpacked += int64(n); f.unpacked > maxInflated {
		err = errors.New("unpacks to more than 2 GiB")
	}
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %s: %w", ErrCodec, f.codec, err)
	}
	return n, err
}

// close puts the inflater back. It may not be used afterwards.
func (f *inflater) close() {
	f.block = nil
	f.plain.Reset(nil)
	if f.blocks != nil {
		f.blocks.drop()
	}
	f.zstd.drop()
	inflaters[f.codec].Put(f)
}

// noEOF is for reads that must find something.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
