package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Local is a root in this process, in memory or in one file. Several sessions may be open on it
// at once: the brokers of a cluster in one process.
type Local struct {
	now func() time.Time

	mu       sync.RWMutex // readers share it; writers, and reads that set watches, hold it alone
	store    store
	sessions map[int64]*localTree
	lastID   int64
	data     watches // guarded by mu: on nodes
	children watches // guarded by mu: on children
	failed   error   // guarded by mu: why nothing works any more
}

// NewMemory is a root that is gone with the process. A nil now is time.Now.
func NewMemory(now func() time.Time) *Local { return newLocal(newMemory(), now) }

// NewFile opens the embedded root, or makes it. Errors: ErrInUse when another process has it
// open, ErrStorage.
func NewFile(path string, now func() time.Time) (*Local, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return newLocal(f, now), nil
}

func newLocal(s store, now func() time.Time) *Local {
	if now == nil {
		now = time.Now
	}
	return &Local{
		now: now, store: s, sessions: map[int64]*localTree{}, data: watches{}, children: watches{},
	}
}

// OpenMemory is one session on a new memory root; its Close ends both.
func OpenMemory() Tree {
	t := NewMemory(nil).Session().(*localTree)
	t.ownsRoot = true
	return t
}

// OpenFile is one session on an embedded root; its Close ends both.
func OpenFile(path string) (Tree, error) {
	l, err := NewFile(path, nil)
	if err != nil {
		return nil, err
	}
	t := l.Session().(*localTree)
	t.ownsRoot = true
	return t, nil
}

// Session opens a session.
func (l *Local) Session() Tree {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &localTree{root: l, watchers: map[*Watcher]struct{}{}}
	l.admitLocked(t)
	return t
}

func (l *Local) admitLocked(t *localTree) {
	l.lastID++
	t.id, t.err = l.lastID, l.failed
	t.owned = map[string]struct{}{}
	l.sessions[t.id] = t
}

// Close ends all sessions and the root. The nodes stay in the file, ephemeral ones until it is
// opened again.
func (l *Local) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return nil
	}
	l.failLocked(ErrClosed)
	return l.store.close()
}

// failLocked ends every session without touching the store.
func (l *Local) failLocked(err error) {
	l.failed = err
	for _, t := range l.sessions {
		t.endLocked(err, Lost)
	}
}

// Expire ends a session as ZooKeeper does that hears nothing of a client.
func (l *Local) Expire(session int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.sessions[session]
	if t == nil {
		return fmt.Errorf("%w: %d", ErrSessionExpired, session)
	}
	return l.endLocked(t, ErrSessionExpired, Expired)
}

// endLocked removes the session's nodes in one transaction and ends it.
func (l *Local) endLocked(t *localTree, reason error, kind EventKind) error {
	paths := slices.Sorted(maps.Keys(t.owned))
	t.endLocked(reason, kind)
	if len(paths) == 0 || l.failed != nil {
		return l.failed
	}
	ops := make([]Op, len(paths))
	for i, path := range paths {
		ops[i] = Delete(path, AnyVersion)
	}
	_, err := l.updateLocked(func(g *group) ([]Result, error) { return g.multi(0, ops) })
	return err
}

// group is a writing transaction with what is to happen when it is durable.
type group struct {
	txn     txn
	now     int64
	effects []effects
}

func (g *group) multi(session int64, ops []Op) ([]Result, error) {
	results, out, err := multi(g.txn, session, g.now, ops)
	if err == nil {
		g.effects = append(g.effects, out)
	}
	return results, err
}

// updateLocked runs f in a writing transaction; an error of f undoes it.
func (l *Local) updateLocked(f func(*group) ([]Result, error)) ([]Result, error) {
	t, err := l.store.begin(true)
	if err != nil {
		return nil, l.brokenLocked(err)
	}
	g := &group{txn: t, now: l.now().UnixMilli()}
	results, err := f(g)
	if err != nil {
		l.store.discard(t)
		return nil, err
	}
	if err := l.store.commit(t); err != nil {
		return nil, l.brokenLocked(err)
	}
	for _, out := range g.effects {
		for _, n := range out.gone {
			if s := l.sessions[n.owner]; s != nil {
				delete(s.owned, n.path)
			}
		}
		for _, n := range out.made {
			if s := l.sessions[n.owner]; s != nil {
				s.owned[n.path] = struct{}{}
			}
		}
		for _, e := range out.fired {
			l.fireLocked(e)
		}
	}
	return results, nil
}

// brokenLocked ends the root for good unless the error passes.
func (l *Local) brokenLocked(err error) error {
	if !passing(err) {
		l.failLocked(err)
	}
	return err
}

func (l *Local) fireLocked(e Event) {
	var fired []*Watcher
	if e.Kind != ChildrenChanged {
		fired = l.data.take(e.Path)
	}
	if e.Kind == ChildrenChanged || e.Kind == NodeDeleted {
		for _, w := range l.children.take(e.Path) {
			if !slices.Contains(fired, w) { // one event for who watched both
				fired = append(fired, w)
			}
		}
	}
	for _, w := range fired {
		w.add(e)
	}
}

// watches are by path; a watcher is there at most once. Most paths have one: a slice is small.
type watches map[string][]*Watcher

func (s watches) set(path string, w *Watcher) {
	if w != nil && !slices.Contains(s[path], w) {
		s[path] = append(s[path], w)
	}
}

func (s watches) take(path string) []*Watcher {
	fired := s[path]
	delete(s, path)
	return fired
}

func (s watches) drop(w *Watcher) {
	for path, set := range s {
		if i := slices.Index(set, w); i >= 0 {
			if set = slices.Delete(set, i, i+1); len(set) > 0 {
				s[path] = set
			} else {
				delete(s, path)
			}
		}
	}
}

// localTree is a session.
type localTree struct {
	root     *Local
	ownsRoot bool
	held     *group // the transaction of Group; then root.mu is held already

	id       int64                 // guarded by root.mu, as the rest
	err      error                 // why the session has ended
	owned    map[string]struct{}   // ephemeral nodes
	watchers map[*Watcher]struct{} // told of what becomes of the session
}

func (t *localTree) endLocked(err error, kind EventKind) {
	l := t.root
	delete(l.sessions, t.id)
	t.err = err
	for w := range t.watchers {
		l.data.drop(w)
		l.children.drop(w)
		w.add(Event{Kind: kind})
	}
	t.owned = nil
}

// read runs f in a reading transaction. With a watcher it holds the lock alone, so that f may
// set watches.
func (t *localTree) read(w *Watcher, f func(txn) error) error {
	if t.held != nil {
		t.watch(w)
		return f(t.held.txn)
	}
	l := t.root
	l.mu.RLock()
	if w == nil && !l.store.exclusive() {
		defer l.mu.RUnlock()
	} else {
		l.mu.RUnlock()
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	if t.err != nil {
		return t.err
	}
	t.watch(w)
	x, err := l.store.begin(false)
	if err != nil {
		return err
	}
	defer l.store.discard(x)
	err = f(x)
	if ft, ok := x.(*fileTxn); ok && ft.err != nil {
		err = ft.err // else what could not be read would count as not there
	}
	return err
}

func (t *localTree) watch(w *Watcher) {
	if w != nil {
		t.watchers[w] = struct{}{}
	}
}

func (t *localTree) Get(path string, w *Watcher) (data []byte, st Stat, err error) {
	nodes, err := t.GetAll([]string{path}, w)
	if err != nil {
		return nil, Stat{}, err
	}
	return nodes[0].Data, nodes[0].Stat, nodes[0].Err
}

func (t *localTree) GetAll(paths []string, w *Watcher) ([]Node, error) {
	for _, path := range paths {
		if err := checkPath(path, false); err != nil {
			return nil, err
		}
	}
	nodes := make([]Node, len(paths))
	return nodes, t.read(w, func(x txn) error {
		for i, path := range paths {
			nodes[i].Path = path
			r := x.get(path)
			if r == nil {
				nodes[i].Err = fmt.Errorf("%w: %s", ErrNoNode, path)
				continue
			}
			t.root.data.set(path, w)
			nodes[i].Data, nodes[i].Stat = slices.Clone(r.data), r.stat()
		}
		return nil
	})
}

func (t *localTree) Exists(path string, w *Watcher) (st Stat, err error) {
	if err := checkPath(path, false); err != nil {
		return Stat{}, err
	}
	return st, t.read(w, func(x txn) error {
		t.root.data.set(path, w)
		r := x.get(path)
		if r == nil {
			return fmt.Errorf("%w: %s", ErrNoNode, path)
		}
		st = r.stat()
		return nil
	})
}

func (t *localTree) Children(path string, w *Watcher) (names []string, st Stat, err error) {
	if err := checkPath(path, false); err != nil {
		return nil, Stat{}, err
	}
	err = t.read(w, func(x txn) error {
		r := x.get(path)
		if r == nil {
			return fmt.Errorf("%w: %s", ErrNoNode, path)
		}
		t.root.children.set(path, w)
		names, st = x.children(path), r.stat()
		return nil
	})
	return names, st, err
}

func (t *localTree) Create(path string, data []byte, mode Mode) (string, error) {
	results, err := t.Multi(Create(path, data, mode))
	if err != nil {
		return "", err
	}
	return results[0].Path, nil
}

func (t *localTree) Set(path string, data []byte, version int32) (Stat, error) {
	results, err := t.Multi(Set(path, data, version))
	if err != nil {
		return Stat{}, err
	}
	return results[0].Stat, nil
}

func (t *localTree) Delete(path string, version int32) error {
	_, err := t.Multi(Delete(path, version))
	return err
}

func (t *localTree) Multi(ops ...Op) ([]Result, error) {
	if t.held != nil {
		return t.held.multi(t.id, ops)
	}
	l := t.root
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.err != nil {
		return nil, t.err
	}
	return l.updateLocked(func(g *group) ([]Result, error) { return g.multi(t.id, ops) })
}

func (t *localTree) Group(f func(Tree) error) error {
	if t.held != nil {
		return f(t) // part of the group around it
	}
	l := t.root
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	_, err := l.updateLocked(func(g *group) ([]Result, error) {
		inner := &localTree{root: l, held: g, id: t.id, watchers: t.watchers}
		return nil, f(inner)
	})
	return err
}

func (t *localTree) Session() int64 {
	if t.held != nil {
		return t.id
	}
	t.root.mu.RLock()
	defer t.root.mu.RUnlock()
	return t.id
}

func (t *localTree) MultiLimit() int { return 0 }

func (t *localTree) Renew() error {
	l := t.root
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.err == nil {
		return nil
	}
	if !errors.Is(t.err, ErrSessionExpired) {
		return t.err
	}
	l.admitLocked(t)
	if t.err == nil {
		for w := range t.watchers {
			w.add(Event{Kind: Connected})
		}
	}
	return t.err
}

func (t *localTree) Close() error {
	if t.ownsRoot {
		return t.root.Close()
	}
	l := t.root
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.err != nil {
		return nil
	}
	return l.endLocked(t, ErrClosed, Lost)
}
