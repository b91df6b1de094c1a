package log

import (
	"slices"

	"ottla/protocol/record"
)

// cleanedTxns follows the transactions while a log is cleaned (Kafka's CleanedTransactionMetadata):
// what was aborted goes, and a marker when nothing of its transaction is left.
type cleanedTxns struct {
	coming    []Aborted // by their first offset; it lies ahead
	aborted   map[int64]*abortedTxn
	committed map[int64]bool
	kept      []Aborted // whose marker stays, for the index of the segment that is written
}

type abortedTxn struct {
	Aborted
	seen bool // something of it was met, besides the marker
}

// add takes in the aborted transactions of a stretch of the log. Those that are known do no harm.
func (t *cleanedTxns) add(list []Aborted) {
	t.coming = append(t.coming, list...)
	slices.SortStableFunc(t.coming, func(a, b Aborted) int {
		switch {
		case a.First < b.First:
			return -1
		case a.First > b.First:
			return 1
		}
		return 0
	})
}

func (t *cleanedTxns) upTo(offset int64) {
	for len(t.coming) > 0 && t.coming[0].First <= offset {
		a := t.coming[0]
		t.coming = t.coming[1:]
		if t.aborted == nil {
			t.aborted = map[int64]*abortedTxn{}
		}
		if t.aborted[a.ProducerID] == nil {
			t.aborted[a.ProducerID] = &abortedTxn{Aborted: a}
		}
	}
}

// marker takes in a control batch. gone: nothing that it ended is there any more.
func (t *cleanedTxns) marker(b record.Batch) (gone bool, err error) {
	t.upTo(b.LastOffset())
	if b.Count() == 0 {
		return true, nil // it was emptied by the round before
	}
	m, ok, err := parseMarker(b)
	if err != nil || !ok {
		return false, err
	}
	id := b.ProducerID()
	if m.Commit {
		gone = !t.committed[id]
		delete(t.committed, id)
		return gone, nil
	}
	a := t.aborted[id]
	delete(t.aborted, id)
	if a == nil || !a.seen {
		return true, nil
	}
	t.kept = append(t.kept, a.Aborted)
	return false, nil
}

// data takes in any other batch. aborted: it belongs to a transaction that was.
func (t *cleanedTxns) data(b record.Batch) (aborted bool) {
	t.upTo(b.LastOffset())
	if !b.IsTransactional() {
		return false
	}
	if a := t.aborted[b.ProducerID()]; a != nil {
		a.seen = true
		return true
	}
	if t.committed == nil {
		t.committed = map[int64]bool{}
	}
	t.committed[b.ProducerID()] = true
	return false
}
