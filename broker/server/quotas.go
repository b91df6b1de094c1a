package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
)

// Limits are how many connections there may be.
type Limits struct {
	Connections int            // max.connections; not above 0: no limit
	PerIP       int            // max.connections.per.ip; 0: only addresses with an override; below 0: no limit
	Overrides   map[string]int // max.connections.per.ip.overrides: by address or host name
}

// quotas counts connections, all of them and by address. As in Kafka's ConnectionQuotas, a
// full server stops accepting until a connection ends, and an address that has too many gets
// its new one closed. Lower limits close no connection that is there.
type quotas struct {
	source func() (Limits, <-chan struct{})
	log    *slog.Logger

	mu      sync.Mutex
	limits  Limits             // guarded by mu
	changed <-chan struct{}    // guarded by mu: closed when limits are not in force any more
	special map[netip.Addr]int // guarded by mu: limits.Overrides by address
	total   int                // guarded by mu
	count   map[netip.Addr]int // guarded by mu
	freed   chan struct{}      // guarded by mu: closed when a connection of a full server ends; nil if nobody waits
}

func newQuotas(o Options) (*quotas, error) {
	q := &quotas{source: o.Limits, log: o.Logger, count: map[netip.Addr]int{}}
	return q, q.reload()
}

// reload takes the limits that are in force. The error is of host names without an address.
func (q *quotas) reload() (err error) {
	q.limits, q.changed = q.source()
	q.special = make(map[netip.Addr]int, len(q.limits.Overrides))
	for host, n := range q.limits.Overrides {
		if a, err := netip.ParseAddr(host); err == nil {
			q.special[a.Unmap()] = n
			continue
		}
		addrs, lookup := net.LookupHost(host)
		if lookup != nil {
			err = errors.Join(err, fmt.Errorf("max.connections.per.ip.overrides: %w", lookup))
		}
		for _, s := range addrs {
			if a, err := netip.ParseAddr(s); err == nil {
				q.special[a.Unmap()] = n
			}
		}
	}
	return err
}

// currentLocked makes sure that limits are those in force.
func (q *quotas) currentLocked() {
	select {
	case <-q.changed:
		if err := q.reload(); err != nil {
			q.log.Error("a limit of connections has no effect", "err", err)
		}
	default:
	}
}

// wait returns when another connection may be accepted; false if ctx ended first.
func (q *quotas) wait(ctx context.Context) bool {
	for {
		q.mu.Lock()
		q.currentLocked()
		if q.limits.Connections <= 0 || q.total < q.limits.Connections {
			q.mu.Unlock()
			return ctx.Err() == nil
		}
		if q.freed == nil {
			q.freed = make(chan struct{})
		}
		freed, changed := q.freed, q.changed
		q.mu.Unlock()
		select {
		case <-freed:
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// enter counts a connection in; false if its address has too many.
func (q *quotas) enter(ip netip.Addr) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.currentLocked()
	limit, ok := q.special[ip]
	if !ok {
		limit = q.limits.PerIP
	}
	if limit >= 0 && q.count[ip] >= limit {
		return false
	}
	q.count[ip]++
	q.total++
	return true
}

func (q *quotas) leave(ip netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total--
	if q.count[ip]--; q.count[ip] == 0 {
		delete(q.count, ip)
	}
	if q.freed != nil {
		close(q.freed)
		q.freed = nil
	}
}

// addrIP returns the IP address of a TCP address, and the zero Addr for anything else.
func addrIP(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap()
}
