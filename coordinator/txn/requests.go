package txn

import (
	"math"
	"slices"
	"time"

	"ottla/coordinator"
)

// InitRequest is InitProducerId with a transactional id.
type InitRequest struct {
	ID      string
	Timeout int32 // ms
	// Expected is what the producer had, nil if it begins anew (KIP-360).
	Expected *Producer
	// NewProducerID is for an id without a producer, or with one whose epochs are used up; below
	// 0: none was asked for yet.
	NewProducerID int64
}

// Producer is a producer id in an epoch.
type Producer struct {
	ID    int64
	Epoch int16
}

func (r *InitRequest) check(o *Options) error {
	switch {
	case r.ID == "":
		return ErrInvalidID
	case r.Timeout <= 0 || int64(r.Timeout) > o.MaxTimeout.Milliseconds():
		return ErrInvalidTimeout
	}
	return nil
}

// Init gives a producer the transactional id, and answers with the Producer it is from now on. An
// open transaction of the one before is aborted, and the request answered with ErrConcurrent:
// its repeat will find the id free.
func (m *Machine) Init(now coordinator.Instant, r InitRequest, to *coordinator.Ticket) coordinator.Effects {
	if err := r.check(m.options()); err != nil {
		return reply(to, nil, err)
	}
	e := m.ids[r.ID]
	if e == nil {
		if r.NewProducerID < 0 {
			return reply(to, nil, errNeedsProducerID)
		}
		e = m.newEntry(r.ID, meta{producer: r.NewProducerID, previous: -1, next: -1, epoch: -1, last: -1, state: Empty, started: -1})
		m.ids[r.ID] = e
	}
	x := r.Expected
	switch {
	case e.busy():
		return reply(to, nil, ErrConcurrent)
	case x != nil && !e.knows(*x):
		return reply(to, nil, ErrFenced)
	case e.state == Ongoing && x != nil && x.ID == e.producer && x.Epoch < e.epoch: // Kafka lets a fenced producer abort the other's transaction
		return reply(to, nil, ErrFenced)
	case e.state == Ongoing:
		return m.abort(now, e, coordinator.Answer{To: to, Err: ErrConcurrent})
	}
	next := e.meta
	next.state, next.partitions, next.started, next.updated, next.timeout, next.next = Empty, nil, -1, now.Wall, r.Timeout, -1
	switch {
	case exhausted(e.epoch) && (x == nil || x.Epoch == e.epoch || e.epoch == math.MaxInt16 && x.Epoch == e.last):
		if r.NewProducerID < 0 {
			return reply(to, nil, errNeedsProducerID)
		}
		next.producer, next.epoch, next.last = r.NewProducerID, 0, -1
		if x != nil {
			next.last = x.Epoch
		}
	case x == nil:
		next.epoch, next.last = e.epoch+1, -1
	case e.epoch < 0 || x.Epoch == e.epoch:
		next.epoch, next.last = e.epoch+1, e.epoch
	case x.Epoch == e.last: // the same request again: its answer was lost
	default:
		return reply(to, nil, ErrFenced)
	}
	return m.change(e, next, coordinator.Answer{To: to, Value: Producer{next.producer, next.epoch}})
}

// knows: what a producer says it had may be this id's. A producer that had the id before this
// one may have used up its epochs, and not have heard of the new one.
func (e *entry) knows(x Producer) bool {
	return e.epoch < 0 || x.ID == e.producer || x.ID == e.previous && exhausted(x.Epoch)
}

// AddRequest is AddPartitionsToTxn, or what stands for it.
type AddRequest struct {
	ID         string
	Producer   int64
	Epoch      int16
	Partitions []Partition
	Version    int16 // transaction.version that the request stands for: 2 where a broker asks on behalf of a producer
	// Patience is how long the request may wait for an id that is busy.
	Patience time.Duration
}

// Add adds partitions to a transaction, and begins it with the first. The answer has no value.
func (m *Machine) Add(now coordinator.Instant, r AddRequest, to *coordinator.Ticket) coordinator.Effects {
	e := m.ids[r.ID]
	switch {
	case r.ID == "":
		return reply(to, nil, ErrInvalidID)
	case e == nil:
		return reply(to, nil, ErrProducerID)
	case e.busy(): // also to whoever has another producer id: the one that takes over with the end (meta.next) is told already
		return m.addLater(now, e, r, to)
	case e.producer != r.Producer:
		return reply(to, nil, ErrProducerID)
	case e.epoch != r.Epoch || e.epoch == math.MaxInt16: // the last epoch is for fencing
		return reply(to, nil, ErrFenced)
	}
	all := slices.Concat(e.partitions, r.Partitions)
	slices.SortFunc(all, comparePartitions)
	all = slices.Compact(all)
	if e.state == Ongoing && len(all) == len(e.partitions) {
		return reply(to, nil, nil)
	}
	next := e.meta
	next.state, next.partitions, next.updated, next.version = Ongoing, all, now.Wall, r.Version
	if e.state != Ongoing {
		next.started = now.Wall
	}
	return m.change(e, next, coordinator.Answer{To: to})
}

// addLater is Add for an id that is busy.
func (m *Machine) addLater(now coordinator.Instant, e *entry, r AddRequest, to *coordinator.Ticket) coordinator.Effects {
	if r.Patience <= 0 {
		return reply(to, nil, ErrConcurrent)
	}
	patience := r.Patience
	r.Patience = 0
	return m.wait(now, e, patience, to, func(now coordinator.Instant) coordinator.Effects { return m.Add(now, r, to) })
}

// Await is answered once the id is free, or with ErrConcurrent when the patience is over. It is
// for those who must look at something else before they try to Add again.
func (m *Machine) Await(now coordinator.Instant, id string, patience time.Duration, to *coordinator.Ticket) coordinator.Effects {
	e := m.ids[id]
	switch {
	case e == nil || !e.busy():
		return reply(to, nil, nil)
	case patience <= 0:
		return reply(to, nil, ErrConcurrent)
	}
	return m.wait(now, e, patience, to, func(coordinator.Instant) coordinator.Effects { return reply(to, nil, nil) })
}

// wait keeps a request until the id is free or its patience is over.
func (m *Machine) wait(now coordinator.Instant, e *entry, patience time.Duration, to *coordinator.Ticket, then func(coordinator.Instant) coordinator.Effects) coordinator.Effects {
	w := &waiter{to: to, then: then}
	w.clock = coordinator.NewAlarm(func(coordinator.Instant) coordinator.Effects {
		e.waiting = slices.DeleteFunc(e.waiting, func(x *waiter) bool { return x == w })
		return reply(to, nil, ErrConcurrent)
	})
	m.alarms.Set(w.clock, now.Mono+patience)
	e.waiting = append(e.waiting, w)
	return coordinator.Effects{}
}

// Verify answers with one error, or nil, for each partition: whether the producer's transaction
// has it ([]error).
func (m *Machine) Verify(r AddRequest, to *coordinator.Ticket) coordinator.Effects {
	e := m.ids[r.ID]
	switch {
	case r.ID == "":
		return reply(to, nil, ErrInvalidID)
	case e == nil, e.producer != r.Producer:
		return reply(to, nil, ErrProducerID)
	case e.epoch != r.Epoch:
		return reply(to, nil, ErrFenced)
	case e.state.prepared():
		return reply(to, nil, ErrConcurrent)
	}
	errs := make([]error, len(r.Partitions))
	for i, p := range r.Partitions {
		if _, has := slices.BinarySearchFunc(e.partitions, p, comparePartitions); !has {
			errs[i] = ErrNotInTxn
		}
	}
	return reply(to, errs, nil)
}

// EndRequest is EndTxn.
type EndRequest struct {
	ID            string
	Producer      int64
	Epoch         int16
	Commit        bool
	Version       int16 // transaction.version of the client: 2 from EndTxn v5 on, else 0
	NewProducerID int64 // for a producer whose epochs are used up; below 0: none was asked for yet
}

// End decides a transaction. The answer comes with the decision, before the markers, and is the
// Producer that the client goes on as.
func (m *Machine) End(now coordinator.Instant, r EndRequest, to *coordinator.Ticket) coordinator.Effects {
	e := m.ids[r.ID]
	switch {
	case r.ID == "":
		return reply(to, nil, ErrInvalidID)
	case e == nil:
		return reply(to, nil, ErrProducerID)
	case epochRises(r.Version):
		return m.endRising(now, e, r, to)
	case e.producer != r.Producer:
		return reply(to, nil, ErrProducerID)
	case e.epoch != r.Epoch:
		return reply(to, nil, ErrFenced)
	case e.busy():
		return reply(to, nil, ErrConcurrent)
	case e.state == Ongoing:
		next := e.meta
		next.state, next.updated, next.version, next.next = decision(r.Commit), now.Wall, 0, -1
		return m.change(e, next, coordinator.Answer{To: to, Value: Producer{e.producer, e.epoch}})
	}
	return m.repeated(e, r.Commit, to)
}

// endRising is End by transaction.version 2. An older epoch is that of a request which is sent
// again; the same one ends the transaction at hand, and if there is none, an abort is granted
// all the same, since the client can't know whether its partitions were added.
func (m *Machine) endRising(now coordinator.Instant, e *entry, r EndRequest, to *coordinator.Ticket) coordinator.Effects {
	again := epochRises(e.version) && int(e.epoch) == int(r.Epoch)+1
	overflowed := e.previous == r.Producer && e.producer != r.Producer && r.Epoch == math.MaxInt16-1 && e.epoch == 0
	again = again && e.producer == r.Producer || overflowed
	switch {
	case e.busy(): // whoever asks: until the markers are written it is not known what the id will be
		return reply(to, nil, ErrConcurrent)
	case e.producer != r.Producer && !overflowed:
		return reply(to, nil, ErrProducerID)
	case again && (e.state == CompleteCommit || e.state == CompleteAbort):
		if e.epoch == math.MaxInt16 && e.state == decided(r.Commit) {
			return m.rotate(now, e, r, to)
		}
		return m.repeated(e, r.Commit, to)
	case e.epoch != r.Epoch || e.epoch == math.MaxInt16:
		return reply(to, nil, ErrFenced)
	case e.state != Ongoing && r.Commit:
		return reply(to, nil, ErrInvalidState)
	}
	next := e.meta
	next.state, next.updated, next.version = decision(r.Commit), now.Wall, r.Version
	next.epoch, next.last, next.next = e.epoch+1, e.epoch, -1
	is := Producer{next.producer, next.epoch}
	if exhausted(e.epoch) {
		if r.NewProducerID < 0 {
			return reply(to, nil, errNeedsProducerID)
		}
		next.next = r.NewProducerID
		is = Producer{next.next, 0}
	}
	if e.state != Ongoing {
		next.started = now.Wall
	}
	return m.change(e, next, coordinator.Answer{To: to, Value: is})
}

func decision(commit bool) State {
	if commit {
		return PrepareCommit
	}
	return PrepareAbort
}

// decided is the state after the markers of a decision.
func decided(commit bool) State {
	if commit {
		return CompleteCommit
	}
	return CompleteAbort
}

// repeated answers an EndTxn that finds no open transaction.
func (m *Machine) repeated(e *entry, commit bool, to *coordinator.Ticket) coordinator.Effects {
	if e.state == decided(commit) {
		return reply(to, Producer{e.producer, e.epoch}, nil)
	}
	return reply(to, nil, ErrInvalidState)
}

// rotate answers a repeated EndTxn of a producer whose transaction was aborted with the epoch that no client gets: he
// goes on with a new producer id (as Kafka's has with that abort already).
func (m *Machine) rotate(now coordinator.Instant, e *entry, r EndRequest, to *coordinator.Ticket) coordinator.Effects {
	if r.NewProducerID < 0 {
		return reply(to, nil, errNeedsProducerID)
	}
	next := e.meta
	next.producer, next.epoch, next.updated = r.NewProducerID, 0, now.Wall
	return m.change(e, next, coordinator.Answer{To: to, Value: Producer{next.producer, 0}})
}
