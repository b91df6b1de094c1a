package group

import (
	"bytes"
	"testing"
	"time"

	"ottla/coordinator"
	"ottla/protocol/record"
)

// TestConsumerRecordsOfKafka: what Kafka 4.4 wrote of a consumer group is read, and written the
// same to the byte.
func TestConsumerRecordsOfKafka(t *testing.T) {
	kinds, classic := map[int16]int{}, 0
	for _, path := range []string{"testdata/kafka-4.4.0-kraft-0.log", "testdata/kafka-4.4.0-kraft-1.log", "testdata/kafka-4.4.0-mixed-0.log"} {
		m := NewMachine(Defaults, nil)
		replayLog(t, m, path, func(r record.Record) {
			if len(r.Key) < 2 || !isConsumerKey(int16(r.Key[0])<<8|int16(r.Key[1])) {
				return
			}
			kind, id, of, err := readConsumerKey(r.Key)
			if err != nil {
				t.Fatal(err)
			}
			kinds[kind]++
			if !bytes.Equal(consumerKey(kind, id, of), r.Key) {
				t.Errorf("key %x of %s", r.Key, id)
			}
			if r.Value == nil {
				return
			}
			one := NewMachine(Defaults, nil)
			one.Replay(coordinator.Logged{Record: coordinator.Record{Key: r.Key, Value: r.Value}, Producer: -1})
			if one.stats.Malformed.Load() != 0 {
				t.Fatalf("value %x of type %d is not read", r.Value, kind)
			}
			c := one.groups[id].consumer
			var again coordinator.Record
			switch kind {
			case keyConsumerGroup:
				again = epochRecord(id, c.epoch, c.hash)
			case keyConsumerMember:
				again = memberRecord(id, c.members[of])
				if c.members[of].classic != nil {
					classic++
				}
			case keyConsumerTarget:
				again = targetRecord(id, c.targetAt, targetTime(r.Value))
			case keyConsumerCurrent:
				again = currentRecord(id, c.members[of])
			case keyConsumerTargetOf:
				again = targetOfRecord(id, of, c.targets[of])
			default:
				return
			}
			if kind == keyConsumerTargetOf || kind == keyConsumerCurrent { // Kafka's topics come in the order of a hash map
				if len(again.Value) != len(r.Value) {
					t.Errorf("wrote %x, Kafka %x", again.Value, r.Value)
				}
				return
			}
			if !bytes.Equal(again.Value, r.Value) {
				t.Errorf("type %d: wrote %x, Kafka %x", kind, again.Value, r.Value)
			}
		})
		if m.stats.Malformed.Load() != 0 {
			t.Errorf("%s: %d records not read", path, m.stats.Malformed.Load())
		}
	}
	if classic == 0 {
		t.Error("no member of the classic protocol in a consumer group")
	}
	for _, kind := range []int16{keyConsumerGroup, keyConsumerMember, keyConsumerTarget, keyConsumerTargetOf, keyConsumerCurrent} {
		if kinds[kind] == 0 {
			t.Errorf("no record of type %d", kind)
		}
	}
}

// TestKafkasConsumerGroupGoesOn: members join the group that Kafka wrote, its epoch goes on and
// its offsets are there.
func TestKafkasConsumerGroupGoesOn(t *testing.T) {
	found := false
	for _, path := range []string{"testdata/kafka-4.4.0-kraft-0.log", "testdata/kafka-4.4.0-kraft-1.log"} {
		w := newWorld(t)
		replayLog(t, w.m, path, func(record.Record) {})
		w.take(w.m.Start(w.now))
		g := w.m.groups["g-consumer"]
		if g == nil || g.consumer == nil {
			continue
		}
		found = true
		epoch, offsets := g.consumer.epoch, len(g.offsets)
		if epoch < 1 || offsets == 0 {
			t.Errorf("epoch %d, offsets of %d topics", epoch, offsets)
		}
		w.cluster = &cluster{topics: map[string]int32{"t": 4}, version: 1}
		p := w.party("g-consumer", "new", "t")
		for p.beat() != nil || sizes(p)[0] < 4 {
			w.advance(p.o.Consumer.Heartbeat)
			if w.now.Mono > p.o.Consumer.Session*3 {
				t.Fatalf("the new member has %v", p.owned)
			}
		}
		if p.epoch <= epoch || len(w.m.groups["g-consumer"].offsets) != offsets {
			t.Errorf("epoch %d after %d", p.epoch, epoch)
		}
	}
	if !found {
		t.Error("no g-consumer")
	}
}

// targetTime is the time in a target's record, which the machine has no use for.
func targetTime(value []byte) (at int64) {
	r, _ := newConsumerReader(value)
	r.Int32()
	r.tags(func(_ uint32, body []byte) {
		for _, b := range body {
			at = at<<8 | int64(b)
		}
	})
	return at
}

func FuzzConsumerRecords(f *testing.F) {
	m := &consumerMember{id: "m", topics: []string{"a"}, rebalance: 7, assigned: Assignment{topicID("a"): {1, 2}}}
	for _, r := range []coordinator.Record{epochRecord("g", 3, 9), memberRecord("g", m), targetRecord("g", 3, 8),
		targetOfRecord("g", "m", m.assigned), currentRecord("g", m), regexRecord("g", "a.*", []string{"ab"}, 1, 2), tombstone(keyConsumerPartitions, "g", "")} {
		f.Add(r.Key, r.Value)
	}
	m.classic = &classicSide{session: 6 * time.Second, protocols: consumerProtocols("a")}
	r := memberRecord("g", m)
	f.Add(r.Key, r.Value)
	f.Fuzz(func(t *testing.T, key, value []byte) {
		one := NewMachine(Defaults, nil)
		one.Replay(coordinator.Logged{Record: coordinator.Record{Key: key, Value: value}, Producer: -1})
	})
}

// FuzzClassicMember: whatever a classic member and its leader tell, the group is converted or stays
// what it is.
func FuzzClassicMember(f *testing.F) {
	w := newWorld(f)
	w.cluster = &cluster{topics: map[string]int32{"a": 3}, version: 1}
	v := w.veteran("g", "a")
	v.owned = Assignment{topicID("a"): {0, 2}}
	name := func(TopicID) (string, bool) { return "a", true }
	f.Add(v.metadata()[0].Metadata, appendAssigned(v.owned, v.metadata()[0].Metadata, name))
	f.Add(consumerProtocols("a")[0].Metadata, []byte(nil))
	f.Add([]byte{0, 9, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 5})
	f.Fuzz(func(t *testing.T, metadata, assignment []byte) {
		w := newWorld(t)
		w.cluster = &cluster{topics: map[string]int32{"a": 3}, version: 1}
		c := w.client("g")
		c.old, c.protocols = true, []Protocol{{"p", metadata}}
		c.join()
		to := &coordinator.Ticket{}
		w.take(w.m.Sync(w.now, SyncRequest{Group: "g", MemberID: c.id, Generation: c.generation, Assignment: []Assigned{{c.id, assignment}}}, to))
		p := w.party("g", "p", "a")
		err := p.beat()
		if is := w.m.groups["g"].consumer != nil; is != (err == nil) {
			t.Fatalf("a consumer group: %v, error %v", is, err)
		}
		if err == nil {
			w.sameConsumers("g")
			c.sendJoin()
			p.leave(leaveEpoch)
			w.restart()
		}
	})
}
