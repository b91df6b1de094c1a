package replica

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// scrape gives each metric's value by its name and its labels' values.
func scrape(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			if f.GetType() == dto.MetricType_COUNTER {
				all[name] = m.Counter.GetValue()
			} else {
				all[name] = m.Gauge.GetValue()
			}
		}
	}
	return all
}

func TestMetrics(t *testing.T) {
	h := newHouse(t)
	reg := prometheus.NewRegistry()
	o := h.opts
	o.Registerer = reg
	h.Manager = New(o)
	p := h.alone(0)
	h.lead(1, 0, []int32{1}, 1, 2)
	done, _ := h.append(p, 1, "a", "b")
	p.Produced(done.Count, 100, false)
	p.ProduceFailed(50, true, false)
	r := []Read{reading(0, 0)}
	if err := h.Fetch(t.Context(), consumer(0), r); err != nil {
		t.Fatal(err)
	}
	r[0].Sent(70, false)
	Release(r)
	want := map[string]float64{
		"kafka_server_brokertopicmetrics_messagesin_total t":           2,
		"kafka_server_brokertopicmetrics_bytesin_total t":              100,
		"kafka_server_brokertopicmetrics_bytesinpersec_total t":        100,
		"kafka_server_brokertopicmetrics_bytesin_total ":               100,
		"kafka_server_brokertopicmetrics_bytesout_total t":             70,
		"kafka_server_brokertopicmetrics_bytesrejected_total t":        50,
		"kafka_server_brokertopicmetrics_totalproducerequests_total t": 2,
		"kafka_server_brokertopicmetrics_totalfetchrequests_total t":   1,
		"kafka_server_replicamanager_partitioncount":                   2,
		"kafka_server_replicamanager_leadercount":                      2,
		"kafka_server_replicamanager_underreplicatedpartitions":        1,
		"kafka_cluster_partition_underreplicated 1 t":                  1,
		"kafka_cluster_partition_insyncreplicascount 0 t":              1,
	}
	got := scrape(t, reg)
	for name, v := range want {
		if had, ok := got[name]; !ok || had != v {
			t.Errorf("%s: %v (there: %v), want %v", name, had, ok, v)
		}
	}
	if err := h.Stop("t", 0, false); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop("t", 1, false); err != nil {
		t.Fatal(err)
	}
	got = scrape(t, reg)
	if _, ok := got["kafka_server_brokertopicmetrics_bytesin_total t"]; ok || got["kafka_server_brokertopicmetrics_bytesin_total "] != 100 {
		t.Error("a topic that is gone is not left out, or is missing in the sum")
	}
	h.Manager.Close()
	if len(scrape(t, reg)) != 0 {
		t.Error("metrics outlive the manager")
	}
}
