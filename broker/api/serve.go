package api

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"ottla/broker/auth"
	"ottla/broker/quota"
	"ottla/broker/replica"
	"ottla/compat"
	"ottla/protocol"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Reasons for which a connection is closed without an answer, as Kafka does.
var (
	errUnserved = errors.New("an API or version that is not served")
	errNotOpen  = errors.New("a request before login")
)

// call is one request on its way through its handler. It is the handler's context and lets
// code() say in the log whose request an error belongs to.
type call struct {
	context.Context
	peer    *Peer
	route   *route
	header  protocol.Header
	size    int // of the frame, in bytes
	begun   time.Time
	handled time.Duration // that its handler took
	wakes   replica.Wakes // fetches that wait for what it appended
	ended   bool          // the broker stops, or the client has left, before there was an answer
}

// outcome is the error that a handler gave, or that there can be no answer any more.
func (c *call) outcome(err error) error {
	if c.ended && err == nil {
		return context.Canceled
	}
	return err
}

// after is what is left to do for others once the answer is on its way, nil if there is nothing.
func (c *call) after() func() {
	if !c.wakes.Any() {
		return nil
	}
	return c.wakes.Run
}

type callKey struct{}

// Value returns the call itself for callKey.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// wakesOf are those of the request that is handled in ctx, nil outside of one.
func wakesOf(ctx context.Context) *replica.Wakes {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return &c.wakes
	}
	return nil
}

// encode makes the answer and counts the errors in it.
func (c *call) encode(resp kmsg.Response) *protocol.Answer {
	c.peer.api.Metrics.answered(c, resp)
	return protocol.EncodeResponse(c.header, resp)
}

// Handle takes one request through everything that all requests have in common, and its
// handler. An error closes the connection; its text is for the log.
func (p *Peer) Handle(ctx context.Context, frame []byte) (protocol.Reply, error) {
	s := p.api
	h, body, err := protocol.ParseHeader(frame)
	if err != nil {
		return protocol.Reply{}, err
	}
	r := s.row(h.Key)
	if r == nil {
		return protocol.Reply{}, fmt.Errorf("%w: key %d version %d", errUnserved, h.Key, h.Version)
	}
	if h.Version < r.Min || h.Version > r.Max {
		if h.Key == compat.ApiVersions.Key {
			return s.unknownApiVersions(h), nil
		}
		return protocol.Reply{}, fmt.Errorf("%w: %s version %d", errUnserved, r.Name, h.Version)
	}
	if !p.loggedIn && !r.open {
		return protocol.Reply{}, fmt.Errorf("%w: %s", errNotOpen, r.Name)
	}
	if !r.open && !r.member {
		if err := s.pictured(ctx); err != nil {
			return protocol.Reply{}, err
		}
	}
	if err := protocol.CheckShape(h.Key, h.Version, body, protocol.MaxDecodedBytes); err != nil {
		return protocol.Reply{}, err
	}
	if err := p.unmute(ctx); err != nil {
		return protocol.Reply{}, err
	}
	protocol.Straighten(h.Key, h.Version, body)
	req := r.make()
	req.SetVersion(h.Version)
	if err := req.ReadFrom(body); err != nil {
		return protocol.Reply{}, fmt.Errorf("%w: %s version %d: %w", protocol.ErrMalformed, r.Name, h.Version, err)
	}
	if p.ClientID != string(h.ClientID) { // compared without a copy: it seldom changes
		p.ClientID = string(h.ClientID)
	}
	h.ClientID = nil // the frame does not outlive the request, the header may
	c := &call{Context: ctx, peer: p, route: r, header: h, size: len(frame), begun: time.Now()}
	var reply protocol.Reply
	if r.cluster != 0 && !s.allowed(p, r.cluster, auth.Cluster, auth.ClusterName) {
		reply = denied(h, req)
	} else {
		reply, err = r.call(s, c, req)
	}
	s.Metrics.handled(c, reply.Wait == nil && reply.Later == nil)
	return reply, err
}

// throttle charges the time of handling a request and puts into its answer what the client
// has to wait for that, or for what its handler charged, whichever is longer.
func (s *API) throttle(c *call, resp kmsg.Response) {
	d := s.charge(c.peer, quota.RequestTime, int64(time.Since(c.begun)))
	if d <= 0 {
		return
	}
	t, ok := resp.(interface {
		kmsg.ThrottleResponse
		kmsg.SetThrottleResponse
	})
	if !ok {
		return
	}
	ms := int32(min(d.Milliseconds(), 1<<31-1))
	if had, _ := t.Throttle(); ms > had {
		t.SetThrottle(ms)
	}
}

// denied is the answer to a request that needs an operation on the cluster which its sender
// may not do: the code where the answer has one for the whole, and nothing else in it.
func denied(h protocol.Header, req kmsg.Request) protocol.Reply {
	resp := req.ResponseKind()
	if f := reflect.ValueOf(resp).Elem().FieldByName("ErrorCode"); f.IsValid() {
		f.SetInt(int64(kerr.ClusterAuthorizationFailed.Code))
	}
	return protocol.Reply{Answer: protocol.EncodeResponse(h, resp)}
}
