package replica

import "sync"

// wait is one fetch that waits for any of its partitions to change. It stands in the list of
// each of them; whoever changes a partition notes its index here and has it looked at once. So
// waiting on a thousand partitions costs one allocation and no goroutine, and a change of one of
// them costs a look at that one.
type wait struct {
	mu    sync.Mutex
	dirty []int32 // guarded by mu: indexes of what changed since the last take
}

// watch is a wait's place in the list of one partition. Its links are guarded by the
// partition's mu, queued by the wait's mu.
type watch struct {
	next, prev *watch
	w          *Waiting
	p          *Partition
	i          int32
	queued     bool // i is in dirty
}

// mark notes that a partition changed.
func (w *wait) mark(e *watch) {
	w.mu.Lock()
	if !e.queued {
		e.queued = true
		w.dirty = append(w.dirty, e.i)
	}
	w.mu.Unlock()
}

// take moves the indexes of what changed to buf.
func (w *wait) take(buf []int32, all []watch) []int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	buf = append(buf[:0], w.dirty...)
	for _, i := range w.dirty {
		all[i].queued = false
	}
	w.dirty = w.dirty[:0]
	return buf
}

// join puts a watch into its partition's list.
func (e *watch) join() {
	e.p.mu.Lock()
	e.next = e.p.watchers
	if e.next != nil {
		e.next.prev = e
	}
	e.p.watchers = e
	e.p.mu.Unlock()
}

// leave takes it out again.
func (e *watch) leave() {
	e.p.mu.Lock()
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		e.p.watchers = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.p.mu.Unlock()
	e.next, e.prev = nil, nil
}

// signalLocked has the fetches that wait for the partition look: by runs them, or, where there is
// none, the manager.
func (p *Partition) signalLocked(by *Wakes) {
	for e := p.watchers; e != nil; e = e.next {
		e.w.changed.mark(e)
		if by != nil {
			by.add(e.w)
		} else {
			p.m.looks.Go(e.w.look)
		}
	}
}
