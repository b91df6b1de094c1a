//go:build clients

package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"ottla/broker/registry"
)

// zooKeeper is a real one, of the jars of Kafka 3.9.1 that setup.sh installs.
type zooKeeper struct {
	t       *testing.T
	address string
	file    string
	libs    string
	cmd     *exec.Cmd
}

// newZooKeeper has a directory and a port for one that does not run yet.
func newZooKeeper(t *testing.T) *zooKeeper {
	t.Helper()
	libs := filepath.Join(installed(t, "kafka-3.9.1/libs"), "kafka-3.9.1", "libs")
	dir := t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zooKeeper{t: t, address: ln.Addr().String(), file: filepath.Join(dir, "zoo.cfg"), libs: libs}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	config := fmt.Sprintf("tickTime=500\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n", dir, port)
	if err := os.WriteFile(z.file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.kill)
	return z
}

// startZooKeeper is one that runs.
func startZooKeeper(t *testing.T) *zooKeeper {
	z := newZooKeeper(t)
	z.start()
	return z
}

func (z *zooKeeper) start() {
	z.cmd = exec.Command("java", "-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true",
		"-cp", filepath.Join(z.libs, "*"), "org.apache.zookeeper.server.quorum.QuorumPeerMain", z.file)
	endWithParent(z.cmd)
	if err := z.cmd.Start(); err != nil {
		z.t.Fatal(err)
	}
}

func (z *zooKeeper) kill() {
	if z.cmd != nil {
		z.cmd.Process.Kill()
		z.cmd.Wait()
		z.cmd = nil
	}
}

// tree is a session on it, from a path on.
func (z *zooKeeper) tree(chroot string) registry.Tree {
	z.t.Helper()
	t, err := registry.OpenZooKeeper(registry.ZooKeeperOptions{Connect: z.address + chroot, MakeChroot: true, SessionTimeout: 20 * time.Second, Patience: 30 * time.Second})
	if err != nil {
		z.t.Fatal(err)
	}
	z.t.Cleanup(func() { t.Close() })
	return t
}

// znode is what a node has as its data; absent: it is not there.
func znode(t *testing.T, tree registry.Tree, path string) string {
	t.Helper()
	data, _, err := tree.Get(path, nil)
	if err != nil {
		return "absent"
	}
	if data == nil {
		return "null"
	}
	return string(data)
}
