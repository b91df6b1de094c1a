package integration

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var fetchPitfalls = []pitfall{
	{"fetch-1", batchAboveTheLimits}, {"fetch-2", sizeOfAnswer}, {"fetch-3", emptyIncrementalFetch},
	{"fetch-4", readCommitted}, {"fetch-5", abortedList}, {"fetch-6", leaderEpochInSessions},
}

func batchAboveTheLimits(p *pit) {
	w := p.dial()
	topic, id := p.topic(w, 3, "max.message.bytes", "3000000")
	large := newBatch(nil, sample{value: make([]byte, 2<<20)})
	for _, partition := range []int32{1, 2} {
		equal(p, "error of Produce", w.produceTo(topic, partition, large).ErrorCode, 0)
	}
	_, high := w.announced(kmsg.Fetch)
	for v := int16(4); v <= high; v++ {
		req := fetchOf(topic, id, 0, 1, 2) // 0 is empty
		req.MaxBytes = 1
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].PartitionMaxBytes = 1
		}
		for _, has := range []int32{1, 2} {
			for _, got := range ask[*kmsg.FetchResponse](w, req, v).Topics[0].Partitions {
				want := 0
				if got.Partition == has {
					want = len(large)
				}
				equal(p, "error", got.ErrorCode, 0)
				equal(p, fmt.Sprintf("v%d: bytes of partition %d", v, got.Partition), len(got.RecordBatches), want)
				equal(p, "records are whole batches", len(batchesIn(p, got.RecordBatches)), want/len(large))
			}
			req.Topics[0].Partitions[has].FetchOffset++
		}
	}
	consume(p, p.broker(), topic, 2, kgo.FetchMaxBytes(1), kgo.FetchMaxPartitionBytes(1))
}

func sizeOfAnswer(p *pit) {
	const n, size, limit = 100, 10_000, 50_000
	w := p.dial()
	topic, id := p.topic(w, n)
	half := newBatch(nil, sample{value: make([]byte, size/2-80)})
	for partition := range int32(n) {
		for range 2 {
			equal(p, "error of Produce", w.produceTo(topic, partition, half).ErrorCode, 0)
		}
	}
	_, high := w.announced(kmsg.Fetch)
	for _, v := range []int16{3, 4, 11, high} {
		var offsets [n]int64
		rounds, done := 0, 0
		for ; done < 2*n; rounds++ {
			req := fetchOf(topic, id)
			req.MaxBytes = limit
			for partition := range int32(n) {
				rp := kmsg.NewFetchRequestTopicPartition()
				rp.Partition, rp.PartitionMaxBytes, rp.FetchOffset = partition, size, offsets[partition]
				if offsets[partition] < 2 {
					req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
				}
			}
			total, before := 0, done
			for _, got := range ask[*kmsg.FetchResponse](w, req, v).Topics[0].Partitions {
				equal(p, "error", got.ErrorCode, 0)
				total += len(got.RecordBatches)
				if v < 4 { // messages of the format before batches, which were all of one record
					for b := got.RecordBatches; len(b) > 0; done++ {
						var m kmsg.MessageV1
						if err := m.ReadFrom(b); err != nil {
							break // the last one may be cut in these versions
						}
						offsets[got.Partition]++
						b = b[12+m.MessageSize:]
					}
					continue
				}
				whole := len(batchesIn(p, got.RecordBatches))
				offsets[got.Partition] += int64(whole)
				done += whole
			}
			if total > limit {
				p.Fatalf("v%d: %d bytes of records, want at most %d", v, total, limit)
			}
			if done == before {
				p.Fatalf("v%d: nothing came after %d of %d batches", v, done, 2*n)
			}
		}
		if rounds < n*size/limit {
			p.Errorf("v%d: all came in %d answers", v, rounds)
		}
	}
}

func emptyIncrementalFetch(p *pit) {
	w, other := p.dial(), p.dial()
	topic, id := p.topic(w, 2)
	_, high := w.announced(kmsg.Fetch)
	for round, v := range []int16{7, 11, high} {
		full := fetchOf(topic, id, 0, 1)
		for i := range full.Topics[0].Partitions {
			full.Topics[0].Partitions[i].FetchOffset = int64(round)
		}
		full.SessionEpoch = 0
		first := ask[*kmsg.FetchResponse](w, full, v)
		equal(p, "error of the full fetch", first.ErrorCode, 0)
		equal(p, "partitions of the full fetch", len(first.Topics[0].Partitions), 2)
		equal(p, "the full fetch made no session", first.SessionID == 0, false)

		next := kmsg.NewPtrFetchRequest()
		next.SessionID, next.SessionEpoch, next.MaxWaitMillis, next.MinBytes, next.MaxBytes = first.SessionID, 1, 1000, 1, 50<<20
		begun := time.Now()
		got := ask[*kmsg.FetchResponse](w, next, v)
		equal(p, "error of the empty fetch", got.ErrorCode, 0)
		equal(p, "session", got.SessionID, first.SessionID)
		equal(p, "topics in the answer without news", len(got.Topics), 0)
		if took := time.Since(begun); took < time.Second {
			p.Errorf("v%d: answered after %v, want max_wait", v, took)
		}

		next.SessionEpoch, next.MaxWaitMillis = 2, 60000
		w.send(next, v)
		w.quiet(100 * time.Millisecond)
		equal(p, "error of Produce", other.produceTo(topic, 1, newBatch(nil, values("v")...)).ErrorCode, 0)
		got = receive[*kmsg.FetchResponse](w)
		equal(p, "topics with news", len(got.Topics), 1)
		equal(p, "partitions with news", len(got.Topics[0].Partitions), 1)
		equal(p, "partition with news", got.Topics[0].Partitions[0].Partition, 1)
		equal(p, "batches", len(batchesIn(p, got.Topics[0].Partitions[0].RecordBatches)), 1)

		equal(p, "error of Produce", other.produceTo(topic, 0, newBatch(nil, values("v")...)).ErrorCode, 0) // both ends are alike again
		next.SessionEpoch = 9
		equal(p, "error of a wrong session epoch", ask[*kmsg.FetchResponse](w, next, v).ErrorCode, 71)
		next.SessionID ^= 1 << 20
		equal(p, "error of an unknown session", ask[*kmsg.FetchResponse](w, next, v).ErrorCode, 70)
	}
}

func readCommitted(p *pit) {
	p.needsTransactions()
	w := p.dial()
	topic, _ := p.topic(w, 1)
	w.stored(topic, newBatch(nil, values("before")...))
	txn := p.txnWriter(topic)
	equal(p, "offset of the open record", txn.add(values("open")[0]), 1)
	w.stored(topic, newBatch(nil, values("plain")...))
	see := func(offset int64, isolation int8, high, stable int64, batches int) {
		p.Helper()
		got := w.fetch(topic, offset, isolation)
		equal(p, "error", got.ErrorCode, 0)
		equal(p, "high watermark", got.HighWatermark, high)
		equal(p, "last stable offset", got.LastStableOffset, stable)
		equal(p, "batches", len(batchesIn(p, got.RecordBatches)), batches)
		equal(p, "aborted transactions", len(got.AbortedTransactions), 0)
	}
	see(0, 1, 3, 1, 1)
	see(1, 1, 3, 1, 0)
	see(2, 1, 3, 1, 0) // above the last stable offset is no error
	see(0, 0, 3, 1, 3)
	txn.finish(true)
	eventually(p, "the last stable offset goes behind the marker", patience, func() bool { return w.fetch(topic, 0, 1).LastStableOffset == 4 })
	see(0, 1, 4, 4, 4)
}

func abortedList(p *pit) {
	p.needsTransactions()
	w := p.dial()
	topic, _ := p.topic(w, 1)
	txn := p.txnWriter(topic)
	txn.add(values("one")[0]) // offset 0, its marker 1
	req := fetchOf(topic, [16]byte{}, 0)
	req.IsolationLevel, req.MaxWaitMillis, req.MinBytes = 1, 2000, 1<<20
	w.send(req, 11)
	w.quiet(50 * time.Millisecond)
	txn.finish(false)
	txn.add(values("two")[0]) // 2 and 3
	txn.finish(true)
	txn.add(values("three")[0]) // 4 and 5
	txn.finish(false)
	eventually(p, "the third transaction is over", patience, func() bool { return txn.list(topic, -1, 1, 7).offset == 6 })
	got := receive[*kmsg.FetchResponse](w).Topics[0].Partitions[0]
	equal(p, "error", got.ErrorCode, 0)
	equal(p, "last stable offset", got.LastStableOffset, 6)
	equal(p, "batches with markers", len(batchesIn(p, got.RecordBatches)), 6)
	equal(p, "aborted transactions", len(got.AbortedTransactions), 2)
	for i, first := range []int64{0, 4} {
		equal(p, "first offset", got.AbortedTransactions[i].FirstOffset, first)
		equal(p, "producer", got.AbortedTransactions[i].ProducerID, txn.producer)
	}
	equal(p, "the list is null at isolation 0", w.fetch(topic, 0, 0).AbortedTransactions == nil, true)
	equal(p, "aborted transactions from offset 2 on", len(w.fetch(topic, 2, 1).AbortedTransactions), 1)

	txn.add(values("four")[0]) // 6, then 7 and the marker 8
	req.Topics[0].Partitions[0].FetchOffset, req.MaxWaitMillis, req.MinBytes = 6, 60000, 1
	w.send(req, 11)
	w.quiet(50 * time.Millisecond)
	txn.add(values("five")[0])
	w.quiet(200 * time.Millisecond) // records above the last stable offset do not end the wait
	txn.finish(false)
	got = receive[*kmsg.FetchResponse](w).Topics[0].Partitions[0]
	equal(p, "last stable offset", got.LastStableOffset, 9)
	equal(p, "batches with the marker", len(batchesIn(p, got.RecordBatches)), 3)
	equal(p, "aborted transactions", len(got.AbortedTransactions), 1)
	equal(p, "first offset", got.AbortedTransactions[0].FirstOffset, 6)

	txn.add(values("six")[0])
	txn.finish(true)
	seen := consume(p, p.broker(), topic, 2, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	equal(p, "what a consumer sees", string(seen[0].Value)+" "+string(seen[1].Value), "two six")
}

// leaderEpochInSessions asks in every way with the leader's epoch, a higher and a lower one; a restart raises it.
func leaderEpochInSessions(p *pit) {
	b := p.process()
	w := dialWire(p, b.Addr())
	topic, id := p.topic(w, 1)
	w.stored(topic, newBatch(nil, values("v")...))
	b.Restart()
	w = dialWire(p, b.Addr())
	epoch := w.leaderEpoch(topic)
	if epoch == 0 {
		p.Fatal("the restart did not raise the leader's epoch")
	}
	_, high := w.announced(kmsg.Fetch)
	for _, v := range []int16{9, 11, 12, high} {
		for asked, code := range map[int32]int16{epoch: 0, epoch + 1: 75, epoch - 1: 74, -1: 0} {
			if asked == -1 && epoch == 0 {
				continue
			}
			req := fetchOf(topic, id, 0)
			req.Topics[0].Partitions[0].CurrentLeaderEpoch = asked
			what := fmt.Sprintf("v%d, epoch %d of %d: error of ", v, asked, epoch)
			equal(p, what+"a full fetch", ask[*kmsg.FetchResponse](w, req, v).Topics[0].Partitions[0].ErrorCode, code)

			full := fetchOf(topic, id, 0)
			full.SessionEpoch = 0
			req.SessionID, req.SessionEpoch = ask[*kmsg.FetchResponse](w, full, v).SessionID, 1
			got := ask[*kmsg.FetchResponse](w, req, v)
			equal(p, what+"the session", got.ErrorCode, 0)
			equal(p, what+"an incremental fetch: topics", len(got.Topics), 1)
			equal(p, what+"an incremental fetch", got.Topics[0].Partitions[0].ErrorCode, code)

			list := listOf(topic, -1, 0)
			list.Topics[0].Partitions[0].CurrentLeaderEpoch = asked
			equal(p, what+"ListOffsets", ask[*kmsg.ListOffsetsResponse](w, list, 5).Topics[0].Partitions[0].ErrorCode, code)
		}
	}
}
