// Package metadata is the immutable picture of the cluster that every request reads: who the
// brokers are, which topics there are, who leads what. A new picture replaces the old one by
// an atomic pointer; nobody changes one that was stored.
package metadata

import (
	"encoding/base64"
	"sync"
	"sync/atomic"
)

// ID is a topic id, a UUID; zero where a topic has none.
type ID [16]byte

// String gives Kafka's form: 22 characters of URL-safe base64 (org.apache.kafka.common.Uuid).
func (id ID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseID reads what String writes.
func ParseID(s string) (id ID, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return ID{}, false
	}
	return ID(b), true
}

// Endpoint is one listener of a broker as it is told to clients. An empty host means: the
// address by which the client reached the broker (ottla without advertised.listeners).
type Endpoint struct {
	Listener string
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
	Host     string
	Port     int32
}

// Broker is one registered broker.
type Broker struct {
	ID        int32
	Epoch     int64 // czxid of its node in the registry
	Rack      string
	Endpoints []Endpoint
}

// Endpoint returns the broker's endpoint on a listener.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if e.Listener == listener {
			return e, true
		}
	}
	return Endpoint{}, false
}

// Partition is one partition's state. Leader is -1 where there is none.
type Partition struct {
	Leader      int32
	LeaderEpoch int32
	Replicas    []int32 // in assignment order, the preferred leader first
	ISR         []int32
	Adding      []int32
	Removing    []int32
	Offline     []int32 // replicas whose broker or log directory is not there
}

// Topic is one topic; Partitions are indexed by partition number.
type Topic struct {
	Name       string
	ID         ID
	Partitions []Partition
}

// Picture is the cluster as this broker knows it.
type Picture struct {
	ClusterID  string
	Controller int32             // -1 where there is none
	Brokers    []Broker          // alive, ascending by id
	Topics     map[string]*Topic // by name
	ByID       map[ID]*Topic
	Serial     int64 // rises with each Store, which sets it
}

// Broker returns a live broker by its id.
func (p *Picture) Broker(id int32) *Broker {
	for i := range p.Brokers {
		if p.Brokers[i].ID == id {
			return &p.Brokers[i]
		}
	}
	return nil
}

// Partition returns a partition's state, nil where topic or number do not exist.
func (p *Picture) Partition(topic string, n int32) *Partition {
	t := p.Topics[topic]
	if t == nil || n < 0 || int(n) >= len(t.Partitions) {
		return nil
	}
	return &t.Partitions[n]
}

// Holder holds the current picture.
type Holder struct {
	p       atomic.Pointer[Picture]
	mu      sync.Mutex // held by Store
	changed chan struct{}
}

// NewHolder holds an empty picture.
func NewHolder() *Holder {
	h := &Holder{changed: make(chan struct{})}
	h.p.Store(&Picture{Controller: -1, Topics: map[string]*Topic{}, ByID: map[ID]*Topic{}})
	return h
}

// Load returns the current picture; it must not be changed.
func (h *Holder) Load() *Picture { return h.p.Load() }

// Store replaces the picture and wakes those who wait for a change.
func (h *Holder) Store(p *Picture) {
	h.mu.Lock()
	p.Serial = h.p.Load().Serial + 1
	h.p.Store(p)
	close(h.changed)
	h.changed = make(chan struct{})
	h.mu.Unlock()
}

// Next returns the current picture and a channel that is closed when another replaces it.
func (h *Holder) Next() (*Picture, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.p.Load(), h.changed
}
