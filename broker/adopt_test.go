package broker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// foreign is the directory of a Kafka 4.4.0 in KRaft mode, in a directory of the test's own.
func foreign(t *testing.T) string { return foreignOf(t, "kafka-4.4.0-kraft") }

func foreignOf(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../log/testdata/"+name+"/data")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// spoken keeps what a broker logs.
type spoken struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// speaking starts a broker and gives a client, its log, and what ends both.
func speaking(t *testing.T, settings map[string]string) (adm *kadm.Client, said *spoken, stop func()) {
	t.Helper()
	said = &spoken{}
	ready := make(chan struct{})
	all := map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0"}
	for name, value := range settings {
		all[name] = value
	}
	b, err := New(Options{Settings: all, Ready: func(Ready) { close(ready) }, Logger: slog.New(slog.NewTextHandler(said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()[0].Addr.String()))
	if err != nil {
		t.Fatal(err)
	}
	return kadm.NewClient(client), said, func() {
		client.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func setting(t *testing.T, adm *kadm.Client, topic, name string) string {
	t.Helper()
	configs, err := adm.DescribeTopicConfigs(t.Context(), topic)
	if err != nil || configs[0].Err != nil {
		t.Fatal(err, configs)
	}
	for _, c := range configs[0].Configs {
		if c.Key == name {
			return c.MaybeValue()
		}
	}
	return ""
}

// TestTakeOverOnce: the metadata are read by the first start alone. What is changed then holds,
// and topics that are deleted do not come back.
func TestTakeOverOnce(t *testing.T) {
	dir := foreign(t)
	adm, said, stop := speaking(t, map[string]string{"log.dirs": dir})
	if got := setting(t, adm, "segments", "segment.ms"); got != "60000" {
		t.Errorf("segment.ms %s", got)
	}
	if _, err := adm.DeleteTopics(t.Context(), "codecs"); err != nil {
		t.Fatal(err)
	}
	value := "70000"
	if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "segment.ms", Value: &value}}, "segments"); err != nil {
		t.Fatal(err)
	}
	stop()
	if n := strings.Count(said.String(), "found a data directory of Kafka in KRaft mode"); n != 1 {
		t.Errorf("said %d times what was found:\n%s", n, said)
	}
	if strings.Contains(said.String(), "level=WARN") {
		t.Errorf("warned:\n%s", said)
	}
	adm, said, stop = speaking(t, map[string]string{"log.dirs": dir})
	defer stop()
	if got := setting(t, adm, "segments", "segment.ms"); got != value {
		t.Errorf("segment.ms %s, was set to %s", got, value)
	}
	if topics, err := adm.ListTopics(t.Context()); err != nil || topics.Has("codecs") {
		t.Error("a deleted topic is there again", err)
	}
	if strings.Contains(said.String(), "KRaft") {
		t.Errorf("taken over again:\n%s", said)
	}
}

// TestTakeOverElsewhere: the metadata lie in a directory of their own, beside two with logs.
func TestTakeOverElsewhere(t *testing.T) {
	first, second, meta := foreign(t), t.TempDir(), t.TempDir()
	move := func(to string, names ...string) {
		for _, name := range names {
			if err := os.Rename(filepath.Join(first, name), filepath.Join(to, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	move(meta, "__cluster_metadata-0")
	move(second, "segments-1", "codecs-0")
	properties, err := os.ReadFile(filepath.Join(first, "meta.properties"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{second, meta} {
		if err := os.WriteFile(filepath.Join(d, "meta.properties"), properties, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	adm, said, stop := speaking(t, map[string]string{"log.dirs": first + "," + second, "metadata.log.dir": meta})
	defer stop()
	ends, err := adm.ListEndOffsets(t.Context(), "segments", "codecs")
	if err != nil {
		t.Fatal(err)
	}
	for topic, n := range map[string]int{"segments": 2, "codecs": 1} {
		for p := range int32(n) {
			if o, ok := ends.Lookup(topic, p); !ok || o.Offset != map[string]int64{"segments": 40, "codecs": 28}[topic] {
				t.Errorf("%s-%d ends at %v", topic, p, o)
			}
		}
	}
	if strings.Contains(said.String(), "not all of the cluster metadata") {
		t.Errorf("warned:\n%s", said)
	}
}

// TestTakeOverBroken: without metadata that can be trusted the topics are made of the logs and keep
// everything; the metadata stay as they are.
func TestTakeOverBroken(t *testing.T) {
	dir := foreign(t)
	name := filepath.Join(dir, "__cluster_metadata-0", "00000000000000000000.log")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
	adm, said, stop := speaking(t, map[string]string{"log.dirs": dir})
	defer stop()
	topics, err := adm.ListTopics(t.Context())
	if err != nil || len(topics) != 7 || len(topics["segments"].Partitions) != 2 {
		t.Errorf("%v, %v", topics.Names(), err)
	}
	if got := setting(t, adm, "empty", "retention.ms"); got != "-1" {
		t.Errorf("retention.ms %s", got)
	}
	if got := setting(t, adm, "compacted", "cleanup.policy"); got != "compact" {
		t.Errorf("cleanup.policy %s", got)
	}
	if !strings.Contains(said.String(), "cluster metadata of Kafka's KRaft mode cannot be read") {
		t.Errorf("no warning:\n%s", said)
	}
	if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, data) {
		t.Error("the metadata have changed", err)
	}
}

// forget takes away the checkpoints, by which logs that are not there were lost and not elsewhere.
func forget(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPartOfInternalTopic: where other brokers had partitions of an internal topic, how many there
// were is what the settings say, for groups find their partition by that number.
func TestPartOfInternalTopic(t *testing.T) {
	dir := foreignOf(t, "kafka-3.9.1-zk")
	forget(t, dir)
	if err := os.RemoveAll(filepath.Join(dir, "__consumer_offsets-0")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "codecs-0"), filepath.Join(dir, "codecs-2147483647")); err != nil { // no memory goes into that
		t.Fatal(err)
	}
	adm, said, stop := speaking(t, map[string]string{"log.dirs": dir, "offsets.topic.num.partitions": "5"})
	defer stop()
	topics, err := adm.ListTopicsWithInternal(t.Context())
	if err != nil || topics.Has("codecs") || len(topics["__consumer_offsets"].Partitions) != 5 || len(topics["__transaction_state"].Partitions) != 2 {
		t.Errorf("%v, %v", topics, err)
	}
	if !strings.Contains(said.String(), "withoutLog=4") {
		t.Errorf("not said:\n%s", said)
	}
}

// TestTakeOverOtherLogs: a log of a topic that the metadata do not have, and one of an earlier topic of
// a name, are set aside; a partition without a log is made, and said.
func TestTakeOverOtherLogs(t *testing.T) {
	dir := foreign(t)
	rename := func(from, to string) {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "segments-1")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "empty-0")); err != nil {
		t.Fatal(err)
	}
	forget(t, dir)
	rename("codecs-0", "unknown-0")
	rename("trimmed-0", "empty-0") // of the id of trimmed
	adm, said, stop := speaking(t, map[string]string{"log.dirs": dir})
	defer stop()
	topics, err := adm.ListTopics(t.Context())
	if err != nil || topics.Has("unknown") || !topics.Has("codecs") {
		t.Errorf("%v, %v", topics.Names(), err)
	}
	for _, name := range []string{"empty-0", "unknown-0"} {
		if stray, err := filepath.Glob(filepath.Join(dir, name+".*-stray")); err != nil || len(stray) != 1 {
			t.Errorf("%v, %v", stray, err)
		}
	}
	if !strings.Contains(said.String(), "partitionsWithoutLog=3") { // codecs-0, segments-1, trimmed-0
		t.Errorf("not said:\n%s", said)
	}
	ends, err := adm.ListEndOffsets(t.Context(), "segments", "empty", "codecs")
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]int64{"empty": 0, "codecs": 0} {
		if o, _ := ends.Lookup(topic, 0); o.Offset != want || o.Err != nil {
			t.Errorf("%s ends at %d, %v; want %d", topic, o.Offset, o.Err, want)
		}
	}
}

// TestRegistryLostDirMissing: topics are not made of half of the logs, for the other half would be
// made anew beside those that come back.
func TestRegistryLostDirMissing(t *testing.T) {
	first, second := t.TempDir(), filepath.Join(t.TempDir(), "second")
	settings := map[string]string{"log.dirs": first + "," + second, "listeners": "PLAINTEXT://127.0.0.1:0"}
	adm, _, stop := speaking(t, settings)
	if _, err := adm.CreateTopic(t.Context(), 4, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := os.Remove(filepath.Join(first, registryFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(second, second+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(second, nil, 0o644); err != nil { // nothing can lie below it
		t.Fatal(err)
	}
	b, err := New(Options{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Run(t.Context()); !errors.Is(err, errDirMissing) {
		t.Errorf("%v", err)
	}
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(second+"-away", second); err != nil {
		t.Fatal(err)
	}
	adm, _, stop = speaking(t, settings)
	defer stop()
	topics, err := adm.ListTopics(t.Context(), "t")
	if err != nil || len(topics["t"].Partitions) != 4 {
		t.Errorf("%v, %v", topics, err)
	}
}

// TestTakeOverOfOldMetadata: once something was written here, the metadata of before are not taken over
// again when the registry is lost: what was deleted or kept for longer since is not in them.
func TestTakeOverOfOldMetadata(t *testing.T) {
	dir := foreign(t)
	dirs := map[string]string{"log.dirs": dir}
	adm, _, stop := speaking(t, dirs)
	offsets := kadm.Offsets{}
	offsets.AddOffset("segments", 0, 1, -1)
	if err := adm.CommitAllOffsets(t.Context(), "another", offsets); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := os.Remove(filepath.Join(dir, registryFile)); err != nil {
		t.Fatal(err)
	}
	adm, said, stop := speaking(t, dirs)
	defer stop()
	if !strings.Contains(said.String(), "are older than the logs") {
		t.Errorf("it said\n%s", said)
	}
	if got := setting(t, adm, "segments", "retention.ms"); got != "-1" {
		t.Errorf("retention.ms is %s", got)
	}
}
