package broker

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

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
