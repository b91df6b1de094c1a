package registry

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"ottla/compat"
)

// none is what is told of an offset that is not there; it can be committed too.
const none = -1

func TestOffsets(t *testing.T) {
	for _, r := range roots(t) {
		t.Run(r.name, func(t *testing.T) {
			s := r.session()
			want := func(group string, of []Offset) {
				t.Helper()
				got, errs, err := CommittedOffsets(s, group, of)
				if err != nil {
					t.Fatal(err)
				}
				for i, o := range of {
					if got[i] != o.Offset || errs[i] != nil && !(errors.Is(errs[i], ErrNoNode) && o.Offset == none) {
						t.Errorf("%s: %s-%d is at %d, want %d", group, o.Topic, o.Partition, got[i], o.Offset)
					}
				}
			}
			want("g", []Offset{{"t", 0, none}})
			if err := CommitOffsets(s, "g", nil); err != nil {
				t.Fatal(err)
			}
			for _, offsets := range [][]Offset{
				{{"t", 0, 5}, {"t", 11, 6}, {"u", 0, 7}},               // all is missing
				{{"t", 0, 8}, {"t", 1, 9}, {"v", 2, 1<<63 - 1}},        // some is
				{{"t", 0, 10}, {"t", 1, -1}, {"t", 11, 11}},            // nothing is
				{{"t", 0, 12}, {"t", 0, 13}, {"w", 0, 1}, {"w", 0, 2}}, // named twice
			} {
				if err := CommitOffsets(s, "g", offsets); err != nil {
					t.Fatal(err)
				}
				last := map[string]Offset{}
				for _, o := range offsets {
					last[fmt.Sprint(o.Topic, o.Partition)] = o
				}
				for _, o := range last {
					want("g", []Offset{o})
				}
			}
			want("g", []Offset{{"v", 2, 1<<63 - 1}, {"t", 11, 11}, {"u", 0, 7}, {"u", 1, none}, {"x", 0, none}})
			want("another", []Offset{{"t", 0, none}})
			data, st, err := s.Get("/consumers/g/offsets/t/0", nil)
			if err != nil || string(data) != "13" || st.EphemeralOwner != 0 {
				t.Errorf("node: %q, %+v, %v", data, st, err)
			}
			if data, _, err := s.Get("/consumers/g/offsets/t", nil); err != nil || data != nil {
				t.Errorf("its parent: %q, %v", data, err)
			}
			// what others put there
			for text, at := range map[string]int64{"42": 42, "": -2, "x": -2, "\xff\xfe": -2} {
				if _, err := s.Set("/consumers/g/offsets/t/0", []byte(text), AnyVersion); err != nil {
					t.Fatal(err)
				}
				got, errs, err := CommittedOffsets(s, "g", []Offset{{Topic: "t"}, {Topic: "u"}})
				if err != nil || got[1] != 7 || errs[1] != nil {
					t.Fatalf("%q: %v, %v, %v", text, got, errs, err)
				}
				if at == -2 {
					wantErr(t, errs[0], compat.ErrZnode)
					if !strings.Contains(errs[0].Error(), "/consumers/g/offsets/t/0") {
						t.Errorf("%v does not name the node", errs[0])
					}
				} else if got[0] != at || errs[0] != nil {
					t.Errorf("%q: %d, %v", text, got[0], errs[0])
				}
			}
			if _, err := s.Set("/consumers/g/offsets/t/0", nil, AnyVersion); err != nil {
				t.Fatal(err)
			}
			want("g", []Offset{{"t", 0, none}})
			for _, group := range []string{"", "..", "a/../b", "a\x00b"} {
				wantErr(t, CommitOffsets(s, group, []Offset{{"t", 0, 1}}), ErrBadPath)
				_, _, err := CommittedOffsets(s, group, []Offset{{Topic: "t"}})
				wantErr(t, err, ErrBadPath)
			}
			if err := CommitOffsets(s, "team/group", []Offset{{"t", 0, 3}}); err != nil { // Kafka makes no difference
				t.Fatal(err)
			}
			want("team/group", []Offset{{"t", 0, 3}})
		})
	}
}

// TestOffsetsOfManyAtOnce: groups that make the same nodes at the same time do not fail, and a request that is too large
// for one transaction is kept whole.
func TestOffsetsOfManyAtOnce(t *testing.T) {
	for _, r := range roots(t) {
		t.Run(r.name, func(t *testing.T) {
			group := "g" + strings.Repeat("long", 50)
			var all sync.WaitGroup
			for n := range int32(4) {
				s := r.session()
				all.Go(func() {
					for i := range int64(20) {
						if err := CommitOffsets(s, group, []Offset{{fmt.Sprint("t", i), n, i}, {"same", 0, i}}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			s := r.session()
			var many []Offset
			for p := range int32(3000) {
				many = append(many, Offset{"t", p, int64(p)})
			}
			for range 2 {
				if err := CommitOffsets(s, group, many); err != nil {
					t.Fatal(err)
				}
			}
			got, _, err := CommittedOffsets(s, group, many)
			if err != nil {
				t.Fatal(err)
			}
			for i, at := range got {
				if at != many[i].Offset {
					t.Fatalf("partition %d is at %d", i, at)
				}
			}
		})
	}
}
