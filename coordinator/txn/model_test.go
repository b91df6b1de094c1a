package txn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ottla/coordinator"
)

// Random producers of both kinds, their zombies, failing appends, time, and crashes between any
// two records, against partitions that keep the rules of Kafka's logs. What must hold:
//
//   - a transaction is committed in all the partitions it wrote to, or in none;
//   - one whose commit was answered is committed, one whose abort was answered is not;
//   - the last stable offset of a partition never waits for longer than the timeout;
//   - epochs of a transactional id never go back.
func TestRandomTransactions(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, uint64(seed))
			for range 300 {
				m.step()
			}
			m.settle()
		})
	}
}

const modelTimeout = 10 * time.Second

// modelLog is a partition: what producers have open in it, and what became of the rest.
type modelLog struct {
	epoch map[int64]int16
	open  map[int64][]int // transactions by number
	since map[int64]time.Duration
	ended map[int]bool // committed or not
}

// modelClient is a producer as it sees itself.
type modelClient struct {
	id      string
	version int16
	is      Producer
	number  int // of its transaction, 0: none
	touched []Partition
}

type fate int8

const (
	unknown fate = iota
	committed
	aborted
)

type model struct {
	*world
	r       *rand.Rand
	logs    map[Partition]*modelLog
	clients []*modelClient
	numbers int
	wrote   map[int][]Partition
	fates   map[int]fate
	highest map[string]Producer
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{world: newWorld(t), r: rand.New(rand.NewPCG(seed, 2)), logs: map[Partition]*modelLog{}, wrote: map[int][]Partition{},
		fates: map[int]fate{}, highest: map[string]Producer{}}
	m.o.Version = int16(m.r.IntN(3))
	for _, p := range []Partition{t0, t1, {"u", 0}} {
		m.logs[p] = &modelLog{epoch: map[int64]int16{}, open: map[int64][]int{}, since: map[int64]time.Duration{}, ended: map[int]bool{}}
	}
	for i := range 5 {
		m.clients = append(m.clients, &modelClient{id: []string{"a", "b"}[i%2], version: m.version(), is: Producer{-1, -1}})
	}
	return m
}

// version is what a client goes by: not more than the broker has agreed on.
func (m *model) version() int16 {
	if m.o.Version < 2 || m.r.IntN(2) == 0 {
		return 0
	}
	return 2
}

// try does something that may end in a crash; false: it did.
func (m *model) try(f func()) (lived bool) {
	m.crash = func() (bool, bool) {
		if m.r.IntN(40) == 0 {
			return true, m.r.IntN(2) == 0
		}
		return false, true
	}
	defer func() {
		m.crash = nil
		if r := recover(); r != nil {
			if _, is := r.(died); !is {
				panic(r)
			}
			m.now.Mono = 0
			m.now.Wall += int64(m.r.IntN(500))
			for _, l := range m.logs {
				for p := range l.since {
					l.since[p] = 0 // reckoned anew: the clock of before is gone
				}
			}
			m.restart()
			lived = false
		}
	}()
	f()
	return true
}

func (m *model) step() {
	m.failing = nil
	if m.r.IntN(15) == 0 {
		m.failing = coordinator.ErrNotAvailable
	}
	c := m.clients[m.r.IntN(len(m.clients))]
	switch m.r.IntN(12) {
	case 0, 1:
		m.init(c)
	case 2, 3, 4, 5:
		m.write(c)
	case 6, 7:
		m.finish(c, m.r.IntN(3) > 0)
	case 8, 9:
		m.try(m.marker)
	case 10:
		m.try(func() { m.advance(time.Duration(m.r.IntN(4000)) * time.Millisecond) })
	case 11:
		if m.r.IntN(4) == 0 {
			m.now.Mono = 0
			m.restart()
		}
	}
	m.failing = nil
	m.check()
}

func (m *model) init(c *modelClient) {
	var x *Producer
	if c.is.ID >= 0 && m.r.IntN(2) == 0 {
		is := c.is
		x = &is
	}
	m.try(func() {
		is, err := m.tryInit(InitRequest{ID: c.id, Timeout: int32(modelTimeout.Milliseconds()), Expected: x})
		if err != nil {
			return
		}
		if top, ok := m.highest[c.id]; ok && is.ID == top.ID && is.Epoch < top.Epoch {
			m.Fatalf("epoch %d of %s after %d", is.Epoch, c.id, top.Epoch)
		}
		m.highest[c.id] = is
		c.is, c.number, c.touched = is, 0, nil
	})
}

// write puts a record of the client's transaction into a partition, by the rules of a log.
func (m *model) write(c *modelClient) {
	parts := []Partition{t0, t1, {"u", 0}}
	p := parts[m.r.IntN(len(parts))]
	l := m.logs[p]
	if c.is.ID < 0 || c.is.Epoch < l.epoch[c.is.ID] {
		return
	}
	m.try(func() {
		if c.version < 2 && !slices.Contains(c.touched, p) {
			if m.add(c.id, c.is, 0, p) != nil {
				return
			}
			c.touched = append(c.touched, p)
		}
		if len(l.open[c.is.ID]) == 0 || l.epoch[c.is.ID] != c.is.Epoch {
			if c.version < 2 {
				errs, err := m.verify(c.id, c.is, p)
				if err != nil || errs[0] != nil {
					return
				}
			} else if m.add(c.id, c.is, 2, p) != nil {
				return
			}
			if len(l.open[c.is.ID]) > 0 {
				m.Fatalf("%s may write into %v, where its transaction of before has no marker yet", c.id, p)
			}
			l.since[c.is.ID] = m.now.Mono
		}
		if c.number == 0 {
			m.numbers++
			c.number = m.numbers
		}
		l.epoch[c.is.ID] = c.is.Epoch
		if !slices.Contains(l.open[c.is.ID], c.number) {
			l.open[c.is.ID] = append(l.open[c.is.ID], c.number)
			m.wrote[c.number] = append(m.wrote[c.number], p)
		}
	})
}

func (m *model) finish(c *modelClient, commit bool) {
	if c.is.ID < 0 || c.number == 0 {
		return
	}
	var is Producer
	err := errors.New("no answer")
	m.try(func() { is, err = m.end(c.id, c.is, c.version, commit) })
	switch {
	case err == nil:
		m.fates[c.number] = map[bool]fate{true: committed, false: aborted}[commit]
		c.is, c.number, c.touched = is, 0, nil
		if m.highest[c.id].ID == is.ID && is.Epoch > m.highest[c.id].Epoch {
			m.highest[c.id] = is
		}
	case errors.Is(err, ErrConcurrent), errors.Is(err, coordinator.ErrNotAvailable):
	default: // fenced, or what became of it is not known: it begins anew
		c.is, c.number, c.touched = Producer{-1, -1}, 0, nil
	}
}

// marker writes the marker of one ending to one of its partitions, and reports the last.
func (m *model) marker() {
	if len(m.endings) == 0 {
		return
	}
	i := m.r.IntN(len(m.endings))
	e := &m.endings[i]
	if len(e.Partitions) > 0 {
		m.writeMarker(*e, e.Partitions[0])
		e.Partitions = e.Partitions[1:]
		return
	}
	end := *e
	to := &coordinator.Ticket{}
	m.take(m.m.Completed(m.now, end, to))
	if _, err := answer[any](m.world, to); err == nil {
		m.endings = slices.Delete(m.endings, i, i+1)
	}
}

func (m *model) writeMarker(e Ending, p Partition) {
	l := m.logs[p]
	if e.Epoch < l.epoch[e.Producer] {
		return
	}
	if e.Version >= 2 && e.Epoch == l.epoch[e.Producer] && len(l.open[e.Producer]) > 0 {
		m.Fatalf("a marker of %s comes so late that the next transaction is open", e.ID)
	}
	for _, number := range l.open[e.Producer] {
		if _, twice := l.ended[number]; twice {
			m.Fatalf("transaction %d ends twice in %v", number, p)
		}
		l.ended[number] = e.Commit
	}
	delete(l.open, e.Producer)
	delete(l.since, e.Producer)
	l.epoch[e.Producer] = e.Epoch
}

// check: nothing stays open for longer than the timeout, but for what is decided and only lacks
// its markers, and what could not be written.
func (m *model) check() {
	m.Helper()
	for p, l := range m.logs {
		for producer, since := range l.since {
			if m.now.Mono-since <= modelTimeout+2*abortRetry {
				continue
			}
			for _, e := range m.m.ids {
				if e.producer == producer && e.state == Ongoing && e.due <= m.now.Mono {
					m.Fatalf("%v waits for a transaction of %s since %v", p, e.id, m.now.Mono-since)
				}
			}
		}
	}
}

// settle lets only time pass and markers be written; then everything must be decided, and each
// transaction in all of its partitions alike.
func (m *model) settle() {
	m.Helper()
	for range 1000 {
		m.advance(time.Second)
		m.marker()
	}
	for p, l := range m.logs {
		for producer, numbers := range l.open {
			m.Fatalf("%v: transactions %v of producer %d are open for ever", p, numbers, producer)
		}
	}
	for number := 1; number <= m.numbers; number++ {
		var is []bool
		for _, p := range m.wrote[number] {
			end, ok := m.logs[p].ended[number]
			if !ok {
				m.Fatalf("transaction %d has no end in %v", number, p)
			}
			is = append(is, end)
		}
		for _, end := range is {
			if end != is[0] {
				m.Fatalf("transaction %d is committed in a part of %v: %v", number, m.wrote[number], is)
			}
			if f := m.fates[number]; f == committed && !end || f == aborted && end {
				m.Fatalf("transaction %d: its end was answered %d, it is committed %v", number, f, end)
			}
		}
	}
}
