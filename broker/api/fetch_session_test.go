package api

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// sessionRequest names partitions of topic t with an offset each.
func sessionRequest(id, epoch int32, offsets map[int32]int64, forget ...int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionID, req.SessionEpoch = 12, id, epoch
	t := kmsg.NewFetchRequestTopic()
	t.Topic = "t"
	for n := range int32(1000) {
		if offset, ok := offsets[n]; ok {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset = n, offset
			t.Partitions = append(t.Partitions, p)
		}
	}
	if t.Partitions != nil {
		req.Topics = append(req.Topics, t)
	}
	if forget != nil {
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Topic, f.Partitions = "t", forget
		req.ForgottenTopics = append(req.ForgottenTopics, f)
	}
	return req
}

func numbers(n int) map[int32]int64 {
	all := map[int32]int64{}
	for i := range int32(n) {
		all[i] = 0
	}
	return all
}

// open makes a session of n partitions.
func (c *FetchSessions) open(n int, follower bool, now time.Time) int32 {
	f := c.begin(sessionRequest(0, 0, numbers(n)), now)
	return c.create(&f, make([]fetched, len(f.parts)), follower, now)
}

func TestFetchSessionErrors(t *testing.T) {
	c, now := NewFetchSessions(10, nil), time.UnixMilli(0)
	id := c.open(2, false, now)
	if id <= 0 {
		t.Fatal("no session")
	}
	if f := c.begin(sessionRequest(id+1, 1, nil), now); f.code != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("unknown session: %d", f.code)
	}
	if f := c.begin(sessionRequest(id, 2, nil), now); f.code != kerr.InvalidFetchSessionEpoch.Code {
		t.Errorf("wrong epoch: %d", f.code)
	}
	byID := sessionRequest(id, 1, nil)
	byID.Version = 13
	if f := c.begin(byID, now); f.code != kerr.FetchSessionTopicIDError.Code {
		t.Errorf("topic ids in a session of names: %d", f.code)
	}
	if f := c.begin(sessionRequest(id, 1, nil), now); f.code != 0 || len(f.parts) != 2 || f.id != id {
		t.Errorf("good request: %+v", f)
	}
	if f := c.begin(sessionRequest(id, 1, nil), now); f.code != kerr.InvalidFetchSessionEpoch.Code {
		t.Errorf("repeated epoch: %d", f.code)
	}
	if f := c.begin(sessionRequest(id, 2, nil, 0, 1), now); f.code != 0 || f.session != nil || len(c.byID) != 0 {
		t.Errorf("a session without partitions is closed: %+v", f)
	}
}

func TestFullFetchClosesItsSession(t *testing.T) {
	c, now := NewFetchSessions(10, nil), time.UnixMilli(0)
	id := c.open(2, false, now)
	f := c.begin(sessionRequest(id, finalFetchEpoch, numbers(1)), now)
	if f.create || len(f.parts) != 1 || len(c.byID) != 0 || c.partitions != 0 {
		t.Errorf("closing fetch: %+v, %d sessions", f, len(c.byID))
	}
}

func TestFetchSessionEpochWraps(t *testing.T) {
	if got := nextFetchEpoch(math.MaxInt32); got != 1 {
		t.Errorf("epoch after the last is %d, want 1", got)
	}
}

func TestFetchSessionEviction(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	t.Run("young sessions stay", func(t *testing.T) {
		c := NewFetchSessions(2, nil)
		c.open(1, false, at(0))
		c.open(1, false, at(0))
		if c.open(100, false, at(60)) != 0 {
			t.Error("a young session was evicted")
		}
	})
	t.Run("unused sessions go", func(t *testing.T) {
		c := NewFetchSessions(2, nil)
		old := c.open(50, false, at(0))
		c.open(1, false, at(100))
		if c.open(1, false, at(121)) == 0 || c.byID[old] != nil {
			t.Error("the session that was unused for over two minutes is still there")
		}
	})
	t.Run("larger ones take the place of smaller ones that are not young", func(t *testing.T) {
		c := NewFetchSessions(2, nil)
		small, large := c.open(2, false, at(0)), c.open(5, false, at(0))
		c.begin(sessionRequest(small, 1, nil), at(110))
		c.begin(sessionRequest(large, 1, nil), at(110))
		c.begin(sessionRequest(small, 2, nil), at(130))
		c.begin(sessionRequest(large, 2, nil), at(130))
		if c.open(2, false, at(131)) != 0 {
			t.Error("one of the same size took a place")
		}
		if c.open(3, false, at(131)) == 0 || c.byID[small] != nil || c.byID[large] == nil {
			t.Error("a larger one did not take the place of the smallest")
		}
		if c.evictions.Load() != 1 || c.partitions != 8 {
			t.Errorf("%d evictions, %d partitions", c.evictions.Load(), c.partitions)
		}
	})
	t.Run("followers go before consumers", func(t *testing.T) {
		c := NewFetchSessions(1, nil)
		c.open(50, false, at(0))
		follower := c.open(1, true, at(1))
		if follower == 0 {
			t.Fatal("a follower got no session")
		}
		if c.open(100, true, at(2)) != 0 || c.open(100, false, at(2)) != 0 {
			t.Error("a young follower lost its session")
		}
	})
	t.Run("no slots", func(t *testing.T) {
		if NewFetchSessions(0, nil).open(1, true, at(0)) != 0 {
			t.Error("a session without a slot")
		}
	})
}

func TestFetchSessionTellsWhatChanged(t *testing.T) {
	c, now := NewFetchSessions(10, nil), time.UnixMilli(0)
	f := c.begin(sessionRequest(0, 0, numbers(3)), now)
	id := c.create(&f, []fetched{{hw: 5}, {hw: 5}, {hw: 5}}, false, now)
	s := c.byID[id]
	key := func(n int32) fetchKey { return fetchKey{topic: "t", partition: n} }
	for _, x := range []struct {
		name string
		told fetched
		want bool
	}{
		{"nothing new", fetched{hw: 5}, false},
		{"watermark", fetched{hw: 6}, true},
		{"watermark as before", fetched{hw: 6}, false},
		{"start", fetched{hw: 6, start: 2}, true},
		{"error", fetched{code: 6, hw: -1, start: -1}, true},
		{"error again", fetched{code: 6, hw: -1, start: -1}, true},
		{"over", fetched{hw: 6, start: 2}, true},
		{"diverged", fetched{hw: 6, start: 2, diverged: true}, true},
		{"records", fetched{hw: 6, start: 2, records: true}, true},
	} {
		if got := s.fresh(key(0), x.told); got != x.want {
			t.Errorf("%s: told %v, want %v", x.name, got, x.want)
		}
	}
	if f := c.begin(sessionRequest(id, 1, nil), now); f.parts[0].partition != 1 || f.parts[2].partition != 0 {
		t.Errorf("the partition with records is not the last: %v", f.parts)
	}
}

// TestFetchSessionsAgainstModel compares the cache with what a client believes: the partitions
// and offsets of each session, and which answers it must hear.
func TestFetchSessionsAgainstModel(t *testing.T) {
	type session struct {
		epoch   int32
		offsets map[int32]int64
		heard   map[int32]fetched
	}
	rapid.Check(t, func(t *rapid.T) {
		c := NewFetchSessions(4, nil)
		now := time.UnixMilli(0)
		model := map[int32]*session{}
		offsets := rapid.MapOfN(rapid.Int32Range(0, 9), rapid.Int64Range(0, 9), 1, 6)
		told := rapid.Custom(func(t *rapid.T) fetched {
			return fetched{hw: rapid.Int64Range(0, 2).Draw(t, "hw"), start: rapid.Int64Range(0, 1).Draw(t, "start")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				o := offsets.Draw(t, "partitions")
				f := c.begin(sessionRequest(0, 0, o), now)
				s := &session{epoch: 1, offsets: o, heard: map[int32]fetched{}}
				var all []fetched
				for _, p := range f.parts {
					a := told.Draw(t, "answer")
					s.heard[p.partition] = a
					all = append(all, a)
				}
				if id := c.create(&f, all, false, now); id != 0 {
					model[id] = s
				}
				for id := range model {
					if c.byID[id] == nil {
						delete(model, id) // evicted
					}
				}
			},
			"fetch": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip()
				}
				ids := make([]int32, 0, len(model))
				for id := range model {
					ids = append(ids, id)
				}
				slices.Sort(ids)
				id := rapid.SampledFrom(ids).Draw(t, "session")
				s := model[id]
				add := rapid.MapOfN(rapid.Int32Range(0, 9), rapid.Int64Range(0, 9), 0, 3).Draw(t, "add")
				forget := rapid.SliceOfN(rapid.Int32Range(0, 9), 0, 3).Draw(t, "forget")
				f := c.begin(sessionRequest(id, s.epoch, add, forget...), now)
				for n, o := range add {
					if _, had := s.offsets[n]; !had {
						s.heard[n] = fetched{hw: -1, start: -1}
					}
					s.offsets[n] = o
				}
				for _, n := range forget {
					delete(s.offsets, n)
					delete(s.heard, n)
				}
				if f.code != 0 {
					t.Fatalf("code %d", f.code)
				}
				if len(s.offsets) == 0 {
					delete(model, id)
					return
				}
				s.epoch++
				if len(f.parts) != len(s.offsets) {
					t.Fatalf("%d partitions, want %d", len(f.parts), len(s.offsets))
				}
				for _, p := range f.parts {
					if want, ok := s.offsets[p.partition]; !ok || p.offset != want {
						t.Fatalf("partition %d at %d, want %d %v", p.partition, p.offset, want, ok)
					}
					a := told.Draw(t, "answer")
					if got := f.session.fresh(p.fetchKey, a); got != (a != s.heard[p.partition]) {
						t.Fatalf("partition %d: told %v with %+v after %+v", p.partition, got, a, s.heard[p.partition])
					}
					s.heard[p.partition] = a
				}
			},
			"time": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 100).Draw(t, "s")) * time.Second) },
			"": func(t *rapid.T) {
				n := 0
				for id, s := range c.byID {
					n += len(s.parts)
					if model[id] == nil {
						t.Fatalf("session %d should be gone", id)
					}
				}
				if len(c.byID) != len(model) || n != c.partitions {
					t.Fatalf("%d sessions, want %d; %d partitions counted, %d there", len(c.byID), len(model), c.partitions, n)
				}
			},
		})
	})
}
