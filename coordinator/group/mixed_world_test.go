package group

import (
	"errors"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/coordinator"
)

// veteran is a member that speaks the classic protocol as a Java consumer does: it joins, syncs and
// heartbeats, gives partitions back when it is told to, and assigns when it leads.
type veteran struct {
	*client
	topics []string
	eager  bool // gives everything back before it joins; else it tells what it has (KIP-429)
	owned  Assignment
	joins  *coordinator.Ticket
	syncs  *coordinator.Ticket
	leads  []JoinedMember // whom it has to assign to
	ready  bool           // joined, and has to sync
	stable bool
	again  bool // has given back partitions, and will join again
	killed bool
}

func (w *world) veteran(group string, topics ...string) *veteran {
	return &veteran{client: w.client(group), topics: topics}
}

func (w *world) topicName(id TopicID) string {
	for name := range w.cluster.topics {
		if topicID(name) == id {
			return name
		}
	}
	w.Fatalf("topic %q is not known", id)
	return ""
}

func (v *veteran) metadata() []Protocol {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics, m.Generation = 3, v.topics, v.generation
	name := "range"
	if !v.eager {
		name = "cooperative-sticky"
		for _, id := range v.owned.Topics() {
			o := kmsg.NewConsumerMemberMetadataOwnedPartition()
			o.Topic, o.Partitions = v.topicName(id), v.owned[id]
			m.OwnedPartitions = append(m.OwnedPartitions, o)
		}
	}
	return []Protocol{{name, m.AppendTo(nil)}}
}

// step does what the client would do next.
func (v *veteran) step() {
	v.Helper()
	switch v.collect(); {
	case v.joins != nil || v.syncs != nil:
	case v.ready:
		v.syncs = v.sendParts()
	case v.stable && !v.again:
		v.beat()
	default:
		if v.eager {
			v.owned = nil
		}
		v.protocols = v.metadata()
		v.joins, v.stable, v.again = v.sendJoin(), false, false
	}
	v.collect()
}

func (v *veteran) beat() {
	switch err := v.heartbeat(); {
	case err == nil, errors.Is(err, coordinator.ErrNotAvailable):
	case errors.Is(err, ErrRebalanceInProgress):
		v.again = true
	default:
		v.lost(err)
	}
}

// lost gives up everything: the group goes on without this member, or without its generation.
func (v *veteran) lost(err error) {
	v.owned, v.generation, v.ready, v.stable, v.again = nil, -1, false, false, false
	if !errors.Is(err, ErrIllegalGeneration) {
		v.id = ""
	}
}

func (v *veteran) collect() {
	v.Helper()
	if v.joins != nil {
		if a, err, ok := await[JoinAnswer](v.world, v.joins); ok {
			v.joins = nil
			if err == nil {
				err = a.Err
			}
			switch {
			case err == nil:
				v.id, v.generation, v.ready, v.leads = a.MemberID, a.Generation, true, a.Members
			case errors.Is(err, ErrMemberIDRequired):
				v.id = a.MemberID
			case errors.Is(err, ErrRebalanceInProgress), errors.Is(err, coordinator.ErrNotAvailable), errors.Is(err, coordinator.ErrNotCoordinator):
			default:
				v.lost(err)
			}
		}
	}
	if v.syncs != nil {
		if a, err, ok := await[SyncAnswer](v.world, v.syncs); ok {
			v.syncs, v.ready = nil, false
			if err == nil {
				err = a.Err
			}
			switch {
			case err == nil:
				v.assigned(a.Assignment)
			case errors.Is(err, ErrRebalanceInProgress), errors.Is(err, coordinator.ErrNotAvailable), errors.Is(err, coordinator.ErrNotCoordinator):
			default:
				v.lost(err)
			}
		}
	}
}

func (v *veteran) assigned(data []byte) {
	v.Helper()
	got, err := readAssigned(data, v.world.cluster)
	if err != nil {
		v.Fatal(err)
	}
	for id, all := range v.owned {
		for _, p := range all {
			v.again = v.again || !got.has(id, p) // what it gives back others wait for
		}
	}
	v.owned, v.stable = got, true
}

// sendParts syncs; a leader deals the partitions out in turn, but none that another has still.
func (v *veteran) sendParts() *coordinator.Ticket {
	r := SyncRequest{Group: v.group, MemberID: v.id, InstanceID: v.instance, Generation: v.generation, Cluster: v.world.topics()}
	parts := map[string]Assignment{}
	owner := map[topicPartition]string{}
	readers := map[string][]string{}
	for _, m := range v.leads {
		told, err := readSubscription(m.Metadata)
		if err != nil {
			v.Fatal(err)
		}
		parts[m.MemberID] = Assignment{}
		for _, t := range told.topics {
			readers[t] = append(readers[t], m.MemberID)
		}
		for id, all := range told.partitions(v.world.cluster) {
			for _, p := range all {
				owner[topicPartition{id, p}] = m.MemberID
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(readers)) {
		id, n, ok := v.world.cluster.Topic(name)
		for p := int32(0); ok && p < n; p++ {
			to := readers[name][int(p)%len(readers[name])]
			if o := owner[topicPartition{id, p}]; o == "" || o == to {
				parts[to].add(id, p)
			}
		}
	}
	for _, m := range v.leads {
		data := appendAssigned(parts[m.MemberID], m.Metadata, func(id TopicID) (string, bool) { return v.topicName(id), true })
		r.Assignment = append(r.Assignment, Assigned{m.MemberID, data})
	}
	to := &coordinator.Ticket{}
	v.take(v.m.Sync(v.now, r, to))
	return to
}

// crash restarts the coordinator; who waits learns it, and whose records are in the log does not.
func (w *world) crash() {
	for _, h := range w.held {
		w.release(h.e.Answers, coordinator.ErrNotCoordinator)
	}
	w.held, w.holding = nil, false
	w.release(w.m.Stop(), nil)
	w.restart()
}

// both kinds of members of one group.
type mixed struct {
	*world
	parties  []*party
	veterans []*veteran
}

func (x *mixed) checkOwners() {
	x.Helper()
	owner := map[topicPartition]string{}
	check := func(who string, owned Assignment) {
		for id, all := range owned {
			for _, p := range all {
				at := topicPartition{id, p}
				if o := owner[at]; o != "" {
					x.Fatalf("partition %d of %s is with %s and %s", p, id[:1], o, who)
				}
				owner[at] = who
			}
		}
	}
	for _, p := range x.parties {
		check(p.id, p.owned)
	}
	for _, v := range x.veterans {
		if !v.killed {
			check(v.id, v.owned)
		}
	}
}

func (x *mixed) count() (n int) {
	for _, p := range x.parties {
		n += sizes(p)[0]
	}
	for _, v := range x.veterans {
		if !v.killed {
			for _, all := range v.owned {
				n += len(all)
			}
		}
	}
	return n
}

// settle lets everybody do what it does, a second apart, until nothing has changed for a while.
func (x *mixed) settle() {
	x.Helper()
	quiet := 0
	for round := range 400 {
		before := x.snapshot()
		for _, p := range x.parties {
			if err := p.beat(); err != nil {
				p.epoch, p.owned = 0, nil
			}
			x.checkOwners()
		}
		for _, v := range x.veterans {
			if !v.killed {
				v.step()
				x.checkOwners()
			}
		}
		x.advance(1e9)
		for _, v := range x.veterans {
			if !v.killed {
				v.collect()
			}
		}
		x.checkOwners()
		if quiet++; before != x.snapshot() {
			quiet = 0
		}
		if quiet > 8 && round > 8 {
			return
		}
	}
	x.Fatalf("the group does not settle: %s", x.snapshot())
}

func (x *mixed) snapshot() string {
	s := ""
	for _, p := range x.parties {
		s += x.line(p.id, p.epoch, p.owned, false)
	}
	for _, v := range x.veterans {
		if !v.killed {
			s += x.line(v.id, v.generation, v.owned, v.joins != nil || v.syncs != nil || v.ready || v.again)
		}
	}
	return s
}

func (x *mixed) line(id string, epoch int32, owned Assignment, busy bool) string {
	b := []byte(id)
	b = append(b, ' ', byte('0'+epoch%10), ' ')
	for _, t := range owned.Topics() {
		b = append(append(b, t[0]), '[')
		for _, p := range owned[t] {
			b = append(b, byte('0'+p))
		}
		b = append(b, ']')
	}
	if busy {
		b = append(b, '~')
	}
	return string(append(b, '\n'))
}
