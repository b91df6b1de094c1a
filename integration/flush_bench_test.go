package integration

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ottla/protocol/record"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkGroupCommit is producers with acks=all on a topic with flush.messages=1, each of whom sends
// its next record when the last is acknowledged, and so durable. One producer has an fsync for each
// request; many share them. "disk" is the fsync alone, of as many bytes: what each request would cost
// at least if it had its own. What a request costs without any is "unflushed".
//
//	go test -run - -bench GroupCommit -benchtime 3s ./integration
func BenchmarkGroupCommit(b *testing.B) {
	broker := Start(b)
	b.Run("disk", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "f"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		bytes := make([]byte, 170)
		for b.Loop() {
			_, err := f.Write(bytes)
			if err == nil {
				err = f.Sync()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	})
	for _, x := range []struct {
		producers int
		flush     string
	}{{1, "1"}, {64, "1"}, {64, "9223372036854775807"}} {
		name := fmt.Sprint(x.producers)
		if x.flush != "1" {
			name += "-unflushed"
		}
		b.Run(name, func(b *testing.B) {
			w := dialWire(b, broker.Addr())
			topic := fmt.Sprintf("flush-%s-%d", name, time.Now().UnixNano())
			if r := w.createTopic(topic, 1, 1, false, 5, "flush.messages", x.flush); r.ErrorCode != 0 {
				b.Fatal(r.ErrorCode)
			}
			frame := produceFrame(topic)
			var wg sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(b.N))
			conns := make([]net.Conn, x.producers)
			for i := range conns {
				var err error
				if conns[i], err = net.Dial("tcp", broker.Addr()); err != nil {
					b.Fatal(err)
				}
				defer conns[i].Close()
			}
			b.ResetTimer()
			for _, nc := range conns {
				wg.Go(func() {
					in := make([]byte, 256)
					for left.Add(-1) >= 0 {
						if err := roundTrip(nc, frame, in); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
		})
	}
}

// produceFrame is a Produce v3 with acks=all of one record.
func produceFrame(topic string) []byte {
	batch := record.NewBuilder(nil, record.BuilderOptions{})
	batch.Add(time.Now().UnixMilli(), nil, make([]byte, 100))
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 3, -1, 30000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = batch.Finish()
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 1)
}

// roundTrip sends a produceFrame and wants an answer without an error. The code is behind the
// correlation id, two counts, the topic's name and the partition's number.
func roundTrip(nc net.Conn, frame, in []byte) error {
	if _, err := nc.Write(frame); err != nil {
		return err
	}
	if _, err := io.ReadFull(nc, in[:4]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(in)
	if _, err := io.ReadFull(nc, in[:n]); err != nil {
		return err
	}
	at := 10 + int(binary.BigEndian.Uint16(in[8:])) + 8
	if code := binary.BigEndian.Uint16(in[at:]); code != 0 {
		return fmt.Errorf("answered with code %d", code)
	}
	return nil
}
