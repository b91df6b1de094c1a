package group

import (
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ottla/coordinator"
)

// cluster is a set of topics for heartbeats: partitions by name.
type cluster struct {
	topics  map[string]int32
	version int64
	racks   []string // of every partition's replicas
}

func topicID(name string) (id TopicID) {
	copy(id[:], name)
	id[15] = 1
	return id
}

func (c *cluster) Topic(name string) (TopicID, int32, bool) {
	n, ok := c.topics[name]
	return topicID(name), n, ok
}
func (c *cluster) Racks(string, int32) []string { return c.racks }
func (c *cluster) Names() iter.Seq[string]      { return maps.Keys(c.topics) }
func (c *cluster) Version() int64               { return c.version }

// with is the cluster with one topic more, or of another size.
func (c *cluster) with(name string, partitions int32) *cluster {
	topics := maps.Clone(c.topics)
	topics[name] = partitions
	return &cluster{topics, c.version + 1, c.racks}
}

// party is a member of a consumer group as a client sees it: it does what it is told.
type party struct {
	*world
	group, id string
	instance  *string
	regex     *string
	assignor  *string
	topics    []string
	epoch     int32
	owned     Assignment
}

func (w *world) party(group, id string, topics ...string) *party {
	return &party{world: w, group: group, id: id, topics: topics}
}

func (p *party) request() ConsumerHeartbeatRequest {
	r := ConsumerHeartbeatRequest{Group: p.group, MemberID: p.id, Epoch: p.epoch, InstanceID: p.instance, NamesItself: true,
		Rebalance: -1, Client: Client{"c", "/127.0.0.1"}, Owned: maps.Clone(p.owned), Cluster: p.world.cluster}
	if r.Owned == nil {
		r.Owned = Assignment{}
	}
	if p.epoch == 0 {
		r.Rebalance, r.Topics, r.Regex, r.Assignor = 60000, p.topics, p.regex, p.assignor
	}
	return r
}

// ask sends a request and takes in its answer.
func (p *party) ask(r ConsumerHeartbeatRequest) (ConsumerHeartbeatAnswer, error) {
	p.Helper()
	return p.answered(p.send(r))
}

func (p *party) send(r ConsumerHeartbeatRequest) *coordinator.Ticket {
	to := &coordinator.Ticket{}
	p.take(p.m.ConsumerHeartbeat(p.now, r, to))
	return to
}

func (p *party) answered(to *coordinator.Ticket) (ConsumerHeartbeatAnswer, error) {
	p.Helper()
	a, err, ok := await[ConsumerHeartbeatAnswer](p.world, to)
	if !ok {
		p.Fatal("no answer")
	}
	if err == nil && a.Epoch >= 0 {
		p.epoch = a.Epoch
		if a.Assignment != nil {
			p.owned = a.Assignment
		}
	}
	return a, err
}

func (p *party) beat() error {
	p.Helper()
	_, err := p.ask(p.request())
	return err
}

func (p *party) leave(epoch int32) error {
	p.Helper()
	r := p.request()
	r.Epoch = epoch
	_, err := p.ask(r)
	if err == nil {
		p.epoch, p.owned = 0, nil
	}
	return err
}

// reconcileAll lets all beat until nothing changes.
func reconcileAll(t testing.TB, all ...*party) {
	t.Helper()
	for range 20 {
		before := make([]party, len(all))
		for i, p := range all {
			before[i] = *p
			if err := p.beat(); err != nil {
				t.Fatalf("%s: %v", p.id, err)
			}
		}
		same := true
		for i, p := range all {
			same = same && before[i].epoch == p.epoch && before[i].owned.equal(p.owned)
		}
		if same {
			return
		}
	}
	t.Fatal("the group does not settle")
}

func (w *world) consumer(id string) ConsumerDescribed {
	w.Helper()
	to := &coordinator.Ticket{}
	w.take(w.m.DescribeConsumer(id, to))
	return must[ConsumerDescribed](w, to)
}

func sizes(all ...*party) (n []int) {
	for _, p := range all {
		sum := 0
		for _, ps := range p.owned {
			sum += len(ps)
		}
		n = append(n, sum)
	}
	return n
}

// checkOwners fails when two members have, or are told that they have, one partition.
func checkOwners(t testing.TB, all []*party) {
	t.Helper()
	owner := map[topicPartition]string{}
	for _, p := range all {
		for id, ps := range p.owned {
			for _, n := range ps {
				at := topicPartition{id, n}
				if o := owner[at]; o != "" {
					t.Fatalf("partition %d of %s is with %s and %s", n, id[:4], o, p.id)
				}
				owner[at] = p.id
			}
		}
	}
}

// sameConsumers fails when a machine that reads the log anew differs from the one that wrote it.
func (w *world) sameConsumers(id string) {
	w.Helper()
	was := w.m.groups[id]
	m := NewMachine(func() *Options { return w.o }, nil)
	for _, r := range w.log {
		m.Replay(r)
	}
	is := m.groups[id]
	if (was == nil || was.consumer == nil) != (is == nil || is.consumer == nil) {
		w.Fatalf("group %v in memory, %v in the log", was, is)
	}
	if was == nil || was.consumer == nil {
		return
	}
	a, b := was.consumer, is.consumer
	if a.epoch != b.epoch || a.hash != b.hash || a.targetAt != b.targetAt || !maps.Equal(a.instances, b.instances) || !maps.Equal(a.owners, b.owners) ||
		!maps.EqualFunc(a.targets, b.targets, Assignment.equal) || !maps.EqualFunc(a.regexes, b.regexes, slices.Equal[[]string]) ||
		!maps.EqualFunc(a.members, b.members, func(x, y *consumerMember) bool { return x.told(y) && x.stands(y) }) {
		w.Fatalf("in memory %+v\nin the log %+v", a, b)
	}
}

// TestConsumerModel: members come, go, fall silent and come back, topics grow, the coordinator
// moves; at every moment each partition has one owner at most, epochs only grow, and in the end
// all partitions are with somebody.
func TestConsumerModel(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 848))
		w := newWorld(t)
		w.o.Consumer.Assignors = []string{[]string{"uniform", "range", "roundrobin", "block"}[seed%4]}
		w.cluster = &cluster{topics: map[string]int32{"a": 7, "b": 3}, version: 1}
		var all []*party
		epoch := int32(0)
		re := "a|b|c"
		for i := range 6 {
			p := w.party("g", string(rune('m'+i)))
			switch i % 3 {
			case 0:
				p.topics = []string{"a", "b"}
			case 1:
				p.topics = []string{"a"}
			case 2:
				p.regex = &re
			}
			if i >= 4 {
				name := "i" + p.id
				p.instance = &name
			}
			all = append(all, p)
		}
		in := map[*party]bool{}
		drop := func(p *party) { p.epoch, p.owned = 0, nil; delete(in, p) }
		for range 150 {
			p := all[rnd.IntN(len(all))]
			switch n := rnd.IntN(20); {
			case n < 13:
				late := in[p]
				if err := p.beat(); err != nil {
					if late {
						drop(p) // fenced, or its session is over
					}
				} else {
					in[p] = true
				}
			case n == 13 && in[p]:
				epoch := int32(leaveEpoch)
				if p.instance != nil && rnd.IntN(2) == 0 {
					epoch = leaveStaticEpoch
				}
				p.leave(epoch)
				drop(p)
			case n == 14:
				w.advance(time.Duration(rnd.IntN(50)) * time.Second)
				for _, p := range all { // who heartbeats late finds out before it reads on
					if in[p] && p.beat() != nil {
						drop(p)
					}
				}
			case n == 15:
				w.restart()
			case n == 16:
				w.cluster = w.cluster.with([]string{"a", "b", "c"}[rnd.IntN(3)], int32(7+rnd.IntN(4)))
			case n == 17 && in[p]: // an answer is lost
				was := *p
				p.beat()
				p.epoch, p.owned = was.epoch, was.owned
			case n == 18:
				w.failing = coordinator.ErrNotAvailable
				p.ask(p.request())
				w.failing = nil
			}
			checkOwners(t, all)
			w.sameConsumers("g")
			if g := w.m.groups["g"]; g != nil && g.consumer != nil {
				if g.consumer.epoch < epoch {
					t.Fatalf("seed %d: epoch %d after %d", seed, g.consumer.epoch, epoch)
				}
				epoch = g.consumer.epoch
			}
		}
		w.advance(2 * time.Minute) // all are out but who comes now
		var last []*party
		for _, p := range all {
			drop(p)
			if p.instance == nil && len(p.topics) != 1 {
				last = append(last, p)
			}
		}
		reconcileAll(t, last...)
		checkOwners(t, last)
		want := int(w.cluster.topics["a"] + w.cluster.topics["b"] + w.cluster.topics["c"])
		sum := 0
		for _, n := range sizes(last...) {
			sum += n
		}
		if sum != want {
			t.Fatalf("seed %d: %v of %d partitions assigned", seed, sizes(last...), want)
		}
	}
}
