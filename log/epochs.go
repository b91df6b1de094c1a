package log

import (
	"slices"
	"sync"
)

// noEpoch and noOffset are what EpochEnd answers when it knows nothing.
const (
	noEpoch  = -1
	noOffset = -1
)

// epochEntry says at which offset a leader's epoch begins.
type epochEntry struct {
	epoch int32
	start int64
}

// epochs are the leader epochs of a log, rising (Kafka's LeaderEpochFileCache, KIP-101). They
// change in memory first. The file is written by the flush that moves the recovery point past
// a change, and at a clean stop: what a crash takes away before that is read again from the
// batches behind the recovery point, which carry their epoch.
type epochs struct {
	writing sync.Mutex // held while the file is written

	mu      sync.Mutex
	list    []epochEntry // guarded by mu
	file    []epochEntry // guarded by mu; what the file has
	written []epochEntry // guarded by mu; what the file has after a crash too
}

// assign begins an epoch at an offset. Entries that contradict it go, as in Kafka.
func (e *epochs) assign(epoch int32, start int64) {
	if epoch < 0 || start < 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.list); n > 0 && e.list[n-1].epoch == epoch && e.list[n-1].start <= start {
		return
	}
	for n := len(e.list); n > 0 && (e.list[n-1].epoch >= epoch || e.list[n-1].start >= start); n-- {
		e.list = e.list[:n-1]
	}
	e.list = append(e.list, epochEntry{epoch, start})
}

func (e *epochs) last() int32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.list); n > 0 {
		return e.list[n-1].epoch
	}
	return noEpoch
}

// at is the epoch that an offset was written in.
func (e *epochs) at(offset int64) int32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := int32(noEpoch)
	for _, entry := range e.list {
		if entry.start > offset {
			break
		}
		found = entry.epoch
	}
	return found
}

// endFor is the largest known epoch that is not above the given one, and where it ends
// (LeaderEpochFileCache.endOffsetFor).
func (e *epochs) endFor(epoch int32, logEnd int64) (int32, int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.list)
	switch {
	case epoch == noEpoch || n == 0:
		return noEpoch, noOffset
	case e.list[n-1].epoch == epoch:
		return epoch, logEnd
	}
	i, _ := slices.BinarySearchFunc(e.list, epoch+1, func(x epochEntry, t int32) int { return int(x.epoch) - int(t) })
	switch {
	case i == n:
		return noEpoch, noOffset
	case i == 0:
		return epoch, e.list[0].start
	}
	return e.list[i-1].epoch, e.list[i].start
}

// truncateEnd forgets epochs that begin at or after the log's end.
func (e *epochs) truncateEnd(end int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for n := len(e.list); n > 0 && e.list[n-1].start >= end; n-- {
		e.list = e.list[:n-1]
	}
}

// truncateStart makes the epoch of the log's start the first one.
func (e *epochs) truncateStart(start int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for n < len(e.list) && e.list[n].start <= start {
		n++
	}
	if n == 0 || n == 1 && e.list[0].start == start {
		return
	}
	e.list = append([]epochEntry{{e.list[n-1].epoch, start}}, e.list[n:]...)
}

// entries and restore are for an append that fails after it has begun an epoch.
func (e *epochs) entries() []epochEntry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

func (e *epochs) restore(list []epochEntry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = list
}

func (e *epochs) clear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = nil
}

// unwritten returns the entries if the file differs in those that begin below the offset: the
// others have no records that are to be made durable.
func (e *epochs) unwritten(below int64) ([]epochEntry, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Equal(startingBelow(e.list, below), startingBelow(e.written, below)) {
		return nil, false
	}
	return slices.Clone(e.list), true
}

// there says whether the file has the entries, first whether it has none.
func (e *epochs) there(list []epochEntry) (there, first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Equal(list, e.file), len(e.file) == 0
}

// put says that the file has these entries.
func (e *epochs) put(list []epochEntry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.file = list
}

func startingBelow(list []epochEntry, offset int64) []epochEntry {
	n := len(list)
	for n > 0 && list[n-1].start >= offset {
		n--
	}
	return list[:n]
}

// kept says that a file with these entries is durable, if it has them still.
func (e *epochs) kept(list []epochEntry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if list != nil && slices.Equal(list, e.file) {
		e.written = list
	}
}

// wrote says that the file has these entries, durably.
func (e *epochs) wrote(list []epochEntry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.file, e.written = list, list
}
