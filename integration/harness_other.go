//go:build !linux

package integration

import "os/exec"

// endWithParent does nothing here: only Linux ends a child with its parent.
func endWithParent(*exec.Cmd) {}
