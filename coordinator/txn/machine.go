// Package txn is the state machine of transactional ids: which producer has an id, in which
// epoch, and what its transaction is made of, as Kafka's transaction coordinator has it
// (TransactionCoordinator, TransactionStateManager, TransactionMetadata; KIP-98, KIP-360,
// KIP-890). Machine is pure; package coordinator runs it over the partitions of
// __transaction_state. Coordinator is what the broker calls.
//
// A transactional id changes by one record at a time, and is pending until the record is
// committed: whoever wants another change meanwhile is told ErrConcurrent, or waits where that
// is usual (Add). A transaction ends in two steps. The record of the decision (PrepareCommit,
// PrepareAbort) makes it final, and is what the client's answer waits for. Then the markers are
// written by somebody outside (an Ending of Effects.Outside), who reports with Completed; after a
// restart all that is prepared and not complete is given out again. What a restart can't lose is
// therefore what the log holds, and nothing else counts.
//
// With transaction.version 2 (KIP-890) the epoch rises with the decision, so that the markers
// fence whatever is still on its way from the transaction before, and an EndTxn that is sent
// again is known by its older epoch.
//
// Time is Instant.Mono for timeouts, which therefore do not see the wall clock step; after a
// restart the time that was left is reckoned from what is written down, and never more than the
// whole timeout.
package txn

import (
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"ottla/coordinator"
)

// Machine is the state machine of one shard: the transactional ids that fall on one partition of
// __transaction_state.
type Machine struct {
	options func() *Options
	stats   *Stats
	ids     map[string]*entry
	alarms  coordinator.Alarms
	rounds  uint64 // transactions that were decided
}

// Stats counts what machines do, over all shards of a broker and for as long as it runs.
type Stats struct {
	Commits   atomic.Int64 // transactions that were committed, markers and all
	Aborts    atomic.Int64 // transactions that were aborted, markers and all
	Timeouts  atomic.Int64 // transactions that were aborted because their time was up
	Expired   atomic.Int64 // transactional ids that were forgotten
	Malformed atomic.Int64 // records that could not be read and were passed over
}

// entry is one transactional id. Before its first record is committed its epoch is -1.
type entry struct {
	id string
	meta
	pending bool               // a record is written and not yet committed
	due     time.Duration      // Ongoing: when its time is up, by Instant.Mono
	round   uint64             // prepared: which decision it is, of those of the machine
	clock   *coordinator.Alarm // for due, and to try again what failed
	waiting []*waiter          // requests that wait for the id to be free, in order
}

// waiter is a request that waits for the id to be free.
type waiter struct {
	to    *coordinator.Ticket
	then  func(coordinator.Instant) coordinator.Effects // what it waits for
	clock *coordinator.Alarm
}

// Ending is a decided transaction whose markers have to be written.
type Ending struct {
	ID         string
	Producer   int64
	Epoch      int16 // of the markers
	Commit     bool
	Version    int16 // transaction.version by which it ends: from 2 on the epoch is one that the producer has not used in it
	Partitions []Partition
	round      uint64 // tells it from the next one, which may have the same epoch
}

// NewMachine makes an empty machine. It asks for its options at every step; stats may be nil.
func NewMachine(options func() *Options, stats *Stats) *Machine {
	if stats == nil {
		stats = &Stats{}
	}
	return &Machine{options: options, stats: stats, ids: map[string]*entry{}}
}

var _ coordinator.Machine = (*Machine)(nil)

func (m *Machine) newEntry(id string, is meta) *entry {
	e := &entry{id: id, meta: is}
	e.clock = coordinator.NewAlarm(func(now coordinator.Instant) coordinator.Effects { return m.ring(now, e) })
	return e
}

// Replay takes one record of the log. Kinds that are not ours are passed over; what can't be
// read is counted and passed over.
func (m *Machine) Replay(r coordinator.Logged) {
	id, known, err := readKey(r.Key)
	switch {
	case err != nil:
		m.stats.Malformed.Add(1)
		return
	case !known:
		return
	case r.Value == nil:
		delete(m.ids, id)
		return
	}
	is, err := readMeta(r.Value)
	if err != nil {
		m.stats.Malformed.Add(1)
		return
	}
	m.ids[id] = m.newEntry(id, is)
}

// ReplayMarker is for logs with transactions; there are none in this one.
func (m *Machine) ReplayMarker(int64, bool) {}

// Start goes on with what was read: open transactions get what is left of their time, and the
// markers of decided ones are to be written, again if they were written before.
func (m *Machine) Start(now coordinator.Instant) coordinator.Effects {
	var out coordinator.Effects
	for _, e := range m.sorted() {
		switch {
		case e.state == Ongoing:
			whole := int64(e.timeout)
			m.open(now, e, min(max(e.started+whole-now.Wall, 0), whole))
		case e.state.prepared() && len(e.partitions) == 0:
			m.alarms.Set(e.clock, now.Mono)
		case e.state.prepared():
			out.Outside = append(out.Outside, m.ending(e))
		}
	}
	return out
}

// Stop answers everybody who waits: this broker is not the coordinator.
func (m *Machine) Stop() (answers []coordinator.Answer) {
	for _, e := range m.sorted() {
		for _, w := range e.waiting {
			answers = append(answers, coordinator.Answer{To: w.to, Err: coordinator.ErrNotCoordinator})
		}
		e.waiting = nil
	}
	m.ids, m.alarms = map[string]*entry{}, coordinator.Alarms{}
	return answers
}

// Wake tells when the next transaction or request runs out of time.
func (m *Machine) Wake() time.Duration { return m.alarms.Wake() }

// Tick lets one deadline that has passed take effect.
func (m *Machine) Tick(now coordinator.Instant) coordinator.Effects { return m.alarms.Ring(now) }

// Idle tells that there is no transactional id: nobody waits and nothing can expire.
func (m *Machine) Idle() bool { return len(m.ids) == 0 && m.alarms.None() }

func (m *Machine) sorted() []*entry {
	all := make([]*entry, 0, len(m.ids))
	for _, id := range slices.Sorted(maps.Keys(m.ids)) {
		all = append(all, m.ids[id])
	}
	return all
}

// change writes what a transactional id is to be, and makes it that once it is committed.
func (m *Machine) change(e *entry, to meta, answers ...coordinator.Answer) coordinator.Effects {
	to.previous = e.producer
	e.pending = true
	return coordinator.Effects{
		Records: []coordinator.Record{idRecord(e.id, to, m.options().Version)},
		Answers: answers,
		Then: func(c coordinator.Commit) coordinator.Effects {
			e.pending = false
			if c.Err != nil {
				return m.failed(c.Now, e)
			}
			return m.changed(c.Now, e, to)
		},
	}
}

// changed takes over what is committed.
func (m *Machine) changed(now coordinator.Instant, e *entry, to meta) coordinator.Effects {
	before := e.state
	e.meta = to
	switch {
	case e.state == Ongoing:
		if before != Ongoing {
			m.open(now, e, int64(e.timeout))
		} else {
			m.alarms.Set(e.clock, e.due)
		}
	case e.state.prepared():
		m.alarms.Cancel(e.clock)
		if len(e.partitions) == 0 {
			return m.complete(now, e)
		}
		return coordinator.Effects{Outside: []any{m.ending(e)}}
	case e.state == CompleteCommit:
		m.stats.Commits.Add(1)
	case e.state == CompleteAbort:
		m.stats.Aborts.Add(1)
	}
	return m.resume(now, e)
}

// open lets a transaction be aborted after so many milliseconds; never, if another coordinator than this one decides
// about it (Kafka: isDistributedTwoPhaseCommitTxn, KIP-939).
func (m *Machine) open(now coordinator.Instant, e *entry, left int64) {
	e.due = coordinator.Never
	if e.timeout != math.MaxInt32 {
		e.due = now.Mono + time.Duration(left)*time.Millisecond
	}
	m.alarms.Set(e.clock, e.due)
}

// failed: the record is not in the log, so nothing has changed. What nobody but the machine
// wanted is tried again later.
func (m *Machine) failed(now coordinator.Instant, e *entry) coordinator.Effects {
	switch {
	case e.epoch < 0: // it never came to be
		delete(m.ids, e.id)
	case e.state == Ongoing:
		if e.due <= now.Mono {
			e.due = now.Mono + abortRetry
		}
		m.alarms.Set(e.clock, e.due)
	case e.state.prepared() && len(e.partitions) == 0:
		m.alarms.Set(e.clock, now.Mono+abortRetry)
	}
	return m.resume(now, e)
}

// ring: the time of a transaction is up, or something is to be tried again.
func (m *Machine) ring(now coordinator.Instant, e *entry) coordinator.Effects {
	switch {
	case e.pending: // the end of that sets the alarm again
	case e.state == Ongoing:
		m.stats.Timeouts.Add(1)
		return m.abort(now, e)
	case e.state.prepared() && len(e.partitions) == 0:
		return m.complete(now, e)
	}
	return coordinator.Effects{}
}

// abort decides against a transaction without its producer, who is fenced by an epoch that he
// does not know. With transaction.version 2 he may learn it by ending the transaction himself.
func (m *Machine) abort(now coordinator.Instant, e *entry, answers ...coordinator.Answer) coordinator.Effects {
	to := e.meta
	to.state, to.updated, to.last, to.version, to.next = PrepareAbort, now.Wall, -1, 0, -1
	if epochRises(m.options().Version) {
		to.last, to.version = e.epoch, m.options().Version
	}
	if to.epoch < math.MaxInt16 {
		to.epoch++
	}
	return m.change(e, to, answers...)
}

// complete notes that every marker of a transaction is written.
func (m *Machine) complete(now coordinator.Instant, e *entry, answers ...coordinator.Answer) coordinator.Effects {
	to := e.meta
	to.state, to.updated, to.partitions = CompleteAbort, now.Wall, nil
	if e.state == PrepareCommit {
		to.state = CompleteCommit
	}
	if epochRises(e.version) && e.next >= 0 {
		to.producer, to.epoch = e.next, 0
	}
	to.next = -1
	return m.change(e, to, answers...)
}

// ending is what is to be written for a decision, which is a new one.
func (m *Machine) ending(e *entry) Ending {
	m.rounds++
	e.round = m.rounds
	return Ending{round: e.round, ID: e.id, Producer: e.producer, Epoch: e.epoch, Commit: e.state == PrepareCommit, Version: e.version, Partitions: e.partitions}
}

// resume lets those go on who waited for the id to be free, until one of them changes it.
func (m *Machine) resume(now coordinator.Instant, e *entry) (out coordinator.Effects) {
	list := e.waiting
	e.waiting = nil
	for i, w := range list {
		if e.busy() {
			e.waiting = append(e.waiting, list[i:]...)
			break
		}
		m.alarms.Cancel(w.clock)
		one := w.then(now)
		out.Answers = append(out.Answers, one.Answers...)
		if len(one.Records) > 0 {
			out.Records, out.Then = one.Records, one.Then
		}
	}
	return out
}

// busy: nothing may be added now, and it is worth to wait.
func (e *entry) busy() bool { return e.pending || e.state.prepared() }

// Completed takes the report that every marker of an ending is written; the answer is nil once
// that is noted, also if it was noted before.
func (m *Machine) Completed(now coordinator.Instant, end Ending, to *coordinator.Ticket) coordinator.Effects {
	e := m.ids[end.ID]
	if e == nil || !e.state.prepared() || e.pending || e.round != end.round {
		return reply(to, nil, nil)
	}
	return m.complete(now, e, coordinator.Answer{To: to})
}

// Sweep forgets transactional ids that nothing was heard of for so long
// (transactional.id.expiration.ms).
func (m *Machine) Sweep(now coordinator.Instant) coordinator.Effects {
	limit := now.Wall - m.options().Expiration.Milliseconds()
	var gone []*entry
	var out coordinator.Effects
	for _, e := range m.sorted() {
		if !e.pending && e.state.quiet() && e.updated <= limit {
			e.pending = true
			gone = append(gone, e)
			out.Records = append(out.Records, coordinator.Record{Key: idKey(e.id)})
		}
	}
	out.Then = func(c coordinator.Commit) (then coordinator.Effects) {
		for _, e := range gone {
			e.pending = false
			if c.Err == nil {
				delete(m.ids, e.id)
				m.stats.Expired.Add(1)
			}
		}
		return then
	}
	return out
}

// reply answers a request that changes nothing.
func reply(to *coordinator.Ticket, value any, err error) coordinator.Effects {
	return coordinator.Effects{Answers: []coordinator.Answer{{To: to, Value: value, Err: err}}}
}
