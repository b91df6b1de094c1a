package coordinator

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"ottla/protocol/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store whose commits can be held up.
type memory struct {
	mu      sync.Mutex
	logs    map[int32][]record.Batch
	next    map[int32]int64
	refuse  error           // what Append answers
	hold    chan error      // commits wait for a value; nil: committed at once
	reading <-chan struct{} // Load waits for it
	broken  error           // what Load ends with, once
	always  error           // the same, each time
	appends int
}

func newMemory() *memory {
	return &memory{logs: map[int32][]record.Batch{}, next: map[int32]int64{}}
}

func (s *memory) Append(_ context.Context, shard, _ int32, data []byte) (int64, func(context.Context) error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return 0, nil, s.refuse
	}
	s.appends++
	b := record.Batch(data)
	base := s.next[shard]
	b.SetBaseOffset(base)
	s.next[shard] = b.NextOffset()
	s.logs[shard] = append(s.logs[shard], b)
	hold := s.hold
	if hold == nil {
		return base, nil, nil
	}
	return base, func(ctx context.Context) error {
		select {
		case err := <-hold:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil
}

func (s *memory) Load(ctx context.Context, shard, _ int32) iter.Seq2[[]byte, error] {
	s.mu.Lock()
	all, reading, broken := slices.Clone(s.logs[shard]), s.reading, s.broken
	if s.broken = nil; s.always != nil {
		broken = s.always
	}
	s.mu.Unlock()
	return func(yield func([]byte, error) bool) {
		if reading != nil {
			select {
			case <-reading:
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
		}
		for _, b := range all {
			if !yield(b, nil) {
				return
			}
		}
		if broken != nil {
			yield(nil, broken)
		}
	}
}

// counter is a machine that keeps the records' values in order and knows one deadline.
type counter struct {
	kept    []string
	parked  []*Ticket
	due     time.Duration
	ticks   int
	sweeps  int
	started int
}

func (c *counter) Replay(r Logged) { c.kept = append(c.kept, string(r.Value)) }
func (c *counter) ReplayMarker(producer int64, end bool) {
	c.kept = append(c.kept, fmt.Sprint(producer, end))
}
func (c *counter) Start(Instant) (out Effects) {
	c.started++
	if slices.Contains(c.kept, "unfinished") {
		out.Outside = []any{"finish it"}
	}
	return out
}
func (c *counter) Stop() (all []Answer) {
	for _, t := range c.parked {
		all = append(all, Answer{To: t, Err: ErrNotCoordinator})
	}
	return all
}
func (c *counter) Wake() time.Duration {
	if c.due == 0 {
		return Never
	}
	return c.due
}
func (c *counter) Tick(now Instant) (out Effects) {
	c.ticks++
	c.due = 0
	for _, t := range c.parked {
		out.Answers = append(out.Answers, Answer{To: t, Value: now.Mono})
	}
	c.parked = nil
	return out
}
func (c *counter) Sweep(Instant) Effects { c.sweeps++; return Effects{} }
func (c *counter) Idle() bool            { return len(c.kept) == 0 && len(c.parked) == 0 && c.due == 0 }

// put keeps a value once it is committed.
func put(values ...string) Step[*counter] {
	return func(m *counter, _ Instant, to *Ticket) (out Effects) {
		for _, v := range values {
			out.Records = append(out.Records, Record{Key: []byte("k"), Value: []byte(v)})
		}
		out.Then = func(c Commit) Effects {
			if c.Err == nil {
				m.kept = append(m.kept, values...)
			}
			return Effects{}
		}
		out.Answers = []Answer{{To: to, Value: "put"}}
		return out
	}
}

func kept(m *counter, _ Instant, to *Ticket) Effects {
	return Effects{Answers: []Answer{{To: to, Value: fmt.Sprint(m.kept)}}}
}

// park waits for the machine's deadline.
func park(d time.Duration) Step[*counter] {
	return func(m *counter, now Instant, to *Ticket) Effects {
		m.parked, m.due = append(m.parked, to), now.Mono+d
		return Effects{}
	}
}

func newRuntime(s Store) *Runtime[*counter] {
	return New(Options[*counter]{
		Name: "test", Store: s, New: func(int32) *counter { return &counter{} }, Now: time.Now,
		SweepEvery: func() time.Duration { return time.Hour }, CommitTimeout: func() time.Duration { return 5 * time.Second },
		MaxBatchBytes: func() int { return 1000 }, Codec: func() record.Codec { return record.None },
	})
}

func eq[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func (r *Runtime[M]) must(t *testing.T, how How, step Step[M]) any {
	t.Helper()
	v, err := r.Do(t.Context(), 0, how, step)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ask runs a step in the background.
func ask(t *testing.T, r *Runtime[*counter], how How, step Step[*counter]) <-chan result {
	out := make(chan result, 1)
	go func() {
		v, err := r.Do(t.Context(), 0, how, step)
		out <- result{v, err}
	}()
	synctest.Wait()
	return out
}

func TestWhoLeadsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		reading := make(chan struct{})
		s.reading = reading
		r := newRuntime(s)
		defer r.Close()
		_, err := r.Do(t.Context(), 0, 0, kept)
		eq(t, "not led", errors.Is(err, ErrNotCoordinator), true)
		r.Led(0, 1)
		synctest.Wait()
		_, err = r.Do(t.Context(), 0, 0, kept)
		eq(t, "loading", errors.Is(err, ErrLoading), true)
		time.Sleep(time.Minute)
		eq(t, "the watchdog sees it", len(r.Unloaded(time.Second)), 1)
		late := ask(t, r, Exclusive|AwaitsLoad, put("after the load"))
		close(reading)
		eq(t, "a step that awaits the load", (<-late).err, nil)
		eq(t, "kept", r.must(t, 0, kept), any("[after the load]"))
		eq(t, "nothing loads", len(r.Unloaded(0)), 0)
		r.Led(0, 2)
		synctest.Wait()
		eq(t, "kept by the log", r.must(t, 0, kept), any("[after the load]"))
		r.Led(0, 1)
		synctest.Wait()
		eq(t, "an older epoch is no news", r.must(t, 0, kept), any("[after the load]"))
		r.Lost(0)
		_, err = r.Do(t.Context(), 0, 0, kept)
		eq(t, "lost", errors.Is(err, ErrNotCoordinator), true)
	})
}

func TestNothingIsSeenBeforeItIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		s.hold = make(chan error)
		r := newRuntime(s)
		defer r.Close()
		r.Led(0, 1)
		synctest.Wait()
		a := ask(t, r, 0, put("a"))
		b := ask(t, r, 0, put("b"))
		c := ask(t, r, 0, put("c"))
		eq(t, "a reader meanwhile", r.must(t, 0, kept), any("[]"))
		eq(t, "batches", s.appends, 1)
		alone := ask(t, r, Exclusive, kept)
		after := ask(t, r, 0, kept)
		s.hold <- nil
		eq(t, "first answer", (<-a).value, any("put"))
		synctest.Wait()
		eq(t, "the others go together", s.appends, 2)
		select {
		case <-b:
			t.Fatal("answered before the commit")
		case <-alone:
			t.Fatal("an exclusive step ran before the commit")
		case <-after:
			t.Fatal("a step ran before the exclusive one that was there first")
		default:
		}
		s.hold <- nil
		eq(t, "second answer", (<-b).value, any("put"))
		eq(t, "third answer", (<-c).value, any("put"))
		eq(t, "exclusive step", (<-alone).value, any("[a b c]"))
		eq(t, "after it", (<-after).value, any("[a b c]"))

		x := ask(t, r, Exclusive, put("x"))
		y := ask(t, r, 0, kept)
		select {
		case <-y:
			t.Fatal("a step ran beside an exclusive one")
		default:
		}
		s.hold <- nil
		eq(t, "exclusive put", (<-x).err, nil)
		eq(t, "after it", (<-y).value, any("[a b c x]"))
	})
}

func TestAppendThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		r := newRuntime(s)
		defer r.Close()
		r.Led(0, 1)
		synctest.Wait()
		r.must(t, 0, put("a"))
		s.refuse = fmt.Errorf("too few replicas: %w", ErrNotAvailable)
		_, err := r.Do(t.Context(), 0, 0, put("b"))
		eq(t, "error", errors.Is(err, ErrNotAvailable), true)
		s.refuse = nil
		eq(t, "kept", r.must(t, 0, kept), any("[a]"))
		r.must(t, Exclusive, put("c"))
		eq(t, "kept", r.must(t, 0, kept), any("[a c]"))
	})
}

func TestCommitThatIsNotLearnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		s.hold = make(chan error)
		r := newRuntime(s)
		defer r.Close()
		r.Led(0, 1)
		synctest.Wait()
		parked := ask(t, r, Parks, park(time.Hour))
		a := ask(t, r, 0, put("a"))
		b := ask(t, r, 0, put("b"))
		s.hold <- errors.New("lost sight of it")
		eq(t, "its answer", errors.Is((<-a).err, ErrNotCoordinator), true)
		eq(t, "what was not yet appended", errors.Is((<-b).err, ErrNotCoordinator), true)
		eq(t, "who waited", errors.Is((<-parked).err, ErrNotCoordinator), true)
		synctest.Wait()
		eq(t, "the log knows", r.must(t, 0, kept), any("[a]"))
	})
}

func TestSlowCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		s.hold = make(chan error)
		r := newRuntime(s)
		defer r.Close()
		r.Led(0, 1)
		synctest.Wait()
		start := time.Now()
		_, err := r.Do(t.Context(), 0, 0, put("a"))
		eq(t, "error", errors.Is(err, ErrTimedOut), true)
		eq(t, "after", time.Since(start), 5*time.Second)
		eq(t, "not seen yet", r.must(t, 0, kept), any("[]"))
		s.hold <- nil
		synctest.Wait()
		eq(t, "seen when committed", r.must(t, 0, kept), any("[a]"))
	})
}

func TestLostWhileOthersWait(t *testing.T) {
	for _, end := range []func(*Runtime[*counter]){
		func(r *Runtime[*counter]) { r.Lost(0) },
		func(r *Runtime[*counter]) { r.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemory()
			s.hold = make(chan error)
			r := newRuntime(s)
			defer r.Close()
			r.Led(0, 1)
			synctest.Wait()
			parked := ask(t, r, Parks, park(time.Hour))
			a := ask(t, r, 0, put("a"))
			b := ask(t, r, 0, put("b"))
			x := ask(t, r, Exclusive, put("x"))
			end(r)
			for _, c := range []<-chan result{parked, a, b, x} {
				eq(t, "answer", errors.Is((<-c).err, ErrNotCoordinator), true)
			}
		})
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime(newMemory())
		defer r.Close()
		r.Led(0, 1)
		synctest.Wait()
		start := time.Now()
		v := r.must(t, Parks, park(42*time.Second))
		eq(t, "answer by the clock of the runtime", v, any(42*time.Second))
		eq(t, "it took", time.Since(start), 42*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Do(ctx, 0, Parks, park(time.Minute))
		eq(t, "the client is gone", errors.Is(err, context.DeadlineExceeded), true)
	})
}

func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime(newMemory())
		defer r.Close()
		r.Led(0, 1)
		synctest.Wait()
		r.must(t, 0, put("a"))
		time.Sleep(150 * time.Minute)
		sweeps := r.must(t, 0, func(m *counter, _ Instant, to *Ticket) Effects {
			return Effects{Answers: []Answer{{To: to, Value: m.sweeps}}}
		})
		eq(t, "sweeps in two and a half hours", sweeps, any(2))
	})
}

func TestIdleShardsHaveNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime(newMemory())
		defer r.Close()
		for id := range int32(50) {
			r.Led(id, 0)
		}
		synctest.Wait()
		running := func() (n int) {
			for _, s := range r.shards {
				if s.running {
					n++
				}
			}
			return n
		}
		eq(t, "goroutines", running(), 0)
		eq(t, "kept", r.must(t, 0, kept), any("[]"))
		synctest.Wait()
		eq(t, "goroutines after a request", running(), 0)
		r.must(t, 0, put("a"))
		synctest.Wait()
		eq(t, "goroutines of shards with something to keep", running(), 1)
		eq(t, "shards", len(r.Shards()), 50)
	})
}

func TestLoadThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		s.broken = errors.New("no disk")
		r := newRuntime(s)
		defer r.Close()
		r.Led(0, 1)
		synctest.Wait()
		_, err := r.Do(t.Context(), 0, 0, kept)
		eq(t, "meanwhile", errors.Is(err, ErrLoading), true)
		time.Sleep(2 * time.Second)
		eq(t, "then", r.must(t, 0, kept), any("[]"))
	})
}

func TestLargeStepsBecomeSeveralBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		r := newRuntime(s)
		defer r.Close()
		r.Led(0, 1)
		synctest.Wait()
		values := make([]string, 30)
		for i := range values {
			values[i] = fmt.Sprintf("%0100d", i)
		}
		r.must(t, 0, put(values...))
		if s.appends < 4 {
			t.Fatalf("%d batches", s.appends)
		}
		for _, b := range s.logs[0] {
			if len(b) > 1000 {
				t.Fatalf("a batch of %d bytes", len(b))
			}
		}
		r.Lost(0)
		r.Led(0, 2)
		synctest.Wait()
		eq(t, "read back", r.must(t, 0, kept), any(fmt.Sprint(values)))
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		s.hold = make(chan error)
		r := newRuntime(s)
		r.o.MaxQueued = 3
		defer r.Close()
		r.Led(0, 1)
		synctest.Wait()
		ask(t, r, Parks, put("a"))
		ask(t, r, Parks|Exclusive, put("b")) // taken off the queue, held up
		var refused int
		for range 5 {
			select {
			case got := <-ask(t, r, Parks, put("c")):
				if errors.Is(got.err, ErrQueueFull) {
					refused++
				}
			default:
			}
		}
		eq(t, "refused", refused, 2)
	})
}

func TestReplayOfTransactions(t *testing.T) {
	m := &counter{}
	b := record.NewBuilder(nil, record.BuilderOptions{Producer: &record.ProducerInfo{ID: 7, Transactional: true}})
	b.Add(1, []byte("k"), []byte("v"))
	data := append([]byte{}, b.Finish()...)
	data = append(data, record.EndMarker{Commit: true}.Batch(7, 0, 1)...)
	n, err := replayBatches(m, data)
	eq(t, "error", err, nil)
	eq(t, "records", n, 2)
	eq(t, "seen", fmt.Sprint(m.kept), "[v 7 true]")
	binary.BigEndian.PutUint32(data[8:], 1<<30)
	_, err = replayBatches(m, data)
	eq(t, "a batch that is cut off", err != nil, true)
}
