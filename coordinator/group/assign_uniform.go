package group

import (
	"maps"
	"slices"
)

// assignUniform spreads partitions evenly and leaves as many as it can where they were (Kafka:
// UniformAssignor).
func assignUniform(p *problem) map[string]Assignment {
	if len(p.members) == 0 || len(p.subscribers()) == 0 {
		return nil
	}
	if p.same {
		return assignEven(p)
	}
	return assignUneven(p)
}

type topicPartition struct {
	id        TopicID
	partition int32
}

// assignEven is for members that all have the same topics (Kafka:
// UniformHomogeneousAssignmentBuilder): each is entitled to a number of partitions, gives back
// what is above it, and those below take what is free.
func assignEven(p *problem) map[string]Assignment {
	topics := javaOrder(p.members[0].topics, javaIDHash)
	taken := map[topicPartition]bool{}
	for i := range p.members {
		for id, partitions := range p.members[i].had {
			for _, n := range partitions {
				taken[topicPartition{id, n}] = true
			}
		}
	}
	var free []topicPartition
	total := 0
	for _, id := range topics {
		for n := range p.topics[id].partitions {
			total++
			if at := (topicPartition{id, n}); !taken[at] {
				free = append(free, at)
			}
		}
	}
	least, extra := total/len(p.members), total%len(p.members)
	type hungry struct {
		id    string
		quota int
	}
	var unfilled []hungry
	out := map[string]Assignment{}
	for i, m := range javaOrder(p.members, func(c candidate) uint32 { return javaHash(c.id) }) {
		quota, one := least, extra > 0
		if one {
			quota++
		}
		a := Assignment{}
		for _, id := range javaOrder(m.had.Topics(), javaIDHash) {
			if !slices.Contains(topics, id) {
				continue
			}
			keep := min(quota, len(m.had[id]))
			quota -= keep
			if keep > 0 {
				a[id] = slices.Clone(m.had[id][:keep])
			}
			for _, n := range m.had[id][keep:] {
				free = append(free, topicPartition{id, n})
			}
		}
		if quota > 0 && one && len(p.members)-i > extra { // one after it may need it to keep what it has
			quota, one = quota-1, false
		}
		if one {
			extra--
		}
		if quota > 0 {
			unfilled = append(unfilled, hungry{m.id, quota})
		}
		out[m.id] = a
	}
	for _, h := range unfilled {
		n := min(h.quota, len(free))
		for _, at := range free[:n] {
			out[h.id].add(at.id, at.partition)
		}
		free = free[n:]
	}
	return out
}

// uneven is the work on members with different topics (Kafka:
// UniformHeterogeneousAssignmentBuilder). Members go by their index.
type uneven struct {
	p           *problem
	members     []candidate
	subscribers map[TopicID][]int
	owners      map[TopicID][]int // by partition; -1: free
	sizes       []int             // partitions of each member
	out         []Assignment
}

// rounds is how often it goes through all topics at most to make it more even.
const rounds = 16

func assignUneven(p *problem) map[string]Assignment {
	u := &uneven{p: p, members: javaOrder(p.members, func(c candidate) uint32 { return javaHash(c.id) }),
		subscribers: map[TopicID][]int{}, owners: map[TopicID][]int{}}
	u.sizes, u.out = make([]int, len(u.members)), make([]Assignment, len(u.members))
	for i := range u.members {
		for _, id := range u.members[i].topics {
			u.subscribers[id] = append(u.subscribers[id], i)
		}
	}
	for id := range u.subscribers {
		u.owners[id] = slices.Repeat([]int{-1}, int(p.topics[id].partitions))
	}
	for i := range u.members {
		u.out[i] = Assignment{}
		for id, partitions := range u.members[i].had {
			if !slices.Contains(u.members[i].topics, id) {
				continue
			}
			for _, n := range partitions {
				if int(n) < len(u.owners[id]) {
					u.give(id, n, i)
				}
			}
		}
	}
	ids := u.sorted(maps.Keys(u.subscribers))
	for _, id := range ids {
		var free []int32
		for n, owner := range u.owners[id] {
			if owner == -1 {
				free = append(free, int32(n))
			}
		}
		if len(free) > 0 {
			s := u.newScales(u.subscribers[id])
			for _, n := range free {
				u.give(id, n, s.lightest())
			}
		}
	}
	u.balance(slices.DeleteFunc(ids, func(id TopicID) bool { return len(u.subscribers[id]) < 2 }))
	out := map[string]Assignment{}
	for i := range u.members {
		out[u.members[i].id] = u.out[i]
	}
	return out
}

// give moves a partition to a member.
func (u *uneven) give(id TopicID, partition int32, to int) {
	if from := u.owners[id][partition]; from != -1 {
		u.out[from].remove(id, partition)
		u.sizes[from]--
	}
	u.out[to].add(id, partition)
	u.owners[id][partition] = to
	u.sizes[to]++
}

// balance goes through the topics until nothing changes, rounds times at most.
func (u *uneven) balance(ids []TopicID) {
	last := -1
	for range rounds {
		for i, id := range ids {
			if i == last {
				return
			}
			if u.balanceTopic(id) || last == -1 {
				last = i
			}
		}
	}
}

// balanceTopic moves partitions of one topic from those who have most to those who have least,
// each of its members' last ones first.
func (u *uneven) balanceTopic(id TopicID) (moved bool) {
	s := u.newScales(u.subscribers[id])
	if u.sizes[s.members[len(s.members)-1]]-u.sizes[s.members[0]] <= 1 {
		return false
	}
	left := map[int][]int32{}
	for n, owner := range u.owners[id] {
		left[owner] = append(left[owner], int32(n))
	}
	for !s.even() {
		from := s.heaviest()
		for from != -1 && len(left[from]) == 0 {
			s.passOver()
			from = s.heaviest()
		}
		if from == -1 {
			break
		}
		has := left[from]
		n := has[len(has)-1]
		left[from] = has[:len(has)-1]
		to := s.lightest()
		if s.even() {
			break
		}
		u.give(id, n, to)
		moved = true
	}
	return moved
}
