package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// other is a broker that runs and is none of the given ones.
func (c *Cluster) other(not ...int32) int32 {
	for id := range int32(3) {
		is := false
		for _, n := range not {
			is = is || n == id+1
		}
		if !is && c.Broker(id+1) != nil {
			return id + 1
		}
	}
	return -1
}

// TestClusterMinISR: with fewer replicas in sync than min.insync.replicas nothing is acknowledged by all,
// and everything again when they are back.
func TestClusterMinISR(t *testing.T) {
	c := newCluster(t, nil)
	makeTopic(t, c, "kept", 1, map[string]string{"min.insync.replicas": "2"})
	leader := c.leaderOf("kept", 0)
	a := c.other(leader)
	b := c.other(leader, a)
	for _, id := range []int32{a, b} {
		if err := c.Kill(id); err != nil {
			t.Fatal(err)
		}
	}
	c.insync(t, "kept", 0, 1)
	cl := clusterClient(t, c, kgo.RecordRetries(0), kgo.DisableIdempotentWrite())
	err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "kept", Value: []byte("few")}).FirstErr()
	if !errors.Is(err, kerr.NotEnoughReplicas) {
		t.Errorf("with one replica in sync: %v", err)
	}
	one := clusterClient(t, c, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	if err := one.ProduceSync(t.Context(), &kgo.Record{Topic: "kept", Value: []byte("one")}).FirstErr(); err != nil {
		t.Errorf("acks=1: %v", err)
	}
	if end, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "kept"); err != nil {
		t.Error(err)
	} else if o, _ := end.Lookup("kept", 0); o.Offset != 0 || o.Err != nil {
		t.Errorf("what is not committed can be read: %+v", o)
	}
	if err := c.Start(a); err != nil {
		t.Fatal(err)
	}
	c.insync(t, "kept", 0, 2)
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "kept", Value: []byte("enough")}).FirstErr(); err != nil {
		t.Errorf("with two: %v", err)
	}
}

// TestClusterCut: a follower that is cut off leaves the in-sync set, and returns; a leader that reaches
// neither followers nor the controller acknowledges nothing and loses nothing.
func TestClusterCut(t *testing.T) {
	c := newCluster(t, map[string]string{"replica.lag.time.max.ms": "500", "replica.socket.timeout.ms": "1000"})
	makeTopic(t, c, "kept", 3, map[string]string{"min.insync.replicas": "2"})
	l := produceLoad(t, c, "kept")
	l.goesOn(t, 100)
	control := c.anyBroker().controller.Leader()
	cut := c.other(control)
	if err := c.Cut(cut); err != nil {
		t.Fatal(err)
	}
	// The load may stand still at what the broker leads that is cut off; a follower lags behind what is written.
	one := clusterClient(t, c, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(3) {
		if c.leaderOf("kept", p) != cut {
			until(t, "a follower that is cut off is out of sync", func() bool {
				one.Produce(context.Background(), &kgo.Record{Topic: "kept", Partition: p, Value: []byte(fmt.Sprintf("lag-%d-%d", p, time.Now().UnixNano()))}, nil)
				part := c.Broker(control).meta.Load().Partition("kept", p)
				return len(part.ISR) == 2
			})
		}
	}
	if err := c.Mend(cut); err != nil {
		t.Fatal(err)
	}
	for p := range int32(3) {
		c.insync(t, "kept", p, 3)
	}
	l.goesOn(t, 100)
	l.check(t, c)
}

// TestClusterExpired: a broker whose session ends while it is well gives up what it led, and comes back.
func TestClusterExpired(t *testing.T) {
	c := newCluster(t, nil)
	makeTopic(t, c, "kept", 3, map[string]string{"min.insync.replicas": "2"})
	l := produceLoad(t, c, "kept")
	l.goesOn(t, 100)
	for _, id := range []int32{c.leaderOf("kept", 0), c.anyBroker().controller.Leader()} {
		before := c.Broker(id).controller.BrokerEpoch()
		if err := c.Expire(id); err != nil {
			t.Fatal(err)
		}
		until(t, "the broker is registered again", func() bool { return c.Broker(id).controller.BrokerEpoch() > before })
		for p := range int32(3) {
			c.insync(t, "kept", p, 3)
		}
		l.goesOn(t, 100)
	}
	l.check(t, c)
}

// TestClusterGroup: what a group has committed outlasts its coordinator.
func TestClusterGroup(t *testing.T) {
	c := newCluster(t, nil)
	makeTopic(t, c, "kept", 2, nil)
	cl := clusterClient(t, c)
	member := clusterClient(t, c, kgo.ConsumeTopics("kept"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	seen := map[string]int{}
	for round := range 3 {
		for i := range 20 {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "kept", Value: fmt.Appendf(nil, "%d-%d", round, i)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		for len(seen) < 20*(round+1) {
			fs := member.PollFetches(ctx)
			if ctx.Err() != nil {
				t.Fatalf("round %d: %d seen", round, len(seen))
			}
			fs.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
		}
		if err := member.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatalf("round %d: commit: %v", round, err)
		}
		cancel()
		d, err := kadm.NewClient(cl).DescribeGroups(t.Context(), "g")
		if err != nil || d["g"].Err != nil {
			t.Fatalf("%v, %v", err, d["g"].Err)
		}
		id := d["g"].Coordinator.NodeID
		if err := c.Kill(id); err != nil {
			t.Fatal(err)
		}
		if err := c.Start(id); err != nil {
			t.Fatal(err)
		}
		for p := range int32(3) {
			c.insync(t, "__consumer_offsets", p, 3)
		}
	}
	offsets, err := kadm.NewClient(cl).FetchOffsets(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
	if sum != 60 {
		t.Errorf("committed are %d records of 60: %v", sum, offsets)
	}
}

// TestClusterTransactions: markers reach partitions of all leaders, and transactions end as decided
// though their coordinator is killed.
func TestClusterTransactions(t *testing.T) {
	c := newCluster(t, map[string]string{"transaction.state.log.num.partitions": "3", "transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"})
	makeTopic(t, c, "kept", 6, map[string]string{"min.insync.replicas": "2"})
	cl := clusterClient(t, c, kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.TransactionTimeout(20*time.Second))
	committed := 0
	for round := range 12 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		value := "aborted"
		if round%3 != 2 {
			value = "committed"
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		for range 12 {
			cl.Produce(ctx, &kgo.Record{Topic: "kept", Value: []byte(value)}, nil)
		}
		if err := cl.Flush(ctx); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if round == 4 || round == 8 {
			id := c.txnCoordinator("tx")
			if err := c.Kill(id); err != nil {
				t.Fatal(err)
			}
			defer c.Start(id)
		}
		if err := cl.EndTransaction(ctx, value == "committed"); err != nil {
			t.Fatalf("round %d: end: %v", round, err)
		}
		if value == "committed" {
			committed += 12
		}
		cancel()
		if round == 4 {
			for id := range int32(3) {
				if c.Broker(id+1) == nil {
					if err := c.Start(id + 1); err != nil {
						t.Fatal(err)
					}
				}
			}
			for p := range int32(6) {
				c.insync(t, "kept", p, 3)
			}
			for p := range int32(3) {
				c.insync(t, "__transaction_state", p, 3)
			}
		}
	}
	r := clusterClient(t, c, kgo.ConsumeTopics("kept"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for got := 0; got < committed; {
		fs := r.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d read of %d committed", got, committed)
		}
		fs.EachRecord(func(r *kgo.Record) {
			got++
			if string(r.Value) != "committed" {
				t.Errorf("read %s at %d/%d", r.Value, r.Partition, r.Offset)
			}
		})
	}
}

func (c *Cluster) txnCoordinator(id string) int32 {
	b := c.anyBroker()
	return enroller{b}.where(id)
}

// TestClusterMoves: partitions are moved to other brokers under load, and back; what has left a broker is
// not kept there.
func TestClusterMoves(t *testing.T) {
	c := newCluster(t, nil)
	cl := clusterClient(t, c)
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(t.Context(), 2, 1, nil, "kept"); err != nil {
		t.Fatal(err)
	}
	l := produceLoad(t, c, "kept")
	l.goesOn(t, 100)
	for _, to := range [][]int32{{1}, {2}, {3, 2}, {2, 1, 3}, {3}} {
		req := kadm.AlterPartitionAssignmentsReq{}
		req.Assign("kept", 0, to)
		req.Assign("kept", 1, to)
		until(t, "the move is taken", func() bool { // by whoever is the controller
			r, err := adm.AlterPartitionAssignments(t.Context(), req)
			return err == nil && r.Error() == nil
		})
		until(t, fmt.Sprintf("the replicas are %v", to), func() bool {
			for id := range int32(3) {
				for n := range int32(2) {
					p := c.Broker(id+1).meta.Load().Partition("kept", n)
					if p == nil || !slices.Equal(p.Replicas, to) || len(p.ISR) != len(to) || !slices.Contains(to, p.Leader) {
						return false
					}
				}
			}
			return true
		})
		l.goesOn(t, 100)
	}
	for id := range int32(2) {
		until(t, fmt.Sprintf("broker %d has no log left", id+1), func() bool { return c.Broker(id+1).logs.Log("kept", 0) == nil })
	}
	if moving, err := adm.ListPartitionReassignments(t.Context(), nil); err != nil || len(moving) > 0 {
		t.Errorf("still moving: %v, %v", moving, err)
	}
	l.check(t, c)
}
