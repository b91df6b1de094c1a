package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Key types of FindCoordinator (CoordinatorType).
const (
	groupCoordinator       = 0
	transactionCoordinator = 1
	shareCoordinator       = 2 // KIP-932
)

// findCoordinator tells which broker coordinates a group or a transactional id: the leader of its
// partition of __consumer_offsets or __transaction_state, which is made if there is none yet.
//
// Versions: 1 key types; 4 several keys (KIP-699); 6 share groups. Kafka answers
// COORDINATOR_NOT_AVAILABLE while it makes the topic; here the first answer is the right one.
func (s *API) findCoordinator(ctx context.Context, p *Peer, req *kmsg.FindCoordinatorRequest) (*kmsg.FindCoordinatorResponse, error) {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version < 4 {
		n, err := s.coordinatorOf(ctx, p, req, req.CoordinatorKey)
		resp.NodeID, resp.Host, resp.Port = n.id, n.host, n.port
		resp.ErrorCode, resp.ErrorMessage = code(ctx, err), kmsg.StringPtr("NONE")
		if err != nil {
			resp.ErrorMessage = message(err)
		}
		return resp, nil
	}
	resp.Coordinators = make([]kmsg.FindCoordinatorResponseCoordinator, 0, len(req.CoordinatorKeys))
	for _, key := range req.CoordinatorKeys {
		n, err := s.coordinatorOf(ctx, p, req, key)
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Host, c.Port = key, n.id, n.host, n.port
		c.ErrorCode, c.ErrorMessage = code(ctx, err), kmsg.StringPtr("")
		if err != nil {
			c.ErrorMessage = message(err)
		}
		resp.Coordinators = append(resp.Coordinators, c)
	}
	return resp, nil
}

// coordinatorNode is a broker as FindCoordinator tells it.
type coordinatorNode struct {
	id   int32
	host string
	port int32
}

func (s *API) coordinatorOf(ctx context.Context, p *Peer, req *kmsg.FindCoordinatorRequest, key string) (coordinatorNode, error) {
	none := coordinatorNode{id: -1, port: -1}
	var topic string
	var ensure func(context.Context) error
	var partitionFor func(string) int32
	switch req.CoordinatorType {
	case groupCoordinator:
		if !s.allowed(p, auth.Describe, auth.Group, key) {
			return none, refuse(kerr.GroupAuthorizationFailed, "Not authorized to access group: %s", key)
		}
		topic, ensure, partitionFor = group.Topic, s.Groups.EnsureTopic, s.Groups.PartitionFor
	case transactionCoordinator:
		if !s.allowed(p, auth.Describe, auth.TransactionalID, key) {
			return none, refuse(kerr.TransactionalIDAuthorizationFailed, "Not authorized to access transactional id: %s", key)
		}
		topic, ensure, partitionFor = txn.Topic, s.Txns.EnsureTopic, s.Txns.PartitionFor
	case shareCoordinator:
		return none, refuse(kerr.InvalidRequest, "This broker has no share coordinator.")
	default:
		return none, refuse(kerr.InvalidRequest, "Unknown coordinator type %d.", req.CoordinatorType)
	}
	if err := ensure(ctx); err != nil {
		s.Logger.WarnContext(ctx, "topic of a coordinator can't be made", "topic", topic, "err", err)
		return none, err
	}
	pic := s.Meta.Load()
	part := pic.Partition(topic, partitionFor(key))
	if part == nil {
		return none, kerr.CoordinatorNotAvailable
	}
	b := pic.Broker(part.Leader)
	if b == nil {
		return none, kerr.CoordinatorNotAvailable
	}
	host, port, ok := endpoint(p, b)
	if !ok {
		return none, kerr.CoordinatorNotAvailable
	}
	return coordinatorNode{b.ID, host, port}, nil
}
