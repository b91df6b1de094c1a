package group

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ottla/coordinator"
)

// world drives one machine the way the runtime does, on a clock of its own, with a log that
// outlives the machine.
type world struct {
	testing.TB
	o       *Options
	m       *Machine
	now     coordinator.Instant
	log     []coordinator.Logged
	ends    map[int]bool // which of them are markers, and whether they commit
	answers map[*coordinator.Ticket]coordinator.Answer
	failing error // what appends answer
	ids     int
	cluster *cluster // what heartbeats of consumer groups tell of the topics
	holding bool     // records are in the log, and nobody knows it yet
	held    []heldStep
}

// heldStep is a step whose records are in the log and not committed.
type heldStep struct {
	e coordinator.Effects
	c coordinator.Commit
}

// commit lets the first step that is held go on; false: there is none.
func (w *world) commitHeld() bool {
	if len(w.held) == 0 {
		return false
	}
	h := w.held[0]
	w.held = w.held[1:]
	h.c.Now = w.now
	if h.e.Then != nil {
		w.take(h.e.Then(h.c))
	}
	w.release(h.e.Answers, h.c.Err)
	return true
}

const startOfTime = 1_700_000_000_000

func newWorld(t testing.TB) *world {
	w := &world{TB: t, o: Defaults(), now: coordinator.Instant{Wall: startOfTime}, ends: map[int]bool{}, answers: map[*coordinator.Ticket]coordinator.Answer{}}
	w.o.InitialRebalanceDelay = 0
	w.restart()
	return w
}

// restart reads the log into a new machine, as a broker does that was killed.
func (w *world) restart() {
	w.m = NewMachine(func() *Options { return w.o }, nil)
	for i, r := range w.log {
		if commit, is := w.ends[i]; is {
			w.m.ReplayMarker(r.Producer, commit)
		} else {
			w.m.Replay(r)
		}
	}
	w.take(w.m.Start(w.now))
}

// take gives effects what the runtime gives them.
func (w *world) take(e coordinator.Effects) {
	w.Helper()
	records, producer := e.Records, coordinator.Producer{ID: -1, Epoch: -1}
	if e.Producer != nil {
		if producer = *e.Producer; producer.End != nil {
			records = []coordinator.Record{{}}
		}
	}
	if len(records) == 0 {
		w.release(e.Answers, nil)
		return
	}
	c := coordinator.Commit{Now: w.now, Err: w.failing}
	if c.Err == nil {
		for _, r := range records {
			at := int64(len(w.log))
			if producer.End != nil {
				w.ends[int(at)] = producer.End.Commit
			}
			w.log = append(w.log, coordinator.Logged{Record: r, Offset: at, Time: w.now.Wall, Producer: producer.ID, Epoch: producer.Epoch})
			c.Offsets = append(c.Offsets, at)
		}
	}
	if w.holding {
		w.held = append(w.held, heldStep{e, c})
		return
	}
	if e.Then != nil {
		w.take(e.Then(c))
	}
	w.release(e.Answers, c.Err)
}

func (w *world) release(answers []coordinator.Answer, err error) {
	w.Helper()
	for _, a := range answers {
		if _, twice := w.answers[a.To]; twice {
			w.Fatalf("a request is answered twice: %+v, then %+v", w.answers[a.To], a)
		}
		if err != nil {
			a.Value, a.Err = nil, err
		}
		w.answers[a.To] = a
	}
}

// advance lets time pass, with everything that is due in it.
func (w *world) advance(d time.Duration) {
	w.Helper()
	end := w.now.Mono + d
	for w.m.Wake() <= end {
		w.to(max(w.m.Wake(), w.now.Mono))
		w.take(w.m.Tick(w.now))
	}
	w.to(end)
}

func (w *world) to(mono time.Duration) {
	w.now.Wall += (mono - w.now.Mono).Milliseconds()
	w.now.Mono = mono
}

func (w *world) sweep() { w.take(w.m.Sweep(w.now)) }

// await gives a request's answer; ok is false while there is none.
func await[T any](w *world, to *coordinator.Ticket) (v T, err error, ok bool) {
	a, ok := w.answers[to]
	v, _ = a.Value.(T)
	return v, a.Err, ok
}

func must[T any](w *world, to *coordinator.Ticket) T {
	w.Helper()
	v, err, ok := await[T](w, to)
	if !ok || err != nil {
		w.Fatalf("answer %v, error %v, answered %v", v, err, ok)
	}
	return v
}

// client is a member as a client sees it.
type client struct {
	*world
	group, id          string
	instance           *string
	generation         int32
	session, rebalance time.Duration
	protocols          []Protocol
	old                bool // of before KIP-394
}

func (w *world) client(group string) *client {
	return &client{world: w, group: group, session: 20 * time.Second, rebalance: 40 * time.Second, protocols: consumerProtocols("t")}
}

func (w *world) static(group, instance string) *client {
	c := w.client(group)
	c.instance = &instance
	return c
}

func consumerProtocols(topics ...string) []Protocol {
	b := []byte{0, 1, 0, 0, 0, byte(len(topics))}
	for _, t := range topics {
		b = append(b, 0, byte(len(t)))
		b = append(b, t...)
	}
	return []Protocol{{"range", append(b, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)}}
}

func (c *client) sendJoin() *coordinator.Ticket {
	c.Helper()
	c.ids++
	to := &coordinator.Ticket{}
	c.take(c.m.Join(c.now, JoinRequest{
		Group: c.group, MemberID: c.id, InstanceID: c.instance, Client: Client{"test", "/127.0.0.1"},
		ProtocolType: "consumer", Protocols: c.protocols, Session: c.session, Rebalance: c.rebalance,
		MemberIDRequired: !c.old, SkipsAssignment: true, NewMemberIDSuffix: fmt.Sprint(c.ids), Cluster: c.topics(),
	}, to))
	return to
}

// topics are the cluster's, if the test has any.
func (w *world) topics() Topics {
	if w.cluster == nil {
		return nil
	}
	return w.cluster
}

// joined takes over what a JoinGroup was answered.
func (c *client) joined(to *coordinator.Ticket) JoinAnswer {
	c.Helper()
	a := must[JoinAnswer](c.world, to)
	if a.Err == nil || errors.Is(a.Err, ErrMemberIDRequired) {
		c.id = a.MemberID
	}
	if a.Err == nil {
		c.generation = a.Generation
	}
	return a
}

func (c *client) pending() {
	c.Helper()
	if a := c.joined(c.sendJoin()); !errors.Is(a.Err, ErrMemberIDRequired) || c.id == "" {
		c.Fatalf("join without an id: %+v", a)
	}
}

// join joins and is answered at once.
func (c *client) join() JoinAnswer {
	c.Helper()
	if c.id == "" && c.instance == nil && !c.old {
		c.pending()
	}
	to := c.sendJoin()
	c.advance(0)
	return c.joined(to)
}

func (c *client) sendSync(others ...*client) *coordinator.Ticket {
	c.Helper()
	r := SyncRequest{Group: c.group, MemberID: c.id, InstanceID: c.instance, Generation: c.generation}
	for _, o := range others {
		r.Assignment = append(r.Assignment, Assigned{o.id, []byte("for " + o.id)})
	}
	to := &coordinator.Ticket{}
	c.take(c.m.Sync(c.now, r, to))
	return to
}

func (c *client) sync(others ...*client) (string, error) {
	c.Helper()
	a := must[SyncAnswer](c.world, c.sendSync(others...))
	return string(a.Assignment), a.Err
}

func (c *client) heartbeat() error {
	to := &coordinator.Ticket{}
	c.take(c.m.Heartbeat(c.now, HeartbeatRequest{c.group, c.id, c.instance, c.generation}, to))
	return c.answers[to].Err
}

func (c *client) leave() error {
	to := &coordinator.Ticket{}
	c.take(c.m.Leave(c.now, LeaveRequest{Group: c.group, Members: []Leaver{{c.id, c.instance}}}, to))
	v, err, _ := await[[]error](c.world, to)
	if err != nil {
		return err
	}
	return v[0]
}

func (c *client) commit(topic string, offset int64) error {
	return c.world.commit(CommitRequest{Group: c.group, MemberID: c.id, InstanceID: c.instance, Generation: c.generation, Retention: -1}, topic, offset)
}

func (w *world) commit(r CommitRequest, topic string, offset int64) error {
	r.Topics = []CommitTopic{{Name: topic, Partitions: []CommitPartition{{Offset: offset, LeaderEpoch: -1, Time: -1}}}}
	to := &coordinator.Ticket{}
	w.take(w.m.Commit(w.now, r, to))
	v, err, ok := await[[][]error](w, to)
	if !ok {
		w.Fatal("a commit is not answered")
	}
	if err != nil {
		return err
	}
	return v[0][0]
}

// alone is a commit from outside the group.
func alone(group string) CommitRequest {
	return CommitRequest{Group: group, Generation: -1, Retention: -1}
}

func (w *world) stored(group, topic string) int64 {
	w.Helper()
	to := &coordinator.Ticket{}
	w.take(w.m.Fetch(w.now, FetchRequest{Group: group, MemberEpoch: -1, Topics: []FetchTopic{{Name: topic, Partitions: []int32{0}}}}, to))
	f := must[[]FetchedTopic](w, to)[0].Partitions[0]
	if f.Err != nil {
		w.Fatal(f.Err)
	}
	return f.Offset
}

func (w *world) deleteGroup(id string) error {
	to := &coordinator.Ticket{}
	w.take(w.m.DeleteGroups(w.now, []string{id}, to))
	v, err, _ := await[[]error](w, to)
	if err != nil {
		return err
	}
	return v[0]
}

func (w *world) describe(id string) Described {
	to := &coordinator.Ticket{}
	w.take(w.m.Describe(id, to))
	return must[Described](w, to)
}

// settle lets clients join, the first the leader, and sync.
func settle(cs ...*client) {
	lead := cs[0]
	lead.Helper()
	if lead.id == "" {
		want(lead, "first join", lead.join().Err, nil)
	}
	var waits []*coordinator.Ticket
	for _, c := range cs[1:] {
		if c.id == "" && c.instance == nil && !c.old {
			c.pending()
		}
		waits = append(waits, c.sendJoin())
	}
	if len(cs) > 1 {
		waits = append([]*coordinator.Ticket{lead.sendJoin()}, waits...)
		lead.advance(0)
		for i, c := range cs {
			a := c.joined(waits[i])
			want(lead, "join", a.Err, nil)
			want(lead, "leader", a.Leader, lead.id)
			want(lead, "generation", a.Generation, lead.generation)
			if c == lead {
				want(lead, "members told to the leader", len(a.Members), len(cs))
			} else {
				want(lead, "members told to a follower", len(a.Members), 0)
			}
		}
	}
	for _, c := range cs {
		others := cs
		if c != lead {
			others = nil
		}
		got, err := c.sync(others...)
		want(lead, "sync", err, nil)
		want(lead, "assignment", got, "for "+c.id)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if err, is := any(want).(error); is {
		if g, _ := any(got).(error); errors.Is(g, err) {
			return
		}
	}
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}
