package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var networkPitfalls = []pitfall{{"net-1", idleConnections}, {"net-2", openMeansReady}, {"net-3", twoListeners}, {"net-4", sendsWithoutReading}}

// idleConnections: a connection whose fetch waits is not idle, other than in Kafka, which closes it.
func idleConnections(p *pit) {
	const limit = 1500 * time.Millisecond
	addr := p.broker("connections.max.idle.ms=1500")
	waiting := dialWire(p, addr)
	topic, _ := p.topic(waiting, 1)
	idle, fresh, used := dialWire(p, addr), dialWire(p, addr), dialWire(p, addr)
	idle.metadata()
	fetch := fetchOf(topic, [16]byte{}, 0)
	fetch.MaxWaitMillis = 3000
	waiting.send(fetch, 11)
	for range 12 {
		used.quiet(250 * time.Millisecond)
		used.metadata()
	}
	equal(p, "error of the fetch that waited", receive[*kmsg.FetchResponse](waiting).ErrorCode, 0)
	idle.wantClosed("an idle connection")
	fresh.wantClosed("a connection that never asked anything")
	used.metadata()

	soon := dialWire(p, addr)
	soon.metadata()
	begun := time.Now()
	soon.wantClosed("an idle connection")
	if took := time.Since(begun); took < limit-limit/10 {
		p.Errorf("an idle connection was closed after %v, want %v", took, limit)
	}
}

// openMeansReady dials from before the start on; the first connection that is taken is answered right.
func openMeansReady(p *pit) {
	b := p.process()
	w := dialWire(p, b.Addr())
	topic, id := p.topic(w, 1)
	w.stored(topic, newBatch(nil, values("x")...))
	group := p.name()
	equal(p, "error of OffsetCommit", w.commitAlone(8, group, topic, 1), 0)
	b.Kill()
	ctx, stop := context.WithTimeout(p.Context(), patience)
	defer stop()
	addr, first := b.Addr(), make(chan net.Conn, 1)
	go func() {
		defer close(first)
		tick := time.NewTicker(500 * time.Microsecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if nc, err := net.Dial("tcp", addr); err == nil {
				first <- nc
				return
			}
			<-tick.C
		}
	}()
	b.Start()
	nc := <-first
	if nc == nil {
		p.Fatal("no connection is taken")
	}
	defer nc.Close()
	w = &wire{TB: p, nc: nc}
	m := w.metadata(topic)
	equal(p, "brokers", len(m.Brokers), 1)
	equal(p, "error of Metadata", m.Topics[0].ErrorCode, 0)
	equal(p, "topic id", m.Topics[0].TopicID, id)
	equal(p, "leader", m.Topics[0].Partitions[0].Leader, m.Brokers[0].NodeID)
	equal(p, "error of FindCoordinator", w.findCoordinator(group).ErrorCode, 0)
	got := w.produce(topic, newBatch(nil, values("y")...))
	equal(p, "error of Produce", got.ErrorCode, 0)
	equal(p, "offset of Produce", got.BaseOffset, 1)
}

func (w *wire) findCoordinator(group string) *kmsg.FindCoordinatorResponse {
	w.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey = group
	return ask[*kmsg.FindCoordinatorResponse](w, req, 3)
}

// describeCluster gives the address of the only broker, and the cluster id.
func (w *wire) describeCluster() (broker, cluster string) {
	w.Helper()
	got := ask[*kmsg.DescribeClusterResponse](w, kmsg.NewPtrDescribeClusterRequest(), 1)
	equal(w, "error of DescribeCluster", got.ErrorCode, 0)
	equal(w, "brokers", len(got.Brokers), 1)
	return hostPortOf(got.Brokers[0].Host, got.Brokers[0].Port), got.ClusterID
}

func hostPortOf(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// twoListeners: names are those of the listener that is asked; a client of each goes through produce and
// a group and never needs another name.
func twoListeners(p *pit) {
	advertised := []string{"inside.test:19092", "outside.test:29092"}
	b := p.shelf.broker(append([]string{
		"listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
		"listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
		"inter.broker.listener.name=INSIDE",
		"advertised.listeners=INSIDE://" + advertised[0] + ",OUTSIDE://" + advertised[1],
	}, quick...)...)
	equal(p, "sockets", len(b.addrs), 2)
	for i, addr := range b.addrs {
		p.part(advertised[i], func(p *pit) {
			w := dialWire(p, addr)
			for v := int16(1); v <= 13; v++ {
				m := ask[*kmsg.MetadataResponse](w, metadataOf(false), v)
				equal(p, "brokers in Metadata", len(m.Brokers), 1)
				equal(p, "address in Metadata", hostPortOf(m.Brokers[0].Host, m.Brokers[0].Port), advertised[i])
			}
			topic, group := p.name(), p.name()
			equal(p, "error of CreateTopics", w.createTopic(topic, 1, 1, false, 7).ErrorCode, 0)
			f := w.findCoordinator(group)
			equal(p, "error of FindCoordinator", f.ErrorCode, 0)
			equal(p, "address in FindCoordinator", hostPortOf(f.Host, f.Port), advertised[i])
			d, _ := w.describeCluster()
			equal(p, "address in DescribeCluster", d, advertised[i])

			only := kgo.Dialer(func(ctx context.Context, network, host string) (net.Conn, error) {
				if host != advertised[i] {
					return nil, fmt.Errorf("%s is not a name of this side", host)
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			})
			ctx, stop := context.WithTimeout(p.Context(), patience)
			defer stop()
			cl, err := kgo.NewClient(only, kgo.SeedBrokers(advertised[i]), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
			if err != nil {
				p.Fatal(err)
			}
			defer cl.Close()
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
				p.Fatal(err)
			}
			fs := cl.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				p.Fatal(err)
			}
			equal(p, "records", fs.NumRecords(), 1)
			if err := cl.CommitUncommittedOffsets(ctx); err != nil {
				p.Fatal(err)
			}
			equal(p, "committed offset", w.committed(group, topic, 0), 1)
		})
	}
}

// sendsWithoutReading: the broker stops to read a connection whose answers are not taken, or takes its
// requests one at a time; its memory stays bounded, and other connections do not notice.
func sendsWithoutReading(p *pit) {
	p.part("large answers", func(p *pit) {
		const total = 24 << 20
		b := p.process()
		w, other := dialWire(p, b.Addr()), dialWire(p, b.Addr())
		_ = w.nc.(*net.TCPConn).SetReadBuffer(64 << 10)
		req := kmsg.NewPtrDescribeConfigsRequest()
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, fmt.Sprint(w.metadata().Brokers[0].NodeID)
		req.Resources = append(req.Resources, r)
		one := w.frame(req, 4)
		first, sent := w.correlation, 0
		for many := bytes.Repeat(one, 1000); sent < total; {
			for at := 0; at < len(many); at += len(one) {
				binary.BigEndian.PutUint32(many[at+8:], uint32(first)+uint32((sent+at)/len(one)))
			}
			_ = w.nc.SetWriteDeadline(time.Now().Add(time.Second))
			n, err := w.nc.Write(many)
			sent += n
			if err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					p.Fatal(err)
				}
				break
			}
		}
		if sent >= total {
			p.Fatalf("%d requests with answers of kilobytes were taken while none was read", sent/len(one))
		}
		for range 10 {
			equal(p, "brokers told to another connection", len(other.metadata().Brokers), 1)
		}
		boundedMemory(p, b)
		for i := range min(sent/len(one), 2000) {
			got, err := w.read(patience)
			if err != nil {
				p.Fatalf("answer %d: %v", i, err)
			}
			equal(p, "correlation id", int32(binary.BigEndian.Uint32(got)), first+int32(i))
		}
	})
	p.part("large requests", func(p *pit) {
		const n = 300 // of 1 MB, many times what the broker may keep
		b := p.process()
		w, other := dialWire(p, b.Addr()), dialWire(p, b.Addr())
		topic, _ := p.topic(w, 1)
		one := w.frame(produceOf(topic, 0, newBatch(nil, sample{value: make([]byte, 1000000)})), 9)
		first := w.correlation
		written := make(chan error, 1)
		go func() {
			for i := range int32(n) {
				binary.BigEndian.PutUint32(one[8:], uint32(first+i))
				_ = w.nc.SetWriteDeadline(time.Now().Add(patience))
				if _, err := w.nc.Write(one); err != nil {
					written <- err
					return
				}
			}
			written <- nil
		}()
		for range 20 {
			equal(p, "brokers told to another connection", len(other.metadata().Brokers), 1)
		}
		boundedMemory(p, b)
		for i := range int32(n) {
			w.sent = append(w.sent, sentRequest{kmsg.NewPtrProduceRequest(), 9, first + i})
			got := receive[*kmsg.ProduceResponse](w).Topics[0].Partitions[0]
			equal(p, "error", got.ErrorCode, 0)
			equal(p, "offset", got.BaseOffset, int64(i))
		}
		if err := <-written; err != nil {
			p.Fatal(err)
		}
		boundedMemory(p, b)
	})
}

// boundedMemory holds a broker to a small part of what it has been sent, where the system tells.
func boundedMemory(p *pit, b *Broker) {
	p.Helper()
	const most = 100 << 10 // KiB
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", b.PID()))
	if err != nil {
		return
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if peak, ok := strings.CutPrefix(sc.Text(), "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(peak, "kB")))
			if err != nil || kib > most {
				p.Errorf("the broker had %s resident, want at most %d kB", peak, most)
			}
		}
	}
}
