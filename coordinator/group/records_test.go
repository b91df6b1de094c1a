package group

import (
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/coordinator"
	"ottla/protocol/record"
)

// Values that Kafka computes for Utils.abs("…".hashCode()) % 50.
func TestPartitionOf(t *testing.T) {
	for group, hash := range map[string]int32{
		"": 0, "a": 97, "ab": 3105, "hello": 99162322, "polygenelubricants": -1 << 31, "ä": 228, "𝄞": 55348*31 + 56606,
		"console-consumer-1": coordinator.JavaHash("console-consumer-1"),
	} {
		want(t, "hash of "+group, coordinator.JavaHash(group), hash)
	}
	want(t, "the smallest hash", PartitionOf("polygenelubricants", 50), 0)
	want(t, "a negative hash", PartitionOf("my-group-with-a-long-name", 50) >= 0, true)
}

func TestOldVersionsOfRecords(t *testing.T) {
	w := newWorld(t)
	add := func(r coordinator.Record) {
		w.log = append(w.log, coordinator.Logged{Record: r, Offset: int64(len(w.log)), Producer: -1})
	}
	for version := range int16(5) {
		v := kmsg.NewOffsetCommitValue()
		v.Version, v.Offset, v.LeaderEpoch, v.Metadata, v.CommitTimestamp, v.ExpireTimestamp = version, int64(version), 7, "m", startOfTime, startOfTime+5
		k := kmsg.NewOffsetCommitKey()
		k.Version, k.Group, k.Topic, k.Partition = min(version, 1), "g", "t", int32(version)
		add(coordinator.Record{Key: k.AppendTo(nil), Value: v.AppendTo(nil)})

		g := kmsg.NewGroupMetadataValue()
		g.Version, g.ProtocolType, g.Generation, g.Protocol, g.Leader, g.CurrentStateTimestamp = version, "consumer", 3, kmsg.StringPtr("range"), kmsg.StringPtr("m"), 5
		mb := kmsg.NewGroupMetadataValueMember()
		mb.MemberID, mb.ClientID, mb.SessionTimeoutMillis, mb.RebalanceTimeoutMillis = "m", "c", 10000, 20000
		mb.Subscription = consumerProtocols("t")[0].Metadata
		g.Members = append(g.Members, mb)
		add(coordinator.Record{Key: groupKey("v" + itoa(int64(version))), Value: g.AppendTo(nil)})
	}
	w.restart()
	for version := range int32(5) {
		o, ok := w.m.offset(place{"g", "t", version})
		want(t, "offset is there", ok, true)
		want(t, "offset", o.at, int64(version))
		want(t, "leader epoch is read from version 3 on", o.epoch == 7, version >= 3)
		want(t, "time of expiry is version 1's", o.expires, map[bool]int64{true: startOfTime + 5, false: -1}[version == 1])
		g := w.m.groups["v"+itoa(int64(version))]
		want(t, "state", g.state, Stable)
		want(t, "since is read from version 2 on", g.since >= 0, version >= 2)
		want(t, "rebalance timeout of version 0 is the session's", g.order[0].rebalance == g.order[0].session, version == 0)
		want(t, "subscription", g.topics["t"], true)
	}
}

func TestOffsetsOfTransactions(t *testing.T) { // txn-5's part of the log
	w := newWorld(t)
	put := func(producer, at int64, offset int64) {
		r := offsetRecord(place{"g", "t", 0}, offset_(offset))
		w.m.Replay(coordinator.Logged{Record: r, Offset: at, Producer: producer})
	}
	stable := func() error {
		to := &coordinator.Ticket{}
		w.take(w.m.Fetch(w.now, FetchRequest{Group: "g", RequireStable: true, Topics: []FetchTopic{{Name: "t", Partitions: []int32{0}}}}, to))
		return must[[]FetchedTopic](w, to)[0].Partitions[0].Err
	}
	put(-1, 0, 5)
	put(7, 1, 10)
	want(t, "while it is open", w.stored("g", "t"), 5)
	want(t, "asked for a stable one", stable(), error(ErrUnstableOffset))
	w.m.ReplayMarker(7, false)
	want(t, "after an abort", w.stored("g", "t"), 5)
	want(t, "asked for a stable one", stable(), nil)
	put(7, 2, 10)
	w.m.ReplayMarker(7, true)
	want(t, "after a commit", w.stored("g", "t"), 10)
	put(7, 3, 11)
	put(-1, 4, 12)
	w.m.ReplayMarker(7, true)
	want(t, "a later record outside of it wins", w.stored("g", "t"), 12)
	put(8, 5, 13)
	want(t, "delete of a group with an open transaction", w.deleteGroup("g"), nil)
	w.m.ReplayMarker(8, true)
	want(t, "what the transaction had for it", w.stored("g", "t"), -1)
}

func offset_(at int64) offset { return offset{at: at, epoch: -1, expires: -1} }

func FuzzReplay(f *testing.F) {
	for _, name := range []string{"kafka-4.4.0-kraft-0", "kafka-4.4.0-kraft-1", "kafka-3.9.1-zk-0"} {
		data, err := os.ReadFile("testdata/" + name + ".log")
		if err != nil {
			f.Fatal(err)
		}
		for b := range record.All(data) {
			for r := range record.Records(b, 0) {
				f.Add(r.Key, r.Value)
			}
		}
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m := NewMachine(Defaults, nil)
		m.Replay(coordinator.Logged{Record: coordinator.Record{Key: key, Value: value}, Producer: -1})
		now := coordinator.Instant{Wall: startOfTime}
		m.Start(now)
		for range 10 {
			m.Tick(coordinator.Instant{Mono: m.Wake()})
		}
		m.Sweep(now)
		if value == nil {
			return
		}
		id, p, isOffset, known, err := readKey(key)
		if err != nil || !known {
			return
		}
		if isOffset {
			o, err := readOffset(value)
			if err != nil {
				return
			}
			if o.expires < 0 && o.expires != -1 {
				o.expires = -1
			}
			again, err := readOffset(offsetRecord(p, o).Value)
			if o.expires >= 0 { // version 1 has no place for these
				o.epoch, o.topicID = -1, [16]byte{}
			}
			if err != nil || again != o {
				t.Fatalf("%+v is read back as %+v, %v", o, again, err)
			}
			return
		}
		if g := m.groups[id]; g != nil && g.state == Stable {
			if _, err := readGroup(groupRecord(g, func(mb *member) []byte { return mb.assignment }).Value); err != nil {
				t.Fatal(err)
			}
		}
	})
}
