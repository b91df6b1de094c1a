// Package server accepts connections and moves frames: requests in, answers out, in order.
//
// A connection has a reader, which takes frames off the socket and runs their handlers one
// after the other, and, while answers are pending, a writer. An answer that is complete when
// nothing is pending is written by the reader itself, so an idle connection is one goroutine
// that holds no buffer: it waits for the socket to become readable and only then takes one
// from a pool (see input).
//
// Nothing is set aside for what a peer only announces, and everything that a peer can make
// grow has a limit: the frame (Options.MaxRequestBytes and MaxOtherBytes), all frames
// (QueuedMaxRequestBytes), pending answers (maxPending, maxPendingBytes), connections.
// Whatever breaks a limit or the protocol loses its own connection, nothing else.
//
// Locks: conn.mu, quotas.mu, budget.mu and Server.mu are never held together.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ottla/protocol"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// sweepsPerIdle is how often within the idle limit waiting connections are looked at.
const sweepsPerIdle = 4

// stopGrace is how long answers may take to leave when the server stops.
const stopGrace = 250 * time.Millisecond

// Session answers the requests of one connection, one at a time.
type Session interface {
	// Handle takes one frame, without its length prefix. The frame is valid until Handle
	// returns or, if the reply has a Wait, until that does. An error closes the connection,
	// after the answers to earlier requests.
	Handle(ctx context.Context, frame []byte) (protocol.Reply, error)
	Close()
}

// Listener is a named address to listen on.
type Listener struct {
	Name     string // as PLAINTEXT or EXTERNAL
	Protocol string // PLAINTEXT
	Host     string // empty: every address; localhost: the loopback addresses of IPv4 and IPv6
	Port     int    // 0: a free one
}

// Options are the settings of a server. Sizes are in bytes.
type Options struct {
	Listeners []Listener
	Open      func(protocol.Conn) Session

	MaxRequestBytes       int   // socket.request.max.bytes
	MaxOtherBytes         int   // ottla.request.max.bytes: requests other than Produce; 0: as MaxRequestBytes
	QueuedMaxRequestBytes int64 // queued.max.request.bytes: all frames in memory together; not above 0: no limit

	Limits func() (Limits, <-chan struct{}) // of connections, as they are, and a channel that is closed when others hold

	IdleTimeout   time.Duration // connections.max.idle.ms; not above 0: never
	SendBuffer    int           // socket.send.buffer.bytes; not above 0: the system's
	ReceiveBuffer int           // socket.receive.buffer.bytes; not above 0: the system's
	Backlog       int           // socket.listen.backlog.size; not above 0: the system's

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// Bound is a socket that the server listens on.
type Bound struct {
	Listener string
	Addr     net.Addr
}

// Server is a set of listening sockets and the connections accepted by them.
type Server struct {
	opts    Options
	sockets []socket
	quotas  *quotas
	budget  *budget
	buffers buffers
	metrics *metrics
	ids     atomic.Uint64
	stopped atomic.Bool // set before the connections are told to stop

	mu    sync.Mutex
	conns map[*conn]struct{} // guarded by mu
	quit  context.CancelFunc // guarded by mu: ends Run; nil before and after
	wg    sync.WaitGroup     // acceptors and connections
}

type socket struct {
	listener Listener
	counters *listenerMetrics
	ln       net.Listener
}

// Listen binds all listeners, so that their ports are known, but accepts nothing yet.
func Listen(o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxOtherBytes <= 0 || o.MaxOtherBytes > o.MaxRequestBytes {
		o.MaxOtherBytes = o.MaxRequestBytes
	}
	q, err := newQuotas(o)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, quotas: q, budget: newBudget(o.QueuedMaxRequestBytes), conns: map[*conn]struct{}{}}
	s.metrics = newMetrics(o.Registerer, o.Listeners)
	for i, l := range o.Listeners {
		lns, err := bind(l)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("listener %s: %w", l.Name, err)
		}
		for _, ln := range lns {
			s.sockets = append(s.sockets, socket{l, &s.metrics.listeners[i], ln})
			if err := setBacklog(ln, o.Backlog); err != nil {
				s.Close()
				return nil, fmt.Errorf("listener %s: %w", l.Name, err)
			}
		}
	}
	return s, nil
}

// Addrs returns the bound sockets in the order of Options.Listeners; a listener on localhost
// may have two.
func (s *Server) Addrs() []Bound {
	all := make([]Bound, len(s.sockets))
	for i, k := range s.sockets {
		all[i] = Bound{k.listener.Name, k.ln.Addr()}
	}
	return all
}

// Port returns the port that a listener is bound to, 0 if there is no such listener.
func (s *Server) Port(listener string) int {
	for _, k := range s.sockets {
		if k.listener.Name == listener {
			return k.ln.Addr().(*net.TCPAddr).Port
		}
	}
	return 0
}

// Run accepts connections until ctx ends or Close is called. Then handlers' contexts end,
// answers that are complete may still leave for a moment, and Run returns when every
// connection's goroutines have.
func (s *Server) Run(ctx context.Context) error {
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	s.mu.Lock()
	if s.quit != nil || s.stopped.Load() {
		s.mu.Unlock()
		return errors.New("the server runs or has run already")
	}
	s.quit = quit
	s.mu.Unlock()
	for _, k := range s.sockets {
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			s.accept(ctx, k)
		}()
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		s.sweep(ctx)
	}()
	<-ctx.Done()
	s.stop()
	s.wg.Wait()
	return nil
}

// sweep gives up buffers that nobody needs, and looks for connections that wait for a peer that
// has left; their readers, which would find out, are busy waiting.
func (s *Server) sweep(ctx context.Context) {
	shelf := time.NewTicker(shelfSweep)
	defer shelf.Stop()
	var idle <-chan time.Time
	if s.opts.IdleTimeout > 0 {
		t := time.NewTicker(max(s.opts.IdleTimeout/sweepsPerIdle, time.Millisecond))
		defer t.Stop()
		idle = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-shelf.C:
			if s.buffers.sweep() >= shelfReturn {
				debug.FreeOSMemory()
			}
		case <-idle:
			s.mu.Lock()
			for c := range s.conns {
				c.abandoned()
			}
			s.mu.Unlock()
		}
	}
}

// stop closes the sockets and has every connection end.
func (s *Server) stop() {
	s.stopped.Store(true)
	for _, k := range s.sockets {
		k.ln.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.stop()
	}
}

// Close ends Run and waits for it; it closes the sockets of a server that does not run.
func (s *Server) Close() error {
	s.mu.Lock()
	quit := s.quit
	s.mu.Unlock()
	if quit != nil {
		quit()
	} else {
		s.stop()
	}
	s.wg.Wait()
	return nil
}

// accept takes connections off one socket.
func (s *Server) accept(ctx context.Context, k socket) {
	var pause time.Duration
	for {
		if !s.quotas.wait(ctx) {
			return
		}
		nc, err := k.ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors or memory: others may end meanwhile.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.opts.Logger.Warn("cannot accept a connection", "listener", k.listener.Name, "err", err, "pause", pause)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			continue
		}
		pause = 0
		s.take(ctx, k, nc)
	}
}

// take starts serving an accepted connection, or closes it if its address has too many.
func (s *Server) take(ctx context.Context, k socket, nc net.Conn) {
	ip := addrIP(nc.RemoteAddr())
	if !s.quotas.enter(ip) {
		nc.Close()
		s.metrics.closed(closedLimit)
		s.opts.Logger.Debug("connection refused: too many from its address", "remote", nc.RemoteAddr())
		return
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		// Go has set TCP_NODELAY and keep-alive, as Kafka does.
		if s.opts.SendBuffer > 0 {
			tcp.SetWriteBuffer(s.opts.SendBuffer)
		}
		if s.opts.ReceiveBuffer > 0 {
			tcp.SetReadBuffer(s.opts.ReceiveBuffer)
		}
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer s.quotas.leave(ip)
		s.serve(ctx, k.listener.Name, k.counters, nc)
	}()
}

// serve serves one connection until it ends.
func (s *Server) serve(ctx context.Context, listener string, counters *listenerMetrics, nc net.Conn) {
	counters.opened.Add(1)
	defer counters.ended.Add(1)
	c := newConn(s, listener, counters, nc)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	if s.stopped.Load() { // stop may have missed it
		c.stop()
	}
	c.run(ctx)
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// bind opens the sockets of one listener.
func bind(l Listener) ([]net.Listener, error) {
	if l.Host != "localhost" {
		network := "tcp"
		if l.Host == "0.0.0.0" {
			network = "tcp4"
		}
		ln, err := net.Listen(network, net.JoinHostPort(l.Host, strconv.Itoa(l.Port)))
		if err != nil {
			return nil, err
		}
		return []net.Listener{ln}, nil
	}
	// Both loopback addresses have to get the same port; where the system chooses it for the
	// first, the second may find it taken, and the choice is made again.
	var taken error
	for range 16 {
		v4, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Port)))
		if err != nil {
			return nil, err
		}
		port := v4.Addr().(*net.TCPAddr).Port
		v6, err := net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(port)))
		switch {
		case err == nil:
			return []net.Listener{v4, v6}, nil
		case !errors.Is(err, syscall.EADDRINUSE): // there is no IPv6 here
			return []net.Listener{v4}, nil
		}
		v4.Close()
		if taken = err; l.Port != 0 {
			break
		}
	}
	return nil, taken
}

// setBacklog changes the length of a listening socket's queue.
func setBacklog(ln net.Listener, n int) error {
	if n <= 0 {
		return nil
	}
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Listen(int(fd), n) }); err != nil {
		return err
	}
	return failed
}
