package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ottla/log"
)

func TestFetchLimits(t *testing.T) {
	h := newHouse(t)
	big := string(make([]byte, 10000))
	for n := range int32(3) {
		p := h.alone(n)
		if n > 0 {
			h.append(p, 1, big)
			h.append(p, 1, big)
		}
	}
	for _, x := range []struct {
		name                string
		max, part           int
		each                bool
		zero, first, second int
	}{
		{"all", 1 << 20, 1 << 20, false, 0, 2, 2},
		{"one byte", 1, 1, false, 0, 1, 0},
		{"one byte each", 1, 1, true, 0, 1, 0},
		{"one byte of each", 1 << 20, 1, true, 0, 1, 1},
		{"partition limit", 1 << 20, 10200, false, 0, 1, 1},
		{"whole limit", 30500, 1 << 20, false, 0, 2, 1},
	} {
		r := []Read{reading(0, 0), reading(1, 0), reading(2, 0)}
		for i := range r {
			r[i].MaxBytes = int32(x.part)
		}
		f := consumer(0)
		f.MaxBytes, f.EachFirst = x.max, x.each
		if err := h.Fetch(t.Context(), f, r); err != nil {
			t.Fatal(err)
		}
		if got := [3]int{count(&r[0]), count(&r[1]), count(&r[2])}; got != [3]int{x.zero, x.first, x.second} {
			t.Errorf("%s: %v batches, want %v", x.name, got, [3]int{x.zero, x.first, x.second})
		}
	}
}

func TestFetchErrors(t *testing.T) {
	h := newHouse(t)
	p := h.lead(0, 3, []int32{1}, 1)
	h.append(p, 1, "a", "b", "c")
	if _, _, err := p.DeleteRecords(1); err != nil {
		t.Fatal(err)
	}
	one := func(change func(*Read)) Read {
		r := []Read{reading(0, 1)}
		change(&r[0])
		if err := h.Fetch(t.Context(), consumer(time.Hour), r); err != nil { // an error does not wait
			t.Fatal(err)
		}
		Release(r)
		return r[0]
	}
	for name, x := range map[string]struct {
		change func(*Read)
		want   error
	}{
		"fine":            {func(*Read) {}, nil},
		"below the start": {func(r *Read) { r.Offset = 0 }, log.ErrOffsetOutOfRange},
		"above the end":   {func(r *Read) { r.Offset = 4 }, log.ErrOffsetOutOfRange},
		"unknown":         {func(r *Read) { r.Topic = "u" }, ErrUnknownPartition},
		"older epoch":     {func(r *Read) { r.Epoch = 2 }, ErrFencedEpoch},
		"newer epoch":     {func(r *Read) { r.Epoch = 4 }, ErrUnknownEpoch},
		"epoch to come":   {func(r *Read) { r.LastEpoch = 4 }, log.ErrOffsetOutOfRange},
	} {
		if got := one(x.change); !errors.Is(got.Err, x.want) {
			t.Errorf("%s: %v, want %v", name, got.Err, x.want)
		}
	}
	if r := one(func(r *Read) { r.LastEpoch = 3 }); r.Diverged || r.HighWatermark != 3 || r.Start != 1 || r.StableOffset != 3 {
		t.Errorf("same history: %+v", r)
	}
	follower := []Read{reading(0, 1)}
	if err := h.Fetch(t.Context(), Fetch{Replica: 7, MaxBytes: 1 << 20}, follower); err != nil || !errors.Is(follower[0].Err, ErrNotLeader) {
		t.Errorf("a stranger's fetch: %v %v", err, follower[0].Err)
	}
}

func TestDivergedLog(t *testing.T) {
	h := newHouse(t)
	p := h.lead(0, 1, []int32{1}, 1)
	h.append(p, 1, "a", "b")
	h.lead(0, 5, []int32{1}, 1)
	h.append(p, 1, "c")
	for _, x := range []struct {
		offset    int64
		lastEpoch int32
		epoch     int32
		end       int64
	}{{3, 3, 1, 2}, {3, 1, 1, 2}, {1, 0, 0, 0}} {
		r := []Read{reading(0, x.offset)}
		r[0].LastEpoch = x.lastEpoch
		if err := h.Fetch(t.Context(), consumer(time.Hour), r); err != nil {
			t.Fatal(err)
		}
		if !r[0].Diverged || r[0].DivergedEpoch != x.epoch || r[0].DivergedEnd != x.end || r[0].Filled {
			t.Errorf("%d in epoch %d: %+v", x.offset, x.lastEpoch, r[0])
		}
	}
}

func TestFetchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		const n = 1000
		reads := make([]Read, n)
		for i := range reads {
			h.alone(int32(i))
			reads[i] = reading(int32(i), 0)
		}
		begun := time.Now()
		fetch := func(ctx context.Context, f Fetch) <-chan error {
			out := make(chan error, 1)
			begun = time.Now()
			go func() { out <- h.Fetch(ctx, f, reads) }()
			synctest.Wait()
			return out
		}
		had := func() (batches int) {
			for i := range reads {
				batches += count(&reads[i])
			}
			return batches
		}
		append := func(i int32, values ...string) {
			p, err := h.Leader("t", i)
			if err != nil {
				t.Fatal(err)
			}
			h.append(p, 1, values...)
		}

		if err := <-fetch(t.Context(), consumer(500*time.Millisecond)); err != nil || had() != 0 || time.Since(begun) != 500*time.Millisecond {
			t.Fatalf("idle partitions: %v after %v", err, time.Since(begun))
		}
		done := fetch(t.Context(), consumer(time.Hour))
		append(700, "a")
		if err := <-done; err != nil || !reads[700].Filled || had() != 1 || time.Since(begun) != 0 {
			t.Fatalf("one append: %v", err)
		}

		f := consumer(time.Hour)
		f.MinBytes = 5 * len(batch("a"))
		done = fetch(t.Context(), f)
		for i := range int32(3) { // partition 700 has one
			append(i, "a")
			synctest.Wait()
			select {
			case <-done:
				t.Fatalf("answered with %d batches, want 5", i+2)
			default:
			}
		}
		append(9, "a")
		if err := <-done; err != nil || had() != 5 {
			t.Fatalf("fewest bytes: %v", err)
		}

		for i := range reads {
			reads[i].Offset = 1
		}
		for _, i := range []int{5, 6} {
			reads[i].Offset = 0
		}
		reads = reads[5:7]
		done = fetch(t.Context(), consumer(time.Hour))
		if err := h.Stop("t", 5, false); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || !errors.Is(reads[0].Err, ErrUnknownPartition) || reads[1].Err != nil {
			t.Fatalf("a stopped partition: %v, %v", err, reads[0].Err)
		}

		reads = reads[1:]
		ctx, cancel := context.WithCancel(t.Context())
		done = fetch(ctx, consumer(time.Hour))
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled: %v", err)
		}
		h.each(func(p *Partition) {
			if p.watchers != nil {
				t.Errorf("partition %d still has a watcher", p.number)
			}
		})
	})
}

func TestLookups(t *testing.T) {
	h := newHouse(t)
	p := h.lead(0, 2, []int32{1, 2}, 1, 2)
	h.append(p, 1, "a", "b")
	q := Lookup{Epoch: -1, OnlyLeader: true}
	all := Lookup{Epoch: -1, OnlyLeader: true, Isolation: LogEnd}
	if f, err := p.Latest(q); err != nil || f.Offset != 0 || f.Epoch != 2 {
		t.Errorf("end before the follower has it: %+v %v", f, err)
	}
	if f, err := p.Latest(all); err != nil || f.Offset != 2 {
		t.Errorf("end for a follower: %+v %v", f, err)
	}
	if f, err := p.AtTime(q, 1000); err != nil || f != nothing {
		t.Errorf("a record that is not committed: %+v %v", f, err)
	}
	if f, err := p.AtTime(all, 1000); err != nil || f != (Found{0, 1000, 2}) {
		t.Errorf("a record by time: %+v %v", f, err)
	}
	if f, err := p.MaxTimestamp(all); err != nil || f != (Found{0, 1000, 2}) {
		t.Errorf("largest time: %+v %v", f, err)
	}
	if f, err := p.Earliest(q); err != nil || f.Offset != 0 {
		t.Errorf("start: %+v %v", f, err)
	}
	h.lead(0, 3, []int32{1, 2}, 1, 2) // the watermark is below the new epoch's start
	if _, err := p.Latest(q); !errors.Is(err, ErrOffsetNotAvailable) {
		t.Errorf("end of a new leader: %v", err)
	}
	if _, err := p.AtTime(q, 1000); !errors.Is(err, ErrOffsetNotAvailable) {
		t.Errorf("time on a new leader: %v", err)
	}
	if _, err := p.Latest(Lookup{Epoch: 2}); !errors.Is(err, ErrFencedEpoch) {
		t.Errorf("older epoch: %v", err)
	}
	if e, end, err := p.EpochEnd(-1, 2, true); err != nil || e != 2 || end != 2 {
		t.Errorf("end of epoch 2: %d %d %v", e, end, err)
	}
	if e, end, err := p.EpochEnd(-1, 1, true); err != nil || e != 1 || end != 0 {
		t.Errorf("end of an epoch before the log: %d %d %v", e, end, err)
	}
	if e, end, err := p.EpochEnd(-1, 4, true); err != nil || e != -1 || end != -1 {
		t.Errorf("end of an epoch to come: %d %d %v", e, end, err)
	}
}

func TestOffsetsBefore(t *testing.T) {
	h := newHouse(t)
	p := h.alone(0)
	q := Lookup{Epoch: -1}
	if got, err := p.OffsetsBefore(q, -1, 2); err != nil || len(got) != 1 || got[0] != 0 {
		t.Errorf("empty log: %v %v", got, err)
	}
	h.append(p, 1, "a", "b", "c") // at 1000 ms
	for _, x := range []struct {
		at   int64
		n    int32
		want []int64
	}{{-1, 2, []int64{3, 0}}, {-1, 1, []int64{3}}, {-2, 2, []int64{0}}, {999, 2, nil}, {2000, 2, []int64{3, 0}}, {-1, 0, nil}, {-1, -5, nil}} {
		got, err := p.OffsetsBefore(q, x.at, x.n)
		if err != nil || len(got) != len(x.want) {
			t.Errorf("%d, %d: %v %v, want %v", x.at, x.n, got, err, x.want)
			continue
		}
		for i := range got {
			if got[i] != x.want[i] {
				t.Errorf("%d, %d: %v, want %v", x.at, x.n, got, x.want)
			}
		}
	}
}
