package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// kgoVersions are clients of before transaction.version 2, and of today.
var kgoVersions = map[string]*kversion.Versions{"kafka 3.8": kversion.V3_8_0(), "newest": nil}

func kgoOptions(addr string, v *kversion.Versions, more ...kgo.Opt) []kgo.Opt {
	opts := append([]kgo.Opt{kgo.SeedBrokers(addr)}, more...)
	if v != nil {
		opts = append(opts, kgo.MaxVersions(v))
	}
	return opts
}

func kgoDial(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// consumeAll reads a topic from its start until n records have come, and a moment longer.
func consumeAll(ctx context.Context, t *testing.T, addr, topic string, n int, isolation kgo.IsolationLevel) (out []string) {
	t.Helper()
	cl := kgoDial(t, kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(isolation), kgo.FetchMaxWait(100*time.Millisecond))
	for {
		limit, cancel := ctx, context.CancelFunc(func() {})
		if len(out) >= n {
			limit, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
		}
		fs := cl.PollFetches(limit)
		late := limit.Err() != nil
		cancel()
		fs.EachRecord(func(r *kgo.Record) { out = append(out, string(r.Value)) })
		if late {
			if ctx.Err() != nil {
				t.Fatalf("%d of %d records: %v", len(out), n, ctx.Err())
			}
			slices.Sort(out)
			return out
		}
	}
}

// TestFranzGoTransactions: what is committed is seen, what is aborted is not, and whoever takes a
// transactional id over fences the one before.
func TestFranzGoTransactions(t *testing.T) {
	t.Parallel()
	b := Start(t)
	for name, v := range kgoVersions {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			topic, id := "txn-"+fmt.Sprint(v != nil), "id-"+fmt.Sprint(v != nil)
			adm := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(b.Addr())))
			if _, err := adm.CreateTopic(ctx, 3, 1, nil, topic); err != nil {
				t.Fatal(err)
			}
			cl := kgoDial(t, kgoOptions(b.Addr(), v, kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))...)
			var want []string
			for i := range 20 {
				if err := cl.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				commit := kgo.TransactionEndTry(i%3 != 1)
				for j := range 5 {
					value := fmt.Sprintf("%02d/%d", i, j)
					cl.Produce(ctx, kgo.StringRecord(value), func(_ *kgo.Record, err error) {
						if err != nil {
							t.Errorf("produce %s: %v", value, err)
						}
					})
					if bool(commit) {
						want = append(want, value)
					}
				}
				if err := cl.Flush(ctx); err != nil {
					t.Fatal(err)
				}
				if err := cl.EndTransaction(ctx, commit); err != nil {
					t.Fatalf("transaction %d: %v", i, err)
				}
			}
			slices.Sort(want)
			if got := consumeAll(ctx, t, b.Addr(), topic, len(want), kgo.ReadCommitted()); !slices.Equal(got, want) {
				t.Errorf("committed records: %v, want %v", got, want)
			}
			if got := consumeAll(ctx, t, b.Addr(), topic, 100, kgo.ReadUncommitted()); len(got) != 100 {
				t.Errorf("%d records in all", len(got))
			}

			// Another client takes the id over in the middle of a transaction.
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := cl.ProduceSync(ctx, kgo.StringRecord("fenced")).FirstErr(); err != nil {
				t.Fatal(err)
			}
			other := kgoDial(t, kgoOptions(b.Addr(), v, kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))...)
			if err := other.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := other.ProduceSync(ctx, kgo.StringRecord("other")).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := cl.EndTransaction(ctx, kgo.TryCommit); !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
				t.Errorf("end of the fenced one: %v", err)
			}
			if err := other.EndTransaction(ctx, kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
			want = append(want, "other")
			slices.Sort(want)
			if got := consumeAll(ctx, t, b.Addr(), topic, len(want), kgo.ReadCommitted()); !slices.Equal(got, want) {
				t.Errorf("committed records: %v, want %v", got, want)
			}
			d, err := adm.DescribeTransactions(ctx, id)
			if err != nil || d[id].Err != nil || d[id].TxnID != id || d[id].TimeoutMillis == 0 {
				t.Errorf("describe: %+v, %v", d[id], err)
			}
			l, err := adm.ListTransactions(ctx, nil, nil)
			if err != nil || l[id].TxnID != id {
				t.Errorf("list: %+v, %v", l, err)
			}
		})
	}
}

// TestFranzGoExactlyOnce copies a topic in transactions that take the offsets with them, while the
// broker is killed again and again: each record comes out once.
func TestFranzGoExactlyOnce(t *testing.T) {
	t.Parallel()
	b := Start(t, "group.initial.rebalance.delay.ms=0", "transaction.state.log.num.partitions=5", "offsets.topic.num.partitions=5")
	if b.External() {
		t.Skip("a broker that is already there is not killed")
	}
	for name, v := range kgoVersions {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			const total = 3000
			suffix := fmt.Sprint(v != nil)
			in, out := "in-"+suffix, "out-"+suffix
			adm := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(b.Addr())))
			if _, err := adm.CreateTopics(ctx, 2, 1, nil, in, out); err != nil {
				t.Fatal(err)
			}
			source := kgoDial(t, kgo.SeedBrokers(b.Addr()), kgo.DefaultProduceTopic(in))
			want := make([]string, total)
			for i := range total {
				want[i] = fmt.Sprintf("%05d", i)
				source.Produce(ctx, kgo.StringRecord(want[i]), nil)
			}
			if err := source.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			stop, stopped := context.WithCancel(ctx)
			var wg sync.WaitGroup
			batches := make(chan int, total)
			for i := range 2 {
				wg.Go(func() {
					copyInTransactions(stop, t, b.Addr(), v, in, out, fmt.Sprint("copy-", suffix, "-", i), batches)
				})
			}
			killed, copied := 0, 0
			for copied < total {
				select {
				case n := <-batches:
					copied += n
					if copied > (killed+1)*total/5 && killed < 4 {
						b.Kill()
						b.Start()
						killed++
					}
				case <-ctx.Done():
					t.Fatalf("%d of %d copied: %v", copied, total, ctx.Err())
				}
			}
			if got := consumeAll(ctx, t, b.Addr(), out, total, kgo.ReadCommitted()); !slices.Equal(got, want) {
				t.Errorf("%d records, want %d: %s", len(got), total, firstDifference(got, want))
			}
			stopped()
			wg.Wait()
			if killed != 4 {
				t.Errorf("killed %d times", killed)
			}
		})
	}
}

// copyInTransactions is one copier, which begins anew when it can't go on.
func copyInTransactions(ctx context.Context, t *testing.T, addr string, v *kversion.Versions, in, out, id string, batches chan<- int) {
	for ctx.Err() == nil {
		s, err := kgo.NewGroupTransactSession(kgoOptions(addr, v, kgo.TransactionalID(id), kgo.ConsumeTopics(in), kgo.ConsumerGroup("g"+in),
			kgo.DefaultProduceTopic(out), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond),
			kgo.TransactionTimeout(10*time.Second), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(300*time.Millisecond), kgo.RecordDeliveryTimeout(10*time.Second))...)
		if err != nil {
			t.Error(err)
			return
		}
		for ctx.Err() == nil {
			fs := s.PollRecords(ctx, 50)
			if fs.NumRecords() == 0 {
				continue
			}
			if err = s.Begin(); err != nil {
				break
			}
			n, sent := 0, kgo.AbortingFirstErrPromise(s.Client())
			fs.EachRecord(func(r *kgo.Record) {
				n++
				s.Produce(ctx, &kgo.Record{Value: r.Value}, sent.Promise())
			})
			var committed bool
			if committed, err = s.End(ctx, sent.Err() == nil); committed {
				batches <- n
			}
			if err != nil {
				break
			}
		}
		if err != nil && ctx.Err() == nil {
			t.Logf("%s begins anew: %v", id, err)
		}
		s.Close()
	}
}

func firstDifference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("at %d: %q, want %q", i, got[i], want[i])
		}
	}
	return "one is the beginning of the other"
}
