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

// resume runs steps that have waited, until one writes records. Classic members that join the
// group write nothing at once: they are waited for.
func (m *Machine) resume(now coordinator.Instant, id string, out coordinator.Effects, steps []turn) coordinator.Effects {
	for i, s := range steps {
		if b := m.busy[id]; b != nil {
			b.steps = append(b.steps, steps[i:]...)
			break
		}
		e := s.run(now)
		out.Answers = append(out.Answers, e.Answers...)
		if len(e.Records) > 0 {
			out.Records, out.Then = e.Records, e.Then
		}
	}
	return out
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
	t := c.timersOf(member)
	if t.session == nil {
		t.session = coordinator.NewAlarm(func(now coordinator.Instant) coordinator.Effects {
			return m.fenceLate(now, g, member, func(*consumerMember) bool { return now.Mono >= t.sessionAt })
		})
	}
	t.sessionAt = now.Mono + m.options().sessionTimeout(g.id)
	m.alarms.Set(t.session, t.sessionAt)
}

// await begins, or ends, the wait for partitions that a member has to give back (its
// rebalance timeout).
func (m *Machine) await(now coordinator.Instant, g *group, mb *consumerMember) {
	t := g.consumer.timersOf(mb.id)
	if mb.state != memberUnrevoked {
		m.alarms.Cancel(t.rebalance)
		t.waits = false
		return
	}
	if t.waits && t.epoch == mb.epoch {
		return
	}
	if t.rebalance == nil {
		t.rebalance = coordinator.NewAlarm(func(now coordinator.Instant) coordinator.Effects {
			return m.fenceLate(now, g, mb.id, func(is *consumerMember) bool {
				return t.waits && now.Mono >= t.rebalanceAt && is.epoch == t.epoch && is.state == memberUnrevoked
			})
		})
	}
	t.waits, t.epoch, t.rebalanceAt = true, mb.epoch, now.Mono+duration(mb.rebalance)
	m.alarms.Set(t.rebalance, t.rebalanceAt)
}

// fenceRetry is when a member whose time is up is taken out again after that could not be
// written.
const fenceRetry = time.Second

// fenceLate takes out a member whose time is up, if that is so still when the group is free.
func (m *Machine) fenceLate(now coordinator.Instant, g *group, member string, late func(*consumerMember) bool) coordinator.Effects {
	return m.serially(now, g.id, nil, func(now coordinator.Instant) (none coordinator.Effects) {
		mb := g.consumer.members[member]
		if m.groups[g.id] != g || mb == nil || !late(mb) {
			return none
		}
		return m.record(g.id, m.without(g, mb), coordinator.Answer{}, func(now coordinator.Instant, err error) (none coordinator.Effects) {
			if err != nil {
				t := g.consumer.timersOf(member)
				t.sessionAt = now.Mono + fenceRetry
				m.alarms.Set(t.session, t.sessionAt)
			}
			return none
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
		m.alarms.Cancel(t.session)
		m.alarms.Cancel(t.rebalance)
		delete(c.timers, member)
	}
}
