package api

import (
	"context"
	"net"
	"slices"
	"time"

	"ottla/broker/auth"
	"ottla/broker/metadata"

	"github.com/twmb/franz-go/pkg/kerr"
)

// firstPicture is how long a client of a broker that has just joined its cluster waits for the
// controller to tell the broker of it. Until then no topic is known, and clients would take that for true.
const firstPicture = 5 * time.Second

// pictured waits until this broker has a picture of its cluster.
func (s *API) pictured(ctx context.Context) error {
	if s.Own == nil || len(s.Meta.Load().Brokers) > 0 {
		return nil
	}
	if s.awaitPicture(ctx, firstPicture, func(pic *metadata.Picture) bool { return len(pic.Brokers) > 0 }) {
		return nil
	}
	return ctx.Err()
}

// awaitPicture waits for a picture of the cluster that is as wanted, and says whether there is one; false when
// the time is up, or ctx ends.
func (s *API) awaitPicture(ctx context.Context, most time.Duration, wanted func(*metadata.Picture) bool) bool {
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		pic, changed := s.Meta.Next()
		if wanted(pic) {
			return true
		}
		select {
		case <-changed:
		case <-late.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// authorizedOperations are those that the peer may do to a resource, as the set of bits that
// answers have (KIP-430).
func (s *API) authorizedOperations(p *Peer, t auth.ResourceType, name string) int32 {
	var may int32
	for op := range auth.TwoPhaseCommit + 1 {
		if t.Operations()&(1<<op) != 0 && s.allowed(p, op, t, name) {
			may |= 1 << op
		}
	}
	return may
}

// internalTopic says whether Kafka calls a topic internal (Topic.isInternal).
func internalTopic(name string) bool {
	switch name {
	case "__consumer_offsets", "__transaction_state", "__share_group_state":
		return true
	}
	return false
}

// endpoint is where the peer reaches a broker: its endpoint on the listener that the peer came
// through. An endpoint without a host is this broker's own, by the address that the peer used.
func endpoint(p *Peer, b *metadata.Broker) (host string, port int32, ok bool) {
	e, ok := b.Endpoint(p.Conn.Listener)
	if !ok {
		return "", 0, false
	}
	if e.Host == "" {
		e.Host = "localhost"
		if a, is := p.Conn.Local.(*net.TCPAddr); is {
			e.Host = a.IP.String()
		}
	}
	return e.Host, e.Port, true
}

// nodes are the live brokers that the peer can reach, with their addresses.
func nodes(p *Peer, pic *metadata.Picture, each func(b *metadata.Broker, host string, port int32)) {
	for i := range pic.Brokers {
		b := &pic.Brokers[i]
		if host, port, ok := endpoint(p, b); ok {
			each(b, host, port)
		}
	}
}

// reachable says whether a broker is alive and has the peer's listener.
func reachable(p *Peer, pic *metadata.Picture, id int32) bool {
	b := pic.Broker(id)
	if b == nil {
		return false
	}
	_, ok := b.Endpoint(p.Conn.Listener)
	return ok
}

// offlineReplicas are those of a partition's replicas that are offline or that the peer cannot
// reach; never nil.
func offlineReplicas(p *Peer, pic *metadata.Picture, part *metadata.Partition) []int32 {
	offline := []int32{}
	for _, r := range part.Replicas {
		if slices.Contains(part.Offline, r) || !reachable(p, pic, r) {
			offline = append(offline, r)
		}
	}
	return offline
}

// leaderCode is the partition's error as Metadata tells it: its leader is gone, or lacks the
// peer's listener (which requests before Metadata v6 cannot be told apart).
func leaderCode(p *Peer, pic *metadata.Picture, part *metadata.Partition, tellListener bool) int16 {
	b := pic.Broker(part.Leader)
	switch {
	case b == nil:
		return kerr.LeaderNotAvailable.Code
	case reachable(p, pic, part.Leader):
		return 0
	case tellListener:
		return kerr.ListenerNotFound.Code
	}
	return kerr.LeaderNotAvailable.Code
}

// ints is a list as an answer has it: never null, never shared with the picture.
func ints(a []int32) []int32 { return append([]int32{}, a...) }
