package api

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"ottla/broker/auth"
	"ottla/broker/config"
	"ottla/broker/metadata"
	"ottla/broker/quota"
	"ottla/broker/replica"
	"ottla/log"
	"ottla/log/vfs"
	"ottla/protocol"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// storageHouse is an API on partitions in memory, without connections and without a controller.
type storageHouse struct {
	*API
	t    testing.TB
	peer *Peer
	name map[string]metadata.ID

	markers chan struct{} // not nil: a marker waits until it is closed
	faults  *faults       // nil: all goes well
}

func newStorageHouse(t testing.TB) *storageHouse {
	t.Helper()
	store, err := config.New(config.Options{Settings: map[string]string{"log.dirs": "/data"}})
	if err != nil {
		t.Fatal(err)
	}
	meta := metadata.NewHolder()
	options := func(topic string) *log.Options { return &store.Topic(topic).Log }
	logs, err := log.OpenManager(log.ManagerOptions{FS: vfs.NewMemory(), Dirs: []string{"/data"}, BrokerID: 1, ClusterID: "test", TopicOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	replicas := replica.New(replica.Options{BrokerID: 1, Logs: logs, Meta: meta, LogOptions: options,
		MinISR: func(topic string) int { return int(store.Topic(topic).MinInsyncReplicas) }})
	next := int64(1000)
	h := &storageHouse{t: t, name: map[string]metadata.ID{}, API: &API{
		Logger: slog.New(slog.DiscardHandler), Now: time.Now, BrokerID: 1, Meta: meta, Config: store,
		Authorizer: auth.AllowAll{}, Quota: quota.Unlimited{}, Metrics: NewMetrics(nil),
		Logs: logs, Replicas: replicas, FetchSessions: NewFetchSessions(100, nil),
		ProducerIDs: NewProducerIDs(func(context.Context) (int64, int64, error) { next += 3; return next - 3, 3, nil }),
	}}
	h.peer = h.Open(protocol.Conn{Listener: "PLAINTEXT", Local: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 9092}, Remote: &net.TCPAddr{}})
	t.Cleanup(func() {
		replicas.Close()
		if err := logs.Close(); err != nil {
			t.Error(err)
		}
	})
	h.coordinators()
	return h
}

// topic creates a topic that this broker leads alone, with settings.
func (h *storageHouse) topic(name string, partitions int, settings ...string) metadata.ID {
	h.t.Helper()
	values := map[string]string{}
	for i := 0; i < len(settings); i += 2 {
		values[settings[i]] = settings[i+1]
	}
	h.Config.Apply(config.Topics, name, values)
	id := metadata.ID{byte(len(h.name) + 1), 0xaa}
	h.name[name] = id
	h.picture(name, id, partitions, 1)
	var states []replica.State
	for n := range int32(partitions) {
		states = append(states, replica.State{Topic: name, ID: id, Partition: n, Leader: 1, ISR: []int32{1}, Replicas: []int32{1}, New: true})
	}
	for k, err := range h.Replicas.Apply(states) {
		h.t.Fatalf("%v: %v", k, err)
	}
	return id
}

// picture puts a topic into the picture, led by a broker; broker 2 is alive too.
func (h *storageHouse) picture(name string, id metadata.ID, partitions int, leader int32) {
	old := h.Meta.Load()
	pic := &metadata.Picture{ClusterID: "test", Controller: 1, Topics: map[string]*metadata.Topic{}, ByID: map[metadata.ID]*metadata.Topic{},
		Brokers: []metadata.Broker{
			{ID: 1, Endpoints: []metadata.Endpoint{{Listener: "PLAINTEXT", Port: 9092}}},
			{ID: 2, Endpoints: []metadata.Endpoint{{Listener: "PLAINTEXT", Host: "two", Port: 9093}}},
		}}
	for n, t := range old.Topics {
		pic.Topics[n], pic.ByID[t.ID] = t, t
	}
	t := &metadata.Topic{Name: name, ID: id}
	for range partitions {
		t.Partitions = append(t.Partitions, metadata.Partition{Leader: leader, LeaderEpoch: 0, Replicas: []int32{leader}, ISR: []int32{leader}})
	}
	pic.Topics[name], pic.ByID[id] = t, t
	h.Meta.Store(pic)
}

// fetchWhole has a Fetch handled to its end, in the place of a connection.
func (h *storageHouse) fetchWhole(ctx context.Context, header protocol.Header, req *kmsg.FetchRequest) (ans *protocol.Answer, err error) {
	c := &call{Context: ctx, peer: h.peer, route: h.row(1), header: header, begun: time.Now()}
	ans, x, err := h.fetch(c, h.peer, header, req)
	if x == nil {
		return ans, err
	}
	done := make(chan struct{})
	l := &laterFetch{c: c, x: x}
	l.Start(func(a *protocol.Answer, e error) {
		ans, err = a, e
		close(done)
	})
	select {
	case <-done:
	case <-ctx.Done():
		l.Stop()
		<-done
	}
	return ans, err
}

// batchOf is one batch of records with the given values, all at a time (ms).
func batchOf(o record.BuilderOptions, at int64, values ...string) []byte {
	b := record.NewBuilder(nil, o)
	for _, v := range values {
		b.Add(at, []byte("key"), []byte(v))
	}
	return b.Finish()
}

func produceOf(version int16, topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, -1, 1000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// answerTo has a Produce handled to its end.
func (h *storageHouse) answerTo(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	h.t.Helper()
	resp, wait, err := h.produce(context.Background(), h.peer, req)
	if err == nil && wait != nil {
		err = wait(context.Background())
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return resp
}

// store appends records of one batch.
func (h *storageHouse) store(topic string, partition int32, values ...string) kmsg.ProduceResponseTopicPartition {
	h.t.Helper()
	p := h.answerTo(produceOf(9, topic, partition, batchOf(record.BuilderOptions{}, 1000, values...))).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		h.t.Fatalf("produce: %d", p.ErrorCode)
	}
	return p
}

func fetchOf(version int16, topic string, id metadata.ID, partitions ...int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxBytes, req.MaxWaitMillis, req.SessionEpoch = version, 1, 50<<20, 0, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, id
	if version >= 13 {
		t.Topic = ""
	} else {
		t.TopicID = metadata.ID{}
	}
	for _, n := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.PartitionMaxBytes = n, 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// fetched has a Fetch handled and decodes the answer's bytes as a client does.
func (h *storageHouse) fetched(ctx context.Context, req *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	key := protocol.Header{Key: 1, Version: req.Version, CorrelationID: 7, Flexible: req.Version >= 12}
	a, err := h.fetchWhole(ctx, key, req)
	if err != nil {
		return nil, err
	}
	raw := wireBytes(h.t, a)
	raw = raw[8:]
	if key.Flexible {
		raw = raw[1:]
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = req.Version
	if err := resp.ReadFrom(raw); err != nil {
		h.t.Fatalf("version %d: %v", req.Version, err)
	}
	return resp, nil
}

func (h *storageHouse) get(req *kmsg.FetchRequest) *kmsg.FetchResponse {
	h.t.Helper()
	resp, err := h.fetched(context.Background(), req)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp
}

// wireBytes reads a whole answer and releases it.
func wireBytes(t testing.TB, a *protocol.Answer) (out []byte) {
	t.Helper()
	for _, p := range a.Parts {
		if p.Bytes != nil || p.Range == nil {
			out = append(out, p.Bytes...)
			continue
		}
		b := make([]byte, p.Range.Len())
		if n, err := p.Range.ReadAt(b, 0); n < len(b) {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	if a.Release != nil {
		a.Release()
	}
	return out
}

// values are those of all records in fetched batches or message sets.
func values(t testing.TB, raw []byte) (out []string) {
	t.Helper()
	for b := range record.All(raw) {
		for r, err := range record.Records(b, 1<<20) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(r.Value))
		}
	}
	return out
}
