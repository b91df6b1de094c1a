package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ottla/broker"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metricNames are those that dashboards for Kafka read and that mean something for one broker: the first names of
// Kafka's beans as the JMX exporter's example rules and Strimzi's dashboards write them, those of the Strimzi
// metrics reporter where they differ (a rate's name ends in persec_total), and those of danielqsj/kafka_exporter.
// compat/metrics.md has all with their meaning.
var metricNames = strings.Fields(`
	kafka_server_brokertopicmetrics_messagesin_total kafka_server_brokertopicmetrics_messagesinpersec_total
	kafka_server_brokertopicmetrics_bytesin_total kafka_server_brokertopicmetrics_bytesinpersec_total
	kafka_server_brokertopicmetrics_bytesout_total kafka_server_brokertopicmetrics_bytesoutpersec_total
	kafka_server_brokertopicmetrics_bytesrejected_total kafka_server_brokertopicmetrics_bytesrejectedpersec_total
	kafka_server_brokertopicmetrics_totalproducerequests_total kafka_server_brokertopicmetrics_totalproducerequestspersec_total
	kafka_server_brokertopicmetrics_totalfetchrequests_total kafka_server_brokertopicmetrics_totalfetchrequestspersec_total
	kafka_server_brokertopicmetrics_failedproducerequests_total kafka_server_brokertopicmetrics_failedproducerequestspersec_total
	kafka_server_brokertopicmetrics_failedfetchrequests_total kafka_server_brokertopicmetrics_failedfetchrequestspersec_total
	kafka_server_replicamanager_leadercount kafka_server_replicamanager_partitioncount
	kafka_server_replicamanager_underreplicatedpartitions kafka_server_replicamanager_offlinereplicacount
	kafka_server_replicamanager_isrshrinks_total kafka_server_replicamanager_isrshrinkspersec_total
	kafka_server_replicamanager_isrexpands_total kafka_server_replicamanager_isrexpandspersec_total
	kafka_cluster_partition_underminisr kafka_cluster_partition_atminisr kafka_cluster_partition_replicascount
	kafka_controller_kafkacontroller_activecontrollercount kafka_controller_kafkacontroller_offlinepartitionscount
	kafka_controller_kafkacontroller_preferredreplicaimbalancecount
	kafka_controller_kafkacontroller_globaltopiccount kafka_controller_kafkacontroller_globalpartitioncount
	kafka_controller_controllerstats_uncleanleaderelections_total kafka_controller_controllerstats_uncleanleaderelectionspersec_total
	kafka_log_log_size kafka_log_log_logstartoffset kafka_log_log_logendoffset
	kafka_network_requestmetrics_requests_total kafka_network_requestmetrics_requestspersec_total
	kafka_network_requestmetrics_errors_total kafka_network_requestmetrics_errorspersec_total
	kafka_network_requestmetrics_totaltimems kafka_network_requestmetrics_localtimems kafka_network_requestmetrics_remotetimems
	kafka_network_requestmetrics_requestbytes
	kafka_server_socket_server_metrics_connection_count
	kafka_server_fetchsessioncache_numincrementalfetchsessions kafka_server_fetchsessioncache_numincrementalfetchpartitionscached
	kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec_total
	kafka_coordinator_group_groupmetadatamanager_numgroups kafka_coordinator_group_groupmetadatamanager_numoffsets
	kafka_coordinator_group_groupmetadatamanager_numgroupsstable kafka_coordinator_group_groupmetadatamanager_numgroupsempty
	kafka_coordinator_group_groupmetadatamanager_numgroupsdead kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance
	kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance
	kafka_server_kafkaserver_brokerstate kafka_server_metadataloader_finalizedlevel
	kafka_brokers kafka_broker_info kafka_topic_partitions
	kafka_topic_partition_current_offset kafka_topic_partition_oldest_offset kafka_topic_partition_leader
	kafka_topic_partition_leader_is_preferred kafka_topic_partition_replicas kafka_topic_partition_in_sync_replica
	kafka_topic_partition_under_replicated_partition
	kafka_consumergroup_current_offset kafka_consumergroup_current_offset_sum kafka_consumergroup_lag
	kafka_consumergroup_lag_sum kafka_consumergroup_members
	process_cpu_seconds_total process_open_fds`)

// watched is a broker that serves HTTP.
type watched struct {
	*house
	http string // URL
}

// watch starts a broker with metrics; it stops with the test. before is called when its sockets are bound and
// before it is ready.
func watch(t *testing.T, before func(url string), settings ...string) *watched {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	all := map[string]string{"log.dirs": dir, "listeners": "PLAINTEXT://127.0.0.1:0"}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		all[name] = value
	}
	ready := make(chan broker.Ready, 1)
	b, err := broker.New(broker.Options{Settings: all, HTTP: "127.0.0.1:0", Version: "1.2.3", Ready: func(r broker.Ready) { ready <- r }})
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + b.HTTPAddr().String()
	if before != nil {
		before(url)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-ready
	addr := b.Addrs()[0].Addr.String()
	return &watched{&house{dialWire(t, addr), &embedded{addr: addr}, dir}, url}
}

// get returns status and body.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// scraped are metric families by name.
type scraped map[string]*dto.MetricFamily

func (w *watched) scrape(t *testing.T) scraped {
	t.Helper()
	status, body := get(t, w.http+"/metrics")
	equal(t, "status of /metrics", status, http.StatusOK)
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("%v in\n%s", err, body)
	}
	return families
}

// value is that of the metric with these labels, name=value; of a summary it is the number of samples. 0: there is none.
func (s scraped) value(name string, labels ...string) float64 {
	name, sum := strings.CutSuffix(name, " sum")
	for _, m := range s[name].GetMetric() {
		have := map[string]bool{}
		for _, l := range m.Label {
			have[l.GetName()+"="+l.GetValue()] = true
		}
		all := true
		for _, l := range labels {
			all = all && have[l]
		}
		switch {
		case !all:
		case m.Counter != nil:
			return m.Counter.GetValue()
		case m.Gauge != nil:
			return m.Gauge.GetValue()
		case m.Summary != nil && sum:
			return m.Summary.GetSampleSum()
		case m.Summary != nil:
			return float64(m.Summary.GetSampleCount())
		}
	}
	return 0
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := watch(t, nil, "offsets.topic.num.partitions=2", "group.initial.rebalance.delay.ms=0")
	equal(t, "create", w.create("m", 3, 1), 0)
	w.coordinated("g")
	before := w.scrape(t)

	// five messages in three requests, one of which is refused, and a produce to nowhere
	batches := [][]byte{newBatch(nil, values("1", "2")...), newBatch(nil, values("3", "4", "5")...)}
	var in int
	for _, b := range batches {
		w.store("m", b)
		in += len(b)
	}
	large := bytesOf(2 << 20)
	equal(t, "too large", w.produceTo("m", large).ErrorCode, 10)
	equal(t, "nowhere", w.produceTo("nowhere", batches[0]).ErrorCode, 3)
	// two fetches, one of them out of range, and one with a session
	equal(t, "fetched", len(w.fetchFrom("m", 11).RecordBatches), in)
	beyond := fetchRequest("m", 1)
	beyond.Topics[0].Partitions[0].FetchOffset = 100
	equal(t, "beyond", ask[*kmsg.FetchResponse](w.wire, beyond, 11).Topics[0].Partitions[0].ErrorCode, 1)
	session := fetchRequest("m", 3)
	session.SessionEpoch = 0
	if ask[*kmsg.FetchResponse](w.wire, session, 11).SessionID == 0 {
		t.Fatal("no session")
	}
	wrong := fetchRequest("m", 1)
	wrong.SessionID, wrong.SessionEpoch = 12345, 7
	equal(t, "no such session", ask[*kmsg.FetchResponse](w.wire, wrong, 11).ErrorCode, 70)
	// a group of one member, behind by three, and one without
	joined := w.join("g", 30000)
	equal(t, "join", joined.ErrorCode, 0)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = "g", joined.Generation, joined.MemberID
	equal(t, "sync", ask[*kmsg.SyncGroupResponse](w.wire, sync, 3).ErrorCode, 0)
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group, commit.Generation, commit.MemberID = "g", joined.Generation, joined.MemberID
	ct, cp := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	ct.Topic, cp.Offset = "m", 2
	ct.Partitions = append(ct.Partitions, cp)
	commit.Topics = append(commit.Topics, ct)
	equal(t, "commit", ask[*kmsg.OffsetCommitResponse](w.wire, commit, 7).Topics[0].Partitions[0].ErrorCode, 0)
	equal(t, "commit without members", w.commit("empty", "m", "", 1), 0)

	after := w.scrape(t)
	for _, name := range metricNames {
		if len(after[name].GetMetric()) == 0 {
			t.Errorf("%s is not there", name)
		}
	}
	const topics, reqs = "kafka_server_brokertopicmetrics_", "kafka_network_requestmetrics_"
	for _, c := range []struct {
		name   string
		labels string
		moved  float64
	}{
		{topics + "messagesin%s_total", "topic=m", 5},
		{topics + "messagesin%s_total", "topic=", 5},
		{topics + "bytesin%s_total", "topic=m", float64(in)},
		{topics + "bytesout%s_total", "topic=m", float64(2 * in)},
		{topics + "bytesrejected%s_total", "topic=m", float64(len(large))},
		{topics + "totalproducerequests%s_total", "topic=m", 3},
		{topics + "totalfetchrequests%s_total", "topic=m", 5}, // by partition
		{topics + "failedproducerequests%s_total", "topic=m", 0},
		{topics + "failedfetchrequests%s_total", "topic=m", 0},
		{reqs + "requests%s_total", "request=Produce version=9", 4},
		{reqs + "requests%s_total", "request=Fetch version=11", 4},
		{reqs + "errors%s_total", "request=Produce error=MESSAGE_TOO_LARGE", 1},
		{reqs + "errors%s_total", "request=Produce error=UNKNOWN_TOPIC_OR_PARTITION", 1},
		{reqs + "errors%s_total", "request=Fetch error=OFFSET_OUT_OF_RANGE", 1},
		{reqs + "errors%s_total", "request=Fetch error=FETCH_SESSION_ID_NOT_FOUND", 1},
	} {
		for _, form := range []string{"", "persec"} {
			name, labels := fmt.Sprintf(c.name, form), strings.Fields(c.labels)
			if got := after.value(name, labels...) - before.value(name, labels...); got != c.moved {
				t.Errorf("%s{%s} moved by %v, want %v", name, c.labels, got, c.moved)
			}
		}
	}
	for _, name := range []string{"totaltimems", "localtimems", "remotetimems", "requestbytes"} {
		equal(t, name+" of Produce", after.value(reqs+name, "request=Produce"), 4)
	}
	if size := after.value(reqs+"requestbytes sum", "request=Produce"); size < float64(in+len(large)) || size > float64(in+len(large)+1000) {
		t.Errorf("%v bytes of Produce", size)
	}
	for _, c := range []struct {
		name   string
		labels string
		want   float64
	}{
		{"kafka_log_log_logendoffset", "topic=m partition=0", 5},
		{"kafka_log_log_logstartoffset", "topic=m partition=0", 0},
		{"kafka_log_log_size", "topic=m partition=0", float64(in)},
		{"kafka_server_replicamanager_partitioncount", "", 5},
		{"kafka_server_replicamanager_leadercount", "", 5},
		{"kafka_server_replicamanager_underreplicatedpartitions", "", 0},
		{"kafka_cluster_partition_replicascount", "topic=m partition=1", 1},
		{"kafka_controller_kafkacontroller_activecontrollercount", "", 1},
		{"kafka_controller_kafkacontroller_globaltopiccount", "", 2},
		{"kafka_controller_kafkacontroller_globalpartitioncount", "", 5},
		{"kafka_controller_kafkacontroller_offlinepartitionscount", "", 0},
		{"kafka_coordinator_group_groupmetadatamanager_numgroups", "", 2},
		{"kafka_coordinator_group_groupmetadatamanager_numgroupsstable", "", 1},
		{"kafka_coordinator_group_groupmetadatamanager_numgroupsempty", "", 1},
		{"kafka_coordinator_group_groupmetadatamanager_numoffsets", "", 2},
		{"kafka_server_fetchsessioncache_numincrementalfetchsessions", "", 1},
		{"kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", "", 3},
		{"kafka_server_socket_server_metrics_connection_count", "listener=PLAINTEXT", 1},
		{"kafka_server_kafkaserver_brokerstate", "", 3},
		{"kafka_server_metadataloader_finalizedlevel", "featureName=metadataVersion", 33},
		{"kafka_server_metadataloader_finalizedlevel", "featureName=transactionVersion", 2},
		{"ottla_build_info", "version=1.2.3", 1},
		{"kafka_brokers", "", 1},
		{"kafka_broker_info", "id=1 address=" + w.addr, 1},
		{"kafka_topic_partitions", "topic=m", 3},
		{"kafka_topic_partition_current_offset", "topic=m partition=0", 5},
		{"kafka_topic_partition_oldest_offset", "topic=m partition=0", 0},
		{"kafka_topic_partition_leader", "topic=m partition=0", 1},
		{"kafka_topic_partition_leader_is_preferred", "topic=m partition=0", 1},
		{"kafka_topic_partition_replicas", "topic=m partition=2", 1},
		{"kafka_topic_partition_in_sync_replica", "topic=m partition=2", 1},
		{"kafka_topic_partition_under_replicated_partition", "topic=m partition=2", 0},
		{"kafka_consumergroup_members", "consumergroup=g", 1},
		{"kafka_consumergroup_current_offset", "consumergroup=g topic=m partition=0", 2},
		{"kafka_consumergroup_current_offset_sum", "consumergroup=g topic=m", 2},
		{"kafka_consumergroup_lag", "consumergroup=g topic=m partition=0", 3},
		{"kafka_consumergroup_lag_sum", "consumergroup=g topic=m", 3},
		{"kafka_consumergroup_members", "consumergroup=empty", 0},
		{"kafka_consumergroup_lag", "consumergroup=empty topic=m partition=0", 0},
	} {
		if got := after.value(c.name, strings.Fields(c.labels)...); got != c.want {
			t.Errorf("%s{%s} is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	told, begin := metricsTable(t)
	for name, f := range after {
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", name)
		}
		if !told[name] && !slices.ContainsFunc(begin, func(b string) bool { return strings.HasPrefix(name, b) }) {
			t.Errorf("%s is not in compat/metrics.md", name)
		}
		delete(told, name)
	}
	for name := range told {
		t.Errorf("%s is in compat/metrics.md and is not served", name)
	}
}

// metricsTable reads the names that compat/metrics.md says are served: whole ones, and how others begin. There,
// {a, b} is one of several, [a] may be left out, and … is any end.
func metricsTable(t *testing.T) (names map[string]bool, begin []string) {
	t.Helper()
	text, err := os.ReadFile("../compat/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	served, _, _ := strings.Cut(string(text), "\nLeft out")
	names = map[string]bool{}
	var expand func(name string)
	expand = func(name string) {
		if before, after, ok := strings.Cut(name, "["); ok {
			inside, rest, _ := strings.Cut(after, "]")
			expand(before + rest)
			expand(before + inside + rest)
			return
		}
		if b, ok := strings.CutSuffix(name, "…"); ok {
			begin = append(begin, b)
			return
		}
		names[name] = true
	}
	for line := range strings.Lines(served) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || cells[1] == " name " || strings.HasPrefix(cells[1], "--") {
			continue
		}
		for _, name := range regexp.MustCompile(`[a-z_\[\]…]+({[^}]*}[a-z_\[\]]*)?`).FindAllString(cells[1], -1) {
			before, inside, many := strings.Cut(name, "{")
			if !many {
				expand(name)
				continue
			}
			inside, after, _ := strings.Cut(inside, "}")
			for _, one := range strings.Split(inside, ", ") {
				expand(before + one + after)
			}
		}
	}
	return names, begin
}

// TestMetricsOfDeletedTopics: what a topic had stays in the sums, and its own series end.
func TestMetricsOfDeletedTopics(t *testing.T) {
	t.Parallel()
	w := watch(t, nil)
	w.topic("d")
	w.store("d", newBatch(nil, values("1", "2")...))
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames = []string{"d"}
	equal(t, "delete", ask[*kmsg.DeleteTopicsResponse](w.wire, req, 5).Topics[0].ErrorCode, 0)
	s := w.scrape(t)
	equal(t, "messages in", s.value("kafka_server_brokertopicmetrics_messagesin_total", "topic="), 2)
	for name, f := range s {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "topic" && l.GetValue() == "d" {
					t.Errorf("%s is still there", name)
				}
			}
		}
	}
}

// TestHealth: the process lives from the moment it answers, and is ready when requests are served.
func TestHealth(t *testing.T) {
	t.Parallel()
	status := func(url, path string) int {
		t.Helper()
		code, _ := get(t, url+path)
		return code
	}
	w := watch(t, func(url string) {
		equal(t, "/healthz before", status(url, "/healthz"), http.StatusOK)
		equal(t, "/readyz before", status(url, "/readyz"), http.StatusServiceUnavailable)
	})
	equal(t, "/healthz", status(w.http, "/healthz"), http.StatusOK)
	equal(t, "/readyz", status(w.http, "/readyz"), http.StatusOK)
	equal(t, "another path", status(w.http, "/"), http.StatusNotFound)
	resp, err := http.Post(w.http+"/metrics", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	equal(t, "POST", resp.StatusCode, http.StatusMethodNotAllowed)
}
