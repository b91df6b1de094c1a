package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"

	"ottla/broker/registry"
)

// ClusterOptions are what a cluster in one process is made of.
type ClusterOptions struct {
	Brokers int
	// Options are every broker's. Settings may not have ids, listeners or log directories, which the
	// cluster gives to each.
	Options
	// Dir has a directory for each broker, and the registry; empty: everything is in memory.
	Dir string
	// Listen is the address of the first broker, host:port; the others have the ports behind it. A
	// port of 0, or no address, gives every broker a free one.
	Listen string
}

// Cluster is several brokers in one process, on one registry: each with a session of its own, so that
// what holds between brokers holds between them. Ids are from 1 on.
type Cluster struct {
	o     ClusterOptions
	root  *registry.Local
	ended chan error // holds one: why a broker has ended by itself
	cuts  sync.Map   // by address: the brokers to which nothing comes from others

	mu      sync.Mutex
	members map[int32]*member // guarded by mu
	had     map[int32]string  // guarded by mu: addresses, which a broker keeps when it is started again
}

// member is a broker of a Cluster, with what can be done to it.
type member struct {
	id     int32
	tree   registry.Tree
	killed atomic.Bool
	cut    atomic.Bool // what it sends to others is lost
	cuts   *sync.Map   // of the cluster

	broker *Broker
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Run, once done
}

// ErrNoMember: there is no such broker in the cluster, or it does not run.
var ErrNoMember = errors.New("no such broker runs in the cluster")

// NewCluster starts a cluster; its brokers serve when it returns.
func NewCluster(o ClusterOptions) (*Cluster, error) {
	c := &Cluster{o: o, members: map[int32]*member{}, had: map[int32]string{}, ended: make(chan error, 1)}
	var err error
	if o.Dir == "" {
		c.root = registry.NewMemory(o.Now)
	} else if c.root, err = registry.NewFile(filepath.Join(o.Dir, registryFile), o.Now); err != nil {
		return nil, err
	}
	for id := range int32(o.Brokers) {
		if err := c.Start(id + 1); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Start starts a broker that does not run.
func (c *Cluster) Start(id int32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members[id] != nil {
		return fmt.Errorf("broker %d runs already", id)
	}
	o := c.o.Options
	o.Settings = maps.Clone(o.Settings)
	if o.Settings == nil {
		o.Settings = map[string]string{}
	}
	listen, err := c.listen(id)
	if err != nil {
		return err
	}
	o.Settings["broker.id"], o.Settings["listeners"] = fmt.Sprint(id), "PLAINTEXT://"+listen
	if o.InMemory = c.o.Dir == ""; !o.InMemory {
		o.Settings["log.dirs"] = filepath.Join(c.o.Dir, fmt.Sprint("broker-", id))
	}
	ready := make(chan struct{})
	o.Ready = func(Ready) { close(ready) }
	m := &member{id: id, tree: c.root.Session(), cuts: &c.cuts, done: make(chan struct{})}
	o.member = m
	if m.broker, err = New(o); err != nil {
		return fmt.Errorf("broker %d: %w", id, err)
	}
	c.had[id] = m.broker.Addrs()[0].Addr.String()
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	c.members[id] = m
	go func() {
		defer close(m.done)
		if m.err = m.broker.Run(ctx); ctx.Err() == nil {
			select {
			case c.ended <- fmt.Errorf("broker %d ended: %w", id, m.err):
			default:
			}
		}
	}()
	select {
	case <-ready:
		return nil
	case <-m.done:
		delete(c.members, id)
		return fmt.Errorf("broker %d: %w", id, m.err)
	}
}

// listen is the address of a broker.
func (c *Cluster) listen(id int32) (string, error) {
	if had := c.had[id]; had != "" {
		return had, nil
	}
	if c.o.Listen == "" {
		return "127.0.0.1:0", nil
	}
	host, port, err := net.SplitHostPort(c.o.Listen)
	if err != nil {
		return "", err
	}
	n, err := net.LookupPort("tcp", port)
	if err != nil {
		return "", err
	}
	if n != 0 {
		n += int(id) - 1
	}
	return net.JoinHostPort(host, fmt.Sprint(n)), nil
}

// Broker is a broker that runs, or nil.
func (c *Cluster) Broker(id int32) *Broker {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.members[id]; m != nil {
		return m.broker
	}
	return nil
}

// Addrs are where clients reach the brokers that run, HOST:PORT each, ascending by id.
func (c *Cluster) Addrs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var addrs []string
	for id := range int32(c.o.Brokers) {
		if m := c.members[id+1]; m != nil {
			addrs = append(addrs, m.broker.Addrs()[0].Addr.String())
		}
	}
	return addrs
}

func (c *Cluster) take(id int32) (*member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[id]
	if m == nil {
		return nil, fmt.Errorf("%w: %d", ErrNoMember, id)
	}
	delete(c.members, id)
	return m, nil
}

// Stop stops a broker as a signal does: what it leads is handed over first.
func (c *Cluster) Stop(id int32) error {
	m, err := c.take(id)
	if err != nil {
		return err
	}
	m.cancel()
	<-m.done
	return m.err
}

// Kill ends a broker without a word to the others: its session expires and its connections end, and
// nothing is handed over. What it has written stays, as after a kill of its process.
func (c *Cluster) Kill(id int32) error {
	m, err := c.take(id)
	if err != nil {
		return err
	}
	m.killed.Store(true)
	m.broker.server.Close()
	m.cancel()
	<-m.done
	return nil
}

// Cut parts a broker from all others; its session, and its clients, stay. Mend ends that.
func (c *Cluster) Cut(id int32) error  { return c.setCut(id, true) }
func (c *Cluster) Mend(id int32) error { return c.setCut(id, false) }

func (c *Cluster) setCut(id int32, cut bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[id]
	if m == nil {
		return fmt.Errorf("%w: %d", ErrNoMember, id)
	}
	m.cut.Store(cut)
	for _, a := range m.broker.Addrs() {
		if cut {
			c.cuts.Store(a.Addr.String(), true)
		} else {
			c.cuts.Delete(a.Addr.String())
		}
	}
	return nil
}

// Expire ends a broker's session, as a ZooKeeper does that has not heard of it.
func (c *Cluster) Expire(id int32) error {
	c.mu.Lock()
	m := c.members[id]
	c.mu.Unlock()
	if m == nil {
		return fmt.Errorf("%w: %d", ErrNoMember, id)
	}
	return c.root.Expire(m.tree.Session())
}

// Wait waits until ctx ends, or a broker ends by itself: that is its error.
func (c *Cluster) Wait(ctx context.Context) error {
	select {
	case err := <-c.ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Close stops all.
func (c *Cluster) Close() error {
	var errs []error
	for id := range int32(c.o.Brokers) {
		if err := c.Stop(id + 1); err != nil && !errors.Is(err, ErrNoMember) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, c.root.Close())...)
}

var errCut = errors.New("the way between the brokers is cut")

// dial is the way of a member to others.
func (m *member) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &wire{conn, m, address}, nil
}

// wire is one connection of a member. It loses what is sent or comes while either end is cut.
type wire struct {
	net.Conn
	from *member
	to   string
}

func (w *wire) cut() bool {
	_, to := w.from.cuts.Load(w.to)
	return to || w.from.cut.Load()
}

func (w *wire) Write(p []byte) (int, error) {
	if w.cut() {
		w.Conn.Close()
		return 0, errCut
	}
	return w.Conn.Write(p)
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.cut() {
		w.Conn.Close()
		return 0, errCut
	}
	return n, err
}
