package integration

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What the cases ask again and again. Versions are the highest that name topics and not ids,
// where a case does not say.

func (w *wire) createTopic(topic string, partitions int32, replicas int16, validateOnly bool, version int16, settings ...string) kmsg.CreateTopicsResponseTopic {
	w.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.ValidateOnly = 10000, validateOnly
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, partitions, replicas
	for i := 0; i+1 < len(settings); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = settings[i], &settings[i+1]
		rt.Configs = append(rt.Configs, c)
	}
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.CreateTopicsResponse](w, req, version).Topics[0]
}

// topic creates a topic of one replica; settings are name, value pairs.
func (p *pit) topic(w *wire, partitions int32, settings ...string) (string, [16]byte) {
	p.Helper()
	name := p.name()
	got := w.createTopic(name, partitions, 1, false, 7, settings...)
	equal(p, "error of CreateTopics", got.ErrorCode, 0)
	return name, got.TopicID
}

func (w *wire) deleteTopic(topic string) int16 {
	w.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis, req.TopicNames = 10000, []string{topic}
	return ask[*kmsg.DeleteTopicsResponse](w, req, 5).Topics[0].ErrorCode
}

// metadataOf is a Metadata request for these topics; without any it asks for none.
func metadataOf(create bool, topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation, req.Topics = create, []kmsg.MetadataRequestTopic{}
	for i := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &topics[i]
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func (w *wire) metadata(topics ...string) *kmsg.MetadataResponse {
	w.Helper()
	return ask[*kmsg.MetadataResponse](w, metadataOf(false, topics...), 12)
}

func (w *wire) leaderEpoch(topic string) int32 {
	w.Helper()
	got := w.metadata(topic).Topics[0]
	equal(w, "error of Metadata", got.ErrorCode, 0)
	return got.Partitions[0].LeaderEpoch
}

// announced is the range of versions in the answer of ApiVersions.
func (w *wire) announced(key kmsg.Key) (low, high int16) {
	w.Helper()
	for _, k := range ask[*kmsg.ApiVersionsResponse](w, kmsg.NewPtrApiVersionsRequest(), 0).ApiKeys {
		if k.ApiKey == key.Int16() {
			return k.MinVersion, k.MaxVersion
		}
	}
	w.Fatalf("%s is not announced", key.Name())
	return 0, 0
}

// produceOf writes one batch with acks=all.
func produceOf(topic string, partition int32, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (w *wire) produceTo(topic string, partition int32, batch []byte) kmsg.ProduceResponseTopicPartition {
	w.Helper()
	return ask[*kmsg.ProduceResponse](w, produceOf(topic, partition, batch), 12).Topics[0].Partitions[0]
}

func (w *wire) produce(topic string, batch []byte) kmsg.ProduceResponseTopicPartition {
	w.Helper()
	return w.produceTo(topic, 0, batch)
}

// stored writes batches to partition 0 and ends the test unless all are taken.
func (w *wire) stored(topic string, batches ...[]byte) {
	w.Helper()
	for _, b := range batches {
		equal(w, "error of Produce", w.produce(topic, b).ErrorCode, 0)
	}
}

func (w *wire) producerID() (id int64, epoch int16) {
	w.Helper()
	got := ask[*kmsg.InitProducerIDResponse](w, kmsg.NewPtrInitProducerIDRequest(), 4)
	equal(w, "error of InitProducerId", got.ErrorCode, 0)
	return got.ProducerID, got.ProducerEpoch
}

// fetchOf asks for partitions from offset 0 on, without a session and without a wait. It has both
// the name and the id, of which a version sends one.
func fetchOf(topic string, id [16]byte, partitions ...int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 1, 50<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	for _, p := range partitions {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.PartitionMaxBytes = p, 10<<20
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// fetch asks for partition 0 from an offset on.
func (w *wire) fetch(topic string, offset int64, isolation int8) kmsg.FetchResponseTopicPartition {
	w.Helper()
	req := fetchOf(topic, [16]byte{}, 0)
	req.IsolationLevel, req.Topics[0].Partitions[0].FetchOffset = isolation, offset
	return ask[*kmsg.FetchResponse](w, req, 12).Topics[0].Partitions[0]
}

// spot is what ListOffsets says of a partition.
type spot struct {
	code   int16
	offset int64
	at     int64
}

func listOf(topic string, at int64, isolation int8) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel, req.TimeoutMillis = isolation, 10000
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp = at
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (w *wire) list(topic string, at int64, isolation int8, version int16) spot {
	w.Helper()
	p := ask[*kmsg.ListOffsetsResponse](w, listOf(topic, at, isolation), version).Topics[0].Partitions[0]
	return spot{p.ErrorCode, p.Offset, p.Timestamp}
}

func (w *wire) end(topic string) int64   { w.Helper(); return w.list(topic, -1, 0, 7).offset }
func (w *wire) start(topic string) int64 { w.Helper(); return w.list(topic, -2, 0, 7).offset }

// consume reads n records of a topic with a consumer.
func consume(tb testing.TB, addr, topic string, n int, opts ...kgo.Opt) (all []*kgo.Record) {
	tb.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	defer cl.Close()
	ctx, stop := context.WithTimeout(tb.Context(), patience)
	defer stop()
	for len(all) < n {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			tb.Fatalf("consumer after %d of %d records: %v", len(all), n, err)
		}
		all = append(all, fs.Records()...)
	}
	equal(tb, "records", len(all), n)
	return all
}

// txnWriter writes to partition 0 of a topic in transactions, by the requests of clients before
// transactions v2 (KIP-890).
type txnWriter struct {
	*wire
	id, topic string
	producer  int64
	epoch     int16
	sequence  int32
}

func (p *pit) txnWriter(topic string) *txnWriter {
	p.Helper()
	w := &txnWriter{wire: p.dial(), id: p.name(), topic: topic}
	w.coordinator(w.id, 1)
	eventually(p, "InitProducerId gives an id", patience, func() bool {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &w.id, 60000
		got := ask[*kmsg.InitProducerIDResponse](w.wire, req, 4)
		w.producer, w.epoch = got.ProducerID, got.ProducerEpoch
		return got.ErrorCode == 0
	})
	return w
}

// add stores one record in the transaction and returns its offset.
func (w *txnWriter) add(s sample) int64 {
	w.Helper()
	eventually(w, "AddPartitionsToTxn is taken", patience, func() bool {
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = w.id, w.producer, w.epoch
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic, rt.Partitions = w.topic, []int32{0}
		req.Topics = append(req.Topics, rt)
		code := ask[*kmsg.AddPartitionsToTxnResponse](w.wire, req, 3).Topics[0].Partitions[0].ErrorCode
		if code != 0 && code != 51 { // CONCURRENT_TRANSACTIONS: the one before is not through
			w.Fatalf("error of AddPartitionsToTxn: %d", code)
		}
		return code == 0
	})
	req := produceOf(w.topic, 0, newBatch(func(b *kmsg.RecordBatch) {
		b.Attributes |= 1 << 4
		from(w.producer, w.epoch, w.sequence)(b)
	}, s))
	req.TransactionID = &w.id
	got := ask[*kmsg.ProduceResponse](w.wire, req, 11).Topics[0].Partitions[0]
	equal(w, "error of Produce in a transaction", got.ErrorCode, 0)
	w.sequence++
	return got.BaseOffset
}

func (w *txnWriter) finish(commit bool) {
	w.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = w.id, w.producer, w.epoch, commit
	equal(w, "error of EndTxn", ask[*kmsg.EndTxnResponse](w.wire, req, 3).ErrorCode, 0)
}
