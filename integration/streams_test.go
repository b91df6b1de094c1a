//go:build clients

package integration

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// words are what lines are made of: a few often, many seldom.
func words(r *rand.Rand) []string {
	line := make([]string, 3+r.IntN(5))
	for i := range line {
		line[i] = fmt.Sprint("w", r.IntN(1+r.IntN(200)))
	}
	return line
}

// wordCount is a run of the word count of Kafka Streams.
type wordCount struct {
	t       *testing.T
	b       *Broker
	release string
	app     string
	in, out string
	truth   map[string]int64 // how often each word has been sent
	sent    int64            // all of them
	rand    *rand.Rand
	source  *kgo.Client
	seen    map[string]int64 // the last count of each word that a reader of committed records has got
	read    int64            // counts read, in all
	sink    *kgo.Client
}

func newWordCount(t *testing.T, b *Broker, release string) *wordCount {
	t.Helper()
	app := fmt.Sprintf("wordcount-%s-%d", release, time.Now().UnixNano()%1e9)
	w := &wordCount{t: t, b: b, release: release, app: app, in: app + "-lines", out: app + "-out", truth: map[string]int64{}, seen: map[string]int64{}, rand: rand.New(rand.NewPCG(1, 2))}
	adm := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(b.Addr())))
	if _, err := adm.CreateTopics(t.Context(), 3, 1, nil, w.in, w.out); err != nil {
		t.Fatal(err)
	}
	w.source = kgoDial(t, kgo.SeedBrokers(b.Addr()), kgo.DefaultProduceTopic(w.in), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	w.sink = kgoDial(t, kgo.SeedBrokers(b.Addr()), kgo.ConsumeTopics(w.out), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))
	return w
}

// instance starts one instance of the application; stop ends it well, kill by SIGKILL.
func (w *wordCount) instance() (stop, kill func()) {
	w.t.Helper()
	command := javaCommand(w.t, w.release, "WordCount")
	cmd := exec.Command(command[0], append(command[1:], w.app, w.t.TempDir(), w.in, w.out, w.b.Addr())...)
	endWithParent(cmd)
	out := &output{line: make(chan string, 1)}
	cmd.Stdout, cmd.Stderr = out, out
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("the application's output:\n%s", tail(out.String(), 60))
		}
	})
	return func() { w.end(in, exited) }, func() {
		_ = cmd.Process.Kill()
		<-exited
	}
}

// end closes the application's input and waits for it to end well.
func (w *wordCount) end(in io.Closer, exited <-chan error) {
	w.t.Helper()
	in.Close()
	select {
	case err := <-exited:
		if err != nil {
			w.t.Errorf("the application ended with %v", err)
		}
	case <-time.After(40 * time.Second):
		w.t.Error("the application does not end")
	}
}

// send sends lines, exactly once each.
func (w *wordCount) send(ctx context.Context, lines int) {
	w.t.Helper()
	for range lines {
		line := words(w.rand)
		for _, word := range line {
			w.truth[word]++
		}
		w.sent += int64(len(line))
		w.source.Produce(ctx, kgo.StringRecord(strings.Join(line, " ")), func(_ *kgo.Record, err error) {
			if err != nil {
				w.t.Errorf("a line was not taken: %v", err)
			}
		})
	}
}

// follow reads counts until there are n in all: each word's come as 1, 2, 3 and so on.
func (w *wordCount) follow(ctx context.Context, n int64) {
	w.t.Helper()
	for w.read < n {
		fs := w.sink.PollFetches(ctx)
		if ctx.Err() != nil {
			w.t.Fatalf("%d of %d counts have come: %v", w.read, n, ctx.Err())
		}
		fs.EachRecord(func(r *kgo.Record) {
			word, count := string(r.Key), int64(binary.BigEndian.Uint64(r.Value))
			if count != w.seen[word]+1 {
				w.t.Errorf("%s: %d came after %d (partition %d, offset %d)", word, count, w.seen[word], r.Partition, r.Offset)
			}
			w.seen[word] = count
			w.read++
		})
	}
}

// check compares what was counted with the truth: in the topic of counts, and in the state's own topic.
func (w *wordCount) check(ctx context.Context) {
	w.t.Helper()
	if !maps.Equal(w.seen, w.truth) {
		w.t.Errorf("counted %v, want %v", w.seen, w.truth)
	}
	changelog := w.app + "-counts-changelog"
	cl := kgoDial(w.t, kgo.SeedBrokers(w.b.Addr()), kgo.ConsumeTopics(changelog), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))
	state := map[string]int64{}
	for !maps.Equal(state, w.truth) {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			w.t.Fatalf("%s holds %v, want %v", changelog, state, w.truth)
		}
		fs.EachRecord(func(r *kgo.Record) { // a count, behind a timestamp
			state[string(r.Key)] = int64(binary.BigEndian.Uint64(r.Value[len(r.Value)-8:]))
		})
	}

	adm := kadm.NewClient(cl)
	want := map[string]map[string]string{
		changelog:                    {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
		w.app + "-words-repartition": {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800", "message.timestamp.type": "CreateTime"},
	}
	for topic, settings := range want {
		all, err := adm.DescribeTopicConfigs(ctx, topic)
		if err != nil || len(all) != 1 || all[0].Err != nil {
			w.t.Errorf("%s: %v, %v", topic, all, err)
			continue
		}
		for _, c := range all[0].Configs {
			if s, ok := settings[c.Key]; ok && (c.Value == nil || *c.Value != s) {
				w.t.Errorf("%s: %s=%v, want %s", topic, c.Key, c.MaybeValue(), s)
			}
		}
	}
	// What has been counted is purged from the repartition topic.
	eventually(w.t, "the repartition topic is purged", 20*time.Second, func() bool {
		start, err := adm.ListStartOffsets(ctx, w.app+"-words-repartition")
		purged := int64(0)
		start.Each(func(o kadm.ListedOffset) { purged += o.Offset })
		return err == nil && purged > 0
	})
}

// TestStreamsBrokerKilled: the word count of Kafka Streams by exactly_once_v2 is exact, and so is every step of it, while the
// broker is killed again and again.
func TestStreamsBrokerKilled(t *testing.T) {
	t.Parallel()
	b := Start(t, txnSettings...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w := newWordCount(t, b, "4.4.0")
	stop, _ := w.instance()
	for range 5 {
		w.send(ctx, 400)
		w.follow(ctx, w.sent-w.sent/8) // in the middle of what was sent
		b.Restart()
		w.send(ctx, 100)
	}
	w.follow(ctx, w.sent)
	w.check(ctx)
	stop()
	if n := len(committed(ctx, t, b.Addr(), w.out)); int64(n) != w.sent {
		t.Errorf("%d counts in all, want %d", n, w.sent)
	}
}

// TestStreamsInstanceKilled44 and 39: another instance, which has kept a copy of the state, takes over from one that was
// killed together with the broker: what that one had open blocks nobody for longer than its timeout.
func TestStreamsInstanceKilled44(t *testing.T) { streamsInstanceKilled(t, "4.4.0") }
func TestStreamsInstanceKilled39(t *testing.T) { streamsInstanceKilled(t, "3.9.1") }

func streamsInstanceKilled(t *testing.T, release string) {
	t.Parallel()
	b := Start(t, txnSettings...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w := newWordCount(t, b, release)
	_, kill := w.instance()
	w.send(ctx, 400)
	w.follow(ctx, w.sent/2)
	stop, _ := w.instance()
	w.send(ctx, 400)
	w.follow(ctx, w.sent)
	w.send(ctx, 1000)
	w.follow(ctx, w.read+500)
	kill()
	b.Restart()
	w.send(ctx, 400)
	w.follow(ctx, w.sent)
	w.check(ctx)
	stop()
	if n := len(committed(ctx, t, b.Addr(), w.out)); int64(n) != w.sent {
		t.Errorf("%d counts in all, want %d", n, w.sent)
	}
}
