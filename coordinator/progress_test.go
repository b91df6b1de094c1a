package coordinator

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/protocol/record"
)

// slowly is a Store that takes a while for each batch it reads.
type slowly struct {
	*memory
	each time.Duration
}

func (s slowly) Load(ctx context.Context, shard, epoch int32) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for b, err := range s.memory.Load(ctx, shard, epoch) {
			<-time.After(s.each)
			if !yield(b, err) {
				return
			}
		}
	}
}

// TestLongLoadsAreTold: a load that takes long says how far it is, in the log and in metrics; one that fails is counted
// as what it is until it succeeds.
func TestLongLoadsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowly{newMemory(), 3 * time.Second}
		for range 6 {
			if _, _, err := s.Append(t.Context(), 0, 0, buildBatch([]Record{{Value: []byte("a")}, {Value: []byte("b")}}, 0, record.None, nil)); err != nil {
				t.Fatal(err)
			}
		}
		var said logLines
		reg := prometheus.NewRegistry()
		r := New(Options[*counter]{
			Name: "test", Store: s, New: func(int32) *counter { return &counter{} }, Now: time.Now,
			SweepEvery: func() time.Duration { return time.Hour }, CommitTimeout: func() time.Duration { return time.Second },
			MaxBatchBytes: func() int { return 1000 }, Codec: func() record.Codec { return record.None },
			Logger: slog.New(slog.NewTextHandler(&said, nil)), Metrics: NewMetrics("test", reg),
		})
		defer r.Close()
		s.broken = errors.New("no disk")
		r.Led(0, 1)
		synctest.Wait()
		r.Led(1, 1) // has nothing to read
		time.Sleep(10 * time.Second)
		eq(t, "while it loads", r.Census(), Census{Active: 1, Loading: 1, Replayed: 6})
		eq(t, "lines", strings.Count(said.String(), "coordinator is loading"), 1)
		if !strings.Contains(said.String(), "shard=0 epoch=1 records=4 since=6s") {
			t.Errorf("said %s", said.String())
		}
		time.Sleep(8*time.Second + 3*time.Second + time.Millisecond) // the rest, and the error
		eq(t, "when it has failed", r.Census(), Census{Active: 1, Failed: 1})
		eq(t, "gauge", gauge(t, reg, "num_partitions", "failed"), 1)
		time.Sleep(20 * time.Second)
		eq(t, "in the end", r.Census(), Census{Active: 2})
		eq(t, "gauge", gauge(t, reg, "num_partitions", "active"), 2)
		eq(t, "longest load, ms", gauge(t, reg, "partition_load_time_max", ""), 18000)
		eq(t, "mean load, ms", gauge(t, reg, "partition_load_time_avg", ""), 9000)
		eq(t, "records that are being loaded", gauge(t, reg, "partition_load_record_count", ""), 0)
		eq(t, "waiting", gauge(t, reg, "event_queue_size", ""), 0)
	})
}

// gauge is the value of a gauge, with a state where it has one.
func gauge(t *testing.T, reg *prometheus.Registry, name, state string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.Metric {
			if f.GetName() == "kafka_server_test_coordinator_metrics_"+name && (state == "" || m.Label[0].GetValue() == state) {
				return m.Gauge.GetValue()
			}
		}
	}
	t.Fatalf("no gauge %s", name)
	return 0
}
