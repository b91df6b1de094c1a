package group

import (
	"container/heap"
	"time"

	"ottla/coordinator"
)

// alarm is one deadline. It lies with what it is about (a member, a group) and is in the
// machine's heap while it is set.
type alarm struct {
	at   time.Duration // by Instant.Mono
	seq  uint64        // of two with the same time the one set first rings first
	pos  int           // in the heap; -1: not set
	ring func(coordinator.Instant) coordinator.Effects
}

func newAlarm(ring func(coordinator.Instant) coordinator.Effects) *alarm {
	return &alarm{pos: -1, ring: ring}
}

// alarms is a heap of deadlines, the next one first.
type alarms struct {
	list []*alarm
	seq  uint64
}

func (a *alarms) Len() int { return len(a.list) }
func (a *alarms) Less(i, j int) bool {
	x, y := a.list[i], a.list[j]
	return x.at < y.at || x.at == y.at && x.seq < y.seq
}
func (a *alarms) Swap(i, j int) {
	a.list[i], a.list[j] = a.list[j], a.list[i]
	a.list[i].pos, a.list[j].pos = i, j
}
func (a *alarms) Push(x any) {
	al := x.(*alarm)
	al.pos = len(a.list)
	a.list = append(a.list, al)
}
func (a *alarms) Pop() any {
	last := len(a.list) - 1
	al := a.list[last]
	a.list[last] = nil
	a.list = a.list[:last]
	al.pos = -1
	return al
}

// set sets an alarm, or moves it.
func (a *alarms) set(al *alarm, at time.Duration) {
	a.seq++
	al.at, al.seq = at, a.seq
	if al.pos >= 0 {
		heap.Fix(a, al.pos)
	} else {
		heap.Push(a, al)
	}
}

func (a *alarms) cancel(al *alarm) {
	if al != nil && al.pos >= 0 {
		heap.Remove(a, al.pos)
	}
}

// next takes the alarm that is due, nil for none.
func (a *alarms) next(now time.Duration) *alarm {
	if len(a.list) == 0 || a.list[0].at > now {
		return nil
	}
	return heap.Pop(a).(*alarm)
}

func (a *alarms) wake() time.Duration {
	if len(a.list) == 0 {
		return coordinator.Never
	}
	return a.list[0].at
}
