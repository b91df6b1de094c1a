package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var devPitfalls = []pitfall{{"dev-1", keptVolume}, {"dev-2", defaultSettings}, {"dev-3", stopSignal}, {"dev-4", startsAndStops}}

func keptVolume(p *pit) {
	p.part("another host name", func(p *pit) {
		b := p.process()
		w := dialWire(p, b.Addr())
		topic, id := p.topic(w, 2, "retention.ms", "7654321")
		group := p.name()
		w.stored(topic, newBatch(nil, values("x")...))
		equal(p, "error of OffsetCommit", w.commitAlone(8, group, topic, 1), 0)
		_, cluster := w.describeCluster()
		b.Kill()
		b.opts.Settings = append(b.opts.Settings, "advertised.listeners=PLAINTEXT://another.test:29092")
		b.Start()
		w = dialWire(p, b.Addr())
		host, again := w.describeCluster()
		equal(p, "cluster id", again, cluster)
		equal(p, "address", host, "another.test:29092")
		m := w.metadata(topic).Topics[0]
		equal(p, "partitions", len(m.Partitions), 2)
		equal(p, "topic id", m.TopicID, id)
		equal(p, "leader", m.Partitions[0].Leader, w.metadata().Brokers[0].NodeID)
		equal(p, "retention.ms", w.topicConfig(topic, "retention.ms"), "7654321")
		equal(p, "log end", w.end(topic), 1)
		equal(p, "committed offset", w.committed(group, topic, 0), 1)
		equal(p, "offset of the next record", w.produce(topic, newBatch(nil, values("y")...)).BaseOffset, 1)
	})
	p.part("foreign registry", func(p *pit) { // what a fresh ZooKeeper is to brokers that keep theirs there
		b, foreign := p.process(), p.process()
		topic, _ := p.topic(dialWire(p, b.Addr()), 1)
		dialWire(p, b.Addr()).stored(topic, newBatch(nil, values("x")...))
		_, cluster := dialWire(p, b.Addr()).describeCluster()
		_, other := dialWire(p, foreign.Addr()).describeCluster()
		b.Stop()
		foreign.Stop()
		const registry = "ottla.registry"
		own, err := os.ReadFile(filepath.Join(b.Dir(), registry))
		if err != nil {
			p.Fatal(err)
		}
		theirs, err := os.ReadFile(filepath.Join(foreign.Dir(), registry))
		if err != nil {
			p.Fatal(err)
		}
		put := func(content []byte) {
			p.Helper()
			if err := os.WriteFile(filepath.Join(b.Dir(), registry), content, 0o600); err != nil {
				p.Fatal(err)
			}
		}
		put(theirs)
		before := filesUnder(p, b.Dir())
		_, stderr, status := Run(p, "--data-dir", b.Dir(), "--listen", "127.0.0.1:0", "--http", "")
		if status == 0 || !strings.Contains(stderr, cluster) || !strings.Contains(stderr, other) {
			p.Errorf("status %d, want an error that names both clusters, %s and %s:\n%s", status, cluster, other, stderr)
		}
		after := filesUnder(p, b.Dir())
		delete(before, filepath.Join(b.Dir(), registry)) // opening it may write to it
		for path, content := range before {
			if after[path] != content {
				p.Errorf("%s was changed", path)
			}
		}
		put(own)
		b.Start()
		equal(p, "log end with its own registry again", dialWire(p, b.Addr()).end(topic), 1)
	})
}

// defaultSettings: nothing is configured but where to listen and where to keep data.
func defaultSettings(p *pit) {
	ctx, stop := context.WithTimeout(p.Context(), 2*patience)
	p.Cleanup(stop)
	b := StartWith(p, Options{})
	topic, _ := p.topic(dialWire(p, b.Addr()), 1)
	open := func(opts ...kgo.Opt) *kgo.Client {
		p.Helper()
		cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Addr()), kgo.DefaultProduceTopic(topic)}, opts...)...)
		if err != nil {
			p.Fatal(err)
		}
		p.Cleanup(cl.Close)
		return cl
	}
	if err := open().ProduceSync(ctx, kgo.StringRecord("a")).FirstErr(); err != nil {
		p.Fatal(err)
	}
	group := open(kgo.ConsumerGroup(p.name()), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableAutoCommit())
	var got string
	read := func(want string) {
		p.Helper()
		for got != want {
			fs := group.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				p.Fatalf("have %q, want %q: %v", got, want, err)
			}
			fs.EachRecord(func(r *kgo.Record) { got += string(r.Value) })
		}
		if err := group.CommitUncommittedOffsets(ctx); err != nil {
			p.Fatal(err)
		}
	}
	read("a")
	p.needsTransactions()
	txn := open(kgo.TransactionalID(p.name()))
	for i, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort, kgo.TryAbort, kgo.TryCommit} {
		if err := txn.BeginTransaction(); err != nil {
			p.Fatal(err)
		}
		if err := txn.ProduceSync(ctx, kgo.StringRecord(string("bcdefg"[i]))).FirstErr(); err != nil {
			p.Fatalf("transaction %d: %v", i, err)
		}
		if err := txn.EndTransaction(ctx, how); err != nil {
			p.Fatalf("end of transaction %d: %v", i, err)
		}
	}
	read("abdg")
}

// stopSignal: clients that wait in Fetch, JoinGroup and SyncGroup do not hold up the end.
func stopSignal(p *pit) {
	b := p.process()
	w := dialWire(p, b.Addr())
	topic, _ := p.topic(w, 1)
	w.stored(topic, newBatch(nil, values("v")...))
	fetch := fetchOf(topic, [16]byte{}, 0)
	fetch.Topics[0].Partitions[0].FetchOffset, fetch.MaxWaitMillis = 1, 60000
	w.send(fetch, 11)
	joining, syncing := p.name(), p.name()
	a, c := p.memberAt(b.Addr(), joining), p.memberAt(b.Addr(), joining)
	settle(a)
	c.ready()
	c.sendJoin()
	a.wait(joining, "PreparingRebalance", 2)
	d, e := p.memberAt(b.Addr(), syncing), p.memberAt(b.Addr(), syncing)
	settle(d, e)
	rejoin(d)
	e.sendJoin()
	equal(p, "error of the leader's join", d.joined().ErrorCode, 0)
	equal(p, "error of the follower's join", e.joined().ErrorCode, 0)
	e.sendSync()
	e.quiet(20 * time.Millisecond)
	w.quiet(20 * time.Millisecond)

	if took := b.Stop(); took > 2*time.Second {
		p.Errorf("the broker took %v to end, want about a second", took)
	}
	if _, err := os.Stat(filepath.Join(b.Dir(), ".kafka_cleanshutdown")); err != nil {
		p.Errorf("the next start needs a recovery: %v", err)
	}
	b.Start()
	if strings.Contains(strings.ToLower(b.Log()), "recover") {
		p.Errorf("the next start recovered something:\n%s", b.Log())
	}
	equal(p, "log end", dialWire(p, b.Addr()).end(topic), 1)
}

// startsAndStops is what tests do that embed a broker: one fixed port, a new directory each time.
func startsAndStops(p *pit) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	parent := p.TempDir()
	for i := range 20 {
		dir := filepath.Join(parent, fmt.Sprint(i))
		b := embed(p, dir, nil, append([]string{"listeners=PLAINTEXT://" + addr}, quick...)...)
		w := dialWire(p, addr)
		topic, _ := p.topic(w, 3)
		w.stored(topic, newBatch(nil, values("v")...))
		equal(p, "error of OffsetCommit", w.commitAlone(8, p.name(), topic, 1), 0)
		fetch := fetchOf(topic, [16]byte{}, 0)
		fetch.Topics[0].Partitions[0].FetchOffset, fetch.MaxWaitMillis = 1, 60000
		w.send(fetch, 11) // is open when the broker stops
		if err := b.stop(); err != nil {
			p.Fatalf("round %d: %v", i, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			p.Fatalf("round %d: %v", i, err)
		}
	}
	left, err := os.ReadDir(parent)
	if err != nil || len(left) > 0 {
		p.Errorf("written after a stop: %v, %v", left, err)
	}
}
