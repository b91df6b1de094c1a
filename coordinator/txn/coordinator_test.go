package txn

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"ottla/coordinator"
	"ottla/protocol/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is a Coordinator whose log is in memory, and whose markers a test may refuse.
type house struct {
	*Coordinator
	t *testing.T

	mu      sync.Mutex
	logs    map[int32][]record.Batch
	refuse  error // what the log says
	markers []Marker
	fail    func(Marker, Partition) error // nil: all are written
	ids     int64
	made    map[string]string
	reg     *prometheus.Registry
}

// gauge is a gauge of the writing of markers.
func (h *house) gauge(name string) float64 {
	h.t.Helper()
	all, err := h.reg.Gather()
	want(h.t, "metrics", err, nil)
	for _, f := range all {
		if f.GetName() == "kafka_coordinator_transaction_transactionmarkerchannelmanager_"+name {
			return f.Metric[0].Gauge.GetValue()
		}
	}
	h.t.Fatalf("no gauge %s", name)
	return 0
}

func newHouse(t *testing.T) *house {
	h := &house{t: t, logs: map[int32][]record.Batch{}, ids: 1, reg: prometheus.NewRegistry()}
	o := Defaults()
	o.Partitions = 3
	h.Coordinator = New(Config{
		Registerer: h.reg, Store: h, Topics: h, Markers: h, Options: func() *Options { return o }, Now: time.Now,
		Partitions: func() int32 {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.made == nil {
				return 0
			}
			return 3
		},
		ProducerIDs: func(context.Context) (int64, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.ids++
			return h.ids - 1, nil
		},
	})
	for p := range int32(3) {
		h.Led(p, 4)
	}
	synctest.Wait()
	return h
}

func (h *house) EnsureTopic(_ context.Context, _ string, _ int32, _ int16, configs map[string]string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.made != nil {
		h.t.Error("the topic is made twice")
	}
	h.made = configs
	return nil
}

func (h *house) Append(_ context.Context, shard, _ int32, data []byte) (int64, func(context.Context) error, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		return 0, nil, h.refuse
	}
	b := record.Batch(data)
	if old := h.logs[shard]; len(old) > 0 {
		b.SetBaseOffset(old[len(old)-1].NextOffset())
	}
	h.logs[shard] = append(h.logs[shard], b)
	return b.BaseOffset(), nil, nil
}

func (h *house) Load(_ context.Context, shard, _ int32) iter.Seq2[[]byte, error] {
	h.mu.Lock()
	all := slices.Clone(h.logs[shard])
	h.mu.Unlock()
	return func(yield func([]byte, error) bool) {
		for _, b := range all {
			if !yield(b, nil) {
				return
			}
		}
	}
}

func (h *house) WriteMarker(_ context.Context, m Marker) []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	m.Partitions = slices.Clone(m.Partitions)
	h.markers = append(h.markers, m)
	errs := make([]error, len(m.Partitions))
	for i, p := range m.Partitions {
		if h.fail != nil {
			errs[i] = h.fail(m, p)
		}
	}
	return errs
}

func (h *house) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// open begins a transaction of both partitions.
func (h *house) open(id string) Producer {
	h.t.Helper()
	p, err := h.Init(h.t.Context(), InitRequest{ID: id, Timeout: 60000})
	want(h.t, "init", err, nil)
	want(h.t, "add", h.Add(h.t.Context(), AddRequest{ID: id, Producer: p.ID, Epoch: p.Epoch, Partitions: []Partition{t0, t1}, Version: 2}), nil)
	return p
}

func (h *house) stateOf(id string) State {
	h.t.Helper()
	d, err := h.Describe(h.t.Context(), id)
	want(h.t, "describe", err, nil)
	return d.State
}

func TestMarkersAreWrittenUntilAllAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		defer h.Close()
		p := h.open("id")
		h.fail = func(_ Marker, p Partition) error {
			if p == t1 {
				return errors.New("not the leader")
			}
			return nil
		}
		is, err := h.End(t.Context(), EndRequest{ID: "id", Producer: p.ID, Epoch: p.Epoch, Commit: true, Version: 2})
		want(t, "end", err, nil)
		want(t, "epoch", is.Epoch, p.Epoch+1)
		time.Sleep(time.Minute)
		want(t, "state", h.stateOf("id"), PrepareCommit)
		want(t, "transactions that lack markers", h.gauge("pending_transactions"), 1)
		want(t, "markers without a leader", h.gauge("unknowndestinationqueuesize"), 1)
		h.set(func() {
			want(t, "first to all", len(h.markers[0].Partitions), 2)
			want(t, "then to what is left", fmt.Sprint(h.markers[1].Partitions), "[{t 1}]")
			want(t, "coordinator epoch", h.markers[0].CoordinatorEpoch, 4)
			if n := len(h.markers); n < 10 || n > 100 {
				t.Errorf("%d attempts in a minute", n)
			}
			h.fail, h.refuse = nil, coordinator.ErrNotAvailable
		})
		time.Sleep(10 * time.Second)
		want(t, "its end can't be noted", h.stateOf("id"), PrepareCommit)
		want(t, "markers without a leader", h.gauge("unknowndestinationqueuesize"), 0)
		want(t, "ends to be noted", h.gauge("logappendretryqueuesize"), 1)
		h.set(func() { h.refuse = nil })
		time.Sleep(2 * time.Second)
		want(t, "state", h.stateOf("id"), CompleteCommit)
		want(t, "none is written any more", h.gauge("pending_transactions")+h.gauge("logappendretryqueuesize"), 0)
	})
}

func TestMarkersThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		defer h.Close()
		h.fail = func(_ Marker, p Partition) error {
			if p == t1 {
				return fmt.Errorf("%w: so", ErrMarkerRefused)
			}
			return nil
		}
		p := h.open("id")
		h.End(t.Context(), EndRequest{ID: "id", Producer: p.ID, Epoch: p.Epoch, Version: 2})
		synctest.Wait()
		want(t, "a newer producer has the partition", h.stateOf("id"), CompleteAbort)
		h.set(func() { h.fail = func(Marker, Partition) error { return ErrCoordinatorFenced } })
		p = h.open("other")
		h.End(t.Context(), EndRequest{ID: "other", Producer: p.ID, Epoch: p.Epoch, Version: 2})
		time.Sleep(time.Hour)
		want(t, "a newer coordinator has the id", h.stateOf("other"), PrepareAbort)
		n := 0
		h.set(func() { n = len(h.markers) })
		want(t, "one attempt each", n, 2)
	})
}

// A shard that is won again has the markers written again, with its new epoch, and only once the
// writer of before is quiet.
func TestMarkersAfterALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		defer h.Close()
		p := h.open("id")
		h.fail = func(Marker, Partition) error { return errors.New("later") }
		_, err := h.End(t.Context(), EndRequest{ID: "id", Producer: p.ID, Epoch: p.Epoch, Commit: true, Version: 2})
		want(t, "end", err, nil)
		synctest.Wait()
		shard := h.PartitionFor("id")
		h.Lost(shard)
		_, err = h.Describe(t.Context(), "id")
		want(t, "lost", err, coordinator.ErrNotCoordinator)
		h.set(func() { h.fail, h.markers = nil, nil })
		h.Led(shard, 6)
		synctest.Wait()
		want(t, "state", h.stateOf("id"), CompleteCommit)
		h.set(func() {
			for _, m := range h.markers {
				want(t, "epoch", m.CoordinatorEpoch, 6)
			}
			want(t, "markers", len(h.markers), 1)
		})
	})
}

func TestTimeoutWakesTheShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		defer h.Close()
		h.open("id")
		time.Sleep(59 * time.Second)
		want(t, "state", h.stateOf("id"), Ongoing)
		time.Sleep(2 * time.Second)
		want(t, "state", h.stateOf("id"), CompleteAbort)
		want(t, "timeouts", h.stats.Timeouts.Load(), 1)
		want(t, "aborts", h.stats.Aborts.Load(), 1)
	})
}

func TestTopicIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		defer h.Close()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := h.EnsureTopicOnce(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		want(t, "compaction", h.made["cleanup.policy"], "compact")
		want(t, "in sync", h.made["min.insync.replicas"], "2")
	})
}

// EnsureTopicOnce is the coordinator's, which the house's own hides.
func (h *house) EnsureTopicOnce(ctx context.Context) error { return h.Coordinator.EnsureTopic(ctx) }

func TestIDsFromEveryShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		defer h.Close()
		ids := map[int64]bool{}
		for i := range 12 {
			p, err := h.Init(t.Context(), InitRequest{ID: fmt.Sprint("id", i), Timeout: 1000})
			want(t, "init", err, nil)
			ids[p.ID] = true
		}
		want(t, "producer ids", len(ids), 12)
		all, unknown, err := h.List(t.Context(), Filter{Longer: -1, States: []string{"Empty", "x"}})
		want(t, "list", err, nil)
		want(t, "listed", len(all), 12)
		want(t, "unknown states", fmt.Sprint(unknown), "[x]")
		_, err = h.Init(t.Context(), InitRequest{ID: "", Timeout: 1})
		want(t, "no id", err, ErrInvalidID)
		_, err = h.Verify(t.Context(), AddRequest{})
		want(t, "no id", err, ErrInvalidID)
		errs, err := h.Verify(t.Context(), AddRequest{ID: "id0", Producer: 1, Partitions: []Partition{t0}})
		want(t, "verify", err, nil)
		want(t, "not in it", errs[0], ErrNotInTxn)
	})
}
