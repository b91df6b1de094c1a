//go:build linux

package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestFullDisk fills a real disk under a broker: what finds no room is answered KAFKA_STORAGE_ERROR
// and is not in the log; everybody reads on; and as soon as there is room everything goes on without a
// restart: producers, groups, transactions, partitions that were made meanwhile.
func TestFullDisk(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			disk := smallDisk(t, kind, "24")
			f := &fullDisk{T: t, dir: disk, acked: map[string]int64{}}
			f.b = ours(t, Options{Dir: filepath.Join(disk, "data"), Settings: []string{
				"log.segment.delete.delay.ms=0", "offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=3",
				"log.retention.check.interval.ms=1000", "group.initial.rebalance.delay.ms=0", "offsets.commit.timeout.ms=1000",
			}})
			f.run()
		})
	}
}

type fullDisk struct {
	*testing.T
	b     *Broker
	dir   string
	cl    *kgo.Client
	acked map[string]int64 // the values that were acknowledged, and their offsets in topic t
	sent  int
}

func (f *fullDisk) run() {
	ballast := filepath.Join(f.dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 6<<20), 0o644); err != nil {
		f.Fatal(err)
	}
	var err error
	f.cl, err = kgo.NewClient(kgo.SeedBrokers(f.b.Addr()), kgo.RecordDeliveryTimeout(time.Second), kgo.RetryTimeout(2*time.Second), kgo.ProducerLinger(0),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))
	if err != nil {
		f.Fatal(err)
	}
	defer f.cl.Close()
	adm := kadm.NewClient(f.cl)
	ctx, stop := context.WithTimeout(f.Context(), time.Minute)
	defer stop()
	for _, topic := range []string{"t", "spare"} {
		if _, err := adm.CreateTopic(ctx, 1, 1, nil, topic); err != nil {
			f.Fatal(err)
		}
	}
	spare := make([]byte, 500<<10)
	for range 8 {
		rand.Read(spare)
		if err := f.cl.ProduceSync(ctx, &kgo.Record{Topic: "spare", Value: spare}).FirstErr(); err != nil {
			f.Fatal(err)
		}
	}
	if err := errors.Join(f.commit(ctx, 1), f.transaction(ctx, "before")); err != nil {
		f.Fatal(err)
	}

	f.fill(ctx)
	for range 3 {
		f.full(ctx, adm)
		f.read(ctx)
	}
	made, _ := adm.CreateTopic(ctx, 1, 1, nil, "late")
	if made.Err != nil && !errors.Is(made.Err, kerr.KafkaStorageError) {
		f.Errorf("a topic made on a full disk: %v", made.Err)
	}
	if err := os.Remove(ballast); err != nil {
		f.Fatal(err)
	}
	f.goesOn(ctx, adm, 2, made.Err == nil)

	f.fill(ctx)
	f.full(ctx, adm)
	if d, err := adm.DeleteTopic(ctx, "spare"); err != nil || d.Err != nil { // room by the broker's own means
		f.Errorf("a topic deleted on a full disk: %v, %v", err, d.Err)
	}
	f.goesOn(ctx, adm, 3, true)

	lines := 0
	for line := range strings.Lines(f.b.Log()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			lines++
		}
	}
	if lines > 20 {
		f.Errorf("%d warnings and errors:\n%s", lines, tail(f.b.Log(), 60))
	}
	f.Logf("%d records, %d acknowledged, %d warnings and errors", f.sent, len(f.acked), lines)
	f.b.Restart()
	f.read(ctx)
}

// fill produces until there is no room for a small record.
func (f *fullDisk) fill(ctx context.Context) {
	f.Helper()
	for _, size := range []int{400 << 10, 2 << 10} {
		for f.produce(ctx, size) == nil {
			if ctx.Err() != nil {
				f.Fatal("the disk does not get full")
			}
		}
	}
}

// produce sends one record, and notes it if it is acknowledged.
func (f *fullDisk) produce(ctx context.Context, size int) error {
	random := make([]byte, size/2)
	rand.Read(random)
	f.sent++
	value := fmt.Sprintf("%d %x", f.sent, random)
	r := &kgo.Record{Topic: "t", Value: []byte(value)}
	err := f.cl.ProduceSync(ctx, r).FirstErr()
	if err == nil {
		f.acked[value] = r.Offset
	}
	return err
}

// full compares what a broker without room answers.
func (f *fullDisk) full(ctx context.Context, adm *kadm.Client) {
	f.Helper()
	w := dialWire(f, f.b.Addr())
	for range 5 {
		if got := w.produce("t", newBatch(nil, sample{value: make([]byte, 300<<10), at: time.Now().UnixMilli()})); got.ErrorCode != kerr.KafkaStorageError.Code || got.BaseOffset != -1 {
			f.Errorf("produce is answered %+v", got)
		}
	}
	if topics, err := adm.ListTopics(ctx, "t"); err != nil || topics["t"].Partitions[0].Leader < 0 {
		f.Errorf("metadata: %v, %v", topics, err)
	}
	dirs, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		f.Error(err)
	}
	dirs.Each(func(d kadm.DescribedLogDir) {
		if d.Err != nil {
			f.Errorf("the directory is offline: %v", d.Err)
		}
	})
}

// read reads topic t from its start: what was acknowledged is there once, in its place.
func (f *fullDisk) read(ctx context.Context) {
	f.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.b.Addr()), kgo.ConsumeTopics("t"), kgo.KeepControlRecords())
	if err != nil {
		f.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, "t")
	if err != nil {
		f.Fatal(err)
	}
	found, next := 0, int64(0)
	for end := ends["t"][0].Offset; next < end; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			f.Fatalf("at %d of %d: %v", next, end, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if at, ok := f.acked[string(r.Value)]; ok {
				found++
				if at != r.Offset {
					f.Errorf("acknowledged at %d, found at %d", at, r.Offset)
				}
			}
		})
	}
	if found != len(f.acked) {
		f.Errorf("%d of %d acknowledged records are there", found, len(f.acked))
	}
}

// goesOn wants everything to work now that there is room, soon and without a restart.
func (f *fullDisk) goesOn(ctx context.Context, adm *kadm.Client, commit int64, late bool) {
	f.Helper()
	ctx, stop := context.WithTimeout(ctx, 15*time.Second)
	defer stop()
	within := func(what string, do func() error) {
		f.Helper()
		err := do()
		for ; err != nil && ctx.Err() == nil; err = do() {
			f.Log(what, err) // a client tries again until its own time is up
		}
		if err != nil {
			f.Fatalf("%s: %v\n%s", what, err, tail(f.b.Log(), 40))
		}
	}
	within("produce", func() error { return f.produce(ctx, 100<<10) })
	within("commit", func() error { return f.commit(ctx, commit) })
	within("transaction", func() error { return f.transaction(ctx, fmt.Sprint("after ", commit)) })
	if late {
		within("late", func() error {
			return f.cl.ProduceSync(ctx, &kgo.Record{Topic: "late", Value: []byte("x")}).FirstErr()
		})
	}
	f.read(ctx)
}

func (f *fullDisk) commit(ctx context.Context, at int64) error {
	adm := kadm.NewClient(f.cl)
	for _, group := range []string{"a", "b", "c", "d"} { // on several partitions
		o := kadm.Offsets{}
		o.AddOffset("t", 0, at, -1)
		r, err := adm.CommitOffsets(ctx, group, o)
		if err == nil {
			err = r.Error()
		}
		if err != nil {
			return err
		}
		got, err := adm.FetchOffsets(ctx, group)
		if o, _ := got.Lookup("t", 0); err != nil || o.At != at {
			return fmt.Errorf("group %s: offset %d, %w", group, o.At, err)
		}
	}
	return nil
}

// transaction commits one transaction and aborts another.
func (f *fullDisk) transaction(ctx context.Context, value string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.b.Addr()), kgo.TransactionalID("x"), kgo.RetryTimeout(5*time.Second), kgo.RecordDeliveryTimeout(5*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(value)}).FirstErr(); err != nil {
			return err
		}
		if err := cl.EndTransaction(ctx, end); err != nil {
			return err
		}
	}
	return nil
}
