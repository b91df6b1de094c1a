package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// owners notes which consumer has a partition, as their callbacks tell it.
type owners struct {
	t  *testing.T
	mu sync.Mutex
	of map[int32]string // guarded by mu
}

func (o *owners) opts(name string) []kgo.Opt {
	gone := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, p := range slices.Concat(lost["rolled"]) {
			delete(o.of, p)
		}
	}
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			o.mu.Lock()
			defer o.mu.Unlock()
			for _, p := range got["rolled"] {
				if was, taken := o.of[p]; taken {
					o.t.Errorf("partition %d is given to %s while %s has it", p, name, was)
				}
				o.of[p] = name
			}
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, lost map[string][]int32) {
			if err := cl.CommitUncommittedOffsets(ctx); err != nil {
				o.t.Logf("%s commits what it gives back: %v", name, err)
			}
			gone(ctx, cl, lost)
		}),
		kgo.OnPartitionsLost(gone),
	}
}

func (o *owners) count(name string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, of := range o.of {
		if of == name {
			n++
		}
	}
	return n
}

// TestRollingMigration: consumers of the classic protocol are replaced by consumers of KIP-848 one at
// a time, and back, while records flow: each partition is with one at a time, every record is read,
// committed offsets never go back, and the group is of the kind that its members make it.
func TestRollingMigration(t *testing.T) {
	t.Parallel()
	for name, balancer := range map[string]kgo.GroupBalancer{"cooperative": kgo.CooperativeStickyBalancer(), "eager": kgo.RangeBalancer()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rollingMigration(t, balancer)
		})
	}
}

func rollingMigration(t *testing.T, balancer kgo.GroupBalancer) {
	b := Start(t, append(quickMembers(), "group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1")...)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	producer, adm := producerTo(t, b, "rolled")
	defer producer.Close()
	s, o := &seen{n: map[string]int{}, more: make(chan struct{}, 1)}, &owners{t: t, of: map[int32]string{}}
	made, sent := 0, 0
	last := map[int32]int64{}
	type running struct {
		name string
		cl   *kgo.Client
		stop context.CancelFunc
		done chan struct{}
	}
	start := func(next bool) *running {
		made++
		r := &running{name: fmt.Sprintf("%d (consumer %v)", made, next), done: make(chan struct{})}
		opts := append(o.opts(r.name), kgo.ConsumeTopics("rolled"))
		if next {
			r.cl = nextGen(t, b, "roll", opts...)
		} else {
			cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Addr()), kgo.ConsumerGroup("roll"), kgo.Balancers(balancer),
				kgo.HeartbeatInterval(200*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
				kgo.FetchMaxWait(100*time.Millisecond), kgo.DisableAutoCommit())...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cl.Close)
			r.cl = cl
		}
		var mine context.Context
		mine, r.stop = context.WithCancel(ctx)
		wg.Go(func() {
			defer close(r.done)
			s.read(mine, r.cl)
		})
		return r
	}
	settled := func(all []*running) {
		t.Helper()
		eventually(t, "each of the consumers has its part", 40*time.Second, func() bool {
			for _, r := range all {
				if o.count(r.name) != 6/len(all) {
					return false
				}
			}
			return true
		})
	}
	send := func() {
		t.Helper()
		var records []*kgo.Record
		for range 60 {
			records = append(records, &kgo.Record{Topic: "rolled", Value: fmt.Append(nil, sent)})
			sent++
		}
		if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		s.upTo(t, sent)
		at, err := adm.FetchOffsets(ctx, "roll")
		if err != nil {
			t.Fatal(err)
		}
		at.Each(func(r kadm.OffsetResponse) {
			if r.At < last[r.Partition] {
				t.Errorf("the offset of partition %d went back from %d to %d", r.Partition, last[r.Partition], r.At)
			}
			last[r.Partition] = r.At
		})
	}
	kind := func(want string) {
		t.Helper()
		req := kmsg.NewPtrListGroupsRequest()
		resp, err := req.RequestWith(ctx, producer)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range resp.Groups {
			if g.Group == "roll" && g.GroupType != want {
				t.Errorf("the group is %s, want %s", g.GroupType, want)
			}
		}
	}
	roll := func(all []*running, next bool) []*running {
		t.Helper()
		for i := range all {
			old := all[i]
			old.stop()
			<-old.done
			old.cl.Close()
			all[i] = start(next)
			send()
			settled(all)
			if i < len(all)-1 {
				kind("consumer")
			}
		}
		return all
	}
	all := []*running{start(false), start(false), start(false)}
	send()
	settled(all)
	kind("classic")
	all = roll(all, true)
	kind("consumer")
	b.Restart()
	send()
	all = roll(all, false)
	kind("classic")
	settled(all)
	send()
}

// quickMembers has the members of consumer groups speak often.
func quickMembers() []string {
	return []string{"group.consumer.heartbeat.interval.ms=200", "group.consumer.min.heartbeat.interval.ms=100"}
}

// TestMixedGroupCodes: what members of either protocol are answered in a group that has both, as
// Kafka 4.4.0 answers them.
func TestMixedGroupCodes(t *testing.T) {
	t.Parallel()
	b := Start(t, append(quickMembers(), "group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1")...)
	ctx := t.Context()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopics(ctx, 4, 1, nil, "coded"); err != nil {
		t.Fatal(err)
	}
	group := fmt.Sprint("coded-", time.Now().UnixNano())
	join := func(group, member, kind string, metadata []byte) *kmsg.JoinGroupResponse {
		t.Helper()
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.MemberID, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = group, member, kind, 30000, 30000
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = "range", metadata
		req.Protocols = append(req.Protocols, p)
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	beat := func(group, member string, epoch int32) int16 {
		t.Helper()
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch, req.Topics = group, member, epoch, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		if epoch == 0 {
			req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 60000, []string{"coded"}
		}
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			t.Fatal(err)
		}
		return resp.ErrorCode
	}
	told := kmsg.NewConsumerMemberMetadata()
	told.Version, told.Topics = 1, []string{"coded"}
	metadata := told.AppendTo(nil)

	eventually(t, "the group's coordinator is there", 30*time.Second, func() bool {
		_, err := kadm.NewClient(cl).FetchOffsets(ctx, group)
		return err == nil
	})
	equal(t, "the first joins", beat(group, "first", 0), 0)
	equal(t, "another type", join(group, "", "connect", metadata).ErrorCode, 23)
	r := join(group, "", "consumer", metadata)
	equal(t, "without an id", r.ErrorCode, 79)
	id := r.MemberID
	equal(t, "a subscription that cannot be read", join(group, id, "consumer", []byte{0}).ErrorCode, 23)
	r = join(group, id, "consumer", metadata)
	equal(t, "classic member", r.ErrorCode, 0)
	equal(t, "leader", r.LeaderID, "")
	equal(t, "protocol", *r.Protocol, "range")
	heartbeat := func(member string, generation int32, instance *string) int16 {
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID, req.Generation, req.InstanceID = group, member, generation, instance
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			t.Fatal(err)
		}
		return resp.ErrorCode
	}
	sync := func(member string, generation int32, kind, protocol *string) int16 {
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.MemberID, req.Generation, req.ProtocolType, req.Protocol = group, member, generation, kind, protocol
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			t.Fatal(err)
		}
		return resp.ErrorCode
	}
	commit := func(member string, generation int32) int16 {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.MemberID, req.Generation = group, member, generation
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = "coded"
		rt.TopicID = idOf(t, cl, "coded")
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Offset = 1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Topics[0].Partitions[0].ErrorCode
	}
	at, str := r.Generation, kmsg.StringPtr
	equal(t, "sync", sync(id, at, str("consumer"), str("range")), 0)
	equal(t, "sync, another generation", sync(id, at+1, str("consumer"), str("range")), 22)
	equal(t, "sync, another type", sync(id, at, str("connect"), str("range")), 23)
	equal(t, "sync, another protocol", sync(id, at, str("consumer"), str("sticky")), 23)
	equal(t, "sync, unknown", sync("nobody", at, str("consumer"), str("range")), 25)
	equal(t, "sync of the other protocol", sync("first", at, str("consumer"), str("range")), 25)
	equal(t, "heartbeat, another generation", heartbeat(id, at+1, nil), 22)
	equal(t, "heartbeat, unknown", heartbeat("nobody", at, nil), 25)
	equal(t, "heartbeat, unknown instance", heartbeat(id, at, str("none")), 25)
	equal(t, "heartbeat of the other protocol", heartbeat("first", at, nil), 25)
	equal(t, "commit", commit(id, at), 0)
	equal(t, "commit of a generation to come", commit(id, at+1), 22)
	equal(t, "commit of one that is gone", commit(id, 1), 22)
	equal(t, "commit of nobody", commit("nobody", at), 25)
	equal(t, "commit of none of the members", commit("", -1), 25)
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{group}
	d, err := describe.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "DescribeGroups", d.Groups[0].ErrorCode, 69)
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = group
	for _, name := range []string{"nobody", "first"} {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = name
		leave.Members = append(leave.Members, m)
	}
	left, err := leave.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "LeaveGroup of nobody", left.Members[0].ErrorCode, 25)
	equal(t, "LeaveGroup of the other protocol", left.Members[1].ErrorCode, 0)
	equal(t, "heartbeat in what is a classic group again", heartbeat(id, at, nil), 27)

	other := group + "-connect"
	r = join(other, "", "connect", metadata)
	r = join(other, r.MemberID, "connect", metadata)
	equal(t, "a group of another type", r.ErrorCode, 0)
	equal(t, "the consumer protocol in it", beat(other, "first", 0), 69)
}

func idOf(t *testing.T, cl *kgo.Client, topic string) [16]byte {
	t.Helper()
	d, err := kadm.NewClient(cl).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return d[topic].ID
}
