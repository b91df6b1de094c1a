package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"ottla/log/vfs"
	"ottla/protocol/record"
)

// strangers sets aside, for a repair, files whose first entry is sound and has no place under their names:
// it lies before the file, or beyond the next one. Those beside them are not to be cut for their sake. A
// file that is empty limits nothing either, unless it is the last one, which says where the log ends.
func (p *partitionCheck) strangers() error {
	kept := p.bases[:0:0]
	p.empty = map[int64]bool{}
	for i, base := range p.bases {
		first, last, err := firstEntry(p.fs, p.file(offsetName(base, logSuffix)))
		if err != nil {
			return err
		}
		next := int64(math.MaxInt64)
		if i+1 < len(p.bases) {
			next = p.bases[i+1]
		}
		switch {
		case first == noEntries && i+1 < len(p.bases):
			p.empty[base] = true
			kept = append(kept, base)
		case misplaced(base, next, first, last):
			p.report.Segments++
			p.find(Finding{File: p.file(offsetName(base, logSuffix)), Position: 0, do: repairAside, recheck: true, Repair: "set it aside",
				What: misplacedReason(first)})
		default:
			kept = append(kept, base)
		}
	}
	p.bases = kept
	return nil
}

// segments checks the segments one after the other, and what lies between them.
func (p *partitionCheck) segments() error {
	if err := p.strangers(); err != nil {
		return err
	}
	for i, base := range p.bases {
		if p.empty[base] && p.end > base {
			p.report.Segments++
			continue
		}
		next := int64(math.MaxInt64)
		for _, b := range p.bases[i+1:] {
			if next = b; !p.empty[b] {
				break
			}
		}
		if i == 0 || p.end > base {
			p.end = base // what lies above it in the one before has been told
		}
		if hole := base - p.end; hole > 0 && !p.under {
			compacted := p.compacted(base)
			f := Finding{File: p.file(offsetName(base, logSuffix)), Position: -1, Harmless: compacted || p.cut || p.end >= p.point,
				What: fmt.Sprintf("there is nothing from offset %d up to %d, where this file begins", p.end, base)}
			switch {
			case compacted:
				f.What += "; that is usual where a topic is or was compacted"
			case !f.Harmless:
				f.do, f.bytes.from = repairGiveUp, p.end
				f.Repair = "note that they are given up, in an empty file *" + cutSuffix
			}
			p.find(f)
		}
		p.end = base
		if err := p.segment(base, next); err != nil {
			return err
		}
		p.report.Segments++
	}
	last := p.path(p.name)
	if n := len(p.bases); n > 0 {
		last = p.file(offsetName(p.bases[n-1], logSuffix))
	}
	if p.end < p.point {
		p.find(Finding{File: last, Position: -1, do: repairCheckAgain, recheck: true,
			What:   fmt.Sprintf("the log ends at offset %d, but everything below %d was flushed; the partition is offline", p.end, p.point),
			Repair: "take the recovery point back; a start then goes on with what is there"})
	}
	if p.end < p.start && len(p.bases) > 0 {
		p.find(Finding{File: p.path(startFile), Position: -1, do: repairStart, offset: p.end,
			What:   fmt.Sprintf("the log start is %d, but the log ends at %d; a start begins the log anew at %d and sets all segments aside", p.start, p.end, p.start),
			Repair: fmt.Sprintf("make %d the log start", p.end)})
	}
	if p.epochs && !p.names[epochFile] && p.point > p.bases[0] {
		p.find(Finding{File: p.file(epochFile), Position: -1, Harmless: true, What: "it is not there; a start reads the leader epochs from the batches"})
	}
	return nil
}

// segment checks a log with its indexes. next is the base of the segment that follows.
func (p *partitionCheck) segment(base, next int64) error {
	name := p.file(offsetName(base, logSuffix))
	f, size, err := openSized(p.fs, name)
	if err != nil {
		if notExist(err) {
			return nil // a broker that runs has deleted it
		}
		return err
	}
	defer f.Close()
	p.report.Bytes += size
	p.aborted, p.markers = nil, map[int64]int64{}
	offsets, err := p.openIndex(offsetIndex, base, size)
	if err != nil {
		return err
	}
	times, err := p.openIndex(timeIndex, base, size)
	if err != nil {
		return err
	}
	last := next == math.MaxInt64
	sc := scanner{f: f, end: size, buf: make([]byte, min(checkBytes, max(size, headerBytes))), whole: true}
	whole := true // up to the end of the file
	for {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		err := p.entry(&sc, base, next)
		if err == io.EOF {
			break
		}
		if err == nil {
			offsets.met(&sc, base)
			times.met(&sc, base)
			if err = p.follow(&sc); err == nil {
				continue
			}
		}
		if !torn(err) {
			return err
		}
		bad := stretch{sc.pos, 0}
		why := err
		if bad.to, err = p.resync(f, bad.from+1, size, base, next); err != nil {
			return err
		}
		whole = false
		p.damaged(name, bad, size, last, why)
		offsets.skip(bad)
		sc.pos, sc.size, sc.n = bad.to, 0, 0
	}
	if whole && !p.under {
		p.indexFinding(offsets, base, size, last)
		p.indexFinding(times, base, size, last)
	}
	return p.txnIndex(base)
}

// entry goes on to the next entry, and says what is wrong with it.
func (p *partitionCheck) entry(sc *scanner, base, next int64) error {
	err := sc.next()
	if err == nil {
		first, last := sc.head.BaseOffset(), sc.head.LastOffset()
		switch {
		case first < p.end || last-base > math.MaxInt32:
			err = fmt.Errorf("%w: offsets %d to %d where %d is next", record.ErrCorrupt, first, last, p.end)
		case last >= next && !p.under:
			err = fmt.Errorf("%w: offsets %d to %d, but the next segment begins at %d", record.ErrCorrupt, first, last, next)
		default:
			err = sc.check()
		}
	}
	return err
}

// follow takes in what an entry that is sound says.
func (p *partitionCheck) follow(sc *scanner) error {
	b := sc.head
	if b.Magic() >= 2 && b.BaseOffset() > p.end {
		p.gaps = true
	}
	p.end = b.NextOffset()
	p.report.Batches++
	if b.Magic() < 2 {
		return nil
	}
	p.epochs = p.epochs || b.LeaderEpoch() >= 0
	if !b.HasProducerID() || !b.IsTransactional() {
		return nil
	}
	id := b.ProducerID()
	first, open := p.open[id]
	if !b.IsControl() {
		if !open {
			p.open[id] = b.BaseOffset()
		}
		return nil
	}
	at := b.BaseOffset()
	whole, err := sc.entry()
	if err != nil {
		return err
	}
	m, ok, err := parseMarker(whole)
	if err != nil || !ok {
		return nil // no marker, or one of a kind that is not known
	}
	delete(p.open, id)
	if !m.Commit {
		p.markers[at] = id
		if open {
			p.aborted = append(p.aborted, Aborted{ProducerID: id, First: first, Last: at})
		}
	}
	return nil
}

// resyncEffort is how often the bytes of a file are read, at most, to find where it goes on: bytes may
// look like the beginning of a batch at many places.
const resyncEffort = 16

// resync finds where the next sound entry begins, at a byte or behind it: the size if there is none.
func (p *partitionCheck) resync(f vfs.File, from, size, base, next int64) (int64, error) {
	buf, piece := make([]byte, walkBytes), make([]byte, walkBytes)
	effort := resyncEffort * (size - from)
	for from < size {
		if err := p.ctx.Err(); err != nil {
			return 0, err
		}
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-from)], from)
		if err != nil && err != io.EOF {
			return 0, err
		}
		// What the next read begins with is a whole header again, as far as there is one.
		step := max(n-headerBytes, 0)
		if n < len(buf) || from+int64(n) == size {
			step = n
		}
		for i := range step {
			if !p.plausible(buf[i:n], size-from-int64(i), base, next) {
				continue
			}
			sc := scanner{f: f, pos: from + int64(i), end: size, buf: piece, whole: true}
			err := sc.next()
			if err == nil {
				if effort -= sc.size; effort < 0 {
					return size, nil
				}
				err = sc.check()
			}
			if err == nil && sc.head.LastOffset() < next {
				return sc.pos, nil
			}
			if err != nil && !torn(err) {
				return 0, err
			}
		}
		if step == 0 {
			break
		}
		from += int64(step)
	}
	return size, nil
}

// plausible says whether bytes may be the beginning of an entry that follows what there is.
func (p *partitionCheck) plausible(head []byte, rest, base, next int64) bool {
	const toMagic = 17
	if len(head) < toMagic || head[16] > 2 {
		return false
	}
	least := int64(record.MinEntrySize)
	if head[16] == 2 {
		least = headerBytes
	}
	offset := int64(binary.BigEndian.Uint64(head))
	length := int64(int32(binary.BigEndian.Uint32(head[8:]))) + 12
	return offset >= p.end && offset < next && offset-base <= math.MaxInt32 && length >= least && length <= rest
}

// damaged tells of bytes of a log that are no sound entries.
func (p *partitionCheck) damaged(name string, bad stretch, size int64, last bool, why error) {
	f := Finding{File: name, Position: bad.from, do: repairCut, bytes: bad, recheck: true,
		What:   fmt.Sprintf("%v, %d bytes behind offset %d", why, bad.to-bad.from, p.end),
		Repair: fmt.Sprintf("cut %d bytes out, and keep them in a file *%s", bad.to-bad.from, cutSuffix)}
	switch {
	case p.end >= p.point && last && bad.to == size:
		f.Harmless = true
		f.What += "; it is behind the recovery point, and a start cuts it"
	case p.end >= p.point:
		f.What += "; it is behind the recovery point, and a start would cut the log here, with all that follows"
	case last && errors.Is(why, record.ErrShort):
		f.What += "; it was flushed, and the partition is offline"
	}
	p.find(f)
}

// compacted says whether compaction may have taken what is missing before an offset: it was there, or has
// left gaps in what was read by now.
func (p *partitionCheck) compacted(before int64) bool { return p.gaps || before <= p.cleaned[p.k] }

// txnIndex holds a .txnindex against the markers of its segment.
func (p *partitionCheck) txnIndex(base int64) error {
	name := offsetName(base, txnSuffix)
	var list []Aborted
	if p.names[name] {
		data, err := readFile(p.fs, p.file(name))
		if err != nil && !notExist(err) && !errors.Is(err, ErrDamaged) {
			return err
		}
		if err == nil {
			list, err = parseAborted(data, base)
		}
		if err != nil && !notExist(err) {
			p.txnFinding(base, name, int64(len(list))*abortedBytes, err.Error())
			return nil
		}
	}
	entries := map[int64]Aborted{}
	for i, a := range list {
		entries[a.Last] = a
		if id, ok := p.markers[a.Last]; a.Last < p.end && (!ok || id != a.ProducerID) {
			p.txnFinding(base, name, int64(i)*abortedBytes, fmt.Sprintf("offset %d ends no transaction of producer %d", a.Last, a.ProducerID))
			return nil
		}
	}
	for _, want := range p.aborted {
		a, ok := entries[want.Last]
		if !ok || a.First > want.First || a.First < want.First && !p.compacted(a.Last) { // its first batches may be gone
			p.txnFinding(base, name, -1, fmt.Sprintf("it lacks the transaction of producer %d from %d that was aborted at %d; who reads committed records would get them", want.ProducerID, want.First, want.Last))
			return nil
		}
	}
	return nil
}

func (p *partitionCheck) txnFinding(base int64, name string, position int64, what string) {
	p.find(Finding{File: p.file(name), Position: position, What: what, do: repairCheckAgain, recheck: true, Harmless: !p.report.Clean && p.point <= base,
		Repair: "take the recovery point back; the next start reads all of the log again, and makes the file anew"})
}
