package server

import (
	"context"
	"sync"
)

// frame is a request in a buffer of its own.
type frame struct {
	buf     *buffer
	from    int // where it begins in the buffer
	size    int
	charged int64 // bytes taken from the budget
}

func (f *frame) bytes() []byte { return f.buf.b[f.from : f.from+f.size : f.from+f.size] }

// budget bounds the memory of all frames (queued.max.request.bytes). A frame begins while
// there is anything left, so the bound is exceeded by one frame at most at a time: what has
// begun goes on growing only within the bound, or as the one connection that may exceed it.
// So frames that have begun cannot wait for one another forever.
type budget struct {
	max int64 // not above 0: no limit

	mu    sync.Mutex
	used  int64         // guarded by mu
	over  bool          // guarded by mu: a frame grows beyond the bound
	freed chan struct{} // guarded by mu: closed when bytes come back; nil if nobody waits
}

func newBudget(max int64) *budget { return &budget{max: max} }

// take waits until n bytes may be used. A frame that grows (over not nil) may go beyond the
// bound if no other does; *over is set then and put has to be told.
func (g *budget) take(ctx context.Context, n int64, over *bool) error {
	if g.max <= 0 {
		return nil
	}
	for {
		g.mu.Lock()
		free := g.used < g.max
		if !free && over != nil && (*over || !g.over) {
			g.over, *over = true, true
			free = true
		}
		if free {
			g.used += n
			g.mu.Unlock()
			return nil
		}
		if g.freed == nil {
			g.freed = make(chan struct{})
		}
		freed := g.freed
		g.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// put gives n bytes back; over says that the frame that grew beyond the bound is done.
func (g *budget) put(n int64, over bool) {
	if g.max <= 0 || n == 0 && !over {
		return
	}
	g.mu.Lock()
	g.used -= n
	if over {
		g.over = false
	}
	if g.freed != nil {
		close(g.freed)
		g.freed = nil
	}
	g.mu.Unlock()
}
