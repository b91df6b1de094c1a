package controller

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ottla/broker/metadata"
	"ottla/broker/registry"
	"ottla/compat"
)

var update = flag.Bool("update", false, "rewrite the answers of the stories")

// Decisions are told as stories in testdata: blocks of commands, then ----, then what the
// controller wrote and whom it told. No goroutine and no clock takes part: each command is
// decided on the state, written to a memory tree (so that the writes are known to be possible),
// applied, and put into letters. See the first lines of each file.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s := newStory(t)
			var out bytes.Buffer
			for block := range strings.SplitSeq(strings.TrimRight(string(text), "\n"), "\n\n") {
				commands, answer, ok := strings.Cut(block, "----\n")
				if !ok {
					commands = block
				}
				var got strings.Builder
				for line := range strings.Lines(commands) {
					if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line != "----" {
						s.run(line, &got)
					}
				}
				fmt.Fprintf(&out, "%s\n----\n%s\n", strings.TrimRight(strings.TrimSuffix(commands, "----"), "\n"), got.String())
				if want := strings.TrimRight(answer, "\n"); !*update && want != strings.TrimRight(got.String(), "\n") {
					t.Errorf("%s---- got\n%s---- want\n%s", commands, got.String(), want)
				}
			}
			if *update {
				if err := os.WriteFile(path, bytes.TrimRight(out.Bytes(), "\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
				if err == nil {
					_, err = f.WriteString("\n")
					f.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

type story struct {
	t       *testing.T
	c       *Controller
	root    *registry.Local
	brokers map[int32]registry.Tree
	racks   map[int32]string
	unclean map[string]bool
	ids     byte
}

func newStory(t *testing.T) *story {
	root := registry.NewMemory(nil)
	s := &story{t: t, root: root, brokers: map[int32]registry.Tree{}, racks: map[int32]string{}, unclean: map[string]bool{}}
	s.c = New(Options{
		Tree: &recorder{Tree: root.Session()}, BrokerID: 1, Random: func(int) int { return 0 }, NewID: s.newID,
		Unclean:  func(topic string) bool { return s.unclean[topic] },
		Defaults: func() (int32, int16) { return 2, 1 },
		Now:      func() time.Time { return time.UnixMilli(1796052854820) },
	})
	return s
}

// newID is {1}, {2} and so on.
func (s *story) newID() (id [16]byte) {
	s.ids++
	return [16]byte{s.ids}
}

// recorder keeps what multis have written.
type recorder struct {
	registry.Tree
	done []registry.Op
}

func (r *recorder) Multi(ops ...registry.Op) ([]registry.Result, error) {
	results, err := r.Tree.Multi(ops...)
	if err == nil {
		r.done = append(r.done, ops...)
	}
	return results, err
}

func (s *story) run(line string, out *strings.Builder) {
	rec := s.c.tree.(*recorder)
	rec.done = nil
	f := strings.Fields(line)
	args := map[string]string{}
	for _, a := range f[1:] {
		if k, v, ok := strings.Cut(a, "="); ok {
			args[k] = v
		}
	}
	if err := s.command(f, args, out); err != nil {
		fmt.Fprintf(out, "error: %v\n", err)
	}
	for _, op := range rec.done {
		if op.Kind == registry.OpCheck {
			fmt.Fprintln(out, "multi")
			continue
		}
		fmt.Fprintf(out, "  %s %s %s\n", op.Kind, op.Path, op.Data)
	}
	if s.c.state == nil {
		return
	}
	o := s.c.out
	s.c.out = outbox{}
	for _, l := range s.c.state.letters(&o) {
		s.letter(out, l)
	}
}

func (s *story) letter(out *strings.Builder, l letter) {
	if l.greet != nil {
		fmt.Fprintf(out, "to %d UpdateMetadata brokers=%s%s\n", l.to, brokerIDs(l.greet.Brokers), states(l.greet.Partitions))
	}
	if l.lead != nil {
		fmt.Fprintf(out, "to %d LeaderAndIsr%s leaders=%s\n", l.to, states(l.lead.Partitions), brokerIDs(l.lead.Leaders))
	}
	if l.update != nil {
		fmt.Fprintf(out, "to %d UpdateMetadata brokers=%s%s\n", l.to, brokerIDs(l.update.Brokers), states(l.update.Partitions))
	}
	if l.stop != nil {
		fmt.Fprintf(out, "to %d StopReplica", l.to)
		for _, p := range l.stop.Partitions {
			fmt.Fprintf(out, " %s-%d", p.Topic, p.Partition)
			if p.Delete {
				fmt.Fprint(out, ":delete")
			}
		}
		fmt.Fprintln(out)
	}
}

func states(list []PartitionState) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, " %s-%d(leader=%d epoch=%d isr=%s v=%d", p.Topic, p.Partition, p.Leader, p.LeaderEpoch, numbers(p.ISR), p.PartitionEpoch)
		if p.New {
			b.WriteString(" new")
		}
		if p.Recovery != 0 {
			b.WriteString(" recovering")
		}
		if len(p.Offline) > 0 {
			fmt.Fprintf(&b, " offline=%s", numbers(p.Offline))
		}
		b.WriteString(")")
	}
	return b.String()
}

func brokerIDs(list []metadata.Broker) string {
	ids := make([]int32, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return numbers(ids)
}

func numbers(ids []int32) string { return "[" + strings.ReplaceAll(joinIDs(ids), ", ", ",") + "]" }

func number(s string) int32 {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		panic(err)
	}
	return int32(n)
}

func list(s string) (ids []int32) {
	for part := range strings.SplitSeq(s, ",") {
		ids = append(ids, number(part))
	}
	return ids
}

func partitionOf(s string) at {
	i := strings.LastIndexByte(s, '-')
	return at{s[:i], number(s[i+1:])}
}

// register lets a broker join, or leave where rack is gone.
func (s *story) register(id int32) error {
	if id != s.c.o.BrokerID {
		if s.brokers[id] == nil {
			s.brokers[id] = s.root.Session()
		}
		_, err := registry.Join(s.brokers[id], id, compat.BrokerNode{Rack: s.racks[id]})
		return err
	}
	_, err := registry.Join(s.c.tree.(*recorder).Tree, id, compat.BrokerNode{Rack: s.racks[id]})
	return err
}

// The commands.
//
//	start [brokers=1,2,3]       the brokers register, broker 1 takes over as controller
//	again                       broker 1 takes over once more, as after a fail-over
//	restart ID…                 the same, and these brokers have registered anew before it
//	up ID…, down ID…, bounce ID brokers register, go, register anew unseen
//	rack ID=NAME…               for later registrations
//	unclean TOPIC               allows unclean elections
//	create TOPIC [p=N] [rf=N] [replicas=1,2/2,3] [validate]
//	grow TOPIC to=N [replicas=1,2/2,3]
//	tool TOPIC replicas=1,2/2,3 a tool of Kafka 0.8 makes the topic, or gives it more partitions
//	delete TOPIC, stopped ID    marks; a broker confirms all deletions asked of it
//	elect TOPIC-P… | unclean-elect TOPIC-P…
//	isr TOPIC-P by=ID isr=1,2 [v=N] [epoch=N]
//	offline ID TOPIC-P          the log directory of a replica has failed
//	leave ID                    controlled shutdown
//	numbers                     what the gauges show
func (s *story) command(f []string, args map[string]string, out *strings.Builder) error {
	c := s.c
	write := func(st *step, err error) error {
		if st == nil || err != nil {
			return err
		}
		return c.write(c.tree, st)
	}
	result := func(st *step, r Result) error {
		if r.Err != nil {
			return r.Err
		}
		fmt.Fprintf(out, "%s has %d partitions, replication factor %d\n", r.Name, r.Partitions, r.Replication)
		return write(st, nil)
	}
	switch f[0] {
	case "start":
		for _, id := range list(cmp.Or(args["brokers"], "1")) {
			if err := s.register(id); err != nil {
				return err
			}
		}
		return c.stand(c.tree)
	case "again":
		if err := c.tree.Delete(compat.PathController, registry.AnyVersion); err != nil {
			return err
		}
		c.state = nil
		return c.stand(c.tree)
	case "up", "down", "bounce":
		for _, id := range list(f[1]) {
			if f[0] != "up" {
				if err := s.brokers[id].Close(); err != nil {
					return err
				}
				delete(s.brokers, id)
			}
			if f[0] != "down" {
				if err := s.register(id); err != nil {
					return err
				}
			}
		}
		if c.state == nil {
			return nil
		}
		return c.membersChanged()
	case "restart":
		if err := c.tree.Delete(compat.PathController, registry.AnyVersion); err != nil {
			return err
		}
		c.state = nil
		for _, id := range list(f[1]) {
			if id != c.o.BrokerID {
				if err := s.brokers[id].Close(); err != nil {
					return err
				}
				delete(s.brokers, id)
			}
			if err := s.register(id); err != nil {
				return err
			}
		}
		return c.stand(c.tree)
	case "rack":
		for k, v := range args {
			s.racks[number(k)] = v
		}
	case "unclean":
		s.unclean[f[1]] = true
	case "create":
		n := NewTopic{Name: f[1], Partitions: -1, Replication: -1}
		n.ID = s.newID()
		if args["p"] != "" {
			n.Partitions = number(args["p"])
		}
		if args["rf"] != "" {
			n.Replication = int16(number(args["rf"]))
		}
		if args["replicas"] != "" {
			for part := range strings.SplitSeq(args["replicas"], "/") {
				n.Assignment = append(n.Assignment, list(part))
			}
		}
		return result(c.state.createTopic(c.rules(), n, MaxPartitions, slices.Contains(f, "validate")))
	case "grow":
		m := MorePartitions{Name: f[1], Count: number(args["to"])}
		if args["replicas"] != "" {
			for part := range strings.SplitSeq(args["replicas"], "/") {
				m.Assignment = append(m.Assignment, list(part))
			}
		}
		return result(c.state.createPartitions(c.rules(), m, MaxPartitions, slices.Contains(f, "validate")))
	case "tool":
		n := compat.TopicNode{}
		for part := range strings.SplitSeq(args["replicas"], "/") {
			n.Partitions = append(n.Partitions, list(part))
		}
		tree := c.tree.(*recorder).Tree
		if c.state == nil || c.state.topics[f[1]] == nil {
			if _, err := tree.Create(compat.PathTopic(f[1]), n.Encode(), registry.Persistent); err != nil || c.state == nil {
				return err
			}
			return c.topicsChanged()
		}
		if _, err := tree.Set(compat.PathTopic(f[1]), n.Encode(), registry.AnyVersion); err != nil || slices.Contains(f, "unseen") {
			return err
		}
		return c.assignmentsChanged([]string{f[1]})
	case "delete":
		return write(c.state.markDeleted(f[1:], true), nil)
	case "stopped":
		id := number(f[1])
		a := answer{from: id, epoch: c.state.members[id].Epoch}
		for name := range c.state.going {
			for r := range c.state.topics[name].pending {
				if r.broker == id {
					a.stopped = append(a.stopped, StopPartition{Topic: name, Partition: r.n, Delete: true})
				}
			}
		}
		c.handle(a)
		return write(c.state.deletionsDone(), nil)
	case "elect", "unclean-elect":
		var keys []at
		for _, name := range f[1:] {
			keys = append(keys, partitionOf(name))
		}
		st, errs := c.state.elect(f[0] != "elect", keys)
		for _, k := range keys {
			if errs[k] != nil {
				fmt.Fprintf(out, "%s-%d: %v\n", k.topic, k.n, errs[k])
			}
		}
		return write(st, nil)
	case "isr":
		k := partitionOf(f[1])
		ch := ISRChange{Topic: k.topic, Partition: k.n, ISR: list(args["isr"])}
		if p := c.state.get(k); p != nil {
			ch.PartitionEpoch, ch.LeaderEpoch = p.version, p.leaderEpoch
		}
		if args["v"] != "" {
			ch.PartitionEpoch = number(args["v"])
		}
		if args["epoch"] != "" {
			ch.LeaderEpoch = number(args["epoch"])
		}
		st, results := c.state.alterISR(number(args["by"]), []ISRChange{ch})
		if results[0].Err != nil {
			return results[0].Err
		}
		fmt.Fprintf(out, "isr=%s v=%d\n", numbers(results[0].ISR), results[0].PartitionEpoch)
		return write(st, nil)
	case "move": // of a partition to replicas; without any it ends
		var to []int32
		if args["to"] != "" {
			to = list(args["to"])
		}
		st, err := c.state.reassign(partitionOf(f[1]), to)
		if err != nil {
			return err
		}
		return write(st, nil)
	case "moved": // the end of moves whose replicas are in sync
		for _, k := range c.state.moves() {
			if st := c.state.finishMove(k); st != nil {
				if err := write(st, nil); err != nil {
					return err
				}
			}
		}
	case "offline":
		id, k := number(f[1]), partitionOf(f[2])
		p := c.state.get(k)
		c.handle(answer{from: id, epoch: c.state.members[id].Epoch, led: true,
			asked: []PartitionState{c.state.state(c.state.topics[k.topic], k, p, false)},
			lead:  []PartitionError{{k.topic, k.n, ErrReplicaStorage}}})
	case "leave":
		id := number(f[1])
		c.state.members[id].leaving = true
		if err := write(c.state.leave(id), nil); err != nil {
			return err
		}
		for _, k := range c.state.led(id) {
			fmt.Fprintf(out, "still leads %s-%d\n", k.topic, k.n)
		}
	case "numbers":
		fmt.Fprintf(out, "topics=%d partitions=%d offline=%d imbalanced=%d\n", c.state.live, c.state.partitions, c.state.offline, c.state.imbalanced)
	default:
		s.t.Fatalf("no command %q", f[0])
	}
	return nil
}
