package registry

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// zkSession is one session with its client.
type zkSession struct {
	tree   *zkTree
	ctx    context.Context // ends with the session, and a dial with it
	cancel func()
	id     int64           // set, as the next two, before anybody else sees the session
	conn   *zk.Conn        // nil for the callback that comes before
	events <-chan zk.Event // closed when the client has ended

	// What follows is guarded by tree.mu.
	over   error         // why it has ended
	ended  chan struct{} // closed with it
	up     chan struct{} // closed while there is a connection
	isUp   bool
	wire   net.Conn // the newest connection
	last   error    // why there is no connection
	closed bool     // its end has begun
}

var errOver = errors.New("the session has ended")

// openSession opens one and waits until a server has given it.
func (t *zkTree) openSession() (*zkSession, error) {
	s := &zkSession{tree: t, ended: make(chan struct{}), up: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	// The callback may come before Connect has returned.
	conn, events, err := zk.Connect(t.hosts, t.o.SessionTimeout,
		zk.WithDialer(func(_, address string, _ time.Duration) (net.Conn, error) { return s.dial(address) }),
		zk.WithHostProvider(&zkHosts{}), zk.WithEventCallback(s.event),
		zk.WithLogger(zkLogger{t.log}), zk.WithLogInfo(false),
		zk.WithMaxConnBufferSize(t.o.MaxBuffer+4096), zk.WithMaxBufferSize(zkMaxAnswer))
	if err != nil {
		return nil, fmt.Errorf("ZooKeeper %s: %w", t.o.Connect, err)
	}
	t.mu.Lock()
	s.conn, s.events = conn, events
	t.mu.Unlock()
	late := time.NewTimer(t.o.Patience)
	defer late.Stop()
	if err := s.wait(late.C); err != nil {
		s.finish()
		return nil, fmt.Errorf("ZooKeeper %s: %w", t.o.Connect, err)
	}
	s.id = conn.SessionID()
	return s, nil
}

// dial is the only way of a session to a server, and it is closed when the session has ended.
func (s *zkSession) dial(address string) (net.Conn, error) {
	t := s.tree
	t.mu.Lock()
	over := s.over != nil || s.closed
	t.mu.Unlock()
	if over {
		return nil, errOver
	}
	c, err := t.o.Dial(s.ctx, address)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		s.last = err
		return nil, err
	}
	if s.over != nil || s.closed {
		c.Close()
		return nil, errOver
	}
	s.wire = c
	return &zkWire{Conn: c, handshake: t.o.SessionTimeout}, nil
}

// event hears from the library, on its goroutines, in the order in which things happen: the event
// of a watch comes before any answer that shows its change.
func (s *zkSession) event(e zk.Event) {
	t := s.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.over != nil {
		return
	}
	if e.Type == zk.EventSession {
		switch {
		case e.Server == "": // told by a server; what counts is what the client makes of it
		case e.State == zk.StateHasSession && !s.isUp:
			s.isUp, s.last = true, nil
			close(s.up)
			if s == t.current {
				t.tellLocked(Event{Kind: Connected})
			}
		case e.State == zk.StateDisconnected && s.isUp:
			s.isUp, s.up = false, make(chan struct{})
			if s == t.current {
				t.tellLocked(Event{Kind: Disconnected})
			}
		case e.State == zk.StateExpired:
			t.endLocked(s, ErrSessionExpired, Expired)
		}
		return
	}
	if s != t.current {
		return
	}
	out := Event{Path: t.local(e.Path)}
	var fired []*zkWatch
	switch e.Type {
	case zk.EventNodeCreated:
		out.Kind, fired = NodeCreated, t.data.take(e.Path)
	case zk.EventNodeDataChanged:
		out.Kind, fired = NodeChanged, t.data.take(e.Path)
	case zk.EventNodeDeleted:
		out.Kind, fired = NodeDeleted, append(t.data.take(e.Path), t.children.take(e.Path)...)
	case zk.EventNodeChildrenChanged:
		out.Kind, fired = ChildrenChanged, t.children.take(e.Path)
	}
	for i, f := range fired {
		if !slices.ContainsFunc(fired[:i], func(g *zkWatch) bool { return g.w == f.w }) {
			f.w.add(out)
		}
	}
}

func (t *zkTree) tellLocked(e Event) {
	for w := range t.watchers {
		w.addState(e)
	}
}

// endLocked ends a session for all calls and begins the end of its client.
func (t *zkTree) endLocked(s *zkSession, why error, kind EventKind) {
	if s.over == nil {
		s.over = why
		close(s.ended)
	}
	if s == t.current {
		clear(t.data)
		clear(t.children)
		t.tellLocked(Event{Kind: kind})
	}
	if !s.closed && s.conn != nil {
		s.closed = true
		t.ends.Go(func() { s.end(why) })
	}
}

// finish ends a session that nobody has used.
func (s *zkSession) finish() {
	s.tree.mu.Lock()
	begun := s.closed
	s.closed = true
	s.tree.mu.Unlock()
	if !begun {
		s.end(ErrClosed)
	}
}

// end closes the client; a session that has not expired is closed at the server too, with its
// ephemeral nodes.
func (s *zkSession) end(why error) {
	s.cancel()
	s.tree.mu.Lock()
	up, wire := s.isUp, s.wire
	s.tree.mu.Unlock()
	if (!up || errors.Is(why, ErrSessionExpired)) && wire != nil {
		wire.Close() // nothing to be said to a server, nothing to wait for
	}
	s.conn.Close()
	if wire != nil {
		wire.Close()
	}
	for range s.events { // it is closed when the client's goroutines have ended
	}
}

// wait waits for a connection. Errors: ErrConnectionLoss after the deadline, or why the session
// has ended.
func (s *zkSession) wait(deadline <-chan time.Time) error {
	t := s.tree
	t.mu.Lock()
	over, up := s.over, s.up
	t.mu.Unlock()
	if over != nil {
		return over
	}
	select {
	case <-up:
		return nil
	default:
	}
	select {
	case <-up:
		return nil
	case <-s.ended:
		t.mu.Lock()
		defer t.mu.Unlock()
		return s.over
	case <-deadline:
		t.mu.Lock()
		defer t.mu.Unlock()
		if s.last == nil {
			return fmt.Errorf("%w: no server has answered within %v", ErrConnectionLoss, t.o.Patience)
		}
		return fmt.Errorf("%w: no server has answered within %v: %w", ErrConnectionLoss, t.o.Patience, s.last)
	}
}

// zkWire is a connection as the library has it. It does two things that the library does not.
//
// A client that comes back tells the server which watches it had and up to where it has seen the
// tree; what has changed since is then fired. The library takes that place from the last answer,
// which may be one to a request that was waiting while there was no connection, and changes before
// it would never be told. Here it is the place that the client had when it connected.
//
// A server that accepts and says nothing is left after a session timeout and not after seven.
type zkWire struct {
	net.Conn
	handshake time.Duration // at most; 0: it is over
	greeted   bool          // the first packet, a connect request, was written
	seen      int64         // the last zxid that this names
}

const (
	zkConnectZxid    = 8  // where a connect request has it: length, version
	zkWatchesZxid    = 12 // and a request that sets watches: length, xid, kind
	zkKindAt         = 8
	zkKindSetWatches = 101
)

func (c *zkWire) Write(p []byte) (int, error) {
	switch {
	case !c.greeted && len(p) >= zkConnectZxid+8:
		c.greeted, c.seen = true, int64(binary.BigEndian.Uint64(p[zkConnectZxid:]))
	case len(p) >= zkWatchesZxid+8 && binary.BigEndian.Uint32(p[zkKindAt:]) == zkKindSetWatches:
		p = slices.Clone(p)
		binary.BigEndian.PutUint64(p[zkWatchesZxid:], uint64(c.seen))
	}
	return c.Conn.Write(p)
}

func (c *zkWire) SetReadDeadline(at time.Time) error {
	if c.handshake > 0 && !at.IsZero() {
		if most := time.Now().Add(c.handshake); at.After(most) {
			at = most
		}
		c.handshake = 0
	}
	return c.Conn.SetReadDeadline(at)
}

// zkHosts gives the servers in turn; their names are looked up by every dial. After a round
// without success the library waits for a second.
type zkHosts struct {
	mu    sync.Mutex
	hosts []string
	next  int
	tried int
}

func (h *zkHosts) Init(hosts []string) error { h.hosts = hosts; return nil } // in random order

func (h *zkHosts) Len() int { return len(h.hosts) }

func (h *zkHosts) Next() (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	host, again := h.hosts[h.next], h.tried >= len(h.hosts)
	h.next = (h.next + 1) % len(h.hosts)
	if again {
		h.tried = 0
	}
	h.tried++
	return host, again
}

func (h *zkHosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}

type zkLogger struct{ log *slog.Logger }

func (l zkLogger) Printf(format string, args ...any) {
	l.log.Debug("ZooKeeper client", "says", fmt.Sprintf(format, args...))
}
