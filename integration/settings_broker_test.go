package integration

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ottla/broker"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// moment is how long it is watched that something does not happen.
const moment = 50 * time.Millisecond

func versionsRequest() *kmsg.ApiVersionsRequest { return kmsg.NewPtrApiVersionsRequest() }

// answers sees that a broker answers at an address.
func answers(t *testing.T, addr string) {
	t.Helper()
	ask[*kmsg.ApiVersionsResponse](dialWire(t, addr), versionsRequest(), 0)
}

func seeListeners(t *testing.T) {
	h := open(t, "listeners=PLAINTEXT://127.0.0.1:0,PLAINTEXT_2://localhost:0", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,PLAINTEXT_2:PLAINTEXT")
	for _, addr := range h.addrs {
		answers(t, addr)
	}
	if len(h.addrs) < 2 {
		t.Errorf("addresses %q", h.addrs)
	}
}

func seeAdvertisedListeners(t *testing.T) {
	h := open(t, "advertised.listeners=PLAINTEXT://broker.example.org:19092")
	b := h.metadata().Brokers[0]
	equal(t, "host", b.Host, "broker.example.org")
	equal(t, "port", b.Port, 19092)
	b = open(t).metadata().Brokers[0]
	equal(t, "host without it", b.Host, "127.0.0.1")
}

func seeProtocolMap(t *testing.T) {
	h := open(t, "listeners=INSIDE://127.0.0.1:0", "listener.security.protocol.map=INSIDE:PLAINTEXT")
	answers(t, h.addr)
	if why := fails(t, "listeners=INSIDE://127.0.0.1:0"); !strings.Contains(why, "INSIDE") || !strings.Contains(why, "listener.security.protocol.map") {
		t.Error(why)
	}
}

func seeControllerListeners(t *testing.T) {
	listeners := "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
	equal(t, "sockets", len(open(t, listeners, "controller.listener.names=CONTROLLER").addrs), 1)
	if why := fails(t, listeners); !strings.Contains(why, "CONTROLLER") {
		t.Error(why)
	}
}

func seeProcessRoles(t *testing.T) {
	answers(t, open(t, "process.roles=broker,controller").addr)
	if why := fails(t, "process.roles=controller"); !strings.Contains(why, "Invalid value controller for configuration process.roles") {
		t.Error(why)
	}
}

func seeMaxConnections(t *testing.T) {
	h := open(t, "max.connections=1")
	h.metadata() // its connection is the one
	for _, more := range []struct{ broker, set string }{{"", "max.connections=2"}, {"1", "max.connections=3"}} {
		w := dialWire(t, h.addr)
		w.send(versionsRequest(), 0)
		w.quiet(moment)
		h.alter(forBroker, more.broker, more.set)
		receive[*kmsg.ApiVersionsResponse](w)
	}
}

func seeMaxConnectionsPerIP(t *testing.T) {
	seePerIP(t, "max.connections.per.ip=1", "max.connections.per.ip=2", "max.connections.per.ip=3")
}

func seeMaxConnectionsPerIPOverrides(t *testing.T) {
	seePerIP(t, "max.connections.per.ip.overrides=127.0.0.1:1", "max.connections.per.ip.overrides=127.0.0.1:2", "max.connections.per.ip.overrides=127.0.0.1:3")
}

func seePerIP(t *testing.T, one, two, three string) {
	h := open(t, one)
	h.metadata()
	for _, more := range []struct{ broker, set string }{{"", two}, {"1", three}} {
		dialWire(t, h.addr).wantClosed("one connection too many")
		h.alter(forBroker, more.broker, more.set)
		answers(t, h.addr)
	}
}

func seeMaxIdle(t *testing.T) {
	h := open(t, "connections.max.idle.ms=20")
	w := dialWire(t, h.addr)
	ask[*kmsg.ApiVersionsResponse](w, versionsRequest(), 0)
	w.wantClosed("20 ms without a request")
}

func seeSocketRequestMaxBytes(t *testing.T) {
	h := open(t, "socket.request.max.bytes=2000")
	h.topic("t")
	h.store("t", bytesOf(1000))
	w := dialWire(t, h.addr)
	w.write([]byte{0, 0, 7, 209, 0, 0, 0, 9}) // a Produce of 2001 bytes
	w.wantClosed("the length of a request that is too large")
}

func seeRequestMaxBytes(t *testing.T) {
	h := open(t, "ottla.request.max.bytes=1024")
	h.topic("t")
	h.store("t", bytesOf(5000))
	w := dialWire(t, h.addr)
	w.write([]byte{0, 0, 4, 1, 0, 3, 0, 9}) // a Metadata of 1025 bytes
	w.wantClosed("a request without records that is too large")
}

// seeQueuedMaxRequestBytes fills the memory for requests with fetches that wait, until a further request is not read;
// it is when they are answered.
func seeQueuedMaxRequestBytes(t *testing.T) {
	h := open(t, "socket.request.max.bytes=2000", "queued.max.request.bytes=2000")
	h.topic("t")
	for range 20 {
		w := dialWire(t, h.addr)
		req := fetchRequest("t", 1)
		req.MinBytes, req.MaxWaitMillis, req.Rack = 1, 2000, strings.Repeat("r", 1000)
		w.send(req, 11)
		last := dialWire(t, h.addr)
		last.send(versionsRequest(), 0)
		_, err := last.read(moment)
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		receive[*kmsg.ApiVersionsResponse](last)
		return
	}
	t.Error("20 requests of 1000 bytes are in work, and a further one is answered")
}

// seeBacklog: with the broker full, the kernel takes as many connections more, and one or two besides.
func seeBacklog(t *testing.T) {
	h := open(t, "max.connections=1", "socket.listen.backlog.size=1")
	h.metadata()
	for range 10 {
		nc, err := net.DialTimeout("tcp", h.addr, moment)
		if err != nil {
			return
		}
		defer nc.Close()
	}
	t.Error("10 connections were taken")
}

// seeSocketBuffers looks at the broker's side of the connection, which is in this process.
func seeSocketBuffers(t *testing.T) {
	h := open(t, "socket.send.buffer.bytes=30000", "socket.receive.buffer.bytes=20000")
	h.metadata()
	local, remote := h.nc.LocalAddr().(*net.TCPAddr).Port, h.nc.RemoteAddr().(*net.TCPAddr).Port
	port := func(a unix.Sockaddr) int {
		if a, ok := a.(*unix.SockaddrInet4); ok {
			return a.Port
		}
		return 0
	}
	for fd := range 1 << 12 {
		peer, err := unix.Getpeername(fd)
		if err != nil || port(peer) != local {
			continue
		}
		if own, err := unix.Getsockname(fd); err != nil || port(own) != remote {
			continue
		}
		for option, want := range map[int]int{unix.SO_SNDBUF: 30000, unix.SO_RCVBUF: 20000} {
			got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
			if err != nil || got != want && got != 2*want { // Linux answers twice what was set
				t.Errorf("option %d: %d, %v, want %d", option, got, err, want)
			}
		}
		return
	}
	t.Error("the broker's socket was not found")
}

func seeFetchMaxBytes(t *testing.T) {
	seen := func(h *house) int {
		h.topic("t")
		for range 2 {
			h.store("t", bytesOf(2000))
		}
		return len(batchesIn(t, h.fetchFrom("t", 11).RecordBatches))
	}
	equal(t, "batches", seen(open(t, "fetch.max.bytes=1024")), 1)
	equal(t, "batches without it", seen(open(t)), 2)
}

func seeFetchSessionSlots(t *testing.T) {
	h := open(t, "max.incremental.fetch.session.cache.slots=1")
	h.topic("t")
	session := func() int32 {
		req := fetchRequest("t", 1)
		req.SessionEpoch = 0
		return ask[*kmsg.FetchResponse](dialWire(t, h.addr), req, 11).SessionID
	}
	if session() == 0 {
		t.Error("no session for the first")
	}
	equal(t, "session of the second", session(), 0)
}

func seePartitionLimit(t *testing.T) {
	h := open(t, "max.request.partition.size.limit=2")
	equal(t, "create", h.create("t", 5, 1), 0)
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
	rt.Topic = "t"
	req.Topics = append(req.Topics, rt)
	resp := ask[*kmsg.DescribeTopicPartitionsResponse](h.wire, req, 0)
	equal(t, "partitions", len(resp.Topics[0].Partitions), 2)
	if resp.NextCursor == nil || resp.NextCursor.Partition != 2 {
		t.Errorf("cursor %+v", resp.NextCursor)
	}
}

func seeID(t *testing.T) {
	for setting, want := range map[string]int32{"broker.id=0": 0, "broker.id=7": 7, "node.id=0": 0, "node.id=8": 8, "broker.id=-1": 1} {
		equal(t, setting, open(t, setting).metadata().Brokers[0].NodeID, want)
	}
	equal(t, "by default", open(t).metadata().Brokers[0].NodeID, 1)
	if why := fails(t, "broker.id=1", "node.id=2"); !strings.Contains(why, "node.id") {
		t.Error(why)
	}
}

func seeRack(t *testing.T) {
	if rack := open(t, "broker.rack=shelf-3").metadata().Brokers[0].Rack; rack == nil || *rack != "shelf-3" {
		t.Errorf("rack %v", rack)
	}
	if rack := open(t).metadata().Brokers[0].Rack; rack != nil {
		t.Errorf("rack %q without the setting", *rack)
	}
}

func seeNumPartitions(t *testing.T) {
	h := open(t, "num.partitions=3")
	equal(t, "create", h.create("asked", -1, 1), 0)
	h.metadata("automatic")
	for _, topic := range h.metadata("asked", "automatic").Topics {
		equal(t, *topic.Topic, len(topic.Partitions), 3)
	}
}

func seeDefaultReplicationFactor(t *testing.T) {
	h := open(t, "default.replication.factor=2")
	equal(t, "error of a topic with two replicas", h.create("t", 1, -1), 38)
	equal(t, "error of a topic with one", h.create("t", 1, 1), 0)
	// an automatic topic gets as many as there are brokers
	h.metadata("automatic")
	equal(t, "automatic topic", h.metadata("automatic").Topics[0].ErrorCode, 0)
}

func seeAutoCreate(t *testing.T) {
	for setting, want := range map[string]int16{"auto.create.topics.enable=false": 3, "auto.create.topics.enable=true": 0} {
		h := open(t, setting)
		h.metadata("t")
		equal(t, setting, h.metadata("t").Topics[0].ErrorCode, want)
	}
}

func seeDeleteTopic(t *testing.T) {
	for setting, want := range map[string]int16{"delete.topic.enable=false": 73, "delete.topic.enable=true": 0} {
		h := open(t, setting)
		h.topic("t")
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames = []string{"t"}
		equal(t, setting, ask[*kmsg.DeleteTopicsResponse](h.wire, req, 5).Topics[0].ErrorCode, want)
	}
}

func seeLogDirs(t *testing.T) {
	dirs := t.TempDir()
	h := open(t, "log.dirs="+dirs+"/a,"+dirs+"/b")
	for _, topic := range []string{"t1", "t2"} {
		h.topic(topic)
		h.store(topic, bytesOf(10))
	}
	for _, d := range []string{"a", "b"} {
		found, err := filepath.Glob(filepath.Join(dirs, d, "t?-0"))
		if err != nil || len(found) != 1 {
			t.Errorf("in %s: %q, %v", d, found, err)
		}
	}
	// without log.dirs the directory is log.dir
	b, err := broker.New(broker.Options{Settings: map[string]string{"log.dir": dirs + "/c", "listeners": "PLAINTEXT://127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dirs, "c", "meta.properties")); err != nil {
		t.Error(err)
	}
}

func seeMetadataLogDir(t *testing.T) {
	dir := t.TempDir()
	h := open(t, "metadata.log.dir="+dir)
	if _, err := os.Stat(filepath.Join(dir, "ottla.registry")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "ottla.registry")); !os.IsNotExist(err) {
		t.Errorf("the registry in the first log directory: %v", err)
	}
}

const watermarks = "replication-offset-checkpoint"

// seeRetentionCheck: retention runs every so often, from so long after the start. What does not happen is looked for
// when the manager's goroutine has been seen to work twice.
func seeRetentionCheck(t *testing.T) {
	h := open(t, "log.retention.check.interval.ms=1", "log.initial.task.delay.ms=0")
	h.round()
	for _, settings := range [][]string{
		{"log.retention.check.interval.ms=1", "log.initial.task.delay.ms=3600000"},
		{"log.retention.check.interval.ms=3600000", "log.initial.task.delay.ms=0"},
	} {
		h := open(t, append(settings, "replica.high.watermark.checkpoint.interval.ms=1")...)
		h.topic("t", "retention.ms=1")
		for n := range int64(2) {
			h.store("t", at(1000))
			eventually(t, "a checkpoint", patience, func() bool { return h.checkpoint(watermarks, "t") == n+1 })
		}
		equal(t, settings[0]+" "+settings[1]+": start", h.start("t"), 0)
	}
}

func seeFlushScheduler(t *testing.T) {
	h := open(t, append([]string{"log.flush.scheduler.interval.ms=1"}, tasks...)...)
	h.topic("t")
	equal(t, "flushed", flushedLike("flush.ms=1")(h, "t"), true)
	h = open(t, tasks...)
	h.topic("t", "flush.ms=0")
	equal(t, "flushed without it", flushedLike("flush.messages=1")(h, "t"), false)
}

// seeCheckpoints has one of the three files written all the time and the others never. DeleteRecords writes log
// starts at once; that they are not needed any more is left to the interval.
func seeCheckpoints(t *testing.T) {
	files := []struct {
		setting, name string
		was, becomes  int64
	}{
		{"log.flush.offset.checkpoint.interval.ms", "recovery-point-offset-checkpoint", -1, 3},
		{"log.flush.start.offset.checkpoint.interval.ms", "log-start-offset-checkpoint", 1, -1},
		{"replica.high.watermark.checkpoint.interval.ms", watermarks, -1, 3},
	}
	for i, own := range files {
		settings := []string{"log.initial.task.delay.ms=0", "log.retention.check.interval.ms=1"}
		for k, f := range files {
			settings = append(settings, f.setting+"="+map[bool]string{true: "1", false: "0"}[k == i])
		}
		h := open(t, settings...)
		h.topic("t", "flush.messages=1", "internal.segment.bytes=330", "retention.ms=-1")
		h.store("t", newBatch(nil, sample{value: make([]byte, 100), at: 1000}, sample{value: make([]byte, 100), at: 1000}))
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = 10000
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = "t"
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Offset = 1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		equal(t, "delete records", ask[*kmsg.DeleteRecordsResponse](h.wire, req, 1).Topics[0].Partitions[0].ErrorCode, 0)
		eventually(t, "the log start", patience, func() bool { return h.checkpoint("log-start-offset-checkpoint", "t") == 1 })
		h.store("t", at(nowMs()))
		h.alter(forTopic, "t", "retention.ms=3600000")
		eventually(t, "retention", patience, func() bool { return h.start("t") == 2 })
		eventually(t, own.name, patience, func() bool { return h.checkpoint(own.name, "t") == own.becomes })
		for k, f := range files {
			if k != i {
				equal(t, f.name+" with "+own.setting, h.checkpoint(f.name, "t"), f.was)
			}
		}
	}
}

func seeProducerExpiry(t *testing.T) {
	producers := func(h *house) int {
		req := kmsg.NewPtrDescribeProducersRequest()
		rt := kmsg.NewDescribeProducersRequestTopic()
		rt.Topic, rt.Partitions = "t", []int32{0}
		req.Topics = append(req.Topics, rt)
		return len(ask[*kmsg.DescribeProducersResponse](h.wire, req, 0).Topics[0].Partitions[0].ActiveProducers)
	}
	produce := func(h *house) {
		id := ask[*kmsg.InitProducerIDResponse](h.wire, kmsg.NewPtrInitProducerIDRequest(), 1)
		h.store("t", newBatch(from(id.ProducerID, id.ProducerEpoch, 0), values("v")...))
	}
	h := open(t, "producer.id.expiration.ms=1", "producer.id.expiration.check.interval.ms=1")
	h.topic("t")
	produce(h)
	eventually(t, "the producer is forgotten", patience, func() bool { return producers(h) == 0 })
	for _, settings := range [][]string{
		{"producer.id.expiration.check.interval.ms=1", "replica.high.watermark.checkpoint.interval.ms=1"},
		{"producer.id.expiration.ms=1", "replica.high.watermark.checkpoint.interval.ms=1"},
	} {
		h := open(t, settings...)
		h.topic("t")
		for n := range int64(2) {
			produce(h)
			eventually(t, "a checkpoint", patience, func() bool { return h.checkpoint(watermarks, "t") == n+1 })
		}
		equal(t, settings[0]+": producers", producers(h), 2)
	}
	for _, broker := range []string{"", "1"} {
		h := open(t, "producer.id.expiration.check.interval.ms=1")
		h.topic("t")
		produce(h)
		h.alter(forBroker, broker, "producer.id.expiration.ms=1")
		eventually(t, "the producer is forgotten", patience, func() bool { return producers(h) == 0 })
	}
}
