package api

import (
	"context"

	"ottla/broker/auth"
	"ottla/compat"
	"ottla/protocol"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// routes is the table of handlers, ascending by key: exactly the rows that compat.APIs calls
// served. ApiVersions announces it.
func routes() []route {
	return []route{
		staged(compat.Produce, (*API).produce),
		fetchRoute(),
		on(compat.ListOffsets, (*API).listOffsets),
		on(compat.Metadata, (*API).metadata),
		on(compat.OffsetCommit, (*API).offsetCommit),
		on(compat.OffsetFetch, (*API).offsetFetch),
		on(compat.FindCoordinator, (*API).findCoordinator),
		on(compat.JoinGroup, (*API).joinGroup),
		on(compat.Heartbeat, (*API).heartbeat),
		on(compat.LeaveGroup, (*API).leaveGroup),
		on(compat.SyncGroup, (*API).syncGroup),
		on(compat.DescribeGroups, (*API).describeGroups),
		on(compat.ListGroups, (*API).listGroups),
		on(compat.ApiVersions, (*API).apiVersions, beforeLogin),
		on(compat.CreateTopics, (*API).createTopics),
		on(compat.DeleteTopics, (*API).deleteTopics),
		staged(compat.DeleteRecords, (*API).deleteRecords),
		on(compat.InitProducerId, (*API).initProducerID),
		on(compat.OffsetForLeaderEpoch, (*API).offsetForLeaderEpoch),
		on(compat.AddPartitionsToTxn, (*API).addPartitionsToTxn),
		on(compat.AddOffsetsToTxn, (*API).addOffsetsToTxn),
		on(compat.EndTxn, (*API).endTxn),
		on(compat.WriteTxnMarkers, (*API).writeTxnMarkers),
		on(compat.TxnOffsetCommit, (*API).txnOffsetCommit),
		on(compat.DescribeConfigs, (*API).describeConfigs),
		on(compat.AlterConfigs, (*API).alterConfigs),
		on(compat.DescribeLogDirs, (*API).describeLogDirs),
		on(compat.CreatePartitions, (*API).createPartitions),
		on(compat.DeleteGroups, (*API).deleteGroups),
		on(compat.ElectLeaders, (*API).electLeaders, needsCluster(auth.Alter)),
		on(compat.IncrementalAlterConfigs, (*API).incrementalAlterConfigs),
		on(compat.AlterPartitionReassignments, (*API).alterPartitionReassignments, needsCluster(auth.Alter)),
		on(compat.ListPartitionReassignments, (*API).listPartitionReassignments, needsCluster(auth.Describe)),
		on(compat.OffsetDelete, (*API).offsetDelete),
		on(compat.UpdateFeatures, (*API).updateFeatures, needsCluster(auth.Alter)),
		on(compat.DescribeCluster, (*API).describeCluster),
		on(compat.DescribeProducers, (*API).describeProducers),
		on(compat.DescribeTransactions, (*API).describeTransactions),
		on(compat.ListTransactions, (*API).listTransactions),
		on(compat.ConsumerGroupHeartbeat, (*API).consumerGroupHeartbeat),
		on(compat.ConsumerGroupDescribe, (*API).consumerGroupDescribe),
		on(compat.ListConfigResources, (*API).listConfigResources, needsCluster(auth.DescribeConfigs)),
		on(compat.DescribeTopicPartitions, (*API).describeTopicPartitions),
	}
}

// clusterRoutes are what brokers of a cluster ask each other, ascending by key: the rows that
// compat.APIs calls Clustered.
func clusterRoutes() []route {
	member := func(r *route) { r.cluster, r.member = auth.ClusterAction, true }
	return []route{
		on(compat.LeaderAndIsr, (*API).leaderAndIsr, member),
		on(compat.StopReplica, (*API).stopReplica, member),
		on(compat.UpdateMetadata, (*API).updateMetadata, member),
		on(compat.ControlledShutdown, (*API).controlledShutdown, member),
		on(compat.AlterPartition, (*API).alterPartition, member),
		on(compat.AllocateProducerIds, (*API).allocateProducerIDs, member),
	}
}

// route is one row: an API, who may call it, and its handler.
type route struct {
	compat.API
	open    bool           // answered before the client has logged in
	member  bool           // of other brokers of the cluster
	cluster auth.Operation // needed on the cluster for the request as a whole; 0: the handler asks for each resource
	make    func() kmsg.Request
	call    func(*API, *call, kmsg.Request) (protocol.Reply, error)
}

// column sets one of a route's columns.
type column func(*route)

// beforeLogin marks an API that is answered before the client has logged in.
func beforeLogin(r *route) { r.open = true }

// needsCluster makes the whole request depend on an operation on the cluster.
func needsCluster(op auth.Operation) column { return func(r *route) { r.cluster = op } }

// request is a pointer to one of kmsg's structs.
type request[T any] interface {
	*T
	kmsg.Request
}

type response[T any] interface {
	*T
	kmsg.Response
}

// on makes the route of a handler that answers when it returns. A nil answer sends nothing; an
// error closes the connection.
func on[T, U any, Q request[T], S response[U]](a compat.API, h func(*API, context.Context, *Peer, Q) (S, error), cs ...column) route {
	return newRoute[T, Q](a, cs, func(s *API, c *call, req kmsg.Request) (protocol.Reply, error) {
		resp, err := h(s, c, c.peer, req.(Q))
		if err = c.outcome(err); err != nil || resp == nil {
			return protocol.Reply{}, err
		}
		s.throttle(c, resp)
		return protocol.Reply{Answer: c.encode(resp)}, nil
	})
}

// staged makes the route of a handler that has had all its effects when it returns but may
// have to wait before it can answer: for replicas, for an fsync. The wait completes the answer
// in place; it runs on the connection's writer while the reader goes on to later requests, so
// it must not touch the Peer. A nil wait means that the answer is complete.
func staged[T, U any, Q request[T], S response[U]](a compat.API, h func(*API, context.Context, *Peer, Q) (S, func(context.Context) error, error), cs ...column) route {
	return newRoute[T, Q](a, cs, func(s *API, c *call, req kmsg.Request) (protocol.Reply, error) {
		resp, wait, err := h(s, c, c.peer, req.(Q))
		if err = c.outcome(err); err != nil || resp == nil {
			return protocol.Reply{After: c.after()}, err
		}
		s.throttle(c, resp)
		if wait == nil {
			return protocol.Reply{Answer: c.encode(resp), After: c.after()}, nil
		}
		return protocol.Reply{After: c.after(), Wait: func(ctx context.Context) (*protocol.Answer, error) {
			// The call's own context ended with the handler, and its wakes are the reader's.
			w := call{Context: ctx, peer: c.peer, route: c.route, header: c.header, size: c.size, begun: c.begun}
			err := wait(&w)
			s.Metrics.waited(c)
			if err = w.outcome(err); err != nil {
				return nil, err
			}
			return c.encode(resp), nil
		}}, nil
	})
}

func newRoute[T any, Q request[T]](a compat.API, cs []column, f func(*API, *call, kmsg.Request) (protocol.Reply, error)) route {
	r := route{API: a, make: func() kmsg.Request { return Q(new(T)) }, call: f}
	for _, c := range cs {
		c(&r)
	}
	return r
}
