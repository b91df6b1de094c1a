package replica

import (
	"sync"
	"time"
)

// Waiting is a fetch that waits without a goroutine. Whoever appends what it waits for reads it
// and hands it over, as Kafka's purgatory does, so that a record on its way to a consumer that
// waits wakes nobody on this broker.
type Waiting struct {
	m       *Manager
	f       Fetch
	reads   []Read
	have    int // bytes that they had when they were read or looked at
	changed wait
	all     []watch
	done    func()

	mu    sync.Mutex
	timer *time.Timer // guarded by mu
	state waitState   // guarded by mu
	again bool        // guarded by mu: something changed while it was looked at
	ended bool        // guarded by mu: its time was over while it was looked at
}

type waitState int8

const (
	waits  waitState = iota
	looked           // somebody looks at what changed
	over
)

// Begin reads as Fetch does, but does not wait: if that is needed it returns what waits, and the
// reads are filled in when it is done; else nil.
func (m *Manager) Begin(f Fetch, reads []Read) *Waiting {
	have, enough := m.first(&f, reads)
	if enough {
		return nil
	}
	return &Waiting{m: m, f: f, reads: reads, have: have, all: make([]watch, len(reads))}
}

// Start begins the waiting. done is called once, by whoever ends it, holding nothing; that may
// be before Start returns.
func (w *Waiting) Start(done func()) {
	w.done = done
	w.mu.Lock()
	w.state = looked // until it stands in every list
	w.timer = time.AfterFunc(w.f.MaxWait, w.Stop)
	w.mu.Unlock()
	for i := range w.all {
		e := &w.all[i]
		*e = watch{w: w, p: w.reads[i].p, i: int32(i)}
		e.join()
		w.changed.mark(e) // what happened between the read and now is looked at once
	}
	w.mu.Lock()
	w.lookLocked()
}

// Stop ends the waiting with what there is.
func (w *Waiting) Stop() {
	w.mu.Lock()
	switch w.state {
	case waits:
		w.state = over
		w.mu.Unlock()
		w.finish()
		return
	case looked:
		w.ended = true
	}
	w.mu.Unlock()
}

// look looks at what changed, and ends the waiting if that is enough.
func (w *Waiting) look() {
	w.mu.Lock()
	if w.state != waits {
		w.again = true
		w.mu.Unlock()
		return
	}
	w.state = looked
	w.lookLocked()
}

// lookLocked is look for whoever has set the state; it unlocks mu.
func (w *Waiting) lookLocked() {
	var dirty []int32
	for {
		w.again = false
		w.mu.Unlock()
		enough := false
		dirty = w.changed.take(dirty, w.all)
		for _, i := range dirty { // all of them: what has grown is read again
			enough = w.m.grown(&w.f, &w.reads[i], &w.have) || enough
		}
		w.mu.Lock()
		if enough || w.ended {
			w.state = over
			w.mu.Unlock()
			w.finish()
			return
		}
		if !w.again {
			w.state = waits
			w.mu.Unlock()
			return
		}
	}
}

// finish reads what there is now and hands it over.
func (w *Waiting) finish() {
	w.mu.Lock()
	w.timer.Stop()
	w.mu.Unlock()
	for i := range w.all {
		w.all[i].leave()
	}
	w.m.readAll(&w.f, w.reads, false)
	w.done()
}

// Wakes are waiting fetches for which something was appended. Who appended runs them when its
// own answer is on its way.
type Wakes struct {
	list []*Waiting
}

func (k *Wakes) add(w *Waiting) {
	for _, had := range k.list {
		if had == w {
			return
		}
	}
	k.list = append(k.list, w)
}

// Any says whether there is anything to run.
func (k *Wakes) Any() bool { return len(k.list) > 0 }

// Run has the fetches look at what was appended.
func (k *Wakes) Run() {
	for _, w := range k.list {
		w.look()
	}
	clear(k.list)
	k.list = k.list[:0]
}
