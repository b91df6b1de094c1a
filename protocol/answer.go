package protocol

import (
	"context"
	"net"
)

// Conn says who is at the other end of one accepted connection.
type Conn struct {
	ID       uint64
	Listener string   // the listener's name, as PLAINTEXT or EXTERNAL
	Local    net.Addr // the address by which the client reached us
	Remote   net.Addr
}

// Reply is what a request gets. With neither field set nothing is sent: the request was a
// Produce with acks=0.
//
// A handler runs on its connection's reader, one request after the other, and has had all its
// effects when it returns. What is then left is waiting (for replicas, for an fsync): that is
// Wait, which the connection's writer calls when the answer's turn comes, so that later
// requests can have their effects meanwhile and answers still leave in order.
//
// Later is for what others bring about, as the records are that a Fetch waits for: no goroutine
// waits, and whoever ends the waiting hands the answer over. Until then the connection's next
// request is not handled. After is run by the reader once the answer is on its way: what the
// request has set off for others.
type Reply struct {
	Answer *Answer
	Wait   func(context.Context) (*Answer, error)
	Later  Later
	After  func()
}

// Later is an answer that somebody else completes.
type Later interface {
	// Start begins the waiting. done is called once, by anybody, maybe before Start returns.
	Start(done func(*Answer, error))
	// Stop ends the waiting: done is called soon, or was.
	Stop()
}

// Answer is one whole response frame, its length prefix included, in the order of its parts.
type Answer struct {
	Parts   []Part
	Release func() // nil, or called once when the answer was written or dropped
}

// Part is bytes, or a range of a file that the connection sends without reading it.
type Part struct {
	Bytes []byte
	Range Range // used when Bytes is nil
}

// Range is a piece of an open file (Fd, Offset, Len) that stays readable until Release, even
// if the file is unlinked meanwhile. A file that has no descriptor (memory) has ok false from
// Fd and is read by ReadAt (offsets relative to the range).
type Range interface {
	Fd() (fd uintptr, offset int64, ok bool)
	Len() int64
	ReadAt(p []byte, off int64) (int, error)
	Release()
}
