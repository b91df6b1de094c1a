//go:build clients

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestDumpLog writes a directory with segments, codecs, headers, transactions and groups, and has
// it read by kafka-dump-log of 4.4.0 and 3.9.1 and by `ottla dump`: nothing is wrong with it, and
// 4.4.0 and ottla print the same lines.
func TestDumpLog(t *testing.T) {
	t.Parallel()
	installed(t, "kafka-4.4.0")
	installed(t, "kafka-3.9.1")
	b := Start(t, "offsets.topic.num.partitions=2", "transaction.state.log.num.partitions=2", "group.initial.rebalance.delay.ms=0")
	writeForDump(t, b.Addr())
	b.Stop()

	find := func(patterns ...string) string {
		var files []string
		for _, p := range patterns {
			found, err := filepath.Glob(filepath.Join(b.Dir(), p))
			if err != nil || len(found) == 0 {
				t.Fatalf("no %s: %v", p, err)
			}
			files = append(files, found...)
		}
		slices.Sort(files)
		return strings.Join(files, ",")
	}
	logs, indexes := find("*/*.log"), find("*/*.index", "*/*.timeindex")
	if n := strings.Count(logs, "/many-0/"); n < 3 {
		t.Errorf("%d segments, want at least 3", n)
	}
	for _, c := range []struct {
		name  string
		args  []string
		since string // the release from which the output is ottla's; empty: any
		has   string // what must be in it
	}{
		{"records", []string{"--print-data-log", "--files", logs}, "", "headerKeys: [h0,h1] key: key-1 payload: value-8 \u00e9\ufffd "},
		{"deep", []string{"--deep-iteration", "--files", logs}, "", "endTxnMarker: ABORT coordinatorEpoch: 0"},
		{"indexes", []string{"--files", indexes}, "", "timestamp: 1700000080000 offset: "},
		{"sanity", []string{"--index-sanity-check", "--files", indexes}, "", " passed sanity check."},
		{"verify", []string{"--verify-index-only", "--files", indexes}, "", ".timeindex"},
		{"aborted", []string{"--files", find("*/*.txnindex")}, "", "version: 0 producerId: "},
		{"snapshots", []string{"--files", find("*/*.snapshot")}, "4", "lastTimestamp: "}, // 3.9.1 has a blank at the end of some
		{"offsets", []string{"--offsets-decoder", "--files", find("__consumer_offsets-*/*.log")}, "4", `"metadata":"some metadata"`},
		{"transactions", []string{"--transaction-log-decoder", "--files", find("__transaction_state-*/*.log")}, "4", `"transactionStatus":"CompleteAbort"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := dumpLog(t, c.args, c.since)
			if !strings.Contains(got, c.has) {
				t.Errorf("nothing is %q in %d bytes", c.has, len(got))
			}
		})
	}

	// what a kill leaves is sound too, only that an index may lack its end
	b.Start()
	cl := kgoDial(t, kgo.SeedBrokers(b.Addr()), kgo.DefaultProduceTopic("many"))
	for range 20 {
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord(strings.Repeat("more ", 50))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	b.Kill()
	t.Run("killed", func(t *testing.T) {
		dumpLog(t, []string{"--print-data-log", "--files", find("*/*.log", "*/*.index", "*/*.timeindex")}, "")
	})
}

// dumpLog runs `ottla dump` and Kafka's tool of both releases, none of which may find anything
// wrong. The output must be the same, with releases from since on.
func dumpLog(t *testing.T, args []string, since string) string {
	t.Helper()
	got, errOut, status := Run(t, append([]string{"dump"}, args...)...)
	if status != 0 || errOut != "" {
		t.Fatalf("ottla dump: status %d, and said\n%s", status, errOut)
	}
	for _, wrong := range []string{"isvalid: false", "invalid bytes", "skipping"} {
		if strings.Contains(got, wrong) {
			t.Errorf("ottla dump: %q in\n%s", wrong, got)
		}
	}
	for _, release := range []string{"4.4.0", "3.9.1"} {
		want := dumpLogTool(t, release, args...)
		if release < since {
			continue
		}
		g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
		for i := range max(len(g), len(w)) {
			if i >= len(g) || i >= len(w) || g[i] != w[i] {
				t.Fatalf("%s: line %d of %d and %d differs:\nottla %q\nKafka %q", release, i+1, len(g), len(w), g[min(i, len(g)):min(i+1, len(g))], w[min(i, len(w)):min(i+1, len(w))])
			}
		}
	}
	return got
}

// dumpLogTool runs Kafka's tool, which must find nothing wrong.
func dumpLogTool(t *testing.T, release string, args ...string) string {
	t.Helper()
	class := "org.apache.kafka.tools.DumpLogSegments"
	if release < "4" {
		class = "kafka.tools.DumpLogSegments"
	}
	command := javaCommand(t, release, class)
	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	endWithParent(cmd)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", release, err, tail(errOut.String(), 30))
	}
	// 4.4.0 takes -1 for the offset before the first of every log.
	said := regexp.MustCompile(`(?m)^(SLF4J: .*|Non-consecutive offsets in .*\n  -1 is followed by \d+)\n`).ReplaceAllString(errOut.String(), "")
	if said != "" {
		t.Errorf("%s %s: it said\n%s", release, strings.Join(args[:len(args)-1], " "), said)
	}
	return out.String()
}

// writeForDump writes what a log can hold.
func writeForDump(t *testing.T, addr string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	adm := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(addr)))
	set := func(kv ...string) map[string]*string {
		m := map[string]*string{}
		for i := 0; i+1 < len(kv); i += 2 {
			m[kv[i]] = &kv[i+1]
		}
		return m
	}
	for topic, settings := range map[string]map[string]*string{
		"many":   set("segment.ms", "60000", "index.interval.bytes", "200", "retention.ms", "-1"),
		"txn":    set("segment.ms", "60000", "index.interval.bytes", "200", "retention.ms", "-1"),
		"append": set("message.timestamp.type", "LogAppendTime"),
		"empty":  nil,
	} {
		if _, err := adm.CreateTopic(ctx, 1, 1, settings, topic); err != nil {
			t.Fatal(err)
		}
	}
	const begin = 1700000000000
	record := func(topic string, i int) *kgo.Record {
		r := &kgo.Record{Topic: topic, Timestamp: time.UnixMilli(begin + int64(i)*10000), Value: []byte(strings.Repeat(fmt.Sprintf("value-%d é\xff ", i), 5))}
		if i%5 != 0 {
			r.Key = fmt.Appendf(nil, "key-%d", i%7)
		}
		if i%11 == 3 {
			r.Value = nil
		}
		for h := range i % 3 {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: fmt.Sprintf("h%d", h), Value: []byte("x")})
		}
		return r
	}
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		cl := kgoDial(t, kgo.SeedBrokers(addr), kgo.ProducerBatchCompression(codec))
		for k := range 3 {
			var records []*kgo.Record
			for j := range 3 {
				n := (i*3+k)*3 + j
				records = append(records, record("many", n), record("append", n))
			}
			if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n, id := range []string{"id-1", "id-2"} {
		cl := kgoDial(t, kgo.SeedBrokers(addr), kgo.TransactionalID(id))
		for i := range 4 {
			err := cl.BeginTransaction()
			for j := range 3 {
				err = errors.Join(err, cl.ProduceSync(ctx, record("txn", n*12+i*3+j)).FirstErr())
			}
			if err = errors.Join(err, cl.EndTransaction(ctx, kgo.TransactionEndTry(i%2 == 0))); err != nil {
				t.Fatal(err)
			}
		}
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "many", Partition: 0, At: 7, LeaderEpoch: -1, Metadata: "some metadata"})
	if err := adm.CommitAllOffsets(ctx, "simple", offsets); err != nil {
		t.Fatal(err)
	}
	group := kgoDial(t, kgo.SeedBrokers(addr), kgo.ConsumerGroup("group"), kgo.ConsumeTopics("many"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	fetched := group.PollFetches(ctx)
	if err := errors.Join(fetched.Err(), group.CommitUncommittedOffsets(ctx)); err != nil {
		t.Fatal(err)
	}
	group.Close()
	if _, err := adm.DeleteGroups(ctx, "simple"); err != nil {
		t.Fatal(err)
	}
}
