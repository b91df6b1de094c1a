//go:build !clients

package registry

import "testing"

// moreRoots are those that need more than Go.
func moreRoots(*testing.T) []testRoot { return nil }
