//go:build unix

package vfs

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestUnlock: a lock is given up also while another process has its descriptor, as each has that
// is just being started.
func TestUnlock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	held, err := OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(held.(interface{ Fd() uintptr }).Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if err := again.Close(); err == nil {
		t.Error("closed twice")
	}
}
