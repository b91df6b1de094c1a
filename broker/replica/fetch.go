package replica

import (
	"context"
	"errors"
	"time"

	"ottla/log"
)

// Isolation says up to where a fetch sees.
type Isolation int8

// What consumers ask for (KIP-98), and what followers see.
const (
	ReadUncommitted Isolation = iota // up to the high watermark
	ReadCommitted                    // up to the last stable offset
	LogEnd                           // up to the log's end
)

// Fetch is what holds for a whole fetch.
type Fetch struct {
	Replica     int32 // broker id of a follower; below 0: a consumer
	BrokerEpoch int64 // of the follower, -1 where it does not say
	MaxWait     time.Duration
	MinBytes    int
	MaxBytes    int
	Isolation   Isolation
	OnlyLeader  bool // serve only what this broker leads (consumers before KIP-392, followers)
	// EachFirst lets every partition give its first batch whole, however large. Otherwise only
	// the first partition that has anything does.
	EachFirst bool
}

// Read is one partition of a fetch: what is asked of it, and in the second half the answer.
type Read struct {
	Topic     string
	ID        [16]byte // topic id, zero if the client does not use them
	Partition int32
	Offset    int64
	LogStart  int64 // of the follower that asks; -1 for consumers
	MaxBytes  int32
	Epoch     int32 // the leader's, as the client knows it; -1: it does not say
	LastEpoch int32 // of the last record fetched before; -1: it does not say (KIP-595)

	Err           error
	HighWatermark int64
	StableOffset  int64
	Start         int64
	Chunk         log.Chunk // empty where there is nothing; whoever has the answer releases it
	Filled        bool      // Chunk holds something
	Aborted       []log.Aborted
	// Diverged says that the client's log parted from this one: its LastEpoch ends here at
	// DivergedEnd, in epoch DivergedEpoch. There are no records then.
	Diverged      bool
	DivergedEpoch int32
	DivergedEnd   int64

	p    *Partition
	to   int64 // offset up to which the fetch saw when it was read or looked at last
	size int   // bytes that the partition could give then
	look bool  // it may have changed since it was read
}

// Release gives the records of all reads back.
func Release(reads []Read) {
	for i := range reads {
		reads[i].release()
	}
}

func (r *Read) release() {
	if r.Filled {
		r.Chunk.Range.Release()
		r.Chunk, r.Filled = log.Chunk{}, false
	}
}

// Fetch fills in the answers. If there are fewer than MinBytes it waits, at most MaxWait, for
// more of them in any of the partitions. An error in one partition, or a log that diverged,
// ends the wait (as Kafka's DelayedFetch). The only error is that ctx ended; the reads hold
// nothing then.
func (m *Manager) Fetch(ctx context.Context, f Fetch, reads []Read) error {
	w := m.Begin(f, reads)
	if w == nil {
		return nil
	}
	done := make(chan struct{})
	w.Start(func() { close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		w.Stop()
		<-done
		Release(reads)
		return ctx.Err()
	}
}

// first reads for the first time, and says whether that is enough for an answer.
func (m *Manager) first(f *Fetch, reads []Read) (have int, enough bool) {
	have, hurry := m.readAll(f, reads, true)
	for i := range reads {
		r := &reads[i]
		if r.p == nil {
			continue
		}
		r.p.stats.fetches.Add(1)
		if !expected(r.Err) {
			r.p.stats.failedFetches.Add(1)
			m.opts.Logger.Error("fetch failed", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "err", r.Err)
		}
	}
	return have, hurry || have >= f.MinBytes || f.MaxWait <= 0 || len(reads) == 0
}

// expected says whether an error of a read is one that a client can cause or that a change of
// leadership brings.
func expected(err error) bool {
	for _, known := range [...]error{nil, ErrUnknownPartition, ErrNotLeader, ErrOffline, ErrTopicID, ErrFencedEpoch, ErrUnknownEpoch, log.ErrOffsetOutOfRange, log.ErrStorage, log.ErrClosed} {
		if err == known || known != nil && errors.Is(err, known) {
			return true
		}
	}
	return false
}

// readAll reads the partitions in their order, each within what is left of MaxBytes. The
// second time it reads those again that gave something or may have changed. hurry: a
// partition has an error or diverged, so there is no waiting.
func (m *Manager) readAll(f *Fetch, reads []Read, first bool) (bytes int, hurry bool) {
	left := f.MaxBytes
	empty := true
	for i := range reads {
		r := &reads[i]
		if first || r.Filled || r.look {
			r.release()
			m.read(f, r, min(left, int(r.MaxBytes)), empty || f.EachFirst && left > 0, first)
		}
		if r.Err != nil || r.Diverged {
			hurry = true
		}
		if r.Filled {
			empty = false
			r.size = int(r.Chunk.Range.Len())
			bytes += r.size
			left = max(0, left-r.size)
		}
	}
	return bytes, hurry
}

// read fills in one answer. whole: the first batch is given even if it is larger than most.
func (m *Manager) read(f *Fetch, r *Read, most int, whole, first bool) {
	r.Err, r.HighWatermark, r.StableOffset, r.Start = nil, -1, -1, -1
	r.Aborted, r.Diverged, r.look, r.to, r.size = nil, false, false, -1, 0
	p, err := m.Partition(r.Topic, r.Partition)
	if err != nil {
		r.Err = err
		return
	}
	r.p = p
	s := p.standing.Load()
	if r.ID != [16]byte{} && s.id != [16]byte{} && r.ID != s.id {
		r.Err = ErrTopicID
		return
	}
	l, err := s.local(r.Epoch, f.OnlyLeader || f.Replica >= 0)
	if err != nil {
		r.Err = err
		return
	}
	if f.Replica >= 0 && !p.hasReplica(f.Replica) {
		// In the cluster's eyes the follower may be one already (a reassignment): it shall ask again.
		if r.Err = ErrNotLeader; r.Epoch >= 0 {
			r.Err = ErrUnknownEpoch
		}
		return
	}
	start, end, hw, stable := l.Start(), l.End(), l.HighWatermark(), l.StableOffset()
	if r.Err = r.fill(l, f.Isolation, most, whole, start, end, hw, stable); r.Err != nil {
		return
	}
	r.HighWatermark, r.StableOffset, r.Start = hw, stable, start
	if first && f.Replica >= 0 && !r.Diverged {
		p.fetched(r, f.Replica, f.BrokerEpoch, end)
	}
}

// limit is the offset up to which a fetch sees.
func limit(i Isolation, end, hw, stable int64) int64 {
	switch i {
	case ReadCommitted:
		return min(stable, hw)
	case LogEnd:
		return end
	}
	return hw
}

func (r *Read) fill(l *log.Log, i Isolation, most int, whole bool, start, end, hw, stable int64) error {
	if r.LastEpoch >= 0 {
		epoch, ends := l.EpochEnd(r.LastEpoch)
		if epoch < 0 || ends < 0 || r.Offset < start {
			return log.ErrOffsetOutOfRange
		}
		if epoch < r.LastEpoch || ends < r.Offset {
			r.Diverged, r.DivergedEpoch, r.DivergedEnd = true, epoch, ends
			return nil
		}
	}
	if r.Offset < start || r.Offset > end {
		return log.ErrOffsetOutOfRange
	}
	to := limit(i, end, hw, stable)
	r.to = to
	if r.Offset >= to || most <= 0 && !whole {
		return nil
	}
	c, err := l.Read(r.Offset, to, max(most, 0), whole)
	if err != nil {
		return err
	}
	if c.Range == nil {
		return nil
	}
	if c.Range.Len() < int64(c.First.Size) { // not even one batch fits
		c.Range.Release()
		return nil
	}
	if i == ReadCommitted {
		if r.Aborted, err = l.AbortedIn(r.Offset, to); err != nil {
			c.Range.Release()
			return err
		}
	}
	r.Chunk, r.Filled = c, true
	return nil
}

// grown looks at one partition that may have changed, brings have up to date, and says whether
// the wait is over.
func (m *Manager) grown(f *Fetch, r *Read, have *int) bool {
	s := r.p.standing.Load()
	l, err := s.local(r.Epoch, f.OnlyLeader || f.Replica >= 0)
	if err != nil {
		r.look = true
		return true
	}
	start, end, hw, stable := l.Start(), l.End(), l.HighWatermark(), l.StableOffset()
	to := limit(f.Isolation, end, hw, stable)
	if to != r.to || hw != r.HighWatermark || start != r.Start || stable != r.StableOffset {
		r.look = true
	}
	if r.Offset < start || r.Offset > end {
		return true
	}
	if r.LastEpoch >= 0 {
		if epoch, ends := l.EpochEnd(r.LastEpoch); epoch < r.LastEpoch || ends < r.Offset {
			r.look = true
			return true
		}
	}
	switch {
	case to == r.to || r.Offset >= to:
		return false
	case *have+1 >= f.MinBytes: // whatever came will do
		return true
	}
	r.to = to
	// How much it is only the log knows.
	c, err := l.Read(r.Offset, to, int(r.MaxBytes), true)
	if err != nil {
		return true
	}
	size := 0
	if c.Range != nil {
		size = int(c.Range.Len())
		c.Range.Release()
	}
	// A read ends with its segment: if there is more, and yet not more to read here, then
	// waiting is no use.
	full := size == r.size && size < int(r.MaxBytes)
	*have += size - r.size
	r.size = size
	return full || *have >= f.MinBytes
}
