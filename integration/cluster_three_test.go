//go:build clients

package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ottla/broker/registry"
	"ottla/compat"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ackedLoad produces to a topic with acks=all until it is checked, and knows what was acknowledged.
type ackedLoad struct {
	t     *testing.T
	topic string
	cl    *kgo.Client
	stop  chan struct{}
	done  chan struct{}

	acked  atomic.Int64
	mu     sync.Mutex
	at     map[string]string // partition/offset: value
	failed []error
	worst  time.Duration // between two acknowledgements
	last   time.Time
}

func startLoad(t *testing.T, topic string, seeds ...string) *ackedLoad {
	l := &ackedLoad{t: t, topic: topic, cl: goClient(t, kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerLinger(0),
		kgo.UnknownTopicRetries(-1), // a broker that has just come may hear late of a topic
		kgo.ProduceRequestTimeout(2*time.Second), kgo.RequestTimeoutOverhead(2*time.Second), kgo.DialTimeout(2*time.Second)),
		stop: make(chan struct{}), done: make(chan struct{}), at: map[string]string{}, last: time.Now()}
	go func() {
		defer close(l.done)
		slots, pace := make(chan struct{}, 30), time.NewTicker(5*time.Millisecond) // a load that leaves the machine to others too
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-l.stop:
				l.cl.Flush(context.Background())
				return
			case slots <- struct{}{}:
			}
			if n%20 == 0 {
				<-pace.C
			}
			value := strconv.Itoa(n)
			l.cl.Produce(context.Background(), &kgo.Record{Topic: topic, Value: []byte(value)}, func(r *kgo.Record, err error) {
				<-slots
				l.mu.Lock()
				defer l.mu.Unlock()
				if err != nil {
					l.failed = append(l.failed, err)
					return
				}
				now := time.Now()
				l.worst, l.last = max(l.worst, now.Sub(l.last)), now
				l.at[fmt.Sprintf("%d/%d", r.Partition, r.Offset)] = value
				l.acked.Add(1)
			})
		}
	}()
	return l
}

func (l *ackedLoad) goesOn(more int64) {
	l.t.Helper()
	want := l.acked.Load() + more
	eventually(l.t, fmt.Sprintf("%d more records are acknowledged", more), 40*time.Second, func() bool { return l.acked.Load() >= want })
}

// pause is the longest time without an acknowledgement since the last call.
func (l *ackedLoad) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := max(l.worst, time.Since(l.last))
	l.worst, l.last = 0, time.Now()
	return d
}

// check ends the load and reads the topic: what was acknowledged is at its offset, and nothing twice.
func (l *ackedLoad) check(seeds ...string) {
	l.t.Helper()
	close(l.stop)
	select {
	case <-l.done:
	case <-time.After(40 * time.Second):
		l.t.Fatal("the producer does not come to its end")
	}
	for i, err := range l.failed {
		if i < 5 {
			l.t.Errorf("produce: %v", err)
		}
	}
	cl := goClient(l.t, kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(l.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	got, times := map[string]string{}, map[string]int{}
	for missing := len(l.at); missing > 0 && ctx.Err() == nil; {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			at := fmt.Sprintf("%d/%d", r.Partition, r.Offset)
			if _, had := got[at]; !had {
				got[at] = string(r.Value)
				times[string(r.Value)]++
				if _, want := l.at[at]; want {
					missing--
				}
			}
		})
	}
	wrong := 0
	for at, value := range l.at {
		if got[at] != value {
			if wrong++; wrong < 5 {
				l.t.Errorf("acknowledged %s at %s, and there is %q", value, at, got[at])
			}
		}
	}
	for value, n := range times {
		if n > 1 {
			l.t.Errorf("%s is there %d times", value, n)
		}
	}
	l.t.Logf("%d acknowledged, %d wrong", len(l.at), wrong)
}

// stateOf is a partition's state in the tree.
func stateOf(t *testing.T, tree registry.Tree, topic string, partition int32) compat.StateNode {
	t.Helper()
	data, _, err := tree.Get(compat.PathState(topic, partition), nil)
	if err != nil {
		return compat.StateNode{Leader: -1}
	}
	n, err := compat.DecodeState(data)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// allInSync waits until all partitions of a topic have as many replicas in sync.
func allInSync(t *testing.T, tree registry.Tree, topic string, partitions int32, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s has %d replicas in sync", topic, n), 40*time.Second, func() bool {
		for p := range partitions {
			if s := stateOf(t, tree, topic, p); len(s.ISR) != n || s.Leader < 0 {
				return false
			}
		}
		return true
	})
}

func controllerOf(t *testing.T, tree registry.Tree) int32 {
	t.Helper()
	data, _, err := tree.Get(compat.PathController, nil)
	if err != nil {
		return -1
	}
	n, err := compat.DecodeController(data)
	if err != nil {
		t.Fatal(err)
	}
	return n.BrokerID
}

// TestZooKeeperThreeBrokers: three processes on a real ZooKeeper lose nothing that was acknowledged
// through kill -9 of a leader and of the controller, a SIGSTOP that is longer than the session, a rolling
// restart, and a ZooKeeper that goes and comes back.
func TestZooKeeperThreeBrokers(t *testing.T) {
	z := startZooKeeper(t)
	var brokers []*Broker
	var seeds []string
	for id := range 3 {
		b := StartWith(t, Options{Settings: onZooKeeper(z, fmt.Sprintf("broker.id=%d", id+1), "offsets.topic.replication.factor=3", "replica.lag.time.max.ms=3000")})
		brokers, seeds = append(brokers, b), append(seeds, b.Addr())
	}
	tree := z.tree("/kafka")
	adm := kadm.NewClient(goClient(t, kgo.SeedBrokers(seeds...)))
	two := "2"
	if _, err := adm.CreateTopic(t.Context(), 6, 3, map[string]*string{"min.insync.replicas": &two}, "kept"); err != nil {
		t.Fatal(err)
	}
	l := startLoad(t, "kept", seeds...)
	l.goesOn(500)
	l.pause()

	const session = 2 * time.Second // of onZooKeeper; a client's own timeouts come to it where a broker stands still
	fault := func(name string, id int32, most time.Duration, do func(b *Broker), undo func(b *Broker)) {
		t.Helper()
		b := brokers[id-1]
		do(b)
		l.goesOn(500)
		if d := l.pause(); d > most {
			t.Errorf("%s of broker %d: %v without an acknowledgement", name, id, d)
		} else {
			t.Logf("%s of broker %d: %v without an acknowledgement", name, id, d.Round(time.Millisecond))
		}
		undo(b)
		allInSync(t, tree, "kept", 6, 3)
		l.goesOn(200)
		l.pause()
	}
	fault("kill -9 of a leader", stateOf(t, tree, "kept", 0).Leader, session+5*time.Second, (*Broker).Kill, (*Broker).Start)
	fault("kill -9 of the controller", controllerOf(t, tree), session+5*time.Second, (*Broker).Kill, (*Broker).Start)
	fault("SIGSTOP of a leader", stateOf(t, tree, "kept", 1).Leader, session+10*time.Second, func(b *Broker) {
		b.cmd.Process.Signal(syscall.SIGSTOP)
		id := brokerID(t, tree, b.Addr())
		eventually(t, "its session has ended", 20*time.Second, func() bool { return znode(t, tree, compat.PathBroker(id)) == "absent" })
	}, func(b *Broker) { b.cmd.Process.Signal(syscall.SIGCONT) })
	for id := range int32(3) {
		fault("controlled shutdown", id+1, 2*time.Second, func(b *Broker) { b.Stop() }, (*Broker).Start)
	}
	for _, b := range brokers {
		b.Kill()
	}
	for _, b := range brokers { // each waits for the end of its former session
		b.Start()
	}
	allInSync(t, tree, "kept", 6, 3)
	l.goesOn(500)
	z.kill()
	l.goesOn(500) // all replicas are in sync, and nothing has to change
	z.start()
	eventually(t, "there is a controller", 40*time.Second, func() bool { return controllerOf(t, tree) > 0 })
	allInSync(t, tree, "kept", 6, 3)
	l.goesOn(500)
	l.check(seeds...)
	for _, b := range brokers {
		if strings.Contains(b.Log(), "panic") {
			t.Errorf("a broker has panicked:\n%s", b.Log())
		}
	}
}

// brokerID is whose registration has an address.
func brokerID(t *testing.T, tree registry.Tree, addr string) int32 {
	t.Helper()
	ids, _, err := tree.Children(compat.PathBrokerIDs, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if strings.Contains(znode(t, tree, compat.PathBrokerIDs+"/"+id), "//"+addr) {
			n, _ := strconv.Atoi(id)
			return int32(n)
		}
	}
	t.Fatalf("no broker at %s", addr)
	return -1
}
