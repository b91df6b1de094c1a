package integration

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var encodingPitfalls = []pitfall{
	{"enc-1", newerApiVersions}, {"enc-2", headersOfFlexibleRequests}, {"enc-3", recordsAreNeverNull}, {"enc-4", oldProduce},
	{"enc-5", garbage}, {"enc-6", answersInOrder}, {"enc-7", saramaReleases}, {"enc-8", oldListOffsets},
}

// newerApiVersions: a client that asks in too high a version learns the range from a v0 answer and
// goes on on the same connection.
func newerApiVersions(p *pit) {
	w := p.dial()
	req := kmsg.NewPtrApiVersionsRequest()
	b := w.frame(req, 3)
	binary.BigEndian.PutUint16(b[6:], 99)
	w.write(b)
	got, err := w.read(patience)
	if err != nil {
		p.Fatal(err)
	}
	resp, _, err := decodeAnswer(req, 0, got)
	if err != nil {
		p.Fatalf("the answer is not v0: %v", err)
	}
	v0 := resp.(*kmsg.ApiVersionsResponse)
	equal(p, "error", v0.ErrorCode, 35)
	named := false
	for _, k := range v0.ApiKeys {
		named = named || k.ApiKey == 18 && k.MinVersion == 0 && k.MaxVersion >= 3
	}
	equal(p, "ApiVersions is in the answer", named, true)
	for v := range int16(5) {
		if v == 3 {
			req.ClientSoftwareName, req.ClientSoftwareVersion = "pitfall", "1"
		}
		equal(p, fmt.Sprintf("error of v%d", v), ask[*kmsg.ApiVersionsResponse](w, req, v).ErrorCode, 0)
	}
}

// frameBy is frame with a chosen client id and chosen tags in a flexible header.
func (w *wire) frameBy(clientID *string, tags []byte, req kmsg.Request, version int16) []byte {
	w.correlation++
	req.SetVersion(version)
	b := kbin.AppendInt16(make([]byte, 4), req.Key())
	b = kbin.AppendInt16(b, version)
	b = kbin.AppendInt32(b, w.correlation)
	b = kbin.AppendNullableString(b, clientID)
	if req.IsFlexible() {
		b = append(b, tags...)
	}
	b = req.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func headersOfFlexibleRequests(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1)
	empty, some := "", "x"
	for _, clientID := range []*string{nil, &empty, &some} {
		for _, tags := range [][]byte{{0}, {1, 0xc8, 0x01, 3, 'a', 'b', 'c'}} { // none; number 200 with three bytes
			req := metadataOf(false, topic)
			if len(tags) > 1 {
				req.UnknownTags.Set(201, []byte("of the body"))
				req.Topics[0].UnknownTags.Set(202, []byte("of an element"))
			}
			w.write(w.frameBy(clientID, tags, req, 9))
			w.sent = append(w.sent, sentRequest{req, 9, w.correlation})
			got := receive[*kmsg.MetadataResponse](w).Topics[0]
			equal(p, "error", got.ErrorCode, 0)
			equal(p, "partitions", len(got.Partitions), 1)
		}
	}
}

func recordsAreNeverNull(p *pit) {
	w := p.dial()
	topic, id := p.topic(w, 2)
	w.stored(topic, newBatch(nil, values("v")...))
	low, high := w.announced(kmsg.Fetch)
	for v := low; v <= high; v++ {
		for what, x := range map[string]struct {
			partition int32
			offset    int64
			code      int16
		}{"empty partition": {1, 0, 0}, "log end": {0, 1, 0}, "out of range": {0, 99, 1}, "negative": {0, -7, 1}} {
			req := fetchOf(topic, id, x.partition)
			req.Topics[0].Partitions[0].FetchOffset = x.offset
			got := ask[*kmsg.FetchResponse](w, req, v).Topics[0].Partitions[0]
			equal(p, fmt.Sprintf("v%d, %s: error", v, what), got.ErrorCode, x.code)
			equal(p, fmt.Sprintf("v%d, %s: records are null", v, what), got.RecordBatches == nil, false)
			equal(p, fmt.Sprintf("v%d, %s: bytes of records", v, what), len(got.RecordBatches), 0)
		}
	}
}

// messageSet encodes values as messages of an old format (magic 0 or 1), compressed as one message
// where a codec is given.
func messageSet(magic, codec int8, vs ...string) []byte {
	message := func(offset int64, attributes int8, value []byte) []byte {
		body := []byte{byte(magic), byte(attributes)}
		if magic == 1 {
			body = kbin.AppendInt64(body, time.Now().UnixMilli())
		}
		body = kbin.AppendNullableBytes(body, nil)
		body = kbin.AppendNullableBytes(body, value)
		b := kbin.AppendInt64(nil, offset)
		b = kbin.AppendInt32(b, int32(len(body)+4))
		b = kbin.AppendUint32(b, crc32.ChecksumIEEE(body))
		return append(b, body...)
	}
	var set []byte
	for i, v := range vs {
		set = append(set, message(int64(i), 0, []byte(v))...)
	}
	if codec == 1 {
		return message(int64(len(vs)-1), codec, gzipOf(set))
	}
	return set
}

// oldProduce: Produce is announced from v0 and served from v0, as by 3.9.1: old librdkafka turns its compression
// off where it is not announced.
func oldProduce(p *pit) {
	w := p.dial()
	low, _ := w.announced(kmsg.Produce)
	equal(p, "lowest announced version of Produce", low, 0)
	for v := range int16(4) {
		topic, _ := p.topic(w, 1)
		batch := newBatch(gzipped, values("a", "b", "c")...)
		switch v {
		case 0, 1:
			batch = messageSet(0, 1, "a", "b", "c")
		case 2:
			batch = messageSet(1, 1, "a", "b", "c")
		}
		got := ask[*kmsg.ProduceResponse](w, produceOf(topic, 0, batch), v).Topics[0].Partitions[0]
		equal(p, fmt.Sprintf("v%d: error", v), got.ErrorCode, 0)
		kept := batchesIn(p, w.fetch(topic, 0, 0).RecordBatches)
		equal(p, fmt.Sprintf("v%d: stored batches", v), len(kept), 1)
		equal(p, fmt.Sprintf("v%d: stored codec", v), kept[0].Attributes&7, 1)
		for i, r := range consume(p, p.broker(), topic, 3) {
			equal(p, fmt.Sprintf("v%d: value", v), string(r.Value), string("abc"[i]))
		}
	}
}

// garbage: what is no request ends its own connection, without an answer, and nothing else.
func garbage(p *pit) {
	other := p.dial()
	unserved := func(key, version int16) []byte {
		b := other.frame(metadataOf(false), 9)
		other.correlation--
		binary.BigEndian.PutUint16(b[4:], uint16(key))
		binary.BigEndian.PutUint16(b[6:], uint16(version))
		return b
	}
	for what, b := range map[string][]byte{
		"HTTP":                              []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"length -1":                         {255, 255, 255, 255},
		"length above the limit":            {0x06, 0x40, 0, 1},
		"length 0":                          {0, 0, 0, 0},
		"cut header":                        {0, 0, 0, 3, 0, 3, 0},
		"header without a correlation id":   {0, 0, 0, 4, 0, 3, 0, 9},
		"client id longer than the frame":   {0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff},
		"header without a body":             {0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 255, 255},
		"array longer than the frame":       {0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 255, 255, 0x7f, 0xff, 0xff, 0xff},
		"known request in too high version": unserved(3, 100),
		"Produce v100":                      unserved(0, 100),
		"version -1":                        unserved(3, -1),
		"unknown request":                   unserved(9999, 0),
	} {
		w := p.dial()
		w.write(b)
		w.wantClosed(what)
		equal(p, "brokers told to another connection after "+what, len(other.metadata().Brokers), 1)
	}
	w := p.dial()
	w.write([]byte{0x06, 0x40, 0, 0}) // 100 MiB, just the limit
	w.quiet(100 * time.Millisecond)
	equal(p, "brokers told to another connection meanwhile", len(other.metadata().Brokers), 1)
}

// answersInOrder: answers leave in the order of the requests, also when an earlier one has to wait.
func answersInOrder(p *pit) {
	topic, _ := p.topic(p.dial(), 1)
	names := metadataOf(false, topic)
	p.part("Fetch", func(p *pit) {
		w := p.dial()
		topic, id := p.topic(w, 1)
		begun := time.Now()
		fetch := fetchOf(topic, id, 0)
		fetch.MaxWaitMillis = 500
		w.send(fetch, 11)
		w.send(names, 9)
		equal(p, "error of Fetch", receive[*kmsg.FetchResponse](w).ErrorCode, 0)
		if took := time.Since(begun); took < 500*time.Millisecond {
			p.Errorf("Fetch was answered after %v, want max_wait", took)
		}
		equal(p, "topics of Metadata", len(receive[*kmsg.MetadataResponse](w).Topics), 1)
	})
	p.part("JoinGroup", func(p *pit) {
		g := p.name()
		first, second := p.member(g), p.member(g)
		settle(first)
		second.ready()
		second.send(second.joinRequest(), 9)
		second.wire.send(names, 9)
		first.wait(g, "PreparingRebalance", 2)
		second.quiet(50 * time.Millisecond)
		equal(p, "error of the leader's join", first.join().ErrorCode, 0)
		equal(p, "error of JoinGroup", second.joined().ErrorCode, 0)
		equal(p, "topics of Metadata", len(receive[*kmsg.MetadataResponse](second.wire).Topics), 1)
	})
	p.part("Produce", func(p *pit) {
		w := p.dial()
		for range 3 {
			w.send(produceOf(topic, 0, newBatch(nil, values("v")...)), 9)
			w.send(names, 9)
		}
		for range 3 {
			equal(p, "error of Produce", receive[*kmsg.ProduceResponse](w).Topics[0].Partitions[0].ErrorCode, 0)
			equal(p, "topics of Metadata", len(receive[*kmsg.MetadataResponse](w).Topics), 1)
		}
	})
}

// saramaReleases: sarama sends the versions of the release that it is configured for, whatever is announced.
func saramaReleases(p *pit) {
	for _, v := range []sarama.KafkaVersion{sarama.V2_4_0_0, sarama.V2_8_0_0, sarama.V3_6_0_0, sarama.V4_0_0_0} {
		p.part(v.String(), func(p *pit) {
			ctx, stop := context.WithTimeout(p.Context(), patience)
			defer stop()
			c := dialSarama(p.T, p.broker(), v)
			defer c.close()
			topic, g := p.name(), p.name()
			must := func(err error) {
				p.Helper()
				if err != nil {
					p.Fatal(err)
				}
			}
			must(c.createTopic(ctx, topic, 1))
			_, err := c.topics(ctx)
			must(err)
			must(c.send(ctx, topic, "none", messages(0, 1, time.Now())))
			m, err := c.join(ctx, g, topic)
			must(err)
			select {
			case <-m.records():
			case <-ctx.Done():
				p.Fatal("no record came")
			}
			must(m.commit(ctx))
			must(m.leave())
			eventually(p, "the offset is committed", patience, func() bool {
				at, err := c.committed(ctx, g, topic)
				must(err)
				return at[0] == 1
			})
		})
	}
}

// oldListOffsets: v0 answers a list of offsets that are not after the time, newest first.
func oldListOffsets(p *pit) {
	w := p.dial()
	topic, _ := p.topic(w, 1)
	for range 3 {
		w.stored(topic, newBatch(nil, values("v")...))
	}
	if low, _ := w.announced(kmsg.ListOffsets); low > 0 {
		p.Skip("v0 is not announced")
	}
	for _, x := range []struct {
		at    int64
		count int32
		want  string
	}{{-1, 2, "[3 0]"}, {-1, 1, "[3]"}, {-2, 2, "[0]"}, {1000, 2, "[]"}, {-1, 0, "[]"}} {
		req := listOf(topic, x.at, 0)
		req.Topics[0].Partitions[0].MaxNumOffsets = x.count
		got := ask[*kmsg.ListOffsetsResponse](w, req, 0).Topics[0].Partitions[0]
		equal(p, "error", got.ErrorCode, 0)
		equal(p, fmt.Sprintf("%d offsets at %d", x.count, x.at), fmt.Sprint(got.OldStyleOffsets), x.want)
	}
}
