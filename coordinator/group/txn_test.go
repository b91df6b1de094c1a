package group

import (
	"testing"

	"ottla/coordinator"
)

// txnCommit sends a TxnOffsetCommit of partition 0, with a guard if none is given.
func (w *world) txnCommit(r TxnCommitRequest, topic string, offset int64) error {
	r.Topics = []CommitTopic{{Name: topic, Partitions: []CommitPartition{{Offset: offset, LeaderEpoch: -1, Time: -1}}}}
	to := &coordinator.Ticket{}
	w.take(w.m.CommitTxn(w.now, r, to))
	v, err, ok := await[[][]error](w, to)
	if !ok {
		w.Fatal("a commit is not answered")
	}
	if err != nil {
		return err
	}
	return v[0][0]
}

func (w *world) guard(producer int64, epoch int16) uint64 {
	to := &coordinator.Ticket{}
	w.take(w.m.BeginTxnCommit(producer, epoch, to))
	return must[uint64](w, to)
}

func (w *world) endTxn(r TxnEnd) error {
	to := &coordinator.Ticket{}
	w.take(w.m.EndTxn(r, to))
	_, err, ok := await[any](w, to)
	if !ok {
		w.Fatal("a marker is not answered")
	}
	return err
}

func (w *world) stableErr(group, topic string) error {
	to := &coordinator.Ticket{}
	w.take(w.m.Fetch(w.now, FetchRequest{Group: group, RequireStable: true, Topics: []FetchTopic{{Name: topic, Partitions: []int32{0}}}}, to))
	return must[[]FetchedTopic](w, to)[0].Partitions[0].Err
}

func inTxn(group string, producer int64, epoch int16, guard uint64) TxnCommitRequest {
	return TxnCommitRequest{CommitRequest: alone(group), Producer: producer, Epoch: epoch, Guard: guard}
}

func TestOffsetsOfATransaction(t *testing.T) {
	for _, commit := range []bool{true, false} {
		w := newWorld(t)
		want(t, "plain commit", w.commit(alone("g"), "t", 5), nil)
		want(t, "without a guard", w.txnCommit(inTxn("g", 7, 0, 0), "t", 10), ErrTxnEnded)
		g := w.guard(7, 0)
		want(t, "the same guard for all who wait", w.guard(7, 0), g)
		want(t, "another guard", w.txnCommit(inTxn("g", 7, 0, g+1), "t", 10), ErrTxnEnded)
		want(t, "commit", w.txnCommit(inTxn("g", 7, 0, g), "t", 10), nil)
		want(t, "no guard is needed any more", w.guard(7, 0), 0)
		want(t, "commit to another group", w.txnCommit(inTxn("h", 7, 0, 0), "t", 11), nil)
		want(t, "stable", w.stableErr("g", "t"), ErrUnstableOffset)
		want(t, "meanwhile", w.stored("g", "t"), 5)
		w.restart()
		want(t, "after a restart", w.stableErr("g", "t"), ErrUnstableOffset)
		want(t, "no guard is needed", w.guard(7, 0), 0)
		want(t, "the group with offsets to come is there", w.describe("h").State, "Empty")
		want(t, "end", w.endTxn(TxnEnd{Producer: 7, Epoch: 0, Commit: commit}), nil)
		want(t, "stable", w.stableErr("g", "t"), nil)
		at := map[bool]int64{true: 10, false: 5}[commit]
		want(t, "in the end", w.stored("g", "t"), at)
		want(t, "a new transaction needs a guard", w.guard(7, 0) != 0, true)
		w.restart()
		want(t, "after a restart", w.stored("g", "t"), at)
		want(t, "stable after a restart", w.stableErr("g", "t"), nil)
	}
}

// What was found out about a transaction does not count for the one after it.
func TestMarkerTakesGuards(t *testing.T) {
	w := newWorld(t)
	g := w.guard(7, 0)
	want(t, "a marker", w.endTxn(TxnEnd{Producer: 7, Epoch: 0}), nil)
	want(t, "the guard of before", w.txnCommit(inTxn("g", 7, 0, g), "t", 1), ErrTxnEnded)
	g = w.guard(7, 0)
	w.take(w.m.DropTxnCommit(7, g, &coordinator.Ticket{}))
	want(t, "a guard that was dropped", w.txnCommit(inTxn("g", 7, 0, g), "t", 1), ErrTxnEnded)

	want(t, "commit", w.txnCommit(inTxn("g", 7, 0, w.guard(7, 0)), "t", 1), nil)
	// The next epoch, with the marker of the one before still to come.
	want(t, "the next epoch needs a guard", w.guard(7, 1) != 0, true)
	want(t, "a marker", w.endTxn(TxnEnd{Producer: 7, Epoch: 1, Commit: true, Version: 2}), nil)
	want(t, "commit", w.txnCommit(inTxn("g", 7, 1, w.guard(7, 1)), "t", 2), nil)
	want(t, "the marker a second time", w.endTxn(TxnEnd{Producer: 7, Epoch: 1, Commit: true, Version: 2}), ErrStaleMarker)
	want(t, "still open", w.stableErr("g", "t"), ErrUnstableOffset)
	want(t, "the right marker", w.endTxn(TxnEnd{Producer: 7, Epoch: 2, Commit: true, Version: 2}), nil)
	want(t, "in the end", w.stored("g", "t"), 2)
}

// While a marker is on its way to the log, nothing may follow it that rests on what it ends.
func TestMarkerOnItsWay(t *testing.T) {
	w := newWorld(t)
	want(t, "commit", w.txnCommit(inTxn("g", 7, 0, w.guard(7, 0)), "t", 1), nil)
	to := &coordinator.Ticket{}
	e := w.m.EndTxn(TxnEnd{Producer: 7, Commit: true}, to)
	want(t, "a commit behind it", w.txnCommit(inTxn("g", 7, 0, 0), "t", 2), ErrTxnEnded)
	e.Then(coordinator.Commit{Now: w.now, Err: coordinator.ErrNotAvailable})
	want(t, "it failed", w.stableErr("g", "t"), ErrUnstableOffset)
	want(t, "so the transaction goes on", w.txnCommit(inTxn("g", 7, 0, 0), "t", 3), nil)
	want(t, "end", w.endTxn(TxnEnd{Producer: 7, Commit: true}), nil)
	want(t, "in the end", w.stored("g", "t"), 3)
}

func TestMembersInTransactions(t *testing.T) {
	w := newWorld(t)
	c := w.client("g")
	want(t, "join", c.join().Err, nil)
	r := inTxn("g", 7, 0, w.guard(7, 0))
	r.MemberID, r.Generation = c.id, c.generation
	want(t, "while the assignment is awaited", w.txnCommit(r, "t", 1), nil)
	r.Generation++
	want(t, "another generation", w.txnCommit(r, "t", 1), ErrIllegalGeneration)
	r.MemberID = "nobody"
	want(t, "another member", w.txnCommit(r, "t", 1), ErrUnknownMember)
	want(t, "a producer of before KIP-447", w.txnCommit(inTxn("g", 7, 0, 0), "t", 2), nil)
	r = inTxn("none", 7, 0, 0)
	r.Generation = 3
	want(t, "no such group", w.txnCommit(r, "t", 1), ErrIllegalGeneration)
	r = inTxn("g", 7, 0, 0)
	r.Topics = []CommitTopic{{Name: "t", Partitions: []CommitPartition{{Metadata: string(make([]byte, 5000))}}}}
	to := &coordinator.Ticket{}
	w.take(w.m.CommitTxn(w.now, r, to))
	want(t, "metadata", must[[][]error](w, to)[0][0], ErrMetadataTooLarge)
}
