package server

import (
	"context"
	"errors"
	"io"

	"ottla/protocol"
)

// startLater has an answer completed by somebody else; the reader goes on to read.
func (c *conn) startLater(l protocol.Later) {
	if c.done == nil {
		c.done = make(chan struct{}, 1)
	}
	c.mu.Lock()
	c.count++
	c.mu.Unlock()
	c.later = l
	l.Start(c.finish)
}

// awaitLater waits until the answer was handed over. err is what the reader met meanwhile: only
// a peer that has done no more than finish sending still waits for its answer.
func (c *conn) awaitLater(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, io.EOF) {
		c.later.Stop()
	}
	c.waits.Store(true)
	defer c.waits.Store(false)
	select {
	case <-c.done:
	case <-ctx.Done():
		c.later.Stop()
		<-c.done
	}
	c.later = nil
}

// finish takes the answer that was completed, from whoever did it. He is not held up: what the
// socket does not take at once is left to the writer.
func (c *conn) finish(a *protocol.Answer, err error) {
	c.in.release(c.asked)
	defer func() { c.done <- struct{}{} }()
	c.mu.Lock()
	if err == nil {
		err = c.failed
	}
	if err != nil || a == nil {
		c.count--
		c.fail(err)
		c.mu.Unlock()
		drop(a)
		return
	}
	p := pending{answer: a, size: answerSize(a)}
	c.bytes += p.size
	if !c.busy {
		c.busy = true
		c.mu.Unlock()
		p.answer, err = c.writeNow(a)
		c.mu.Lock()
		c.busy = false
		if p.answer == nil {
			c.count--
			c.bytes -= p.size
			c.fail(err)
			c.mu.Unlock()
			return
		}
	}
	c.enqueueLocked(p)
	c.mu.Unlock()
}

// fail ends the connection if there is an error. The caller holds mu.
func (c *conn) fail(err error) {
	if err != nil && c.failed == nil {
		c.failed = err
		c.cancel() // what the reader does is for nobody
		c.nc.Close()
	}
}

// writeNow writes what the socket takes at once of a small answer, and returns the rest, nil if
// nothing is left.
func (c *conn) writeNow(a *protocol.Answer) (rest *protocol.Answer, err error) {
	size := int64(answerSize(a))
	for i := range a.Parts {
		if r := a.Parts[i].Range; r != nil {
			size += r.Len()
		}
	}
	if c.in.raw == nil || size >= sendfileFrom || len(a.Parts) >= gatherParts {
		return a, nil
	}
	o := newOutput(c)
	o.once = true
	o.add(a)
	if o.err == nil {
		o.err = o.write()
	}
	rest, o.rest = o.rest, nil
	return rest, o.close()
}
