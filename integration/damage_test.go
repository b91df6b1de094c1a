package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestDamagedDirectory goes the way of an operator whose disk has lost something: the broker starts, the
// partitions that are concerned have no leader and the log says why, all else works; ottla
// check finds it, and after its repair the partitions have what was whole, and take records again.
func TestDamagedDirectory(t *testing.T) {
	t.Parallel()
	b := Start(t, "offsets.topic.num.partitions=1")
	var cl *kgo.Client
	var adm *kadm.Client
	connect := func() { // a new client, which remembers nothing
		t.Helper()
		var err error
		if cl, err = kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		adm = kadm.NewClient(cl)
	}
	connect()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if _, err := adm.CreateTopic(ctx, 3, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	produce := func(partition int32, value string) error {
		return cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: partition, Value: []byte(value)}).FirstErr()
	}
	for i := range 5 {
		for p := range int32(3) {
			if err := produce(p, fmt.Sprint("value ", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.Stop()
	file := filepath.Join(b.Dir(), "t-0", "00000000000000000000.log")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	size := len(data) / 5
	data[2*size+16] = 77 // the magic byte of the third batch
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(b.Dir(), "t-1")
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}

	b.Start()
	connect()
	if err := produce(2, "more"); err != nil {
		t.Error(err)
	}
	eventually(t, "the partitions that cannot be used offline, and only those", 10*time.Second, func() bool { // logs are opened while requests are served
		m, err := adm.Metadata(ctx, "t")
		if err != nil {
			t.Fatal(err)
		}
		right := true
		for p := range int32(3) {
			of := m.Topics["t"].Partitions[p]
			if p == 2 {
				right = right && of.Err == nil && len(of.OfflineReplicas) == 0
			} else {
				right = right && errors.Is(of.Err, kerr.LeaderNotAvailable) && len(of.OfflineReplicas) == 1
			}
		}
		return right
	})
	for _, want := range []string{"file=" + file + " position=" + fmt.Sprint(2*size), "file=" + gone, "ottla check --repair --topic t " + b.Dir()} {
		if !strings.Contains(b.Log(), want) {
			t.Errorf("the log lacks %q:\n%s", want, tail(b.Log(), 20))
		}
	}
	out, _, status := Run(t, "check", b.Dir())
	for _, want := range []string{"in use by a broker", fmt.Sprintf("wrong: %s at byte %d: ", file, 2*size), "wrong: " + gone + ": "} {
		if !strings.Contains(out, want) || status != 1 {
			t.Errorf("check said (%d) %s, want %q in it", status, out, want)
		}
	}
	if _, said, status := Run(t, "check", "--repair", "--yes", b.Dir()); status != 1 || !strings.Contains(said, "stop the broker") {
		t.Errorf("a repair beside a broker: %d, %s", status, said)
	}

	b.Stop()
	if out, said, status := Run(t, "check", "--repair", "--yes", b.Dir()); status != 0 || !strings.Contains(out, "cutting") {
		t.Errorf("repair: %d, %s%s", status, out, said)
	}
	b.Start()
	connect()
	ends, err := adm.ListEndOffsets(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range []int64{5, 0, 6} {
		if o, _ := ends.Lookup("t", int32(p)); o.Err != nil || o.Offset != want {
			t.Errorf("after the repair partition %d ends at %d, %v; want %d", p, o.Offset, o.Err, want)
		}
		if err := produce(int32(p), "again"); err != nil {
			t.Errorf("produce to partition %d: %v", p, err)
		}
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var got []string
	for len(got) < 5 && ctx.Err() == nil {
		reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if want := "[value 0 value 1 value 3 value 4 again]"; fmt.Sprint(got) != want {
		t.Errorf("partition 0 has %v, want %s", got, want)
	}
	if out, _, status := Run(t, "check", b.Dir()); status != 0 {
		t.Errorf("in the end: %d, %s", status, out)
	}
}
