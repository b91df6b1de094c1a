package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var groupPitfalls = []pitfall{
	{"group-4", commitsFromOutside}, {"group-5", offsetsExpire}, {"group-6", groupDeleted}, {"group-7", sessionBounds},
	{"group-11", offsetsOfDeletedTopic}, {"group-13", commitForMissingPartition},
}

func pendingMemberNeverReturns(p *pit) {
	pending := func(session int32, then func(*classic)) func(*pit) {
		return func(p *pit) {
			g := p.name()
			a, b, x := p.member(g), p.member(g), p.member(g)
			settle(a)
			x.session = session
			x.ready()
			b.ready()
			b.sendJoin()
			a.wait(g, "PreparingRebalance", 2)
			rejoin(a)
			then(x)
			got := a.joined()
			equal(p, "error of the leader's join", got.ErrorCode, 0)
			equal(p, "members", len(got.Members), 2)
			equal(p, "error of the other's join", b.joined().ErrorCode, 0)
			equal(p, "generation", b.generation, 2)
		}
	}
	p.part("silent", pending(1000, func(*classic) {}))
	p.part("leaves", pending(60000, func(x *classic) { equal(x, "error of the pending member's leave", x.leave(), 0) }))
}

func memberWithoutPartitions(p *pit) {
	p.part("wire", func(p *pit) {
		g := p.name()
		a, b, idle := p.member(g), p.member(g), p.member(g)
		settle(a, b, idle)
		rejoin(a, b)
		idle.sendJoin()
		for _, m := range []*classic{a, b, idle} {
			equal(p, "error of the join", m.joined().ErrorCode, 0)
		}
		nothing := []byte{0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff} // version, no topics, no user data
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.Generation, req.MemberID = g, a.generation, a.id
		ra := kmsg.NewSyncGroupRequestGroupAssignment()
		ra.MemberID, ra.MemberAssignment = idle.id, nothing
		req.GroupAssignment = append(req.GroupAssignment, ra)
		equal(p, "error of the leader's sync", ask[*kmsg.SyncGroupResponse](a.wire, req, 4).ErrorCode, 0)
		got, code := idle.sync()
		equal(p, "error of the idle member's sync", code, 0)
		equal(p, "what the idle member got", got, string(nothing))
		got, code = b.sync()
		equal(p, "error of the forgotten member's sync", code, 0)
		equal(p, "what the forgotten member got", got, "")
		equal(p, "heartbeat of the idle member", idle.heartbeat(), 0)
		equal(p, "heartbeat of the forgotten member", b.heartbeat(), 0)
	})
	p.part("franz-go", func(p *pit) {
		w := p.dial()
		topic, _ := p.topic(w, 2)
		g := p.name()
		ctx, stop := context.WithTimeout(p.Context(), patience)
		defer stop()
		assigned := make([]atomic.Int32, 3)
		members := make([]*kgo.Client, 3)
		for i := range members {
			count := func(by int32) func(context.Context, *kgo.Client, map[string][]int32) {
				return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
					assigned[i].Add(by * int32(len(parts[topic])))
				}
			}
			cl, err := kgo.NewClient(kgo.SeedBrokers(p.broker()), kgo.ConsumerGroup(g), kgo.ConsumeTopics(topic), kgo.HeartbeatInterval(50*time.Millisecond),
				kgo.OnPartitionsAssigned(count(1)), kgo.OnPartitionsRevoked(count(-1)), kgo.OnPartitionsLost(count(-1)))
			if err != nil {
				p.Fatal(err)
			}
			polled := make(chan struct{})
			go func() {
				defer close(polled)
				for ctx.Err() == nil && !cl.PollFetches(ctx).IsClientClosed() {
				}
			}()
			defer func() { stop(); cl.Close(); <-polled }()
			members[i] = cl
		}
		spread := func(n ...int32) func() bool { // how many members have 0, 1 and 2 partitions
			return func() bool {
				have := make([]int32, 3)
				for i := range assigned {
					have[max(0, min(2, assigned[i].Load()))]++
				}
				return fmt.Sprint(have) == fmt.Sprint(n)
			}
		}
		eventually(p, "two members have a partition each, one has none", patience, spread(1, 2, 0))
		for i := range members {
			if assigned[i].Load() == 1 {
				members[i].Close()
				break
			}
		}
		eventually(p, "the idle member took over", patience, spread(1, 2, 0))
		equal(p, "members that are left", len(w.describeGroup(g).Members), 2)
	})
}

// initialDelay: the windows of a second stand for the default of three, which are counted alike.
func initialDelay(p *pit) {
	p.part("none", func(p *pit) {
		m := p.member(p.name())
		m.ready()
		begun := time.Now()
		equal(p, "error of the join", m.join().ErrorCode, 0)
		if took := time.Since(begun); took > 2*time.Second {
			p.Errorf("the first join took %v", took)
		}
	})
	p.part("a second", func(p *pit) {
		addr, g := p.broker("group.initial.rebalance.delay.ms=1000", "offsets.topic.num.partitions=1"), p.name()
		a, b := p.memberAt(addr, g), p.memberAt(addr, g)
		a.ready()
		begun := time.Now()
		a.sendJoin()
		a.wait(g, "PreparingRebalance", 1)
		b.ready()
		b.sendJoin()
		got := a.joined()
		equal(p, "error of the first join", got.ErrorCode, 0)
		equal(p, "members", len(got.Members), 2)
		equal(p, "error of the second join", b.joined().ErrorCode, 0)
		equal(p, "generation of the first", a.generation, 1)
		equal(p, "generation of the second", b.generation, 1)
		if took := time.Since(begun); took < 2*time.Second { // a window in which a member joins is followed by another
			p.Errorf("answered after %v, want two windows", took)
		}
	})
}

func memberJoinsAgain(p *pit) {
	g := p.name()
	a, b := p.member(g), p.member(g)
	settle(a, b)
	id := b.id
	b.sendJoin()
	got := b.joined()
	equal(p, "error of the follower's join", got.ErrorCode, 0)
	equal(p, "generation", got.Generation, 2)
	equal(p, "its member id", got.MemberID, id)
	equal(p, "leader", got.LeaderID, a.id)
	equal(p, "members told to a follower", len(got.Members), 0)
	assignment, code := b.sync()
	equal(p, "error of its sync", code, 0)
	equal(p, "its assignment", assignment, "for "+id)
	equal(p, "heartbeat of the leader", a.heartbeat(), 0)
	a.sendJoin()
	b.wait(g, "PreparingRebalance", 2)
	equal(p, "heartbeat of the follower after the leader's join", b.heartbeat(), 27)
	b.sendJoin()
	equal(p, "error of the leader's join", a.joined().ErrorCode, 0)
	equal(p, "error of the follower's join in the rebalance", b.joined().ErrorCode, 0)
	equal(p, "generation then", a.generation, 3)
}

// commit commits an offset for each partition from 0 on and returns their errors.
func (w *wire) commit(version int16, group string, generation int32, member string, instance *string, topic string, offsets ...int64) []int16 {
	w.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = group, generation, member, instance
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	for i, o := range offsets {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = int32(i), o
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	codes := make([]int16, len(offsets))
	got := ask[*kmsg.OffsetCommitResponse](w, req, version).Topics[0].Partitions
	equal(w, "partitions in the answer of OffsetCommit", len(got), len(offsets))
	for _, rp := range got {
		codes[rp.Partition] = rp.ErrorCode
	}
	return codes
}

// commitAlone commits partition 0 without being a member.
func (w *wire) commitAlone(version int16, group, topic string, offset int64) int16 {
	w.Helper()
	w.coordinator(group, 0)
	return w.commit(version, group, -1, "", nil, topic, offset)[0]
}

// committed is the offset of a partition, -1 for none. It waits while the coordinator loads.
func (w *wire) committed(group, topic string, partition int32) (offset int64) {
	w.Helper()
	eventually(w, "the coordinator tells offsets", patience, func() bool {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = group
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{partition}
		req.Topics = append(req.Topics, rt)
		got := ask[*kmsg.OffsetFetchResponse](w, req, 7)
		if loading(got.ErrorCode) {
			return false
		}
		equal(w, "error of OffsetFetch", got.ErrorCode, 0)
		equal(w, "error of the partition", got.Topics[0].Partitions[0].ErrorCode, 0)
		offset = got.Topics[0].Partitions[0].Offset
		return true
	})
	return offset
}

func (w *wire) deleteGroup(group string) int16 {
	w.Helper()
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{group}
	return ask[*kmsg.DeleteGroupsResponse](w, req, 2).Groups[0].ErrorCode
}

func commitsFromOutside(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1)
	for v := int16(2); v <= 9; v++ {
		g := p.name()
		equal(p, fmt.Sprintf("v%d to an unknown group", v), w.commitAlone(v, g, topic, 7), 0)
		equal(p, "offset in the group that a commit made", w.committed(g, topic, 0), 7)
		m := p.member(g)
		settle(m)
		equal(p, fmt.Sprintf("v%d to a group with members", v), w.commitAlone(v, g, topic, 8), 25)
		equal(p, "error of the leave", m.leave(), 0)
		equal(p, fmt.Sprintf("v%d to an empty group", v), w.commitAlone(v, g, topic, 9), 0)
		equal(p, "offset in the empty group", w.committed(g, topic, 0), 9)
		if instance := "i"; v >= 7 {
			equal(p, fmt.Sprintf("v%d to an empty group with an instance id", v), w.commit(v, g, -1, "", &instance, topic, 10)[0], 0)
			equal(p, "offset in the empty group", w.committed(g, topic, 0), 10)
		}
		want := int16(22)
		if v >= 9 {
			want = 69
		}
		equal(p, fmt.Sprintf("v%d with generation 5 to an unknown group", v), w.commit(v, p.name(), 5, "", nil, topic, 1)[0], want)
	}
}

// offsetsExpire moves the broker's clock instead of waiting for minutes; sessions go by time that passes.
func offsetsExpire(p *pit) {
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	dir := filepath.Join(p.TempDir(), "data")
	settings := append([]string{"offsets.retention.minutes=2", "offsets.retention.check.interval.ms=10"}, quick...)
	b := embed(p, dir, now, settings...)
	defer func() {
		if err := b.stop(); err != nil {
			p.Error(err)
		}
	}()
	w := dialWire(p, b.addr)
	topic, _ := p.topic(w, 1)
	other, _ := p.topic(w, 1)
	alone, left, live := p.name(), p.name(), p.name()
	leaver, stays := p.memberAt(b.addr, left), p.memberAt(b.addr, live)
	leaver.topics, stays.topics = []string{topic}, []string{topic}
	settle(leaver)
	settle(stays)
	for v := int16(2); v <= 4; v++ { // those with a retention time; -1 is the broker's
		equal(p, "commit without members", w.commitAlone(v, alone, topic, 3), 0)
	}
	equal(p, "commit of the member that will leave", leaver.commit(topic, 4), 0)
	equal(p, "commit of the member that stays", stays.commit(topic, 5), 0)
	equal(p, "its commit of a topic not subscribed to", stays.commit(other, 6), 0)

	ahead.Add(int64(30 * time.Second))
	equal(p, "error of the leave", leaver.leave(), 0)
	if err := b.stop(); err != nil {
		p.Fatal(err)
	}
	b = embed(p, dir, now, settings...)
	w = dialWire(p, b.addr)
	ahead.Add(int64(80 * time.Second)) // 110 s after the commits, 80 s after the leave
	// A check is made every 10 ms; what is kept is asked for until one must have been made.
	kept := func(group, topic string, offset int64) {
		p.Helper()
		for begun := time.Now(); time.Since(begun) < 100*time.Millisecond; {
			equal(p, "offset kept", w.committed(group, topic, 0), offset)
		}
	}
	gone := func(what, group, topic string) {
		p.Helper()
		eventually(p, "expired: "+what, patience, func() bool { return w.committed(group, topic, 0) == -1 })
	}
	kept(alone, topic, 3)
	kept(live, other, 6)
	ahead.Add(int64(20 * time.Second)) // 130 s after the commits, 100 s after the leave
	gone("of a group without members", alone, topic)
	gone("of a topic not subscribed to", live, other)
	kept(live, topic, 5)
	kept(left, topic, 4)
	ahead.Add(int64(30 * time.Second))
	gone("of a group that became empty", left, topic)
	kept(live, topic, 5)
}

func groupDeleted(p *pit) {
	b := p.process()
	w := dialWire(p, b.Addr())
	topic, _ := p.topic(w, 1)
	g, kept := p.name(), p.name()
	equal(p, "commit to the group that stays", w.commitAlone(8, kept, topic, 6), 0)
	equal(p, "delete of an unknown group", w.deleteGroup(g), 69)
	m := p.memberAt(b.Addr(), g)
	settle(m)
	equal(p, "commit", m.commit(topic, 5), 0)
	equal(p, "delete of a group with members", w.deleteGroup(g), 68)
	equal(p, "offset after the refused delete", w.committed(g, topic, 0), 5)
	equal(p, "error of the leave", m.leave(), 0)
	equal(p, "delete of an empty group", w.deleteGroup(g), 0)
	equal(p, "offset after the delete", w.committed(g, topic, 0), -1)
	equal(p, "second delete", w.deleteGroup(g), 69)
	b.Restart()
	w = dialWire(p, b.Addr())
	equal(p, "offset after the restart", w.committed(g, topic, 0), -1)
	equal(p, "offset of the group that stays", w.committed(kept, topic, 0), 6)
	equal(p, "delete after the restart", w.deleteGroup(g), 69)
}

func sessionBounds(p *pit) {
	addr := p.broker("group.initial.rebalance.delay.ms=0") // the default bounds
	for _, x := range []struct {
		session int32
		code    int16
	}{{5999, 26}, {6000, 79}, {1800000, 79}, {1800001, 26}} {
		m := p.memberAt(addr, p.name())
		m.session = x.session
		m.sendJoin()
		equal(p, fmt.Sprintf("join with a session timeout of %d ms", x.session), m.joined().ErrorCode, x.code)
		if x.code == 79 {
			equal(p, fmt.Sprintf("join with the id and %d ms", x.session), m.join().ErrorCode, 0)
		}
	}
}

func offsetsOfDeletedTopic(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1)
	kept, _ := p.topic(w, 1)
	g := p.name()
	equal(p, "commit", w.commitAlone(8, g, topic, 50), 0)
	equal(p, "commit to another topic", w.commitAlone(8, g, kept, 51), 0)
	equal(p, "error of DeleteTopics", w.deleteTopic(topic), 0)
	eventually(p, "no offset of the deleted topic", patience, func() bool { return w.committed(g, topic, 0) == -1 })
	equal(p, "error of the second CreateTopics", w.createTopic(topic, 1, 1, false, 7).ErrorCode, 0)
	equal(p, "offset of the topic made again", w.committed(g, topic, 0), -1)
	equal(p, "offset of the other topic", w.committed(g, kept, 0), 51)
}

func commitForMissingPartition(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1)
	g := p.name()
	equal(p, "commit before", w.commitAlone(8, g, topic, 1), 0)
	equal(p, "errors", fmt.Sprint(w.commit(8, g, -1, "", nil, topic, 5, 6)), "[0 3]")
	equal(p, "offset of the partition that exists", w.committed(g, topic, 0), 5)
	equal(p, "offset of the one that does not", w.committed(g, topic, 1), -1)
}
