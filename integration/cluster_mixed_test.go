//go:build clients

package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ottla/broker/registry"
	"ottla/compat"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaMember starts a broker of Kafka 3.9.1 in a cluster, on a directory and an address that it keeps.
func kafkaMember(t *testing.T, z *zooKeeper, id int32, dir, addr string) (out *output, stop func() string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "server.properties")
	lines := append([]string{fmt.Sprintf("broker.id=%d", id), "listeners=PLAINTEXT://" + addr, "log.dirs=" + dir, "log.index.size.max.bytes=4096",
		"offsets.topic.replication.factor=3", "transaction.state.log.replication.factor=3", "replica.lag.time.max.ms=3000"}, onZooKeeper(z)...)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return jvm(t, "384M", "kafka.Kafka", file)
}

// mixed is a cluster of Kafka 3.9.1, which is broker 2, and two of ottla.
type mixed struct {
	tree       registry.Tree
	one, three *Broker
	seeds      []string
	kafka      func()        // starts Kafka's, and waits until it is registered
	stop       func() string // stops it, and gives what it said
}

func startMixed(t *testing.T) *mixed {
	t.Helper()
	z := startZooKeeper(t)
	more := []string{"offsets.topic.replication.factor=3", "transaction.state.log.replication.factor=3", "replica.lag.time.max.ms=3000"}
	m := &mixed{one: StartWith(t, Options{Settings: onZooKeeper(z, append(more, "broker.id=1")...)}), tree: z.tree("/kafka")}
	dir, addr := t.TempDir(), net.JoinHostPort("127.0.0.1", fmt.Sprint(freePorts(t)))
	start := func() { _, m.stop = kafkaMember(t, z, 2, dir, addr) }
	registered := func() {
		t.Helper()
		eventually(t, "Kafka is registered", time.Minute, func() bool { return znode(t, m.tree, compat.PathBroker(2)) != "absent" })
	}
	m.kafka = func() {
		t.Helper()
		start()
		registered()
	}
	start()
	m.three = StartWith(t, Options{Settings: onZooKeeper(z, append(more, "broker.id=3")...)})
	registered()
	m.seeds = []string{m.one.Addr(), addr, m.three.Addr()}
	return m
}

// elect has the controller's node deleted until a broker that is wanted holds it.
func elect(t *testing.T, tree registry.Tree, want ...int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("one of %v is the controller", want), 60*time.Second, func() bool {
		id := controllerOf(t, tree)
		if id >= 0 && !slices.Contains(want, id) {
			if err := tree.Delete(compat.PathController, registry.AnyVersion); err != nil && !errors.Is(err, registry.ErrNoNode) {
				t.Fatal(err)
			}
		}
		return slices.Contains(want, id)
	})
}

// TestMixedCluster: a broker of Kafka 3.9.1 and two of ottla in one cluster are each other's leaders and
// followers, and each the others' controller, and lose nothing when they come and go.
func TestMixedCluster(t *testing.T) {
	c := startMixed(t)
	tree, seeds := c.tree, c.seeds
	adm := kadm.NewClient(goClient(t, kgo.SeedBrokers(seeds...)))
	two := "2"
	create := func(topic string) {
		t.Helper()
		eventually(t, topic+" is created", 30*time.Second, func() bool {
			_, err := adm.CreateTopic(t.Context(), 6, 3, map[string]*string{"min.insync.replicas": &two}, topic)
			return err == nil
		})
		allInSync(t, tree, topic, 6, 3)
	}

	elect(t, tree, 1, 3)
	create("by-ottla")
	l := startLoad(t, "by-ottla", seeds...)
	l.goesOn(300)
	elect(t, tree, 2)
	l.goesOn(300)
	create("by-kafka")
	k := startLoad(t, "by-kafka", seeds...)
	k.goesOn(300)
	c.one.Kill() // Kafka sees its session end, and elects
	l.goesOn(300)
	k.goesOn(300)
	c.one.Start()
	allInSync(t, tree, "by-ottla", 6, 3)
	allInSync(t, tree, "by-kafka", 6, 3)
	c.three.Stop() // Kafka's controller relieves it
	l.goesOn(100)
	c.three.Start()
	allInSync(t, tree, "by-ottla", 6, 3)

	// Partitions are moved from ottla to Kafka by Kafka's controller, and back by ottla's.
	move := func(to int32) {
		t.Helper()
		req := kadm.AlterPartitionAssignmentsReq{}
		req.Assign("moved", 0, []int32{to})
		req.Assign("moved", 1, []int32{to})
		eventually(t, "the move is taken", 30*time.Second, func() bool {
			r, err := adm.AlterPartitionAssignments(t.Context(), req)
			return err == nil && r.Error() == nil
		})
		eventually(t, fmt.Sprintf("it is moved to %d", to), 30*time.Second, func() bool {
			for p := range int32(2) {
				if s := stateOf(t, tree, "moved", p); s.Leader != to || !slices.Equal(s.ISR, []int32{to}) {
					return false
				}
			}
			return true
		})
	}
	elect(t, tree, 2)
	eventually(t, "the topic to move is created", 30*time.Second, func() bool {
		_, err := adm.CreateTopic(t.Context(), 2, 1, nil, "moved")
		return err == nil
	})
	m := startLoad(t, "moved", seeds...)
	m.goesOn(100)
	for _, to := range []int32{1, 2, 3} {
		move(to)
		m.goesOn(200)
	}
	elect(t, tree, 1, 3)
	for _, to := range []int32{2, 1, 2, 3} {
		move(to)
		m.goesOn(200)
	}
	m.check(seeds...)

	l.goesOn(300)
	checkKafkaMember(t, c.stop()) // ottla's controller relieves it
	l.goesOn(300)
	k.goesOn(300)
	c.kafka()
	allInSync(t, tree, "by-ottla", 6, 3)
	allInSync(t, tree, "by-kafka", 6, 3)
	l.goesOn(300)
	l.check(seeds...)
	k.check(seeds...)
	if _, err := adm.DeleteTopics(t.Context(), "by-kafka"); err != nil {
		t.Error(err)
	}
	eventually(t, "a topic is deleted", 20*time.Second, func() bool { return znode(t, tree, compat.PathTopic("by-kafka")) == "absent" })
	checkKafkaMember(t, c.stop())
}

// checkKafkaMember looks for what Kafka had against the others. Warnings and errors come with every
// change of leaders.
func checkKafkaMember(t *testing.T, log string) {
	t.Helper()
	log, _, _ = strings.Cut(log, "[KafkaServer id=2] shutting down") // then it is not ready for anything
	lines := strings.Split(log, "\n")
	for i, line := range lines {
		for _, bad := range []string{"FATAL", "SchemaException", "Exception while processing", "Unexpected error", "UNKNOWN_SERVER_ERROR", "CorruptRecord", "failed due to"} {
			if strings.Contains(line, bad) {
				t.Errorf("Kafka said: %s", strings.Join(lines[i:min(i+8, len(lines))], "\n"))
			}
		}
	}
}
