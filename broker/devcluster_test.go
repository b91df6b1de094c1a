package broker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// newCluster starts a cluster of three in memory that ends with the test.
func newCluster(t *testing.T, settings map[string]string) *Cluster {
	t.Helper()
	o := ClusterOptions{Brokers: 3, Options: Options{Settings: map[string]string{
		"replica.fetch.backoff.ms": "50", "controlled.shutdown.retry.backoff.ms": "50", "replica.lag.time.max.ms": "2000",
		"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "3", "group.initial.rebalance.delay.ms": "0",
	}}}
	for name, value := range settings {
		o.Settings[name] = value
	}
	if testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	c, err := NewCluster(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func clusterClient(t *testing.T, c *Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.Addrs()...), kgo.MetadataMinAge(50 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.ProducerLinger(0),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// leaderOf is who leads a partition, as the broker with the least id that runs has it.
func (c *Cluster) leaderOf(topic string, partition int32) int32 {
	for id := range int32(3) {
		if b := c.Broker(id + 1); b != nil {
			if p := b.meta.Load().Partition(topic, partition); p != nil {
				return p.Leader
			}
		}
	}
	return -1
}

// until waits until something holds.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	look, late := time.NewTicker(5*time.Millisecond), time.NewTimer(20*time.Second)
	defer look.Stop()
	defer late.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-late.C:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// insync waits until as many replicas of a partition are in sync.
func (c *Cluster) insync(t *testing.T, topic string, partition int32, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%s-%d has %d replicas in sync", topic, partition, n), func() bool {
		for id := range int32(3) {
			if b := c.Broker(id + 1); b != nil {
				p := b.meta.Load().Partition(topic, partition)
				if p == nil || len(p.ISR) != n || p.Leader < 0 {
					return false
				}
			}
		}
		return true
	})
}

// load produces with acks=all until it is told to stop, and knows what was acknowledged, by partition and
// offset.
type load struct {
	cl    *kgo.Client
	topic string
	stop  chan struct{}
	done  chan struct{}

	sent, acked atomic.Int64
	mu          sync.Mutex
	at          map[string]string // partition/offset: value
	failed      []error
}

func produceLoad(t *testing.T, c *Cluster, topic string) *load {
	l := &load{cl: clusterClient(t, c, kgo.RecordPartitioner(kgo.RoundRobinPartitioner())), topic: topic, stop: make(chan struct{}), done: make(chan struct{}), at: map[string]string{}}
	go func() {
		defer close(l.done)
		slots := make(chan struct{}, 20)
		for {
			select {
			case <-l.stop:
				l.cl.Flush(context.Background())
				return
			case slots <- struct{}{}:
			}
			value := fmt.Sprint(l.sent.Add(1))
			l.cl.Produce(context.Background(), &kgo.Record{Topic: topic, Value: []byte(value)}, func(r *kgo.Record, err error) {
				<-slots
				l.mu.Lock()
				defer l.mu.Unlock()
				if err != nil {
					l.failed = append(l.failed, err)
					return
				}
				l.acked.Add(1)
				l.at[fmt.Sprintf("%d/%d", r.Partition, r.Offset)] = value
			})
		}
	}()
	return l
}

// goesOn waits until more is acknowledged than now.
func (l *load) goesOn(t *testing.T, more int64) {
	t.Helper()
	want := l.acked.Load() + more
	until(t, fmt.Sprintf("%d more records are acknowledged", more), func() bool { return l.acked.Load() >= want })
}

// check ends the load and reads everything: what was acknowledged stands at its offset, once.
func (l *load) check(t *testing.T, c *Cluster) {
	t.Helper()
	close(l.stop)
	select {
	case <-l.done:
	case <-time.After(30 * time.Second):
		t.Fatal("the producer does not come to its end")
	}
	for _, err := range l.failed {
		t.Errorf("produce: %v", err)
	}
	cl := clusterClient(t, c, kgo.ConsumeTopics(l.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	got, times := map[string]string{}, map[string]int{}
	for missing := len(l.at); missing > 0; {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		fs.EachRecord(func(r *kgo.Record) {
			at := fmt.Sprintf("%d/%d", r.Partition, r.Offset)
			got[at] = string(r.Value)
			times[string(r.Value)]++
			if _, want := l.at[at]; want {
				missing--
			}
		})
	}
	lost := 0
	for at, value := range l.at {
		if got[at] != value {
			if lost++; lost < 5 {
				t.Errorf("acknowledged %s at %s, and there is %q", value, at, got[at])
			}
		}
	}
	for value, n := range times {
		if n > 1 {
			t.Errorf("%s is there %d times", value, n)
		}
	}
	t.Logf("%d acknowledged, %d wrong", len(l.at), lost)
}

func makeTopic(t *testing.T, c *Cluster, topic string, partitions int32, configs map[string]string) {
	t.Helper()
	set := map[string]*string{}
	for name, value := range configs {
		set[name] = &value
	}
	cl := clusterClient(t, c)
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 3, set, topic); err != nil {
		t.Fatal(err)
	}
	for p := range partitions {
		c.insync(t, topic, p, 3)
	}
}

// TestClusterReplicates: records go to all replicas, acknowledged ones are read from whoever leads, through
// the end of leaders, of the controller and of followers, by a kill and by a stop.
func TestClusterReplicates(t *testing.T) {
	c := newCluster(t, nil)
	makeTopic(t, c, "kept", 3, map[string]string{"min.insync.replicas": "2"})
	l := produceLoad(t, c, "kept")
	l.goesOn(t, 200)
	for round := range 4 {
		id := c.leaderOf("kept", int32(round%3))
		if round == 1 {
			id = c.anyBroker().controller.Leader()
		}
		end := c.Kill
		if round == 2 {
			end = c.Stop
		}
		if err := end(id); err != nil {
			t.Fatal(err)
		}
		l.goesOn(t, 200)
		if err := c.Start(id); err != nil {
			t.Fatal(err)
		}
		for p := range int32(3) {
			c.insync(t, "kept", p, 3)
		}
		l.goesOn(t, 100)
	}
	l.check(t, c)
}

func (c *Cluster) anyBroker() *Broker {
	for id := range int32(3) {
		if b := c.Broker(id + 1); b != nil {
			return b
		}
	}
	return nil
}
