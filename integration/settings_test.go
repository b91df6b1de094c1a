package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ottla/broker"
	"ottla/broker/config"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every setting that ottla acts on is seen to act here, from its name in the table to what a client or the disk
// shows of it: those of topics, with the broker settings that give their defaults, by topicEffects; all others by
// a function each.

// effects are the broker settings with a function of their own.
var effects = []struct {
	setting string // several, separated by spaces, where they are seen together
	see     func(t *testing.T)
}{
	{"listeners", seeListeners},
	{"advertised.listeners", seeAdvertisedListeners},
	{"listener.security.protocol.map", seeProtocolMap},
	{"controller.listener.names", seeControllerListeners},
	{"process.roles", seeProcessRoles},
	{"max.connections", seeMaxConnections},
	{"max.connections.per.ip", seeMaxConnectionsPerIP},
	{"max.connections.per.ip.overrides", seeMaxConnectionsPerIPOverrides},
	{"connections.max.idle.ms", seeMaxIdle},
	{"socket.request.max.bytes", seeSocketRequestMaxBytes},
	{"ottla.request.max.bytes", seeRequestMaxBytes},
	{"queued.max.request.bytes", seeQueuedMaxRequestBytes},
	{"socket.listen.backlog.size", seeBacklog},
	{"socket.send.buffer.bytes socket.receive.buffer.bytes", seeSocketBuffers},
	{"fetch.max.bytes", seeFetchMaxBytes},
	{"max.incremental.fetch.session.cache.slots", seeFetchSessionSlots},
	{"max.request.partition.size.limit", seePartitionLimit},

	{"broker.id node.id", seeID},
	{"broker.rack", seeRack},
	{"num.partitions", seeNumPartitions},
	{"default.replication.factor", seeDefaultReplicationFactor},
	{"auto.create.topics.enable", seeAutoCreate},
	{"delete.topic.enable", seeDeleteTopic},

	{"log.dir log.dirs", seeLogDirs},
	{"metadata.log.dir", seeMetadataLogDir},
	{"log.retention.check.interval.ms log.initial.task.delay.ms", seeRetentionCheck},
	{"log.flush.scheduler.interval.ms", seeFlushScheduler},
	{"log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms replica.high.watermark.checkpoint.interval.ms", seeCheckpoints},
	{"producer.id.expiration.ms producer.id.expiration.check.interval.ms", seeProducerExpiry},
	{"log.cleaner.enable", func(t *testing.T) { seeCleanerStart(t, "log.cleaner.enable", "true", "false") }},
	{"log.cleaner.backoff.ms", func(t *testing.T) { seeCleaner(t, "log.cleaner.backoff.ms", "3600000", "1") }},
	{"log.cleaner.threads", func(t *testing.T) { seeCleanerStart(t, "log.cleaner.threads", "1", "0") }},
	{"log.cleaner.dedupe.buffer.size", func(t *testing.T) { seeCleaner(t, "log.cleaner.dedupe.buffer.size", "24", "1000000") }},
	{"log.cleaner.io.buffer.load.factor", func(t *testing.T) { seeCleaner(t, "log.cleaner.io.buffer.load.factor", "0.0000001", "0.9") }},
	{"log.cleaner.io.max.bytes.per.second", func(t *testing.T) { seeCleaner(t, "log.cleaner.io.max.bytes.per.second", "0.01", "1000000") }},

	{"group.initial.rebalance.delay.ms", seeInitialRebalanceDelay},
	{"group.min.session.timeout.ms group.max.session.timeout.ms", seeSessionTimeouts},
	{"group.consumer.assignors", seeConsumerAssignors},
	{"group.consumer.heartbeat.interval.ms", seeConsumerHeartbeat},
	{"group.consumer.session.timeout.ms", seeConsumerSession},
	{"group.consumer.max.size", seeConsumerMaxSize},
	{"group.consumer.migration.policy", seeMigrationPolicy},
	{"group.coordinator.rebalance.protocols", seeRebalanceProtocols},
	{"group.consumer.min.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms group.consumer.min.session.timeout.ms group.consumer.max.session.timeout.ms", seeConsumerBounds},
	{"group.max.size", seeGroupMaxSize},
	{"offset.metadata.max.bytes", seeOffsetMetadata},
	{"offsets.retention.minutes offsets.retention.check.interval.ms", seeOffsetsRetention},
	{"offsets.topic.num.partitions offsets.topic.compression.codec offsets.topic.segment.bytes", seeOffsetsTopic},
	{"offsets.topic.replication.factor", func(t *testing.T) { seeReplication(t, 0, "__consumer_offsets", "offsets.topic.replication.factor") }},

	{"transaction.max.timeout.ms", seeTxnMaxTimeout},
	{"transaction.partition.verification.enable", seeTxnVerification},
	{"transactional.id.expiration.ms transaction.remove.expired.transaction.cleanup.interval.ms", seeTxnExpiration},
	{"transaction.state.log.num.partitions transaction.state.log.min.isr transaction.state.log.segment.bytes", seeTxnTopic},
	{"transaction.state.log.replication.factor", func(t *testing.T) {
		seeReplication(t, 1, "__transaction_state", "transaction.state.log.replication.factor")
	}},

	{"min.insync.replicas", func(t *testing.T) { seeWithoutSecondReplica(t, minInsync) }},
	{"unclean.leader.election.enable", func(t *testing.T) { seeWithoutSecondReplica(t, unclean) }},
}

// elsewhere are settings whose effect a test of another package sees, from the name on.
var elsewhere = map[string]string{
	"zookeeper.connect":                       "integration.TestZooKeeperTree, with build tag clients: it needs a ZooKeeper",
	"broker.id.generation.enable":             "broker.TestBrokerIDs: it needs a registry that brokers share",
	"reserved.broker.max.id":                  "broker.TestBrokerIDs",
	"zookeeper.connection.timeout.ms":         "broker.TestZooKeeperSettings, and integration.TestZooKeeperLate",
	"zookeeper.session.timeout.ms":            "broker.TestZooKeeperSettings, and integration.TestZooKeeperOneBroker",
	"zookeeper.max.in.flight.requests":        "broker.TestZooKeeperSettings, and registry.TestInFlight",
	"controlled.shutdown.enable":              "broker.TestLeaving",
	"controlled.shutdown.max.retries":         "broker.TestLeaving",
	"controlled.shutdown.retry.backoff.ms":    "broker.TestLeaving",
	"inter.broker.listener.name":              "broker.TestInterBrokerListener: it needs several brokers",
	"security.inter.broker.protocol":          "broker.TestInterBrokerListener",
	"auto.leader.rebalance.enable":            "broker.TestRebalanceSettings: it needs several brokers",
	"leader.imbalance.check.interval.seconds": "broker.TestRebalanceSettings",
	"leader.imbalance.per.broker.percentage":  "broker.TestRebalanceSettings, and controller.TestImbalance",
	"num.replica.fetchers":                    "broker.TestReplicaSettings, and replica.TestFetchersOfABroker: they need a leader that is a script",
	"replica.fetch.backoff.ms":                "broker.TestReplicaSettings, and replica.TestPullerAsks",
	"replica.fetch.max.bytes":                 "broker.TestReplicaSettings, and replica.TestPullerAsks",
	"replica.fetch.min.bytes":                 "broker.TestReplicaSettings, and replica.TestPullerAsks",
	"replica.fetch.response.max.bytes":        "broker.TestReplicaSettings, and replica.TestPullerAsks",
	"replica.fetch.wait.max.ms":               "broker.TestReplicaSettings, and replica.TestPullerAsks",
	"replica.lag.time.max.ms":                 "broker.TestReplicaSettings, and broker.TestClusterCut: it needs several brokers",
	"replica.socket.timeout.ms":               "broker.TestReplicaSettings, and peer.TestEnds",

	"num.recovery.threads.per.data.dir":          "broker.TestRecoveryThreads: it needs files that hang",
	"log.cleaner.io.buffer.size":                 "log.TestCleanReadsBySize: it needs reads that are counted",
	"offsets.commit.timeout.ms":                  "broker.TestOffsetsCommitTimeout: it needs a disk that hangs",
	"add.partitions.to.txn.retry.backoff.max.ms": "broker.TestTransactionPatience: it needs markers that hang",
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for _, e := range effects {
		t.Run(e.setting, func(t *testing.T) {
			t.Parallel()
			e.see(t)
		})
	}
	for _, e := range groupEffects {
		t.Run("group "+e.setting, func(t *testing.T) {
			t.Parallel()
			e.see(t)
		})
	}
	for _, e := range topicEffects {
		t.Run("topic "+e.setting, func(t *testing.T) {
			t.Parallel()
			e.see(t)
		})
	}
}

// TestEverySettingIsSeen: the rows of the table that are acted on are those that have a test.
func TestEverySettingIsSeen(t *testing.T) {
	have := map[string]bool{}
	add := func(scope, name string) {
		if have[scope+" "+name] {
			t.Errorf("%s %s is seen twice", scope, name)
		}
		have[scope+" "+name] = true
	}
	for _, e := range effects {
		for name := range strings.FieldsSeq(e.setting) {
			add("broker", name)
		}
	}
	for _, e := range groupEffects {
		add("group", e.setting)
	}
	for name := range elsewhere {
		add("broker", name)
	}
	for _, e := range topicEffects {
		add("topic", e.setting)
		for _, f := range e.from {
			name, _, _ := strings.Cut(f, "=")
			add("broker", name)
		}
	}
	for _, name := range []string{minInsync.setting, unclean.setting} {
		add("topic", name)
	}
	for _, r := range config.Table() {
		key := r.Scope + " " + r.Name
		switch acted := r.Effect() == config.Acted; {
		case acted && !have[key]:
			t.Errorf("%s is acted on, and no test sees it", key)
		case !acted && have[key]:
			t.Errorf("%s is %s, and a test sees it", key, r.Effect())
		}
		delete(have, key)
	}
	for key := range have {
		t.Errorf("%s is not in the table", key)
	}
}

// house is a broker of one test and a connection to it.
type house struct {
	*wire
	*embedded
	dir string
}

// open starts a broker with settings, name=value. It stops with the test.
func open(t *testing.T, settings ...string) *house {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	h := reopen(t, dir, nil, settings...)
	t.Cleanup(h.shut)
	return h
}

// reopen starts a broker on a directory; its caller calls shut.
func reopen(t *testing.T, dir string, now func() time.Time, settings ...string) *house {
	t.Helper()
	e := embed(t, dir, now, settings...)
	return &house{dialWire(t, e.addr), e, dir}
}

func (h *house) shut() {
	h.Helper()
	if err := h.stop(); err != nil {
		h.Error(err)
	}
}

// fails starts a broker that must not start, and returns why it does not.
func fails(t *testing.T, settings ...string) string {
	t.Helper()
	all := map[string]string{"log.dirs": t.TempDir(), "listeners": "PLAINTEXT://127.0.0.1:0"}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		all[name] = value
	}
	b, err := broker.New(broker.Options{Settings: all})
	if err == nil {
		b.Close()
		t.Fatalf("a broker with %q starts", settings)
	}
	return err.Error()
}

// create makes a topic and returns the error code. Partitions and replicas may be -1.
func (h *house) create(topic string, partitions int32, replicas int16, settings ...string) int16 {
	h.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, partitions, replicas
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, &value
		rt.Configs = append(rt.Configs, c)
	}
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.CreateTopicsResponse](h.wire, req, 5).Topics[0].ErrorCode
}

// topic makes a topic of one partition.
func (h *house) topic(name string, settings ...string) {
	h.Helper()
	if code := h.create(name, 1, 1, settings...); code != 0 {
		h.Fatalf("create %s with %q: error %d", name, settings, code)
	}
}

// produceTo appends a batch to partition 0 with acks=all and returns the whole answer.
func (h *house) produceTo(topic string, batch []byte) kmsg.ProduceResponseTopicPartition {
	h.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.ProduceResponse](h.wire, req, 9).Topics[0].Partitions[0]
}

// store appends a batch that must be taken.
func (h *house) store(topic string, batch []byte) {
	h.Helper()
	if code := h.produceTo(topic, batch).ErrorCode; code != 0 {
		h.Fatalf("produce to %s: error %d", topic, code)
	}
}

// fetchFrom reads partition 0 from the start, as it is stored.
func (h *house) fetchFrom(topic string, version int16) kmsg.FetchResponseTopicPartition {
	h.Helper()
	req := fetchRequest(topic, 1)
	return ask[*kmsg.FetchResponse](h.wire, req, version).Topics[0].Partitions[0]
}

// fetchRequest asks for the first partitions of a topic from their start, without a session.
func fetchRequest(topic string, partitions int) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes, req.SessionEpoch = 50<<20, 0, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	for p := range int32(partitions) {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p, 50<<20, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// start is the first offset of partition 0.
func (h *house) start(topic string) int64 {
	h.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp, rp.CurrentLeaderEpoch = -2, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.ListOffsetsResponse](h.wire, req, 5).Topics[0].Partitions[0].Offset
}

func (h *house) metadata(topics ...string) *kmsg.MetadataResponse {
	h.Helper()
	return ask[*kmsg.MetadataResponse](h.wire, metadataRequest(true, topics...), 9)
}

func metadataRequest(create bool, topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = create
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, topic := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &topic
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// alter sets, or with "name" alone removes, settings while the broker runs. The broker "" is all brokers.
func (h *house) alter(kind kmsg.ConfigResourceType, name string, settings ...string) {
	h.Helper()
	if r := h.tryAlter(kind, name, settings...); r.ErrorCode != 0 {
		h.Fatalf("alter %v %q %q: error %d: %s", kind, name, settings, r.ErrorCode, *r.ErrorMessage)
	}
}

func (h *house) tryAlter(kind kmsg.ConfigResourceType, name string, settings ...string) kmsg.IncrementalAlterConfigsResponseResource {
	h.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kind, name
	for _, s := range settings {
		key, value, set := strings.Cut(s, "=")
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name = key
		if c.Op = kmsg.IncrementalAlterConfigOpDelete; set {
			c.Op, c.Value = kmsg.IncrementalAlterConfigOpSet, &value
		}
		rr.Configs = append(rr.Configs, c)
	}
	req.Resources = append(req.Resources, rr)
	return ask[*kmsg.IncrementalAlterConfigsResponse](h.wire, req, 1).Resources[0]
}

const (
	forTopic  = kmsg.ConfigResourceTypeTopic
	forBroker = kmsg.ConfigResourceTypeBroker
)

// files are the names of the files of partition 0 that end in a suffix, sorted.
func (h *house) files(topic, suffix string) []string {
	h.Helper()
	entries, err := os.ReadDir(filepath.Join(h.dir, topic+"-0"))
	if err != nil {
		h.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// checkpoint is the offset that a checkpoint file has for partition 0; -1: none.
func (h *house) checkpoint(file, topic string) int64 {
	h.Helper()
	b, err := os.ReadFile(filepath.Join(h.dir, file))
	if err != nil && !os.IsNotExist(err) {
		h.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var offset int64
		if n, _ := fmt.Sscanf(line, topic+" 0 %d", &offset); n == 1 {
			return offset
		}
	}
	return -1
}

// at is a batch of one record with a time.
func at(ms int64) []byte { return newBatch(nil, sample{key: []byte("k"), value: []byte("v"), at: ms}) }

// bytesOf is a batch of one record with a value of n bytes.
func bytesOf(n int) []byte {
	return newBatch(nil, sample{key: []byte("k"), value: make([]byte, n)})
}

func nowMs() int64 { return time.Now().UnixMilli() }

// hour is in milliseconds.
const hour = 3600000

var topicNumber atomic.Int64

// fresh is a topic name that no other topic has.
func fresh(what string) string { return fmt.Sprintf("%s-%d", what, topicNumber.Add(1)) }
