package api

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ottla/broker/metadata"
	"ottla/broker/replica"
	"ottla/coordinator/group"
	"ottla/coordinator/txn"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

// faults are what goes wrong next with what coordinators write; nil: nothing does.
type faults struct {
	mu      sync.Mutex
	refuse  int // guarded by mu: so many appends have no effect
	lose    int // guarded by mu: of so many it is not learnt that they have, and the log is read again
	partial int // guarded by mu: so often only the first partition gets its marker
}

func (f *faults) append() (refused, lost bool) {
	if f == nil {
		return false, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.refuse > 0:
		f.refuse--
		return true, false
	case f.lose > 0:
		f.lose--
		return false, true
	}
	return false, false
}

func (f *faults) marked(n int) int {
	if f == nil {
		return n
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.partial > 0 && n > 0 {
		f.partial--
		return 1
	}
	return n
}

// elect makes this broker the leader of an internal topic's partition anew, at the next epoch: its coordinator is lost
// in the middle of whatever it does, and loads what is in the log.
func (h *storageHouse) elect(topic string, n, epoch int32) {
	h.t.Helper()
	for k, err := range h.Replicas.Apply([]replica.State{{Topic: topic, ID: h.name[topic], Partition: n, Leader: 1, LeaderEpoch: epoch,
		PartitionEpoch: epoch, ISR: []int32{1}, Replicas: []int32{1}}}) {
		h.t.Fatalf("%v: %v", k, err)
	}
	if topic == group.Topic {
		h.Groups.Lost(n)
		h.Groups.Led(n, epoch)
	} else {
		h.Txns.Lost(n)
		h.Txns.Led(n, epoch)
	}
}

// try asks again while the answer is one that clients ask again after, for a while.
func try(do func() int16) (c int16) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 200 {
		switch c = do(); c {
		case kerr.CoordinatorLoadInProgress.Code, kerr.ConcurrentTransactions.Code, kerr.NotEnoughReplicas.Code,
			kerr.NotCoordinator.Code, kerr.CoordinatorNotAvailable.Code:
			<-tick.C
		default:
			return c
		}
	}
	return c
}

// TestTransactionsThroughRestarts: producers of both kinds, two of them with one transactional id, write to partitions
// and commit offsets, while coordinators of transactions and groups are lost between any two records and any two
// markers, can't write, or don't learn that they have. Whoever reads committed records sees a transaction whole or not
// at all, once, as its end was answered, and what he has seen stays as it is; in the end nothing is open.
func TestTransactionsThroughRestarts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newTxnModel(t, rt)
		defer m.close()
		for range rapid.IntRange(10, 60).Draw(rt, "steps") {
			m.step()
		}
		m.settle()
	})
}

type txnModel struct {
	*storageHouse
	rt      *rapid.T
	clients []*modelProducer
	epochs  map[string]int32
	number  int
	wrote   map[int][]string // acknowledged records of a transaction, as partition/value
	told    map[int]bool     // whose end was answered: committed or not
	seen    map[int32][]string
	offsets map[int64]int // of transaction
}

type modelProducer struct {
	*producer
	ready  bool
	number int // of its transaction; 0: none
	added  map[int32]bool
}

const modelParts = 3

func newTxnModel(t *testing.T, rt *rapid.T) *txnModel {
	h := newStorageHouse(t)
	h.faults = &faults{}
	h.topic("t", modelParts)
	m := &txnModel{storageHouse: h, rt: rt, epochs: map[string]int32{}, wrote: map[int][]string{}, told: map[int]bool{},
		seen: map[int32][]string{}, offsets: map[int64]int{}}
	for i, id := range []string{"a", "a", "b"} {
		p := h.transactional(id, rapid.Bool().Draw(rt, fmt.Sprint("epoch rises ", i)))
		m.clients = append(m.clients, &modelProducer{producer: p})
	}
	return m
}

// close ends what would otherwise last until the end of the test.
func (m *txnModel) close() {
	m.Txns.Close()
	m.Groups.Close()
	m.Replicas.Close()
	m.Meta.Store(&metadata.Picture{})
}

func (m *txnModel) step() {
	p := m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(m.rt, "client")]
	switch rapid.SampledFrom([]string{"write", "write", "write", "offset", "end", "end", "init", "txn moves", "group moves", "refuse", "lose", "partial"}).Draw(m.rt, "what") {
	case "write":
		m.write(p, int32(rapid.IntRange(0, modelParts-1).Draw(m.rt, "partition")))
	case "offset":
		m.offset(p)
	case "end":
		m.end(p, rapid.Bool().Draw(m.rt, "commit"))
	case "init":
		m.init(p)
	case "txn moves":
		m.move(txn.Topic)
	case "group moves":
		m.move(group.Topic)
	case "refuse":
		m.fault(func(f *faults) { f.refuse = 2 })
	case "lose":
		m.fault(func(f *faults) { f.lose = 1 })
	case "partial":
		m.fault(func(f *faults) { f.partial = 3 })
	}
	m.look()
}

func (m *txnModel) fault(set func(*faults)) {
	m.faults.mu.Lock()
	defer m.faults.mu.Unlock()
	set(m.faults)
}

func (m *txnModel) move(topic string) {
	n := int32(rapid.IntRange(0, 1).Draw(m.rt, "shard"))
	at := fmt.Sprint(topic, n)
	m.epochs[at]++
	m.elect(topic, n, m.epochs[at])
}

func (m *txnModel) init(p *modelProducer) bool {
	p.ready, p.number, p.added = try(func() int16 { return p.init(5) }) == 0, 0, map[int32]bool{}
	return p.ready
}

// begin has a transaction at hand.
func (m *txnModel) begin(p *modelProducer) bool {
	if !p.ready && !m.init(p) {
		return false
	}
	if p.number == 0 {
		m.number++
		p.number, p.added = m.number, map[int32]bool{}
	}
	return true
}

// drop: the client was told something that it can't go on after.
func (p *modelProducer) drop() { p.ready, p.number = false, 0 }

func (m *txnModel) write(p *modelProducer, n int32) {
	if !m.begin(p) {
		return
	}
	if !p.rises && !p.added[n] {
		if try(func() int16 { return p.add(3, "t", n)[0] }) != 0 {
			p.drop()
			return
		}
		p.added[n] = true
	}
	value := fmt.Sprintf("%d.%d", p.number, len(m.wrote[p.number]))
	if try(func() int16 { return p.send(p.produceVersion(), "t", n, value) }) != 0 {
		p.drop()
		return
	}
	m.wrote[p.number] = append(m.wrote[p.number], fmt.Sprint(n, "/", value))
}

func (m *txnModel) offset(p *modelProducer) {
	if !p.rises || !m.begin(p) { // an older one would add the group first, by another request
		return
	}
	at := int64(len(m.offsets) + 1)
	m.offsets[at] = p.number
	if try(func() int16 { return p.commitOffset(5, "g", at) }) != 0 {
		p.drop()
	}
}

func (m *txnModel) end(p *modelProducer, commit bool) {
	if !p.ready || p.number == 0 {
		return
	}
	version := int16(3)
	if p.rises {
		version = 5
	}
	if try(func() int16 { return p.end(version, commit) }) != 0 {
		p.drop()
		return
	}
	if len(m.wrote[p.number]) > 0 {
		m.told[p.number] = commit
	}
	p.number = 0
}

// look: what was seen of a partition stays, and no transaction is seen whose end was answered otherwise.
func (m *txnModel) look() {
	for n := range int32(modelParts) {
		now := m.committed("t", n)
		before := m.seen[n]
		if len(now) < len(before) || !slices.Equal(now[:len(before)], before) {
			m.rt.Fatalf("partition %d had %v committed, now %v", n, before, now)
		}
		m.seen[n] = now
	}
}

func numberOf(value string) int {
	s, _, _ := strings.Cut(value, ".")
	n, _ := strconv.Atoi(s)
	return n
}

// settle ends what is open and looks at everything.
func (m *txnModel) settle() {
	m.fault(func(f *faults) { f.refuse, f.lose, f.partial = 0, 0, 0 })
	for _, p := range m.clients {
		for end := time.Now().Add(20 * time.Second); !m.init(p); {
			if time.Now().After(end) {
				m.rt.Fatalf("%s can't be used any more: %v", p.id, kerr.ErrorForCode(p.init(5)))
			}
		}
		p.settled()
	}
	m.look()
	count := map[string]int{}
	committed := map[int]bool{}
	for n := range int32(modelParts) {
		l := m.Logs.Log("t", n)
		if l.StableOffset() != l.End() {
			m.rt.Fatalf("partition %d: the last stable offset is %d, the end %d", n, l.StableOffset(), l.End())
		}
		for _, v := range m.seen[n] {
			count[fmt.Sprint(n, "/", v)]++
			committed[numberOf(v)] = true
		}
	}
	for number, all := range m.wrote {
		for _, r := range all {
			want := 0
			if committed[number] {
				want = 1
			}
			if count[r] != want {
				m.rt.Fatalf("transaction %d: %s is seen %d times, others of it: %v", number, r, count[r], committed[number])
			}
		}
		if told, ok := m.told[number]; ok && told != committed[number] {
			m.rt.Fatalf("transaction %d: its end was answered with committed %v, is %v", number, told, committed[number])
		}
	}
	for tick := time.Tick(time.Millisecond); len(m.Groups.Unloaded(-1)) > 0; {
		<-tick
	}
	var at int64
	ask := func() (c int16) { at, c = m.storageHouse.offset("g", true); return c }
	for end := time.Now().Add(20 * time.Second); try(ask) != 0; {
		if time.Now().After(end) {
			m.rt.Fatalf("offset: %v", kerr.ErrorForCode(ask()))
		}
	}
	if number, ok := m.offsets[at]; at >= 0 && (!ok || len(m.wrote[number]) > 0 && !committed[number]) {
		m.rt.Fatalf("the group is at %d, of transaction %d, which was not committed", at, number)
	}
}
