//go:build clients

package registry

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// moreRoots has a real ZooKeeper, of the jars of Kafka 3.9.1 that integration/setup.sh installs.
func moreRoots(t *testing.T) []testRoot {
	address, _ := startZooKeeper(t)
	if address == "" {
		return nil
	}
	var mu sync.Mutex
	lines := map[Tree]*realLine{}
	session := func() Tree {
		line := &realLine{address: address}
		tree, err := OpenZooKeeper(ZooKeeperOptions{Connect: address + "/conformance", MakeChroot: true, Dial: line.dial, SessionTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		lines[tree] = line
		return tree
	}
	expire := func(tree Tree) {
		mu.Lock()
		line := lines[tree]
		mu.Unlock()
		if err := line.expire(); err != nil {
			t.Fatal(err)
		}
	}
	return []testRoot{{"real zookeeper", session, expire}}
}

// startZooKeeper gives its address and a function that kills it and starts it again; no address where
// it is not installed.
func startZooKeeper(t *testing.T) (address string, restart func()) {
	home := os.Getenv("OTTLA_CLIENTS")
	if home == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		home = filepath.Join(cache, "ottla-clients")
	}
	libs := filepath.Join(home, "kafka-3.9.1", "libs")
	if _, err := os.Stat(libs); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v; integration/setup.sh installs it", err)
		}
		t.Logf("no real ZooKeeper: %v; integration/setup.sh installs it", err)
		return "", nil
	}
	dir := t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = ln.Addr().String()
	ln.Close()
	config := fmt.Sprintf("tickTime=500\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n",
		dir, ln.Addr().(*net.TCPAddr).Port)
	file := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	start := func() {
		cmd = exec.Command("java", "-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true",
			"-cp", filepath.Join(libs, "*"), "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
		if err := cmd.Start(); err != nil {
			t.Error(err)
		}
	}
	kill := func() {
		if cmd.Process != nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	start()
	t.Cleanup(func() { kill() })
	return address, func() { kill(); start() }
}

// TestRealZooKeeperKilled: every write is done once, and answered as done, through a ZooKeeper that is
// killed and comes back; the session and its ephemeral node outlast it, and so do watches.
func TestRealZooKeeperKilled(t *testing.T) {
	address, restart := startZooKeeper(t)
	if address == "" {
		t.Skip("no real ZooKeeper")
	}
	open := func() Tree {
		tree, err := OpenZooKeeper(ZooKeeperOptions{Connect: address + "/killed", MakeChroot: true, SessionTimeout: 10 * time.Second, Patience: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	a, b := open(), open()
	defer a.Close()
	defer b.Close()
	must(a.Create("/n", []byte("0"), Persistent))(t)
	must(a.Create("/mine", nil, Ephemeral))(t)
	w := NewWatcher()
	_, err := b.Exists("/late", w)
	wantErr(t, err, ErrNoNode)
	const writes = 300
	for i := range int32(writes) {
		if i == writes/2 {
			killed := make(chan struct{})
			go func() {
				restart()
				close(killed)
			}()
			defer func() { <-killed }()
		}
		st, err := a.Set("/n", fmt.Append(nil, i+1), i)
		if err != nil || st.Version != i+1 {
			t.Fatalf("write %d: version %d, %v", i, st.Version, err)
		}
	}
	must(a.Create("/late", nil, Persistent))(t)
	awaitKind(t, w, NodeCreated)
	if st := must(b.Exists("/mine", nil))(t); st.EphemeralOwner != a.Session() {
		t.Errorf("owner %#x, session %#x", st.EphemeralOwner, a.Session())
	}
}

// realLine is the way of one tree to the server. It listens to the handshake: who has the id and
// the password of a session can end it.
type realLine struct {
	address string
	held    sync.Mutex // while a session is ended, so that its client does not come back before

	mu    sync.Mutex
	hello []byte // guarded by mu: the first bytes of the last connection
}

func (l *realLine) dial(ctx context.Context, address string) (net.Conn, error) {
	l.held.Lock()
	defer l.held.Unlock()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hello = nil
	return &realConn{Conn: c, line: l}, nil
}

type realConn struct {
	net.Conn
	line *realLine
}

const realHello = 4 + 4 + 4 + 8 + 4 + 16 // length, version, timeout, id, password

func (c *realConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.line.mu.Lock()
	defer c.line.mu.Unlock()
	if more := realHello - len(c.line.hello); more > 0 {
		c.line.hello = append(c.line.hello, p[:min(n, more)]...)
	}
	return n, err
}

// expire takes the session over and closes it.
func (l *realLine) expire() error {
	l.held.Lock()
	defer l.held.Unlock()
	l.mu.Lock()
	hello := l.hello
	l.mu.Unlock()
	c, err := net.Dial("tcp", l.address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 4+4+8, 64)
	b = append(b, hello[8:]...) // timeout, id, password
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	if _, err := c.Write(b); err != nil {
		return err
	}
	answer := make([]byte, realHello)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	closing := int32(zkClose)
	if _, err := c.Write(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8, 0, 0, 0, 1}, uint32(closing))); err != nil {
		return err
	}
	_, err = io.ReadAll(c)
	return err
}
