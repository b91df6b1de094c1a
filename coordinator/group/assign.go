package group

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"
)

// TopicID is a topic's id; zero where it is unknown.
type TopicID = [16]byte

// Assignment is partitions by topic: ascending, and no topic without any.
type Assignment map[TopicID][]int32

// has tells whether a partition is in it.
func (a Assignment) has(id TopicID, partition int32) bool {
	_, ok := slices.BinarySearch(a[id], partition)
	return ok
}

// add puts a partition in, in its place.
func (a Assignment) add(id TopicID, partition int32) {
	if at, ok := slices.BinarySearch(a[id], partition); !ok {
		a[id] = slices.Insert(slices.Clip(a[id]), at, partition)
	}
}

// remove takes a partition out. The slice that was there is left as it is.
func (a Assignment) remove(id TopicID, partition int32) {
	left := slices.DeleteFunc(slices.Clone(a[id]), func(p int32) bool { return p == partition })
	if a[id] = left; len(left) == 0 {
		delete(a, id)
	}
}

// equal tells whether two hold the same partitions.
func (a Assignment) equal(b Assignment) bool {
	return maps.EqualFunc(a, b, func(x, y []int32) bool { return slices.Equal(x, y) })
}

// Topics lists the topics ascending.
func (a Assignment) Topics() []TopicID { return slices.SortedFunc(maps.Keys(a), compareIDs) }

func compareIDs(a, b TopicID) int { return strings.Compare(string(a[:]), string(b[:])) }

// problem is what an assignor is asked.
type problem struct {
	members []candidate // ascending by id
	topics  map[TopicID]topicShape
	same    bool // every member has the same topics
}

// candidate is a member as an assignor sees it.
type candidate struct {
	id       string
	instance *string
	topics   []TopicID  // that it subscribes to and that exist, ascending
	had      Assignment // the target before
}

type topicShape struct {
	name       string
	partitions int32
}

// assignors are those that group.consumer.assignors may name (KIP-848). Kafka has the first two;
// block and roundrobin are of ottla.
var assignors = [...]struct {
	name   string
	assign func(*problem) map[string]Assignment
}{
	{"uniform", assignUniform},
	{"range", assignRange},
	{"roundrobin", assignRoundRobin},
	{"block", assignBlock},
}

// HasAssignor tells whether there is a server-side assignor of a name.
func HasAssignor(name string) bool { return assignor(name) != nil }

func assignor(name string) func(*problem) map[string]Assignment {
	for i := range assignors {
		if assignors[i].name == name {
			return assignors[i].assign
		}
	}
	return nil
}

// inOrder are the members with static ones first, by instance id, then the others by member id.
func (p *problem) inOrder() []*candidate {
	all := make([]*candidate, len(p.members))
	for i := range p.members {
		all[i] = &p.members[i]
	}
	slices.SortStableFunc(all, func(a, b *candidate) int {
		switch {
		case a.instance != nil && b.instance != nil:
			return strings.Compare(*a.instance, *b.instance)
		case a.instance != nil:
			return -1
		case b.instance != nil:
			return 1
		}
		return strings.Compare(a.id, b.id)
	})
	return all
}

// subscribers counts the members of each topic.
func (p *problem) subscribers() map[TopicID]int32 {
	n := map[TopicID]int32{}
	for i := range p.members {
		for _, id := range p.members[i].topics {
			n[id]++
		}
	}
	return n
}

// inRows gives each member of a topic the next partitions in a row; share says how many.
func (p *problem) inRows(share func(partitions, members, nth int32) int32) map[string]Assignment {
	members := p.subscribers()
	next, nth := map[TopicID]int32{}, map[TopicID]int32{}
	out := map[string]Assignment{}
	for _, m := range p.inOrder() {
		a := Assignment{}
		for _, id := range m.topics {
			total := p.topics[id].partitions
			from := next[id]
			to := min(from+share(total, members[id], nth[id]), total)
			nth[id]++
			for next[id] = to; from < to; from++ {
				a[id] = append(a[id], from)
			}
		}
		out[m.id] = a
	}
	return out
}

// assignRange gives each member of a topic partitions in a row, the first ones one more where
// they do not come out even (Kafka: RangeAssignor). 10 for 3 are 4, 3, 3.
func assignRange(p *problem) map[string]Assignment {
	return p.inRows(func(partitions, members, nth int32) int32 {
		n := partitions / members
		if nth < partitions%members {
			n++
		}
		return n
	})
}

// assignBlock gives each member of a topic ceil(partitions / members) in a row, which leaves
// fewer, or none, to the last: the rule of before 0.8.2.2. 10 for 3 are 4, 4, 2.
func assignBlock(p *problem) map[string]Assignment {
	return p.inRows(func(partitions, members, _ int32) int32 {
		return (partitions + members - 1) / members
	})
}

// assignRoundRobin deals the partitions of all topics, by name, to the members in turn; who does
// not read a topic is passed over (as the classic RoundRobinAssignor of clients).
func assignRoundRobin(p *problem) map[string]Assignment {
	members := p.inOrder()
	out := map[string]Assignment{}
	reads := map[TopicID]map[string]bool{}
	for _, m := range members {
		out[m.id] = Assignment{}
		for _, id := range m.topics {
			if reads[id] == nil {
				reads[id] = map[string]bool{}
			}
			reads[id][m.id] = true
		}
	}
	ids := slices.SortedFunc(maps.Keys(reads), func(a, b TopicID) int {
		return cmp.Or(strings.Compare(p.topics[a].name, p.topics[b].name), compareIDs(a, b))
	})
	at := 0
	for _, id := range ids {
		for partition := range p.topics[id].partitions {
			for !reads[id][members[at%len(members)].id] {
				at++
			}
			to := members[at%len(members)].id
			out[to][id] = append(out[to][id], partition)
			at++
		}
	}
	return out
}

// Kafka's uniform assignor goes through hash maps, and which member gets the odd partition
// depends on their order. These give it for maps that grew by insertion in ascending order.

// javaOrder sorts by the buckets of a Java HashMap.
func javaOrder[T any](all []T, hash func(T) uint32) []T {
	buckets := uint32(16)
	for float64(len(all)) > 0.75*float64(buckets) {
		buckets *= 2
	}
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b T) int {
		x, y := hash(a), hash(b)
		return cmp.Compare((x^x>>16)&(buckets-1), (y^y>>16)&(buckets-1))
	})
	return out
}

// javaHash is Java's String.hashCode.
func javaHash(s string) (h uint32) {
	for _, u := range utf16.Encode([]rune(s)) {
		h = 31*h + uint32(u)
	}
	return h
}

// javaIDHash is Kafka's Uuid.hashCode.
func javaIDHash(id TopicID) uint32 {
	var x [8]byte
	for i := range x {
		x[i] = id[i] ^ id[i+8]
	}
	high := uint32(x[0])<<24 | uint32(x[1])<<16 | uint32(x[2])<<8 | uint32(x[3])
	low := uint32(x[4])<<24 | uint32(x[5])<<16 | uint32(x[6])<<8 | uint32(x[7])
	return high ^ low
}
