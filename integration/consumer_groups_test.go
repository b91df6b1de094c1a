package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// nextGen makes a consumer of the protocol of KIP-848 (group.protocol=consumer).
func nextGen(t *testing.T, b *Broker, group string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	//lint:ignore SA1029 it is franz-go's key
	ctx := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.WithContext(ctx), kgo.SeedBrokers(b.Addr()), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond), kgo.DisableAutoCommit()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// seen are the values that consumers have read, each with how often.
type seen struct {
	mu   sync.Mutex
	n    map[string]int
	more chan struct{}
}

// read polls and commits until ctx ends.
func (s *seen) read(ctx context.Context, cl *kgo.Client) {
	for ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			s.mu.Lock()
			s.n[string(r.Value)]++
			s.mu.Unlock()
			select {
			case s.more <- struct{}{}:
			default:
			}
		})
		cl.CommitUncommittedOffsets(ctx)
	}
}

// upTo waits until so many different values have been read.
func (s *seen) upTo(t *testing.T, want int) {
	t.Helper()
	late := time.After(40 * time.Second)
	for {
		s.mu.Lock()
		n := len(s.n)
		s.mu.Unlock()
		if n >= want {
			return
		}
		select {
		case <-s.more:
		case <-late:
			t.Fatalf("%d of %d records read", n, want)
		}
	}
}

// producerTo makes a topic of six partitions, and a producer that writes to one after the other.
func producerTo(t *testing.T, b *Broker, topic string) (*kgo.Client, *kadm.Client) {
	t.Helper()
	producer, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(producer)
	if _, err := adm.CreateTopics(t.Context(), 6, 1, nil, topic); err != nil {
		producer.Close()
		t.Fatal(err)
	}
	return producer, adm
}

// TestConsumerGroups: consumers of the new protocol come and go, and the broker is killed under
// them; all records are read, and kadm sees the group as it is.
func TestConsumerGroups(t *testing.T) {
	t.Parallel()
	b := Start(t, "group.consumer.heartbeat.interval.ms=200", "group.consumer.min.heartbeat.interval.ms=100",
		"offsets.topic.num.partitions=2")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	producer, adm := producerTo(t, b, "next")
	defer producer.Close()
	sent := 0
	send := func() {
		t.Helper()
		var all []*kgo.Record
		for range 60 {
			all = append(all, &kgo.Record{Topic: "next", Value: fmt.Append(nil, sent)})
			sent++
		}
		if err := producer.ProduceSync(ctx, all...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	s := &seen{n: map[string]int{}, more: make(chan struct{}, 1)}
	start := func(opts ...kgo.Opt) *kgo.Client {
		cl := nextGen(t, b, "group-next", append(opts, kgo.ConsumeTopics("next"))...)
		wg.Go(func() { s.read(ctx, cl) })
		return cl
	}
	send()
	first := start()
	s.upTo(t, sent)
	start(kgo.InstanceID("static"))
	third := start()
	waitMembers(t, adm, []int{2, 2, 2})
	send()
	s.upTo(t, sent)

	b.Kill()
	b.Start()
	send()
	s.upTo(t, sent)
	waitMembers(t, adm, []int{2, 2, 2})

	first.Close()
	third.Close()
	waitMembers(t, adm, []int{6})
	send()
	s.upTo(t, sent)
	offsets, err := adm.FetchOffsets(ctx, "group-next")
	if err != nil || len(offsets["next"]) != 6 {
		t.Fatalf("committed %v, error %v", offsets, err)
	}
	listed, err := adm.ListGroups(ctx)
	if err != nil || len(listed) != 1 || listed["group-next"].ProtocolType != "consumer" {
		t.Fatalf("listed %v, error %v", listed, err)
	}
}

// waitMembers waits until the members have so many partitions, and are where the group wants them.
func waitMembers(t *testing.T, adm *kadm.Client, want []int) {
	t.Helper()
	eventually(t, fmt.Sprint("members with partitions ", want), 40*time.Second, func() bool {
		groups, err := adm.DescribeConsumerGroups(context.Background(), "group-next")
		if err != nil {
			return false
		}
		g := groups["group-next"]
		var n []int
		for _, m := range g.Members {
			sum := 0
			for _, ps := range m.Assignment {
				sum += len(ps)
			}
			n = append(n, sum)
		}
		slices.Sort(n)
		return slices.Equal(n, want) && g.State == "Stable"
	})
}

// TestConsumerGroupPattern: a group that subscribes by a regular expression of the broker's (RE2)
// reads topics that are made later, as its next heartbeat tells.
func TestConsumerGroupPattern(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.create("pat-1", 2, 1)
	pattern, member := "pat-.*", "member-one"
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.RebalanceTimeoutMillis, req.SubscribedTopicRegex = "pat", member, 60000, &pattern
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	h.coordinated("pat")
	resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](h.wire, req, 1)
	if resp.ErrorCode != 0 || resp.Assignment == nil || len(resp.Assignment.Topics) != 1 {
		t.Fatalf("%+v", resp)
	}
	h.create("pat-2", 1, 1)
	h.create("other", 1, 1)
	next := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	next.Group, next.MemberID, next.MemberEpoch = "pat", member, resp.MemberEpoch
	next.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	resp = ask[*kmsg.ConsumerGroupHeartbeatResponse](h.wire, next, 1)
	if resp.ErrorCode != 0 || resp.Assignment == nil || len(resp.Assignment.Topics) != 2 || resp.MemberEpoch <= next.MemberEpoch {
		t.Fatalf("%+v", resp)
	}
	bad := "a(?=b)" // Java's, not RE2's
	req.SubscribedTopicRegex, req.MemberID = &bad, "member-two"
	if resp = ask[*kmsg.ConsumerGroupHeartbeatResponse](h.wire, req, 1); resp.ErrorCode != kerr.InvalidRegularExpression.Code {
		t.Fatalf("%+v", resp)
	}
}
