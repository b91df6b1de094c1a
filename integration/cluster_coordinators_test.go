//go:build clients

package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// patient are the options of clients that meet brokers which come and go.
func patient(seeds []string, more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{kgo.SeedBrokers(seeds...), kgo.RequestTimeoutOverhead(3 * time.Second), kgo.ProduceRequestTimeout(5 * time.Second), kgo.UnknownTopicRetries(-1)}, more...)
}

// committer is a member of a group that commits what it has seen, and knows up to where.
type committer struct {
	done chan struct{}
	stop context.CancelFunc
	n    atomic.Int64
	mu   sync.Mutex
	at   map[int32]int64 // acknowledged commits, by partition
}

func startCommitter(t *testing.T, topic, group string, seeds []string) *committer {
	ctx, stop := context.WithCancel(context.Background())
	c := &committer{done: make(chan struct{}), stop: stop, at: map[int32]int64{}}
	cl := goClient(t, patient(seeds, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond))...)
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			fs := cl.PollFetches(ctx)
			if fs.NumRecords() == 0 {
				continue
			}
			limited, cancel := context.WithTimeout(ctx, 15*time.Second)
			err := cl.CommitRecords(limited, fs.Records()...)
			cancel()
			if err != nil {
				continue // not acknowledged; it is committed with what comes next
			}
			c.mu.Lock()
			fs.EachRecord(func(r *kgo.Record) { c.at[r.Partition] = max(c.at[r.Partition], r.Offset+1) })
			c.mu.Unlock()
			c.n.Add(1)
		}
	}()
	return c
}

// transactor runs transactions, every third of which is aborted, and knows how each ended: c, a, or u where that
// is not known.
type transactor struct {
	done chan struct{}
	stop chan struct{}
	n    atomic.Int64
	end  map[int]string
}

const perTransaction = 6

func startTransactions(t *testing.T, topic string, seeds []string) *transactor {
	x := &transactor{done: make(chan struct{}), stop: make(chan struct{}), end: map[int]string{}}
	open := func() *kgo.Client {
		return goClient(t, patient(seeds, kgo.DefaultProduceTopic(topic), kgo.TransactionalID("mover"), kgo.TransactionTimeout(20*time.Second), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...)
	}
	go func() {
		defer close(x.done)
		cl := open()
		for n := 0; ; n++ {
			select {
			case <-x.stop:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			err := cl.BeginTransaction()
			if err == nil {
				for i := range perTransaction {
					cl.Produce(ctx, kgo.StringRecord(fmt.Sprintf("%d/%d", n, i)), func(_ *kgo.Record, e error) {})
				}
				err = cl.Flush(ctx)
			}
			commit := n%3 != 2
			if err == nil {
				err = cl.EndTransaction(ctx, kgo.TransactionEndTry(commit))
			}
			cancel()
			switch {
			case err != nil: // a new life of the producer ends what is open
				cl.Close()
				cl = open()
				x.end[n] = "u"
				continue
			case commit:
				x.end[n] = "c"
			default:
				x.end[n] = "a"
			}
			x.n.Add(1)
		}
	}()
	return x
}

// TestMixedCoordinators: groups and transactions go from ottla's coordinators to Kafka's and back while they are
// used: no commit of an offset is lost, transactions are seen whole or not at all.
func TestMixedCoordinators(t *testing.T) {
	m := startMixed(t)
	tree, seeds := m.tree, m.seeds
	adm := kadm.NewClient(goClient(t, patient(seeds)...))
	two := "2"
	for _, topic := range []string{"read", "tx"} {
		eventually(t, topic+" is created", 30*time.Second, func() bool {
			_, err := adm.CreateTopic(t.Context(), 3, 3, map[string]*string{"min.insync.replicas": &two}, topic)
			return err == nil
		})
		allInSync(t, tree, topic, 3, 3)
	}
	l := startLoad(t, "read", seeds...)
	c := startCommitter(t, "read", "g", seeds)
	x := startTransactions(t, "tx", seeds)
	goOn := func(after string) {
		t.Helper()
		commits, ends := c.n.Load()+3, x.n.Load()+4
		eventually(t, "commits and transactions go on after "+after, 90*time.Second, func() bool { return c.n.Load() >= commits && x.n.Load() >= ends })
	}
	whole := func() {
		t.Helper()
		for _, topic := range []string{"read", "tx", "__consumer_offsets", "__transaction_state"} {
			allInSync(t, tree, topic, 3, 3)
		}
	}
	goOn("the start")
	whole()
	m.one.Stop()
	goOn("a stop of an ottla")
	m.one.Start()
	whole()
	_ = m.stop()
	goOn("a stop of Kafka")
	m.kafka()
	whole()
	m.three.Kill()
	goOn("a kill of an ottla")
	m.three.Start()
	whole()
	goOn("all")

	close(x.stop)
	<-x.done
	c.stop()
	<-c.done
	l.check(seeds...)
	eventually(t, "the committed offsets are told", 30*time.Second, func() bool {
		offsets, err := adm.FetchOffsets(t.Context(), "g")
		if err != nil {
			return false
		}
		for p, o := range c.at {
			if is, ok := offsets.Lookup("read", p); !ok || is.At < o {
				t.Errorf("read-%d: %d was committed, and it is %d", p, o, is.At)
			}
		}
		return true
	})
	seen := map[int]int{}
	r := goClient(t, patient(seeds, kgo.ConsumeTopics("tx"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	want, unknown := 0, 0
	for _, end := range x.end {
		if end == "c" {
			want += perTransaction
		} else if end == "u" {
			unknown++
		}
	}
	got := 0
	eventually(t, "all that was committed is read", 40*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.PollFetches(ctx).EachRecord(func(rec *kgo.Record) {
			var n, i int
			fmt.Sscanf(strings.ReplaceAll(string(rec.Value), "/", " "), "%d %d", &n, &i)
			seen[n]++
			switch x.end[n] {
			case "c":
				got++
			case "a":
				t.Errorf("record %s of a transaction that was aborted", rec.Value)
			}
		})
		return got >= want
	})
	for n, count := range seen {
		if count != perTransaction {
			t.Errorf("%d records of transaction %d, whose end is %q", count, n, x.end[n])
		}
	}
	t.Logf("%d commits, %d transactions, the end of %d is not known", c.n.Load(), len(x.end), unknown)
	checkKafkaMember(t, m.stop())
}
