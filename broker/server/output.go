package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"ottla/protocol"

	"golang.org/x/sys/unix"
)

const (
	// sendfileFrom is the size from which a range of a file is sent by sendfile. Below it, one
	// pread and a copy cost no more than sending header and records by calls of their own
	// (BenchmarkRange).
	sendfileFrom = 64 << 10
	// readChunk is how much of a range is read at a time where sendfile cannot be used.
	readChunk = 128 << 10
	// sendChunk is after how much of a range the write deadline is looked at again.
	sendChunk = 4 << 20
	// sendAhead is how much of a range is looked for in memory at a time, and sent without
	// telling the scheduler if it is there (see socket.go).
	sendAhead = 512 << 10
	// gatherBytes and gatherParts bound what is gathered before it is written.
	gatherBytes = 256 << 10
	gatherParts = 512
)

// errBroken is wrapped by the errors of reads and writes that end a connection.
var errBroken = errors.New("broken connection")

// output gathers the bytes of answers and writes them. It belongs to whoever writes to the
// connection, and only as long as he does.
type output struct {
	c       *conn
	raw     syscall.RawConn
	vec     net.Buffers        // to be written
	gone    net.Buffers        // what Buffers.WriteTo eats
	iov     []unix.Iovec       // vec, for a plain socket
	size    int                // of vec
	buffers []*buffer          // hold parts of vec
	answers []*protocol.Answer // of which parts are in vec, or were sent
	err     error              // the first; nothing is written after it

	// For the calls under the connection's descriptor.
	writeFn func(fd uintptr) bool
	onceFn  func(fd uintptr)
	sendFn  func(fd uintptr) bool
	more    bool // a file follows what is written
	once    bool // what the socket does not take at once becomes rest
	rest    *protocol.Answer
	in      int   // file
	at      int64 // where in it
	left    int   // bytes
	ahead   int64 // up to where it was looked whether the file is in memory
	cached  bool  // it is
	sent    int   // parts of iov that have left
	sysErr  error
}

var outputs sync.Pool // of *output

func newOutput(c *conn) *output {
	o, ok := outputs.Get().(*output)
	if !ok {
		o = &output{}
		o.writeFn, o.sendFn = o.writeOnce, o.sendOnce
		o.onceFn = func(fd uintptr) { o.writeOnce(fd) }
	}
	o.c, o.raw = c, c.in.raw
	return o
}

// add takes an answer over: it is written, not later than by close, and then released.
func (o *output) add(a *protocol.Answer) {
	o.answers = append(o.answers, a)
	for i := range a.Parts {
		if o.err != nil {
			return
		}
		p := &a.Parts[i]
		switch {
		case p.Bytes != nil:
			o.gather(p.Bytes)
		case p.Range != nil:
			o.err = o.file(p.Range)
		}
	}
}

func (o *output) gather(b []byte) {
	o.vec = append(o.vec, b)
	o.size += len(b)
	if o.size >= gatherBytes || len(o.vec) >= gatherParts {
		o.err = o.write()
	}
}

// file sends a range of a file, or gathers it if it is small or has no descriptor.
func (o *output) file(r protocol.Range) error {
	n := r.Len()
	fd, at, ok := r.Fd()
	if !ok || o.raw == nil || n < sendfileFrom {
		return o.readRange(r, n)
	}
	o.more = true
	err := o.write()
	o.more = false
	if err != nil {
		return err
	}
	o.in, o.at, o.ahead = int(fd), at, at
	for n > 0 {
		o.left = int(min(n, sendChunk))
		n -= int64(o.left)
		o.c.extendWrite()
		if err := o.send(); err != nil {
			return err
		}
	}
	return nil
}

// send sends left bytes of the file in.
func (o *output) send() error {
	sent := o.left
	o.sysErr = nil
	err := o.raw.Write(o.sendFn)
	if err == nil {
		err = o.sysErr
	}
	o.c.wrote(sent - o.left)
	return err
}

// sendOnce sends what the socket takes; false means that it takes no more now. The offset is
// explicit: the file's own position is shared with other readers.
func (o *output) sendOnce(fd uintptr) bool {
	for o.left > 0 {
		if o.at >= o.ahead {
			most := min(o.left, sendAhead)
			o.ahead, o.cached = o.at+int64(most), cached(o.in, o.at, most)
		}
		var n int
		var err error
		if most := int(o.ahead - o.at); o.cached {
			n, err = sendCached(fd, o.in, &o.at, most)
		} else {
			n, err = unix.Sendfile(int(fd), o.in, &o.at, most)
		}
		switch {
		case n > 0:
			o.left -= n
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			o.ahead = o.at // by the time that the peer has read on it may be out of memory
			return false
		case err != nil:
			o.sysErr = fmt.Errorf("sendfile: %w", err)
			return true
		default:
			o.sysErr = fmt.Errorf("sendfile: %d bytes are not in the file any more: %w", o.left, io.ErrUnexpectedEOF)
			return true
		}
	}
	return true
}

// readRange gathers a range by reading it, a chunk at a time.
func (o *output) readRange(r protocol.Range, n int64) error {
	for off := int64(0); off < n && o.err == nil; {
		b := o.c.srv.buffers.get(int(min(n-off, readChunk)))
		o.buffers = append(o.buffers, b)
		part := b.b[:min(n-off, int64(len(b.b)))]
		got, err := r.ReadAt(part, off)
		if got < len(part) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read of records: %w", err)
		}
		off += int64(got)
		o.gather(part)
	}
	return o.err
}

// write writes what is gathered.
func (o *output) write() error {
	if o.size == 0 {
		return nil
	}
	o.c.extendWrite()
	var err error
	if o.raw != nil {
		err = o.writeSocket()
	} else {
		var n int64
		o.gone = o.vec
		n, err = o.gone.WriteTo(o.c.nc)
		o.gone = nil
		o.c.wrote(int(n))
	}
	clear(o.vec)
	o.vec, o.size = o.vec[:0], 0
	for i, b := range o.buffers {
		o.c.srv.buffers.put(b)
		o.buffers[i] = nil
	}
	o.buffers = o.buffers[:0]
	return err
}

// writeSocket writes what is gathered to a plain socket.
func (o *output) writeSocket() error {
	for _, b := range o.vec {
		if len(b) > 0 {
			v := unix.Iovec{Base: &b[0]}
			v.SetLen(len(b))
			o.iov = append(o.iov, v)
		}
	}
	o.left, o.sent, o.sysErr = o.size, 0, nil
	var err error
	if o.once {
		err = o.raw.Control(o.onceFn)
		if o.left > 0 && err == nil && o.sysErr == nil {
			o.rest = o.remainder()
		}
	} else {
		err = o.raw.Write(o.writeFn)
	}
	if err == nil {
		err = o.sysErr
	}
	o.c.wrote(o.size - o.left)
	clear(o.iov)
	o.iov = o.iov[:0]
	return err
}

// remainder is a copy of what was gathered and not written.
func (o *output) remainder() *protocol.Answer {
	b, skip := make([]byte, 0, o.left), o.size-o.left
	for _, part := range o.vec {
		if n := min(skip, len(part)); n > 0 {
			part, skip = part[n:], skip-n
		}
		b = append(b, part...)
	}
	return &protocol.Answer{Parts: []protocol.Part{{Bytes: b}}}
}

// writeOnce writes what the socket takes; false means that it takes no more now.
func (o *output) writeOnce(fd uintptr) bool {
	for o.left > 0 {
		n, err := sendSocket(fd, o.iov[o.sent:], o.more)
		if err != nil {
			if err == unix.EAGAIN {
				return false
			}
			o.sysErr = os.NewSyscallError("sendmsg", err)
			return true
		}
		o.left -= n
		for o.left > 0 && n > 0 { // a part of it
			v := &o.iov[o.sent]
			size := int(v.Len)
			if n < size {
				v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), n))
				v.SetLen(size - n)
				break
			}
			n -= size
			o.sent++
		}
	}
	return true
}

// flush writes everything that was added and releases the answers.
func (o *output) flush() error {
	if o.err == nil {
		o.err = o.write()
	}
	for i, a := range o.answers {
		drop(a)
		o.answers[i] = nil
	}
	o.answers = o.answers[:0]
	if o.err != nil {
		return fmt.Errorf("%w: %w", errBroken, o.err)
	}
	return nil
}

// close flushes and gives the output up.
func (o *output) close() error {
	err := o.flush()
	for i, b := range o.buffers { // left by a failure
		o.c.srv.buffers.put(b)
		o.buffers[i] = nil
	}
	clear(o.vec)
	o.vec, o.buffers, o.size = o.vec[:0], o.buffers[:0], 0
	o.c, o.raw, o.err, o.sysErr, o.once = nil, nil, nil, nil, false
	outputs.Put(o)
	return err
}

// wrote counts bytes written.
func (c *conn) wrote(n int) {
	if n > 0 {
		c.counters.out.Add(uint64(n))
		c.used()
	}
}

// extendWrite keeps the write deadline between half of the idle timeout and all of it ahead, so
// that a peer that takes nothing any more does not hold its answers for good.
func (c *conn) extendWrite() {
	limit := c.srv.opts.IdleTimeout
	if limit <= 0 {
		return
	}
	now := time.Now()
	if c.writeBy.Sub(now) > limit/2 {
		return
	}
	c.writeBy = now.Add(limit)
	c.nc.SetWriteDeadline(c.writeBy)
	if c.stopping.Load() { // stop has set it before us
		c.nc.SetWriteDeadline(now.Add(stopGrace))
	}
}

func answerSize(a *protocol.Answer) int {
	n := 0
	for i := range a.Parts {
		n += len(a.Parts[i].Bytes) // records in files take no memory
	}
	return n
}
