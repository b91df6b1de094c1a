package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	// JuteMaxBuffer is the longest request that a ZooKeeper takes as it comes (jute.maxbuffer).
	JuteMaxBuffer = 0xfffff

	zkDefaultPort    = 2181
	zkDefaultSession = 18 * time.Second // zookeeper.session.timeout.ms
	zkDefaultFlight  = 10               // zookeeper.max.in.flight.requests
	zkDialTimeout    = 6 * time.Second
	zkMaxAnswer      = 64 << 20 // of a server: the names of some hundred thousand children
	zkMultiReserve   = 16 << 10 // of a request, for its head and what a caller adds to a transaction
)

// ZooKeeperOptions is what a root on ZooKeeper is made from.
type ZooKeeperOptions struct {
	// Connect is host:port[,host:port…][/chroot], as Kafka's zookeeper.connect. The port is 2181
	// where there is none.
	Connect string
	// SessionTimeout is asked for; the server may answer another one. 0: 18 s.
	SessionTimeout time.Duration
	// Patience is how long a call waits for a connection before it ends with ErrConnectionLoss, the
	// first one too. 0: the session timeout.
	Patience time.Duration
	// MakeChroot makes the nodes of the chroot that are missing.
	MakeChroot bool
	// MaxBuffer is the servers' jute.maxbuffer in bytes. 0: JuteMaxBuffer.
	MaxBuffer int
	// InFlight is how many reads GetAll has under way at once. 0: 10.
	InFlight int
	// Dial opens a connection to one of the addresses. Nil: TCP.
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	Logger *slog.Logger
}

// zkTree is a session on a ZooKeeper, one after the other: Renew begins the next.
//
// A session has a client of its own, which is not let near a server again once the session has
// expired: the library would open a new session by itself, and would send in it what was queued
// in the old one.
//
// Locks: mu. It is not held while the library is called, which calls back with events.
type zkTree struct {
	o      ZooKeeperOptions
	hosts  []string
	chroot string // empty, or a path
	log    *slog.Logger

	ends sync.WaitGroup // clients that are being closed

	mu       sync.Mutex
	current  *zkSession            // guarded by mu
	closed   bool                  // guarded by mu
	data     zkWatches             // guarded by mu: on nodes, by whole path
	children zkWatches             // guarded by mu: on children
	watchers map[*Watcher]struct{} // guarded by mu: told of what becomes of the session
}

// OpenZooKeeper opens a session on a ZooKeeper. Nodes are made open to everybody. Errors:
// ErrBadPath for a connect string that is none, ErrConnectionLoss when no server has answered
// within Patience.
func OpenZooKeeper(o ZooKeeperOptions) (Tree, error) {
	o.SessionTimeout = cmp.Or(o.SessionTimeout, zkDefaultSession)
	o.Patience = cmp.Or(o.Patience, o.SessionTimeout)
	o.MaxBuffer = cmp.Or(o.MaxBuffer, JuteMaxBuffer)
	o.InFlight = cmp.Or(o.InFlight, zkDefaultFlight)
	if o.Dial == nil {
		d := net.Dialer{Timeout: zkDialTimeout}
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	hosts, chroot, err := parseConnect(o.Connect)
	if err != nil {
		return nil, err
	}
	t := &zkTree{
		o: o, hosts: hosts, chroot: chroot, log: o.Logger.With("room", "registry"),
		data: zkWatches{}, children: zkWatches{}, watchers: map[*Watcher]struct{}{},
	}
	first, err := t.openSession()
	if err != nil {
		t.ends.Wait()
		return nil, err
	}
	t.mu.Lock()
	t.current = first
	t.mu.Unlock()
	if o.MakeChroot {
		if err := t.makeChroot(); err != nil {
			t.Close()
			return nil, fmt.Errorf("make the chroot %s: %w", chroot, err)
		}
	}
	return t, nil
}

// parseConnect takes a connect string apart.
func parseConnect(s string) (hosts []string, chroot string, err error) {
	bad := func(why string) error { return fmt.Errorf("%w: ZooKeeper %q: %s", ErrBadPath, s, why) }
	list := s
	if i := strings.IndexByte(s, '/'); i >= 0 {
		list, chroot = s[:i], strings.TrimSuffix(s[i:], "/")
		if chroot != "" {
			if err := checkPath(chroot, false); err != nil {
				return nil, "", bad("its chroot is no path: " + err.Error())
			}
		}
	}
	for address := range strings.SplitSeq(list, ",") {
		address = strings.TrimSpace(address)
		host, port, err := net.SplitHostPort(address)
		if err != nil { // no port, or an address with colons alone
			host, port = strings.Trim(address, "[]"), strconv.Itoa(zkDefaultPort)
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" || strings.ContainsAny(host, " []/") {
			return nil, "", bad("allowed is host:port[,host:port][/chroot]")
		}
		hosts = append(hosts, net.JoinHostPort(host, port))
	}
	return hosts, chroot, nil
}

func (t *zkTree) makeChroot() error {
	s, err := t.session()
	if err != nil {
		return err
	}
	for i := 1; i <= len(t.chroot); i++ {
		if i < len(t.chroot) && t.chroot[i] != '/' {
			continue
		}
		if _, err := t.multi(s, []Op{Create(t.chroot[:i], nil, Persistent)}); err != nil && !errors.Is(err, ErrNodeExists) {
			return err
		}
	}
	return nil
}

// whole is a path as the server has it.
func (t *zkTree) whole(path string) string {
	switch {
	case t.chroot == "":
		return path
	case path == "/":
		return t.chroot
	}
	return t.chroot + path
}

// local is the inverse of whole.
func (t *zkTree) local(path string) string {
	if path = strings.TrimPrefix(path, t.chroot); path == "" {
		return "/"
	}
	return path
}

// session is the one that calls belong to now, or why there is none.
func (t *zkTree) session() (*zkSession, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	return t.current, t.current.over
}

func (t *zkTree) Get(path string, w *Watcher) ([]byte, Stat, error) {
	if err := checkPath(path, false); err != nil {
		return nil, Stat{}, err
	}
	s, err := t.session()
	if err != nil {
		return nil, Stat{}, err
	}
	return t.get(s, path, w)
}

func (t *zkTree) get(s *zkSession, path string, w *Watcher) (data []byte, st Stat, err error) {
	whole := t.whole(path)
	err = t.read(s, path, w, t.data, func(set bool) error {
		var zst *zk.Stat
		var err error
		if set {
			data, zst, _, err = s.conn.GetW(whole)
		} else {
			data, zst, err = s.conn.Get(whole)
		}
		if err == nil {
			st = statOf(zst)
		}
		return err
	})
	if err != nil {
		return nil, Stat{}, err
	}
	return data, st, nil
}

func (t *zkTree) Exists(path string, w *Watcher) (st Stat, err error) {
	if err := checkPath(path, false); err != nil {
		return Stat{}, err
	}
	s, err := t.session()
	if err != nil {
		return Stat{}, err
	}
	whole, there := t.whole(path), false
	err = t.read(s, path, w, t.data, func(set bool) (err error) {
		var zst *zk.Stat
		if set {
			there, zst, _, err = s.conn.ExistsW(whole)
		} else {
			there, zst, err = s.conn.Exists(whole)
		}
		if err == nil {
			st = statOf(zst)
		}
		return err
	})
	switch {
	case err != nil:
		return Stat{}, err
	case !there:
		return Stat{}, fmt.Errorf("%w: %s", ErrNoNode, path)
	}
	return st, nil
}

func (t *zkTree) Children(path string, w *Watcher) (names []string, st Stat, err error) {
	if err := checkPath(path, false); err != nil {
		return nil, Stat{}, err
	}
	s, err := t.session()
	if err != nil {
		return nil, Stat{}, err
	}
	whole := t.whole(path)
	err = t.read(s, path, w, t.children, func(set bool) (err error) {
		var zst *zk.Stat
		if set {
			names, zst, _, err = s.conn.ChildrenW(whole)
		} else {
			names, zst, err = s.conn.Children(whole)
		}
		if err == nil {
			st = statOf(zst)
		}
		return err
	})
	if err != nil {
		return nil, Stat{}, err
	}
	slices.Sort(names)
	return names, st, nil
}

// GetAll has several reads under way at once; what it gives is no snapshot.
func (t *zkTree) GetAll(paths []string, w *Watcher) ([]Node, error) {
	for _, path := range paths {
		if err := checkPath(path, false); err != nil {
			return nil, err
		}
	}
	s, err := t.session()
	if err != nil {
		return nil, err
	}
	nodes := make([]Node, len(paths))
	var group sync.WaitGroup
	var mu sync.Mutex
	next, failed := 0, error(nil)
	for range min(t.o.InFlight, len(paths)) {
		group.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := failed != nil || i >= len(paths)
				mu.Unlock()
				if stop {
					return
				}
				n := &nodes[i]
				n.Path = paths[i]
				n.Data, n.Stat, n.Err = t.get(s, paths[i], w)
				if n.Err != nil && !errors.Is(n.Err, ErrNoNode) {
					mu.Lock()
					failed = cmp.Or(failed, n.Err)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	if failed != nil {
		return nil, failed
	}
	return nodes, nil
}

func (t *zkTree) Create(path string, data []byte, mode Mode) (string, error) {
	results, err := t.Multi(Create(path, data, mode))
	if err != nil {
		return "", err
	}
	return results[0].Path, nil
}

func (t *zkTree) Set(path string, data []byte, version int32) (Stat, error) {
	results, err := t.Multi(Set(path, data, version))
	if err != nil {
		return Stat{}, err
	}
	return results[0].Stat, nil
}

func (t *zkTree) Delete(path string, version int32) error {
	_, err := t.Multi(Delete(path, version))
	return err
}

func (t *zkTree) Multi(ops ...Op) ([]Result, error) {
	s, err := t.session()
	if err != nil {
		return nil, err
	}
	whole := make([]Op, len(ops))
	for i, op := range ops {
		whole[i] = op
		err := checkPath(op.Path, op.Kind == OpCreate && op.Mode&Sequence != 0)
		switch {
		case err != nil:
		case op.Path == "/" && op.Kind == OpCreate:
			err = ErrNodeExists
		case op.Path == "/" && op.Kind == OpDelete:
			err = fmt.Errorf("%w: the root stays", ErrBadPath)
		}
		if err != nil {
			return nil, &OpError{i, op, err}
		}
		whole[i].Path = t.whole(op.Path)
	}
	results, err := t.multi(s, whole)
	if failed, ok := errors.AsType[*OpError](err); ok {
		failed.Op = ops[failed.Index]
	}
	for i := range results {
		if results[i].Path != "" {
			results[i].Path = t.local(results[i].Path)
		}
	}
	return results, err
}

// Group cannot make writes durable together here.
func (t *zkTree) Group(f func(Tree) error) error {
	if _, err := t.session(); err != nil {
		return err
	}
	return f(t)
}

func (t *zkTree) Session() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current.id
}

func (t *zkTree) MultiLimit() int { return max(1, t.o.MaxBuffer-zkMultiReserve) }

// Renew that finds no server is followed by another event Expired, so that who has called it may do
// so again.
func (t *zkTree) Renew() error {
	_, err := t.session()
	if !errors.Is(err, ErrSessionExpired) {
		return err
	}
	s, err := t.openSession()
	t.mu.Lock()
	switch {
	case t.closed:
		err = ErrClosed
	case err != nil:
		t.tellLocked(Event{Kind: Expired})
	case t.current.over == nil: // another Renew was faster
	case s.over != nil: // already
		t.current, err = s, s.over
		t.tellLocked(Event{Kind: Expired})
	default:
		t.current = s
		t.tellLocked(Event{Kind: Connected})
	}
	unused := s != nil && t.current != s
	t.mu.Unlock()
	if unused {
		s.finish()
	}
	return err
}

func (t *zkTree) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	s := t.current
	t.endLocked(s, ErrClosed, Lost)
	t.mu.Unlock()
	t.ends.Wait()
	return nil
}

func statOf(z *zk.Stat) Stat {
	return Stat{
		Czxid: z.Czxid, Mzxid: z.Mzxid, Pzxid: z.Pzxid, Ctime: z.Ctime, Mtime: z.Mtime,
		Version: z.Version, Cversion: z.Cversion, EphemeralOwner: z.EphemeralOwner,
		DataLength: z.DataLength, NumberOfNodes: z.NumChildren,
	}
}
