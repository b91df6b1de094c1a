package replica

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"ottla/log"
)

// paper is a log of records that have only an epoch, one offset each.
type paper struct {
	start, hw int64
	epochs    []int32 // of the records from start on
	early     []int32 // epochs that have begun at the end, without a record yet
	fail      error
}

func (p *paper) Start() int64         { return p.start }
func (p *paper) End() int64           { return p.start + int64(len(p.epochs)) }
func (p *paper) HighWatermark() int64 { return p.hw }
func (p *paper) LastEpoch() int32 {
	if n := len(p.early); n > 0 {
		return p.early[n-1]
	}
	if n := len(p.epochs); n > 0 {
		return p.epochs[n-1]
	}
	return -1
}

// EpochEnd is that of log.Log.
func (p *paper) EpochEnd(epoch int32) (int32, int64) {
	if p.LastEpoch() < 0 {
		return -1, -1
	}
	if epoch == p.LastEpoch() {
		return epoch, p.End()
	}
	found, end := int32(-1), p.start
	for i, e := range p.epochs {
		if e > epoch {
			if found < 0 {
				return epoch, p.start
			}
			return found, end
		}
		found, end = e, p.start+int64(i)+1
	}
	if epoch > p.LastEpoch() {
		return -1, -1
	}
	return found, end
}

func (p *paper) Append(records []byte) error {
	if p.fail != nil {
		return p.fail
	}
	p.early = nil
	for _, e := range records {
		p.epochs = append(p.epochs, int32(e))
	}
	return nil
}

func (p *paper) Truncate(to int64) error {
	if to < p.start {
		return p.StartAt(to)
	}
	p.epochs = p.epochs[:min(to, p.End())-p.start]
	p.early, p.hw = nil, min(p.hw, p.End())
	return nil
}

func (p *paper) StartAt(offset int64) error {
	*p = paper{start: offset, hw: offset}
	return nil
}

func (p *paper) Committed(hw, start int64) { p.hw = max(p.hw, min(hw, p.End())) }

// answer is what a leader with a log answers a request, without a session.
func (p *paper) answer(q *PullRequest) *PullAnswer {
	a := &PullAnswer{}
	for _, part := range q.Parts {
		d := Pulled{ID: part.ID, Partition: part.Partition, HighWatermark: p.hw, LogStart: p.start, DivergedEpoch: -1, DivergedEnd: -1}
		if part.LastEpoch >= 0 {
			epoch, end := p.EpochEnd(part.LastEpoch)
			if epoch < 0 || part.Offset < p.start {
				d.Err = log.ErrOffsetOutOfRange
			} else if epoch < part.LastEpoch || end < part.Offset {
				d.Diverged, d.DivergedEpoch, d.DivergedEnd = true, epoch, end
			}
		}
		if !d.Diverged && d.Err == nil {
			if part.Offset < p.start || part.Offset > p.End() {
				d.Err = log.ErrOffsetOutOfRange
			} else {
				for _, e := range p.epochs[part.Offset-p.start:] {
					d.Records = append(d.Records, byte(e))
				}
			}
		}
		a.Parts = append(a.Parts, d)
	}
	return a
}

func id(n byte) [16]byte { return [16]byte{n} }

// TestPullerAgrees: whatever two logs have become, the follower's is the leader's in the end, and of what
// agrees nothing is cut.
func TestPullerAgrees(t *testing.T) {
	for _, x := range []struct {
		name             string
		leader, follower paper
		kept             int64 // end of what the follower keeps at least
	}{
		{"empty", paper{epochs: []int32{0, 0, 1}}, paper{}, 0},
		{"behind", paper{epochs: []int32{0, 0, 1, 1}}, paper{epochs: []int32{0, 0}}, 2},
		{"equal", paper{epochs: []int32{0, 0}}, paper{epochs: []int32{0, 0}}, 2},
		{"own tail", paper{epochs: []int32{0, 0, 2}}, paper{epochs: []int32{0, 0, 1, 1}, hw: 2}, 2},
		{"longer", paper{epochs: []int32{0, 0, 2}}, paper{epochs: []int32{0, 0, 0, 0}}, 2},
		{"epochs that the other never had", paper{epochs: []int32{0, 0, 2, 2, 5}}, paper{epochs: []int32{0, 0, 1, 1, 3, 3, 4}}, 2},
		{"an epoch without records", paper{epochs: []int32{0, 0, 2}}, paper{epochs: []int32{0, 0}, early: []int32{1}}, 2},
		{"before the leader's start", paper{start: 10, epochs: []int32{3, 3}}, paper{epochs: []int32{0, 0}}, 0},
		{"unclean, shorter", paper{epochs: []int32{0, 7}}, paper{epochs: []int32{0, 0, 0, 0}}, 1},
		{"unclean, empty", paper{}, paper{epochs: []int32{0, 0, 0, 0}}, 0},
		{"no epochs", paper{epochs: []int32{4, 4, 4}}, paper{hw: 0}, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			leader, own := x.leader, x.follower
			least := own.End()
			f := newPuller(PullRules{})
			f.add(Key{"t", 0}, id(1), 9, &own)
			now := int64(0)
			for range 20 {
				q, at := f.next(now)
				if q == nil {
					now = max(now+1, at)
					continue
				}
				for _, bad := range f.took(leader.answer(q), now) {
					if !bad.outOfRange {
						t.Fatalf("trouble: %v", bad.err)
					}
					if err := f.found(bad.k, bad.epoch, leader.start, leader.End(), now); err != nil {
						t.Fatal(err)
					}
				}
				least = min(least, own.End())
			}
			if own.start > leader.start || !slices.Equal(own.epochs[leader.start-own.start:], leader.epochs) {
				t.Errorf("leader %+v, follower %+v", leader, own)
			}
			if least < x.kept {
				t.Errorf("cut to %d, though it agrees to %d", least, x.kept)
			}
		})
	}
}

// TestPullerAsks: what is asked for is what the settings say and what has changed, and what is not followed
// any more leaves the session.
func TestPullerAsks(t *testing.T) {
	f := newPuller(PullRules{MaxWait: 7 * time.Millisecond, MinBytes: 2, MaxBytes: 3, PartMaxBytes: 4, Backoff: 100 * time.Millisecond})
	logs := []*paper{{epochs: []int32{0}}, {epochs: []int32{0, 0}}}
	for n, l := range logs {
		f.add(Key{"t", int32(n)}, id(1), 5, l)
	}
	ask := func(now int64, want string) *PullRequest {
		t.Helper()
		q, at := f.next(now)
		got := fmt.Sprint("nothing until ", at)
		if q != nil {
			got = fmt.Sprintf("%d/%d", q.SessionID, q.SessionEpoch)
			for _, p := range q.Parts {
				got += fmt.Sprintf(" %d@%d(%d,%d)", p.Partition, p.Offset, p.Epoch, p.LastEpoch)
			}
			for _, p := range q.Forgotten {
				got += fmt.Sprintf(" -%d", p.Partition)
			}
		}
		if got != want {
			t.Errorf("at %d: asks %q, not %q", now, got, want)
		}
		return q
	}
	q := ask(0, "0/0 0@1(5,0) 1@2(5,0)")
	if q.MaxWait != 7*time.Millisecond || q.MinBytes != 2 || q.MaxBytes != 3 || q.Parts[0].MaxBytes != 4 {
		t.Errorf("%+v", q)
	}
	f.took(&PullAnswer{SessionID: 8, Parts: []Pulled{{ID: id(1), Partition: 1, Records: []byte{5}, DivergedEpoch: -1}}}, 1)
	ask(1, "8/1 1@3(5,5)")
	f.took(&PullAnswer{SessionID: 8, Parts: []Pulled{{ID: id(1), Partition: 0, Err: ErrNotLeader}}}, 2)
	ask(2, "8/2 -0") // it waits
	f.took(&PullAnswer{SessionID: 8}, 3)
	f.add(Key{"t", 1}, id(1), 6, logs[1]) // a newer epoch of the same leader
	ask(3, "8/3 1@3(6,5)")
	f.took(&PullAnswer{SessionID: 8}, 4)
	f.remove(Key{"t", 1})
	ask(4, "nothing until 102")
	f.add(Key{"t", 1}, id(1), 7, logs[1])
	ask(5, "0/0 1@3(7,5)")
	f.failed(6)
	ask(6, "nothing until 102")
	ask(102, "0/0 0@1(5,0)")
	f.took(&PullAnswer{SessionID: 9, Parts: []Pulled{{ID: id(1), Partition: 0, Err: ErrFencedEpoch}}}, 103)
	ask(110, "9/1 1@3(7,5) -0") // only a newer epoch brings partition 0 back
	f.took(&PullAnswer{SessionID: 9}, 111)
	f.add(Key{"t", 0}, id(1), 6, logs[0])
	ask(112, "9/2 0@1(6,0)")
}

// TestPullerIgnoresWhatIsLate: an answer to what was asked before a change does nothing.
func TestPullerIgnoresWhatIsLate(t *testing.T) {
	l := &paper{epochs: []int32{0}}
	f := newPuller(PullRules{})
	k := Key{"t", 0}
	f.add(k, id(1), 5, l)
	f.next(0)
	f.add(k, id(1), 6, l)
	f.took(&PullAnswer{Parts: []Pulled{{ID: id(1), Records: []byte{5}, DivergedEpoch: -1}}}, 0)
	if l.End() != 1 {
		t.Errorf("appended in another epoch: %+v", l)
	}
	l.fail = log.ErrStorage
	f.next(1)
	bad := f.took(&PullAnswer{Parts: []Pulled{{ID: id(1), Records: []byte{6}, DivergedEpoch: -1}}}, 1)
	if len(bad) != 1 || !errors.Is(bad[0].err, log.ErrStorage) {
		t.Errorf("trouble: %+v", bad)
	}
	if q, at := f.next(1 << 40); q != nil || at != -1 {
		t.Errorf("a log that has failed is fetched for: %+v", q)
	}
}
