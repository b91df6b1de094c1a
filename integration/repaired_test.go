//go:build clients

package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestRepairedOpensInKafka: what ottla check --repair leaves of a log is one that a real Kafka 3.9.1 opens
// with all that was whole, and goes on with.
func TestRepairedOpensInKafka(t *testing.T) {
	installed(t, "kafka-3.9.1")
	b := Start(t, "node.id=1", "offsets.topic.num.partitions=3")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	connect := func(addr string) *kgo.Client {
		t.Helper()
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ProducerLinger(0), kgo.DefaultProduceTopic("t"),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	cl := connect(b.Addr())
	small := "1" // a segment for nearly each record
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, map[string]*string{"segment.ms": &small, "index.interval.bytes": &small}, "t"); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 30 {
		value := fmt.Sprintf("value-%02d", i)
		if err := cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if i != 7 && i != 8 {
			want = append(want, value)
		}
	}
	cl.Close()
	b.Stop()
	damaged := 0
	files, err := filepath.Glob(filepath.Join(b.Dir(), "t-0", "*.log"))
	if err != nil || len(files) < 4 {
		t.Fatalf("segments %v, %v", files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"value-07", "value-08"} {
			if at := bytes.Index(data, []byte(value)); at >= 0 {
				data[at] ^= 1
				damaged++
			}
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, said, status := Run(t, "check", "--repair", "--yes", b.Dir()); status != 0 || damaged != 2 {
		t.Fatalf("repair: %d, %s%s", status, out, said)
	}

	zk, stopZK := zooKeeper39(t)
	registryTool(t, "export", "--data-dir", b.Dir(), "--zookeeper", zk+"/repaired")
	addr, stop := kafka39(t, b.Dir(), zk+"/repaired")
	cl = connect(addr)
	if err := cl.ProduceSync(ctx, kgo.StringRecord("by Kafka")).FirstErr(); err != nil {
		t.Error(err)
	}
	want = append(want, "by Kafka")
	var got []string
	for len(got) < len(want) && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if !slices.Equal(got, want) {
		t.Errorf("Kafka has %v", got)
	}
	cl.Close()
	checkKafkaLog(t, stop())
	stopZK()
	if out, said, status := Run(t, "check", b.Dir()); status != 0 {
		t.Errorf("after Kafka: %d, %s%s", status, out, said)
	}
}
