package api

import (
	"fmt"
	"runtime/debug"

	"ottla/compat"
	"ottla/protocol"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchRoute makes the route of Fetch, whose answer may have to wait for records: then whoever
// appends them completes it.
func fetchRoute() route {
	return newRoute[kmsg.FetchRequest](compat.Fetch, nil, func(s *API, c *call, req kmsg.Request) (protocol.Reply, error) {
		ans, x, err := s.fetch(c, c.peer, c.header, req.(*kmsg.FetchRequest))
		if x != nil {
			return protocol.Reply{Later: &laterFetch{c: c, x: x}}, nil
		}
		return protocol.Reply{Answer: ans}, err
	})
}

// laterFetch is a Fetch that waits.
type laterFetch struct {
	c    *call
	x    *fetchCall
	done func(*protocol.Answer, error)
}

// Start implements protocol.Later.
func (l *laterFetch) Start(done func(*protocol.Answer, error)) {
	l.done = done
	l.x.waits.Start(l.finish)
}

// Stop implements protocol.Later.
func (l *laterFetch) Stop() { l.x.waits.Stop() }

// finish makes the answer. It runs on whichever goroutine ended the waiting, which a panic here
// is no concern of.
func (l *laterFetch) finish() {
	l.done(l.answer())
}

func (l *laterFetch) answer() (ans *protocol.Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			l.x.s.Logger.Error("panic in a handler", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			ans, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	l.x.s.Metrics.waited(l.c)
	return l.x.finish(l.c)
}
