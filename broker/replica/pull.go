package replica

import (
	"errors"
	"slices"
	"time"

	"ottla/log"
	"ottla/protocol/record"
)

// puller holds the rules by which the replicas of one fetcher follow their leader: what is asked of
// it next and what its answer means for each log. It has no goroutine, clock or socket. The rules
// are those of kafka.server.AbstractFetcherThread with truncation by the answer (KIP-595): a
// follower says which epoch its last record has, and a leader whose log parted from that answers
// where that epoch ends.
type puller struct {
	rules   PullRules
	parts   map[Key]*pull
	byID    map[pulledKey]*pull
	order   []*pull    // as they are asked for; the next request begins where this one ended
	gone    []PullPart // in the session, and not followed any more
	session int32      // 0: none
	epoch   int32      // of the session's next request
}

// PullRules are the settings of fetchers. Zeros stand for Kafka's defaults.
type PullRules struct {
	MaxWait      time.Duration // replica.fetch.wait.max.ms
	MinBytes     int32         // replica.fetch.min.bytes
	MaxBytes     int32         // replica.fetch.response.max.bytes
	PartMaxBytes int32         // replica.fetch.max.bytes
	Backoff      time.Duration // replica.fetch.backoff.ms
}

type pulledKey struct {
	id [16]byte
	n  int32
}

// pull is one partition that is followed in one leader epoch.
type pull struct {
	k         Key
	id        [16]byte
	log       pullLog
	epoch     int32
	offset    int64 // of the next record
	lastEpoch int32 // of the last one, -1: not known
	fresh     bool  // nothing was asked yet
	notBefore int64 // ms
	parked    bool  // not asked for before another leader epoch
	told      PullPart
	inSession bool
}

// pullLog is the log of a replica that follows in one leader epoch; what changes it fails with
// errNotFollowing in any other.
type pullLog interface {
	Start() int64
	End() int64
	HighWatermark() int64
	LastEpoch() int32
	EpochEnd(epoch int32) (int32, int64)
	Append(records []byte) error
	// Truncate takes away what lies from an offset on, StartAt everything.
	Truncate(to int64) error
	StartAt(offset int64) error
	// Committed takes over the leader's high watermark and log start.
	Committed(hw, start int64)
}

// PullPart is what is asked of a leader for one partition.
type PullPart struct {
	Key
	ID        [16]byte
	Offset    int64
	LogStart  int64
	MaxBytes  int32
	Epoch     int32 // the leader's
	LastEpoch int32 // of the record before Offset, -1: none
}

// PullRequest is a fetch of a follower. With a session, Parts are those that have changed.
type PullRequest struct {
	SessionID, SessionEpoch int32
	Parts, Forgotten        []PullPart
	MaxWait                 time.Duration
	MinBytes, MaxBytes      int32
	Replica                 int32
	BrokerEpoch             int64
}

// PullAnswer is the leader's.
type PullAnswer struct {
	SessionID int32
	Parts     []Pulled
}

// Pulled is one partition of it. Err is one of this room's errors or the log's.
type Pulled struct {
	ID                      [16]byte
	Partition               int32
	Err                     error
	HighWatermark, LogStart int64
	Diverged                bool
	DivergedEpoch           int32
	DivergedEnd             int64
	Records                 []byte // valid until the next request
}

// ErrSession is a source's: the leader does not know the session any more.
var ErrSession = errors.New("fetch session is not known")

var errNotFollowing = errors.New("the replica does not follow in this epoch any more")

func (r *PullRules) defaults() {
	def := func(v *int32, d int32) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&r.MinBytes, 1)
	def(&r.MaxBytes, 10<<20)
	def(&r.PartMaxBytes, 1<<20)
	if r.MaxWait <= 0 {
		r.MaxWait = 500 * time.Millisecond
	}
	if r.Backoff <= 0 {
		r.Backoff = time.Second
	}
}

func newPuller(r PullRules) *puller {
	r.defaults()
	return &puller{rules: r, parts: map[Key]*pull{}, byID: map[pulledKey]*pull{}}
}

// add begins to follow in an epoch, in place of an older one.
func (f *puller) add(k Key, id [16]byte, epoch int32, l pullLog) {
	if old := f.parts[k]; old != nil && old.epoch == epoch && old.id == id && !old.parked {
		return
	}
	f.remove(k)
	p := &pull{k: k, id: id, log: l, epoch: epoch, fresh: true}
	if i := slices.IndexFunc(f.gone, func(g PullPart) bool { return g.Key == k && g.ID == id }); i >= 0 {
		p.told, p.inSession = f.gone[i], true // it stays in the session, with what is asked for now
		f.gone = slices.Delete(f.gone, i, i+1)
	}
	f.parts[k], f.byID[pulledKey{id, k.Partition}] = p, p
	f.order = append(f.order, p)
}

func (f *puller) remove(k Key) {
	p := f.parts[k]
	if p == nil {
		return
	}
	delete(f.parts, k)
	delete(f.byID, pulledKey{p.id, k.Partition})
	i := slices.Index(f.order, p)
	f.order = slices.Delete(f.order, i, i+1)
	if p.inSession {
		f.gone = append(f.gone, p.told)
	}
}

// begin settles where a replica goes on. A log without leader epochs cannot be compared with the
// leader's, so what is not known to be committed goes (KIP-101).
func (p *pull) begin() error {
	p.fresh = false
	if p.log.LastEpoch() < 0 && p.log.HighWatermark() < p.log.End() {
		if err := p.log.Truncate(p.log.HighWatermark()); err != nil {
			return err
		}
	}
	p.locate()
	return nil
}

func (p *pull) locate() { p.offset, p.lastEpoch = p.log.End(), p.log.LastEpoch() }

// next is the request that is due now, or nil and the time (ms) at which one will be; -1: none is.
func (f *puller) next(now int64) (q *PullRequest, at int64) {
	q = &PullRequest{Forgotten: f.gone, SessionID: f.session, SessionEpoch: f.epoch, MaxWait: f.rules.MaxWait, MinBytes: f.rules.MinBytes, MaxBytes: f.rules.MaxBytes}
	at = -1
	ready := 0
	f.gone = nil
	for _, p := range f.order {
		if p.fresh && !p.parked {
			if err := p.begin(); err != nil {
				p.parked = true
			}
		}
		if p.parked || p.notBefore > now {
			if p.inSession {
				q.Forgotten = append(q.Forgotten, p.told)
				p.inSession = false
			}
			if !p.parked && (at < 0 || p.notBefore < at) {
				at = p.notBefore
			}
			continue
		}
		ready++
		part := PullPart{Key: p.k, ID: p.id, Offset: p.offset, LogStart: p.log.Start(), MaxBytes: f.rules.PartMaxBytes, Epoch: p.epoch, LastEpoch: p.lastEpoch}
		if f.session == 0 || !p.inSession || part != p.told {
			q.Parts = append(q.Parts, part)
		}
		p.told, p.inSession = part, true
	}
	if f.session == 0 {
		q.Forgotten = nil
	}
	switch {
	case ready > 0:
		return q, now
	case f.session != 0 && len(q.Forgotten) > 0: // the leader shall not keep what nobody asks for
		f.reset()
	}
	return nil, at
}

// reset begins without a session.
func (f *puller) reset() {
	f.session, f.epoch, f.gone = 0, 0, nil
	for _, p := range f.order {
		p.inSession = false
	}
}

// failed takes in that a request had no answer: all that it asked waits for a while.
func (f *puller) failed(now int64) {
	for _, p := range f.order {
		if p.inSession {
			p.notBefore = now + f.rules.Backoff.Milliseconds()
		}
	}
	f.reset()
}

// trouble is what came of one partition where it did not go on.
type trouble struct {
	k          Key
	epoch      int32
	err        error
	outOfRange bool // the leader has to be asked for its start and end, see found
}

// took takes an answer into the logs.
func (f *puller) took(a *PullAnswer, now int64) (bad []trouble) {
	f.session = a.SessionID
	if a.SessionID != 0 {
		if f.epoch++; f.epoch <= 0 {
			f.epoch = 1
		}
	} else {
		defer f.reset()
	}
	for i := range a.Parts {
		d := &a.Parts[i]
		p := f.byID[pulledKey{d.ID, d.Partition}]
		if p == nil || p.parked || !p.inSession || p.offset != p.told.Offset || p.epoch != p.told.Epoch {
			continue // of what was asked for before something changed
		}
		if t := f.one(p, d, now); t != nil {
			bad = append(bad, *t)
		}
	}
	return bad
}

func (f *puller) one(p *pull, d *Pulled, now int64) *trouble {
	err := d.Err
	switch {
	case err == nil && d.Diverged:
		err = p.diverged(d.DivergedEpoch, d.DivergedEnd)
	case err == nil:
		if len(d.Records) > 0 {
			if err = p.log.Append(d.Records); err == nil {
				p.locate()
			}
		}
		if err == nil {
			p.log.Committed(d.HighWatermark, d.LogStart)
		}
	}
	t := &trouble{k: p.k, epoch: p.epoch, err: err}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNotFollowing):
		p.parked = true
		return nil
	case errors.Is(err, ErrFencedEpoch): // the controller will tell of the newer epoch
		p.parked = true
	case errors.Is(err, log.ErrOffsetOutOfRange):
		t.outOfRange = true
		p.wait(now, f.rules.Backoff)
	case errors.Is(err, log.ErrFull), errors.Is(err, record.ErrCorrupt):
		p.wait(now, f.rules.Backoff)
	case errors.Is(err, log.ErrStorage) && d.Err == nil, errors.Is(err, log.ErrClosed), errors.Is(err, log.ErrUnexpectedOffset):
		p.parked = true // this log cannot follow
	default:
		p.wait(now, f.rules.Backoff)
	}
	return t
}

func (p *pull) wait(now int64, d time.Duration) { p.notBefore = now + d.Milliseconds() }

// diverged cuts the log where it parted from the leader's: epoch ends there at end. If this log has
// that epoch not, but older ones, it is cut to where those end here, and asked again
// (AbstractFetcherThread.getOffsetTruncationState).
func (p *pull) diverged(epoch int32, end int64) error {
	to := end
	if epoch < 0 || end < 0 { // the leader knows nothing of it
		to = p.log.HighWatermark()
	} else {
		own, ends := p.log.EpochEnd(epoch)
		switch {
		case own < 0 || ends < 0: // this log knows no epochs
		case own != epoch:
			to = ends
		default:
			to = min(end, ends)
		}
	}
	to = min(to, p.log.End())
	if err := p.log.Truncate(to); err != nil {
		return err
	}
	p.locate()
	return nil
}

// found goes on after ErrOffsetOutOfRange with what the leader says of its log
// (AbstractFetcherThread.fetchOffsetAndTruncate): a leader that ends earlier was elected uncleanly,
// one that starts later has deleted what this log lacks.
func (f *puller) found(k Key, epoch int32, start, end, now int64) error {
	p := f.parts[k]
	if p == nil || p.epoch != epoch || p.parked {
		return nil
	}
	var err error
	switch {
	case end < p.log.End():
		err = p.log.Truncate(end)
	case start > p.log.End():
		err = p.log.StartAt(start)
	}
	if err != nil {
		p.parked = true
		return err
	}
	p.locate()
	p.notBefore = 0
	return nil
}

// idle says that there is nothing to follow any more.
func (f *puller) idle() bool { return len(f.parts) == 0 }
