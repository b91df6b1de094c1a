package controller

import (
	"context"
	"sync"
	"time"
)

// answer is what a broker has said to a letter.
type answer struct {
	from    int32
	epoch   int64
	led     bool             // asked and lead count
	asked   []PartitionState // of LeaderAndIsr
	lead    []PartitionError
	stopped []StopPartition // of StopReplica, where it was not refused as a whole
	stop    []PartitionError
}

// sender is the ordered queue to one broker in one of its epochs, with a goroutine that sends
// until the broker has taken each letter, or the sender is stopped.
type sender struct {
	epoch  int64
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mu    sync.Mutex
	queue []letter // guarded by mu
}

// sendRetry is the pause after a letter that did not arrive (ControllerChannelManager: 100 ms).
const sendRetry = 100 * time.Millisecond

// post queues a letter, in a new sender if the broker's epoch has changed.
func (c *Controller) post(l letter) {
	s := c.senders[l.to]
	if s != nil && s.epoch != l.epoch {
		s.stop()
		s = nil
	}
	if s == nil {
		m := c.state.members[l.to]
		if c.o.Dial == nil || m == nil {
			return
		}
		ctx, cancel := context.WithCancel(c.ctx)
		s = &sender{epoch: l.epoch, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1)}
		c.senders[l.to] = s
		go s.run(ctx, c, c.o.Dial(m.Broker))
	}
	s.mu.Lock()
	s.queue = append(s.queue, l)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// stop ends the sender and waits; a call to the broker ends with its context.
func (s *sender) stop() {
	s.cancel()
	<-s.done
}

func (s *sender) take() (l letter, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return letter{}, false
	}
	l, s.queue = s.queue[0], s.queue[1:]
	return l, true
}

func (s *sender) run(ctx context.Context, c *Controller, b Line) {
	defer close(s.done)
	defer b.Close()
	try := func(f func() error) {
		for ctx.Err() == nil {
			err := f()
			if err == nil {
				return
			}
			c.log.Debug("request to a broker failed", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(sendRetry):
			}
		}
	}
	for ctx.Err() == nil {
		l, ok := s.take()
		if !ok {
			select {
			case <-ctx.Done():
			case <-s.wake:
			}
			continue
		}
		a := answer{from: l.to, epoch: l.epoch}
		if l.greet != nil {
			try(func() error { return b.UpdateMetadata(ctx, l.greet) })
		}
		if l.lead != nil {
			try(func() (err error) { a.lead, err = b.LeaderAndIsr(ctx, l.lead); return err })
			a.led, a.asked = true, l.lead.Partitions
		}
		if l.update != nil {
			try(func() error { return b.UpdateMetadata(ctx, l.update) })
		}
		if l.stop != nil {
			try(func() (err error) { a.stop, err = b.StopReplica(ctx, l.stop); return err })
			a.stopped = l.stop.Partitions
		}
		if ctx.Err() != nil {
			return
		}
		if !a.led && a.stopped == nil {
			continue
		}
		select {
		case c.answers <- a:
		case <-ctx.Done():
		}
	}
}
