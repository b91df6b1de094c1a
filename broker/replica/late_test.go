package replica

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"ottla/broker/metadata"
	"ottla/log"
	"ottla/log/vfs"
)

// resting is a house on a directory that was stopped cleanly, with a record in each of n partitions of
// topic t, none of them opened. change may do something to the files before.
func resting(t *testing.T, n int32, change func(vfs.FS)) *house {
	t.Helper()
	fsys := vfs.NewMemory()
	h := houseOn(t, fsys)
	for p := range n {
		h.append(h.lead(p, 3, []int32{1}, 1), 1, "a")
	}
	h.stop()
	if change != nil {
		change(fsys)
	}
	h = houseOn(t, fsys)
	if err := h.logs.LoadUnclean(); err != nil {
		t.Fatal(err)
	}
	return h
}

// rest has broker 1 lead partitions whose logs rest.
func (h *house) rest(epoch int32, numbers ...int32) {
	h.t.Helper()
	states := make([]State, len(numbers))
	for i, n := range numbers {
		states[i] = State{Topic: "t", Partition: n, Leader: 1, LeaderEpoch: epoch, ISR: []int32{1}, Replicas: []int32{1}}
	}
	if failed := h.Apply(states); len(failed) > 0 {
		h.t.Fatal(failed)
	}
}

func (h *house) open() (opened []int32) {
	for l := range h.logs.Logs() {
		opened = append(opened, l.Partition())
	}
	slices.Sort(opened)
	return opened
}

// TestLate: after a clean stop a log is opened by the first that asks for its partition, and the rest by
// Settle; until then it is led all the same.
func TestLate(t *testing.T) {
	h := resting(t, 4, nil)
	h.rest(4, 0, 1, 2, 3)
	if got := h.open(); len(got) > 0 {
		t.Fatalf("opened %v although nobody asked", got)
	}
	if want := []string{"led t-0 epoch 4", "led t-1 epoch 4", "led t-2 epoch 4", "led t-3 epoch 4"}; !slices.Equal(h.heard, want) {
		t.Errorf("heard %q", h.heard)
	}
	p, err := h.Leader("t", 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.open(); !slices.Equal(got, []int32{2}) {
		t.Fatalf("opened %v, want 2 alone", got)
	}
	if l := p.Log(); l.End() != 1 || l.HighWatermark() != 1 || l.LastEpoch() != 4 {
		t.Errorf("end %d, high watermark %d, epoch %d", l.End(), l.HighWatermark(), l.LastEpoch())
	}
	if done, _ := h.append(p, -1, "b"); done.First != 1 {
		t.Errorf("appended at %d", done.First)
	}
	h.rest(5, 1) // a newer state opens it
	if failed := h.Settle(t.Context()); len(failed) > 0 {
		t.Fatal(failed)
	}
	if got := h.open(); len(got) != 4 {
		t.Errorf("after Settle %v are open", got)
	}
	if p, err := h.Leader("t", 1); err != nil || p.Log().LastEpoch() != 5 {
		t.Error("the newer state was lost", err)
	}
}

// TestLateKeepsCleanStop: a stop before a log was opened is a clean one for that log too.
func TestLateKeepsCleanStop(t *testing.T) {
	h := resting(t, 2, nil)
	h.rest(4, 0, 1)
	if _, err := h.Leader("t", 0); err != nil {
		t.Fatal(err)
	}
	h.stop()
	h = houseOn(t, h.fs)
	if err := h.logs.LoadUnclean(); err != nil {
		t.Fatal(err)
	}
	h.rest(5, 0, 1)
	if got := h.open(); len(got) > 0 {
		t.Errorf("the stop was not clean: %v are open", got)
	}
	for n := range int32(2) {
		if p, err := h.Leader("t", n); err != nil || p.Log().End() != 1 {
			t.Errorf("partition %d: %v", n, err)
		}
	}
}

// TestLateFails: what is wrong with a log is the answer to who asks for it, and once that of Settle.
func TestLateFails(t *testing.T) {
	h := resting(t, 2, func(fsys vfs.FS) {
		f, err := fsys.OpenFile("/data/t-0/00000000000000000000.log", os.O_RDWR, 0)
		if err == nil {
			err = f.Truncate(10)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	h.rest(4, 0, 1)
	if _, err := h.Leader("t", 0); !errors.Is(err, ErrOffline) {
		t.Errorf("a damaged log: %v", err)
	}
	failed := h.Settle(t.Context())
	if len(failed) != 1 || !errors.Is(failed[Key{"t", 0}], log.ErrStorage) {
		t.Errorf("Settle: %v", failed)
	}
	if failed := h.Settle(t.Context()); len(failed) > 0 {
		t.Errorf("told twice: %v", failed)
	}
	if _, err := h.Leader("t", 1); err != nil {
		t.Error(err)
	}
}

// TestLateOfAnother: a log of another topic id is not led.
func TestLateOfAnother(t *testing.T) {
	h := resting(t, 1, func(fsys vfs.FS) {
		f, err := fsys.OpenFile("/data/t-0/partition.metadata", os.O_RDWR|os.O_CREATE, 0o644)
		if err == nil {
			_, err = f.WriteAt([]byte("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg"), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	h.Apply([]State{{Topic: "t", ID: metadata.ID{1}, Leader: 1, LeaderEpoch: 4, ISR: []int32{1}, Replicas: []int32{1}}})
	if failed := h.Settle(t.Context()); !errors.Is(failed[Key{"t", 0}], log.ErrTopicID) {
		t.Errorf("Settle: %v", failed)
	}
	if _, err := h.Leader("t", 0); !errors.Is(err, ErrOffline) {
		t.Errorf("a log of another topic: %v", err)
	}
}

// TestLateDeleted: a log that rests is deleted like another.
func TestLateDeleted(t *testing.T) {
	h := resting(t, 1, nil)
	h.rest(4, 0)
	if err := h.Stop("t", 0, true); err != nil {
		t.Fatal(err)
	}
	if err := h.logs.Delete("other", 0); err != nil {
		t.Error(err)
	}
	entries, err := h.fs.ReadDir("/data")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "t-0" || strings.HasPrefix(e.Name(), "t-0.") && !strings.HasSuffix(e.Name(), "-delete") {
			t.Errorf("%s is there", e.Name())
		}
	}
}

// TestLateNeedsOneReplica: a partition with followers is not led before its log is known.
func TestLateNeedsOneReplica(t *testing.T) {
	h := resting(t, 1, nil)
	h.Apply([]State{{Topic: "t", Leader: 1, LeaderEpoch: 4, ISR: []int32{1}, Replicas: []int32{1, 2}}})
	if got := h.open(); len(got) != 1 {
		t.Errorf("opened %v", got)
	}
}
