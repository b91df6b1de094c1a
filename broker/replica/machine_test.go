package replica

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func leaderOfThree(t *testing.T) *machine {
	t.Helper()
	m := newMachine(1, 1000)
	m.lead(State{Leader: 1, LeaderEpoch: 5, Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3}}, 10, 7, 100, 1)
	return &m
}

func TestHighWatermarkOfOneReplicaFollowsItsEnd(t *testing.T) {
	m := newMachine(1, 1000)
	if !m.lead(State{Leader: 1, LeaderEpoch: 0, Replicas: []int32{1}, ISR: []int32{1}}, 4, 0, 0, 2) {
		t.Fatal("a lone leader has not committed what it has")
	}
	if m.hw != 4 {
		t.Fatalf("watermark %d, want 4", m.hw)
	}
	if !m.appended(6, 0, 2) || m.hw != 6 {
		t.Fatalf("watermark %d after an append, want 6", m.hw)
	}
	if m.appended(6, 0, 2) {
		t.Fatal("the watermark moved without an append")
	}
	if !m.enough(2) {
		t.Fatal("min.insync.replicas counts at most the replicas there are")
	}
}

func TestHighWatermarkIsTheSmallestEndInSync(t *testing.T) {
	m := leaderOfThree(t)
	if m.hw != 7 {
		t.Fatalf("watermark %d, want 7: the followers have not fetched yet", m.hw)
	}
	m.fetched(2, 10, 0, 10, 110, -1, 1)
	if m.hw != 7 {
		t.Fatalf("watermark %d, want 7: follower 3 has not fetched yet", m.hw)
	}
	if p := m.fetched(3, 9, 0, 10, 120, -1, 1); !p.high || m.hw != 9 {
		t.Fatalf("watermark %d, want 9", m.hw)
	}
	m.appended(20, 130, 1)
	if m.hw != 9 {
		t.Fatalf("watermark %d after an append, want 9", m.hw)
	}
}

func TestWatermarkStandsBelowTheMinimum(t *testing.T) {
	m := leaderOfThree(t)
	m.decided([]int32{1}, 3, 5000, 2) // the others are out
	m.appended(15, 5000, 2)
	if m.hw != 7 || m.enough(2) {
		t.Fatalf("watermark %d, want 7: one of two needed replicas is in sync", m.hw)
	}
	m.decided([]int32{1, 2}, 4, 5000, 2)
	m.fetched(2, 12, 0, 15, 5010, -1, 2)
	if m.hw != 12 {
		t.Fatalf("watermark %d, want 12", m.hw)
	}
}

func TestFollowerJoinsTheISRAtTheWatermark(t *testing.T) {
	m := newMachine(1, 1000)
	m.lead(State{Leader: 1, LeaderEpoch: 5, Replicas: []int32{1, 2}, ISR: []int32{1}}, 10, 7, 100, 1)
	if m.hw != 10 {
		t.Fatalf("watermark %d, want 10", m.hw)
	}
	if m.fetched(2, 8, 0, 10, 200, -1, 1).join {
		t.Fatal("a follower below the epoch's start may not join")
	}
	if !m.fetched(2, 10, 0, 10, 210, -1, 1).join {
		t.Fatal("a follower that has all shall join")
	}
	m.propose([]int32{1, 2})
	if m.fetched(2, 10, 0, 10, 220, -1, 1).join {
		t.Fatal("one proposal at a time")
	}
	m.appended(12, 230, 1)
	if m.hw != 10 {
		t.Fatalf("watermark %d, want 10: the proposed replica counts already", m.hw)
	}
	if !m.enoughMaximal(2) || m.enough(2) {
		t.Fatal("a proposed replica counts for the acknowledgement, not for the append")
	}
	m.decided([]int32{1, 2}, 9, 240, 1)
	if m.decided([]int32{1}, 8, 250, 1) || len(m.isr) != 2 {
		t.Fatal("an older answer of the controller was taken")
	}
}

func TestLaggingFollowersAreNamed(t *testing.T) {
	m := leaderOfThree(t)
	m.fetched(2, 10, 0, 10, 500, -1, 1)
	if got := m.lagging(1000); got != nil {
		t.Fatalf("lagging %v, want none yet", got)
	}
	m.appended(11, 1200, 1)
	if got := m.lagging(1200); !slices.Equal(got, []int32{3}) {
		t.Fatalf("lagging %v, want 3", got)
	}
	m.fetched(2, 10, 0, 11, 1400, -1, 1) // it had at 500 what there was then
	if got := m.lagging(1499); !slices.Equal(got, []int32{3}) {
		t.Fatalf("lagging %v, want 3", got)
	}
	if got := m.lagging(1501); !slices.Equal(got, []int32{2, 3}) {
		t.Fatalf("lagging %v, want 2 and 3", got)
	}
}

func TestLowWatermarkLeavesOutTheDead(t *testing.T) {
	m := leaderOfThree(t)
	m.fetched(2, 10, 3, 10, 110, -1, 1)
	m.fetched(3, 10, 1, 10, 110, -1, 1)
	if got := m.low(5, func(int32) bool { return true }); got != 1 {
		t.Errorf("low watermark %d, want 1", got)
	}
	if got := m.low(5, func(id int32) bool { return id != 3 }); got != 3 {
		t.Errorf("low watermark without broker 3: %d, want 3", got)
	}
}

func TestCheckEpoch(t *testing.T) {
	for _, x := range []struct {
		current int32
		want    error
	}{{-1, nil}, {5, nil}, {4, ErrFencedEpoch}, {6, ErrUnknownEpoch}} {
		if err := checkEpoch(x.current, 5); !errors.Is(err, x.want) {
			t.Errorf("epoch %d: %v, want %v", x.current, err, x.want)
		}
	}
}

// TestMachineKeepsItsPromises drives a leader with random events and looks after each at what
// must hold.
func TestMachineKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(1, 1000)
		now, end, epoch, version := int64(0), int64(0), int32(0), int32(0)
		start := map[int32]int64{2: 0, 3: 0}
		minISR := rapid.IntRange(1, 4).Draw(t, "min")
		m.lead(State{Leader: 1, Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3}}, 0, 0, 0, minISR)
		hw := m.hw
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				end += rapid.Int64Range(1, 5).Draw(t, "records")
				m.appended(end, now, minISR)
			},
			"fetch": func(t *rapid.T) {
				id := rapid.Int32Range(2, 4).Draw(t, "broker") // 4 is no replica
				from := max(start[id], 0)
				offset := rapid.Int64Range(from, max(end, from)).Draw(t, "offset")
				if m.followers[id] != nil {
					start[id] = offset
				}
				if m.fetched(id, offset, 0, end, now, -1, minISR).join {
					if slices.Contains(m.isr, id) || m.followers[id].end < m.hw {
						t.Fatalf("broker %d shall join the ISR %v with %d, watermark %d", id, m.isr, offset, m.hw)
					}
					m.propose(append(slices.Clone(m.isr), id))
				}
			},
			"time": func(t *rapid.T) { now += rapid.Int64Range(1, 2000).Draw(t, "ms") },
			"shrink": func(t *rapid.T) {
				if out := m.lagging(now); out != nil {
					m.propose(slices.DeleteFunc(slices.Clone(m.isr), func(id int32) bool { return slices.Contains(out, id) }))
				}
			},
			"decide": func(t *rapid.T) {
				if m.proposed != nil && version < 1<<30 {
					version++
					m.decided(m.proposed, version, now, minISR)
				}
			},
			"elect": func(t *rapid.T) {
				epoch++
				version++
				m.lead(State{Leader: 1, LeaderEpoch: epoch, PartitionEpoch: version, Replicas: []int32{1, 2, 3}, ISR: m.isr}, end, m.hw, now, minISR)
			},
			"": func(t *rapid.T) {
				if m.hw < hw {
					t.Fatalf("watermark went back from %d to %d", hw, m.hw)
				}
				if m.hw > end {
					t.Fatalf("watermark %d above the end %d", m.hw, end)
				}
				if m.hw > hw && !m.enough(minISR) {
					t.Fatalf("watermark moved with ISR %v, minimum %d", m.isr, minISR)
				}
				for id, f := range m.followers {
					if slices.Contains(m.isr, id) && f.end >= 0 && m.hw > hw && f.end < m.hw {
						t.Fatalf("watermark moved to %d above the end %d of broker %d in the ISR", m.hw, f.end, id)
					}
				}
				hw = m.hw
			},
		})
	})
}

// TestProposalOutlastsKnownState: a controller that tells once more what is known does not make the leader
// forget a replica that it has proposed, and that may be in sync by now.
func TestProposalOutlastsKnownState(t *testing.T) {
	s := State{Leader: 1, LeaderEpoch: 3, PartitionEpoch: 5, ISR: []int32{1}, Replicas: []int32{1, 2}}
	m := newMachine(1, 1000)
	m.lead(s, 10, 10, 0, 1)
	m.fetched(2, 10, 0, 10, 1, 7, 1)
	m.propose([]int32{1, 2})
	m.lead(s, 10, 10, 5000, 1) // told again, and the follower lags by now
	m.appended(12, 5001, 1)
	if m.hw != 10 {
		t.Errorf("high watermark %d without the replica that was proposed", m.hw)
	}
	if moved := m.decided([]int32{1, 2}, 6, 5002, 1); moved || m.proposed != nil {
		t.Errorf("moved %v, proposed %v", moved, m.proposed)
	}
	m.propose([]int32{1})
	s.PartitionEpoch, s.ISR = 7, []int32{1}
	if m.lead(s, 12, 10, 5003, 1); m.hw != 12 || m.proposed != nil {
		t.Errorf("after a newer state: high watermark %d, proposed %v", m.hw, m.proposed)
	}
}

// TestTheGoneAreNotWaitedFor: a replica that had caught up, and is not in sync, holds the high watermark back
// only as long as its broker is there.
func TestTheGoneAreNotWaitedFor(t *testing.T) {
	m := newMachine(1, 1000)
	there := true
	m.alive = func(int32) bool { return there }
	m.lead(State{Leader: 1, LeaderEpoch: 3, ISR: []int32{1, 2}, Replicas: []int32{1, 2, 3}}, 10, 10, 0, 1)
	m.fetched(2, 10, 0, 10, 1, 7, 1)
	m.fetched(3, 10, 0, 10, 1, 7, 1)
	m.appended(11, 2, 1)
	m.fetched(2, 11, 0, 11, 3, 7, 1)
	if m.hw != 10 {
		t.Errorf("high watermark %d, though a replica may join that is at 10", m.hw)
	}
	there = false
	if !m.advance(4, 1) || m.hw != 11 {
		t.Errorf("high watermark %d, though the replica's broker has left", m.hw)
	}
}
