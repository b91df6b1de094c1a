package log

import "time"

// longestGather is how long an fsync is put off for others to share it, at most.
const longestGather = time.Millisecond

// group is who shares an fsync. Producers who each wait for the acknowledgement of one record before
// they send the next come back one after the other when an fsync has ended: to begin the next with the
// first of them would be an fsync for a few, and the others would wait for the one after it. So the
// first waits for as many as there were in the round before, but not for longer than two fsyncs take.
// Whoever is alone, as most are, waits for nobody. The flusher's lock guards it.
type group struct {
	waiting int           // wait for the next fsync
	in      int           // are in the one that is under way, or were in the last
	round   int           // were in the last, or came while it was under way
	took    time.Duration // the last
	full    chan struct{} // the one who gathers waits for it; nil: nobody does
	target  int           // it is closed when so many wait
}

// comeLocked counts somebody who waits for the next fsync.
func (g *group) comeLocked() {
	if g.waiting++; g.full != nil && g.waiting >= g.target {
		close(g.full)
		g.full = nil
	}
}

// expectLocked returns what the one who is to begin an fsync does first, nil for nothing.
func (g *group) expectLocked() (wait func()) {
	limit := min(2*g.took, longestGather)
	if g.waiting >= g.round || limit <= 0 {
		return nil
	}
	full := make(chan struct{})
	g.full, g.target = full, g.round
	return func() {
		t := time.NewTimer(limit)
		defer t.Stop()
		select {
		case <-full:
		case <-t.C:
		}
	}
}

// beginLocked is called when an fsync begins, which all have part in who wait.
func (g *group) beginLocked() { g.in, g.waiting, g.full = g.waiting, 0, nil }

// endLocked is called when it has ended.
func (g *group) endLocked(took time.Duration) { g.round, g.took = g.in+g.waiting, took }
