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
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestCompactedLogInKafkasTools has a topic with all codecs, tombstones and transactions written and
// compacted, and looked at by kafka-dump-log of both releases, which must find nothing wrong.
func TestCompactedLogInKafkasTools(t *testing.T) {
	t.Parallel()
	installed(t, "kafka-4.4.0")
	installed(t, "kafka-3.9.1")
	b := Start(t, "log.cleaner.backoff.ms=20", "log.segment.delete.delay.ms=0")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	adm := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(b.Addr())))
	settings := map[string]*string{}
	for name, value := range map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "600000",
		"internal.segment.bytes": "20000", "index.interval.bytes": "500"} {
		settings[name] = &value
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, settings, "t"); err != nil {
		t.Fatal(err)
	}
	record := func(i int) *kgo.Record {
		r := &kgo.Record{Topic: "t", Key: fmt.Appendf(nil, "key %d", i*i%37), Value: []byte(strings.Repeat(fmt.Sprint("value ", i, " "), 20)),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{byte(i)}}}}
		if i%13 == 5 {
			r.Value = nil
		}
		return r
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	n := 0
	for round := range 6 {
		for c, codec := range codecs {
			opts := []kgo.Opt{kgo.SeedBrokers(b.Addr()), kgo.ProducerBatchCompression(codec)}
			if round%2 == 1 {
				opts = append(opts, kgo.TransactionalID(fmt.Sprint("id ", c)))
			}
			cl := kgoDial(t, opts...)
			var err error
			if round%2 == 1 {
				err = cl.BeginTransaction()
			}
			var records []*kgo.Record
			for range 40 {
				records = append(records, record(n))
				n++
			}
			err = errors.Join(err, cl.ProduceSync(ctx, records...).FirstErr())
			if round%2 == 1 {
				err = errors.Join(err, cl.EndTransaction(ctx, kgo.TransactionEndTry(c%2 == 0)))
			}
			if err != nil {
				t.Fatal(err)
			}
			cl.Close()
		}
	}
	want := int64(n) * 3 / 4
	eventually(t, "the topic is compacted", patience, func() bool {
		text, _ := os.ReadFile(filepath.Join(b.Dir(), cleanedFile))
		for line := range strings.Lines(string(text)) {
			var at int64
			if k, _ := fmt.Sscanf(line, "t 0 %d", &at); k == 1 && at > want {
				return true
			}
		}
		return false
	})
	b.Stop()

	var files []string
	for _, suffix := range []string{"log", "index", "timeindex", "txnindex"} {
		found, err := filepath.Glob(filepath.Join(b.Dir(), "t-0", "*."+suffix))
		if err != nil || len(found) == 0 && suffix != "txnindex" {
			t.Fatalf("no %s: %v", suffix, err)
		}
		files = append(files, found...)
	}
	for _, release := range []string{"4.4.0", "3.9.1"} {
		for _, mode := range [][]string{{"--deep-iteration"}, {"--index-sanity-check"}} {
			out := dumpCompacted(t, release, append(mode, "--files", strings.Join(files, ","))...)
			if k := strings.Count(out, "isvalid: true"); mode[0] == "--deep-iteration" && (k == 0 || k >= n) || strings.Contains(out, "isvalid: false") {
				t.Errorf("%s: %d records of %d are left:\n%s", release, k, n, tail(out, 20))
			}
			for _, wrong := range []string{"Mismatches", "invalid bytes", "out of order", "not found", "failed"} {
				if strings.Contains(out, wrong) {
					t.Errorf("%s %s: %q in\n%s", release, mode[0], wrong, tail(out, 20))
				}
			}
			if mode[0] == "--index-sanity-check" && !strings.Contains(out, "passed sanity check") {
				t.Errorf("%s: nothing was checked:\n%s", release, tail(out, 20))
			}
		}
	}
}

// dumpCompacted runs Kafka's tool on a log that was compacted. Two things it finds are those of Kafka's own
// cleaner too: offsets that are missing, and batches that lost their records and kept their timestamp.
func dumpCompacted(t *testing.T, release string, args ...string) string {
	t.Helper()
	class := "org.apache.kafka.tools.DumpLogSegments"
	if release < "4" {
		class = "kafka.tools.DumpLogSegments"
	}
	command := javaCommand(t, release, class)
	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], args...)...)
	endWithParent(cmd)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", release, err, tail(errOut.String(), 30))
	}
	usual := regexp.MustCompile(`(?m)^(SLF4J: .*|Non-consecutive offsets in .*|  -?\d+ is followed by \d+|` +
		`Found timestamp mismatch in .*(\n  Index timestamp: \d+, log timestamp: -1)+)\n`)
	if said := usual.ReplaceAllString(errOut.String(), ""); said != "" {
		t.Errorf("%s %s: it said\n%s", release, args[0], said)
	}
	return out.String()
}
