package registry

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// zkServer is a ZooKeeper for tests: its protocol over loopback, in front of a root in memory. It
// can go down and come back, lose a request or its answer, and expire a session, each at a moment
// that the test decides.
type zkServer struct {
	t    testing.TB
	root *Local
	ln   net.Listener
	wg   sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond // of down and closed
	down     bool       // nobody is let in; guarded by mu, as the rest
	closed   bool
	sessions map[int64]*zkServed
	conns    map[*zkServerConn]struct{}
	fault    func(kind int32) zkFault // nil: none
}

type zkFault int

const (
	zkNoFault zkFault = iota
	zkLoseRequest
	zkLoseAnswer // after it was executed
)

const (
	zkClose      = -11
	zkNotify     = 0
	zkCreate     = 1
	zkDelete     = 2
	zkExists     = 3
	zkGetData    = 4
	zkSetData    = 5
	zkSync       = 9
	zkPing       = 11
	zkChildren   = 12
	zkCheck      = 13
	zkMulti      = 14
	zkSetWatches = 101
)

type zkServed struct {
	tree *localTree
	conn *zkServerConn
}

func newZKServer(t testing.TB) *zkServer {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zkServer{t: t, root: NewMemory(nil), ln: ln, sessions: map[int64]*zkServed{}, conns: map[*zkServerConn]struct{}{}}
	z.changed = sync.NewCond(&z.mu)
	z.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			z.wg.Go(func() { z.serve(c) })
		}
	})
	t.Cleanup(func() {
		z.mu.Lock()
		z.closed = true
		z.mu.Unlock()
		z.changed.Broadcast()
		ln.Close()
		z.drop()
		z.wg.Wait()
	})
	return z
}

// dial waits until the server lets in; for ZooKeeperOptions.
func (z *zkServer) dial(ctx context.Context, address string) (net.Conn, error) {
	defer context.AfterFunc(ctx, func() {
		z.mu.Lock()
		defer z.mu.Unlock()
		z.changed.Broadcast()
	})()
	z.mu.Lock()
	for z.down && !z.closed && ctx.Err() == nil {
		z.changed.Wait()
	}
	z.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

func (z *zkServer) connect(chroot string) ZooKeeperOptions {
	return ZooKeeperOptions{Connect: z.ln.Addr().String() + chroot, Dial: z.dial, MakeChroot: true}
}

func (z *zkServer) session(chroot string) *zkTree {
	z.t.Helper()
	t, err := OpenZooKeeper(z.connect(chroot))
	if err != nil {
		z.t.Fatal(err)
	}
	return t.(*zkTree)
}

// setDown lets nobody in any more, and ends the connections; or lets in again.
func (z *zkServer) setDown(down bool) {
	z.mu.Lock()
	z.down = down
	z.mu.Unlock()
	z.changed.Broadcast()
	if down {
		z.drop()
	}
}

func (z *zkServer) sessionsMade() int64 {
	z.root.mu.RLock()
	defer z.root.mu.RUnlock()
	return z.root.lastID
}

func (z *zkServer) drop() {
	z.mu.Lock()
	defer z.mu.Unlock()
	for c := range z.conns {
		c.nc.Close()
	}
}

// failing has f decide about every request; nil: none fails.
func (z *zkServer) failing(f func(kind int32) zkFault) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.fault = f
}

func (z *zkServer) expire(session int64) {
	z.mu.Lock()
	s := z.sessions[session]
	delete(z.sessions, session)
	z.mu.Unlock()
	if s == nil {
		z.t.Errorf("no session %#x to expire", session)
		return
	}
	s.tree.Close()
	if s.conn != nil {
		s.conn.nc.Close()
	}
}

type zkServerConn struct {
	z  *zkServer
	nc net.Conn
	id int64
	s  *zkServed
	w  *Watcher

	mu sync.Mutex // held while a packet is written
}

func (c *zkServerConn) send(j *jute) {
	c.nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(j.b))), j.b...))
}

func (c *zkServerConn) receive() (*jute, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c.nc, head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n > JuteMaxBuffer {
		return nil, errors.New("longer than jute.maxbuffer")
	}
	b := make([]byte, n)
	_, err := io.ReadFull(c.nc, b)
	return &jute{b: b}, err
}

func (z *zkServer) serve(nc net.Conn) {
	c := &zkServerConn{z: z, nc: nc, w: NewWatcher()}
	defer nc.Close()
	hello, err := c.receive()
	if err != nil {
		return
	}
	hello.int()
	hello.long()
	timeout := hello.int()
	id := hello.long()
	z.mu.Lock()
	refused := z.down || z.closed
	s := z.sessions[id]
	if s == nil && id == 0 && !refused {
		s = &zkServed{tree: z.root.Session().(*localTree)}
		id = s.tree.Session()
		z.sessions[id] = s
	}
	if s != nil && !refused {
		if s.conn != nil {
			s.conn.nc.Close()
		}
		s.conn, c.s, c.id = c, s, id
		z.conns[c] = struct{}{}
	}
	z.mu.Unlock()
	if refused {
		return
	}
	answer := &jute{}
	answer.putInt(0)
	answer.putInt(timeout)
	if s == nil { // it has expired
		answer.putLong(0)
	} else {
		answer.putLong(id)
	}
	answer.putBytes(make([]byte, 16))
	c.send(answer)
	if s == nil {
		return
	}
	done := make(chan struct{})
	z.wg.Go(func() {
		for {
			select {
			case <-c.w.Wake():
				c.mu.Lock()
				c.events()
				c.mu.Unlock()
			case <-done:
				return
			}
		}
	})
	for c.one() {
	}
	close(done)
	z.mu.Lock()
	delete(z.conns, c)
	if s.conn == c {
		s.conn = nil
	}
	z.mu.Unlock()
	z.root.mu.Lock() // its watches go with the connection
	z.root.data.drop(c.w)
	z.root.children.drop(c.w)
	delete(s.tree.watchers, c.w)
	z.root.mu.Unlock()
}

// events writes what has fired.
func (c *zkServerConn) events() {
	for _, e := range c.w.Take() {
		kind, ok := map[EventKind]int32{NodeCreated: 1, NodeDeleted: 2, NodeChanged: 3, ChildrenChanged: 4}[e.Kind]
		if !ok {
			continue
		}
		j := &jute{}
		j.putInt(-1)
		j.putLong(-1)
		j.putInt(0)
		j.putInt(kind)
		j.putInt(3)
		j.putBytes([]byte(e.Path))
		c.send(j)
	}
}

// one serves one request; false ends the connection.
func (c *zkServerConn) one() bool {
	q, err := c.receive()
	if err != nil {
		return false
	}
	xid, kind := q.int(), q.int()
	fault := zkNoFault
	if kind != zkPing {
		c.z.mu.Lock()
		f := c.z.fault
		c.z.mu.Unlock()
		if f != nil {
			fault = f(kind)
		}
	}
	if fault == zkLoseRequest {
		return false
	}
	body := &jute{}
	code := c.do(kind, q, body)
	if q.bad {
		c.z.t.Errorf("request of kind %d cannot be read", kind)
		return false
	}
	if fault == zkLoseAnswer {
		return false
	}
	c.z.root.mu.RLock()
	zxid := c.z.root.store.(*memory).last
	c.z.root.mu.RUnlock()
	j := &jute{}
	j.putInt(xid)
	j.putLong(zxid)
	j.putInt(code)
	if code == 0 {
		j.b = append(j.b, body.b...)
	}
	c.mu.Lock()
	c.events()
	c.send(j)
	c.mu.Unlock()
	return kind != zkClose
}
