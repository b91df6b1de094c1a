package integration

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// client is what the scenario asks of a Kafka client. An adapter maps it to the client's own
// calls and decides nothing; what a client lacks is said at its adapter.
type client interface {
	codecs() []string // of none, gzip, snappy, lz4, zstd
	createTopic(ctx context.Context, topic string, partitions int) error
	topics(ctx context.Context) ([]string, error)
	leaders(ctx context.Context, topic string) (map[int32]int32, error) // broker id by partition
	// send returns when all messages are acknowledged by all in-sync replicas, in order.
	send(ctx context.Context, topic, codec string, ms []message) error
	join(ctx context.Context, group, topic string) (member, error) // a new topic's start is where it begins
	groups(ctx context.Context) ([]string, error)
	group(ctx context.Context, name string) (state string, members int, err error)
	committed(ctx context.Context, group, topic string) (map[int32]int64, error) // partitions without a commit are left out
	offsetAt(ctx context.Context, topic string, partition int32, at time.Time) (int64, error)
	close()
}

// What offsetAt also takes, as Kafka does, and what it returns where no record is as late.
var (
	earliest = time.UnixMilli(-2)
	latest   = time.UnixMilli(-1)
)

const none int64 = -1

// member is one consumer of a group.
type member interface {
	records() <-chan message // what it is handed; closed by leave
	commit(ctx context.Context) error
	leave() error
}

// message is one record. Time is what the client gives the record where it can.
type message struct {
	Partition  int32
	Offset     int64
	Key, Value string
	Time       time.Time
}

const (
	keys       = 100
	partitions = 6
	tailSize   = 600 // messages of each later step; each partition gets some
)

// messages makes those with the numbers from..to-1: number n has key n%keys, and times rise with numbers.
func messages(from, to int, start time.Time) []message {
	ms := make([]message, 0, to-from)
	for n := from; n < to; n++ {
		ms = append(ms, message{
			Key:   fmt.Sprintf("key-%03d", n%keys),
			Value: fmt.Sprintf("%d %s", n, strings.Repeat("value ", 12)), // long enough to compress
			Time:  start.Add(time.Duration(n) * time.Millisecond),
		})
	}
	return ms
}

// number is the number that messages gave the value.
func number(value string) int {
	n := -1
	fmt.Sscanf(value, "%d", &n)
	return n
}

// scenario takes one client through a day of its life: a topic, records of every codec, a group of
// two members that becomes three and then one, commits, kill -9 of the broker, and on from there.
// perCodec is how many records each codec gets; dial makes the client.
func scenario(t *testing.T, b *Broker, perCodec int, dial func(t *testing.T, addr string) client) {
	ctx, stop := context.WithTimeout(t.Context(), 4*time.Minute)
	defer stop()
	c := dial(t, b.Addr())
	defer c.close()
	s := &story{t: t, ctx: ctx, c: c, begun: time.Now(),
		topic: fmt.Sprintf("orders.%08x", rand.Uint32()), group: fmt.Sprintf("billing.%08x", rand.Uint32()),
		start: time.Now().Add(-30 * time.Minute).Truncate(time.Millisecond)}
	defer s.leaveAll()

	s.step("create, list and describe a topic")
	s.must(c.createTopic(ctx, s.topic, partitions))
	s.topicIsThere()

	s.step("two members share the topic")
	a, bb := s.join(), s.join()
	s.stable(2)
	s.step("records of every codec")
	for _, codec := range c.codecs() {
		s.send(codec, perCodec)
	}
	s.collect(a, bb)
	s.commit(a, bb)
	s.storedCodecs(b.Addr(), perCodec)

	s.step("offsets by time")
	s.lookUp()

	s.step("a third member joins")
	d := s.join()
	s.stable(3)
	s.send(c.codecs()[0], tailSize)
	s.collect(a, bb, d)
	s.commit(a, bb, d)

	s.step("two members leave")
	s.leave(bb)
	s.leave(d)
	s.stable(1)
	s.send(c.codecs()[0], tailSize)
	s.collect(a)
	s.commit(a)
	s.committedIs(s.next)

	s.step("kill -9 and restart")
	b.Restart()
	s.topicIsThere()
	s.committedIs(s.next)
	s.send(c.codecs()[0], tailSize)
	s.collect(a)
	s.commit(a)
	s.leave(a)

	s.step("a new member goes on from the commit")
	s.send(c.codecs()[0], tailSize)
	e := s.join()
	s.collect(e)
	s.commit(e)
	s.committedIs(s.next)
	s.leave(e)

	s.step("a new group reads all from the start")
	first := s.group
	s.group += ".again"
	s.next, s.last = nil, nil
	f := s.join()
	s.collect(f)
	s.commit(f)
	s.leave(f)
	groups, err := c.groups(ctx)
	s.must(err)
	for _, g := range []string{first, s.group} {
		if !slices.Contains(groups, g) {
			t.Errorf("groups are %q, want %q among them", groups, g)
		}
	}
	s.step("end")
}

// story is a scenario under way.
type story struct {
	t     *testing.T
	ctx   context.Context
	c     client
	begun time.Time

	topic, group string
	start        time.Time // of message 0
	sent         int       // messages so far

	members []*reader
	merged  chan handed // all members' records

	next map[int32]int64 // by partition: offset that must come next
	last map[string]int  // by key: number seen last
	read []message       // by every group so far, in the order of arrival
}

// reader is a member of the story's group.
type reader struct {
	member
	done chan struct{} // closed when its records are passed on
}

type handed struct {
	by *reader
	message
}

func (s *story) step(name string) {
	s.t.Helper()
	s.t.Logf("%6.2f s  %s", time.Since(s.begun).Seconds(), name)
}

func (s *story) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("after %.2f s: %v", time.Since(s.begun).Seconds(), err)
	}
}

// until asks again until ok, for at most a minute; what may take a moment is asked this way.
func (s *story) until(what string, ok func() (bool, string)) {
	s.t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		done, seen := ok()
		if done {
			return
		}
		select {
		case <-again.C:
		case <-limit.C:
			s.t.Fatalf("%s: not within a minute: %s", what, seen)
		case <-s.ctx.Done():
			s.t.Fatalf("%s: %v: %s", what, s.ctx.Err(), seen)
		}
	}
}

// topicIsThere waits until the topic is listed with a leader for each partition: Kafka 4 says so a moment late.
func (s *story) topicIsThere() {
	s.t.Helper()
	s.until("the topic", func() (bool, string) {
		names, err := s.c.topics(s.ctx)
		if err != nil || !slices.Contains(names, s.topic) {
			return false, fmt.Sprintf("topics %q, %v; want %q among them", names, err, s.topic)
		}
		leaders, err := s.c.leaders(s.ctx, s.topic)
		ok := err == nil && len(leaders) == partitions
		for p := range int32(partitions) {
			id, there := leaders[p]
			ok = ok && there && id >= 0
		}
		return ok, fmt.Sprintf("leaders %v, %v", leaders, err)
	})
}

func (s *story) send(codec string, n int) {
	s.t.Helper()
	err := s.c.send(s.ctx, s.topic, codec, messages(s.sent, s.sent+n, s.start))
	if err != nil {
		s.t.Fatalf("send of %d messages with codec %s: %v", n, codec, err)
	}
	s.sent += n
}

func (s *story) join() *reader {
	s.t.Helper()
	m, err := s.c.join(s.ctx, s.group, s.topic)
	s.must(err)
	if s.merged == nil {
		s.merged = make(chan handed)
	}
	r := &reader{m, make(chan struct{})}
	s.members = append(s.members, r)
	go func() {
		defer close(r.done)
		for msg := range m.records() {
			select {
			case s.merged <- handed{r, msg}:
			case <-s.ctx.Done():
			}
		}
	}()
	return r
}

func (s *story) leave(r *reader) {
	s.t.Helper()
	s.members = slices.DeleteFunc(s.members, func(x *reader) bool { return x == r })
	s.must(r.leave())
	<-r.done
}

func (s *story) leaveAll() {
	for _, r := range s.members {
		drained := make(chan struct{})
		go func() { // what nobody reads any more must not keep the member from leaving
			defer close(drained)
			for {
				select {
				case <-s.merged:
				case <-r.done:
					return
				}
			}
		}()
		if err := r.leave(); err != nil {
			s.t.Logf("leave: %v", err)
			return
		}
		<-drained
	}
}

func (s *story) stable(members int) {
	s.t.Helper()
	s.until(fmt.Sprintf("a stable group of %d", members), func() (bool, string) {
		state, n, err := s.c.group(s.ctx, s.group)
		return err == nil && state == "Stable" && n == members, fmt.Sprintf("state %q, %d members, %v", state, n, err)
	})
}

// collect reads up to the last message that was sent. Every partition's offsets must come without gap or
// repetition, every key's messages in the order they were sent, and each of the members must get some, no
// partition going to two.
func (s *story) collect(from ...*reader) {
	s.t.Helper()
	if s.next == nil {
		s.next, s.last = map[int32]int64{}, map[string]int{}
	}
	var have int64
	for _, n := range s.next {
		have += n
	}
	owner := map[int32]*reader{}
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for ; have < int64(s.sent); have++ {
		var m handed
		select {
		case m = <-s.merged:
		case <-limit.C:
			s.t.Fatalf("%d of %d messages within a minute; next offsets %v", have, s.sent, s.next)
		case <-s.ctx.Done():
			s.t.Fatalf("%d of %d messages: %v", have, s.sent, s.ctx.Err())
		}
		if !slices.Contains(from, m.by) {
			s.t.Fatalf("partition %d offset %d came to a member that has left", m.Partition, m.Offset)
		}
		if o := owner[m.Partition]; o != nil && o != m.by {
			s.t.Fatalf("partition %d offset %d came to a second member", m.Partition, m.Offset)
		}
		owner[m.Partition] = m.by
		if want := s.next[m.Partition]; m.Offset != want {
			s.t.Fatalf("partition %d: offset %d, want %d", m.Partition, m.Offset, want)
		}
		s.next[m.Partition]++
		n := number(m.Value)
		want, seen := s.last[m.Key]
		if want += keys; !seen {
			want = n % keys
		}
		if n != want || m.Key != fmt.Sprintf("key-%03d", n%keys) {
			s.t.Fatalf("partition %d offset %d: key %q has message %d, want %d", m.Partition, m.Offset, m.Key, n, want)
		}
		s.last[m.Key] = n
		s.read = append(s.read, m.message)
	}
	for i, r := range from {
		if !slices.Contains(slices.Collect(maps.Values(owner)), r) {
			s.t.Errorf("member %d of %d got nothing", i+1, len(from))
		}
	}
}

func (s *story) commit(members ...*reader) {
	s.t.Helper()
	var wait sync.WaitGroup
	errs := make([]error, len(members))
	for i, m := range members {
		wait.Go(func() { errs[i] = m.commit(s.ctx) })
	}
	wait.Wait()
	for _, err := range errs {
		s.must(err)
	}
}

// committedIs waits until the group's commits are these: right after a restart a client that does not
// look at the answer's error takes a coordinator that is still loading for a group without commits.
func (s *story) committedIs(want map[int32]int64) {
	s.t.Helper()
	s.until("commits", func() (bool, string) {
		at, err := s.c.committed(s.ctx, s.group, s.topic)
		return err == nil && maps.Equal(at, want), fmt.Sprintf("%v, %v; want %v", at, err, want)
	})
}

// lookUp asks for the offsets of several times, and compares with what was read.
func (s *story) lookUp() {
	s.t.Helper()
	var of []message // partition p's, in order
	p := s.read[0].Partition
	for _, m := range s.read {
		if m.Partition == p {
			of = append(of, m)
		}
	}
	ask := func(what string, at time.Time, want int64) {
		s.t.Helper()
		got, err := s.c.offsetAt(s.ctx, s.topic, p, at)
		s.must(err)
		if got != want {
			s.t.Errorf("partition %d, offset of %s: %d, want %d", p, what, got, want)
		}
	}
	ask("the earliest record", earliest, 0)
	ask("the end", latest, int64(len(of)))
	for _, m := range []message{of[0], of[len(of)/3], of[len(of)*3/4], of[len(of)-1]} {
		for _, at := range []time.Time{m.Time, m.Time.Add(-time.Millisecond)} {
			i := slices.IndexFunc(of, func(x message) bool { return !x.Time.Before(at) })
			ask(fmt.Sprintf("time %d", at.UnixMilli()), at, of[i].Offset)
		}
	}
	newest := slices.MaxFunc(of, func(a, b message) int { return a.Time.Compare(b.Time) })
	ask("a time after the last record", newest.Time.Add(time.Hour), none)
}

// storedCodecs reads the topic by another client and looks at the codecs of the batches.
// A client may leave a small batch as it is, so half of a codec's records must have it.
func (s *story) storedCodecs(addr string, perCodec int) {
	s.t.Helper()
	names := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(s.topic))
	s.must(err)
	defer cl.Close()
	got := map[string]int{}
	for read := 0; read < s.sent; {
		fs := cl.PollFetches(s.ctx)
		s.must(fs.Err0())
		fs.EachRecord(func(r *kgo.Record) {
			read++
			codec := names[r.Attrs.CompressionType()]
			if want := s.c.codecs()[number(string(r.Value))/perCodec]; want == codec {
				got[codec]++
			}
		})
	}
	for _, codec := range s.c.codecs() {
		if got[codec] < perCodec/2 {
			s.t.Errorf("of %d records sent with %s %d are stored so", perCodec, codec, got[codec])
		}
	}
}
