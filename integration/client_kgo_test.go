package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestFranzGo(t *testing.T) {
	t.Parallel()
	scenario(t, Start(t, "group.initial.rebalance.delay.ms=0"), 2000, dialKgo)
}

// kgoClient is franz-go's client with its admin package.
type kgoClient struct {
	t         *testing.T
	addr      string
	admin     *kadm.Client
	producers map[string]*kgo.Client // by codec
}

func dialKgo(t *testing.T, addr string) client {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	return &kgoClient{t: t, addr: addr, admin: kadm.NewClient(cl), producers: map[string]*kgo.Client{}}
}

func (c *kgoClient) codecs() []string { return []string{"none", "gzip", "snappy", "lz4", "zstd"} }

func (c *kgoClient) createTopic(ctx context.Context, topic string, partitions int) error {
	_, err := c.admin.CreateTopic(ctx, int32(partitions), 1, nil, topic)
	return err
}

func (c *kgoClient) topics(ctx context.Context) ([]string, error) {
	all, err := c.admin.ListTopics(ctx)
	return all.Names(), err
}

func (c *kgoClient) leaders(ctx context.Context, topic string) (map[int32]int32, error) {
	all, err := c.admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	leaders := map[int32]int32{}
	for p, d := range all[topic].Partitions {
		leaders[p] = d.Leader
	}
	return leaders, all[topic].Err
}

func (c *kgoClient) send(ctx context.Context, topic, codec string, ms []message) error {
	cl := c.producers[codec]
	if cl == nil {
		var err error
		if cl, err = kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ProducerBatchCompression(map[string]kgo.CompressionCodec{
			"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
			"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
		}[codec])); err != nil {
			return err
		}
		c.producers[codec] = cl
	}
	rs := make([]*kgo.Record, len(ms))
	for i, m := range ms {
		rs[i] = &kgo.Record{Topic: topic, Key: []byte(m.Key), Value: []byte(m.Value), Timestamp: m.Time}
	}
	return cl.ProduceSync(ctx, rs...).FirstErr()
}

func (c *kgoClient) groups(ctx context.Context) ([]string, error) {
	all, err := c.admin.ListGroups(ctx)
	return all.Groups(), err
}

func (c *kgoClient) group(ctx context.Context, name string) (string, int, error) {
	all, err := c.admin.DescribeGroups(ctx, name)
	if err != nil {
		return "", 0, err
	}
	return all[name].State, len(all[name].Members), all[name].Err
}

func (c *kgoClient) committed(ctx context.Context, group, topic string) (map[int32]int64, error) {
	all, err := c.admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	at := map[int32]int64{}
	for p, o := range all[topic] {
		if o.Err != nil {
			return nil, o.Err
		}
		at[p] = o.At
	}
	return at, nil
}

func (c *kgoClient) offsetAt(ctx context.Context, topic string, partition int32, at time.Time) (int64, error) {
	all, err := c.admin.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topic)
	if err != nil {
		return 0, err
	}
	o, _ := all.Lookup(topic, partition)
	if o.Timestamp == -1 && at != latest && at != earliest {
		return none, o.Err // kadm puts the end offset there
	}
	return o.Offset, o.Err
}

func (c *kgoClient) close() {
	for _, cl := range c.producers {
		cl.Close()
	}
	c.admin.Close()
}

// kgoMember is one consumer; it polls until it leaves.
type kgoMember struct {
	cl   *kgo.Client
	out  chan message
	done chan struct{}
	stop context.CancelFunc
}

func (c *kgoClient) join(_ context.Context, group, topic string) (member, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(), kgo.HeartbeatInterval(200*time.Millisecond), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &kgoMember{cl, make(chan message), make(chan struct{}), stop}
	go m.run(ctx, c.t)
	return m, nil
}

func (m *kgoMember) run(ctx context.Context, t *testing.T) {
	defer close(m.done)
	defer close(m.out)
	for ctx.Err() == nil {
		fs := m.cl.PollFetches(ctx)
		if err := fs.Err(); err != nil && ctx.Err() == nil {
			t.Logf("kgo member: %v", err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			select {
			case m.out <- message{r.Partition, r.Offset, string(r.Key), string(r.Value), r.Timestamp}:
			case <-ctx.Done():
			}
		})
	}
}

func (m *kgoMember) records() <-chan message { return m.out }

func (m *kgoMember) commit(ctx context.Context) error {
	if err := m.cl.CommitUncommittedOffsets(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

func (m *kgoMember) leave() error {
	m.stop()
	<-m.done
	m.cl.Close() // leaves the group
	return nil
}
