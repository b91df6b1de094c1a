package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"ottla/protocol/record"
)

// inTxn keeps a value in a producer's transaction.
func inTxn(producer int64, value string) Step[*counter] {
	return func(m *counter, now Instant, to *Ticket) Effects {
		out := put(value)(m, now, to)
		out.Producer = &Producer{ID: producer, Epoch: 3}
		return out
	}
}

// endOf writes a marker.
func endOf(producer int64, commit bool) Step[*counter] {
	return func(m *counter, _ Instant, to *Ticket) Effects {
		return Effects{
			Producer: &Producer{ID: producer, Epoch: 4, End: &record.EndMarker{Commit: commit, CoordinatorEpoch: 9}},
			Answers:  []Answer{{To: to, Value: "ended"}},
			Then: func(c Commit) (none Effects) {
				if c.Err == nil {
					m.kept = append(m.kept, fmt.Sprint("at ", c.Offsets[0]))
				}
				return none
			},
		}
	}
}

func TestRecordsOfTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		r := newRuntime(s)
		defer r.Close()
		r.Led(0, 1)
		synctest.Wait()
		s.hold = make(chan error)
		first := ask(t, r, Parks, put("before"))
		synctest.Wait()
		var rest []<-chan result
		for _, step := range []Step[*counter]{put("a"), inTxn(7, "b"), inTxn(8, "c"), put("d"), put("e"), endOf(7, true)} {
			rest = append(rest, ask(t, r, Parks, step))
			synctest.Wait()
		}
		close(s.hold)
		<-first
		for _, c := range rest {
			if got := <-c; got.err != nil {
				t.Fatal(got.err)
			}
		}
		var got []string
		for _, b := range s.logs[0] {
			got = append(got, fmt.Sprint(b.ProducerID(), " ", b.ProducerEpoch(), " ", b.BaseSequence(), " ", b.IsTransactional(), " ", b.IsControl(), " ", b.Count()))
		}
		want := []string{"-1 -1 -1 false false 1", "-1 -1 -1 false false 1", "7 3 -1 true false 1", "8 3 -1 true false 1", "-1 -1 -1 false false 2", "7 4 -1 true true 1"}
		eq(t, "batches", fmt.Sprint(got), fmt.Sprint(want))
		eq(t, "kept", r.must(t, 0, kept), any("[before a b c d e at 6]"))
		r.Lost(0)
		r.Led(0, 2)
		synctest.Wait()
		eq(t, "read back", r.must(t, 0, kept), any("[before a b c d e 7 true]"))
	})
}

// A batch of a transaction that the log refuses concerns its own step alone.
func TestRefusedTransactionLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fenced := errors.New("fenced")
		s := newMemory()
		r := newRuntime(&refusing{memory: s, producer: 7, err: fenced})
		defer r.Close()
		r.Led(0, 1)
		synctest.Wait()
		s.hold = make(chan error)
		first := ask(t, r, Parks, put("before"))
		synctest.Wait()
		var answers []<-chan result
		for _, step := range []Step[*counter]{put("a"), inTxn(7, "b"), inTxn(8, "c"), endOf(7, false), put("d")} {
			answers = append(answers, ask(t, r, Parks, step))
			synctest.Wait()
		}
		close(s.hold)
		<-first
		for i, c := range answers {
			got := <-c
			if refused := i == 1 || i == 3; refused != errors.Is(got.err, fenced) || !refused && got.err != nil {
				t.Errorf("step %d: %v", i, got.err)
			}
		}
		eq(t, "kept", r.must(t, 0, kept), any("[before a c d]"))
	})
}

// refusing refuses the batches of one producer.
type refusing struct {
	*memory
	producer int64
	err      error
}

func (s *refusing) Append(ctx context.Context, shard, epoch int32, data []byte) (int64, func(context.Context) error, error) {
	if record.Batch(data).ProducerID() == s.producer {
		return 0, nil, s.err
	}
	return s.memory.Append(ctx, shard, epoch, data)
}

// What is to be done outside is handed out once its records are committed, and never without.
func TestOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		r := newRuntime(s)
		defer r.Close()
		var mu sync.Mutex
		var got []string
		var last context.Context
		r.o.Outside = func(ctx context.Context, shard, epoch int32, what any) {
			mu.Lock()
			defer mu.Unlock()
			got, last = append(got, fmt.Sprint(shard, epoch, what)), ctx
		}
		r.Led(3, 5)
		synctest.Wait()
		outside := func(what string) Step[*counter] {
			return func(m *counter, now Instant, to *Ticket) Effects {
				out := put("v")(m, now, to)
				out.Outside = []any{what}
				return out
			}
		}
		s.hold = make(chan error)
		done := ask3(t, r, outside("a"))
		synctest.Wait()
		eq(t, "before the commit", len(got), 0)
		close(s.hold)
		<-done
		synctest.Wait()
		s.hold, s.refuse = nil, errors.New("no")
		<-ask3(t, r, outside("b"))
		s.refuse = nil
		<-ask3(t, r, func(_ *counter, _ Instant, to *Ticket) Effects {
			return Effects{Answers: []Answer{{To: to}}, Outside: []any{"c"}}
		})
		synctest.Wait()
		eq(t, "handed out", fmt.Sprint(got), "[3 5a 3 5c]")
		eq(t, "led", last.Err(), nil)
		r.Lost(3)
		eq(t, "lost", last.Err(), context.Canceled)
	})
}

// What a load hands out may report back at once: by then the shard has loaded.
func TestOutsideOfALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime(newMemory())
		defer r.Close()
		var loading []int
		r.o.Outside = func(context.Context, int32, int32, any) { loading = append(loading, r.Census().Loading) }
		r.Led(3, 5)
		synctest.Wait()
		<-ask3(t, r, put("unfinished"))
		r.Lost(3)
		r.Led(3, 6)
		synctest.Wait()
		eq(t, "shards that load meanwhile", fmt.Sprint(loading), "[0]")
	})
}

func ask3(t *testing.T, r *Runtime[*counter], step Step[*counter]) <-chan result {
	out := make(chan result, 1)
	go func() {
		v, err := r.Do(t.Context(), 3, Parks, step)
		out <- result{v, err}
	}()
	return out
}
