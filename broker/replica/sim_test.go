package replica

import (
	"encoding/binary"
	cli "flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ottla/log"
)

// The simulator runs three brokers with one partition, a controller, producers and a network on one
// goroutine, from one seed. What of it is the broker's own are the rules of a replica (machine) and of a
// follower (puller); logs keep what was written through a crash, but know only an older high watermark
// then. Every step is one message, one crash, one cut or one tick, in an order that the seed gives.

var (
	simSeeds = cli.Int("sim.seeds", 300, "how many seeds TestSimulation tries")
	simSeed  = cli.Uint64("sim.seed", 0, "the only seed that TestSimulation tries; 0: from 1 on")
)

const (
	simBrokers = 3
	simMinISR  = 2
	simLag     = 150
)

// simLog is a log of records that are their epoch and an id.
type simLog struct {
	records []simRecord
	epochs  []simEpoch
	hw      int64
}

type simRecord struct {
	epoch int32
	id    int64
}

type simEpoch struct {
	epoch int32
	start int64
}

func (l *simLog) Start() int64         { return 0 }
func (l *simLog) End() int64           { return int64(len(l.records)) }
func (l *simLog) HighWatermark() int64 { return l.hw }

func (l *simLog) LastEpoch() int32 {
	if n := len(l.epochs); n > 0 {
		return l.epochs[n-1].epoch
	}
	return -1
}

func (l *simLog) assign(epoch int32, start int64) {
	if n := len(l.epochs); n > 0 && l.epochs[n-1].epoch == epoch {
		return
	}
	for n := len(l.epochs); n > 0 && (l.epochs[n-1].epoch >= epoch || l.epochs[n-1].start >= start); n-- {
		l.epochs = l.epochs[:n-1]
	}
	l.epochs = append(l.epochs, simEpoch{epoch, start})
}

func (l *simLog) EpochEnd(epoch int32) (int32, int64) {
	n := len(l.epochs)
	switch {
	case n == 0 || epoch < 0:
		return -1, -1
	case l.epochs[n-1].epoch == epoch:
		return epoch, l.End()
	}
	i := slices.IndexFunc(l.epochs, func(e simEpoch) bool { return e.epoch > epoch })
	switch {
	case i < 0:
		return -1, -1
	case i == 0:
		return epoch, l.epochs[0].start
	}
	return l.epochs[i-1].epoch, l.epochs[i].start
}

func (l *simLog) Append(b []byte) error {
	for ; len(b) > 0; b = b[12:] {
		r := simRecord{int32(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint64(b[4:]))}
		l.assign(r.epoch, l.End())
		l.records = append(l.records, r)
	}
	return nil
}

func (l *simLog) read(from int64, most int) (b []byte) {
	for _, r := range l.records[from:min(int64(most)+from, l.End())] {
		b = binary.BigEndian.AppendUint32(b, uint32(r.epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(r.id))
	}
	return b
}

func (l *simLog) Truncate(to int64) error {
	l.records = l.records[:min(to, l.End())]
	for n := len(l.epochs); n > 0 && l.epochs[n-1].start >= l.End(); n-- {
		l.epochs = l.epochs[:n-1]
	}
	l.hw = min(l.hw, l.End())
	return nil
}

func (l *simLog) StartAt(int64) error {
	return fmt.Errorf("a leader's log starts at 0: %w", errNotFollowing)
}
func (l *simLog) Committed(hw, _ int64) { l.hw = max(l.hw, min(hw, l.End())) }

// simBroker is one broker. Life counts its starts and its registrations.
type simBroker struct {
	id     int32
	log    *simLog
	up     bool
	life   int64
	rules  machine
	pull   *puller
	asking *PullRequest // under way
	state  State        // of the last LeaderAndIsr
}

// simMessage is something under way.
type simMessage struct {
	from, to int32 // brokers; 0: the controller
	life     int64 // of the broker that it is for, or comes from
	do       func()
	lost     func() // nil: nobody minds
}

type sim struct {
	t    *testing.T
	rnd  *rand.Rand
	now  int64
	b    [simBrokers + 1]*simBroker // from 1 on
	net  []simMessage
	cut  [simBrokers + 1][simBrokers + 1]bool
	calm bool // nothing fails any more

	state      State           // as the controller has it
	registered map[int32]int64 // life, by broker
	ids        int64
	waiting    []simWait
	acked      map[int64]int64 // id, by offset
	committed  map[int64]int64 // id, by offset: what any high watermark has covered
	steps      []string
}

// simWait is an append that waits to be acknowledged.
type simWait struct {
	broker     int32
	life       int64
	epoch      int32
	offset, id int64
}

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), registered: map[int32]int64{}, acked: map[int64]int64{}, committed: map[int64]int64{}}
	ids := []int32{1, 2, 3}
	s.state = State{Topic: "t", ID: [16]byte{1}, Leader: 1, LeaderEpoch: 0, ISR: ids, Replicas: ids}
	for _, id := range ids {
		s.b[id] = &simBroker{id: id, log: &simLog{}}
		s.start(s.b[id])
		s.registered[id] = s.b[id].life
	}
	s.tell()
	return s
}

func (s *sim) note(format string, args ...any) {
	s.steps = append(s.steps, fmt.Sprintf("%6d ", s.now)+fmt.Sprintf(format, args...))
}

func (s *sim) fail(format string, args ...any) {
	s.t.Helper()
	for _, line := range s.steps[max(0, len(s.steps)-60):] {
		s.t.Log(line)
	}
	s.t.Fatalf(format, args...)
}

func (s *sim) start(b *simBroker) {
	b.up, b.life, b.asking = true, b.life+1, nil
	b.rules, b.pull = newMachine(b.id, simLag), newPuller(PullRules{})
	b.rules.alive = func(id int32) bool { return s.registered[id] != 0 }
	b.state = State{Leader: -1, LeaderEpoch: -1, PartitionEpoch: -1}
	s.note("broker %d starts, its log ends at %d", b.id, b.log.End())
}

func (s *sim) crash(b *simBroker) {
	b.up = false
	b.log.hw = int64(s.rnd.IntN(int(b.log.hw) + 1)) // the checkpoint
	s.note("broker %d is killed", b.id)
}

// send puts a message on its way.
func (s *sim) send(m simMessage) { s.net = append(s.net, m) }

// deliver takes one message, maybe to lose it. Those of the controller to one broker keep their order.
func (s *sim) deliver() {
	if len(s.net) == 0 {
		return
	}
	i := s.rnd.IntN(len(s.net))
	if s.net[i].from == 0 && s.net[i].to != 0 {
		i = slices.IndexFunc(s.net, func(m simMessage) bool { return m.from == 0 && m.to == s.net[i].to })
	}
	m := s.net[i]
	s.net = slices.Delete(s.net, i, i+1)
	lost := s.cut[m.from][m.to] || !s.calm && m.from != 0 && s.rnd.IntN(60) == 0
	if lost || m.to != 0 && !s.b[m.to].up {
		if m.lost != nil {
			m.lost()
		}
		return
	}
	m.do()
}

// tell sends the state to all who are registered.
func (s *sim) tell() {
	for id, life := range s.registered {
		b, state := s.b[id], s.state
		m := simMessage{to: id, life: life}
		m.do = func() {
			if s.registered[id] == life && b.life == life {
				s.lead(b, state)
			}
		}
		m.lost = func() { // tried again, before what comes after it
			if s.registered[id] == life {
				i := slices.IndexFunc(s.net, func(o simMessage) bool { return o.from == 0 && o.to == id })
				s.net = slices.Insert(s.net, max(i, 0), m)
			}
		}
		s.send(m)
	}
}

// lead is Partition.apply.
func (s *sim) lead(b *simBroker, st State) {
	if st.LeaderEpoch < b.state.LeaderEpoch || st.LeaderEpoch == b.state.LeaderEpoch && st.PartitionEpoch < b.rules.version {
		return
	}
	k := Key{"t", 0}
	if st.Leader == b.id {
		if st.LeaderEpoch > b.state.LeaderEpoch || b.state.Leader != b.id {
			if b.log.LastEpoch() < st.LeaderEpoch {
				b.log.assign(st.LeaderEpoch, b.log.End())
			}
			s.note("broker %d leads in epoch %d from %d, in sync %v", b.id, st.LeaderEpoch, b.log.End(), st.ISR)
		}
		b.pull.remove(k)
		b.rules.lead(st, b.log.End(), b.log.hw, s.now, simMinISR)
		b.state = st
		s.moved(b)
		return
	}
	b.rules.follow(st)
	if st.Leader >= 0 {
		b.pull.add(k, st.ID, st.LeaderEpoch, b.log)
	} else {
		b.pull.remove(k)
	}
	b.state = st
}

// moved takes over a leader's high watermark: what it covers must be what every earlier one has covered.
func (s *sim) moved(b *simBroker) {
	b.log.hw = max(b.log.hw, b.rules.hw)
	for o := int64(0); o < b.log.hw; o++ {
		id := b.log.records[o].id
		if was, ok := s.committed[o]; ok && was != id {
			s.fail("broker %d commits %d at %d in epoch %d, and %d was committed there", b.id, id, o, b.rules.epoch, was)
		}
		s.committed[o] = id
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(w simWait) bool {
		if w.broker != b.id || w.life != b.life || !b.rules.leads() || b.rules.epoch != w.epoch {
			return w.broker == b.id // nobody acknowledges it any more
		}
		if b.rules.hw > w.offset {
			if b.rules.enoughMaximal(simMinISR) {
				s.acked[w.offset] = w.id
			}
			return true
		}
		return false
	})
}

func (s *sim) produce(b *simBroker) {
	if !b.up || !b.rules.leads() || !b.rules.enough(simMinISR) {
		return
	}
	s.ids++
	offset := b.log.End()
	b.log.assign(b.rules.epoch, offset)
	b.log.records = append(b.log.records, simRecord{b.rules.epoch, s.ids})
	s.waiting = append(s.waiting, simWait{b.id, b.life, b.rules.epoch, offset, s.ids})
	b.rules.appended(b.log.End(), s.now, simMinISR)
	s.moved(b)
}

// fetch sends a follower's request, if it has none under way.
func (s *sim) fetch(b *simBroker) {
	if !b.up || b.asking != nil || b.state.Leader < 0 || b.state.Leader == b.id {
		return
	}
	q, _ := b.pull.next(s.now)
	if q == nil {
		return
	}
	b.asking = q
	life, leader := b.life, s.b[b.state.Leader]
	lost := func() {
		if b.up && b.life == life && b.asking == q {
			b.asking = nil
			b.pull.failed(s.now)
		}
	}
	s.send(simMessage{from: b.id, to: leader.id, lost: lost, do: func() {
		a, ends := s.answer(leader, b.id, life, q)
		s.send(simMessage{from: leader.id, to: b.id, lost: lost, do: func() {
			if b.life != life || b.asking != q {
				return
			}
			b.asking = nil
			for _, bad := range b.pull.took(a, s.now) {
				if bad.outOfRange {
					b.pull.found(bad.k, bad.epoch, 0, ends, s.now)
				}
			}
		}})
	}})
}

// answer is a leader's to a fetch, as Manager.read makes it.
func (s *sim) answer(b *simBroker, from int32, life int64, q *PullRequest) (a *PullAnswer, end int64) {
	a = &PullAnswer{}
	for _, part := range q.Parts {
		d := Pulled{ID: part.ID, HighWatermark: b.log.hw, DivergedEpoch: -1, DivergedEnd: -1}
		end = b.log.End()
		switch err := checkEpoch(part.Epoch, b.state.LeaderEpoch); {
		case err != nil:
			d.Err = err
		case !b.rules.leads():
			d.Err = ErrNotLeader
		case b.rules.followers[from] == nil:
			d.Err = ErrUnknownEpoch
		default:
			if part.LastEpoch >= 0 {
				epoch, ends := b.log.EpochEnd(part.LastEpoch)
				if epoch < 0 {
					d.Err = log.ErrOffsetOutOfRange
				} else if epoch < part.LastEpoch || ends < part.Offset {
					d.Diverged, d.DivergedEpoch, d.DivergedEnd = true, epoch, ends
				}
			}
			if part.Offset > end {
				d.Err = log.ErrOffsetOutOfRange
			}
			if d.Err == nil && !d.Diverged {
				d.Records = b.log.read(part.Offset, 1+s.rnd.IntN(5))
				did := b.rules.fetched(from, part.Offset, 0, end, s.now, life, simMinISR)
				s.moved(b)
				if did.join && s.registered[from] != 0 {
					s.propose(b, append(slices.Clone(b.rules.isr), from))
				}
			}
		}
		a.Parts = append(a.Parts, d)
	}
	return a, end
}

// propose asks the controller for another in-sync set, until it has answered.
func (s *sim) propose(b *simBroker, isr []int32) {
	b.rules.propose(isr)
	life, ask := b.life, ISRChange{LeaderEpoch: b.rules.epoch, PartitionEpoch: b.rules.version, ISR: slices.Clone(isr)}
	still := func() bool {
		return b.up && b.life == life && b.rules.leads() && b.rules.epoch == ask.LeaderEpoch && b.rules.version == ask.PartitionEpoch && slices.Equal(b.rules.proposed, ask.ISR)
	}
	var m simMessage
	again := func() {
		if still() {
			s.send(m)
		}
	}
	m = simMessage{from: b.id, lost: again, do: func() {
		r := s.alter(b.id, life, ask)
		s.send(simMessage{to: 0, from: b.id, lost: again, do: func() {
			switch {
			case !still():
			case r.Err == nil:
				b.rules.decided(r.ISR, r.PartitionEpoch, s.now, simMinISR)
				s.moved(b)
			case r.Err == ErrNotEligible:
				b.rules.proposed = nil
			case r.Err == ErrNotLeader: // not to be answered now
				s.send(m)
			}
		}})
	}}
	s.send(m)
}

// alter is the controller's answer (cluster.alterISR).
func (s *sim) alter(from int32, life int64, ch ISRChange) ISRResult {
	st := &s.state
	same := ch.LeaderEpoch == st.LeaderEpoch && st.Leader == from && slices.Equal(ch.ISR, st.ISR) && ch.PartitionEpoch <= st.PartitionEpoch
	switch {
	case s.registered[from] != life:
		return ISRResult{Err: ErrNotLeader} // stale broker epoch
	case ch.LeaderEpoch < st.LeaderEpoch:
		return ISRResult{Err: ErrFencedEpoch}
	case same:
	case ch.PartitionEpoch < st.PartitionEpoch || st.Leader != from:
		return ISRResult{Err: ErrSuperseded}
	case slices.ContainsFunc(ch.ISR, func(id int32) bool { return s.registered[id] == 0 }):
		return ISRResult{Err: ErrNotEligible}
	default:
		st.ISR = slices.Clone(ch.ISR)
		st.PartitionEpoch++
		s.note("in sync are %v, version %d", st.ISR, st.PartitionEpoch)
	}
	return ISRResult{LeaderEpoch: st.LeaderEpoch, PartitionEpoch: st.PartitionEpoch, ISR: st.ISR}
}

// settle is the controller's decision after brokers have come or gone (cluster.settle): changed are those
// that are not who they were.
func (s *sim) settle(changed int32) {
	st := &s.state
	steady := func(id int32) bool { return s.registered[id] != 0 && id != changed }
	isr := slices.DeleteFunc(slices.Clone(st.ISR), func(id int32) bool { return !steady(id) })
	if len(isr) == 0 {
		isr = slices.DeleteFunc(slices.Clone(st.ISR), func(id int32) bool { return s.registered[id] == 0 })
	}
	leads := slices.Contains(isr, st.Leader) && st.Leader != changed
	if !leads || len(isr) != len(st.ISR) {
		if !leads {
			st.Leader = -1
			for _, id := range st.Replicas {
				if slices.Contains(isr, id) {
					st.Leader = id
					break
				}
			}
		}
		if len(isr) > 0 {
			st.ISR = isr
		}
		st.LeaderEpoch++
		st.PartitionEpoch++
		s.note("the controller: leader %d in epoch %d, in sync %v", st.Leader, st.LeaderEpoch, st.ISR)
	}
	s.tell()
}

// expire ends a registration, register makes it anew.
func (s *sim) expire(id int32) {
	if s.registered[id] != 0 {
		delete(s.registered, id)
		s.note("broker %d is gone for the controller", id)
		s.settle(id)
	}
}

func (s *sim) register(b *simBroker) {
	if b.up && s.registered[b.id] != b.life {
		s.registered[b.id] = b.life
		s.settle(b.id)
	}
}

func (s *sim) step() {
	b := s.b[1+s.rnd.IntN(simBrokers)]
	n := s.rnd.IntN(1000)
	if s.calm {
		n = s.rnd.IntN(980)
	}
	switch {
	case n < 500:
		s.deliver()
	case n < 750:
		s.fetch(b)
	case n < 900:
		if !s.calm {
			s.produce(b)
		}
	case n < 950:
		s.now += int64(s.rnd.IntN(20))
		if b.up {
			if late := b.rules.lagging(s.now); len(late) > 0 {
				s.propose(b, slices.DeleteFunc(slices.Clone(b.rules.isr), func(id int32) bool { return slices.Contains(late, id) }))
			}
		}
	case n < 980:
		s.register(b)
	case n < 983:
		if b.up {
			s.crash(b)
		}
	case n < 987:
		if !b.up {
			s.start(b)
		}
	case n < 992:
		if b.life != s.registered[b.id] || !b.up {
			s.expire(b.id)
		} else if s.rnd.IntN(4) == 0 { // it is well, and cannot reach the registry
			s.expire(b.id)
			b.life++ // it registers anew; what was for its former life is not for it
			b.asking = nil
		}
	case n < 995: // the controller fails over, and tells everything once more
		s.tell()
	default:
		o := s.rnd.IntN(simBrokers + 1)
		to := s.rnd.IntN(simBrokers + 1)
		s.cut[o][to] = !s.cut[o][to]
		if s.rnd.IntN(3) == 0 {
			clear(s.cut[:])
		}
	}
}

// heal ends all faults and lets everything come to rest.
func (s *sim) heal() {
	s.calm = true
	clear(s.cut[:])
	for _, b := range s.b[1:] {
		if !b.up {
			s.start(b)
		}
		if s.registered[b.id] != b.life {
			s.expire(b.id)
			s.register(b)
		}
	}
	for range 6000 {
		s.now++
		s.step()
	}
}

func TestSimulation(t *testing.T) {
	first, n := uint64(1), *simSeeds
	if *simSeed != 0 {
		first, n = *simSeed, 1
	}
	acked, elections := 0, int32(0)
	for seed := first; seed < first+uint64(n); seed++ {
		s := newSim(t, seed)
		t.Logf("seed %d", seed)
		for range 3000 {
			s.now++
			s.step()
		}
		s.heal()
		leader := s.state.Leader
		if leader < 0 || !s.b[leader].rules.leads() || len(s.state.ISR) != simBrokers {
			s.fail("seed %d: it does not come back: leader %d, in sync %v", seed, leader, s.state.ISR)
		}
		l := s.b[leader].log
		for offset, id := range s.acked {
			if offset >= l.End() || l.records[offset].id != id {
				s.fail("seed %d: %d was acknowledged at %d, and is lost", seed, id, offset)
			}
		}
		for _, b := range s.b[1:] {
			if !slices.Equal(b.log.records, l.records) {
				s.fail("seed %d: the log of broker %d differs from the leader's: ends at %d and %d", seed, b.id, b.log.End(), l.End())
			}
		}
		acked, elections = acked+len(s.acked), elections+s.state.LeaderEpoch
	}
	t.Logf("%d seeds: %d acknowledged, %d elections", n, acked, elections)
	if *simSeed == 0 && (acked < 10*n || elections < int32(n)) {
		t.Error("too little has happened")
	}
}
