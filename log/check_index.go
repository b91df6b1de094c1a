package log

import (
	"errors"
	"fmt"
)

// indexCheck holds an index against the entries of its log, as they are walked through.
type indexCheck struct {
	kind    fileKind
	name    string // file
	missing bool
	entries []byte // those that can be entries, and have not been met
	total   int64  // bytes of them at first
	wrong   string
	at      int64 // byte of what is wrong
	max     int64 // largest timestamp of the log
	lastKey int64
}

// openIndex reads an index.
func (p *partitionCheck) openIndex(kind fileKind, base, size int64) (*indexCheck, error) {
	name := offsetName(base, kind.suffix())
	x := &indexCheck{kind: kind, name: p.file(name), max: noTime, lastKey: noTime, missing: !p.names[name]}
	if x.missing {
		return x, nil
	}
	data, err := readFile(p.fs, x.name)
	switch {
	case notExist(err):
		x.missing = true
		return x, nil
	case errors.Is(err, ErrDamaged):
		x.wrong, x.at = err.Error(), -1
		return x, nil
	case err != nil:
		return nil, err
	}
	valid, sound := soundEntries(kind, data, size)
	if !sound {
		x.wrong, x.at = "this cannot be an entry", valid
	}
	x.entries, x.total = data[:valid], valid
	if valid > 0 {
		x.lastKey = kind.entryKey(data[valid-kind.entryBytes():])
	}
	return x, nil
}

func (x *indexCheck) fail(what string) {
	if at := x.total - int64(len(x.entries)); x.wrong == "" || at < x.at {
		x.wrong, x.at = what, at
	}
	x.entries = nil
}

// met compares the index with the entry of the log that the walk has come to.
func (x *indexCheck) met(sc *scanner, base int64) {
	b := sc.head
	x.max = max(x.max, b.MaxTimestamp())
	for int64(len(x.entries)) >= x.kind.entryBytes() {
		key, rest := x.kind.entryKey(x.entries), x.kind.entryRest(x.entries)
		if x.kind == offsetIndex {
			switch {
			case rest > sc.pos:
				return
			case rest < sc.pos:
				x.fail(fmt.Sprintf("it points at byte %d, where no batch begins", rest))
				return
			case base+key < b.LastOffset():
				x.fail(fmt.Sprintf("offset %d is said to be at byte %d, where offsets %d to %d are", base+key, rest, b.BaseOffset(), b.LastOffset()))
				return
			}
		} else {
			switch offset := base + rest; {
			case offset > b.LastOffset():
				return
			case b.MaxTimestamp() != key || b.Magic() >= 2 && offset < b.BaseOffset():
				x.fail(fmt.Sprintf("offset %d is said to have the timestamp %d, and has %d", offset, key, b.MaxTimestamp()))
				return
			}
		}
		x.entries = x.entries[x.kind.entryBytes():]
	}
}

// skip passes over what points into bytes that are damaged.
func (x *indexCheck) skip(bad stretch) {
	for int64(len(x.entries)) >= x.kind.entryBytes() && x.kind.entryRest(x.entries) < bad.to {
		x.entries = x.entries[x.kind.entryBytes():]
	}
}

// indexFinding says what was wrong with an index of a log that is sound.
func (p *partitionCheck) indexFinding(x *indexCheck, base, size int64, last bool) {
	f := Finding{File: x.name, Position: x.at, What: x.wrong, do: repairRemove, Repair: "remove it; the next start makes it anew"}
	switch {
	case x.missing && size == 0:
		return
	case x.missing:
		f.Position, f.What, f.Harmless = -1, "it is not there; a start makes it anew", true
		f.do, f.Repair = repairNone, ""
	case x.wrong != "":
	case len(x.entries) > 0:
		x.fail("it goes on behind the log's end")
		f.What, f.Position = x.wrong, x.at
	case x.kind == timeIndex && !last && x.lastKey < x.max:
		f.Position, f.What = -1, fmt.Sprintf("it lacks the largest timestamp, %d; it is made anew when it is used", x.max)
		f.Harmless = true
	default:
		return
	}
	// Those of the segment that is written are made anew after a crash.
	f.Harmless = f.Harmless || last && !p.report.Clean
	p.find(f)
}
