//go:build clients

package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/broker/registry"
	"ottla/compat"
)

// kafkaKRaft runs a real Kafka of a release, one KRaft node with an authorizer that lets anonymous
// do everything, and ends it by a signal. Its directory stays for others.
func kafkaKRaft(t *testing.T, release, dir string) (addr string, stop func(syscall.Signal)) {
	t.Helper()
	libs := filepath.Join(installed(t, "kafka-"+release), "kafka-"+release, "libs")
	up := filepath.Join(shared(t, "kafka", "bin"), "kafka4-up")
	port := freePorts(t)
	out := &output{line: make(chan string, 1)}
	cmd := exec.Command("bash", up, strconv.Itoa(port), dir,
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS",
		"offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=2", "log.index.size.max.bytes=4096",
		"metadata.log.max.record.bytes.between.snapshots=6000", "metadata.max.idle.interval.ms=0")
	cmd.Env = append(os.Environ(), "KAFKA4_LIBS="+libs, "KAFKA_HEAP_OPTS=-Xmx256M -Xms64M", "KAFKA_LOG_LEVEL=warn",
		"KAFKA_JVM_OPTS=-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
	cmd.Stdout, cmd.Stderr = out, out
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	gone := false
	t.Cleanup(func() {
		if !gone {
			_ = cmd.Process.Kill()
			<-exited
		}
		if t.Failed() {
			t.Logf("Kafka's output:\n%s", tail(out.String(), 40))
		}
	})
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cl := kgoDial(t, kgo.SeedBrokers(addr), kgo.RetryTimeout(90*time.Second))
	for cl.Ping(ctx) != nil {
		select {
		case err := <-exited:
			gone = true
			t.Fatalf("Kafka ended: %v\n%s", err, out.String())
		case <-ctx.Done():
			t.Fatal("Kafka does not answer")
		default:
		}
	}
	return addr, func(by syscall.Signal) {
		t.Helper()
		_ = cmd.Process.Signal(by)
		select {
		case <-exited:
			gone = true
		case <-time.After(60 * time.Second):
			t.Fatal("Kafka does not stop")
		}
	}
}

// freePorts is the first of two ports that nobody has.
func freePorts(t *testing.T) int {
	t.Helper()
	for range 100 {
		a, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := a.Addr().(*net.TCPAddr).Port
		b, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1)))
		a.Close()
		if err == nil {
			b.Close()
			return port
		}
	}
	t.Fatal("no two free ports")
	return 0
}

func request[R kmsg.Response](t *testing.T, cl *kgo.Client, r kmsg.Request) R {
	t.Helper()
	resp, err := cl.Request(t.Context(), r)
	if err != nil {
		t.Fatalf("%s: %v", kmsg.NameForKey(r.Key()), err)
	}
	return resp.(R)
}

// fill makes in a cluster what there is to take over.
func fill(t *testing.T, release, addr string) {
	ctx := t.Context()
	cl := kgoDial(t, kgo.SeedBrokers(addr))
	adm := kadm.NewClient(cl)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	text := kadm.StringPtr
	for _, topic := range []struct {
		name       string
		partitions int32
		configs    map[string]*string
	}{
		{"orders", 3, map[string]*string{"cleanup.policy": text("compact,delete"), "retention.ms": text("3600000"), "segment.ms": text("600000")}},
		{"doomed", 2, map[string]*string{"retention.ms": text("1000")}},
		{"grown", 1, nil},
	} {
		_, err := adm.CreateTopic(ctx, topic.partitions, 1, topic.configs, topic.name)
		must(err)
	}
	_, err := adm.UpdatePartitions(ctx, 4, "grown")
	must(err)
	_, err = adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "segment.ms"}, {Name: "max.message.bytes", Value: text("2000000")}}, "orders")
	must(err)
	_, err = adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: "log.cleaner.threads", Value: text("2")}}, 1)
	must(err)
	_, err = adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: "max.connections.per.ip", Value: text("100")}})
	must(err)

	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, c := range []struct {
		kind             kmsg.ConfigResourceType
		name, key, value string
	}{{kmsg.ConfigResourceTypeGroupConfig, "g/1", "consumer.session.timeout.ms", "50000"}, {kmsg.ConfigResourceTypeClientMetrics, "all", "interval.ms", "60000"}} {
		if c.kind == kmsg.ConfigResourceTypeGroupConfig && release < "4" {
			continue
		}
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = c.kind, c.name
		e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		e.Name, e.Value = c.key, text(c.value)
		r.Configs = append(r.Configs, e)
		alter.Resources = append(alter.Resources, r)
	}
	for _, r := range request[*kmsg.IncrementalAlterConfigsResponse](t, cl, alter).Resources {
		if r.ErrorCode != 0 {
			t.Fatal(r.ResourceName, r.ErrorCode, *r.ErrorMessage)
		}
	}

	for _, u := range []kadm.UpsertSCRAM{
		{User: "alice", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "a"},
		{User: "alice", Mechanism: kadm.ScramSha512, Iterations: 5000, Password: "b"},
		{User: "bob", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "c"},
	} {
		altered, err := adm.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{u})
		must(err)
		must(altered.Error())
	}
	_, err = adm.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: "bob", Mechanism: kadm.ScramSha256}}, nil)
	must(err)

	quota := func(value float64, remove bool, key string, parts ...string) {
		r := kmsg.NewPtrAlterClientQuotasRequest()
		e := kmsg.NewAlterClientQuotasRequestEntry()
		for i := 0; i < len(parts); i += 2 {
			p := kmsg.NewAlterClientQuotasRequestEntryEntity()
			if p.Type = parts[i]; parts[i+1] != "" {
				p.Name = text(parts[i+1])
			}
			e.Entity = append(e.Entity, p)
		}
		o := kmsg.NewAlterClientQuotasRequestEntryOp()
		o.Key, o.Value, o.Remove = key, value, remove
		e.Ops = append(e.Ops, o)
		r.Entries = append(r.Entries, e)
		for _, e := range request[*kmsg.AlterClientQuotasResponse](t, cl, r).Entries {
			if e.ErrorCode != 0 {
				t.Fatal(parts, e.ErrorCode, *e.ErrorMessage)
			}
		}
	}
	quota(1048576, false, "producer_byte_rate", "user", "alice")
	quota(50, false, "request_percentage", "user", "alice", "client-id", "app 1")
	quota(6000000, false, "consumer_byte_rate", "user", "")
	quota(5e9, false, "producer_byte_rate", "client-id", "")
	quota(1000, false, "connection_creation_rate", "ip", "127.0.0.1")
	quota(7, false, "consumer_byte_rate", "client-id", "gone")
	quota(0, true, "consumer_byte_rate", "client-id", "gone")

	acls := kmsg.NewPtrCreateACLsRequest()
	for _, a := range []struct {
		kind      kmsg.ACLResourceType
		pattern   kmsg.ACLResourcePatternType
		name, who string
		op        kmsg.ACLOperation
		how       kmsg.ACLPermissionType
	}{
		{kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeLiteral, "orders", "User:alice", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow},
		{kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeLiteral, "orders", "User:alice", kmsg.ACLOperationDescribeConfigs, kmsg.ACLPermissionTypeAllow},
		{kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypePrefixed, "ord", "User:bob", kmsg.ACLOperationWrite, kmsg.ACLPermissionTypeDeny},
		{kmsg.ACLResourceTypeGroup, kmsg.ACLResourcePatternTypeLiteral, "*", "User:*", kmsg.ACLOperationAll, kmsg.ACLPermissionTypeAllow},
		{kmsg.ACLResourceTypeGroup, kmsg.ACLResourcePatternTypeLiteral, "a/b", "User:eve", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow},
		{kmsg.ACLResourceTypeCluster, kmsg.ACLResourcePatternTypeLiteral, "kafka-cluster", "User:gone", kmsg.ACLOperationAlter, kmsg.ACLPermissionTypeAllow},
	} {
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourcePatternType, c.ResourceName, c.Principal = a.kind, a.pattern, a.name, a.who
		c.Host, c.Operation, c.PermissionType = "*", a.op, a.how
		acls.Creations = append(acls.Creations, c)
	}
	for i, r := range request[*kmsg.CreateACLsResponse](t, cl, acls).Results {
		if r.ErrorCode != 0 {
			t.Fatal(acls.Creations[i].ResourceName, r.ErrorCode, *r.ErrorMessage)
		}
	}
	del := kmsg.NewPtrDeleteACLsRequest()
	f := kmsg.NewDeleteACLsRequestFilter()
	f.ResourceType, f.ResourcePatternType, f.Principal = kmsg.ACLResourceTypeCluster, kmsg.ACLResourcePatternTypeLiteral, text("User:gone")
	f.Operation, f.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	del.Filters = append(del.Filters, f)
	request[*kmsg.DeleteACLsResponse](t, cl, del)

	producer := kgoDial(t, kgo.SeedBrokers(addr), kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		must(producer.BeginTransaction())
		for p := range int32(3) {
			must(producer.ProduceSync(ctx, &kgo.Record{Topic: "orders", Partition: p, Key: fmt.Append(nil, i), Value: fmt.Append(nil, "value ", i)}).FirstErr())
		}
		must(producer.EndTransaction(ctx, end))
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset("orders", 0, 2, -1)
	offsets.AddOffset("grown", 3, 0, -1)
	_, err = adm.CommitOffsets(ctx, "g", offsets)
	must(err)
	_, err = adm.DeleteTopics(ctx, "doomed")
	must(err)
}

// TestForeignKafka44 and TestForeignKafka39 let ottla go on in the directory of a real Kafka in KRaft
// mode, after a clean stop and after none.
func TestForeignKafka44(t *testing.T) { goOnAfter(t, "4.4.0", syscall.SIGTERM) }
func TestForeignKafka39(t *testing.T) { goOnAfter(t, "3.9.1", syscall.SIGKILL) }

func goOnAfter(t *testing.T, release string, end syscall.Signal) {
	dir := filepath.Join(t.TempDir(), "data")
	addr, stop := kafkaKRaft(t, release, dir)
	fill(t, release, addr)
	before := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(addr)))
	was, err := before.ListTopics(t.Context(), "orders", "grown")
	if err != nil {
		t.Fatal(err)
	}
	stop(end)
	if keep := os.Getenv("OTTLA_TEST_KEEP"); keep != "" { // to record a fixture
		if err := os.CopyFS(keep, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}

	b := StartWith(t, Options{Dir: dir})
	if !strings.Contains(b.Log(), "found a data directory of Kafka in KRaft mode") {
		t.Error("no word of what was found")
	}
	ctx := t.Context()
	cl := kgoDial(t, kgo.SeedBrokers(b.Addr()))
	adm := kadm.NewClient(cl)
	is, err := adm.ListTopicsWithInternal(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"orders", "grown"} {
		if is[name].ID != was[name].ID || len(is[name].Partitions) != len(was[name].Partitions) {
			t.Errorf("%s: %v with %d partitions, was %v with %d", name, is[name].ID, len(is[name].Partitions), was[name].ID, len(was[name].Partitions))
		}
	}
	if is.Has("doomed") {
		t.Error("a deleted topic is there again")
	}
	configs, err := adm.DescribeTopicConfigs(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "3600000", "segment.ms": "604800000", "max.message.bytes": "2000000"}
	for _, c := range configs[0].Configs {
		if w, ok := want[c.Key]; ok && c.MaybeValue() != w {
			t.Errorf("orders: %s is %s, want %s", c.Key, c.MaybeValue(), w)
		}
	}
	fetched, err := adm.FetchOffsets(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := fetched.Lookup("orders", 0); o.At != 2 {
		t.Errorf("offset of orders 0: %d", o.At)
	}
	if o, ok := fetched.Lookup("grown", 3); !ok || o.At != 0 {
		t.Errorf("offset of grown 3: %v", o)
	}
	if got := consumeAll(ctx, t, b.Addr(), "orders", 6, kgo.ReadCommitted()); len(got) != 6 {
		t.Errorf("committed records: %q", got)
	}

	// The client goes on: its epoch is a later one, and its records follow the others.
	producer := kgoDial(t, kgo.SeedBrokers(b.Addr()), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("orders"))
	id, epoch, err := producer.ProducerID(ctx)
	if err != nil || epoch == 0 {
		t.Errorf("producer %d, epoch %d, %v: the transactional id was not known", id, epoch, err)
	}
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := producer.ProduceSync(ctx, &kgo.Record{Key: []byte("k"), Value: []byte("after")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := producer.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got := consumeAll(ctx, t, b.Addr(), "orders", 7, kgo.ReadCommitted()); len(got) != 7 {
		t.Errorf("committed records afterwards: %q", got)
	}
	b.Stop()
	checkTakenOver(t, release, dir)
}

// checkTakenOver looks into the registry for what no client can be asked.
func checkTakenOver(t *testing.T, release, dir string) {
	tree, err := registry.OpenFile(filepath.Join(dir, "ottla.registry"))
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for path, want := range map[string]string{
		"/config/brokers/1":                      `"log.cleaner.threads":"2"`,
		"/config/brokers/<default>":              `"max.connections.per.ip":"100"`,
		"/config/groups/g%2F1":                   `"consumer.session.timeout.ms":"50000"`,
		"/config/client-metrics/all":             `"interval.ms":"60000"`,
		"/config/users/alice":                    `"producer_byte_rate":"1048576"`,
		"/config/users/alice/clients/app%201":    `"request_percentage":"50.0"`,
		"/config/users/<default>":                `"consumer_byte_rate":"6000000"`,
		"/config/clients/<default>":              `"producer_byte_rate":"5000000000"`,
		"/config/ips/127.0.0.1":                  `"connection_creation_rate":"1000"`,
		"/kafka-acl/Topic/orders":                `{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"DescribeConfigs"},{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}`,
		"/kafka-acl-extended/prefixed/Topic/ord": `"permissionType":"Deny","host":"*","operation":"Write"`,
		"/kafka-acl/Group/*":                     `"principal":"User:*"`,
	} {
		if path == "/config/groups/g%2F1" && release < "4" {
			continue
		}
		data, _, err := tree.Get(path, nil)
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %s, %v; want %s", path, data, err, want)
		}
	}
	for _, path := range []string{"/config/users/bob", "/config/clients/gone", "/kafka-acl/Cluster/kafka-cluster", "/brokers/topics/doomed"} {
		if _, err := tree.Exists(path, nil); err == nil {
			t.Errorf("%s is there", path)
		}
	}
	data, _, err := tree.Get("/config/users/alice", nil)
	if err != nil {
		t.Fatal(err)
	}
	user, err := compat.DecodeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	for name, iterations := range map[string]int32{"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 5000} {
		if c, err := compat.DecodeScram(user.Config[name]); err != nil || c.Iterations != iterations || len(c.Salt) == 0 || len(c.StoredKey) == 0 || len(c.ServerKey) == 0 {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

// TestForeignOldFormatsJava: Kafka's own consumers read messages of formats 0 and 1, also those that
// clients in Go cannot read (lz4 of format 0).
func TestForeignOldFormatsJava(t *testing.T) {
	expected := oldRecords(t)
	for _, release := range []string{"4.4.0", "3.9.1"} {
		t.Run(release, func(t *testing.T) {
			b := StartWith(t, Options{Dir: foreign(t, oldFormats), Settings: []string{"group.initial.rebalance.delay.ms=0"}})
			k := openTools(t, release, b.Addr())
			property := "--formatter-property"
			if release < "4" {
				property = "--property"
			}
			for _, topic := range []string{"fmt-v0", "fmt-v1", "fmt-v2"} {
				args := []string{"--topic", topic, "--from-beginning", "--max-messages", "16", "--timeout-ms", "20000"}
				for _, p := range []string{"print.key=true", "print.offset=true", "print.timestamp=true", "null.literal=NULL"} {
					args = append(args, property, p)
				}
				r := k.try("", "kafka-console-consumer", args...)
				var want []string
				for _, o := range expected[topic] {
					at := fmt.Sprint("CreateTime:", o.at)
					if o.at < 0 {
						at = "NO_TIMESTAMP"
					}
					want = append(want, fmt.Sprintf("%s\tOffset:%d\t%s\t%s", at, o.offset, o.key, o.value))
				}
				compare(t, topic, strings.Split(strings.TrimSpace(r.Out), "\n"), want)
			}
		})
	}
}
