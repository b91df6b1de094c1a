//go:build clients

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/broker/registry"
)

// TestOpened: a directory that ottla wrote is opened by a real Kafka 3.9.1, whose ZooKeeper has got
// ottla's tree, after a clean stop and after kill -9. Kafka has everything, goes on, and when it has
// stopped ottla goes on with what Kafka wrote.
func TestOpened(t *testing.T) {
	installed(t, "kafka-3.9.1")
	installed(t, "kafka-4.4.0")
	for _, x := range []struct {
		name  string
		end   func(*Broker)
		fresh bool     // the registry is gone when the tree comes back, as in a directory of Kafka's
		dumps []string // releases of kafka-dump-log: a run of one costs most of the time
	}{{"clean stop", func(b *Broker) { b.Stop() }, false, []string{"4.4.0"}}, {"kill -9", (*Broker).Kill, true, []string{"3.9.1", "4.4.0"}}} {
		t.Run(x.name, func(t *testing.T) { dumpsOf(t, opened(t, x.end, x.fresh), x.dumps) })
	}
}

func opened(t *testing.T, end func(*Broker), fresh bool) (dir string) {
	b := Start(t, "node.id=1", "offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=2", "group.initial.rebalance.delay.ms=0",
		"log.flush.start.offset.checkpoint.interval.ms=100", "log.initial.task.delay.ms=100")
	s := &openedStory{t: t, begin: time.Now().Add(-12 * time.Hour)}
	s.write(b.Addr())
	before := s.look(b.Addr())
	deadline := time.After(10 * time.Second)
	for starts := ""; !strings.Contains(starts, "orders 0 2\n"); { // else a kill takes DeleteRecords back, as Kafka's would
		data, err := os.ReadFile(filepath.Join(b.Dir(), "log-start-offset-checkpoint"))
		s.must(err)
		starts = string(data)
		select {
		case <-deadline:
			t.Fatalf("the start of orders-0 is in no checkpoint: %q", starts)
		case <-time.After(20 * time.Millisecond):
		}
	}
	end(b)
	s.user(b.Dir())

	zk, stopZK := zooKeeper39(t)
	tree := zk + "/opened"
	said := registryTool(t, "export", "--data-dir", b.Dir(), "--zookeeper", tree)
	for _, want := range []string{"7 topics", "1 users", "left out: the feature levels"} {
		if !strings.Contains(said, want) {
			t.Errorf("export said %q, want %q in it", said, want)
		}
	}
	addr, stop := kafka39(t, b.Dir(), tree)
	compare(t, "Kafka's view", s.look(addr), before)
	s.settings(addr)
	s.goOn(addr, "kafka")
	after := s.look(addr)
	for _, x := range [][]string{
		{"brokers are registered (1): stop them first", "import", "--zookeeper", tree, "--file", os.DevNull, "--force"},
		{"stop the broker first", "import", "--zookeeper", tree, "--data-dir", b.Dir(), "--force"},
		{"stop the broker first", "export", "--zookeeper", tree, "--data-dir", b.Dir(), "--force"},
	} {
		if x[4] == "--file" {
			file := filepath.Join(t.TempDir(), "tree.json")
			registryTool(t, "export", "--zookeeper", tree, "--file", file) // what is read may be in use
			x[5] = file
		}
		if _, said, status := Run(t, append([]string{"registry"}, x[1:]...)...); status != 1 || !strings.Contains(said, x[0]) {
			t.Errorf("ottla registry %v: status %d, %q, want %q in it", x[1:], status, said, x[0])
		}
	}
	checkKafkaLog(t, stop())

	back := []string{"import", "--zookeeper", tree, "--data-dir", b.Dir()}
	if fresh {
		s.must(os.Remove(filepath.Join(b.Dir(), registry.FileName)))
	} else {
		if _, said, status := Run(t, append([]string{"registry"}, back...)...); status != 1 || !strings.Contains(said, "has 7 topics; --merge keeps them, --force replaces all") {
			t.Errorf("import over topics: status %d, %q", status, said)
		}
		back = append(back, "--force")
	}
	said = registryTool(t, back...)
	if want := "8 topics"; !strings.Contains(said, want) || strings.Contains(said, "left out") {
		t.Errorf("import said %q, want %q in it and nothing left out", said, want)
	}
	there, _, _ := Run(t, "registry", "export", "--zookeeper", tree)
	here, _, _ := Run(t, "registry", "export", "--data-dir", b.Dir())
	compare(t, "the tree after import", withoutLevels(here), withoutLevels(there))
	stopZK()
	b.Start()
	compare(t, "ottla's view", s.look(b.Addr()), after)
	s.goOn(b.Addr(), "ottla")
	s.look(b.Addr())
	b.Stop()
	if strings.Contains(b.Log(), "level=ERROR") || strings.Contains(b.Log(), "level=WARN") {
		t.Errorf("ottla said\n%s", b.Log())
	}
	return b.Dir()
}

// openedStory is what was written, and by whom.
type openedStory struct {
	t         *testing.T
	begin     time.Time // a record is 10 s after the one before, so segments of a minute are many; all lie within a day
	all       int       // records
	committed int       // of these not in aborted transactions
	turns     int
}

var openedTopics = []string{"orders", "table", "txn"}

func (s *openedStory) record(topic string, i int) *kgo.Record {
	r := &kgo.Record{Topic: topic, Timestamp: s.begin.Add(time.Duration(i) * 10 * time.Second), Key: fmt.Appendf(nil, "key-%d", i),
		Value: []byte(strings.Repeat(fmt.Sprintf("value-%d é ", i), 10))}
	for h := range i % 3 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: fmt.Sprintf("h%d", h), Value: []byte("x")})
	}
	if i%11 == 3 && topic != "table" {
		r.Value = nil
	}
	return r
}

func (s *openedStory) admin(addr string) *kadm.Client {
	return kadm.NewClient(kgoDial(s.t, kgo.SeedBrokers(addr)))
}

func (s *openedStory) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// write makes what there is before Kafka.
func (s *openedStory) write(addr string) {
	t := s.t
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	adm := s.admin(addr)
	text := kadm.StringPtr
	for _, topic := range []struct {
		name       string
		partitions int32
		configs    map[string]*string
	}{
		{"orders", 6, map[string]*string{"segment.ms": text("60000"), "index.interval.bytes": text("200"), "retention.ms": text("-1")}},
		{"table", 2, map[string]*string{"cleanup.policy": text("compact"), "max.message.bytes": text("2000000"), "min.cleanable.dirty.ratio": text("0.9")}},
		{"txn", 2, map[string]*string{"segment.ms": text("60000"), "retention.ms": text("-1")}},
		{"gone", 2, nil},
		{"open", 1, nil},
		{"empty", 1, map[string]*string{"compression.type": text("zstd")}},
	} {
		_, err := adm.CreateTopic(ctx, topic.partitions, 1, topic.configs, topic.name)
		s.must(err)
	}
	_, err := adm.UpdatePartitions(ctx, 3, "txn")
	s.must(err)
	s.must(kgoDial(t, kgo.SeedBrokers(addr)).ProduceSync(ctx, s.record("gone", 0)).FirstErr())
	_, err = adm.DeleteTopic(ctx, "gone")
	s.must(err)
	_, err = adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: "log.cleaner.threads", Value: text("2")}}, 1)
	s.must(err)
	s.goOn(addr, "ottla")
	_, err = adm.DeleteRecords(ctx, kadm.Offsets{"orders": {0: {Topic: "orders", Partition: 0, At: 2}}})
	s.must(err)
	s.all -= 2
	s.committed -= 2
}

// goOn writes with every codec, in transactions and into a group, and expects that the group goes on
// where it was.
func (s *openedStory) goOn(addr, who string) {
	t := s.t
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	adm := s.admin(addr)
	n := s.turns * 1000
	produce := func(cl *kgo.Client, r *kgo.Record, partition int32) error {
		r.Partition = partition
		return cl.ProduceSync(ctx, r).FirstErr()
	}
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		cl := kgoDial(t, kgo.SeedBrokers(addr), kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
		for k := range 3 {
			for p := range int32(6) {
				s.must(produce(cl, s.record("orders", n+i*18+k*6+int(p)), p))
				s.all++
			}
			s.must(produce(cl, s.record("table", n+i*3+k), int32(k%2)))
			s.all++
		}
		cl.Close()
	}
	s.committed = s.all - s.aborted()
	cl := kgoDial(t, kgo.SeedBrokers(addr), kgo.TransactionalID("id"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 6 {
		s.must(cl.BeginTransaction())
		for p := range int32(3) {
			s.must(produce(cl, s.record("txn", n+i*3+int(p)), p))
		}
		s.must(cl.EndTransaction(ctx, kgo.TransactionEndTry(i%2 == 0)))
	}
	cl.Close()
	s.leaveOpen(ctx, addr)
	s.all += 18
	s.turns++
	s.committed = s.all - s.aborted()
	if who == "kafka" {
		_, err := adm.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, "of-kafka")
		s.must(err)
	}

	group := kgoDial(t, kgo.SeedBrokers(addr), kgo.ConsumerGroup("group"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	seen := map[string]bool{}
	for len(seen) < 90 { // of this turn: the group had all before
		fs := group.PollFetches(ctx)
		s.must(fs.Err())
		fs.EachRecord(func(r *kgo.Record) {
			key := string(r.Key)
			var i int
			fmt.Sscanf(key, "key-%d", &i)
			if seen[key] || i < n {
				t.Errorf("the group was given %s in turn %d", key, s.turns)
			}
			seen[key] = true
		})
	}
	s.must(group.CommitUncommittedOffsets(ctx))
	s.must(group.LeaveGroupContext(ctx))
}

// leaveOpen leaves a transaction open, after that of the turn before was ended by its successor.
func (s *openedStory) leaveOpen(ctx context.Context, addr string) {
	cl := kgoDial(s.t, kgo.SeedBrokers(addr), kgo.TransactionalID("open"), kgo.TransactionTimeout(10*time.Minute))
	s.must(cl.BeginTransaction())
	r := &kgo.Record{Topic: "open", Value: []byte("open")}
	s.must(cl.ProduceSync(ctx, r).FirstErr())
	cl.Close()
	stable, err := s.admin(addr).ListCommittedOffsets(ctx, "open")
	s.must(errors.Join(err, stable.Error()))
	if o, _ := stable.Lookup("open", 0); o.Offset != r.Offset || r.Offset != int64(2*s.turns) {
		s.t.Errorf("turn %d: the last stable offset is %d, the open transaction's record at %d", s.turns, o.Offset, r.Offset)
	}
}

// user puts a user's quota into the registry of a broker that does not run.
func (s *openedStory) user(dir string) {
	file := filepath.Join(s.t.TempDir(), "user.json")
	s.must(os.WriteFile(file, []byte(`{"path":"/config/users/alice","mode":"persistent","data":"{\"version\":1,\"config\":{\"producer_byte_rate\":\"1000000\"}}"}`), 0o600))
	registryTool(s.t, "import", "--data-dir", dir, "--file", file, "--merge")
}

// settings looks whether Kafka has what only the tree says.
func (s *openedStory) settings(addr string) {
	ctx := s.t.Context()
	adm := s.admin(addr)
	quotas, err := adm.DescribeClientQuotas(ctx, false, []kadm.DescribeClientQuotaComponent{{Type: "user", MatchType: kmsg.QuotasMatchTypeAny}})
	s.must(err)
	if len(quotas) != 1 || quotas[0].Entity.String() != "{user=alice}" || len(quotas[0].Values) != 1 || quotas[0].Values[0].Value != 1e6 {
		s.t.Errorf("quotas %+v", quotas)
	}
	configs, err := adm.DescribeBrokerConfigs(ctx, 1)
	s.must(err)
	found := ""
	for _, c := range configs[0].Configs {
		if c.Key == "log.cleaner.threads" {
			found = c.MaybeValue()
		}
	}
	if found != "2" {
		s.t.Errorf("log.cleaner.threads is %q", found)
	}
}

func (s *openedStory) aborted() int { return s.turns * 9 }

// look gives all that can be asked of a broker, in lines.
func (s *openedStory) look(addr string) (lines []string) {
	t := s.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	adm := s.admin(addr)
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	meta, err := adm.Metadata(ctx)
	s.must(err)
	add("cluster %s", meta.Cluster)
	topics, err := adm.ListTopicsWithInternal(ctx)
	s.must(err)
	for _, topic := range topics.Sorted() {
		s.must(topic.Err)
		add("topic %s id %s", topic.Topic, topic.ID)
		for _, p := range topic.Partitions.Sorted() {
			add("partition %s-%d leader %d replicas %v isr %v %v", p.Topic, p.Partition, p.Leader, p.Replicas, p.ISR, p.Err)
		}
	}
	configs, err := adm.DescribeTopicConfigs(ctx, topics.Names()...)
	s.must(err)
	slices.SortFunc(configs, func(a, b kadm.ResourceConfig) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range configs {
		s.must(c.Err)
		var set []string
		for _, v := range c.Configs {
			if v.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				set = append(set, v.Key+"="+v.MaybeValue())
			}
		}
		slices.Sort(set)
		add("settings of %s: %v", c.Name, set)
	}
	for what, list := range map[string]func(context.Context, ...string) (kadm.ListedOffsets, error){
		"start": adm.ListStartOffsets, "end": adm.ListEndOffsets, "committed end": adm.ListCommittedOffsets} {
		offsets, err := list(ctx, openedTopics...)
		s.must(errors.Join(err, offsets.Error()))
		offsets.Each(func(o kadm.ListedOffset) { add("%s of %s-%d is %d", what, o.Topic, o.Partition, o.Offset) })
	}
	committed, err := adm.FetchOffsets(ctx, "group")
	s.must(err)
	committed.Each(func(o kadm.OffsetResponse) {
		add("group at %s-%d %d %q %v", o.Topic, o.Partition, o.At, o.Metadata, o.Err)
	})
	producers, err := adm.DescribeProducers(ctx, kadm.TopicsSet{"orders": {0: {}, 5: {}}, "table": {0: {}}, "txn": {0: {}, 1: {}, 2: {}}, "open": {0: {}}})
	s.must(err)
	producers.EachProducer(func(p kadm.DescribedProducer) {
		add("producer of %s-%d: id %d epoch %d sequence %d, begun at %d, coordinator %d", p.Topic, p.Partition, p.ProducerID, p.ProducerEpoch, p.LastSequence, p.CurrentTxnStartOffset, p.CoordinatorEpoch)
	})
	txns, err := adm.DescribeTransactions(ctx, "id", "open")
	s.must(err)
	txns.Each(func(x kadm.DescribedTransaction) {
		add("transaction %s: %s, id %d epoch %d, timeout %d, %v %v", x.TxnID, x.State, x.ProducerID, x.ProducerEpoch, x.TimeoutMillis, x.Topics.Sorted(), x.Err)
	})
	slices.Sort(lines)
	lines = append(lines, consumed(t, addr, kgo.ReadUncommitted(), s.all, nil, openedTopics...)...)
	lines = append(lines, consumed(t, addr, kgo.ReadCommitted(), s.committed, nil, openedTopics...)...)
	return lines
}

// withoutLevels is an exported tree but for the feature levels: Kafka 3.9 has none, and ottla keeps its own.
func withoutLevels(tree string) []string {
	return slices.DeleteFunc(strings.Split(tree, "\n"), func(line string) bool { return strings.Contains(line, `"path":"/feature"`) })
}
