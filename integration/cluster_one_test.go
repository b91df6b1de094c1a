//go:build clients

package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ottla/broker/registry"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// onZooKeeper are the settings of a member of a cluster. The session is short, so that its end can be
// waited for.
func onZooKeeper(z *zooKeeper, more ...string) []string {
	return append([]string{"zookeeper.connect=" + z.address + "/kafka", "zookeeper.session.timeout.ms=2000", "zookeeper.connection.timeout.ms=30000",
		"replica.fetch.backoff.ms=100", "controlled.shutdown.retry.backoff.ms=200", "group.initial.rebalance.delay.ms=0",
		"offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=3"}, more...)
}

func goClient(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.MetadataMinAge(100 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var times = regexp.MustCompile(`"timestamp":"\d+"`)

// TestZooKeeperTree: the tree of one broker has the nodes of Kafka 3.9.1, with its values.
func TestZooKeeperTree(t *testing.T) {
	z := startZooKeeper(t)
	b := StartWith(t, Options{Settings: onZooKeeper(z, "broker.id=7", "broker.rack=r1")})
	tree := z.tree("/kafka")
	port := b.Addr()[strings.LastIndexByte(b.Addr(), ':')+1:]
	want := map[string]string{
		"/admin": "null", "/admin/delete_topics": "null", "/brokers": "null", "/brokers/ids": "null", "/brokers/seqid": "null", "/brokers/topics": "null",
		"/cluster": "null", "/config": "null", "/config/brokers": "null", "/config/changes": "null", "/config/clients": "null", "/config/ips": "null",
		"/config/topics": "null", "/config/users": "null", "/consumers": "null", "/isr_change_notification": "null", "/latest_producer_id_block": "null",
		"/log_dir_event_notification": "null", "/controller_epoch": "1",
		"/brokers/ids/7": fmt.Sprintf(`{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:%s"],"jmx_port":-1,"port":%s,"host":"127.0.0.1","version":5,"rack":"r1","timestamp":"0"}`, port, port),
		"/controller":    `{"version":2,"brokerid":7,"timestamp":"0","kraftControllerEpoch":-1}`,
		"/feature":       `{"features":{},"version":2,"status":1}`,
	}
	for path, value := range want {
		if got := times.ReplaceAllString(znode(t, tree, path), `"timestamp":"0"`); got != value {
			t.Errorf("%s has\n%s and not\n%s", path, got, value)
		}
	}
	if got := znode(t, tree, "/cluster/id"); !regexp.MustCompile(`^\{"version":"1","id":"[A-Za-z0-9_-]{22}"\}$`).MatchString(got) {
		t.Errorf("/cluster/id has %s", got)
	}
	if st, err := tree.Exists("/brokers/ids/7", nil); err != nil || st.Version != 1 || st.EphemeralOwner == 0 {
		t.Errorf("registration: %+v, %v", st, err)
	}
	for _, path := range walk(t, tree, "/") {
		if _, ok := want[path]; !ok && path != "/" && path != "/cluster/id" {
			t.Errorf("%s is not in Kafka's tree", path)
		}
	}

	cl := goClient(t, kgo.SeedBrokers(b.Addr()))
	adm := kadm.NewClient(cl)
	hour := "3600000"
	if _, err := adm.CreateTopic(t.Context(), 2, 1, map[string]*string{"retention.ms": &hour}, "orders"); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("one")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := znode(t, tree, "/brokers/topics/orders"); !regexp.MustCompile(`^\{"partitions":\{"0":\[7\],"1":\[7\]\},"topic_id":"[A-Za-z0-9_-]{22}","adding_replicas":\{\},"removing_replicas":\{\},"version":3\}$`).MatchString(got) {
		t.Errorf("/brokers/topics/orders has %s", got)
	}
	for path, value := range map[string]string{
		"/brokers/topics/orders/partitions": "null", "/brokers/topics/orders/partitions/0": "null",
		"/brokers/topics/orders/partitions/0/state": `{"controller_epoch":1,"leader":7,"version":1,"leader_epoch":0,"isr":[7]}`,
		"/config/topics/orders":                     `{"version":1,"config":{"retention.ms":"3600000"}}`,
		"/latest_producer_id_block":                 `{"version":1,"broker":7,"block_start":"0","block_end":"999"}`,
	} {
		if got := znode(t, tree, path); got != value {
			t.Errorf("%s has\n%s and not\n%s", path, got, value)
		}
	}
	if _, err := adm.DeleteTopics(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the topic is gone", 10*time.Second, func() bool {
		return znode(t, tree, "/brokers/topics/orders") == "absent" && znode(t, tree, "/config/topics/orders") == "absent" && znode(t, tree, "/admin/delete_topics/orders") == "absent"
	})
	b.Stop()
	if got := znode(t, tree, "/brokers/ids/7") + znode(t, tree, "/controller"); got != "absentabsent" {
		t.Errorf("after its stop the broker is still there: %s", got)
	}
}

func walk(t *testing.T, tree registry.Tree, path string) []string {
	names, _, err := tree.Children(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{path}
	for _, name := range names {
		all = append(all, walk(t, tree, strings.TrimSuffix(path, "/")+"/"+name)...)
	}
	return all
}

// TestZooKeeperOneBroker: one broker keeps its topics through a restart, a kill before its session has
// ended, the end of its session while it stands still, and a ZooKeeper that goes and comes back.
func TestZooKeeperOneBroker(t *testing.T) {
	z := startZooKeeper(t)
	b := StartWith(t, Options{Settings: onZooKeeper(z)})
	tree := z.tree("/kafka")
	cl := goClient(t, kgo.SeedBrokers(b.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "kept"); err != nil {
		t.Fatal(err)
	}
	n := 0
	produce := func(after string) {
		t.Helper()
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "kept", Value: []byte(fmt.Sprint(n))}).FirstErr(); err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
		n++
	}
	produce("the start")
	ids, _, err := tree.Children("/brokers/ids", nil)
	if err != nil || !slices.Equal(ids, []string{"1001"}) {
		t.Fatalf("given ids: %v, %v", ids, err)
	}
	b.Stop()
	b.Start()
	produce("a restart")
	b.Restart() // before the session of the one that was killed has ended
	produce("a kill")
	if !strings.Contains(b.Log(), "registered by another session") {
		t.Errorf("it does not say that it waits for its former session:\n%s", b.Log())
	}
	before, _ := tree.Exists("/brokers/ids/1001", nil)
	b.cmd.Process.Signal(syscall.SIGSTOP)
	eventually(t, "the session has ended", 20*time.Second, func() bool { return znode(t, tree, "/brokers/ids/1001") == "absent" })
	b.cmd.Process.Signal(syscall.SIGCONT)
	eventually(t, "the broker is registered again", 20*time.Second, func() bool {
		st, err := tree.Exists("/brokers/ids/1001", nil)
		return err == nil && st.Czxid > before.Czxid
	})
	produce("the end of its session")
	z.kill()
	produce("the end of ZooKeeper")
	z.start()
	eventually(t, "ZooKeeper is back", 30*time.Second, func() bool { return znode(t, tree, "/brokers/ids/1001") != "absent" })
	eventually(t, "topics can be created again", 30*time.Second, func() bool {
		_, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "later")
		return err == nil
	})
	produce("the return of ZooKeeper")

	r := goClient(t, kgo.SeedBrokers(b.Addr()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"kept": {0: kgo.NewOffset().AtStart()}}))
	var got []string
	for len(got) < n {
		fs := r.PollFetches(t.Context())
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	for i, v := range got {
		if v != fmt.Sprint(i) {
			t.Fatalf("record %d is %q", i, v)
		}
	}
}

// TestZooKeeperLate: a broker waits for a ZooKeeper that is not there yet, and says so; not for ever.
func TestZooKeeperLate(t *testing.T) {
	z := newZooKeeper(t)
	late := time.AfterFunc(1500*time.Millisecond, z.start) // the broker is to meet nobody for a while
	defer late.Stop()
	b := StartWith(t, Options{Settings: onZooKeeper(z, "broker.id=1")})
	if !strings.Contains(b.Log(), "ZooKeeper does not answer yet") {
		t.Errorf("it does not say that it waits:\n%s", b.Log())
	}
	b.Stop()
	z.kill()
	_, errOut, status := Run(t, "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "", "--set", "zookeeper.connect="+z.address, "--set", "zookeeper.connection.timeout.ms=1500")
	if status != 1 || !strings.Contains(errOut, "no ZooKeeper has answered within zookeeper.connection.timeout.ms=1500") {
		t.Errorf("status %d\n%s", status, errOut)
	}
}
