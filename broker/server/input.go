package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"ottla/protocol"

	"golang.org/x/sys/unix"
)

const (
	// scratchSize is what one read of a connection without a begun frame takes in: enough for
	// a default producer's batch or many small requests.
	scratchSize = 36 << 10
	// handOver is the frame size from which a frame alone in the scratch buffer keeps it,
	// instead of being copied to a buffer of its size.
	handOver = 8 << 10
	// firstFrame and growFrame: a frame that has not arrived yet gets a buffer of firstFrame
	// bytes or growFrame times what has arrived of it, and again when that is full.
	firstFrame = 2 << 10
	growFrame  = 4
	// maxTrust bounds the size for which a peer is believed: what it has really sent in one
	// frame before is set aside for its next one at once.
	maxTrust = 8<<20 + 64<<10
)

// ErrFrame is wrapped by the errors about lengths that no frame may have.
var ErrFrame = errors.New("bad frame length")

// input takes frames off a connection. While it waits for the first byte of a frame it holds
// no buffer: on a plain socket it waits for readability and then reads length and frame in
// one go; elsewhere it reads the length by itself.
type input struct {
	nc        net.Conn
	raw       syscall.RawConn // nil: not a plain socket
	max       int
	maxOther  int
	budget    *budget
	buffers   *buffers
	deadline  func() error // what a read that ran into its deadline means: nil to go on
	progress  func(n int)  // told of every read
	readReady func(fd uintptr) bool

	scratch  *buffer // nil, or holds the unread bytes from off to end
	off, end int
	head     [4]byte // a begun length, while there is no scratch
	headLen  int
	trust    int // largest frame so far, up to maxTrust

	cur     *frame // being read
	have    int    // bytes of it
	checked bool   // its size, against its key
	over    bool   // it has grown beyond the budget

	dst []byte // for readReady: where to read, nil: into a new scratch
	n   int
	err error
}

func (in *input) init() {
	in.readReady = in.read
	if sc, ok := in.nc.(syscall.Conn); ok { // not so under TLS
		if raw, err := sc.SyscallConn(); err == nil {
			in.raw = raw
		}
	}
}

// next returns the next frame. Its buffer belongs to the caller, who gives it back by release.
// io.EOF is a clean end, between two frames.
func (in *input) next(ctx context.Context) (*frame, error) {
	for {
		if in.cur != nil {
			if in.have == in.cur.size {
				f := in.cur
				in.cur = nil
				in.trust = max(in.trust, min(f.size, maxTrust))
				if in.over {
					in.over = false
					in.budget.put(0, true)
				}
				return f, nil
			}
			if err := in.fill(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if in.scratch != nil {
			f, err := in.cut(ctx)
			if f != nil || err != nil {
				return f, err
			}
			continue
		}
		if in.raw != nil {
			if err := in.readMore(nil); err != nil {
				return nil, in.ended(err)
			}
			continue
		}
		if err := in.readMore(in.head[in.headLen:]); err != nil {
			return nil, in.ended(err)
		}
		if in.headLen += in.n; in.headLen == len(in.head) {
			in.headLen = 0
			if err := in.begin(ctx, in.head[:], nil); err != nil {
				return nil, err
			}
		}
	}
}

// ended turns the end of the stream inside a frame into io.ErrUnexpectedEOF.
func (in *input) ended(err error) error {
	if err == io.EOF && (in.headLen > 0 || in.cur != nil) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// buffered says whether a whole frame is waiting in the scratch buffer.
func (in *input) buffered() bool {
	if in.scratch == nil || in.end-in.off < 4 {
		return false
	}
	size := binary.BigEndian.Uint32(in.scratch.b[in.off:])
	return uint64(in.end-in.off) >= 4+uint64(size)
}

// cut takes the first frame out of the scratch buffer: whole, as cur if it is begun, and as
// head if not even its length is there. It returns nil if there is more to read first.
func (in *input) cut(ctx context.Context) (*frame, error) {
	b := in.scratch.b[in.off:in.end]
	if len(b) < 4 {
		in.headLen = copy(in.head[:], b)
		in.dropScratch()
		return nil, nil
	}
	size := int(int32(binary.BigEndian.Uint32(b)))
	if size < handOver || in.off > 0 || len(b) != 4+size || in.checkSize(size) != nil || in.checkKey(size, b[4:]) != nil {
		// The usual way; begin also reports what is wrong.
		if err := in.begin(ctx, b[:4], b[4:]); err != nil {
			return nil, err
		}
		in.off += 4 + min(size, len(b)-4)
		if in.off == in.end {
			in.dropScratch()
		}
		return nil, nil
	}
	f := &frame{buf: in.scratch, from: 4, size: size, charged: int64(len(in.scratch.b))}
	if err := in.budget.take(ctx, f.charged, nil); err != nil {
		return nil, err
	}
	in.scratch = nil
	in.trust = max(in.trust, min(size, maxTrust))
	return f, nil
}

// begin starts a frame of which some bytes may be there already.
func (in *input) begin(ctx context.Context, length, some []byte) error {
	size := int(int32(binary.BigEndian.Uint32(length)))
	if err := in.checkSize(size); err != nil {
		return err
	}
	some = some[:min(size, len(some))]
	buf := in.buffers.get(min(size, max(firstFrame, growFrame*len(some), in.trust)))
	f := &frame{buf: buf, size: size, charged: int64(len(buf.b))}
	if err := in.budget.take(ctx, f.charged, nil); err != nil {
		in.buffers.put(buf)
		return err
	}
	in.cur, in.have, in.checked = f, copy(buf.b, some), false
	return in.checkBegun()
}

// fill reads more of the current frame, into a larger buffer if its own is full.
func (in *input) fill(ctx context.Context) error {
	f := in.cur
	if in.have == len(f.buf.b) {
		larger := in.buffers.get(min(f.size, max(growFrame*in.have, in.trust)))
		n := int64(len(larger.b)) - f.charged
		if err := in.budget.take(ctx, n, &in.over); err != nil {
			in.buffers.put(larger)
			return err
		}
		copy(larger.b, f.buf.b[:in.have])
		in.buffers.put(f.buf)
		f.buf = larger
		f.charged += n
	}
	if err := in.readMore(f.buf.b[in.have:min(len(f.buf.b), f.size)]); err != nil {
		return in.ended(err)
	}
	in.have += in.n
	return in.checkBegun()
}

func (in *input) checkSize(size int) error {
	if size <= 0 || size > in.max {
		return fmt.Errorf("%w: %d, limit %d", ErrFrame, size, in.max)
	}
	return nil
}

// checkBegun checks the size of the current frame by its key, as soon as that is there.
func (in *input) checkBegun() error {
	if in.checked || in.have < 2 {
		return nil
	}
	in.checked = true
	return in.checkKey(in.cur.size, in.cur.buf.b)
}

// checkKey holds requests without records to their own limit.
func (in *input) checkKey(size int, b []byte) error {
	if size > in.maxOther && !protocol.CarriesRecords(int16(binary.BigEndian.Uint16(b))) {
		return fmt.Errorf("%w: %d for a request without records, limit %d", ErrFrame, size, in.maxOther)
	}
	return nil
}

// readMore reads at least one byte to dst, or into a new scratch buffer (behind what is in
// head) if dst is nil; in.n is how many. A deadline that does not end the connection is passed
// over.
func (in *input) readMore(dst []byte) error {
	for {
		var err error
		if in.raw != nil {
			in.dst, in.err, in.n = dst, nil, 0
			if err = in.raw.Read(in.readReady); err == nil {
				err = in.err
			}
			in.dst = nil
		} else if in.n, err = in.nc.Read(dst); in.n > 0 {
			err = nil
		}
		if err == nil {
			in.progress(in.n)
			return nil
		}
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			if err = in.deadline(); err == nil {
				continue
			}
			return err
		}
		if err != io.EOF {
			err = fmt.Errorf("%w: %w", errBroken, err)
		}
		return err
	}
}

// read is one attempt to read from a socket; false means that there is nothing yet.
func (in *input) read(fd uintptr) bool {
	dst := in.dst
	if dst == nil {
		in.scratch = in.buffers.get(scratchSize)
		in.off, in.end = 0, copy(in.scratch.b, in.head[:in.headLen])
		dst = in.scratch.b[in.end:]
	}
	n, err := readSocket(fd, dst)
	switch {
	case n > 0:
		in.n = n
		if in.dst == nil {
			in.end += n
			in.headLen = 0
		}
		return true
	case err == nil:
		in.err = io.EOF
	case err != unix.EAGAIN:
		in.err = err
	}
	if in.dst == nil {
		in.dropScratch()
	}
	return in.err != nil
}

func (in *input) dropScratch() {
	in.buffers.put(in.scratch)
	in.scratch = nil
}

// close gives back what is held when the connection ends.
func (in *input) close() {
	if in.scratch != nil {
		in.dropScratch()
	}
	if in.cur != nil {
		in.budget.put(0, in.over)
		in.release(in.cur)
		in.cur = nil
	}
}

// release gives a frame's buffer back.
func (in *input) release(f *frame) {
	in.budget.put(f.charged, false)
	in.buffers.put(f.buf)
	f.buf = nil
}
