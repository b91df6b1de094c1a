package txn

import (
	"errors"
	"testing"
	"time"

	"ottla/coordinator"
)

// world drives one machine the way the runtime does, on a clock of its own, with a log that
// outlives the machine.
type world struct {
	testing.TB
	o       *Options
	m       *Machine
	now     coordinator.Instant
	log     []coordinator.Logged
	answers map[*coordinator.Ticket]coordinator.Answer
	failing error    // what appends answer
	held    []func() // commits that are held back, if hold
	hold    bool
	endings []Ending // given out and not reported
	ids     int64    // producer ids given out
	// crash is asked at every append whether the broker dies there, and whether the record is in
	// the log before it does.
	crash func() (dies, kept bool)
}

// died is what a crash panics with.
type died struct{}

const startOfTime = 1_700_000_000_000

func newWorld(t testing.TB) *world {
	w := &world{TB: t, o: Defaults(), now: coordinator.Instant{Wall: startOfTime}, answers: map[*coordinator.Ticket]coordinator.Answer{}, ids: 1000}
	w.restart()
	return w
}

// restart reads the log into a new machine, as a broker does that was killed: who waits for an
// answer gets none, and what was to be done outside is forgotten.
func (w *world) restart() {
	w.m = NewMachine(func() *Options { return w.o }, nil)
	w.held, w.endings = nil, nil
	for _, r := range w.log {
		w.m.Replay(r)
	}
	w.take(w.m.Start(w.now))
}

// take gives effects what the runtime gives them.
func (w *world) take(e coordinator.Effects) {
	w.Helper()
	if len(e.Records) == 0 {
		w.release(e.Answers, nil)
		w.outside(e.Outside)
		return
	}
	c := coordinator.Commit{Err: w.failing}
	dies, kept := false, true
	if w.crash != nil {
		dies, kept = w.crash()
	}
	if c.Err == nil && kept {
		for _, r := range e.Records {
			at := int64(len(w.log))
			w.log = append(w.log, coordinator.Logged{Record: r, Offset: at, Time: w.now.Wall, Producer: -1})
			c.Offsets = append(c.Offsets, at)
		}
	}
	if dies {
		panic(died{})
	}
	commit := func() {
		c.Now = w.now
		if e.Then != nil {
			w.take(e.Then(c))
		}
		w.release(e.Answers, c.Err)
		if c.Err == nil {
			w.outside(e.Outside)
		}
	}
	if w.hold {
		w.held = append(w.held, commit)
		return
	}
	commit()
}

// commit lets go what was held back.
func (w *world) commit() {
	for len(w.held) > 0 {
		f := w.held[0]
		w.held = w.held[1:]
		f()
	}
}

func (w *world) outside(all []any) {
	for _, what := range all {
		w.endings = append(w.endings, what.(Ending))
	}
}

func (w *world) release(answers []coordinator.Answer, err error) {
	w.Helper()
	for _, a := range answers {
		if _, twice := w.answers[a.To]; twice {
			w.Fatalf("a request is answered twice: %+v, then %+v", w.answers[a.To], a)
		}
		if err != nil {
			a.Value, a.Err = nil, err
		}
		w.answers[a.To] = a
	}
}

// advance lets time pass, with everything that is due in it.
func (w *world) advance(d time.Duration) {
	w.Helper()
	end := w.now.Mono + d
	for w.m.Wake() <= end {
		w.to(max(w.m.Wake(), w.now.Mono))
		w.take(w.m.Tick(w.now))
	}
	w.to(end)
}

func (w *world) to(mono time.Duration) {
	w.now.Wall += (mono - w.now.Mono).Milliseconds()
	w.now.Mono = mono
}

// markers reports every ending as written.
func (w *world) markers() {
	w.Helper()
	for len(w.endings) > 0 {
		e := w.endings[0]
		w.endings = w.endings[1:]
		to := &coordinator.Ticket{}
		w.take(w.m.Completed(w.now, e, to))
	}
}

func answer[T any](w *world, to *coordinator.Ticket) (v T, err error) {
	w.Helper()
	a, ok := w.answers[to]
	if !ok {
		w.Fatal("a request is not answered")
	}
	v, _ = a.Value.(T)
	return v, a.Err
}

func (w *world) tryInit(r InitRequest) (Producer, error) {
	w.Helper()
	if r.Timeout == 0 {
		r.Timeout = 60000
	}
	r.NewProducerID = -1
	to := &coordinator.Ticket{}
	w.take(w.m.Init(w.now, r, to))
	p, err := answer[Producer](w, to)
	if errors.Is(err, errNeedsProducerID) {
		r.NewProducerID = w.ids
		w.ids++
		to = &coordinator.Ticket{}
		w.take(w.m.Init(w.now, r, to))
		p, err = answer[Producer](w, to)
	}
	return p, err
}

// init initialises a transactional id and finishes what was open.
func (w *world) init(id string) Producer {
	w.Helper()
	p, err := w.tryInit(InitRequest{ID: id})
	if errors.Is(err, ErrConcurrent) {
		w.markers()
		p, err = w.tryInit(InitRequest{ID: id})
	}
	want(w, "init", err, nil)
	return p
}

func (w *world) add(id string, p Producer, version int16, parts ...Partition) error {
	w.Helper()
	to := &coordinator.Ticket{}
	w.take(w.m.Add(w.now, AddRequest{ID: id, Producer: p.ID, Epoch: p.Epoch, Partitions: parts, Version: version}, to))
	_, err := answer[any](w, to)
	return err
}

func (w *world) verify(id string, p Producer, parts ...Partition) ([]error, error) {
	w.Helper()
	to := &coordinator.Ticket{}
	w.take(w.m.Verify(AddRequest{ID: id, Producer: p.ID, Epoch: p.Epoch, Partitions: parts}, to))
	return answer[[]error](w, to)
}

func (w *world) end(id string, p Producer, version int16, commit bool) (Producer, error) {
	w.Helper()
	r := EndRequest{ID: id, Producer: p.ID, Epoch: p.Epoch, Commit: commit, Version: version, NewProducerID: -1}
	to := &coordinator.Ticket{}
	w.take(w.m.End(w.now, r, to))
	is, err := answer[Producer](w, to)
	if errors.Is(err, errNeedsProducerID) {
		r.NewProducerID = w.ids
		w.ids++
		to = &coordinator.Ticket{}
		w.take(w.m.End(w.now, r, to))
		is, err = answer[Producer](w, to)
	}
	return is, err
}

func (w *world) describe(id string) Described {
	w.Helper()
	to := &coordinator.Ticket{}
	w.take(w.m.Describe(id, to))
	d, err := answer[Described](w, to)
	want(w, "describe", err, nil)
	return d
}

func (w *world) state(id string) State { w.Helper(); return w.describe(id).State }

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if err, is := any(want).(error); is {
		if g, _ := any(got).(error); errors.Is(g, err) {
			return
		}
	}
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

var (
	t0 = Partition{"t", 0}
	t1 = Partition{"t", 1}
)
