package log

import (
	"encoding/binary"
	"fmt"
	"os"

	"ottla/protocol/record"
)

// A .txnindex has an entry for each aborted transaction whose marker is in the segment
// (Kafka's AbortedTxn, version 0): int16 version, int64 producer id, first offset, last offset
// (that of the marker), and the last stable offset after it.
const abortedBytes = 34

// Aborted is an aborted transaction's stretch of a log: records of the producer from First to
// Last are not to be shown to readers of committed data.
type Aborted struct {
	ProducerID   int64
	First, Last  int64
	StableOffset int64 // the last stable offset once the marker was written
}

func formatAborted(a Aborted) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, abortedBytes), 0)
	b = binary.BigEndian.AppendUint64(b, uint64(a.ProducerID))
	b = binary.BigEndian.AppendUint64(b, uint64(a.First))
	b = binary.BigEndian.AppendUint64(b, uint64(a.Last))
	return binary.BigEndian.AppendUint64(b, uint64(a.StableOffset))
}

// parseAborted reads the whole entries of the segment with a base offset; they rise by their
// last offset, which lies in the segment.
func parseAborted(b []byte, base int64) ([]Aborted, error) {
	list := make([]Aborted, 0, len(b)/abortedBytes)
	for ; len(b) >= abortedBytes; b = b[abortedBytes:] {
		if v := binary.BigEndian.Uint16(b); v != 0 {
			return list, fmt.Errorf("entry %d has unknown version %d", len(list), v)
		}
		a := Aborted{
			ProducerID:   int64(binary.BigEndian.Uint64(b[2:])),
			First:        int64(binary.BigEndian.Uint64(b[10:])),
			Last:         int64(binary.BigEndian.Uint64(b[18:])),
			StableOffset: int64(binary.BigEndian.Uint64(b[26:])),
		}
		if n := len(list); a.First < 0 || a.Last <= a.First || a.Last < base || n > 0 && a.Last <= list[n-1].Last {
			return list, fmt.Errorf("entry %d (%d to %d) does not follow the one before it", n, a.First, a.Last)
		}
		list = append(list, a)
	}
	if len(b) > 0 {
		return list, fmt.Errorf("%d bytes after the last entry", len(b))
	}
	return list, nil
}

// addAborted writes an entry. The caller holds the log's lock.
func (s *segment) addAborted(a Aborted) error {
	at := s.txn.Load()
	err := s.putAborted(at, a)
	if err == nil {
		s.txn.Store(at + abortedBytes)
	}
	return err
}

func (s *segment) putAborted(at int64, a Aborted) error {
	f, err := s.log.m.fs.OpenFile(s.path(txnSuffix), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(formatAborted(a), at)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// expectAborted writes the entries that markers among the records are going to need, without
// counting them, so that a disk without room refuses the marker: in the log without its entry it
// would make the aborted records those of a committed transaction. What is written in vain is
// behind the end that counts, until dropExpected or a start cuts it. The caller holds the log's lock.
func (l *Log) expectAborted(s *segment, records []byte) error {
	at := s.txn.Load()
	for b := range record.All(records) {
		if !b.HasProducerID() || !b.IsControl() {
			continue
		}
		if m, ok, err := parseMarker(b); err != nil || !ok || m.Commit {
			continue
		}
		p := l.state.byID[b.ProducerID()]
		if p == nil || p.txnFirst < 0 {
			continue
		}
		stable := b.BaseOffset() + 1
		for _, t := range l.state.open {
			if t.id != p.id {
				stable = min(stable, t.first)
			}
		}
		if err := s.putAborted(at, Aborted{p.id, p.txnFirst, b.BaseOffset(), stable}); err != nil {
			return err
		}
		at += abortedBytes
	}
	return nil
}

// dropExpected cuts off what was written in vain: entries behind that end may count once the log has
// gone on behind their markers' offsets.
func (s *segment) dropExpected() error {
	f, err := s.log.m.fs.OpenFile(s.path(txnSuffix), os.O_RDWR, 0)
	if notExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	size, err := f.Size()
	if want := s.txn.Load(); err == nil && size > want {
		err = f.Truncate(want)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// aborted reads the segment's entries.
func (s *segment) aborted() ([]Aborted, error) {
	size := s.txn.Load()
	if size == 0 {
		return nil, nil
	}
	b, err := readFile(s.log.m.fs, s.path(txnSuffix))
	if err != nil {
		return nil, err
	}
	list, err := parseAborted(b[:min(int64(len(b)), size)], s.base)
	if err != nil {
		return nil, &Damage{s.path(txnSuffix), int64(len(list)) * abortedBytes, err.Error()}
	}
	return list, nil
}

// truncateAborted takes out what lies at or after an offset. The caller holds the log's lock.
func (s *segment) truncateAborted(offset int64) error {
	if s.txn.Load() == 0 {
		return nil
	}
	name := s.path(txnSuffix)
	b, err := readFile(s.log.m.fs, name)
	if err != nil {
		return err
	}
	list, _ := parseAborted(b, s.base)
	keep := int64(0)
	for _, a := range list {
		if a.Last >= offset {
			break
		}
		keep += abortedBytes
	}
	if keep == s.txn.Load() && keep == int64(len(b)) {
		return nil
	}
	f, err := s.log.m.fs.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err = f.Truncate(keep); err == nil {
		err = unsynced(f.Sync()) // or a crash could bring an entry back that no flush takes away again
	}
	if e := f.Close(); err == nil {
		err = e
	}
	s.txn.Store(keep)
	return err
}

// AbortedIn lists the aborted transactions that concern offsets from the first up to but not
// including the second, by their markers (UnifiedLog.collectAbortedTransactions). A reader of
// committed data who gets an error must not show the records.
func (l *Log) AbortedIn(from, to int64) ([]Aborted, error) {
	for {
		if err := l.usable(); err != nil {
			return nil, err
		}
		if found, gone, err := l.abortedIn(l.segments(), from, to); !gone {
			return found, err
		}
	}
}

// abortedIn looks through a list of segments. gone: one of them was deleted or cleaned meanwhile.
func (l *Log) abortedIn(list []*segment, from, to int64) (found []Aborted, gone bool, err error) {
	for _, s := range list[floor(list, from):] {
		entries, err := s.aborted()
		if s.gone.Load() { // another file may have had its name
			return nil, true, nil
		}
		if err != nil {
			return nil, false, l.readFailed("read aborted transactions", err)
		}
		for _, a := range entries {
			if a.Last >= from && a.First < to {
				found = append(found, a)
			}
			if a.StableOffset >= to {
				return found, false, nil
			}
		}
	}
	return found, false, nil
}
