package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// The directories that real Kafka has written, and what its tools said of them.
const (
	foreignDirs = "../log/testdata"
	foreignSaid = "../protocol/schema/testdata"

	kraft44    = "kafka-4.4.0-kraft"
	zk39       = "kafka-3.9.1-zk"
	oldFormats = "kafka-3.9.1-zk-old-formats"
)

// foreign is a fixture in a directory of the test's own.
func foreign(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(foreignDirs, name, "data"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// bare makes of a directory one that 0.8 or 0.9 could have left: none of the files that came later.
func bare(t *testing.T, dir, meta string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		later := d.Name() == "partition.metadata" || d.Name() == "leader-epoch-checkpoint" || d.Name() == "log-start-offset-checkpoint" ||
			strings.HasSuffix(path, ".timeindex") || strings.HasSuffix(path, ".snapshot")
		if err != nil || !later {
			return err
		}
		return os.Remove(path)
	})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "meta.properties")
	if meta == "" {
		err = os.Remove(name)
	} else {
		err = os.WriteFile(name, []byte(meta), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".kafka_cleanshutdown"), nil, 0o644); err != nil { // it was empty
		t.Fatal(err)
	}
}

// consumed is what a consumer gets of topics, in the form of expected-consume.tsv, without the level.
func consumed(t *testing.T, addr string, level kgo.IsolationLevel, n int, v *kversion.Versions, topics ...string) []string {
	t.Helper()
	return recordLines(t, n, kgoDial(t, kgoOptions(addr, v, kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(level), kgo.FetchMaxWait(100*time.Millisecond))...))
}

// consumedFrom is consumed for partition 0 of one topic, from an offset on.
func consumedFrom(t *testing.T, addr string, from int64, n int, v *kversion.Versions, topic string) []string {
	t.Helper()
	return recordLines(t, n, kgoDial(t, kgoOptions(addr, v, kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}}))...))
}

// recordLines polls n records.
func recordLines(t *testing.T, n int, cl *kgo.Client) []string {
	t.Helper()
	text := func(b []byte) string {
		if b == nil {
			return "NULL"
		}
		return string(b)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var all []*kgo.Record
	for len(all) < n {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(all), n, err)
		}
		all = append(all, fs.Records()...)
	}
	slices.SortFunc(all, func(a, b *kgo.Record) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	var lines []string
	for _, r := range all {
		var headers []string
		for _, h := range r.Headers {
			headers = append(headers, h.Key+"="+text(h.Value))
		}
		lines = append(lines, fmt.Sprintf("%s\t%d\t%d\t%d\t%s\t%s\t%s", r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli(), text(r.Key), text(r.Value), strings.Join(headers, ",")))
	}
	return lines
}

// compare fails the test at the first line that differs.
func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if g, w := append(got, make([]string, max(0, i+1-len(got)))...)[i], append(want, make([]string, max(0, i+1-len(want)))...)[i]; g != w {
			t.Fatalf("%s, line %d:\ngot  %q\nwant %q", what, i, g, w)
		}
	}
}

// TestForeignConsume reads everything that Kafka wrote, as its own consumer got it.
func TestForeignConsume(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(foreignDirs, kraft44, "expected-consume.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		level, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		want[level] = append(want[level], rest)
	}
	topics := []string{"appendtime", "codecs", "compacted", "empty", "segments", "trimmed", "txn"}
	for _, name := range []string{kraft44, zk39} {
		t.Run(name, func(t *testing.T) {
			b := StartWith(t, Options{Dir: foreign(t, name)})
			for level, isolation := range map[string]kgo.IsolationLevel{"read_uncommitted": kgo.ReadUncommitted(), "read_committed": kgo.ReadCommitted()} {
				want := slices.Clone(want[level])
				slices.SortStableFunc(want, func(a, b string) int {
					x, y := strings.Split(a, "\t"), strings.Split(b, "\t")
					return cmp.Or(strings.Compare(x[0], y[0]), strings.Compare(x[1], y[1]))
				})
				got := consumed(t, b.Addr(), isolation, len(want), nil, topics...)
				if name == zk39 { // the same programme, run at another time
					at := regexp.MustCompile(`^((?:appendtime|compacted)\t\d+\t\d+)\t\d+`)
					for i := range got {
						got[i] = at.ReplaceAllString(got[i], "$1")
					}
					for i := range want {
						want[i] = at.ReplaceAllString(want[i], "$1")
					}
				}
				compare(t, level, got, want)
			}
		})
	}
}

// committedOffset is what __consumer_offsets says of a partition in the end.
type committedOffset struct {
	Offset      int64  `json:"offset"`
	LeaderEpoch int32  `json:"leaderEpoch"`
	Metadata    string `json:"metadata"`
}

// expectedOffsets replays what the dump tool printed of __consumer_offsets: by group, topic,
// partition.
func expectedOffsets(t *testing.T, name string) map[string]map[string]committedOffset {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(foreignSaid, strings.TrimPrefix(name, "kafka-"), "expected-consumer-offsets.txt"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m) key: (\{.*?\}\}) payload: (.*)$`)
	all := map[string]map[string]committedOffset{}
	for _, m := range line.FindAllStringSubmatch(string(data), -1) {
		var key struct {
			Type string
			Data struct {
				Group, Topic string
				Partition    int32
			}
		}
		if err := json.Unmarshal([]byte(m[1]), &key); err != nil {
			t.Fatal(m[1], err)
		}
		if key.Type != "1" {
			continue
		}
		if all[key.Data.Group] == nil {
			all[key.Data.Group] = map[string]committedOffset{}
		}
		place := fmt.Sprint(key.Data.Topic, "-", key.Data.Partition)
		if m[2] == "<DELETE>" {
			delete(all[key.Data.Group], place)
			continue
		}
		var value struct{ Data committedOffset }
		if err := json.Unmarshal([]byte(m[2]), &value); err != nil {
			t.Fatal(m[2], err)
		}
		all[key.Data.Group][place] = value.Data
	}
	return all
}

// TestForeignGroups: every group goes on where it was, also one of a kind that had to be of
// another protocol, and nothing of its records is lost.
func TestForeignGroups(t *testing.T) {
	for name, groups := range map[string][]string{
		kraft44: {"g-classic", "g-consumer", "g-eos", "g-simple", "g-static"},
		zk39:    {"g-classic", "g-eos", "g-simple", "g-static"},
	} {
		t.Run(name, func(t *testing.T) {
			// The offsets are as old as the fixture.
			b := StartWith(t, Options{Dir: foreign(t, name), Settings: []string{"offsets.retention.minutes=2147483647", "group.initial.rebalance.delay.ms=0"}})
			adm := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(b.Addr())))
			expected := expectedOffsets(t, name)
			listed, err := adm.ListGroups(t.Context())
			if err != nil || !slices.Equal(listed.Groups(), groups) {
				t.Errorf("groups %v, %v; want %v", listed.Groups(), err, groups)
			}
			for _, g := range listed {
				// the static member had not left, and Kafka had not missed it when it was stopped
				if want := map[bool]string{true: "Stable", false: "Empty"}[g.Group == "g-static"]; g.State != want {
					t.Errorf("%s is %s, want %s", g.Group, g.State, want)
				}
			}
			check := func() {
				t.Helper()
				for _, group := range groups {
					if len(expected[group]) == 0 {
						t.Errorf("nothing is expected of %s", group)
					}
					got, err := adm.FetchOffsets(t.Context(), group)
					if err != nil {
						t.Fatal(group, err)
					}
					n := 0
					got.Each(func(o kadm.OffsetResponse) {
						n++
						w, ok := expected[group][fmt.Sprint(o.Topic, "-", o.Partition)]
						if is := (committedOffset{o.At, o.LeaderEpoch, o.Metadata}); !ok || is != w || o.Err != nil {
							t.Errorf("%s %s-%d: %v, %v; want %v", group, o.Topic, o.Partition, is, o.Err, w)
						}
					})
					if n != len(expected[group]) {
						t.Errorf("%s: %d offsets, want %d", group, n, len(expected[group]))
					}
				}
			}
			check()

			// Consumers go on, and what their groups have afterwards follows.
			for _, group := range []string{"g-classic", "g-consumer"} {
				o, ok := expected[group]["codecs-0"]
				if !ok {
					continue
				}
				member := kgoDial(t, kgo.SeedBrokers(b.Addr()), kgo.ConsumerGroup(group), kgo.ConsumeTopics("codecs"), kgo.DisableAutoCommit())
				fetched := member.PollFetches(t.Context())
				if err := fetched.Err(); err != nil {
					t.Fatal(err)
				}
				if r := fetched.Records(); len(r) == 0 || r[0].Offset != o.Offset {
					t.Errorf("%s goes on with %v", group, r)
				}
				if err := member.CommitUncommittedOffsets(t.Context()); err != nil {
					t.Fatal(err)
				}
				member.Close()
				got, err := adm.FetchOffsets(t.Context(), group)
				if r, ok := got.Lookup("codecs", 0); err != nil || !ok || r.At != 28 {
					t.Errorf("%s: %v, %v", group, got, err)
				} else {
					expected[group]["codecs-0"] = committedOffset{r.At, r.LeaderEpoch, r.Metadata}
				}
			}
			b.Restart()
			check()
		})
	}
}

// TestForeignTransactions: the transactional ids go on with the next epoch of their producer, and
// nobody else gets a producer id that is in use.
func TestForeignTransactions(t *testing.T) {
	for name, want := range map[string]map[string][2]int64{
		kraft44: {"tx-one": {1, 4}, "tx-two": {2, 3}},
		zk39:    {"tx-one": {1, 1}, "tx-two": {2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := StartWith(t, Options{Dir: foreign(t, name)})
			w := dialWire(t, b.Addr())
			initialise := func(id *string) *kmsg.InitProducerIDResponse {
				req := kmsg.NewPtrInitProducerIDRequest()
				req.TransactionalID, req.TransactionTimeoutMillis = id, 60000
				var resp *kmsg.InitProducerIDResponse
				eventually(t, "a producer id", patience, func() bool {
					resp = ask[*kmsg.InitProducerIDResponse](w, req, 4)
					return resp.ErrorCode == 0
				})
				return resp
			}
			for id, w := range want {
				if r := initialise(&id); r.ProducerID != w[0] || int64(r.ProducerEpoch) != w[1] {
					t.Errorf("%s: producer %d, epoch %d; want %v", id, r.ProducerID, r.ProducerEpoch, w)
				}
			}
			if r := initialise(nil); r.ProducerID < 3 {
				t.Errorf("producer id %d is given out twice", r.ProducerID)
			}
			producer := kgoDial(t, kgo.SeedBrokers(b.Addr()), kgo.TransactionalID("tx-one"), kgo.DefaultProduceTopic("txn"))
			if err := producer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := producer.ProduceSync(t.Context(), kgo.StringRecord("after")).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := producer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
			if got := consumeAll(t.Context(), t, b.Addr(), "txn", 10, kgo.ReadCommitted()); !slices.Contains(got, "after") || len(got) != 10 {
				t.Errorf("committed: %q", got)
			}
		})
	}
}

// TestForeignSettings: what a topic is goes on: its id, and its settings where they are known.
func TestForeignSettings(t *testing.T) {
	for name, want := range map[string]map[string]map[string]string{
		kraft44: {
			"segments":           {"segment.ms": "60000", "retention.ms": "-1", "index.interval.bytes": "200"},
			"compacted":          {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1000"},
			"empty":              {"retention.ms": "7200000"},
			"__consumer_offsets": {"cleanup.policy": "compact", "segment.bytes": "104857600", "compression.type": "producer"},
		},
		zk39: {
			"segments":            {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
			"compacted":           {"cleanup.policy": "compact", "retention.ms": "-1"},
			"__consumer_offsets":  {"cleanup.policy": "compact", "segment.bytes": "104857600"},
			"__transaction_state": {"cleanup.policy": "compact"},
		},
		oldFormats: {"fmt-v0": {"cleanup.policy": "delete", "retention.ms": "-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := foreign(t, name)
			b := StartWith(t, Options{Dir: dir})
			adm := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(b.Addr())))
			for topic, configs := range want {
				got, err := adm.DescribeTopicConfigs(t.Context(), topic)
				if err != nil || got[0].Err != nil {
					t.Fatal(topic, err, got)
				}
				for _, c := range got[0].Configs {
					if w, ok := configs[c.Key]; ok && c.MaybeValue() != w {
						t.Errorf("%s: %s is %s, want %s", topic, c.Key, c.MaybeValue(), w)
					}
				}
			}
			topics, err := adm.ListTopicsWithInternal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, topic := range topics {
				data, err := os.ReadFile(filepath.Join(dir, topic.Topic+"-0", "partition.metadata"))
				if err != nil || !bytes.HasSuffix(data, []byte(base64.RawURLEncoding.EncodeToString(topic.ID[:]))) {
					t.Errorf("%s has id %s, its file says %q, %v", topic.Topic, topic.ID, data, err)
				}
			}
			deleted, err := adm.DeleteTopics(t.Context(), topics.Names()...) // and they do not come back
			if err == nil {
				err = deleted.Error()
			}
			if err != nil {
				t.Fatal(err)
			}
			b.Stop()
			b.Start()
			adm = kadm.NewClient(kgoDial(t, kgo.SeedBrokers(b.Addr()))) // the other one remembers topics
			if topics, err = adm.ListTopicsWithInternal(t.Context()); err != nil || len(topics) != 0 {
				t.Errorf("deleted topics are there again: %v, %v", topics.Names(), err)
			}
		})
	}
}

// TestForeignUntouched: a directory that was opened and closed is as it was, but for the few files
// that Kafka would write then.
func TestForeignUntouched(t *testing.T) {
	changes := regexp.MustCompile(`^(ottla\.registry|\.lock|\.kafka_cleanshutdown|recovery-point-offset-checkpoint|replication-offset-checkpoint|` +
		`cleaner-offset-checkpoint|log-start-offset-checkpoint|[^/]*/leader-epoch-checkpoint)$`)
	for _, name := range []string{kraft44, zk39, oldFormats} {
		t.Run(name, func(t *testing.T) {
			dir := foreign(t, name)
			before := filesUnder(t, dir)
			b := StartWith(t, Options{Dir: dir})
			b.Stop()
			after := filesUnder(t, dir)
			for path := range after {
				if _, ok := before[path]; !ok {
					before[path] = "(not there)"
				}
			}
			for path, was := range before {
				is, ok := after[path]
				if !ok {
					is = "(not there)"
				}
				rel, err := filepath.Rel(dir, path)
				if err != nil {
					t.Fatal(err)
				}
				if is != was && (!changes.MatchString(rel) || strings.HasPrefix(rel, "__cluster_metadata")) {
					t.Errorf("%s has changed:\nwas %.200q\nis  %.200q", rel, was, is)
				}
			}
		})
	}
}
