//go:build !race

package group

import (
	"context"
	"testing"
)

// TestAllocations: what a member asks for all the time allocates no more than it has to, through the shard and back.
func TestAllocations(t *testing.T) {
	c := benchCoordinator(t, &sink{})
	id, generation := benchMember(t, c, "g")
	ctx := context.Background()
	commit := benchCommit("g", id, generation)
	heartbeat := HeartbeatRequest{Group: "g", MemberID: id, Generation: generation}
	for _, x := range []struct {
		what string
		most float64
		do   func() error
	}{
		{"OffsetCommit", 17, func() error { _, err := c.Commit(ctx, commit); return err }},
		{"Heartbeat", 6, func() error { return c.Heartbeat(ctx, heartbeat) }},
	} {
		n := testing.AllocsPerRun(200, func() {
			if err := x.do(); err != nil {
				t.Fatal(err)
			}
		})
		if n > x.most {
			t.Errorf("%s allocates %v times, at most %v", x.what, n, x.most)
		}
	}
}
