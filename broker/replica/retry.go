package replica

import (
	"context"
	"errors"
	"slices"
	"time"

	"ottla/log"
)

// How partitions are tried again whose logs could not be made or opened for want of room. A few at
// a time say whether there is some; then all get their turn.
const (
	firstRetry    = time.Second
	lastRetry     = 8 * time.Second
	retriesAtOnce = 16
)

// retries are the partitions that the controller has to be asked for again: those that wait for
// room, and those whose replicas have been lost with a directory. One goroutine does it, and only
// while there are any. The fields are guarded by Manager.change.
type retries struct {
	waiting map[Key]bool // for room; true: the partition is new, no log of it can be missing
	order   []Key        // in which they are tried; may have some that do not wait any more
	lost    []Key
	running bool
	closed  bool

	kick chan struct{} // holds one: lost has something
	done chan struct{} // closed when the goroutine that ran last has ended
	ctx  context.Context
	stop context.CancelFunc
}

func newRetries() retries {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	close(done)
	return retries{waiting: map[Key]bool{}, kick: make(chan struct{}, 1), done: done, ctx: ctx, stop: stop}
}

// settledLocked takes in what came of a state. The caller holds change.
func (m *Manager) settledLocked(k Key, isNew bool, err error) {
	r := &m.retries
	_, waits := r.waiting[k]
	switch full := errors.Is(err, log.ErrFull); {
	case full && !waits:
		if len(r.waiting) == 0 {
			m.opts.Logger.Warn("partitions are offline, for want of room on the disk; they are tried again",
				"topic", k.Topic, "partition", k.Partition, "err", err)
		}
		r.order = append(r.order, k)
		r.waiting[k] = isNew
	case waits && !full && !errors.Is(err, ErrStaleState):
		m.dropRetryLocked(k)
	}
}

// dropRetryLocked ends the waiting of a partition. The caller holds change.
func (m *Manager) dropRetryLocked(k Key) {
	r := &m.retries
	if _, waits := r.waiting[k]; !waits {
		return
	}
	delete(r.waiting, k)
	if len(r.waiting) == 0 {
		r.order = nil
		m.opts.Logger.Info("no partition waits for room on the disk any more", "topic", k.Topic, "partition", k.Partition)
	}
}

// retryLocked sees to it that somebody asks again. The caller holds change.
func (m *Manager) retryLocked() {
	r := &m.retries
	if m.opts.Again == nil || r.closed || len(r.waiting)+len(r.lost) == 0 {
		return
	}
	if !r.running {
		r.running = true
		r.done = make(chan struct{})
		go m.retry(r.done)
	}
	if len(r.lost) > 0 {
		select {
		case r.kick <- struct{}{}:
		default:
		}
	}
}

// retry asks until there is nothing to ask for. It belongs to the manager, and Close waits for it.
func (m *Manager) retry(done chan struct{}) {
	defer close(done)
	r := &m.retries
	pause, most := firstRetry, retriesAtOnce
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		due := false
		select {
		case <-r.kick:
		case <-timer.C:
			due = true
		case <-r.ctx.Done():
			return
		}
		m.change.Lock()
		keys := r.lost
		r.lost = nil
		before := len(r.waiting)
		if due { // those that fail come last the next time
			r.order = slices.DeleteFunc(r.order, func(k Key) bool { _, waits := r.waiting[k]; return !waits })
			n := min(most, len(r.order))
			keys = append(keys, r.order[:n]...)
			r.order = append(slices.Clone(r.order[n:]), r.order[:n]...)
		}
		if len(keys) == 0 && before == 0 {
			r.running = false
			m.change.Unlock()
			return
		}
		m.change.Unlock()
		if len(keys) > 0 {
			m.opts.Again(r.ctx, keys)
		}
		m.change.Lock()
		left := len(r.waiting)
		m.change.Unlock()
		switch {
		case !due && left >= before:
			continue
		case left < before: // there is room
			pause, most = firstRetry, 16*most
			timer.Reset(0)
		default:
			pause, most = min(2*pause, lastRetry), retriesAtOnce
			timer.Reset(pause)
		}
	}
}

// closeRetries ends the goroutine. The caller does not hold change.
func (m *Manager) closeRetries() {
	m.change.Lock()
	m.retries.closed = true
	done := m.retries.done
	m.change.Unlock()
	m.retries.stop()
	<-done
}
