package api

import (
	"context"
	"fmt"
	"time"

	"ottla/broker/auth"
	"ottla/broker/replica"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"
	"ottla/log"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// markerTimeout is how long a marker waits for its replicas before it is sent again (request.timeout.ms).
const markerTimeout = 30 * time.Second

// writeTxnMarkers ends transactions in partitions that this broker leads, as their coordinator has
// decided. It also serves kafka-transactions, which aborts a hanging one by it.
//
// Versions: 1 flexible; 2 transaction.version (KIP-1228), by which a marker that comes a second
// time is known.
func (s *API) writeTxnMarkers(ctx context.Context, p *Peer, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error) {
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	resp.Markers = make([]kmsg.WriteTxnMarkersResponseMarker, 0, len(req.Markers))
	allowed := s.allowed(p, auth.Alter, auth.Cluster, auth.ClusterName) || s.allowed(p, auth.ClusterAction, auth.Cluster, auth.ClusterName)
	for i := range req.Markers {
		in := &req.Markers[i]
		m := txn.Marker{Producer: in.ProducerID, Epoch: in.ProducerEpoch, CoordinatorEpoch: in.CoordinatorEpoch, Commit: in.Committed, Version: int16(in.TransactionVersion)}
		out := kmsg.NewWriteTxnMarkersResponseMarker()
		out.ProducerID = in.ProducerID
		out.Topics = make([]kmsg.WriteTxnMarkersResponseMarkerTopic, 0, len(in.Topics))
		var codes []*int16 // where the answers to m's partitions belong
		for _, t := range in.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			rt.Partitions = make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(t.Partitions))
			for j, n := range t.Partitions {
				rp := &rt.Partitions[j]
				*rp = kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				rp.Partition, rp.ErrorCode = n, kerr.ClusterAuthorizationFailed.Code
				m.Partitions, codes = append(m.Partitions, txn.Partition{Topic: t.Topic, Number: n}), append(codes, &rp.ErrorCode)
			}
			out.Topics = append(out.Topics, rt)
		}
		if len(codes) == 0 {
			continue // Kafka answers a marker with the first of its partitions
		}
		if allowed {
			for k, err := range s.WriteMarker(ctx, m) {
				*codes[k] = code(ctx, err)
			}
		}
		resp.Markers = append(resp.Markers, out)
	}
	return resp, nil
}

// WriteMarker writes a marker to partitions that this broker leads and waits until it is
// replicated. One error, or nil, for each partition: those of replica.Partition, and the log's
// ErrInvalidProducerEpoch and ErrCoordinatorFenced.
func (s *API) WriteMarker(ctx context.Context, m txn.Marker) []error {
	ctx, cancel := context.WithTimeout(ctx, markerTimeout)
	defer cancel()
	errs := make([]error, len(m.Partitions))
	waits := make([]func(context.Context) error, len(m.Partitions))
	end := record.EndMarker{Commit: m.Commit, CoordinatorEpoch: m.CoordinatorEpoch}
	for i, at := range m.Partitions {
		part, err := s.Replicas.Leader(at.Topic, at.Number)
		if err == nil && at.Topic == group.Topic {
			waits[i] = func(ctx context.Context) error { return s.endOffsets(ctx, at.Number, m) }
			continue
		}
		if err == nil {
			_, waits[i], err = part.Append(ctx, log.Append{
				Records: end.Batch(m.Producer, m.Epoch, s.Now().UnixMilli()), Origin: record.Coordinator, TxnVersion: m.Version,
			}, -1)
		}
		errs[i] = err
	}
	for i, wait := range waits {
		if wait != nil {
			errs[i] = wait(ctx)
		}
	}
	return errs
}

// endOffsets ends a transaction in a partition of __consumer_offsets, which its group coordinator
// does. To whoever waits for the marker a coordinator that is not ready is a leader that is not.
func (s *API) endOffsets(ctx context.Context, partition int32, m txn.Marker) error {
	err := s.Groups.EndTxn(ctx, partition, group.TxnEnd{Producer: m.Producer, Epoch: m.Epoch, CoordinatorEpoch: m.CoordinatorEpoch, Commit: m.Commit, Version: m.Version})
	if txnUnreachable(err) {
		return fmt.Errorf("%w: %v", replica.ErrNotLeader, err)
	}
	return err
}
