package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// quotas counts connections, all of them and by address. As in Kafka's ConnectionQuotas, a
// full server stops accepting until a connection ends, and an address that has too many gets
// its new one closed.
type quotas struct {
	max     int // not above 0: no limit
	perIP   int // below 0: no limit
	special map[netip.Addr]int

	mu    sync.Mutex
	total int                // guarded by mu
	count map[netip.Addr]int // guarded by mu
	freed chan struct{}      // guarded by mu: closed when a connection of a full server ends; nil if nobody waits
}

func newQuotas(o Options) (*quotas, error) {
	q := &quotas{max: o.MaxConnections, perIP: o.MaxConnectionsPerIP, special: map[netip.Addr]int{}, count: map[netip.Addr]int{}}
	for host, n := range o.PerIPOverrides {
		if a, err := netip.ParseAddr(host); err == nil {
			q.special[a.Unmap()] = n
			continue
		}
		addrs, err := net.LookupHost(host)
		if err != nil {
			return nil, fmt.Errorf("max.connections.per.ip.overrides: %w", err)
		}
		for _, s := range addrs {
			if a, err := netip.ParseAddr(s); err == nil {
				q.special[a.Unmap()] = n
			}
		}
	}
	return q, nil
}

// wait returns when another connection may be accepted; false if ctx ended first.
func (q *quotas) wait(ctx context.Context) bool {
	for {
		q.mu.Lock()
		if q.max <= 0 || q.total < q.max {
			q.mu.Unlock()
			return ctx.Err() == nil
		}
		if q.freed == nil {
			q.freed = make(chan struct{})
		}
		freed := q.freed
		q.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

// enter counts a connection in; false if its address has too many.
func (q *quotas) enter(ip netip.Addr) bool {
	limit, ok := q.special[ip]
	if !ok {
		limit = q.perIP
	}
	q.mu.Lock()
	defer q.mu.Unlock()
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
