package group

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"ottla/coordinator"
)

// Random members, commits, deletions, time, failing appends and restarts against what a group
// promises:
//
//   - a committed offset is there until it is deleted or its time is up, through anything;
//   - an offset whose commit failed is not there;
//   - the generations that a group hands out never go back while its coordinator lives, and
//     over restarts never behind the last one that became stable;
//   - whoever syncs a generation gets exactly the bytes that its leader sent;
//   - a request that waits is answered once, and none waits forever.
func TestRandomGroups(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, uint64(seed))
			for range 400 {
				m.step()
			}
			m.settleDown()
		})
	}
}

type modelMember struct {
	*client
	join, sync *coordinator.Ticket
	asLeader   bool
	sent       map[string]string
	synced     bool
}

type model struct {
	*world
	r          *rand.Rand
	members    []*modelMember
	offsets    map[string]int64 // group/topic -> offset
	kept       map[string]time.Duration
	generation map[string]int32             // highest handed out, by group
	stable     map[string]int32             // highest that became stable, by group
	sent       map[string]map[string]string // group/generation/leader -> member id -> bytes
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{world: newWorld(t), r: rand.New(rand.NewPCG(seed, 1)), offsets: map[string]int64{}, kept: map[string]time.Duration{},
		generation: map[string]int32{}, stable: map[string]int32{}, sent: map[string]map[string]string{}}
	m.o.InitialRebalanceDelay = time.Duration(m.r.IntN(3)) * time.Second
	m.o.MaxSize = 2 + m.r.IntN(5)
	m.o.Retention = 10 * time.Minute
	for i := range 6 {
		m.members = append(m.members, m.newMember(i))
	}
	return m
}

func (m *model) newMember(i int) *modelMember {
	c := m.client([]string{"g", "h"}[m.r.IntN(2)])
	if m.r.IntN(3) == 0 {
		c = m.static(c.group, fmt.Sprint("i", i%3))
	}
	c.old = m.r.IntN(4) == 0
	c.session = time.Duration(6+m.r.IntN(20)) * time.Second
	c.rebalance = time.Duration(5+m.r.IntN(40)) * time.Second
	c.protocols = consumerProtocols([]string{"t", "u"}[:1+m.r.IntN(2)]...)
	return &modelMember{client: c}
}

func (m *model) step() {
	m.failing = nil
	if m.r.IntN(10) == 0 {
		m.failing = coordinator.ErrNotAvailable
	}
	i := m.r.IntN(len(m.members))
	c := m.members[i]
	switch m.r.IntN(14) {
	case 0, 1, 2, 3:
		m.proceed(c)
	case 4:
		c.heartbeat()
	case 5:
		if c.id != "" && m.r.IntN(3) == 0 {
			c.leave()
			m.members[i] = m.newMember(i)
		}
	case 6: // the client is killed; a static one comes back under its name
		n := m.newMember(i)
		n.group, n.instance = c.group, c.instance
		m.members[i] = n
	case 7, 8:
		m.doCommit(c)
	case 9, 10:
		m.advance(time.Duration(m.r.IntN(4000)) * time.Millisecond)
	case 11:
		m.now.Wall += int64(m.r.IntN(2000)) - 1000
	case 12:
		if m.r.IntN(4) == 0 {
			m.sweep()
		} else if m.r.IntN(4) == 0 {
			m.delete()
		}
	case 13:
		if m.r.IntN(3) == 0 {
			m.crash()
		}
	}
	m.failing = nil
	for _, c := range m.members {
		m.collect(c)
	}
	m.checkOffsets()
	for g := range m.generation {
		if m.m.groups[g] == nil { // a group that is gone begins anew
			m.generation[g], m.stable[g] = 0, 0
		}
	}
}

// proceed does what the client would do next.
func (m *model) proceed(c *modelMember) {
	switch {
	case c.join != nil || c.sync != nil:
	case c.id == "" || c.generation == 0 || c.synced && m.r.IntN(8) == 0:
		c.join, c.synced = c.sendJoin(), false
	case !c.synced:
		var r SyncRequest
		r.Group, r.MemberID, r.InstanceID, r.Generation = c.group, c.id, c.instance, c.generation
		if c.asLeader {
			for id, data := range c.sent {
				r.Assignment = append(r.Assignment, Assigned{id, []byte(data)})
			}
		}
		c.sync = &coordinator.Ticket{}
		m.take(m.m.Sync(m.now, r, c.sync))
	}
}

// collect takes answers that have come.
func (m *model) collect(c *modelMember) {
	if c.join != nil {
		if a, err, ok := await[JoinAnswer](m.world, c.join); ok {
			c.join = nil
			if err == nil {
				err = a.Err
			}
			switch {
			case err == nil:
				c.id, c.generation = a.MemberID, a.Generation
				if a.Generation < m.generation[c.group] {
					m.Fatalf("generation %d of %s after %d", a.Generation, c.group, m.generation[c.group])
				}
				m.generation[c.group] = a.Generation
				c.asLeader, c.sent = a.Leader == c.id && !a.Skip, map[string]string{}
				if c.asLeader {
					for _, o := range a.Members {
						c.sent[o.MemberID] = fmt.Sprintf("%s %d by %s: %d", o.MemberID, a.Generation, c.id, m.r.IntN(1000))
					}
					m.sent[m.key(c)] = c.sent
				}
			case errors.Is(err, ErrMemberIDRequired):
				c.id = a.MemberID
			default:
				c.id, c.generation = "", 0
			}
		}
	}
	if c.sync != nil {
		if a, err, ok := await[SyncAnswer](m.world, c.sync); ok {
			c.sync = nil
			if err == nil {
				err = a.Err
			}
			if err != nil {
				c.generation = 0
				if errors.Is(err, ErrUnknownMember) || errors.Is(err, ErrFencedInstance) {
					c.id = ""
				}
				return
			}
			c.synced = true
			m.checkAssignment(c, a)
			m.stable[c.group] = max(m.stable[c.group], c.generation)
		}
	}
}

func (m *model) key(c *modelMember) string { return fmt.Sprint(c.group, "/", c.generation) }

// checkAssignment: the bytes are those that the generation's leader sent for this member, or
// for the one whose place it took.
func (m *model) checkAssignment(c *modelMember, a SyncAnswer) {
	sent := m.sent[m.key(c)]
	got := string(a.Assignment)
	if got == sent[c.id] {
		return
	}
	if c.instance != nil {
		for _, data := range sent {
			if got == data || got == "" {
				return
			}
		}
	}
	m.Fatalf("member %s of generation %d has %q, its leader sent %q", c.id, c.generation, got, sent)
}

func (m *model) doCommit(c *modelMember) {
	topic := []string{"t", "u"}[m.r.IntN(2)]
	at := int64(m.r.IntN(1000))
	r := alone(c.group)
	if m.r.IntN(2) == 0 {
		r.MemberID, r.Generation, r.InstanceID = c.id, c.generation, c.instance
	}
	if m.commit(r, topic, at) == nil {
		m.offsets[c.group+"/"+topic] = at
		m.kept[c.group+"/"+topic] = m.now.Mono
	}
}

func (m *model) delete() {
	g := []string{"g", "h"}[m.r.IntN(2)]
	if m.deleteGroup(g) == nil {
		delete(m.offsets, g+"/t")
		delete(m.offsets, g+"/u")
	}
}

// crash restarts the coordinator. Who waits learns it, or has lost the connection.
func (m *model) crash() {
	m.release(m.m.Stop(), nil)
	for _, c := range m.members {
		m.collect(c)
	}
	m.restart()
	for g := range m.generation {
		m.generation[g] = m.stable[g]
	}
}

func (m *model) checkOffsets() {
	m.Helper()
	for _, g := range []string{"g", "h"} {
		for _, topic := range []string{"t", "u"} {
			key := g + "/" + topic
			expected, ok := m.offsets[key]
			got := m.stored(g, topic)
			switch {
			case !ok && got == -1, ok && got == expected:
			case ok && got == -1 && m.now.Mono-m.kept[key] > m.o.Retention-time.Minute:
				delete(m.offsets, key) // its time may be up; the clock has stepped a little
			default:
				m.Fatalf("offset of %s is %d, committed was %d (%v)", key, got, expected, ok)
			}
		}
	}
}

// settleDown lets only time pass: nobody may wait for longer than the longest timeout.
func (m *model) settleDown() {
	m.advance(10 * time.Minute)
	for _, c := range m.members {
		m.collect(c)
		if c.join != nil || c.sync != nil {
			m.Fatalf("a request of %s waits forever; group %+v", c.id, m.describe(c.group))
		}
	}
}
