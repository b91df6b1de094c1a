package group

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"ottla/coordinator"
)

// TestMixedModel: members of both protocols come, go, fall silent, are killed and come back with the
// other protocol, answers are lost, appends fail, the coordinator is restarted; whatever it is by
// then, a classic or a consumer group, at every moment
//
//   - each partition has one owner at most: who loses one has been told, or is out, before another
//     gets it;
//   - epochs and generations only grow;
//   - a machine that reads the log is where the one is that wrote it;
//   - in the end, left alone, the group gives all partitions to those who are there.
func TestMixedModel(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 15
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := newMixedModel(t, uint64(seed))
			for range 250 {
				x.chaos()
				x.check()
			}
			x.calm()
		})
	}
}

type mixedModel struct {
	*mixed
	r     *rand.Rand
	eager bool
	made  int
	epoch int32
	moved bool // the coordinator was restarted: generations that nobody has written are gone
}

func newMixedModel(t *testing.T, seed uint64) *mixedModel {
	w := newWorld(t)
	w.cluster = &cluster{topics: map[string]int32{"a": 5, "b": 2}, version: 1}
	x := &mixedModel{mixed: &mixed{world: w}, r: rand.New(rand.NewPCG(seed, 429)), eager: seed%2 == 0}
	w.o.Consumer.Assignors = []string{[]string{"uniform", "range", "roundrobin", "block"}[seed/2%4]}
	return x
}

func (x *mixedModel) join() {
	x.made++
	topics := []string{"a", "b"}[:1+x.r.IntN(2)]
	var instance *string
	if x.r.IntN(3) == 0 {
		instance = ptr(fmt.Sprint("i", x.r.IntN(2)))
	}
	if x.r.IntN(2) == 0 {
		p := x.party("g", fmt.Sprint("p", x.made), topics...)
		if p.instance = instance; instance == nil && x.r.IntN(4) == 0 {
			p.topics, p.regex = nil, ptr("a|b")
		}
		x.oust(instance, true)
		x.parties = append(x.parties, p)
		return
	}
	v := x.veteran("g", topics...)
	v.eager, v.instance = x.eager, instance
	v.old = x.r.IntN(3) == 0
	v.session = time.Duration(6+x.r.IntN(20)) * time.Second
	x.oust(instance, false)
	x.veterans = append(x.veterans, v)
}

// oust ends the process that has had an instance id: two at once are no matter of the group's. One
// of the consumer protocol says that it will be back, or the next of that protocol would not get in.
func (x *mixedModel) oust(instance *string, consumer bool) {
	if instance == nil {
		return
	}
	for i, p := range x.parties {
		if p.instance != nil && *p.instance == *instance {
			if consumer {
				p.leave(leaveStaticEpoch)
			}
			x.parties = append(x.parties[:i:i], x.parties[i+1:]...)
			break
		}
	}
	for i, v := range x.veterans {
		if v.instance != nil && *v.instance == *instance {
			x.veterans = append(x.veterans[:i:i], x.veterans[i+1:]...)
			break
		}
	}
}

func (x *mixedModel) beat(p *party) {
	if err := p.beat(); err != nil && x.failing == nil {
		p.epoch, p.owned = 0, nil
	}
}

func (x *mixedModel) chaos() {
	x.failing = nil
	if x.r.IntN(12) == 0 {
		x.failing = coordinator.ErrNotAvailable
	}
	defer func() { x.failing = nil }()
	n := x.r.IntN(24)
	if len(x.parties)+len(x.veterans) < 2 || n == 0 && len(x.parties)+len(x.veterans) < 6 {
		x.join()
		return
	}
	at := x.r.IntN(len(x.parties) + len(x.veterans))
	if at < len(x.parties) {
		p := x.parties[at]
		switch {
		case n < 15:
			x.beat(p)
		case n == 15: // an answer is lost
			was := *p
			p.beat()
			p.epoch, p.owned = was.epoch, was.owned
		case n == 16:
			if p.epoch > 0 && p.leave(leaveEpoch) == nil {
				x.parties = append(x.parties[:at:at], x.parties[at+1:]...)
			}
		case n == 17 && p.instance == nil: // killed
			x.parties = append(x.parties[:at:at], x.parties[at+1:]...)
		}
	} else {
		at -= len(x.parties)
		v := x.veterans[at]
		switch {
		case n < 15:
			v.step()
		case n == 15: // an answer is lost; its client asks again
			if v.collect(); v.joins == nil && v.syncs == nil {
				was := *v
				v.step()
				if v.joins == nil && v.syncs == nil && was.id != "" {
					if v.eager && !was.ready && (was.again || !was.stable) {
						was.owned = nil // it was a JoinGroup: everything was given back before
					}
					v.generation, v.owned, v.ready, v.stable, v.again = was.generation, was.owned, false, was.stable, was.again
				}
			}
		case n == 16:
			if v.id != "" && v.joins == nil && v.syncs == nil && v.leave() == nil {
				x.veterans = append(x.veterans[:at:at], x.veterans[at+1:]...)
			}
		case n == 17 && v.instance == nil: // killed
			x.veterans = append(x.veterans[:at:at], x.veterans[at+1:]...)
		}
	}
	switch n {
	case 18, 19:
		x.pass(time.Duration(x.r.IntN(3000)) * time.Millisecond)
	case 20:
		x.pass(time.Duration(x.r.IntN(50)) * time.Second)
	case 21:
		x.crash()
		x.moved = true
	case 23:
		x.overlap()
	case 22:
		x.world.cluster = x.world.cluster.with([]string{"a", "b"}[x.r.IntN(2)], int32(5+x.r.IntN(4)))
	}
}

// overlap has several requests under way at once: their records are written one after the other, and
// committed later, if the coordinator lives so long.
func (x *mixedModel) overlap() {
	x.holding = true
	type asked struct {
		p  *party
		to *coordinator.Ticket
	}
	var waiting []asked
	busy := map[int]bool{}
	for range 2 + x.r.IntN(5) {
		x.failing = nil
		if x.r.IntN(10) == 0 {
			x.failing = coordinator.ErrNotAvailable
		}
		at := x.r.IntN(len(x.parties) + len(x.veterans))
		switch {
		case busy[at]:
		case at < len(x.parties):
			p := x.parties[at]
			waiting = append(waiting, asked{p, p.send(p.request())})
		case x.veterans[at-len(x.parties)].stable && !x.veterans[at-len(x.parties)].again:
			continue // a heartbeat is answered at once
		default:
			x.veterans[at-len(x.parties)].step()
		}
		busy[at] = true
		if x.r.IntN(4) == 0 {
			x.commitHeld()
		}
	}
	x.failing = nil
	if x.r.IntN(5) == 0 {
		x.crash()
		x.moved = true
	}
	for x.commitHeld() {
	}
	x.holding = false
	for _, a := range waiting {
		if _, err := a.p.answered(a.to); err != nil && !errors.Is(err, coordinator.ErrNotAvailable) && !errors.Is(err, coordinator.ErrNotCoordinator) {
			a.p.epoch, a.p.owned = 0, nil
		}
	}
}

// pass lets time pass. Who was silent for too long finds out before it reads on.
func (x *mixedModel) pass(d time.Duration) {
	x.advance(d)
	x.failing = nil
	for _, v := range x.veterans {
		if v.collect(); v.joins == nil && v.syncs == nil && v.id != "" && len(v.owned) > 0 {
			v.beat()
		}
	}
	for _, p := range x.parties {
		if p.epoch > 0 {
			x.beat(p)
		}
	}
}

func (x *mixedModel) check() {
	x.Helper()
	for _, v := range x.veterans {
		v.collect()
	}
	x.checkOwners()
	x.sameConsumers("g")
	g := x.m.groups["g"]
	if g == nil || g.empty() {
		x.epoch, x.moved = 0, false
		return
	}
	epoch := g.generation
	if g.consumer != nil {
		epoch = g.consumer.epoch
	}
	if epoch < x.epoch && !x.moved {
		x.Fatalf("epoch %d after %d", epoch, x.epoch)
	}
	x.epoch, x.moved = epoch, false
}

// calm leaves those who are there alone, some of one protocol or of both.
func (x *mixedModel) calm() {
	x.Helper()
	switch x.r.IntN(4) {
	case 0:
		x.parties = nil
	case 1:
		x.veterans = nil
	}
	x.pass(2 * time.Minute) // those who are not there any more are out
	v := x.veteran("g", "a", "b")
	v.eager = x.eager
	if len(x.veterans) > 0 || len(x.parties) == 0 {
		x.veterans = append(x.veterans, v)
	} else {
		x.parties = append(x.parties, x.party("g", "last", "a", "b"))
	}
	x.settle()
	if n := int(x.world.cluster.topics["a"] + x.world.cluster.topics["b"]); x.count() != n {
		x.Fatalf("%d of %d partitions are with somebody:\n%s", x.count(), n, x.snapshot())
	}
	want := "consumer Stable"
	if len(x.parties) == 0 {
		want = "classic Stable"
	}
	if got := x.mixed.kind(); got != want {
		x.Fatalf("the group is %s, with %d members of the consumer protocol and %d of the classic one", got, len(x.parties), len(x.veterans))
	}
}
