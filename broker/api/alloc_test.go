package api

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The most that one request may allocate on its way from its frame to its answer, whatever the
// number of records.
const (
	mostProduceAllocations = 20
	mostFetchAllocations   = 20
)

// produceFrame is a Produce of one batch to a topic's partition 0.
func produceFrame(topic string, records, bytes int) []byte {
	values := make([]string, records)
	for i := range values {
		values[i] = strings.Repeat("x", bytes)
	}
	return frameOf(produceOf(9, topic, 0, batchOf(record.BuilderOptions{}, 1000, values...)), 9, "client")
}

// handled runs one request through everything but a connection.
func handled(t testing.TB, p *Peer, frame []byte) {
	reply, err := p.Handle(context.Background(), frame)
	if err != nil || reply.Answer == nil {
		t.Fatalf("%+v, %v", reply, err)
	}
	reply.Answer.Release()
}

// again makes a Produce's frame what it was before its batch was given offsets.
func again(frame, as []byte) []byte { return frame[:copy(frame, as)] }

func TestRequestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, records := range []int{1, 1000} {
		h := newStorageHouse(t)
		h.bind(routes())
		h.topic("t", 1)
		frame := produceFrame("t", records, 100)
		use := make([]byte, len(frame))
		if n := testing.AllocsPerRun(100, func() { handled(t, h.peer, again(use, frame)) }); n > mostProduceAllocations {
			t.Errorf("Produce of %d records allocates %v times, at most %d", records, n, mostProduceAllocations)
		} else {
			t.Logf("Produce of %d records allocates %v times", records, n)
		}
		fetch := fetchFrame("t", 1<<20)
		if n := testing.AllocsPerRun(100, func() { handled(t, h.peer, fetch) }); n > mostFetchAllocations {
			t.Errorf("Fetch of batches of %d records allocates %v times, at most %d", records, n, mostFetchAllocations)
		} else {
			t.Logf("Fetch of batches of %d records allocates %v times", records, n)
		}
	}
}

func fetchFrame(topic string, most int32) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes, req.MinBytes, req.SessionEpoch = 11, 50<<20, 1, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes = most
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return frameOf(req, 11, "client")
}

func BenchmarkProduceRequest(b *testing.B) {
	for _, records := range []int{1, 16, 1000} {
		b.Run(fmt.Sprint(records), func(b *testing.B) {
			h := newStorageHouse(b)
			h.bind(routes())
			h.topic("t", 1, "retention.bytes", "1", "file.delete.delay.ms", "0")
			frame := produceFrame("t", records, 100)
			use := make([]byte, len(frame))
			b.ReportAllocs()
			for b.Loop() {
				handled(b, h.peer, again(use, frame))
			}
		})
	}
}

func BenchmarkFetchRequest(b *testing.B) {
	h := newStorageHouse(b)
	h.bind(routes())
	h.topic("t", 1)
	produce := produceFrame("t", 100, 100)
	use := make([]byte, len(produce))
	for range 10 {
		handled(b, h.peer, again(use, produce))
	}
	frame := fetchFrame("t", 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		handled(b, h.peer, frame)
	}
}
