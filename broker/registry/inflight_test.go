package registry

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// heldConn tells of every request, and while held lets no answer through.
type heldConn struct {
	net.Conn
	held  *atomic.Bool
	free  chan struct{}
	wrote chan struct{}
}

func (c *heldConn) Write(p []byte) (int, error) {
	if c.held.Load() {
		c.wrote <- struct{}{}
	}
	return c.Conn.Write(p)
}

func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.held.Load() {
		<-c.free
	}
	return n, err
}

// TestInFlight: reads of several nodes are under way at once, no more than InFlight.
func TestInFlight(t *testing.T) {
	z := newZKServer(t)
	o := z.connect("")
	var held atomic.Bool
	free, wrote := make(chan struct{}), make(chan struct{}, 100)
	o.InFlight = 3
	o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
		c, err := z.dial(ctx, address)
		return &heldConn{c, &held, free, wrote}, err
	}
	tree, err := OpenZooKeeper(o)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	var paths []string
	for i := range 8 {
		paths = append(paths, fmt.Sprintf("/n%d", i))
		must(tree.Create(paths[i], nil, Persistent))(t)
	}
	held.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := tree.GetAll(paths, nil)
		done <- err
	}()
	for range 3 {
		<-wrote
	}
	select {
	case <-wrote:
		t.Error("more than three reads are under way")
	case <-time.After(50 * time.Millisecond):
	}
	held.Store(false)
	close(free)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNextBrokerID: ids rise, also on a tree that has no node for them yet.
func TestNextBrokerID(t *testing.T) {
	root := NewMemory(nil)
	defer root.Close()
	tree := root.Session()
	for i := range int32(3) {
		if id, err := NextBrokerID(tree, 1000); err != nil || id != 1001+i {
			t.Errorf("id %d, %v", id, err)
		}
	}
}
