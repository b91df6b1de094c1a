package txn

import (
	"errors"
	"math"
	"testing"
	"time"

	"ottla/coordinator"
)

func TestLifeOfATransaction(t *testing.T) {
	for _, version := range []int16{0, 2} {
		w := newWorld(t)
		p := w.init("id")
		want(t, "producer", p, Producer{1000, 0})
		for i, commit := range []bool{true, false, true} {
			want(t, "add", w.add("id", p, version, t1), nil)
			want(t, "add more", w.add("id", p, version, t0, t1), nil)
			records := len(w.log)
			want(t, "add again", w.add("id", p, version, t0), nil)
			want(t, "records of it", len(w.log), records)
			is, err := w.end("id", p, version, commit)
			want(t, "end", err, nil)
			want(t, "state", w.state("id"), decision(commit))
			want(t, "busy", w.add("id", is, version, t0), ErrConcurrent)
			_, err = w.tryInit(InitRequest{ID: "id"})
			want(t, "init while ending", err, ErrConcurrent)
			want(t, "endings", len(w.endings), 1)
			want(t, "markers' epoch", w.endings[0].Epoch, is.Epoch)
			want(t, "commit", w.endings[0].Commit, commit)
			want(t, "partitions", len(w.endings[0].Partitions), 2)
			w.markers()
			want(t, "state", w.state("id"), decision(commit)+2)
			if version == 2 {
				p.Epoch++
			}
			want(t, "producer after the end", is, p)
			want(t, "partitions", len(w.describe("id").Partitions), 0)
			if i == 1 {
				w.restart()
			}
		}
		want(t, "idle", w.m.Idle(), false)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	p := w.init("id")
	_, err := w.tryInit(InitRequest{ID: ""})
	want(t, "init without an id", err, ErrInvalidID)
	for _, ms := range []int32{-1, 15*60*1000 + 1, math.MinInt32} {
		_, err = w.tryInit(InitRequest{ID: "id", Timeout: ms})
		want(t, "timeout", err, ErrInvalidTimeout)
	}
	want(t, "add without an id", w.add("", p, 0, t0), ErrInvalidID)
	want(t, "add to an unknown id", w.add("x", p, 0, t0), ErrProducerID)
	want(t, "add by another producer", w.add("id", Producer{7, 0}, 0, t0), ErrProducerID)
	want(t, "add by an older epoch", w.add("id", Producer{p.ID, p.Epoch - 1}, 0, t0), ErrFenced)
	want(t, "add by an epoch to come", w.add("id", Producer{p.ID, p.Epoch + 1}, 0, t0), ErrFenced)
	for _, version := range []int16{0, 2} {
		for what, x := range map[string]struct {
			id   string
			p    Producer
			want error
		}{
			"no id":        {"", p, ErrInvalidID},
			"unknown":      {"x", p, ErrProducerID},
			"foreign":      {"id", Producer{7, 0}, ErrProducerID},
			"older":        {"id", Producer{p.ID, p.Epoch - 1}, ErrFenced},
			"newer":        {"id", Producer{p.ID, p.Epoch + 1}, ErrFenced},
			"nothing open": {"id", p, ErrInvalidState},
		} {
			_, err := w.end(x.id, x.p, version, true)
			want(t, what, err, x.want)
		}
	}
	_, err = w.end("id", p, 0, false)
	want(t, "abort of nothing", err, ErrInvalidState)
	want(t, "records", len(w.log), 1)
	_, err = w.verify("x", p, t0)
	want(t, "verify of an unknown id", err, ErrProducerID)
	_, err = w.verify("id", Producer{p.ID, 5}, t0)
	want(t, "verify of another epoch", err, ErrFenced)
	errs, err := w.verify("id", p, t0)
	want(t, "verify", err, nil)
	want(t, "verify before the add", errs[0], ErrNotInTxn)
}

// An EndTxn whose answer was lost is sent again, with the epoch of before it.
func TestRepeatedEnd(t *testing.T) {
	for _, version := range []int16{0, 2} {
		for _, commit := range []bool{true, false} {
			w := newWorld(t)
			p := w.init("id")
			w.add("id", p, version, t0)
			is, err := w.end("id", p, version, commit)
			want(t, "end", err, nil)
			_, err = w.end("id", p, version, commit)
			want(t, "again, before the markers", err, ErrConcurrent)
			_, err = w.end("id", p, version, !commit)
			want(t, "the other way, before the markers", err, ErrConcurrent)
			w.markers()
			again, err := w.end("id", p, version, commit)
			want(t, "again", err, nil)
			want(t, "producer", again, is)
			_, err = w.end("id", p, version, !commit)
			want(t, "the other way", err, ErrInvalidState)
		}
	}
}

// With transaction.version 2 a client can't know whether its partitions were added, and may
// abort anyway.
func TestAbortOfNothing(t *testing.T) {
	w := newWorld(t)
	p := w.init("id")
	for range 3 {
		is, err := w.end("id", p, 2, false)
		want(t, "abort", err, nil)
		want(t, "epoch", is, Producer{p.ID, p.Epoch + 1})
		want(t, "state", w.state("id"), CompleteAbort)
		want(t, "endings", len(w.endings), 0)
		p = is
	}
	w.failing = coordinator.ErrNotAvailable
	_, err := w.end("id", p, 2, false)
	want(t, "abort that can't be written", err, coordinator.ErrNotAvailable)
	want(t, "state", w.state("id"), CompleteAbort)
	w.failing = nil
	_, err = w.end("id", p, 2, false)
	want(t, "abort", err, nil)
}

func TestEpochsThatAreUsedUp(t *testing.T) {
	used := func(w *world, epoch int16) {
		w.init("id")
		e := w.m.ids["id"]
		is := e.meta
		is.epoch = epoch
		w.log = append(w.log, coordinator.Logged{Record: idRecord("id", is, 2)})
		w.restart()
	}
	t.Run("init", func(t *testing.T) {
		w := newWorld(t)
		used(w, math.MaxInt16-2)
		want(t, "last epoch for a client", w.init("id"), Producer{1000, math.MaxInt16 - 1})
		want(t, "a new id", w.init("id"), Producer{1001, 0})
		_, err := w.tryInit(InitRequest{ID: "id", Expected: &Producer{1000, math.MaxInt16 - 1}})
		want(t, "of the one before", err, ErrFenced)
	})
	t.Run("lost answer", func(t *testing.T) {
		w := newWorld(t)
		used(w, math.MaxInt16-1)
		x := &Producer{1000, math.MaxInt16 - 1}
		is, err := w.tryInit(InitRequest{ID: "id", Expected: x})
		want(t, "init", err, nil)
		want(t, "a new id", is, Producer{1001, 0})
		is, err = w.tryInit(InitRequest{ID: "id", Expected: x})
		want(t, "again", err, nil)
		want(t, "the same", is, Producer{1001, 0})
	})
	t.Run("fenced", func(t *testing.T) {
		w := newWorld(t)
		used(w, math.MaxInt16-1)
		p := Producer{1000, math.MaxInt16 - 1}
		want(t, "add", w.add("id", p, 0, t0), nil)
		w.advance(time.Minute)
		want(t, "state", w.state("id"), PrepareAbort)
		want(t, "the epoch to fence with", w.endings[0].Epoch, math.MaxInt16)
		w.markers()
		want(t, "no use for it", w.add("id", Producer{1000, math.MaxInt16}, 0, t0), ErrFenced)
		_, err := w.end("id", Producer{1000, math.MaxInt16}, 2, false)
		want(t, "nor here", err, ErrFenced)
		want(t, "a new id", w.init("id"), Producer{1001, 0})
	})
	t.Run("end", func(t *testing.T) {
		w := newWorld(t)
		used(w, math.MaxInt16-1)
		p := Producer{1000, math.MaxInt16 - 1}
		want(t, "add", w.add("id", p, 2, t0), nil)
		is, err := w.end("id", p, 2, true)
		want(t, "end", err, nil)
		want(t, "goes on as", is, Producer{1001, 0})
		want(t, "markers", Producer{w.endings[0].Producer, w.endings[0].Epoch}, Producer{1000, math.MaxInt16})
		_, err = w.end("id", p, 2, true)
		want(t, "again, before the markers", err, ErrConcurrent)
		want(t, "the next, before the markers", w.add("id", is, 2, t0), ErrConcurrent)
		w.restart()
		w.markers()
		is, err = w.end("id", p, 2, true)
		want(t, "again", err, nil)
		want(t, "goes on as", is, Producer{1001, 0})
		_, err = w.end("id", p, 2, false)
		want(t, "the other way", err, ErrInvalidState)
		want(t, "the next", w.add("id", is, 2, t0), nil)
	})
}

// KIP-360: a producer that had an error goes on with a new epoch, and one that was replaced must
// not take the id back.
func TestInitOfAKnownProducer(t *testing.T) {
	w := newWorld(t)
	p := w.init("id")
	init := func(x Producer) (Producer, error) { return w.tryInit(InitRequest{ID: "id", Expected: &x}) }
	next, err := init(p)
	want(t, "goes on", err, nil)
	want(t, "with the next epoch", next, Producer{p.ID, p.Epoch + 1})
	again, err := init(p)
	want(t, "its answer was lost", err, nil)
	want(t, "the same epoch", again, next)
	other := w.init("id")
	_, err = init(next)
	want(t, "it was replaced", err, ErrFenced)
	_, err = init(Producer{99, 0})
	want(t, "a foreign one", err, ErrFenced)
	w.add("id", other, 0, t0)
	_, err = init(next)
	want(t, "it does not end the other's transaction", err, ErrFenced)
	want(t, "state", w.state("id"), Ongoing)
	_, err = init(other)
	want(t, "its own it does", err, ErrConcurrent)
	want(t, "state", w.state("id"), PrepareAbort)
}

func TestTimeout(t *testing.T) {
	for _, level := range []int16{0, 1, 2} {
		w := newWorld(t)
		w.o.Version = level
		p, err := w.tryInit(InitRequest{ID: "id", Timeout: 2000})
		want(t, "init", err, nil)
		w.add("id", p, 0, t0)
		w.advance(time.Second)
		w.now.Wall -= time.Hour.Milliseconds() // the clock is set back
		w.add("id", p, 0, t1)
		w.advance(999 * time.Millisecond)
		want(t, "state", w.state("id"), Ongoing)
		w.failing = coordinator.ErrNotAvailable
		w.advance(time.Millisecond)
		want(t, "state", w.state("id"), Ongoing)
		w.failing = nil
		w.advance(abortRetry)
		want(t, "state", w.state("id"), PrepareAbort)
		want(t, "partitions", len(w.endings[0].Partitions), 2)
		want(t, "epoch of the markers", w.endings[0].Epoch, p.Epoch+1)
		w.markers()
		want(t, "add", w.add("id", p, 0, t0), ErrFenced)
		_, err = w.end("id", p, 0, true)
		want(t, "end", err, ErrFenced)
		_, err = w.end("id", p, 2, true)
		if level < 2 {
			want(t, "commit", err, ErrFenced)
			continue
		}
		want(t, "commit, taken for a repeat", err, ErrInvalidState)
		is, err := w.end("id", p, 2, false)
		want(t, "abort, taken for a repeat", err, nil)
		want(t, "epoch", is.Epoch, p.Epoch+1)
		want(t, "the next one", w.add("id", is, 2, t0), nil)
	}
}

// What is left of the time counts after a restart, whatever the clock has done meanwhile.
func TestTimeoutOverARestart(t *testing.T) {
	for what, x := range map[string]struct{ step, left time.Duration }{
		"no step":          {0, 40 * time.Second},
		"forward, a bit":   {10 * time.Second, 30 * time.Second},
		"forward, a day":   {24 * time.Hour, 0},
		"back by a minute": {-time.Minute, time.Minute},
	} {
		w := newWorld(t)
		p := w.init("id")
		w.add("id", p, 2, t0)
		w.advance(20 * time.Second)
		w.now.Wall += x.step.Milliseconds()
		w.now.Mono = 0 // a new process
		w.restart()
		w.advance(max(x.left-time.Millisecond, 0))
		if x.left > 0 {
			want(t, what, w.state("id"), Ongoing)
		}
		w.advance(time.Millisecond)
		want(t, what, w.state("id"), PrepareAbort)
	}
}

// Decided is decided: after a restart the markers are given out again.
func TestRestartWhilePrepared(t *testing.T) {
	for _, version := range []int16{0, 2} {
		w := newWorld(t)
		p := w.init("id")
		w.add("id", p, version, t0, t1)
		is, _ := w.end("id", p, version, true)
		first := w.endings[0]
		w.restart()
		want(t, "endings", len(w.endings), 1)
		want(t, "epoch", w.endings[0].Epoch, first.Epoch)
		w.markers()
		want(t, "state", w.state("id"), CompleteCommit)
		w.take(w.m.Completed(w.now, first, &coordinator.Ticket{})) // the writer of before the restart
		want(t, "the next", w.add("id", is, version, t0), nil)
		to := &coordinator.Ticket{}
		w.take(w.m.Completed(w.now, first, to))
		want(t, "a late report does not end it", w.state("id"), Ongoing)
	}
}

// An id changes by one record at a time.
func TestPending(t *testing.T) {
	w := newWorld(t)
	p := w.init("id")
	w.hold = true
	first := &coordinator.Ticket{}
	w.take(w.m.Add(w.now, AddRequest{ID: "id", Producer: p.ID, Epoch: p.Epoch, Partitions: []Partition{t0}}, first))
	want(t, "add", w.add("id", p, 0, t1), ErrConcurrent)
	_, err := w.end("id", p, 0, true)
	want(t, "end", err, ErrConcurrent)
	_, err = w.end("id", p, 2, true)
	want(t, "end", err, ErrConcurrent)
	_, err = w.tryInit(InitRequest{ID: "id"})
	want(t, "init", err, ErrConcurrent)
	want(t, "nothing is seen of it", w.state("id"), Empty)
	errs, err := w.verify("id", p, t0)
	want(t, "verify", err, nil)
	want(t, "verify", errs[0], ErrNotInTxn)
	w.commit()
	_, err = answer[any](w, first)
	want(t, "then", err, nil)

	fresh := &coordinator.Ticket{}
	w.take(w.m.Init(w.now, InitRequest{ID: "new", Timeout: 1, NewProducerID: 5}, fresh))
	_, err = w.tryInit(InitRequest{ID: "new"})
	want(t, "init of an id that is being made", err, ErrConcurrent)
	to := &coordinator.Ticket{}
	w.take(w.m.Describe("new", to))
	_, err = answer[Described](w, to)
	want(t, "describe", err, ErrNotFound)
	w.commit()

	w.hold, w.failing = false, coordinator.ErrNotAvailable
	_, err = w.tryInit(InitRequest{ID: "never"})
	want(t, "init that can't be written", err, coordinator.ErrNotAvailable)
	want(t, "ids", len(w.m.ids), 2)
}

// Partitions to be added wait a little for the transaction before.
func TestPatience(t *testing.T) {
	w := newWorld(t)
	p := w.init("id")
	w.add("id", p, 2, t0)
	p, _ = w.end("id", p, 2, true)
	ask := func(parts ...Partition) *coordinator.Ticket {
		to := &coordinator.Ticket{}
		w.take(w.m.Add(w.now, AddRequest{ID: "id", Producer: p.ID, Epoch: p.Epoch, Partitions: parts, Version: 2, Patience: 100 * time.Millisecond}, to))
		return to
	}
	waits := func(to *coordinator.Ticket) bool { _, ok := w.answers[to]; return !ok }
	a, b, c := ask(t0), ask(t1), ask(t0)
	want(t, "waits", waits(a) && waits(b) && waits(c), true)
	w.advance(50 * time.Millisecond)
	w.hold = true
	w.markers()
	w.hold = false
	w.commit()
	for _, to := range []*coordinator.Ticket{a, b, c} {
		_, err := answer[any](w, to)
		want(t, "then", err, nil)
	}
	want(t, "partitions", len(w.describe("id").Partitions), 2)

	p, _ = w.end("id", p, 2, true)
	d := ask(t0)
	w.advance(99 * time.Millisecond)
	want(t, "waits", waits(d), true)
	w.advance(time.Millisecond)
	_, err := answer[any](w, d)
	want(t, "in the end", err, ErrConcurrent)
	e := ask(t0)
	w.release(w.m.Stop(), nil)
	_, err = answer[any](w, e)
	want(t, "when the shard is lost", err, coordinator.ErrNotCoordinator)
}

func TestExpiry(t *testing.T) {
	w := newWorld(t)
	w.o.Expiration = time.Hour
	for _, id := range []string{"empty", "open", "ending", "done", "fresh"} {
		p, err := w.tryInit(InitRequest{ID: id, Timeout: 15 * 60 * 1000})
		want(t, "init", err, nil)
		if id == "open" || id == "ending" || id == "done" {
			w.add(id, p, 2, t0)
		}
		if id == "ending" || id == "done" {
			w.end(id, p, 2, true)
		}
		if id == "ending" {
			w.endings = nil
		}
	}
	w.markers()
	w.now.Wall += time.Hour.Milliseconds() - 1
	w.init("fresh")
	w.now.Wall++
	w.failing = errors.New("no")
	w.take(w.m.Sweep(w.now))
	want(t, "ids", len(w.m.ids), 5)
	w.failing = nil
	w.take(w.m.Sweep(w.now))
	for _, id := range []string{"open", "ending", "fresh"} {
		want(t, id+" is kept", w.m.ids[id] != nil, true)
	}
	want(t, "ids", len(w.m.ids), 3)
	w.restart()
	want(t, "ids after a restart", len(w.m.ids), 3)
}

func TestFilters(t *testing.T) {
	for _, name := range stateNames {
		s, known := stateOf(name)
		want(t, name, known, true)
		want(t, name, s.String(), name)
	}
	for _, name := range []string{"Dead", "PrepareEpochFence"} {
		s, known := stateOf(name)
		want(t, name, known, true)
		want(t, name, s, -1)
	}
	_, known := stateOf("ongoing")
	want(t, "names are as they are written", known, false)
	want(t, "out of range", State(9).String(), "Unknown")
	_, _, err := Filter{Pattern: "["}.compile()
	want(t, "pattern", err, ErrInvalidPattern)
}
