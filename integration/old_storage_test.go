//go:build clients

package integration

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kept is where a group is by the tree and by its coordinator, partitions of one topic.
func (c *oldCluster) kept(group, topic string, partitions int32) (tree, coordinator map[int32]int64) {
	c.t.Helper()
	tree, coordinator = map[int32]int64{}, map[int32]int64{}
	for p := range partitions {
		var at int64
		if _, err := fmt.Sscan(znode(c.t, c.tree, fmt.Sprintf("/consumers/%s/offsets/%s/%d", group, topic, p)), &at); err == nil {
			tree[p] = at
		}
	}
	offsets, err := kadm.NewClient(goClient(c.t, kgo.SeedBrokers(c.addrs()...))).FetchOffsets(c.t.Context(), group)
	if err != nil {
		c.t.Fatal(err)
	}
	offsets.Each(func(o kadm.OffsetResponse) { coordinator[o.Partition] = o.At })
	return tree, coordinator
}

// TestOldOffsetStorage moves a group of 0.8.2.2 consumers from offsets in ZooKeeper to offsets in Kafka as its
// documentation says: with both for a while.
func TestOldOffsetStorage(t *testing.T) {
	c := startOldCluster(t, 2)
	d := c.program()
	c.create("t", 3)
	total := map[int32]int64{}
	from := 0
	// turn is one member that takes thirty messages that are new, commits and leaves.
	turn := func(id string, settings args) (tree, coordinator map[int32]int64) {
		t.Helper()
		m := c.join(d, "g", id, "t", 1, settings)
		c.owned("g", "t", map[string]string{id + "-0": "0 1 2"})
		c.oldSend(d, "t", "none", from, from+30)
		maps.Copy(total, c.take(from, from+30, m))
		from += 30
		c.commit(m)
		if err := m.leave(); err != nil {
			t.Fatal(err)
		}
		return c.kept("g", "t", 3)
	}
	check := func(what string, got, want map[int32]int64) {
		t.Helper()
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	tree, coordinator := turn("zookeeper", nil)
	check("in ZooKeeper", tree, total)
	check("in Kafka", coordinator, nil)
	tree, coordinator = turn("both", args{"offsets.storage": "kafka", "dual.commit.enabled": "true"})
	check("both, in ZooKeeper", tree, total)
	check("both, in Kafka", coordinator, total)
	before := maps.Clone(total)
	tree, coordinator = turn("kafka", args{"offsets.storage": "kafka", "dual.commit.enabled": "false"})
	check("Kafka alone, in ZooKeeper", tree, before)
	check("Kafka alone, in Kafka", coordinator, total)
	tree, coordinator = turn("back", args{"offsets.storage": "kafka", "dual.commit.enabled": "true"}) // goes on at the larger one
	check("back, in ZooKeeper", tree, total)
	check("back, in Kafka", coordinator, total)

	// What SimpleConsumer commits by version 0 any broker keeps, and by version 1 the coordinator.
	type found map[int32][2]int64
	ask := func(op string, broker int, group string, version int, value any) {
		t.Helper()
		a := args{"broker": c.brokers[broker].Addr(), "group": group, "topic": "t", "partitions": []int{0, 1, 7}, "version": version, "offset": 42}
		if err := d.do(t.Context(), op, a, value); err != nil {
			t.Fatal(err)
		}
	}
	var errors map[int32]int64
	var offsets found
	ask("fetch_offsets", 0, "simple", 0, &offsets)
	if want := (found{0: {-1, 3}, 1: {-1, 3}, 7: {-1, 3}}); !maps.Equal(offsets, want) {
		t.Errorf("version 0, nothing kept: %v, want %v", offsets, want)
	}
	ask("commit_offsets", 0, "simple", 0, &errors)
	check("commit by version 0", errors, map[int32]int64{0: 0, 1: 0, 7: 3})
	for broker := range c.brokers {
		ask("fetch_offsets", broker, "simple", 0, &offsets)
		if want := (found{0: {42, 0}, 1: {42, 0}, 7: {-1, 3}}); !maps.Equal(offsets, want) {
			t.Errorf("version 0 of broker %d: %v, want %v", broker, offsets, want)
		}
	}
	served := 0
	for broker := range c.brokers {
		ask("commit_offsets", broker, "simple", 1, &errors)
		ask("fetch_offsets", broker, "simple", 1, &offsets)
		if errors[0] == 16 { // it is the other
			if offsets[0] != [2]int64{-1, 16} {
				t.Errorf("version 1, not the coordinator: %v", offsets)
			}
			continue
		}
		served++
		check("commit by version 1", errors, map[int32]int64{0: 0, 1: 0, 7: 3})
		if want := (found{0: {42, 0}, 1: {42, 0}, 7: {-1, 0}}); !maps.Equal(offsets, want) {
			t.Errorf("version 1: %v, want %v", offsets, want)
		}
	}
	if served != 1 {
		t.Errorf("%d coordinators of a group", served)
	}
	leader := stateOf(t, c.tree, "t", 0).Leader
	for at, want := range map[int64][]int64{-1: {total[0], 0}, -2: {0}} {
		var got []int64
		a := args{"broker": c.brokers[leader-1].Addr(), "topic": "t", "partitions": []int{0}, "time": at, "count": 5}
		if err := d.do(t.Context(), "offsets_before", a, &got); err != nil || !slices.Equal(got, want) {
			t.Errorf("offsets before %d: %v, %v, want %v", at, got, err, want)
		}
	}
}

// TestOldAndNew: what a producer of today has written is read by a consumer of 0.8.2.2, and the other way.
func TestOldAndNew(t *testing.T) {
	c := startOldCluster(t, 1)
	d := c.program()
	c.create("t", 2)
	m := c.join(d, "old", "A", "t", 1, nil)
	c.owned("old", "t", map[string]string{"A-0": "0 1"})
	n := 0
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression()} {
		cl := goClient(t, kgo.SeedBrokers(c.addrs()...), kgo.ProducerBatchCompression(codec))
		var records []*kgo.Record
		for i := range 50 {
			records = append(records, &kgo.Record{Topic: "t", Key: fmt.Append(nil, "k", n+i), Value: fmt.Append(nil, n+i), Headers: []kgo.RecordHeader{{Key: "h"}}})
		}
		if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		c.take(n, n+50, m)
		n += 50
	}
	for _, codec := range []string{"none", "gzip", "snappy"} { // lz4 is no codec of the old producer
		c.oldSend(d, "t", codec, n, n+50)
		c.take(n, n+50, m)
		n += 50
	}
	cl := goClient(t, kgo.SeedBrokers(c.addrs()...), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	seen := map[string]bool{}
	for len(seen) < n {
		fs := cl.PollFetches(t.Context())
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if string(r.Key) != "k"+string(r.Value) || seen[string(r.Value)] {
				t.Errorf("%s: %s", r.Key, r.Value)
			}
			seen[string(r.Value)] = true
		})
	}
}
