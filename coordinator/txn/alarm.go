package txn

import (
	"container/heap"
	"time"

	"ottla/coordinator"
)

// alarm is one deadline: of an open transaction, or of a request that waits.
type alarm struct {
	at   time.Duration // by Instant.Mono
	pos  int           // in the heap; -1: not set
	ring func(coordinator.Instant) coordinator.Effects
}

func newAlarm(ring func(coordinator.Instant) coordinator.Effects) *alarm {
	return &alarm{pos: -1, ring: ring}
}

// alarms is a heap of deadlines, the next one first.
type alarms []*alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at < a[j].at }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].pos, a[j].pos = i, j
}

// Push is heap.Interface's.
func (a *alarms) Push(x any) {
	al := x.(*alarm)
	al.pos = len(*a)
	*a = append(*a, al)
}

// Pop is heap.Interface's.
func (a *alarms) Pop() any {
	last := len(*a) - 1
	al := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	al.pos = -1
	return al
}

// set sets an alarm, or moves it.
func (a *alarms) set(al *alarm, at time.Duration) {
	al.at = at
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
	if len(*a) == 0 || (*a)[0].at > now {
		return nil
	}
	return heap.Pop(a).(*alarm)
}

func (a alarms) wake() time.Duration {
	if len(a) == 0 {
		return coordinator.Never
	}
	return a[0].at
}
