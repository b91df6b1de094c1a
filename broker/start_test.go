package broker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ottla/broker/registry"
	"ottla/compat"
	"ottla/log/vfs"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestStartThatFails: what cannot do what a start has to do neither serves nor says that it is ready.
func TestStartThatFails(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	c, stop := running(t, other)
	produce(t, c, "old")
	stop()
	c, stop = running(t, dir)
	if _, err := kadm.NewClient(c).CreateTopic(t.Context(), 1, 1, nil, "another"); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := os.Rename(filepath.Join(other, "kept-0"), filepath.Join(dir, "kept-0")); err != nil {
		t.Fatal(err)
	}
	script := new(vfs.Script)
	b, err := New(Options{
		Settings: map[string]string{"log.dirs": dir, "listeners": "PLAINTEXT://127.0.0.1:0"},
		Ready:    func(Ready) { t.Error("it says that it is ready") },
		fs:       vfs.WithErrors(vfs.OS(), script),
	})
	if err != nil {
		t.Fatal(err)
	}
	script.Add(vfs.Fault{Op: vfs.OpRename, Name: "kept-0.*-stray", Err: syscall.EIO})
	if err := b.Run(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("it ended with %v", err)
	}
}

// TestRegistryElsewhere: the same log directories in another order do not begin a second registry.
func TestRegistryElsewhere(t *testing.T) {
	a, c := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "c")
	open := func(dirs, meta string) error {
		set := map[string]string{"log.dirs": dirs, "listeners": "PLAINTEXT://127.0.0.1:0"}
		if meta != "" {
			set["metadata.log.dir"] = meta
		}
		b, err := New(Options{Settings: set})
		if err == nil {
			b.Close()
		}
		return err
	}
	if err := open(a+","+c, ""); err != nil {
		t.Fatal(err)
	}
	for _, x := range [][2]string{{c + "," + a, ""}, {a + "," + c, c}, {a, filepath.Join(t.TempDir(), "meta")}} {
		if err := open(x[0], x[1]); !errors.Is(err, errElsewhere) || !strings.Contains(err.Error(), "is in "+a) {
			t.Errorf("%v: %v", x, err)
		}
	}
	for _, x := range [][2]string{{a + "," + c, ""}, {c + "," + a, a}} {
		if err := open(x[0], x[1]); err != nil {
			t.Errorf("%v: %v", x, err)
		}
	}
}

// TestIDLost: with meta.properties cut to nothing the default id is not taken for that of a registry with
// another broker's replicas.
func TestIDLost(t *testing.T) {
	dir := t.TempDir()
	meta := filepath.Join(dir, "meta.properties")
	open := func(id string) error {
		set := map[string]string{"log.dirs": dir, "listeners": "PLAINTEXT://127.0.0.1:0"}
		if id != "" {
			set["broker.id"] = id
		}
		b, err := New(Options{Settings: set})
		if err != nil {
			return err
		}
		defer b.Close()
		if _, err := b.tree.Create("/brokers/topics/t", compat.TopicNode{Partitions: [][]int32{{2}}}.Encode(), registry.Persistent); err != nil && !errors.Is(err, registry.ErrNodeExists) {
			t.Error(err)
		}
		return nil
	}
	if err := open("2"); err != nil {
		t.Fatal(err)
	}
	for _, lose := range []func() error{func() error { return os.WriteFile(meta, nil, 0o644) }, func() error { return os.Remove(meta) }} {
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		if err := open(""); !errors.Is(err, errNoID) || !strings.Contains(err.Error(), "set broker.id=2") {
			t.Errorf("started: %v", err)
		}
		if err := open("2"); err != nil {
			t.Error(err)
		}
		if err := open(""); err != nil {
			t.Error(err)
		}
	}
}
