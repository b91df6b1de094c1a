package log

import (
	"errors"
	"testing"
	"time"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

func verified(l *Log, guard uint64, records []byte) error {
	_, err := l.Append(Append{Records: records, VerifyTxn: true, Guard: guard, RequestVersion: 12})
	return err
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if want == nil && got != nil || !errors.Is(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func TestVerification(t *testing.T) {
	b := newBox(t, vfs.NewMemory(), nil)
	b.start()
	l := b.log()
	defer b.close()
	wantErr(t, "without a guard", verified(l, 0, transactional(7, 0, 0, 1)), ErrUnverified)
	g := l.StartVerification(7, 0, 0)
	wantErr(t, "with another guard", verified(l, g+1, transactional(7, 0, 0, 1)), ErrUnverified)
	wantErr(t, "with the guard", verified(l, g, transactional(7, 0, 0, 1)), nil)
	if g := l.StartVerification(7, 0, 1); g != 0 {
		t.Fatalf("guard %d for what is open", g)
	}
	wantErr(t, "open", verified(l, 0, transactional(7, 0, 1, 1)), nil)
	wantErr(t, "not transactional", verified(l, 0, idempotent(9, 0, 0, 1)), nil)

	// The next epoch while the marker of the one before is still to come.
	g = l.StartVerification(7, 1, 0)
	if g == 0 {
		t.Fatal("an older epoch's transaction counts for a newer one")
	}
	wantErr(t, "next epoch, not verified", verified(l, 0, transactional(7, 1, 0, 1)), ErrUnverified)
	appendMarker(t, l, true, 7, 1, 0)
	wantErr(t, "the guard of before the marker", verified(l, g, transactional(7, 1, 0, 1)), ErrUnverified)
	wantErr(t, "an older epoch is told so", verified(l, 0, transactional(7, 0, 2, 1)), ErrInvalidProducerEpoch)
	g = l.StartVerification(7, 1, 0)
	wantErr(t, "then", verified(l, g, transactional(7, 1, 0, 1)), nil)
	appendMarker(t, l, false, 7, 1, 0)

	// Of several batches that wait for the answer the first must be first.
	g = l.StartVerification(8, 0, 5)
	l.StartVerification(8, 0, 0)
	wantErr(t, "out of order", verified(l, g, transactional(8, 0, 5, 1)), ErrOutOfOrderSequence)
	l.StartVerification(8, 1, 3)
	wantErr(t, "an epoch of its own, in the middle", verified(l, g, transactional(8, 1, 3, 1)), ErrOutOfOrderSequence)
	_, err := l.Append(Append{Records: transactional(8, 1, 3, 1), VerifyTxn: true, Guard: g, RequestVersion: 11})
	wantErr(t, "a new epoch begins anew", err, nil)

	g = l.StartVerification(10, 0, 0)
	l.DropVerification(10, g+1)
	l.DropVerification(10, g)
	wantErr(t, "dropped", verified(l, g, transactional(10, 0, 0, 1)), ErrUnverified)
	g = l.StartVerification(11, 0, 0)
	b.advance(25 * time.Hour)
	l.expireProducers(b.clock().UnixMilli())
	wantErr(t, "too old", verified(l, g, transactional(11, 0, 0, 1)), ErrUnverified)
}

// A marker that ended a transaction and comes again must not end the next one (KIP-1228).
func TestMarkerOfTransactionVersion2(t *testing.T) {
	b := newBox(t, vfs.NewMemory(), nil)
	b.start()
	l := b.log()
	defer b.close()
	marker := func(epoch int16, version int16) error {
		_, err := l.Append(Append{Records: record.EndMarker{Commit: true}.Batch(7, epoch, startMs), Origin: record.Coordinator, TxnVersion: version})
		return err
	}
	appendTo(t, l, transactional(7, 0, 0, 1))
	wantErr(t, "the marker", marker(1, 2), nil)
	wantErr(t, "again, with nothing open", marker(1, 2), nil)
	appendTo(t, l, transactional(7, 1, 0, 1))
	wantErr(t, "again, with the next one open", marker(1, 2), ErrInvalidProducerEpoch)
	if l.StableOffset() == l.End() {
		t.Fatal("it ended the next one")
	}
	wantErr(t, "the marker of that", marker(2, 2), nil)
	appendTo(t, l, transactional(7, 2, 0, 1))
	wantErr(t, "by an older transaction.version the epochs are equal", marker(2, 0), nil)
}
