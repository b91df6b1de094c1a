package coordinator

import (
	"container/heap"
	"time"
)

// Alarm is one deadline of a machine. It lies with what it is about (a member, a transaction)
// and is in the machine's Alarms while it is set.
type Alarm struct {
	at   time.Duration // by Instant.Mono
	seq  uint64        // of two with the same time the one set first rings first
	pos  int           // in the heap; -1: not set
	ring func(Instant) Effects
}

// NewAlarm makes an alarm that is not set. ring is the step that it makes when it is due.
func NewAlarm(ring func(Instant) Effects) *Alarm {
	return &Alarm{pos: -1, ring: ring}
}

// Alarms are the deadlines of a machine that are set.
type Alarms struct {
	heap alarmHeap
	seq  uint64
}

// Set sets an alarm, or moves it, to a time by Instant.Mono.
func (a *Alarms) Set(al *Alarm, at time.Duration) {
	a.seq++
	al.at, al.seq = at, a.seq
	if al.pos >= 0 {
		heap.Fix(&a.heap, al.pos)
	} else {
		heap.Push(&a.heap, al)
	}
}

// Cancel takes an alarm out; nil, or one that is not set, is left as it is.
func (a *Alarms) Cancel(al *Alarm) {
	if al != nil && al.pos >= 0 {
		heap.Remove(&a.heap, al.pos)
	}
}

// Ring takes out one alarm that is due, if there is one, and makes its step.
func (a *Alarms) Ring(now Instant) Effects {
	if a.None() || a.heap[0].at > now.Mono {
		return Effects{}
	}
	return heap.Pop(&a.heap).(*Alarm).ring(now)
}

// Wake tells when the next alarm is due, Never where none is set.
func (a *Alarms) Wake() time.Duration {
	if a.None() {
		return Never
	}
	return a.heap[0].at
}

// None tells that no alarm is set.
func (a *Alarms) None() bool { return len(a.heap) == 0 }

// alarmHeap has the next alarm first.
type alarmHeap []*Alarm

func (h alarmHeap) Len() int { return len(h) }
func (h alarmHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

// Push is heap.Interface's.
func (h *alarmHeap) Push(x any) {
	al := x.(*Alarm)
	al.pos = len(*h)
	*h = append(*h, al)
}

// Pop is heap.Interface's.
func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	al := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	al.pos = -1
	return al
}
