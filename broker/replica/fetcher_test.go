package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"ottla/broker/metadata"
	"ottla/protocol/record"
)

// leaders are scripts in place of other brokers.
type leaders struct {
	mu     sync.Mutex
	opened []string
	asked  chan *PullRequest // every request, as long as somebody takes them
	answer func(leader int32, q *PullRequest) (*PullAnswer, error)
}

type script struct {
	ls *leaders
	id int32
}

func (s *script) Close() {}

func (s *script) Pull(ctx context.Context, q *PullRequest) (*PullAnswer, error) {
	select {
	case s.ls.asked <- q:
	default:
	}
	if a, err := s.ls.answer(s.id, q); a != nil || err != nil {
		return a, err
	}
	t := time.NewTimer(5 * time.Millisecond) // there is nothing new
	defer t.Stop()
	select {
	case <-t.C:
		return &PullAnswer{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *script) Ends(context.Context, Key, int32) (int64, int64, error) {
	return 0, 0, errors.New("not asked for")
}

func (ls *leaders) source(leader int32, n int) Source {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.opened = append(ls.opened, fmt.Sprintf("%d/%d", leader, n))
	return &script{ls, leader}
}

func (h *house) follow(ls *leaders, fetchers int) {
	h.opts.Source, h.opts.Fetchers = ls.source, func() int { return fetchers }
	h.opts.Pull = PullRules{Backoff: time.Millisecond}
}

// TestFetchersOfABroker: partitions are spread over as many fetchers of a leader as the setting says, none of
// which is left when there is nothing to fetch.
func TestFetchersOfABroker(t *testing.T) {
	h := newHouse(t)
	ls := &leaders{answer: func(int32, *PullRequest) (*PullAnswer, error) { return nil, nil }}
	h.follow(ls, 3)
	var states []State
	for n := range int32(20) {
		states = append(states, State{Topic: "t", ID: [16]byte{1}, Partition: n, Leader: 2 + n%2, LeaderEpoch: 1, ISR: []int32{2, 3, 1}, Replicas: []int32{2, 3, 1}, New: true})
	}
	if failed := h.Apply(states); len(failed) > 0 {
		t.Fatal(failed)
	}
	h.fetchers.mu.Lock()
	n := len(h.fetchers.all)
	h.fetchers.mu.Unlock()
	if n != 6 {
		t.Errorf("%d fetchers of two leaders", n)
	}
	for n := range int32(20) {
		if err := h.Stop("t", n, false); err != nil {
			t.Fatal(err)
		}
	}
	h.fetchers.ends.Wait()
	slices.Sort(ls.opened)
	if got := fmt.Sprint(ls.opened); got != "[2/0 2/1 2/2 3/0 3/1 3/2]" {
		t.Errorf("ways opened: %s", got)
	}
}

// TestFollow: a follower has the leader's records and high watermark, and leads with them afterwards.
func TestFollow(t *testing.T) {
	h := newHouse(t)
	records := batch("a", "b", "c")
	record.Batch(records).SetLeaderEpoch(4)
	given := make(chan struct{})
	ls := &leaders{asked: make(chan *PullRequest, 1)}
	ls.answer = func(_ int32, q *PullRequest) (*PullAnswer, error) {
		p := q.Parts[0]
		switch {
		case p.Offset == 0:
			return &PullAnswer{Parts: []Pulled{{ID: p.ID, Partition: p.Partition, Records: records, HighWatermark: 2, DivergedEpoch: -1, DivergedEnd: -1}}}, nil
		case p.Offset == 3 && p.LastEpoch == 4:
			select {
			case <-given:
			default:
				close(given)
			}
		}
		return nil, nil
	}
	h.follow(ls, 1)
	s := State{Topic: "t", ID: [16]byte{1}, Leader: 2, LeaderEpoch: 4, ISR: []int32{2, 1}, Replicas: []int32{2, 1}, New: true}
	if failed := h.Apply([]State{s}); len(failed) > 0 {
		t.Fatal(failed)
	}
	if q := <-ls.asked; q.Replica != 1 || q.Parts[0].Epoch != 4 || q.Parts[0].LastEpoch != -1 {
		t.Errorf("asks %+v", q)
	}
	<-given
	p, err := h.Partition("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	if l := p.Log(); l.End() != 3 || l.HighWatermark() != 2 || l.LastEpoch() != 4 {
		t.Errorf("end %d, high watermark %d, epoch %d", l.End(), l.HighWatermark(), l.LastEpoch())
	}
	s.Leader, s.LeaderEpoch, s.New = 1, 5, false
	s.ISR = []int32{1}
	if failed := h.Apply([]State{s}); len(failed) > 0 {
		t.Fatal(failed)
	}
	h.fetchers.ends.Wait() // there is nothing to fetch any more
	if hw := p.Log().HighWatermark(); hw != 3 {
		t.Errorf("alone in sync: high watermark %d", hw)
	}
	f := &following{p, p.Log(), 4}
	if err := f.Append(records); !errors.Is(err, errNotFollowing) {
		t.Errorf("records of the former leader: %v", err)
	}
}

// TestInSyncSet: a follower that catches up is proposed, one that lags is dropped, an answer that does not
// come is asked for again with the same epoch, and what the controller refuses does not stay.
func TestInSyncSet(t *testing.T) {
	h := newHouse(t)
	asked := make(chan ISRChange)
	answers := make(chan ISRResult)
	h.opts.LagMax = 200 * time.Millisecond
	h.opts.AlterISR = func(ctx context.Context, changes []ISRChange) ([]ISRResult, error) {
		select {
		case asked <- changes[0]:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		r := <-answers
		if r.PartitionEpoch < 0 {
			return nil, r.Err
		}
		return []ISRResult{r}, nil
	}
	h.meta.Store(&metadata.Picture{Brokers: []metadata.Broker{{ID: 1}, {ID: 2}}, Topics: map[string]*metadata.Topic{}, ByID: map[metadata.ID]*metadata.Topic{}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	p := h.lead(0, 3, []int32{1}, 1, 2)
	h.append(p, 1, "a")
	fetch := func(offset int64) {
		r := &Read{Offset: offset, LogStart: 0}
		p.fetched(r, 2, 7, p.Log().End())
	}
	expect := func(isr []int32, epoch int32, r ISRResult) {
		t.Helper()
		if ch := <-asked; !slices.Equal(ch.ISR, isr) || ch.PartitionEpoch != epoch || ch.LeaderEpoch != 3 {
			t.Errorf("asked for %+v, not %v after %d", ch, isr, epoch)
		}
		answers <- r
	}
	fetch(0) // behind
	fetch(1)
	expect([]int32{1, 2}, 0, ISRResult{PartitionEpoch: -1, Err: errors.New("lost")})
	expect([]int32{1, 2}, 0, ISRResult{LeaderEpoch: 3, PartitionEpoch: 1, ISR: []int32{1, 2}})
	h.append(p, 1, "b")
	expect([]int32{1}, 1, ISRResult{LeaderEpoch: 3, PartitionEpoch: 2, ISR: []int32{1}}) // it lags
	if err := p.AwaitCommit(ctx, 3, 2); err != nil {
		t.Error(err)
	}
	fetch(2)
	expect([]int32{1, 2}, 2, ISRResult{Err: ErrNotEligible})
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	again := make(chan struct{})
	go func() { // until the refusal is known, a fetch proposes nothing
		for {
			select {
			case <-look.C:
				fetch(2)
			case <-again:
				return
			}
		}
	}()
	defer func() { again <- struct{}{} }()
	expect([]int32{1, 2}, 2, ISRResult{LeaderEpoch: 3, PartitionEpoch: 3, ISR: []int32{1, 2}})
}
