package group

import (
	"cmp"
	"iter"
	"slices"
)

// scales tells which members of a topic have fewest and most partitions while partitions move
// from the latter to the former (Kafka: MemberAssignmentBalancer). Members with as many as each
// other take turns.
type scales struct {
	u       *uneven
	members []int // ascending by their number of partitions at the beginning

	low, lowEnd, lowNext               int // number; end of those with it; who is next
	high, highStart, highEnd, highNext int
}

func (u *uneven) newScales(members []int) *scales {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b int) int { return cmp.Or(cmp.Compare(u.sizes[a], u.sizes[b]), cmp.Compare(a, b)) })
	n := len(sorted)
	return &scales{u: u, members: sorted, low: u.sizes[sorted[0]] - 1,
		high: u.sizes[sorted[n-1]] + 1, highStart: n, highEnd: n, highNext: n - 1}
}

// lightest is the member that gets the next partition.
func (s *scales) lightest() int {
	if s.lowNext >= s.lowEnd {
		for s.low++; s.lowEnd < len(s.members) && s.u.sizes[s.members[s.lowEnd]] == s.low; {
			s.lowEnd++
		}
		s.lowNext = 0
	}
	m := s.members[s.lowNext]
	s.lowNext++
	return m
}

// heaviest is the member that gives the next partition, -1 when none is left.
func (s *scales) heaviest() int {
	if s.highNext < s.highStart {
		if s.highEnd <= s.highStart && s.highStart > 0 {
			s.high = s.u.sizes[s.members[s.highStart-1]]
		} else {
			s.high--
		}
		for s.highStart > 0 && s.u.sizes[s.members[s.highStart-1]] == s.high {
			s.highStart--
		}
		s.highNext = s.highEnd - 1
	}
	if s.highNext < 0 {
		return -1
	}
	m := s.members[s.highNext]
	s.highNext--
	return m
}

// passOver leaves the last heaviest member out from now on: it has nothing of the topic.
func (s *scales) passOver() {
	at := s.highNext + 1
	s.members[at], s.members[s.highEnd-1] = s.members[s.highEnd-1], s.members[at]
	s.highEnd--
}

func (s *scales) even() bool { return s.high-s.low <= 1 }

// sorted has topics with most partitions a member first, then those with fewest members.
func (u *uneven) sorted(ids iter.Seq[TopicID]) []TopicID {
	ratio := func(id TopicID) float64 {
		return float64(u.p.topics[id].partitions) / float64(len(u.subscribers[id]))
	}
	return slices.SortedFunc(ids, func(a, b TopicID) int {
		return cmp.Or(cmp.Compare(ratio(b), ratio(a)), cmp.Compare(len(u.subscribers[a]), len(u.subscribers[b])), compareJavaIDs(a, b))
	})
}

// compareJavaIDs is Kafka's Uuid.compareTo: by halves, as signed numbers.
func compareJavaIDs(a, b TopicID) int {
	half := func(x []byte) (n int64) {
		for _, c := range x {
			n = n<<8 | int64(c)
		}
		return n
	}
	return cmp.Or(cmp.Compare(half(a[:8]), half(b[:8])), cmp.Compare(half(a[8:]), half(b[8:])))
}
