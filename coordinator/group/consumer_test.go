package group

import (
	"errors"
	"slices"
	"testing"
	"time"

	"ottla/coordinator"
)

func consumerWorld(t *testing.T, topics map[string]int32) *world {
	w := newWorld(t)
	w.cluster = &cluster{topics: topics, version: 1}
	return w
}

func ptr(s string) *string { return &s }

// TestConsumerHeartbeatChecks: what is wrong with a request by itself, and what the state of the
// group makes wrong, each with the answer that Kafka 4.4 gives.
func TestConsumerHeartbeatChecks(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"a": 4})
	one, static := w.party("g", "one", "a"), w.party("g", "two", "a")
	static.instance = ptr("i")
	reconcileAll(t, one, static)
	join := func(change func(*ConsumerHeartbeatRequest)) ConsumerHeartbeatRequest {
		r := w.party("g", "new", "a").request()
		change(&r)
		return r
	}
	of := func(p *party, change func(*ConsumerHeartbeatRequest)) ConsumerHeartbeatRequest {
		r := p.request()
		change(&r)
		return r
	}
	for name, x := range map[string]struct {
		r    ConsumerHeartbeatRequest
		want error
	}{
		"no group":                        {join(func(r *ConsumerHeartbeatRequest) { r.Group = "" }), ErrInvalidRequest},
		"no member id, v1":                {join(func(r *ConsumerHeartbeatRequest) { r.MemberID = "" }), ErrInvalidRequest},
		"no member id, later":             {join(func(r *ConsumerHeartbeatRequest) { r.MemberID, r.NamesItself, r.Epoch = "", false, 1 }), ErrInvalidRequest},
		"empty instance":                  {join(func(r *ConsumerHeartbeatRequest) { r.InstanceID = ptr("") }), ErrInvalidRequest},
		"empty rack":                      {join(func(r *ConsumerHeartbeatRequest) { r.RackID = ptr("") }), ErrInvalidRequest},
		"joins without timeout":           {join(func(r *ConsumerHeartbeatRequest) { r.Rebalance = -1 }), ErrInvalidRequest},
		"joins with partitions":           {join(func(r *ConsumerHeartbeatRequest) { r.Owned = Assignment{topicID("a"): {0}} }), ErrInvalidRequest},
		"joins, partitions null":          {join(func(r *ConsumerHeartbeatRequest) { r.Owned = nil }), ErrInvalidRequest},
		"joins without topics":            {join(func(r *ConsumerHeartbeatRequest) { r.Topics = nil }), ErrInvalidRequest},
		"no such epoch":                   {join(func(r *ConsumerHeartbeatRequest) { r.Epoch = -3 }), ErrInvalidRequest},
		"away without instance":           {of(one, func(r *ConsumerHeartbeatRequest) { r.Epoch = leaveStaticEpoch }), ErrInvalidRequest},
		"unknown assignor":                {join(func(r *ConsumerHeartbeatRequest) { r.Assignor = ptr("block") }), ErrUnsupportedAssignor},
		"bad expression":                  {join(func(r *ConsumerHeartbeatRequest) { r.Regex = ptr("a(?=b)") }), ErrInvalidRegex},
		"group unknown":                   {join(func(r *ConsumerHeartbeatRequest) { r.Group, r.Epoch = "none", 1 }), ErrGroupNotFound},
		"leaves a group unknown":          {join(func(r *ConsumerHeartbeatRequest) { r.Group, r.Epoch = "none", -1 }), ErrGroupNotFound},
		"member unknown":                  {join(func(r *ConsumerHeartbeatRequest) { r.Epoch = 1 }), ErrUnknownMember},
		"leaver unknown":                  {join(func(r *ConsumerHeartbeatRequest) { r.Epoch = -1 }), ErrUnknownMember},
		"epoch too high":                  {of(one, func(r *ConsumerHeartbeatRequest) { r.Epoch++ }), ErrFencedMemberEpoch},
		"epoch too low":                   {of(one, func(r *ConsumerHeartbeatRequest) { r.Epoch = 1 }), ErrFencedMemberEpoch},
		"instance in use":                 {join(func(r *ConsumerHeartbeatRequest) { r.InstanceID = ptr("i") }), ErrUnreleasedInstance},
		"instance of another":             {of(static, func(r *ConsumerHeartbeatRequest) { r.MemberID = "three" }), ErrFencedInstance},
		"instance unknown":                {of(static, func(r *ConsumerHeartbeatRequest) { r.InstanceID = ptr("j") }), ErrUnknownMember},
		"leaves with instance of another": {of(static, func(r *ConsumerHeartbeatRequest) { r.MemberID, r.Epoch = "three", -1 }), ErrFencedInstance},
		"all is well":                     {one.request(), nil},
	} {
		before := len(w.log)
		to := &coordinator.Ticket{}
		w.take(w.m.ConsumerHeartbeat(w.now, x.r, to))
		if _, err, ok := await[ConsumerHeartbeatAnswer](w, to); !ok || !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
		if len(w.log) != before {
			t.Errorf("%s: wrote %d records", name, len(w.log)-before)
		}
	}
}

// TestConsumerReconciliation: a second member gets partitions only when the first has told that it
// gave them back; epochs are those of Kafka 4.4.
func TestConsumerReconciliation(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"a": 4})
	one, two := w.party("g", "one", "a"), w.party("g", "two", "a")
	one.beat()
	if one.epoch != 2 || sizes(one)[0] != 4 {
		t.Fatalf("epoch %d with %v", one.epoch, one.owned)
	}
	two.beat()
	if two.epoch != 3 || len(two.owned) != 0 {
		t.Fatalf("second: epoch %d with %v", two.epoch, two.owned)
	}
	if s := w.consumer("g").State; s != "Reconciling" {
		t.Errorf("state %s", s)
	}
	had := one.owned
	one.beat() // is told to give back two
	if one.epoch != 2 || sizes(one)[0] != 2 {
		t.Fatalf("first: epoch %d with %v", one.epoch, one.owned)
	}
	kept := one.owned
	one.owned = had // it says that it has not yet
	two.beat()
	if len(two.owned) != 0 {
		t.Fatalf("second has %v before the first let go", two.owned)
	}
	one.beat()
	one.owned = kept
	one.beat()
	if one.epoch != 3 {
		t.Errorf("first: epoch %d", one.epoch)
	}
	two.beat()
	if !slices.Equal(sizes(one, two), []int{2, 2}) || w.consumer("g").State != "Stable" {
		t.Errorf("%v, %s", sizes(one, two), w.consumer("g").State)
	}
	n := len(w.log)
	reconcileAll(t, one, two)
	if len(w.log) != n {
		t.Error("heartbeats without news were written")
	}
}

// TestConsumerTimeouts: who is silent is out, and so is who does not give partitions back.
func TestConsumerTimeouts(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"a": 4})
	one, two := w.party("g", "one", "a"), w.party("g", "two", "a")
	reconcileAll(t, one, two)
	for range 3 {
		w.advance(20 * time.Second)
		one.beat()
	}
	if n := len(w.consumer("g").Members); n != 1 {
		t.Fatalf("%d members after the session of one", n)
	}
	reconcileAll(t, one)
	if sizes(one)[0] != 4 {
		t.Fatalf("left with %v", one.owned)
	}
	if err := two.beat(); !errors.Is(err, ErrUnknownMember) {
		t.Errorf("heartbeat of who is out: %v", err)
	}
	two.epoch, two.owned = 0, nil
	had := one.owned
	two.beat()
	one.beat()
	for range 7 { // a minute of heartbeats that give nothing back
		w.advance(10 * time.Second)
		r := one.request()
		r.Owned = had
		one.ask(r)
		two.beat()
	}
	if d := w.consumer("g"); len(d.Members) != 1 || d.Members[0].ID != "two" {
		t.Errorf("members %+v", d.Members)
	}
	w.o.Consumer.Group = func(string) (time.Duration, time.Duration) { return time.Second, 7 * time.Second }
	if a, err := two.ask(two.request()); err != nil || a.Interval != 7*time.Second {
		t.Errorf("interval %v, error %v", a.Interval, err)
	}
	w.advance(2 * time.Second)
	if d := w.consumer("g"); len(d.Members) != 0 || d.State != "Empty" {
		t.Errorf("%+v", d)
	}
	w.sameConsumers("g")
}

// TestConsumerStatic: a static member that is away keeps its place; who comes with its instance id
// takes it, without a new epoch.
func TestConsumerStatic(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"a": 4})
	one, two := w.party("g", "one", "a"), w.party("g", "two", "a")
	two.instance = ptr("i")
	reconcileAll(t, one, two)
	epoch, had := w.consumer("g").Epoch, two.owned
	if err := two.leave(leaveStaticEpoch); err != nil {
		t.Fatal(err)
	}
	reconcileAll(t, one)
	again := w.party("g", "again", "a")
	again.instance = ptr("i")
	w.restart()
	reconcileAll(t, one, again)
	if d := w.consumer("g"); d.Epoch != epoch || !again.owned.equal(had) || len(d.Members) != 2 {
		t.Errorf("epoch %d after %d, has %v after %v, %d members", d.Epoch, epoch, again.owned, had, len(d.Members))
	}
	if err := again.leave(leaveEpoch); err != nil {
		t.Fatal(err)
	}
	reconcileAll(t, one)
	if sizes(one)[0] != 4 {
		t.Errorf("left with %v", one.owned)
	}
	w.sameConsumers("g")
}

// TestConsumerOffsets: commits and fetches need the member's epoch; groups are deleted whole.
func TestConsumerOffsets(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"a": 4})
	one := w.party("g", "one", "a")
	reconcileAll(t, one)
	for name, x := range map[string]struct {
		r    CommitRequest
		want error
	}{
		"the member":      {CommitRequest{MemberID: "one", Generation: one.epoch, NewErrors: true}, nil},
		"an older client": {CommitRequest{MemberID: "one", Generation: one.epoch}, ErrUnsupportedVersion},
		"an older epoch":  {CommitRequest{MemberID: "one", Generation: one.epoch - 1, NewErrors: true}, ErrStaleMemberEpoch},
		"another member":  {CommitRequest{MemberID: "x", Generation: one.epoch, NewErrors: true}, ErrUnknownMember},
		"no member":       {CommitRequest{Generation: -1, NewErrors: true}, ErrUnknownMember},
	} {
		x.r.Group, x.r.Retention = "g", -1
		if err := w.commit(x.r, "a", 5); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	fetch := func(id *string, epoch int32) error {
		to := &coordinator.Ticket{}
		w.take(w.m.Fetch(w.now, FetchRequest{Group: "g", MemberID: id, MemberEpoch: epoch}, to))
		_, err, _ := await[[]FetchedTopic](w, to)
		return err
	}
	for name, err := range map[string][2]error{
		"the member":     {fetch(ptr("one"), one.epoch), nil},
		"an older epoch": {fetch(ptr("one"), one.epoch-1), ErrStaleMemberEpoch},
		"another member": {fetch(ptr("x"), 1), ErrUnknownMember},
		"no member":      {fetch(nil, -1), nil},
	} {
		if !errors.Is(err[0], err[1]) {
			t.Errorf("fetch, %s: %v, want %v", name, err[0], err[1])
		}
	}
	if err := w.deleteGroup("g"); !errors.Is(err, ErrNonEmptyGroup) {
		t.Errorf("delete: %v", err)
	}
	one.leave(leaveEpoch)
	if err := w.commit(CommitRequest{Group: "g", Generation: -1, Retention: -1}, "a", 7); err != nil || w.stored("g", "a") != 7 {
		t.Errorf("an administrator's commit: %v, offset %d", err, w.stored("g", "a"))
	}
	if err := w.deleteGroup("g"); err != nil {
		t.Errorf("delete: %v", err)
	}
	w.restart()
	if g := w.m.groups["g"]; g != nil {
		t.Errorf("still there: %+v", g)
	}
}

// TestConsumerCommitsOfBefore: a member may commit with the epoch of before what it has had since
// then (KIP-1251).
func TestConsumerCommitsOfBefore(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"a": 2})
	one, two := w.party("g", "one", "a"), w.party("g", "two", "a")
	reconcileAll(t, one)
	before := one.epoch
	reconcileAll(t, one, two)
	w.restart()
	at := func(p *party) []CommitTopic {
		return []CommitTopic{{Name: "a", ID: topicID("a"), Partitions: []CommitPartition{{Partition: p.owned[topicID("a")][0], Offset: 3, Time: -1}}}}
	}
	for name, x := range map[string]struct {
		member     *party
		partitions []CommitTopic
		epoch      int32
		want       error
	}{
		"what it kept":            {one, at(one), before, nil},
		"what it gave up":         {one, at(two), before, ErrStaleMemberEpoch},
		"what it has got since":   {two, at(two), before, ErrStaleMemberEpoch},
		"an epoch before it came": {one, at(one), before - 1, ErrStaleMemberEpoch},
		"an epoch to come":        {one, at(one), one.epoch + 1, ErrStaleMemberEpoch},
	} {
		to := &coordinator.Ticket{}
		w.take(w.m.Commit(w.now, CommitRequest{Group: "g", MemberID: x.member.id, Generation: x.epoch, NewErrors: true, Retention: -1, Topics: x.partitions}, to))
		if _, err, _ := await[[][]error](w, to); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
}

// TestConsumerAndClassic: where groups may not migrate, a group has one kind of members; without any
// it changes kind with the next that joins, and its offsets stay.
func TestConsumerAndClassic(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"t": 2})
	w.o.Consumer.Upgrade, w.o.Consumer.Downgrade = false, false
	one := w.party("g", "one", "t")
	reconcileAll(t, one)
	c := w.client("g")
	c.old = true
	if a := c.join(); !errors.Is(a.Err, ErrInconsistentProtocol) {
		t.Errorf("classic member: %v", a.Err)
	}
	if err := w.commit(CommitRequest{Group: "g", MemberID: "one", Generation: one.epoch, NewErrors: true, Retention: -1}, "t", 5); err != nil {
		t.Fatal(err)
	}
	one.leave(leaveEpoch)
	if a := c.join(); a.Err != nil || a.Generation != 1 {
		t.Fatalf("classic member of the empty group: %+v", a)
	}
	if err := one.beat(); !errors.Is(err, ErrGroupNotFound) {
		t.Errorf("consumer member among classic ones: %v", err)
	}
	w.restart()
	if w.stored("g", "t") != 5 {
		t.Errorf("offset %d", w.stored("g", "t"))
	}
}

// TestClassicInTurn: classic members that come while the records of the consumer group that it was
// are being deleted all get in.
func TestClassicInTurn(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"t": 2})
	one := w.party("g", "one", "t")
	reconcileAll(t, one)
	one.leave(leaveEpoch)
	var tickets []*coordinator.Ticket
	var first coordinator.Effects
	for i := range 3 {
		tickets = append(tickets, &coordinator.Ticket{})
		e := w.m.Join(w.now, JoinRequest{Group: "g", ProtocolType: "consumer", Protocols: consumerProtocols("t"), Session: 20 * time.Second,
			Rebalance: 30 * time.Second, NewMemberIDSuffix: string(rune('a' + i))}, tickets[i])
		if i == 0 {
			first = e
		} else if len(e.Records)+len(e.Answers) != 0 {
			t.Fatalf("member %d did not wait: %+v", i, e)
		}
	}
	w.take(first)
	w.advance(time.Minute)
	for i, to := range tickets {
		if a := must[JoinAnswer](w, to); a.Err != nil {
			t.Errorf("member %d: %v", i, a.Err)
		}
	}
	if len(w.m.busy) != 0 {
		t.Errorf("busy: %v", w.m.busy)
	}
}

// TestConsumerAppendFails: a change that is not in the log has not happened, and what waited for
// it goes on from what was before.
func TestConsumerAppendFails(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"a": 4})
	one := w.party("g", "one", "a")
	w.failing = coordinator.ErrNotAvailable
	if err := one.beat(); !errors.Is(err, coordinator.ErrNotAvailable) || w.m.groups["g"] != nil {
		t.Errorf("%v, %v", err, w.m.groups["g"])
	}
	w.failing = nil
	reconcileAll(t, one)
	w.failing = coordinator.ErrNotAvailable
	w.advance(50 * time.Second)
	if n := len(w.consumer("g").Members); n != 1 {
		t.Errorf("%d members while the log can't be written", n)
	}
	w.failing = nil
	w.advance(2 * time.Second)
	if n := len(w.consumer("g").Members); n != 0 {
		t.Errorf("%d members after the log can be written", n)
	}
}

// TestConsumersInTurn: two that come while the first records of the group are on their way to the
// log both get in, and none of what they are told goes back.
func TestConsumersInTurn(t *testing.T) {
	w := consumerWorld(t, map[string]int32{"a": 4})
	one, two := w.party("g", "one", "a"), w.party("g", "two", "a")
	tickets := []*coordinator.Ticket{{}, {}}
	first := w.m.ConsumerHeartbeat(w.now, one.request(), tickets[0])
	second := w.m.ConsumerHeartbeat(w.now, two.request(), tickets[1])
	if len(second.Records)+len(second.Answers) != 0 {
		t.Fatalf("the second did not wait: %+v", second)
	}
	w.take(first)
	for i, to := range tickets {
		if a := must[ConsumerHeartbeatAnswer](w, to); a.Epoch != int32(2+i) {
			t.Errorf("epoch %d", a.Epoch)
		}
	}
	third := w.m.ConsumerHeartbeat(w.now, w.party("g", "three", "a").request(), &coordinator.Ticket{})
	waits := &coordinator.Ticket{}
	w.m.ConsumerHeartbeat(w.now, w.party("g", "four", "a").request(), waits)
	for _, a := range w.m.Stop() {
		if a.To == waits && !errors.Is(a.Err, coordinator.ErrNotCoordinator) {
			t.Errorf("who waits when the shard is lost: %v", a.Err)
		}
		if a.To == waits {
			waits = nil
		}
	}
	if waits != nil {
		t.Error("who waits when the shard is lost is not answered")
	}
	third.Then(coordinator.Commit{Now: w.now, Err: coordinator.ErrNotCoordinator})
}
