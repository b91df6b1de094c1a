package group

import (
	"bytes"
	"testing"

	"ottla/coordinator"
	"ottla/protocol/record"
)

// TestConsumerRecordsOfKafka: what Kafka 4.4 wrote of a consumer group is read, and written the
// same to the byte, but for the epochs of single partitions, which Kafka adds in a tag.
func TestConsumerRecordsOfKafka(t *testing.T) {
	kinds := map[int16]int{}
	for _, path := range []string{"testdata/kafka-4.4.0-kraft-0.log", "testdata/kafka-4.4.0-kraft-1.log"} {
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
			case keyConsumerTarget:
				again = targetRecord(id, c.targetAt, targetTime(r.Value))
			case keyConsumerTargetOf:
				again = targetOfRecord(id, of, c.targets[of])
			default:
				return
			}
			if kind == keyConsumerTargetOf { // Kafka's topics come in the order of a hash map
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
	f.Fuzz(func(t *testing.T, key, value []byte) {
		one := NewMachine(Defaults, nil)
		one.Replay(coordinator.Logged{Record: coordinator.Record{Key: key, Value: value}, Producer: -1})
	})
}
