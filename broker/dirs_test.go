package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ottla/log"
	"ottla/log/vfs"
	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// disks is a broker whose log directories a and b, and meta with its registry unless that is said to
// be in a, fail by script.
type disks struct {
	*Broker
	t      *testing.T
	root   string
	script *vfs.Script
	set    map[string]string
	cl     *kgo.Client
	adm    *kadm.Client
	cancel context.CancelFunc
	ended  chan error
	ids    map[string][16]byte

	mu    sync.Mutex
	lines bytes.Buffer
}

func (d *disks) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lines.Write(p)
}

func (d *disks) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lines.String()
}

func newDisks(t *testing.T, settings ...string) *disks {
	d := &disks{t: t, root: t.TempDir(), script: new(vfs.Script), ids: map[string][16]byte{}}
	d.set = map[string]string{
		"log.dirs": d.dir("a") + "," + d.dir("b"), "metadata.log.dir": d.dir("meta"), "listeners": "PLAINTEXT://127.0.0.1:0",
		"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1",
	}
	for i := 0; i < len(settings); i += 2 {
		d.set[settings[i]] = settings[i+1]
	}
	return d
}

func (d *disks) dir(name string) string { return filepath.Join(d.root, name) }

func (d *disks) start() {
	d.t.Helper()
	ready := make(chan struct{})
	var err error
	d.Broker, err = New(Options{Settings: d.set, Ready: func(Ready) { close(ready) }, fs: vfs.WithErrors(vfs.OS(), d.script),
		Logger: slog.New(slog.NewTextHandler(d, nil))})
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel, d.ended = cancel, make(chan error, 1)
	b := d.Broker
	go func() { d.ended <- b.Run(ctx) }()
	<-ready
	d.cl, err = kgo.NewClient(kgo.SeedBrokers(b.Addrs()[0].Addr.String()))
	if err != nil {
		d.t.Fatal(err)
	}
	d.adm = kadm.NewClient(d.cl)
}

// stop ends the broker, which wants the error to have a text; empty: nil.
func (d *disks) stop(text string) {
	d.t.Helper()
	d.cl.Close()
	if text == "" {
		d.cancel()
	}
	defer d.cancel()
	select {
	case err := <-d.ended:
		if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			d.t.Errorf("the broker ended with %v, want %q", err, text)
		}
	case <-time.After(20 * time.Second):
		d.t.Fatal("the broker does not end")
	}
}

func (d *disks) create(topic string, partitions int32) {
	d.t.Helper()
	r, err := d.adm.CreateTopic(d.t.Context(), partitions, 1, nil, topic)
	if err != nil {
		d.t.Fatal(err)
	}
	d.ids[topic] = r.ID
}

func ask[R any](d *disks, req kmsg.Request) R {
	d.t.Helper()
	resp, err := d.cl.Broker(1).Request(d.t.Context(), req)
	if err != nil {
		d.t.Fatal(err)
	}
	return any(resp).(R)
}

// produce writes one record, with acks=all, and answers the code.
func (d *disks) produce(topic string, n int32) int16 {
	d.t.Helper()
	b := record.NewBuilder(nil, record.BuilderOptions{})
	b.Add(time.Now().UnixMilli(), nil, []byte("v"))
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, d.ids[topic]
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = n, b.Finish()
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return ask[*kmsg.ProduceResponse](d, req).Topics[0].Partitions[0].ErrorCode
}

// fetch reads a partition from its start and answers the code and the high watermark.
func (d *disks) fetch(topic string, n int32) (int16, int64) {
	d.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes = 1 << 20
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, d.ids[topic]
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.PartitionMaxBytes, p.CurrentLeaderEpoch = n, 1<<20, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	r := ask[*kmsg.FetchResponse](d, req).Topics[0].Partitions[0]
	return r.ErrorCode, r.HighWatermark
}

// offline waits until the picture has so many partitions of a topic without a leader.
func (d *disks) offline(topic string, want int) {
	d.t.Helper()
	late := time.After(10 * time.Second)
	for {
		pic, changed := d.meta.Next()
		n := 0
		for _, p := range pic.Topics[topic].Partitions {
			if p.Leader < 0 {
				n++
			}
		}
		if n == want {
			return
		}
		select {
		case <-changed:
		case <-late:
			d.t.Fatalf("%d partitions of %s are offline, want %d\n%s", n, topic, want, d.said())
		}
	}
}

// state compares what clients see of partitions 0 to 3 of topic t, those of b being offline or not.
func (d *disks) state(where map[int32]string, down bool, records int64) {
	d.t.Helper()
	meta := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = kmsg.StringPtr("t")
	meta.Topics = append(meta.Topics, mt)
	for _, p := range ask[*kmsg.MetadataResponse](d, meta).Topics[0].Partitions {
		leader, code, gone := int32(1), int16(0), []int32{}
		if down && where[p.Partition] == d.dir("b") {
			leader, code, gone = -1, kerr.LeaderNotAvailable.Code, []int32{1}
		}
		if p.Leader != leader || p.ErrorCode != code || !slices.Equal(p.OfflineReplicas, gone) || !slices.Equal(p.ISR, []int32{1}) {
			d.t.Errorf("metadata %+v, want leader %d, code %d, offline %v", p, leader, code, gone)
		}
	}
	for n, dir := range where {
		code, high := d.fetch("t", n)
		if down && dir == d.dir("b") {
			if p := d.produce("t", n); code != kerr.KafkaStorageError.Code || p != code {
				d.t.Errorf("t-%d: fetch %d, produce %d", n, code, p)
			}
		} else if code != 0 || high < records {
			d.t.Errorf("t-%d: fetch %d, high watermark %d, want %d", n, code, high, records)
		}
	}
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	for _, r := range ask[*kmsg.DescribeLogDirsResponse](d, dirs).Dirs {
		if bad := down && r.Dir == d.dir("b"); bad != (r.ErrorCode == kerr.KafkaStorageError.Code) || bad && len(r.Topics) > 0 {
			d.t.Errorf("directory %+v", r)
		}
	}
}

// TestDirectoryFails: one of two directories goes offline alone, while the broker runs and at a start;
// what it has comes back with it.
func TestDirectoryFails(t *testing.T) {
	d := newDisks(t)
	d.start()
	d.create("t", 4)
	where := map[int32]string{}
	for n := range int32(4) {
		where[n] = d.logs.Log("t", n).Dir()
		if code := d.produce("t", n); code != 0 {
			t.Fatal(code)
		}
	}
	d.state(where, false, 1)

	d.script.Add(vfs.Fault{Op: vfs.OpWrite, Dir: d.dir("b"), Err: syscall.EIO})
	for n, dir := range where {
		if code := d.produce("t", n); (code == kerr.KafkaStorageError.Code) != (dir == d.dir("b")) {
			t.Errorf("t-%d in %s: %d", n, dir, code)
		}
	}
	d.offline("t", 2)
	d.state(where, true, 2)
	works := func(topic string) {
		t.Helper()
		d.create(topic, 3)
		for n := range int32(3) {
			if code := d.produce(topic, n); code != 0 || d.logs.Log(topic, n).Dir() != d.dir("a") {
				t.Errorf("%s-%d in %s: %d", topic, n, d.logs.Log(topic, n).Dir(), code)
			}
		}
		o := kadm.Offsets{}
		o.AddOffset(topic, 0, 1, -1)
		if r, err := d.adm.CommitOffsets(t.Context(), "g", o); err != nil || r.Error() != nil {
			t.Error(err, r.Error())
		}
		tx, err := kgo.NewClient(kgo.SeedBrokers(d.Addrs()[0].Addr.String()), kgo.TransactionalID("x"))
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Close()
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		err = errors.Join(tx.BeginTransaction(), tx.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(), tx.EndTransaction(ctx, kgo.TryCommit))
		if err != nil {
			t.Error(err)
		}
	}
	works("after")
	if n := strings.Count(d.said(), "level=ERROR"); n > 2 {
		t.Errorf("%d lines of errors:\n%s", n, d.said())
	}
	d.stop("")

	// At a start: only that one, and what was in it is not made anew.
	d.script.Clear()
	d.script.Add(vfs.Fault{Op: vfs.OpLock, Dir: d.dir("b"), Err: syscall.EIO})
	d.start()
	d.state(where, true, 2)
	works("later")
	for n, dir := range where {
		if _, err := os.Stat(filepath.Join(d.dir("a"), fmt.Sprint("t-", n))); (err == nil) != (dir == d.dir("a")) {
			t.Errorf("t-%d was in %s: %v", n, dir, err)
		}
	}
	d.stop("")

	d.script.Clear()
	d.start()
	d.state(where, false, 1)
	for n := range int32(4) {
		if code := d.produce("t", n); code != 0 {
			t.Errorf("t-%d: %d", n, code)
		}
	}

	// A topic of which something lies there is gone when the directory is back, as in 3.9.
	d.script.Add(vfs.Fault{Op: vfs.OpWrite, Dir: d.dir("b"), Err: syscall.EIO})
	for n := range int32(4) {
		d.produce("t", n)
	}
	d.offline("t", 2)
	for range 2 {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis, req.TopicNames = 50, []string{"t"}
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.Topic = kmsg.StringPtr("t")
		req.Topics = append(req.Topics, rt)
		if r := ask[*kmsg.DeleteTopicsResponse](d, req).Topics[0]; r.ErrorCode != kerr.RequestTimedOut.Code {
			t.Errorf("deletion: %d", r.ErrorCode)
		}
		if _, err := d.adm.CreateTopic(t.Context(), 4, 1, nil, "t"); !errors.Is(err, kerr.TopicAlreadyExists) {
			t.Errorf("made anew: %v", err)
		}
		d.stop("")
		d.script.Clear()
		d.script.Add(vfs.Fault{Op: vfs.OpLock, Dir: d.dir("b"), Err: syscall.EIO})
		d.start()
	}
	d.stop("")
	d.script.Clear()
	d.start()
	d.create("t", 4)
	for n := range int32(4) {
		if code := d.produce("t", n); code != 0 || d.logs.Log("t", n).End() != 1 {
			t.Errorf("t-%d: %d", n, code)
		}
	}
	d.stop("")
}

// TestFailedFsync: with flush.messages=1 nothing is acknowledged by an fsync that failed, however many
// wait for it, nor after it; another directory's partitions go on.
func TestFailedFsync(t *testing.T) {
	d := newDisks(t, "log.flush.interval.messages", "1")
	d.start()
	d.create("t", 2)
	good, bad := int32(0), int32(1)
	if d.logs.Log("t", good).Dir() == d.dir("b") {
		good, bad = bad, good
	}
	for n := range int32(2) {
		if code := d.produce("t", n); code != 0 {
			t.Fatal(code)
		}
	}
	acked := d.logs.Log("t", bad).Flushed()
	d.script.Add(vfs.Fault{Op: vfs.OpSync, Dir: d.dir("b"), Name: "*.log", Times: 1, Err: syscall.EIO})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if code := d.produce("t", bad); code != kerr.KafkaStorageError.Code {
				t.Errorf("acknowledged with %d", code)
			}
		})
	}
	wg.Wait()
	d.offline("t", 1)
	if code := d.produce("t", good); code != 0 {
		t.Errorf("the other directory: %d", code)
	}
	d.stop("")
	d.start()
	if code := d.produce("t", bad); code != 0 || d.logs.Log("t", bad).Flushed() <= acked {
		t.Errorf("after a restart: %d, flushed up to %d", code, d.logs.Log("t", bad).Flushed())
	}
	d.stop("")
}

// TestBrokerEndsWithItsDirectories: when none is left, or the one with the registry is not.
func TestBrokerEndsWithItsDirectories(t *testing.T) {
	d := newDisks(t)
	d.start()
	d.create("t", 2)
	d.script.Add(vfs.Fault{Op: vfs.OpWrite, Dir: d.dir("b"), Err: syscall.EIO})
	d.produce("t", 0)
	d.produce("t", 1)
	d.offline("t", 1)
	d.script.Add(vfs.Fault{Op: vfs.OpWrite, Err: syscall.EIO})
	d.writeAll("t", 2)
	d.stop("all log directories")

	d = newDisks(t)
	d.set["metadata.log.dir"] = d.dir("a")
	d.start()
	d.create("t", 2)
	d.script.Add(vfs.Fault{Op: vfs.OpWrite, Dir: d.dir("a"), Err: syscall.EIO})
	d.writeAll("t", 2)
	d.stop("registry")
	d.script.Clear()
	d.script.Add(vfs.Fault{Op: vfs.OpReadDir, Dir: d.dir("a"), Err: syscall.EIO})
	if _, err := New(Options{Settings: d.set, fs: vfs.WithErrors(vfs.OS(), d.script)}); err == nil || !strings.Contains(err.Error(), "registry") {
		t.Errorf("a start without the registry's directory: %v", err)
	}
}

// TestRoomForPartitions: partitions of a full disk are leaderless, their clients are told to try again,
// and as soon as there is room they are led, without a restart.
func TestRoomForPartitions(t *testing.T) {
	d := newDisks(t)
	d.start()
	d.create("well", 1)
	d.script.Add(vfs.Fault{Op: vfs.OpMkdir, Dir: d.root, Err: syscall.ENOSPC})
	d.create("t", 4)
	d.offline("t", 4)
	where := map[int32]string{0: d.dir("b"), 1: d.dir("b"), 2: d.dir("b"), 3: d.dir("b")}
	for n := range where {
		code, _ := d.fetch("t", n)
		if p := d.produce("t", n); p != kerr.KafkaStorageError.Code || code != p {
			t.Errorf("t-%d: fetch %d, produce %d", n, code, p)
		}
	}
	if code := d.produce("well", 0); code != 0 {
		t.Errorf("the others: %d", code)
	}
	d.script.Clear()
	d.offline("t", 0)
	for n := range where {
		if code := d.produce("t", n); code != 0 {
			t.Errorf("t-%d: %d", n, code)
		}
	}
	for _, text := range []string{"for want of room", "no partition waits for room"} {
		if n := strings.Count(d.said(), text); n != 1 {
			t.Errorf("%d lines of %q:\n%s", n, text, d.said())
		}
	}
	d.stop("")
	d.start()
	d.state(where, false, 1)
	d.stop("")
}

// writeAll writes to a topic's logs without a client, who would wait for a broker that ends.
func (d *disks) writeAll(topic string, partitions int32) {
	for n := range partitions {
		b := record.NewBuilder(nil, record.BuilderOptions{})
		b.Add(time.Now().UnixMilli(), nil, []byte("v"))
		d.logs.Log(topic, n).Append(log.Append{Records: b.Finish(), RequestVersion: 9})
	}
}
