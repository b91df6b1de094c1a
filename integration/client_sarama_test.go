package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// TestSarama runs sarama as it is configured for several releases of Kafka: the version decides
// which request versions it sends, whatever the broker announces.
func TestSarama(t *testing.T) {
	t.Parallel()
	for _, v := range []sarama.KafkaVersion{sarama.V2_4_0_0, sarama.V2_8_0_0, sarama.V3_6_0_0, sarama.V4_0_0_0} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			perCodec := 400
			if v == sarama.V4_0_0_0 {
				perCodec = 2000
			}
			scenario(t, Start(t, "group.initial.rebalance.delay.ms=0"), perCodec, func(t *testing.T, addr string) client {
				return dialSarama(t, addr, v)
			})
		})
	}
}

// saramaClient is sarama's client, its cluster admin, and a producer for each codec.
type saramaClient struct {
	t         *testing.T
	addr      string
	version   sarama.KafkaVersion
	cl        sarama.Client
	admin     sarama.ClusterAdmin
	producers map[string]sarama.SyncProducer // by codec
}

func dialSarama(t *testing.T, addr string, v sarama.KafkaVersion) client {
	c := &saramaClient{t: t, addr: addr, version: v, producers: map[string]sarama.SyncProducer{}}
	var err error
	if c.cl, err = sarama.NewClient([]string{addr}, c.config()); err == nil {
		c.admin, err = sarama.NewClusterAdminFromClient(c.cl)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *saramaClient) config() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = c.version
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	cfg.Producer.Idempotent = true
	cfg.Producer.Flush.Frequency = 5 * time.Millisecond
	cfg.Net.MaxOpenRequests = 1 // what idempotence wants of sarama
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Offsets.AutoCommit.Enable = false
	cfg.Consumer.Group.Session.Timeout = 30 * time.Second
	cfg.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	cfg.Consumer.MaxWaitTime = 200 * time.Millisecond
	cfg.Consumer.Return.Errors = true
	return cfg
}

func (c *saramaClient) codecs() []string { return []string{"none", "gzip", "snappy", "lz4", "zstd"} }

func (c *saramaClient) createTopic(_ context.Context, topic string, partitions int) error {
	return c.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1}, false)
}

func (c *saramaClient) topics(context.Context) ([]string, error) {
	all, err := c.admin.ListTopics()
	return slices.Collect(maps.Keys(all)), err
}

func (c *saramaClient) leaders(_ context.Context, topic string) (map[int32]int32, error) {
	all, err := c.admin.DescribeTopics([]string{topic})
	if err != nil {
		return nil, err
	}
	leaders := map[int32]int32{}
	for _, p := range all[0].Partitions {
		leaders[p.ID] = p.Leader
	}
	if all[0].Err != sarama.ErrNoError {
		return nil, all[0].Err
	}
	return leaders, nil
}

func (c *saramaClient) send(_ context.Context, topic, codec string, ms []message) error {
	p := c.producers[codec]
	if p == nil {
		cfg := c.config()
		cfg.Producer.Compression = map[string]sarama.CompressionCodec{
			"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
			"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
		}[codec]
		var err error
		if p, err = sarama.NewSyncProducer([]string{c.addr}, cfg); err != nil {
			return err
		}
		c.producers[codec] = p
	}
	pm := make([]*sarama.ProducerMessage, len(ms))
	for i, m := range ms {
		pm[i] = &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(m.Key), Value: sarama.StringEncoder(m.Value), Timestamp: m.Time}
	}
	return p.SendMessages(pm)
}

func (c *saramaClient) groups(context.Context) ([]string, error) {
	all, err := c.admin.ListConsumerGroups()
	return slices.Collect(maps.Keys(all)), err
}

func (c *saramaClient) group(_ context.Context, name string) (string, int, error) {
	all, err := c.admin.DescribeConsumerGroups([]string{name})
	if err != nil {
		return "", 0, err
	}
	if all[0].Err != sarama.ErrNoError {
		return "", 0, all[0].Err
	}
	return all[0].State, len(all[0].Members), nil
}

func (c *saramaClient) committed(_ context.Context, group, topic string) (map[int32]int64, error) {
	want := map[string][]int32{topic: {}}
	for p := range int32(partitions) {
		want[topic] = append(want[topic], p)
	}
	all, err := c.admin.ListConsumerGroupOffsets(group, want)
	if err != nil {
		return nil, err
	}
	if all.Err != sarama.ErrNoError {
		return nil, all.Err
	}
	at := map[int32]int64{}
	for p, b := range all.Blocks[topic] {
		if b.Err != sarama.ErrNoError {
			return nil, b.Err
		}
		if b.Offset >= 0 {
			at[p] = b.Offset
		}
	}
	return at, nil
}

func (c *saramaClient) offsetAt(_ context.Context, topic string, partition int32, at time.Time) (int64, error) {
	return c.cl.GetOffset(topic, partition, at.UnixMilli())
}

func (c *saramaClient) close() {
	for _, p := range c.producers {
		if err := p.Close(); err != nil {
			c.t.Logf("sarama producer: %v", err)
		}
	}
	if err := c.admin.Close(); err != nil { // closes the client too
		c.t.Logf("sarama admin: %v", err)
	}
}

// saramaMember is one consumer group of sarama's: Consume runs a generation after the other.
type saramaMember struct {
	t        *testing.T
	cg       sarama.ConsumerGroup
	out      chan message
	sessions chan sarama.ConsumerGroupSession // holds the current one
	stop     context.CancelFunc
	done     chan struct{}
}

func (c *saramaClient) join(_ context.Context, group, topic string) (member, error) {
	cg, err := sarama.NewConsumerGroup([]string{c.addr}, group, c.config())
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &saramaMember{c.t, cg, make(chan message), make(chan sarama.ConsumerGroupSession, 1), stop, make(chan struct{})}
	errs := make(chan struct{})
	go func() {
		defer close(errs)
		for err := range cg.Errors() {
			m.t.Logf("sarama member: %v", err)
		}
	}()
	go func() {
		defer close(m.done)
		defer close(m.out)
		for ctx.Err() == nil {
			if err := cg.Consume(ctx, []string{topic}, m); err != nil && ctx.Err() == nil {
				m.t.Logf("sarama member: %v", err)
				select { // the broker is away; a loop without a pause would only burn time
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		}
		if err := cg.Close(); err != nil {
			m.t.Logf("sarama member: %v", err)
		}
		<-errs
	}()
	return m, nil
}

// Setup takes the session of a new generation.
func (m *saramaMember) Setup(s sarama.ConsumerGroupSession) error {
	m.sessions <- s
	return nil
}

// Cleanup ends the generation.
func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	<-m.sessions
	return nil
}

// ConsumeClaim passes one partition's messages on.
func (m *saramaMember) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case msg, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			s.MarkMessage(msg, "")
			select {
			case m.out <- message{msg.Partition, msg.Offset, string(msg.Key), string(msg.Value), msg.Timestamp}:
			case <-s.Context().Done():
				return nil
			}
		}
	}
}

func (m *saramaMember) records() <-chan message { return m.out }

func (m *saramaMember) commit(ctx context.Context) error {
	select {
	case s := <-m.sessions:
		s.Commit() // its errors go to the group's channel; the scenario compares what is committed
		m.sessions <- s
		return nil
	case <-ctx.Done():
		return fmt.Errorf("commit: no session: %w", ctx.Err())
	}
}

func (m *saramaMember) leave() error {
	m.stop()
	select {
	case <-m.done:
		return nil
	case <-time.After(20 * time.Second):
		return errors.New("sarama member: no end after 20 s")
	}
}
