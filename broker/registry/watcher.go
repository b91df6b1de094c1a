package registry

import "sync"

// EventKind is what happened.
type EventKind int8

const (
	NodeCreated EventKind = iota
	NodeDeleted
	NodeChanged
	ChildrenChanged
	Disconnected // the session may go on; nothing is known meanwhile
	Connected
	Expired // the session's ephemeral nodes are gone
	Lost    // the root has failed or was closed
)

func (k EventKind) String() string {
	return [...]string{"created", "deleted", "changed", "children changed", "disconnected", "connected", "expired", "lost"}[k]
}

// Event is one firing of a watch, or a change of the session (then without a path).
type Event struct {
	Kind EventKind
	Path string
	Zxid int64 // of the change; 0 where the root does not tell
}

// Watcher collects the events of the watches that were set with it and of its session. It is a
// queue without a goroutine: its owner waits on Wake and takes. Its length is bounded by the
// number of watches.
type Watcher struct {
	mu     sync.Mutex
	events []Event // guarded by mu
	wake   chan struct{}
}

// NewWatcher is an empty one.
func NewWatcher() *Watcher { return &Watcher{wake: make(chan struct{}, 1)} }

// Wake has a token whenever there may be something to take.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Take gives all events so far, in order, and forgets them.
func (w *Watcher) Take() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

// addState takes a coming and going of the connection in place of the one before it, if that was
// not taken yet: a connection that comes and goes does not make the queue longer.
func (w *Watcher) addState(e Event) {
	w.mu.Lock()
	if n := len(w.events); n > 0 && (e.Kind == Disconnected || e.Kind == Connected) {
		if k := w.events[n-1].Kind; k == Disconnected || k == Connected {
			w.events = w.events[:n-1]
		}
	}
	w.mu.Unlock()
	w.add(e)
}

func (w *Watcher) add(e Event) {
	w.mu.Lock()
	w.events = append(w.events, e)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
