//go:build clients

package integration

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ottla/broker/registry"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The clients of Kafka 0.8.2.2, which speak to ZooKeeper themselves, against brokers of a cluster.

// oldCluster is brokers on a ZooKeeper.
type oldCluster struct {
	t       *testing.T
	z       *zooKeeper
	tree    registry.Tree
	brokers []*Broker
	repeats bool // a leader may have ended before it answered: the producer, which knows no sequences, sends again
}

func startOldCluster(t *testing.T, brokers int, settings ...string) *oldCluster {
	t.Helper()
	installed(t, "kafka-0.8.2.2/classes")
	c := &oldCluster{t: t, z: startZooKeeper(t)}
	for id := range brokers {
		all := onZooKeeper(c.z, append([]string{fmt.Sprintf("broker.id=%d", id+1), fmt.Sprintf("offsets.topic.replication.factor=%d", brokers)}, settings...)...)
		c.brokers = append(c.brokers, StartWith(t, Options{Settings: all}))
	}
	c.tree = c.z.tree("/kafka")
	eventually(t, "all brokers are registered", 20*time.Second, func() bool {
		ids, _, err := c.tree.Children("/brokers/ids", nil)
		return err == nil && len(ids) == brokers
	})
	return c
}

func (c *oldCluster) addrs() (addrs []string) {
	for _, b := range c.brokers {
		addrs = append(addrs, b.Addr())
	}
	return addrs
}

// program starts integration/java/old.
func (c *oldCluster) program() *driven {
	d := drive(c.t, c.z.address+"/kafka,"+c.brokers[0].Addr(), javaCommand(c.t, "0.8.2.2", "Old")...).(*driven)
	c.t.Cleanup(func() {
		d.cmd.Process.Kill()
		<-d.done
		d.cmd.Wait()
	})
	return d
}

// create makes a topic whose replicas are all in sync.
func (c *oldCluster) create(topic string, partitions int32) {
	c.t.Helper()
	adm := kadm.NewClient(goClient(c.t, kgo.SeedBrokers(c.addrs()...)))
	if _, err := adm.CreateTopic(c.t.Context(), partitions, int16(len(c.brokers)), nil, topic); err != nil {
		c.t.Fatal(err)
	}
	allInSync(c.t, c.tree, topic, partitions, len(c.brokers))
}

// join is a member of a group, with as many streams as said.
func (c *oldCluster) join(d *driven, group, id, topic string, streams int, settings args) *drivenMember {
	c.t.Helper()
	all := args{"consumer.id": id, "zookeeper.session.timeout.ms": "4000", "auto.commit.enable": "false", "rebalance.backoff.ms": "500", "rebalance.max.retries": "20"}
	maps.Copy(all, settings)
	m, err := d.joinWith(c.t.Context(), args{"group": group, "topic": topic, "streams": streams, "settings": all})
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// owned waits until a topic's partitions are owned as they should be: stream to partitions.
func (c *oldCluster) owned(group, topic string, want map[string]string) {
	c.t.Helper()
	path := "/consumers/" + group + "/owners/" + topic
	var got map[string]string
	defer func() {
		if c.t.Failed() {
			c.t.Logf("owned: %v", got)
		}
	}()
	eventually(c.t, fmt.Sprintf("%s is owned as %v", topic, want), 40*time.Second, func() bool {
		names, _, _ := c.tree.Children(path, nil)
		got = map[string]string{}
		var numbers []int
		for _, name := range names {
			n, _ := strconv.Atoi(name)
			numbers = append(numbers, n)
		}
		slices.Sort(numbers)
		for _, n := range numbers {
			owner := strings.TrimPrefix(znode(c.t, c.tree, path+"/"+strconv.Itoa(n)), group+"_")
			got[owner] = strings.TrimSpace(got[owner] + " " + strconv.Itoa(n))
		}
		return maps.Equal(got, want)
	})
}

// oldSend produces texts, whose keys they are, with the old producer.
func (c *oldCluster) oldSend(d *driven, topic, codec string, from, to int) {
	c.t.Helper()
	var ms []message
	for n := from; n < to; n++ {
		ms = append(ms, message{Key: fmt.Sprint("k", n), Value: fmt.Sprint(n), Time: time.UnixMilli(0)})
	}
	if err := d.send(c.t.Context(), topic, codec, ms); err != nil {
		c.t.Fatal(err)
	}
}

// take receives the numbers in [from,to) once each, whoever of the members gets them, and says what
// each partition's end is by them.
func (c *oldCluster) take(from, to int, members ...*drivenMember) map[int32]int64 {
	c.t.Helper()
	seen, ends := map[string]bool{}, map[int32]int64{}
	all, stop := make(chan message), make(chan struct{})
	defer close(stop)
	for _, m := range members {
		go func() {
			for {
				select {
				case got, ok := <-m.records():
					if !ok {
						return
					}
					select {
					case all <- got:
					case <-stop:
						if !c.repeats {
							c.t.Errorf("%+v came although all was there", got)
						}
						return
					}
				case <-stop:
					return
				}
			}
		}()
	}
	late := time.After(40 * time.Second)
	for len(seen) < to-from {
		select {
		case got := <-all:
			n, err := strconv.Atoi(got.Value)
			if err != nil || n < from || n >= to || seen[got.Value] && !c.repeats || got.Key != "k"+got.Value {
				c.t.Errorf("%+v came, of %d to %d", got, from, to)
			}
			seen[got.Value] = true
			ends[got.Partition] = max(ends[got.Partition], got.Offset+1)
		case <-late:
			c.t.Fatalf("%d of %d messages came", len(seen), to-from)
		}
	}
	return ends
}

func (c *oldCluster) commit(members ...*drivenMember) {
	c.t.Helper()
	for _, m := range members {
		if err := m.commit(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
	}
}

// oldPartition is where the old producer puts a key: the Java hash of the text by the number of partitions
// (kafka.producer.DefaultPartitioner).
func oldPartition(key string, partitions int32) int32 {
	var hash int32
	for _, c := range []byte(key) {
		hash = hash*31 + int32(c)
	}
	return (hash & 0x7fffffff) % partitions
}

// TestOldConsumers: members of a group of the 0.8.2.2 consumer share the partitions as recorded among its own
// brokers, by both strategies; they keep their offsets in ZooKeeper, and go on at them; more partitions
// and the end of a member start a rebalance, the end of a broker does not.
func TestOldConsumers(t *testing.T) {
	c := startOldCluster(t, 2)
	d := c.program()
	for _, x := range []struct {
		strategy                  string
		alone, both, grown, after map[string]string
	}{
		{"range", map[string]string{"A-0": "0 1 2 3", "A-1": "4 5 6", "A-2": "7 8 9"},
			map[string]string{"A-0": "0 1", "A-1": "2 3", "A-2": "4 5", "B-0": "6 7", "B-1": "8", "B-2": "9"},
			map[string]string{"A-0": "0 1", "A-1": "2 3", "A-2": "4 5", "B-0": "6 7", "B-1": "8 9", "B-2": "10 11"},
			map[string]string{"A-0": "0 1 2 3", "A-1": "4 5 6 7", "A-2": "8 9 10 11"}},
		{"roundrobin", map[string]string{"A-0": "0 3 6 9", "A-1": "1 4 7", "A-2": "2 5 8"}, map[string]string{"A-0": "0 6", "A-1": "1 7", "A-2": "2 8", "B-0": "3 9", "B-1": "4", "B-2": "5"}, nil,
			map[string]string{"A-0": "0 3 6 9", "A-1": "1 4 7", "A-2": "2 5 8"}},
	} {
		t.Run(x.strategy, func(t *testing.T) {
			c := *c
			c.t = t
			group, topic := "eg-"+x.strategy, "events-"+x.strategy
			c.create(topic, 10)
			c.oldSend(d, topic, "none", 0, 100)
			by := args{"partition.assignment.strategy": x.strategy}
			a := c.join(d, group, "A", topic, 3, by)
			c.owned(group, topic, x.alone)
			ends := c.take(0, 100, a)
			c.commit(a)
			for n := range 100 {
				if p := oldPartition(fmt.Sprint("k", n), 10); ends[p] == 0 {
					t.Errorf("k%d is not in partition %d", n, p)
				}
			}
			for p, end := range ends {
				if got := znode(t, c.tree, fmt.Sprintf("/consumers/%s/offsets/%s/%d", group, topic, p)); got != fmt.Sprint(end) {
					t.Errorf("partition %d is at %s, want %d", p, got, end)
				}
			}
			if got := times.ReplaceAllString(znode(t, c.tree, "/consumers/"+group+"/ids/"+group+"_A"), `"timestamp":"0"`); got != `{"version":1,"subscription":{"`+topic+`":3},"pattern":"static","timestamp":"0"}` {
				t.Errorf("A is registered as %s", got)
			}
			b := c.join(d, group, "B", topic, 3, by)
			c.owned(group, topic, x.both)
			c.oldSend(d, topic, "none", 100, 200)
			c.take(100, 200, a, b)
			c.commit(a, b)
			if x.grown != nil { // as the tools of then do
				adm := kadm.NewClient(goClient(t, kgo.SeedBrokers(c.addrs()...)))
				if r, err := adm.CreatePartitions(t.Context(), 2, topic); err != nil || r[topic].Err != nil {
					t.Fatal(r, err)
				}
				c.owned(group, topic, x.grown)
			}
			if err := b.leave(); err != nil {
				t.Fatal(err)
			}
			c.owned(group, topic, x.after)
			c.oldSend(d, topic, "none", 200, 300)
			c.take(200, 300, a)
			c.commit(a)
			if err := a.leave(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "nobody is registered", 20*time.Second, func() bool {
				ids, _, err := c.tree.Children("/consumers/"+group+"/ids", nil)
				return err == nil && len(ids) == 0
			})
			c.oldSend(d, topic, "none", 300, 310)
			again := c.join(d, group, "C", topic, 1, by) // from where the others have been
			c.take(300, 310, again)
			if err := again.leave(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestOldConsumersThroughFaults: a member that is killed is replaced when its session has ended; when a leader ends
// nothing is owned anew, and the messages come from the next one; what was acknowledged is there.
func TestOldConsumersThroughFaults(t *testing.T) {
	c := startOldCluster(t, 3, "replica.lag.time.max.ms=3000", "min.insync.replicas=2")
	d := c.program()
	c.create("kept", 6)
	a := c.join(d, "g", "A", "kept", 2, nil)
	other := c.program()
	b := c.join(other, "g", "B", "kept", 2, nil)
	both := map[string]string{"A-0": "0 1", "A-1": "2 3", "B-0": "4", "B-1": "5"}
	c.owned("g", "kept", both)
	c.oldSend(d, "kept", "gzip", 0, 60)
	c.take(0, 60, a, b)
	c.commit(a, b)
	leader := stateOf(t, c.tree, "kept", 0).Leader
	c.repeats = true
	c.brokers[leader-1].Kill()
	owner, err := c.tree.Exists("/consumers/g/owners/kept/0", nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is another leader", 20*time.Second, func() bool { return stateOf(t, c.tree, "kept", 0).Leader != leader })
	alive := c.program // the producer asks the first broker, which may be the one that is gone
	if leader != 1 {
		alive = func() *driven { return d }
	} else {
		c.brokers[0], c.brokers[1] = c.brokers[1], c.brokers[0]
	}
	p := alive()
	c.oldSend(p, "kept", "snappy", 60, 120)
	c.take(60, 120, a, b)
	c.commit(a, b)
	if now, err := c.tree.Exists("/consumers/g/owners/kept/0", nil); err != nil || now.Czxid != owner.Czxid {
		t.Errorf("the end of a broker has started a rebalance: %v", err)
	}
	other.cmd.Process.Kill()
	c.owned("g", "kept", map[string]string{"A-0": "0 1 2", "A-1": "3 4 5"})
	c.oldSend(p, "kept", "none", 120, 180)
	c.take(120, 180, a)
}
