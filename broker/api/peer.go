package api

import (
	"context"
	"time"

	"ottla/broker/auth"
	"ottla/broker/quota"
	"ottla/protocol"
)

// Peer is the client at the other end of one connection. Its fields belong to the connection's
// reader, on which handlers run; what a handler leaves to wait for (see staged) runs elsewhere
// and must not read them.
type Peer struct {
	Conn      protocol.Conn
	Principal auth.Principal

	// ClientID is that of the request in hand; null and empty are both "".
	ClientID string
	// Software and SoftwareVersion are what the client said of itself in ApiVersions v3 and
	// above (KIP-511); empty if it did not.
	Software, SoftwareVersion string

	api        *API
	loggedIn   bool
	mutedUntil time.Time // a quota is exceeded until then
}

// Open makes the peer of a new connection. It is the connection's session: the server calls
// Handle for every frame and Close at the end.
func (s *API) Open(c protocol.Conn) *Peer {
	return &Peer{Conn: c, Principal: auth.Anonymous, api: s, loggedIn: true}
}

// Close ends the session.
func (p *Peer) Close() {}

// allowed asks the authorizer about one resource.
func (s *API) allowed(p *Peer, op auth.Operation, t auth.ResourceType, name string) bool {
	return s.Authorizer.Authorize(p.Principal, p.Conn.Remote, op, auth.Resource{Type: t, Name: name})
}

// charge counts an amount against the client's quota. The time returned goes into the answer
// as its throttle time; the connection's next request is not handled before it is over.
func (s *API) charge(p *Peer, k quota.Kind, amount int64) time.Duration {
	now := s.Now()
	d := s.Quota.Charge(quota.Client{User: p.Principal.Name, ClientID: p.ClientID}, k, amount, now)
	if d > 0 {
		if until := now.Add(d); until.After(p.mutedUntil) {
			p.mutedUntil = until
		}
	}
	return d
}

// unmute waits until a quota that was exceeded is kept again.
func (p *Peer) unmute(ctx context.Context) error {
	if p.mutedUntil.IsZero() {
		return nil
	}
	d := p.mutedUntil.Sub(p.api.Now())
	p.mutedUntil = time.Time{}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
