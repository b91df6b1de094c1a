package log

import (
	"fmt"
	"io"
	"math"

	"ottla/log/vfs"
)

// noEntries is the first offset of a file that is empty.
const noEntries = -2

// firstEntry has the offsets of a log's first entry: -1 if it is not sound, noEntries if there is none.
func firstEntry(fsys vfs.FS, name string) (first, last int64, err error) {
	f, size, err := openSized(fsys, name)
	if notExist(err) {
		return -1, -1, nil // a broker that runs has deleted it
	}
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	sc := scanner{f: f, end: size, buf: make([]byte, min(walkBytes, max(size, headerBytes)))}
	if err = sc.next(); err == nil {
		if err = sc.check(); err == nil {
			return sc.head.BaseOffset(), sc.head.LastOffset(), nil
		}
	}
	switch {
	case err == io.EOF:
		return noEntries, noEntries, nil
	case torn(err):
		return -1, -1, nil
	}
	return 0, 0, err
}

// misplaced says whether a log whose first entry is sound is another segment's file: the entry lies before
// its base, or beyond that of the next one. Nothing of it is torn, and it may be the only one that has the
// records; what lies beside it is right.
func misplaced(base, next, first, last int64) bool {
	return first >= 0 && (last < base || first >= next)
}

func misplacedReason(first int64) string {
	return fmt.Sprintf("it begins with offset %d, which has no place here: it is another segment's file", first)
}

// misplaced looks at a segment of the list that does not follow the one before.
func (ld *loader) misplaced(i int) error {
	s, next := ld.list[i], int64(math.MaxInt64)
	if i+1 < len(ld.list) {
		next = ld.list[i+1].base
	}
	first, last, err := firstEntry(ld.l.m.fs, s.path(logSuffix))
	if err == nil && misplaced(s.base, next, first, last) {
		err = &Damage{s.path(logSuffix), 0, misplacedReason(first)}
	}
	return err
}
