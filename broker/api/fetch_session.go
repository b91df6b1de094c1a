package api

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"ottla/broker/metadata"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Session epochs with a meaning of their own (KIP-227).
const (
	initialFetchEpoch = 0  // a full fetch that asks for a session
	finalFetchEpoch   = -1 // a full fetch without one
)

// evictAfter is how long a session is safe from larger ones, and how long an unused one stays
// when others want its place (FetchSessionCacheShard's evictionMs).
const evictAfter = 2 * time.Minute

// maxSessionPartitions bounds what one client can make the cache remember. A fetch of more
// goes without a session.
const maxSessionPartitions = 100_000

// FetchSessions remembers what consumers and followers fetch, so that their requests need to
// name only what changed (KIP-227, Kafka's FetchSessionCache). Its rules take the time as an
// argument.
//
// Locks, outermost first: FetchSessions.mu, fetchSession.mu.
type FetchSessions struct {
	slots int

	mu         sync.Mutex
	byID       map[int32]*fetchSession // guarded by mu
	old, young *fetchSession           // guarded by mu: ends of the list by last use
	partitions int                     // guarded by mu

	evictions atomic.Int64
}

// fetchSession is one client's list of partitions, in the order in which they are read.
type fetchSession struct {
	id       int32
	follower bool // sessions of followers are worth more than those of consumers
	byTopic  bool // partitions are named by topic id (Fetch v13 and above)
	created  time.Time

	// Guarded by FetchSessions.mu:
	used         time.Time
	older, newer *fetchSession
	size         int  // partitions, as last counted
	forFollowers bool // a follower's session may take its place
	forAll       bool // any larger session may

	mu          sync.Mutex
	epoch       int32                     // guarded by mu: of the next request
	parts       map[fetchKey]*sessionPart // guarded by mu
	first, last *sessionPart              // guarded by mu
}

// fetchKey names a partition in a fetch: by topic name, or by id.
type fetchKey struct {
	topic     string
	id        metadata.ID
	partition int32
}

// fetchPart is what is asked of one partition.
type fetchPart struct {
	fetchKey
	offset    int64
	logStart  int64
	maxBytes  int32
	epoch     int32
	lastEpoch int32
}

// sessionPart is a partition of a session: what is asked, and what was answered last.
type sessionPart struct {
	fetchPart
	hw, start  int64
	next, prev *sessionPart
}

// fetching is one request on its way: what it reads, and the session that its answer belongs to.
type fetching struct {
	code    int16         // the session cannot be used: nothing is read
	id      int32         // of the session, for the answer
	parts   []fetchPart   // in the order of reading
	session *fetchSession // of an incremental fetch
	epoch   int32         // the session's, while the answer is due
	create  bool          // a full fetch that gets a session
	byTopic bool
}

// NewFetchSessions returns a cache of as many sessions
// (max.incremental.fetch.session.cache.slots; 0: no sessions).
func NewFetchSessions(slots int, reg prometheus.Registerer) *FetchSessions {
	c := &FetchSessions{slots: slots, byID: map[int32]*fetchSession{}}
	c.register(reg)
	return c
}

// begin finds out what a request reads (Kafka's FetchManager.newContext).
func (c *FetchSessions) begin(req *kmsg.FetchRequest, now time.Time) fetching {
	if req.SessionEpoch == initialFetchEpoch || req.SessionEpoch == finalFetchEpoch {
		if req.SessionID != 0 {
			c.mu.Lock()
			if s := c.byID[req.SessionID]; s != nil {
				c.removeLocked(s)
			}
			c.mu.Unlock()
		}
		return fetching{parts: requested(req), create: req.SessionEpoch == initialFetchEpoch, byTopic: req.Version >= 13}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[req.SessionID]
	if s == nil {
		return fetching{code: kerr.FetchSessionIDNotFound.Code}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.epoch != req.SessionEpoch:
		return fetching{code: kerr.InvalidFetchSessionEpoch.Code}
	case s.byTopic != (req.Version >= 13):
		return fetching{code: kerr.FetchSessionTopicIDError.Code}
	}
	asked := requested(req)
	for i := range asked {
		s.put(asked[i])
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, n := range t.Partitions {
			s.forget(fetchKey{t.Topic, t.TopicID, n})
		}
	}
	switch {
	case len(s.parts) == 0:
		c.removeLocked(s)
		return fetching{parts: asked}
	case len(s.parts) > maxSessionPartitions:
		c.removeLocked(s)
		return fetching{code: kerr.FetchSessionIDNotFound.Code}
	}
	c.touchLocked(s, now)
	s.epoch = nextFetchEpoch(s.epoch)
	f := fetching{id: s.id, session: s, epoch: s.epoch, parts: make([]fetchPart, 0, len(s.parts))}
	for p := s.first; p != nil; p = p.next {
		f.parts = append(f.parts, p.fetchPart)
	}
	return f
}

func nextFetchEpoch(e int32) int32 {
	if e == math.MaxInt32 {
		return 1
	}
	return e + 1
}

// requested lists what a request names, in its order.
func requested(req *kmsg.FetchRequest) []fetchPart {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	parts := make([]fetchPart, 0, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			parts = append(parts, fetchPart{
				fetchKey: fetchKey{t.Topic, t.TopicID, p.Partition},
				offset:   p.FetchOffset, logStart: p.LogStartOffset, maxBytes: p.PartitionMaxBytes,
				epoch: p.CurrentLeaderEpoch, lastEpoch: p.LastFetchedEpoch,
			})
		}
	}
	return parts
}

// fetched is what a partition is answered, as far as sessions go by it.
type fetched struct {
	code      int16
	records   bool
	diverged  bool
	hw, start int64
}

// fresh says whether an incremental answer has to name the partition, and notes what it says
// (CachedPartition.maybeUpdateResponseData). The caller holds the session's mu.
func (s *fetchSession) fresh(k fetchKey, f fetched) bool {
	p := s.parts[k]
	if p == nil {
		return true
	}
	must := f.records || f.diverged
	if p.hw != f.hw {
		p.hw, must = f.hw, true
	}
	if p.start != f.start {
		p.start, must = f.start, true
	}
	if f.code != 0 {
		p.hw, must = -1, true // once the error is over the partition is told of again
	}
	if f.records { // others come first the next time
		s.unlink(p)
		s.link(p)
	}
	return must
}

// create makes a session of what a full fetch read, if there is room; 0 if there is none.
// answers belong to f.parts one by one.
func (c *FetchSessions) create(f *fetching, answers []fetched, follower bool, now time.Time) int32 {
	if len(f.parts) > maxSessionPartitions {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byID) >= c.slots && !c.evictLocked(follower, len(f.parts), now) {
		return 0
	}
	s := &fetchSession{id: c.newIDLocked(), follower: follower, byTopic: f.byTopic, created: now, epoch: 1, size: -1,
		parts: make(map[fetchKey]*sessionPart, len(f.parts))}
	for i := range f.parts {
		p := s.put(f.parts[i])
		p.hw, p.start = answers[i].hw, answers[i].start
	}
	c.byID[s.id] = s
	c.touchLocked(s, now)
	return s.id
}

func (c *FetchSessions) newIDLocked() int32 {
	for {
		id := 1 + rand.Int32N(math.MaxInt32-1)
		if c.byID[id] == nil {
			return id
		}
	}
}

// evictLocked makes room for a session of a size: by one that was not used for long, else by
// the smallest that is worth less. A follower's is worth more than any consumer's; among those
// alike the larger is worth more, and a young one is left alone.
func (c *FetchSessions) evictLocked(follower bool, size int, now time.Time) bool {
	if c.old == nil {
		return false
	}
	if now.Sub(c.old.used) > evictAfter {
		c.removeLocked(c.old)
		c.evictions.Add(1)
		return true
	}
	var least *fetchSession
	for s := c.old; s != nil; s = s.newer {
		if !s.forAll && !(follower && s.forFollowers) {
			continue
		}
		if least == nil || worth(s.follower, s.size, s.id, least.follower, least.size, least.id) {
			least = s
		}
	}
	if least == nil || worth(follower, size, 0, least.follower, least.size, least.id) {
		return false
	}
	c.removeLocked(least)
	c.evictions.Add(1)
	return true
}

// worth says whether session a is worth less than b (EvictableKey.compareTo).
func worth(aFollower bool, aSize int, aID int32, bFollower bool, bSize int, bID int32) (less bool) {
	switch {
	case aFollower != bFollower:
		return !aFollower
	case aSize != bSize:
		return aSize < bSize
	}
	return aID < bID
}

// touchLocked notes a use: the session becomes the youngest, and its size is counted.
func (c *FetchSessions) touchLocked(s *fetchSession, now time.Time) {
	c.partitions += len(s.parts) - max(s.size, 0)
	if s.size >= 0 {
		c.takeOutLocked(s)
	}
	s.size, s.used = len(s.parts), now
	s.older, s.newer = c.young, nil
	if c.young != nil {
		c.young.newer = s
	} else {
		c.old = s
	}
	c.young = s
	aged := now.Sub(s.created) > evictAfter
	s.forFollowers, s.forAll = !s.follower || aged, aged
}

func (c *FetchSessions) takeOutLocked(s *fetchSession) {
	if s.older != nil {
		s.older.newer = s.newer
	} else {
		c.old = s.newer
	}
	if s.newer != nil {
		s.newer.older = s.older
	} else {
		c.young = s.older
	}
	s.older, s.newer = nil, nil
}

func (c *FetchSessions) removeLocked(s *fetchSession) {
	c.takeOutLocked(s)
	delete(c.byID, s.id)
	c.partitions -= s.size
}

// put adds a partition at the end, or updates what is asked of one that is there. Like link,
// unlink and forget it is called with the session's mu held.
func (s *fetchSession) put(f fetchPart) *sessionPart {
	if p := s.parts[f.fetchKey]; p != nil {
		p.fetchPart = f
		return p
	}
	p := &sessionPart{fetchPart: f, hw: -1, start: -1}
	s.parts[f.fetchKey] = p
	s.link(p)
	return p
}

func (s *fetchSession) forget(k fetchKey) {
	if p := s.parts[k]; p != nil {
		s.unlink(p)
		delete(s.parts, k)
	}
}

func (s *fetchSession) link(p *sessionPart) {
	p.next, p.prev = nil, s.last
	if s.last != nil {
		s.last.next = p
	} else {
		s.first = p
	}
	s.last = p
}

func (s *fetchSession) unlink(p *sessionPart) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		s.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		s.last = p.prev
	}
}

// register shows the cache under the names of Kafka's FetchSessionCache.
func (c *FetchSessions) register(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	locked := func(f func() int) func() float64 {
		return func() float64 {
			c.mu.Lock()
			defer c.mu.Unlock()
			return float64(f())
		}
	}
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kafka_server_fetchsessioncache_numincrementalfetchsessions", Help: "Fetch sessions."}, locked(func() int { return len(c.byID) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", Help: "Partitions of fetch sessions."}, locked(func() int { return c.partitions })),
	)
	for _, suffix := range []string{"_total", "persec_total"} {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "kafka_server_fetchsessioncache_incrementalfetchsessionevictions" + suffix, Help: "Fetch sessions that gave their place to others."},
			func() float64 { return float64(c.evictions.Load()) }))
	}
}
