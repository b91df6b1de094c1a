package txn

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"ottla/coordinator"
)

// in brings a transactional id into a state by a client of a transaction.version, and returns the producer that the
// client is then.
func (w *world) in(state State, version int16) Producer {
	w.Helper()
	w.init("id")
	p := w.init("id")
	if state == Empty {
		return p
	}
	want(w, "add", w.add("id", p, version, t0, t1), nil)
	if state == Ongoing {
		return p
	}
	p, err := w.end("id", p, version, state == PrepareCommit || state == CompleteCommit)
	want(w, "end", err, nil)
	if !state.prepared() {
		w.markers()
	}
	want(w, "state", w.state("id"), state)
	return p
}

// TestEndInEveryState: what EndTxn gets in Kafka 4.4.0 (TransactionCoordinator.endTransaction and its table). While
// markers are written a client of transaction.version 2 is told to try again, whatever it asks for and whoever it is;
// an older one only if it is the producer of the id.
func TestEndInEveryState(t *testing.T) {
	const none, bump = "NONE", "NONE, epoch above"
	type outcome struct{ abort, commit string }
	conc, its, pf, mapping := ErrConcurrent.Error(), ErrInvalidState.Error(), ErrFenced.Error(), ErrProducerID.Error()
	both := func(s string) outcome { return outcome{s, s} }
	for _, x := range []struct {
		state                   State
		version                 int16
		retry, current, foreign outcome
	}{
		{Empty, 0, both(pf), both(its), both(mapping)},
		{Ongoing, 0, both(pf), both(none), both(mapping)},
		{PrepareCommit, 0, both(pf), both(conc), both(mapping)},
		{PrepareAbort, 0, both(pf), both(conc), both(mapping)},
		{CompleteCommit, 0, both(pf), outcome{its, none}, both(mapping)},
		{CompleteAbort, 0, both(pf), outcome{none, its}, both(mapping)},
		{Empty, 2, both(pf), outcome{bump, its}, both(mapping)},
		{Ongoing, 2, both(pf), both(bump), both(mapping)},
		{PrepareCommit, 2, both(conc), both(conc), both(conc)},
		{PrepareAbort, 2, both(conc), both(conc), both(conc)},
		{CompleteCommit, 2, outcome{its, none}, outcome{bump, its}, both(mapping)},
		{CompleteAbort, 2, outcome{none, its}, outcome{bump, its}, both(mapping)},
	} {
		for who, o := range map[string]outcome{"retry": x.retry, "current": x.current, "foreign": x.foreign} {
			for commit, wanted := range map[bool]string{false: o.abort, true: o.commit} {
				w := newWorld(t)
				p := w.in(x.state, x.version)
				ask := p
				switch who {
				case "retry":
					ask.Epoch--
				case "foreign":
					ask.ID = 7
				}
				records := len(w.log)
				is, err := w.end("id", ask, x.version, commit)
				got := none
				switch {
				case err != nil:
					got = err.Error()
				case is == Producer{p.ID, p.Epoch + 1}:
					got = bump
				case is != p:
					t.Errorf("%v: goes on as %v, is %v", x, is, p)
				}
				if got != wanted {
					t.Errorf("%v, transaction.version %d, %s, commit %v: %s, want %s", x.state, x.version, who, commit, got, wanted)
				}
				if err != nil && (len(w.log) != records || w.state("id") != x.state) {
					t.Errorf("%v, transaction.version %d, %s, commit %v: refused, and yet changed", x.state, x.version, who, commit)
				}
			}
		}
	}
}

// TestAbortWithTheLastEpoch: a transaction of the last epoch that a client gets runs out of time, and its client hears
// of it by its own end, or begins anew with what it has. It is never given the epoch that only fences.
func TestAbortWithTheLastEpoch(t *testing.T) {
	for what, ask := range map[string]func(w *world, p Producer) (Producer, error){
		"end": func(w *world, p Producer) (Producer, error) {
			_, err := w.end("id", p, 2, true)
			want(w, "commit", err, ErrInvalidState)
			return w.end("id", p, 2, false)
		},
		"init": func(w *world, p Producer) (Producer, error) { return w.tryInit(InitRequest{ID: "id", Expected: &p}) },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.init("id")
			is := w.m.ids["id"].meta
			is.epoch = math.MaxInt16 - 1
			w.log = append(w.log, coordinator.Logged{Record: idRecord("id", is, 2)})
			w.restart()
			p := Producer{1000, math.MaxInt16 - 1}
			want(t, "add", w.add("id", p, 2, t0), nil)
			w.advance(time.Minute)
			want(t, "epoch to fence with", w.endings[0].Epoch, math.MaxInt16)
			w.markers()
			got, err := ask(w, p)
			want(t, "error", err, nil)
			want(t, "goes on as", got, Producer{1001, 0})
			again, err := ask(w, p)
			want(t, "again", err, nil)
			want(t, "again", again, got)
			want(t, "the next transaction", w.add("id", got, 2, t0), nil)
		})
	}
}

// TestReportOfTheOneBefore: without transaction.version 2 two transactions have one epoch. A report that the first
// is written, sent a second time, does not make the second one complete.
func TestReportOfTheOneBefore(t *testing.T) {
	w := newWorld(t)
	p := w.init("id")
	var first Ending
	for range 2 {
		want(t, "add", w.add("id", p, 0, t0), nil)
		_, err := w.end("id", p, 0, true)
		want(t, "end", err, nil)
		if first.ID == "" {
			first = w.endings[0]
			w.markers()
		}
	}
	to := &coordinator.Ticket{}
	w.take(w.m.Completed(w.now, first, to))
	_, err := answer[any](w, to)
	want(t, "late report", err, nil)
	want(t, "state", w.state("id"), PrepareCommit)
	w.markers()
	want(t, "state", w.state("id"), CompleteCommit)
}

// TestForeignCoordinatorDecides: the log of a Kafka may have transactions that only another coordinator ends (KIP-939),
// told by their timeout. They wait for it.
func TestForeignCoordinatorDecides(t *testing.T) {
	w := newWorld(t)
	is := meta{producer: 5, previous: -1, next: -1, epoch: 3, last: -1, timeout: math.MaxInt32, state: Ongoing,
		partitions: []Partition{t0}, updated: startOfTime, started: startOfTime, version: 2}
	w.log = append(w.log, coordinator.Logged{Record: idRecord("id", is, 2)})
	w.restart()
	w.advance(60 * 24 * time.Hour)
	want(t, "state", w.state("id"), Ongoing)
	_, err := w.end("id", Producer{5, 3}, 2, true)
	want(t, "end", err, nil)
	w.markers()
	want(t, "state", w.state("id"), CompleteCommit)
}

// TestCrashInEveryState: the broker dies at each record of a transaction's life, before or after it is in the log, and
// before or after each of the markers. Afterwards the partitions have the whole transaction or nothing of it, as the
// client was told if it was told, and the id can be used.
func TestCrashInEveryState(t *testing.T) {
	type life struct {
		name    string
		version int16
		run     func(w *world, p Producer) (err error) // of the end
	}
	end := func(version int16, commit bool) func(w *world, p Producer) error {
		return func(w *world, p Producer) error { _, err := w.end("id", p, version, commit); return err }
	}
	lives := []life{
		{"commit, 0", 0, end(0, true)}, {"abort, 0", 0, end(0, false)}, {"commit, 2", 2, end(2, true)}, {"abort, 2", 2, end(2, false)},
		{"time is up", 2, func(w *world, _ Producer) error { w.advance(time.Minute); return errors.New("nobody was told") }},
		{"fenced", 2, func(w *world, _ Producer) error { _, err := w.tryInit(InitRequest{ID: "id"}); return err }}, // PrepareEpochFence in Kafka
	}
	for _, l := range lives {
		for at := 0; ; at++ {
			reached := false
			for _, kept := range []bool{false, true} {
				reached = crash(t, fmt.Sprintf("%s, at %d, kept %v", l.name, at, kept), l.version, at, kept, l.run)
			}
			if !reached {
				if at < 6 {
					t.Errorf("%s: only %d places to die at", l.name, at)
				}
				break
			}
		}
	}
}

// crash lives a transaction's life, dies at the at-th record or marker, and looks what is left. False: it did not die.
func crash(t *testing.T, what string, version int16, at int, kept bool, run func(*world, Producer) error) (dead bool) {
	w := newWorld(t)
	open := map[Partition]bool{t0: true, t1: true}
	ended := map[Partition]bool{}
	n := 0
	w.crash = func() (bool, bool) { n++; return n == at+1, kept || n != at+1 }
	told := errors.New("no answer")
	wroteAll := false
	deliver := func() {
		for len(w.endings) > 0 {
			e := w.endings[0]
			for _, p := range e.Partitions {
				dies, kept := false, true
				if w.crash != nil {
					dies, kept = w.crash()
				}
				if kept && open[p] {
					open[p], ended[p] = false, e.Commit
				}
				if dies {
					panic(died{})
				}
			}
			w.endings = w.endings[1:]
			w.take(w.m.Completed(w.now, e, &coordinator.Ticket{}))
		}
	}
	func() {
		defer func() {
			if r := recover(); r != nil {
				if _, is := r.(died); !is {
					panic(r)
				}
				dead = true
			}
		}()
		p, err := w.tryInit(InitRequest{ID: "id"})
		want(t, what, err, nil)
		want(t, what, w.add("id", p, version, t0), nil)
		want(t, what, w.add("id", p, version, t1), nil)
		wroteAll = true
		told = run(w, p)
		deliver()
	}()
	if !dead {
		return false
	}
	w.crash = nil
	w.now.Mono = 0
	w.restart()
	deliver()
	p, err := w.tryInit(InitRequest{ID: "id"}) // aborts what is open
	if errors.Is(err, ErrConcurrent) {
		deliver()
		p, err = w.tryInit(InitRequest{ID: "id"})
	}
	want(t, what+": init", err, nil)
	if e := w.m.ids["id"]; !e.state.quiet() || len(w.endings) > 0 {
		t.Errorf("%s: %v, %d endings", what, e.state, len(w.endings))
	}
	if wroteAll {
		if open[t0] || open[t1] || ended[t0] != ended[t1] {
			t.Errorf("%s: open %v, ended %v", what, open, ended)
		}
		if told == nil && ended[t0] != strings.HasPrefix(what, "commit") {
			t.Errorf("%s: the client was told otherwise: %v", what, ended)
		}
	}
	want(t, what+": the next", w.add("id", p, version, t0), nil)
	return true
}
