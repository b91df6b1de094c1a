package group

import (
	"time"

	"ottla/coordinator"
)

// inTurn is what waits until the records of a consumer group are in the log. Steps that change
// such a group run one after the other, each on what the one before has left in the log: its
// members, epochs and owners hang together, so that none may be worked out from the past.
type inTurn struct {
	steps []turn
}

// turn is a step that waits; to is whom it answers, nil for nobody.
type turn struct {
	to  *coordinator.Ticket
	run func(coordinator.Instant) coordinator.Effects
}

// serially runs a step that may change a consumer group, now or when the group is free.
func (m *Machine) serially(now coordinator.Instant, id string, to *coordinator.Ticket, run func(coordinator.Instant) coordinator.Effects) coordinator.Effects {
	if b := m.busy[id]; b != nil {
		b.steps = append(b.steps, turn{to, run})
		return coordinator.Effects{}
	}
	return run(now)
}

// record makes a step of what a consumer group writes: its records are replayed when they are in
// the log, then after is called, with the error if they are not.
func (m *Machine) record(id string, records []coordinator.Record, answer coordinator.Answer, after func(coordinator.Instant, error) coordinator.Effects) coordinator.Effects {
	if m.busy == nil {
		m.busy = map[string]*inTurn{}
	}
	mine := &inTurn{}
	m.busy[id] = mine
	out := coordinator.Effects{Records: records}
	if answer.To != nil {
		out.Answers = []coordinator.Answer{answer}
	}
	out.Then = func(c coordinator.Commit) coordinator.Effects {
		if m.busy[id] != mine { // the shard was lost meanwhile
			return coordinator.Effects{}
		}
		delete(m.busy, id)
		if c.Err == nil {
			for i, r := range records {
				m.Replay(coordinator.Logged{Record: r, Offset: c.Offsets[i], Time: c.Now.Wall, Producer: -1})
			}
		}
		var out coordinator.Effects
		if after != nil {
			out = after(c.Now, c.Err)
		}
		return m.resume(c.Now, id, out, mine.steps)
	}
	return out
}

// resume runs steps that have waited, until one makes the group busy again.
func (m *Machine) resume(now coordinator.Instant, id string, out coordinator.Effects, steps []turn) coordinator.Effects {
	for i, s := range steps {
		if b := m.busy[id]; b != nil {
			b.steps = append(b.steps, steps[i:]...)
			break
		}
		out = both(out, s.run(now))
	}
	return out
}

// both makes one of two steps that follow each other.
func both(a, b coordinator.Effects) coordinator.Effects {
	answers := append(a.Answers, b.Answers...)
	switch {
	case len(b.Records) == 0:
		a.Answers = answers
		return a
	case len(a.Records) == 0:
		b.Answers = answers
		return b
	}
	n := len(a.Records)
	return coordinator.Effects{Records: append(a.Records, b.Records...), Answers: answers, Then: func(c coordinator.Commit) coordinator.Effects {
		first, second := c, c
		if c.Err == nil {
			first.Offsets, second.Offsets = c.Offsets[:n], c.Offsets[n:]
		}
		var x, y coordinator.Effects
		if a.Then != nil {
			x = a.Then(first)
		}
		if b.Then != nil {
			y = b.Then(second)
		}
		return both(x, y)
	}}
}

// startConsumer gives the members of a group that was read their deadlines.
func (m *Machine) startConsumer(now coordinator.Instant, g *group) {
	for _, mb := range g.consumer.sorted() {
		m.touch(now, g, mb.id)
		m.await(now, g, mb)
	}
}

// touch renews a member's session (consumer.session.timeout.ms).
func (m *Machine) touch(now coordinator.Instant, g *group, member string) {
	c := g.consumer
	if c == nil || c.members[member] == nil {
		return
	}
	wait := m.options().sessionTimeout(g.id)
	if mb := c.members[member]; mb.classic != nil {
		wait = mb.classic.session
	}
	m.arm(now, g, member, &c.timersOf(member).session, wait)
}

// await begins, or ends, the wait for partitions that a member has to give back (its
// rebalance timeout). Classic members give back by joining again.
func (m *Machine) await(now coordinator.Instant, g *group, mb *consumerMember) {
	t := g.consumer.timersOf(mb.id)
	if mb.classic == nil {
		m.disarm(&t.join)
		m.disarm(&t.sync)
	}
	switch {
	case mb.classic != nil || mb.state != memberUnrevoked:
		m.disarm(&t.rebalance)
	case !t.rebalance.set || t.epoch != mb.epoch:
		t.epoch = mb.epoch
		m.arm(now, g, mb.id, &t.rebalance, duration(mb.rebalance))
	}
}

// fenceRetry is when a member whose time is up is taken out again after that could not be
// written.
const fenceRetry = time.Second

// fenceLate takes out a member whose time is up, if that is so still when the group is free.
func (m *Machine) fenceLate(now coordinator.Instant, g *group, member string, d *deadline) coordinator.Effects {
	return m.serially(now, g.id, nil, func(now coordinator.Instant) (none coordinator.Effects) {
		mb := g.consumer.members[member]
		if m.groups[g.id] != g || mb == nil || !d.set || now.Mono < d.at {
			return none
		}
		return m.fence(now, g, []*consumerMember{mb}, g.consumer.seen, coordinator.Answer{}, func(now coordinator.Instant) {
			m.arm(now, g, member, d, fenceRetry)
		})
	})
}

func (c *consumerGroup) timersOf(member string) *memberTimers {
	t := c.timers[member]
	if t == nil {
		t = &memberTimers{}
		c.timers[member] = t
	}
	return t
}

func (m *Machine) silenceMember(c *consumerGroup, member string) {
	if t := c.timers[member]; t != nil {
		for _, d := range []*deadline{&t.session, &t.rebalance, &t.join, &t.sync} {
			m.disarm(d)
		}
		delete(c.timers, member)
	}
}
