package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

func TestKafkaGo(t *testing.T) {
	t.Parallel()
	scenario(t, Start(t, "group.initial.rebalance.delay.ms=0"), 2000, dialKafkaGo)
}

// kafkaGo is segmentio's kafka-go.
type kafkaGo struct {
	t       *testing.T
	addr    string
	cl      *kafka.Client
	writers map[string]*kafka.Writer // by codec
}

func dialKafkaGo(t *testing.T, addr string) client {
	return &kafkaGo{t: t, addr: addr, cl: &kafka.Client{Addr: kafka.TCP(addr), Timeout: 20 * time.Second}, writers: map[string]*kafka.Writer{}}
}

func (c *kafkaGo) codecs() []string { return []string{"none", "gzip", "snappy", "lz4", "zstd"} }

func (c *kafkaGo) createTopic(ctx context.Context, topic string, partitions int) error {
	resp, err := c.cl.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}}})
	if err != nil {
		return err
	}
	return resp.Errors[topic]
}

func (c *kafkaGo) topics(ctx context.Context) ([]string, error) {
	resp, err := c.cl.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range resp.Topics {
		names = append(names, t.Name)
	}
	return names, nil
}

func (c *kafkaGo) leaders(ctx context.Context, topic string) (map[int32]int32, error) {
	resp, err := c.cl.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, err
	}
	leaders := map[int32]int32{}
	for _, p := range resp.Topics[0].Partitions {
		leaders[int32(p.ID)] = int32(p.Leader.ID)
	}
	return leaders, resp.Topics[0].Error
}

func (c *kafkaGo) send(ctx context.Context, topic, codec string, ms []message) error {
	w := c.writers[codec]
	if w == nil {
		w = &kafka.Writer{
			Addr: kafka.TCP(c.addr), Topic: topic, Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequireAll,
			BatchSize: 500, BatchTimeout: 5 * time.Millisecond,
			Compression: map[string]kafka.Compression{
				"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
			}[codec],
		}
		c.writers[codec] = w
	}
	km := make([]kafka.Message, len(ms))
	for i, m := range ms {
		km[i] = kafka.Message{Key: []byte(m.Key), Value: []byte(m.Value), Time: m.Time}
	}
	return w.WriteMessages(ctx, km...)
}

func (c *kafkaGo) groups(ctx context.Context) ([]string, error) {
	resp, err := c.cl.ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, g := range resp.Groups {
		names = append(names, g.GroupID)
	}
	return names, resp.Error
}

func (c *kafkaGo) group(ctx context.Context, name string) (string, int, error) {
	resp, err := c.cl.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{name}})
	if err != nil {
		return "", 0, err
	}
	g := resp.Groups[0]
	return g.GroupState, len(g.Members), g.Error
}

func (c *kafkaGo) committed(ctx context.Context, group, topic string) (map[int32]int64, error) {
	want := map[string][]int{topic: {}}
	for p := range partitions {
		want[topic] = append(want[topic], p)
	}
	resp, err := c.cl.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: want})
	if err != nil {
		return nil, err
	}
	at := map[int32]int64{}
	for _, p := range resp.Topics[topic] {
		if p.Error != nil {
			return nil, p.Error
		}
		if p.CommittedOffset >= 0 {
			at[int32(p.Partition)] = p.CommittedOffset
		}
	}
	return at, resp.Error
}

func (c *kafkaGo) offsetAt(ctx context.Context, topic string, partition int32, at time.Time) (int64, error) {
	ask := kafka.TimeOffsetOf(int(partition), at)
	switch at {
	case earliest:
		ask = kafka.FirstOffsetOf(int(partition))
	case latest:
		ask = kafka.LastOffsetOf(int(partition))
	}
	resp, err := c.cl.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {ask}}})
	if err != nil {
		return 0, err
	}
	p := resp.Topics[topic][0]
	switch at {
	case earliest:
		return p.FirstOffset, p.Error
	case latest:
		return p.LastOffset, p.Error
	}
	for offset := range p.Offsets {
		return offset, p.Error
	}
	return none, p.Error
}

func (c *kafkaGo) close() {
	for _, w := range c.writers {
		if err := w.Close(); err != nil {
			c.t.Logf("kafka-go writer: %v", err)
		}
	}
	kafka.DefaultTransport.(*kafka.Transport).CloseIdleConnections()
}

// kafkaGoMember is one Reader in a group.
type kafkaGoMember struct {
	r    *kafka.Reader
	out  chan message
	stop context.CancelFunc
	done chan struct{}

	mu   sync.Mutex
	last map[int]kafka.Message // guarded by mu: by partition, handed out and not yet committed
}

func (c *kafkaGo) join(_ context.Context, group, topic string) (member, error) {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{c.addr}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 200 * time.Millisecond, JoinGroupBackoff: 200 * time.Millisecond, MaxWait: 200 * time.Millisecond,
		ReadBackoffMin: 10 * time.Millisecond, RebalanceTimeout: 20 * time.Second, QueueCapacity: 10,
	})
	ctx, stop := context.WithCancel(context.Background())
	m := &kafkaGoMember{r: r, out: make(chan message), stop: stop, done: make(chan struct{}), last: map[int]kafka.Message{}}
	go func() {
		defer close(m.done)
		defer close(m.out)
		for ctx.Err() == nil {
			msg, err := r.FetchMessage(ctx)
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					c.t.Logf("kafka-go member: %v", err)
				}
				continue
			}
			m.mu.Lock()
			m.last[msg.Partition] = msg
			m.mu.Unlock()
			select {
			case m.out <- message{int32(msg.Partition), msg.Offset, string(msg.Key), string(msg.Value), msg.Time}:
			case <-ctx.Done():
			}
		}
	}()
	return m, nil
}

func (m *kafkaGoMember) records() <-chan message { return m.out }

func (m *kafkaGoMember) commit(ctx context.Context) error {
	m.mu.Lock()
	var last []kafka.Message
	for _, msg := range m.last {
		last = append(last, msg)
	}
	clear(m.last)
	m.mu.Unlock()
	if err := m.r.CommitMessages(ctx, last...); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

func (m *kafkaGoMember) leave() error {
	m.stop()
	<-m.done
	return m.r.Close() // leaves the group
}
