package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"ottla/protocol"
)

const (
	// maxPending and maxPendingBytes bound the answers of one connection that are not written
	// yet, frames that they still need included. A connection that reaches one of them is not
	// read from until there is room; so a client that sends without reading costs no more.
	maxPending      = 256
	maxPendingBytes = 8 << 20
)

var (
	errStopped = errors.New("the server stops")
	errIdle    = errors.New("idle for too long")
	errPanic   = errors.New("panic")
)

// pending is an answer on its way out: complete, or with something to wait for.
type pending struct {
	answer *protocol.Answer
	wait   func(context.Context) (*protocol.Answer, error)
	frame  *frame // nil if the answer does not need it any more
	size   int
}

// conn is one connection. Its reader runs run; its writer, if there is one, runs write.
type conn struct {
	srv      *Server
	nc       net.Conn
	id       uint64
	session  Session
	counters *listenerMetrics
	cancel   context.CancelFunc
	stopping atomic.Bool
	lastUse  atomic.Int64 // when a byte was last read or written, nanoseconds since started
	waits    atomic.Bool  // a handler runs
	started  time.Time

	in    input          // the reader's
	later protocol.Later // the reader's: an answer that somebody else completes
	asked *frame         // its request, which counts until it is answered
	done  chan struct{}  // holds a token when that has happened; made with the first
	ctx   context.Context

	mu      sync.Mutex
	queue   []pending      // guarded by mu
	spare   []pending      // guarded by mu: the writer's last batch, empty, to be used again
	count   int            // guarded by mu: answers that are not written yet, those the writer has included
	bytes   int            // guarded by mu: of those
	busy    bool           // guarded by mu: somebody writes
	failed  error          // guarded by mu: nothing can be written any more
	room    chan struct{}  // the writer tells the reader here that there is room again; made with the first writer
	writers sync.WaitGroup // the writer

	writeBy time.Time // the write deadline that is set; belongs to whoever writes
}

func newConn(s *Server, listener string, counters *listenerMetrics, nc net.Conn) *conn {
	c := &conn{srv: s, nc: nc, id: s.ids.Add(1), counters: counters, started: time.Now()}
	c.session = s.opts.Open(protocol.Conn{ID: c.id, Listener: listener, Local: nc.LocalAddr(), Remote: nc.RemoteAddr()})
	c.in = input{
		nc: nc, max: s.opts.MaxRequestBytes, maxOther: s.opts.MaxOtherBytes, budget: s.budget, buffers: &s.buffers,
		deadline: c.expired,
		progress: func(n int) {
			counters.in.Add(uint64(n))
			c.used()
		},
	}
	c.in.init()
	return c
}

func (c *conn) used() { c.lastUse.Store(int64(time.Since(c.started))) }

// run serves the connection: it reads requests and runs their handlers until the peer ends it,
// something breaks, or the server stops.
func (c *conn) run(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	defer c.cancel()
	c.ctx = ctx
	if d := c.srv.opts.IdleTimeout; d > 0 {
		c.nc.SetReadDeadline(time.Now().Add(d))
		if c.stopping.Load() {
			c.stop()
		}
	}
	err := c.read(ctx)
	if c.later != nil {
		c.awaitLater(ctx, err)
	}
	if !errors.Is(err, errBroken) {
		// The peer may still read: what was asked before is answered before the end.
		c.writers.Wait()
	}
	c.cancel()
	c.nc.Close()
	c.writers.Wait()
	if c.failed != nil { // the writer's reason is the first; the reader saw what followed from it
		err = c.failed
	}
	c.in.close()
	c.session.Close()
	reason, text := closedWhy(err)
	if text != "" {
		c.srv.opts.Logger.Debug(text, "connection", c.id, "remote", c.nc.RemoteAddr(), "err", err)
	}
	c.srv.metrics.closed(reason)
}

// closedWhy sorts the errors that end a connection; text is empty where the peer simply left.
func closedWhy(err error) (reason closeReason, text string) {
	switch {
	case errors.Is(err, io.EOF):
		return closedByPeer, ""
	case errors.Is(err, errIdle):
		return closedIdle, "connection closed: idle"
	case errors.Is(err, errStopped), errors.Is(err, context.Canceled):
		return closedStop, ""
	case errors.Is(err, errPanic):
		return closedPanic, "connection closed: its handler failed"
	case errors.Is(err, ErrFrame), errors.Is(err, protocol.ErrMalformed):
		return closedMalformed, "connection closed: malformed request"
	case errors.Is(err, errBroken), errors.Is(err, io.ErrUnexpectedEOF):
		return closedBroken, "connection closed: it is broken"
	}
	return closedRequest, "connection closed: request refused"
}

// read takes requests until something ends the connection. It returns why, never nil.
func (c *conn) read(ctx context.Context) error {
	for {
		f, err := c.in.next(ctx)
		if c.later != nil {
			c.awaitLater(ctx, err)
		}
		if err != nil {
			return err
		}
		reply, err := c.handle(ctx, f.bytes())
		p := pending{answer: reply.Answer, wait: reply.Wait}
		switch {
		case p.wait != nil && err == nil:
			p.frame, p.size = f, len(f.buf.b)
		case reply.Later != nil && err == nil:
			c.asked = f
		default:
			c.in.release(f)
		}
		switch {
		case err != nil:
			drop(p.answer)
		case reply.Later != nil:
			c.startLater(reply.Later)
		case p.answer == nil && p.wait == nil:
		default:
			err = c.send(ctx, p)
		}
		if reply.After != nil {
			reply.After()
		}
		if err != nil {
			return err
		}
		if c.stopping.Load() {
			return errStopped
		}
	}
}

// handle runs the handler. A panic is the end of this connection, not of the process.
func (c *conn) handle(ctx context.Context, b []byte) (reply protocol.Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			reply, err = protocol.Reply{}, c.panicked(p)
		}
	}()
	c.waits.Store(true)
	defer c.waits.Store(false)
	return c.session.Handle(ctx, b)
}

func (c *conn) panicked(p any) error {
	c.srv.opts.Logger.Error("panic in a handler", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return fmt.Errorf("%w: %v", errPanic, p)
}

// send has an answer written after all earlier ones: at once by the caller if nothing is
// pending, otherwise by the writer. It returns when there is room for another.
func (c *conn) send(ctx context.Context, p pending) error {
	if p.answer != nil {
		p.size = answerSize(p.answer)
	}
	c.mu.Lock()
	if err := c.failed; err != nil {
		c.mu.Unlock()
		c.discard(p)
		return err
	}
	c.count++
	c.bytes += p.size
	if !c.busy && p.wait == nil && !c.in.buffered() {
		c.busy = true
		c.mu.Unlock()
		err := c.writeOne(p)
		c.mu.Lock()
		c.busy = false
		c.count--
		c.bytes -= p.size
		c.failed = err
		c.mu.Unlock()
		return err
	}
	c.enqueueLocked(p)
	for c.failed == nil && (c.count >= maxPending || c.bytes >= maxPendingBytes) {
		c.mu.Unlock()
		select {
		case <-c.room:
		case <-ctx.Done():
			return ctx.Err()
		}
		c.mu.Lock()
	}
	err := c.failed
	c.mu.Unlock()
	return err
}

// enqueueLocked leaves an answer to the writer. The caller holds mu.
func (c *conn) enqueueLocked(p pending) {
	c.queue = append(c.queue, p)
	if !c.busy {
		c.busy = true
		if c.room == nil {
			c.room = make(chan struct{}, 1)
		}
		c.writers.Add(1)
		go c.write(c.ctx)
	}
}

// writeOne writes a complete answer.
func (c *conn) writeOne(p pending) error {
	o := newOutput(c)
	o.add(p.answer)
	return o.close()
}

// write is the writer: it writes what is queued, in order, and ends when nothing is left.
// Several answers that are complete leave in one system call.
func (c *conn) write(ctx context.Context) {
	defer c.writers.Done()
	for {
		c.mu.Lock()
		if len(c.queue) == 0 || c.failed != nil {
			rest := c.queue
			c.queue, c.spare, c.busy = nil, nil, false
			c.signal()
			c.mu.Unlock()
			for _, p := range rest {
				c.discard(p)
			}
			return
		}
		batch := c.queue
		c.queue = c.spare[:0]
		c.mu.Unlock()

		err := c.writeBatch(ctx, batch)
		if err != nil {
			c.cancel() // what the reader does is for nobody
			c.nc.Close()
		}
		size := 0
		for i := range batch {
			size += batch[i].size
		}
		n := len(batch)
		clear(batch)
		c.mu.Lock()
		c.spare = batch
		c.count -= n
		c.bytes -= size
		c.failed = err
		c.signal()
		c.mu.Unlock()
	}
}

// signal tells the reader, if it waits, to look again. The caller holds mu.
func (c *conn) signal() {
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// writeBatch writes answers, waiting for those that are not complete; what is complete before
// one of them does not wait with it.
func (c *conn) writeBatch(ctx context.Context, batch []pending) error {
	o := newOutput(c)
	for i := range batch {
		p := &batch[i]
		if p.wait != nil {
			if err := o.flush(); err != nil {
				c.discardAll(batch[i:])
				o.close()
				return err
			}
			ans, err := c.await(ctx, p.wait)
			c.in.release(p.frame)
			p.frame, p.wait = nil, nil
			if err != nil {
				c.discardAll(batch[i+1:])
				o.close()
				return err
			}
			if ans == nil {
				continue
			}
			p.answer = ans
		}
		ans := p.answer
		p.answer = nil
		o.add(ans)
	}
	return o.close()
}

func (c *conn) await(ctx context.Context, wait func(context.Context) (*protocol.Answer, error)) (ans *protocol.Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			ans, err = nil, c.panicked(p)
		}
	}()
	return wait(ctx)
}

func (c *conn) discardAll(ps []pending) {
	for _, p := range ps {
		c.discard(p)
	}
}

// discard gives back what an answer that is not written holds.
func (c *conn) discard(p pending) {
	if p.frame != nil {
		c.in.release(p.frame)
	}
	drop(p.answer)
}

func drop(a *protocol.Answer) {
	if a != nil && a.Release != nil {
		a.Release()
	}
}

// expired says what it means that the read deadline has passed: nothing if the connection was
// used since it was set, or answers are pending; then it is set anew.
func (c *conn) expired() error {
	if c.stopping.Load() {
		return errStopped
	}
	limit := c.srv.opts.IdleTimeout
	c.mu.Lock()
	waiting := c.count > 0
	c.mu.Unlock()
	left := limit - (time.Since(c.started) - time.Duration(c.lastUse.Load()))
	switch {
	case waiting:
		left = limit
	case left <= 0:
		return errIdle
	}
	c.nc.SetReadDeadline(time.Now().Add(left))
	if c.stopping.Load() { // stop has set it before us
		return errStopped
	}
	return nil
}

// abandoned ends the waiting of a connection whose peer has left: a long poll, or a join, whose
// answer nobody will read. Until the idle limit is over it may be one that has only finished
// sending.
func (c *conn) abandoned() {
	idle := time.Since(c.started) - time.Duration(c.lastUse.Load())
	if c.waits.Load() && idle >= c.srv.opts.IdleTimeout && gone(c.nc) {
		c.cancel()
	}
}

// stop has the connection end: its reader after the request in hand, its writer after what is
// pending, but soon.
func (c *conn) stop() {
	c.stopping.Store(true)
	now := time.Now()
	c.nc.SetReadDeadline(now.Add(-time.Second))
	c.nc.SetWriteDeadline(now.Add(stopGrace))
}
