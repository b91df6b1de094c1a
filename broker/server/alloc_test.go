package server

import (
	"context"
	"io"
	"sync/atomic"
	"testing"

	"ottla/protocol"
)

// mostAllocations is what one request may allocate in this room, its frame and its answer
// included: the frame's description, and what Go's poller needs.
const mostAllocations = 2

// TestAllocations: what a request costs does not go by its size, nor by how its answer is sent.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const size = 1 << 20
	f, _ := randomFile(t, size)
	var released atomic.Int32
	small, _ := rangesAnswer(&released, fileRange{f, 0, 1 << 10, &released})
	large, _ := rangesAnswer(&released, fileRange{f, 0, size, &released})
	for name, x := range map[string]struct {
		request, answer int
		as              *protocol.Answer
	}{
		"bytes":         {40, 7 + 4, answerOf("an answer"[:7])},
		"some records":  {40, 4 + 1<<10 + 1, small},
		"many records":  {40, 4 + size + 1, large},
		"a large frame": {size, 7 + 4, answerOf("an answer"[:7])},
	} {
		s := start(t, options(func(context.Context, []byte) (protocol.Reply, error) { return protocol.Reply{Answer: x.as}, nil }))
		nc := dial(t, s)
		request := frameOf(string(make([]byte, x.request)))
		buf := make([]byte, x.answer)
		if n := testing.AllocsPerRun(50, func() {
			if _, err := nc.Write(request); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(nc, buf); err != nil {
				t.Fatal(err)
			}
		}); n > mostAllocations {
			t.Errorf("%s: %v allocations a request, at most %d", name, n, mostAllocations)
		} else {
			t.Logf("%s: %v allocations", name, n)
		}
	}
}
