package group

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
)

// recorded is one line of testdata/assignors-kafka-4.4.0.jsonl, which testdata/Assignors.java
// printed with Kafka 4.4.0's libraries: what its assignors gave. Topics are ids in hex.
type recorded struct {
	Assignor string
	Topics   map[string]int32
	Members  []struct {
		ID       string
		Instance *string
		Topics   []string
		Had      map[string][]int32
	}
	Want map[string]map[string][]int32
}

func hexID(t *testing.T, s string) (id TopicID) {
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		t.Fatal(err)
	}
	return id
}

func hexAssignment(t *testing.T, m map[string][]int32) Assignment {
	a := Assignment{}
	for id, ps := range m {
		a[hexID(t, id)] = ps
	}
	return a
}

// TestAssignorsAsKafka: uniform and range give what Kafka's give.
func TestAssignorsAsKafka(t *testing.T) {
	data, err := os.ReadFile("testdata/assignors-kafka-4.4.0.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(data) {
		var r recorded
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		n++
		p := &problem{topics: map[TopicID]topicShape{}, same: true}
		for id, partitions := range r.Topics {
			p.topics[hexID(t, id)] = topicShape{id, partitions}
		}
		for _, m := range r.Members {
			c := candidate{id: m.ID, instance: m.Instance, had: hexAssignment(t, m.Had)}
			for _, id := range m.Topics {
				c.topics = append(c.topics, hexID(t, id))
			}
			p.same = p.same && (len(p.members) == 0 || slices.Equal(c.topics, p.members[0].topics))
			p.members = append(p.members, c)
		}
		got := assignor(r.Assignor)(p)
		for id, want := range r.Want {
			if w := hexAssignment(t, want); !w.equal(got[id]) {
				t.Errorf("line %d: %s of %d members (same topics: %v): %s has %v, want %v", n, r.Assignor, len(r.Members), p.same, id, got[id], w)
			}
		}
	}
	if n != 120 {
		t.Errorf("%d lines", n)
	}
}

// TestAssignorShapes: 10 partitions for 3 members, and what the assignors do where members differ.
func TestAssignorShapes(t *testing.T) {
	a, b := topicID("a"), topicID("b")
	shapes := map[TopicID]topicShape{a: {"a", 10}, b: {"b", 4}}
	member := func(id string, topics ...TopicID) candidate { return candidate{id: id, topics: topics} }
	three := []candidate{member("x", a), member("y", a), member("z", a)}
	mixed := []candidate{member("x", a), member("y", a, b), member("z", b)}
	row := func(from, to int32) (ps []int32) {
		for ; from < to; from++ {
			ps = append(ps, from)
		}
		return ps
	}
	for name, x := range map[string]struct {
		assignor string
		members  []candidate
		want     map[string]Assignment
	}{
		"range":        {"range", three, map[string]Assignment{"x": {a: row(0, 4)}, "y": {a: row(4, 7)}, "z": {a: row(7, 10)}}},
		"block":        {"block", three, map[string]Assignment{"x": {a: row(0, 4)}, "y": {a: row(4, 8)}, "z": {a: row(8, 10)}}},
		"roundrobin":   {"roundrobin", three, map[string]Assignment{"x": {a: {0, 3, 6, 9}}, "y": {a: {1, 4, 7}}, "z": {a: {2, 5, 8}}}},
		"range, mixed": {"range", mixed, map[string]Assignment{"x": {a: row(0, 5)}, "y": {a: row(5, 10), b: row(0, 2)}, "z": {b: row(2, 4)}}},
		"block, mixed": {"block", mixed, map[string]Assignment{"x": {a: row(0, 5)}, "y": {a: row(5, 10), b: row(0, 2)}, "z": {b: row(2, 4)}}},
		"roundrobin, mixed": {"roundrobin", mixed, map[string]Assignment{"x": {a: {0, 2, 4, 6, 8}},
			"y": {a: {1, 3, 5, 7, 9}, b: {1, 3}}, "z": {b: {0, 2}}}},
	} {
		p := &problem{members: x.members, topics: shapes}
		if got := assignor(x.assignor)(p); !maps.EqualFunc(got, x.want, Assignment.equal) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
	// Nine members leave nothing to the last one by block: ceil(10/9) is 2.
	p := &problem{topics: shapes}
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		p.members = append(p.members, member(id, a))
	}
	if got := assignBlock(p); len(got["5"][a]) != 2 || len(got["6"]) != 0 {
		t.Errorf("block of nine: %v", got)
	}
}
