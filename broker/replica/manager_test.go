package replica

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ottla/broker/metadata"
	"ottla/log"
	"ottla/log/vfs"
	"ottla/protocol/record"
)

// house is a manager of broker 1 on logs in memory.
type house struct {
	*Manager
	t       testing.TB
	logs    *log.Manager
	meta    *metadata.Holder
	options *log.Options
	minISR  atomic.Int64
	heard   []string
	fs      vfs.FS
	stopped bool
}

func (h *house) Led(topic string, n, epoch int32) {
	h.heard = append(h.heard, fmt.Sprintf("led %s-%d epoch %d", topic, n, epoch))
}
func (h *house) Lost(topic string, n int32) {
	h.heard = append(h.heard, fmt.Sprintf("lost %s-%d", topic, n))
}

func newHouse(t testing.TB) *house { return houseOn(t, vfs.NewMemory()) }

func houseOn(t testing.TB, fsys vfs.FS) *house {
	t.Helper()
	h := &house{t: t, fs: fsys, meta: metadata.NewHolder(), options: &log.Options{
		SegmentBytes: 1 << 20, SegmentMs: 1 << 40, SegmentIndexBytes: 1 << 16, IndexIntervalBytes: 4096,
		RetentionBytes: -1, RetentionMs: -1, FlushMessages: 1 << 60, FlushMs: 1 << 40, CleanupDelete: true,
		MaxMessageBytes: 1 << 20, Compression: "producer", TimestampBeforeMaxMs: 1 << 60, TimestampAfterMaxMs: 1 << 60,
	}}
	h.minISR.Store(1)
	logs, err := log.OpenManager(log.ManagerOptions{
		FS: fsys, Dirs: []string{"/data"}, BrokerID: 1, ClusterID: "test",
		TopicOptions: func(string) *log.Options { return h.options },
	})
	if err != nil {
		t.Fatal(err)
	}
	h.logs = logs
	h.Manager = New(Options{
		BrokerID: 1, Logs: logs, Meta: h.meta, Watch: []Watcher{h},
		MinISR:     func(string) int { return int(h.minISR.Load()) },
		LogOptions: func(string) *log.Options { return h.options },
		LagMax:     10 * time.Second,
	})
	t.Cleanup(h.stop)
	return h
}

func (h *house) stop() {
	if h.stopped {
		return
	}
	h.stopped = true
	h.Manager.Close()
	if err := h.logs.Close(); err != nil {
		h.t.Error(err)
	}
}

// lead makes broker 1 the leader of partitions of topic t that have replicas.
func (h *house) lead(n int32, epoch int32, isr []int32, replicas ...int32) *Partition {
	h.t.Helper()
	for k, err := range h.Apply([]State{{Topic: "t", Partition: n, Leader: 1, LeaderEpoch: epoch, ISR: isr, Replicas: replicas}}) {
		h.t.Fatalf("%v: %v", k, err)
	}
	p, err := h.Leader("t", n)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// alone makes broker 1 the only replica of a partition.
func (h *house) alone(n int32) *Partition { return h.lead(n, 0, []int32{1}, 1) }

// batch is one batch of records with the given values.
func batch(values ...string) []byte {
	b := record.NewBuilder(nil, record.BuilderOptions{})
	for _, v := range values {
		b.Add(1000, nil, []byte(v))
	}
	return b.Finish()
}

func (h *house) append(p *Partition, acks int16, values ...string) (log.Appended, func(context.Context) error) {
	h.t.Helper()
	done, wait, err := p.Append(context.Background(), log.Append{Records: batch(values...), Origin: record.Client, RequestVersion: 9}, acks)
	if err != nil {
		h.t.Fatal(err)
	}
	return done, wait
}

// consumer is a fetch that waits for a byte.
func consumer(wait time.Duration) Fetch {
	return Fetch{Replica: -1, MaxWait: wait, MinBytes: 1, MaxBytes: 1 << 20}
}

func reading(n int32, offset int64) Read {
	return Read{Topic: "t", Partition: n, Offset: offset, LogStart: -1, MaxBytes: 1 << 20, Epoch: -1, LastEpoch: -1}
}

// count is how many batches a read holds; it releases them.
func count(r *Read) int {
	if !r.Filled {
		return 0
	}
	raw := make([]byte, r.Chunk.Range.Len())
	if _, err := r.Chunk.Range.ReadAt(raw, 0); err != nil {
		panic(err)
	}
	r.release()
	n := 0
	for range record.All(raw) {
		n++
	}
	return n
}

func TestFinding(t *testing.T) {
	h := newHouse(t)
	h.meta.Store(&metadata.Picture{Topics: map[string]*metadata.Topic{"t": {Name: "t", Partitions: make([]metadata.Partition, 3)}}})
	h.alone(0)
	h.Apply([]State{{Topic: "t", Partition: 1, Leader: 2, Replicas: []int32{1, 2}, ISR: []int32{2}}})
	for _, x := range []struct {
		topic string
		n     int32
		want  error
	}{{"t", 0, nil}, {"t", 1, ErrNotLeader}, {"t", 2, ErrNotLeader}, {"t", 3, ErrUnknownPartition}, {"t", -1, ErrUnknownPartition}, {"u", 0, ErrUnknownPartition}} {
		if _, err := h.Leader(x.topic, x.n); !errors.Is(err, x.want) {
			t.Errorf("%s-%d: %v, want %v", x.topic, x.n, err, x.want)
		}
	}
	if _, err := h.Partition("t", 1); err != nil {
		t.Errorf("a followed partition: %v", err)
	}
}

func TestStatesOfThePastAreRefused(t *testing.T) {
	h := newHouse(t)
	h.lead(0, 4, []int32{1}, 1)
	state := func(epoch, version int32, id byte) error {
		return h.Apply([]State{{Topic: "t", ID: [16]byte{id}, Leader: 1, LeaderEpoch: epoch, PartitionEpoch: version, ISR: []int32{1}, Replicas: []int32{1}}})[Key{"t", 0}]
	}
	if err := state(3, 9, 0); !errors.Is(err, ErrStaleState) {
		t.Errorf("older leader epoch: %v", err)
	}
	if err := state(4, 2, 0); err != nil {
		t.Errorf("same leader epoch: %v", err)
	}
	if err := state(4, 1, 0); !errors.Is(err, ErrStaleState) {
		t.Errorf("older partition epoch: %v", err)
	}
	if _, err := h.Leader("t", 0); err != nil {
		t.Errorf("after refused states: %v", err)
	}
}

func TestWatchersHearOfLeadership(t *testing.T) {
	h := newHouse(t)
	h.alone(0)
	h.alone(0) // nothing new
	h.lead(0, 1, []int32{1}, 1)
	h.Apply([]State{{Topic: "t", Leader: 2, LeaderEpoch: 2, Replicas: []int32{1, 2}}})
	h.lead(0, 3, []int32{1}, 1)
	if err := h.Stop("t", 0, true); err != nil {
		t.Fatal(err)
	}
	want := []string{"led t-0 epoch 0", "lost t-0", "led t-0 epoch 1", "lost t-0", "led t-0 epoch 3", "lost t-0"}
	if fmt.Sprint(h.heard) != fmt.Sprint(want) {
		t.Errorf("heard %q, want %q", h.heard, want)
	}
	if h.logs.Log("t", 0) != nil {
		t.Error("the log is still there")
	}
}

func TestAppendToALoneLeader(t *testing.T) {
	h := newHouse(t)
	h.minISR.Store(2) // counts at most the replicas there are
	p := h.alone(0)
	done, wait := h.append(p, -1, "a", "b")
	if wait != nil {
		t.Error("there is nothing to wait for")
	}
	if done.First != 0 || done.Last != 1 || p.Log().HighWatermark() != 2 {
		t.Errorf("%+v, watermark %d", done, p.Log().HighWatermark())
	}
}

func TestTooFewReplicas(t *testing.T) {
	h := newHouse(t)
	h.minISR.Store(2)
	p := h.lead(0, 0, []int32{1}, 1, 2, 3)
	_, _, err := p.Append(t.Context(), log.Append{Records: batch("a"), RequestVersion: 9}, -1)
	if !errors.Is(err, ErrNotEnoughReplicas) || p.Log().End() != 0 {
		t.Errorf("acks=all: %v, end %d", err, p.Log().End())
	}
	h.append(p, 1, "a")
	if p.Log().HighWatermark() != 0 {
		t.Errorf("watermark %d moved below the minimum", p.Log().HighWatermark())
	}
}

func TestFlushMessages(t *testing.T) {
	h := newHouse(t)
	h.options.FlushMessages = 1
	p := h.alone(0)
	for _, acks := range []int16{1, -1} {
		done, wait := h.append(p, acks, "a")
		if wait == nil {
			t.Fatalf("acks %d: nothing waits for the fsync", acks)
		}
		if p.Log().Flushed() > done.First {
			t.Fatalf("acks %d: flushed before it was asked for", acks)
		}
		if err := wait(t.Context()); err != nil || p.Log().Flushed() != done.Last+1 {
			t.Fatalf("acks %d: %v, flushed up to %d", acks, err, p.Log().Flushed())
		}
	}
}

func TestCommitOfTwoReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.minISR.Store(2)
		p := h.lead(0, 0, []int32{1, 2}, 1, 2)
		wait := func(ctx context.Context) <-chan error {
			_, w := h.append(p, -1, "a")
			out := make(chan error, 1)
			go func() { out <- w(ctx) }()
			synctest.Wait()
			return out
		}
		follower := func(offset int64) {
			r := []Read{reading(0, offset)}
			if err := h.Fetch(t.Context(), Fetch{Replica: 2, MaxBytes: 1 << 20, Isolation: LogEnd}, r); err != nil || r[0].Err != nil {
				t.Fatal(err, r[0].Err)
			}
			Release(r)
		}

		first := wait(t.Context())
		follower(0)
		synctest.Wait()
		select {
		case err := <-first:
			t.Fatalf("acknowledged before the follower had it: %v", err)
		default:
		}
		follower(1)
		if err := <-first; err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := <-wait(ctx); !errors.Is(err, ErrTimedOut) {
			t.Errorf("without the follower: %v", err)
		}

		late := wait(t.Context())
		h.Apply([]State{{Topic: "t", Leader: 1, LeaderEpoch: 0, PartitionEpoch: 1, ISR: []int32{1}, Replicas: []int32{1, 2}}})
		follower(3) // the watermark stands below the minimum
		h.minISR.Store(1)
		follower(3)
		if err := <-late; err != nil {
			t.Errorf("after the minimum was lowered: %v", err)
		}

		h.Apply([]State{{Topic: "t", Leader: 1, LeaderEpoch: 0, PartitionEpoch: 2, ISR: []int32{1, 2}, Replicas: []int32{1, 2}}})
		gone := wait(t.Context())
		h.Apply([]State{{Topic: "t", Leader: 1, LeaderEpoch: 1, PartitionEpoch: 3, ISR: []int32{1}, Replicas: []int32{1}}})
		if err := <-gone; !errors.Is(err, ErrNotLeader) {
			t.Errorf("in another epoch: %v", err)
		}
		if p.Log().HighWatermark() != 4 {
			t.Errorf("watermark %d, want 4", p.Log().HighWatermark())
		}
	})
}

func TestDeleteRecords(t *testing.T) {
	h := newHouse(t)
	p := h.alone(0)
	h.append(p, 1, "a", "b", "c")
	for _, x := range []struct {
		to, low int64
		want    error
	}{{2, 2, nil}, {1, 2, nil}, {4, -1, log.ErrOffsetOutOfRange}, {-2, -1, log.ErrOffsetOutOfRange}, {-1, 3, nil}} {
		low, wait, err := p.DeleteRecords(x.to)
		if low != x.low || wait != nil || !errors.Is(err, x.want) {
			t.Errorf("to %d: %d, %v; want %d, %v", x.to, low, err, x.low, x.want)
		}
	}
	h.options.CleanupDelete = false
	if _, _, err := p.DeleteRecords(3); !errors.Is(err, ErrPolicy) {
		t.Errorf("a compacted topic: %v", err)
	}
}

func TestDirectoryFailure(t *testing.T) {
	h := newHouse(t)
	p := h.alone(0)
	dir := p.Log().Dir()
	h.DirFailed("/other")
	if _, err := h.Leader("t", 0); err != nil {
		t.Fatal(err)
	}
	h.DirFailed(dir)
	if _, err := h.Leader("t", 0); !errors.Is(err, ErrOffline) {
		t.Errorf("after the directory failed: %v", err)
	}
	if _, _, err := p.Append(t.Context(), log.Append{Records: batch("a"), RequestVersion: 9}, 1); !errors.Is(err, ErrNotLeader) {
		t.Errorf("append: %v", err)
	}
}

func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.options.SegmentBytes = 20000
		p := h.lead(0, 3, []int32{1, 2}, 1, 2)
		big := string(make([]byte, 9000))
		const n = 40
		for range n {
			h.append(p, 1, big, "b")
		}
		if _, _, err := p.AppendIn(2, log.Append{Records: batch("late")}); !errors.Is(err, ErrNotLeader) {
			t.Fatalf("append in an epoch of the past: %v", err)
		}
		got := make(chan int)
		go func() {
			next := int64(0)
			for b, err := range p.Replay(t.Context(), 3) {
				if err != nil {
					t.Error(err)
					break
				}
				if at := record.Batch(b).BaseOffset(); at != next {
					t.Errorf("batch at %d, want %d", at, next)
				}
				next = record.Batch(b).NextOffset()
			}
			got <- int(next)
		}()
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("ended before all was committed")
		default:
		}
		r := []Read{reading(0, 2*n)}
		if err := h.Fetch(t.Context(), Fetch{Replica: 2, MaxBytes: 1, Isolation: LogEnd}, r); err != nil {
			t.Fatal(err)
		}
		if next := <-got; next != 2*n {
			t.Errorf("replayed up to %d, want %d", next, 2*n)
		}
		for _, err := range p.Replay(t.Context(), 2) {
			if !errors.Is(err, ErrNotLeader) {
				t.Errorf("another epoch: %v", err)
			}
		}
	})
}
