package api

// node is a broker as a peer reaches it.
type node struct {
	id   int32
	host string
	port int32
	rack *string
}

// leaderOf is who leads a partition, as its replica here knows it, else as the cluster's
// picture has it; -1 where nobody is known.
func (s *API) leaderOf(topic string, partition int32) (id, epoch int32) {
	if part, err := s.Replicas.Partition(topic, partition); err == nil {
		return part.Leading()
	}
	if part := s.Meta.Load().Partition(topic, partition); part != nil {
		return part.Leader, part.LeaderEpoch
	}
	return -1, -1
}

// leaderNode is where a peer reaches a broker that is alive and has the peer's listener.
func (s *API) leaderNode(p *Peer, id int32) (node, bool) {
	b := s.Meta.Load().Broker(id)
	if b == nil {
		return node{}, false
	}
	host, port, ok := endpoint(p, b)
	if !ok {
		return node{}, false
	}
	n := node{id: id, host: host, port: port}
	if b.Rack != "" {
		n.rack = &b.Rack
	}
	return n, true
}
