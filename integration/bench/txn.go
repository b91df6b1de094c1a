package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var txnOnly = flag.Bool("txn", false, "measure transactions of one record and nothing else; rows of what was measured")

const txnTopic = "written"

// transactions measures one producer by transaction.version 2, which sends what Java's does: Produce, or TxnOffsetCommit and
// Produce, then EndTxn.
func transactions(name string, command []string) (string, error) {
	work, err := os.MkdirTemp("", "ottla-bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	t := &table{name: name, command: command}
	err = t.txnRows(filepath.Join(work, "txn"))
	return strings.TrimSuffix(t.rows.String(), "\n"), err
}

func (t *table) txnRows(dir string) (err error) {
	b, err := start(t.command, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := makeTopic(b.addr, txnTopic, 1); err != nil {
		return err
	}
	for _, offsets := range []bool{false, true} {
		for _, producers := range []int{1, 16} {
			f, took, err := b.commitTransactions(producers, offsets)
			if err != nil {
				return err
			}
			what := "transactions of a record"
			if offsets {
				what += " and an offset"
			}
			what += fmt.Sprintf(", producers: %d", producers)
			t.value(millis(percentile(took, 0.5)), "%s: p50, ms", what)
			t.value(millis(percentile(took, 0.99)), "%s: p99, ms", what)
			t.value(f.rate(), "%s: transactions/s", what)
			t.value(f.each(), "%s: processor each, µs", what)
		}
	}
	return nil
}

// commitTransactions has producers, each with a connection, make transactions as fast as they can. Of each the time is
// measured from the first request on until EndTxn is answered.
func (b *broker) commitTransactions(producers int, offsets bool) (f figures, every []time.Duration, err error) {
	all := make([]*producer, producers)
	for i := range all {
		w, err := dial(b.addr)
		if err != nil {
			return f, nil, err
		}
		defer w.close()
		all[i] = &producer{wire: w, name: fmt.Sprintf("txn-%d-%d-%t", i, producers, offsets), offsets: offsets}
		if err := all[i].init(); err != nil {
			return f, nil, err
		}
		for range 20 { // both sides warm
			if err := all[i].transaction(); err != nil {
				return f, nil, err
			}
		}
	}
	before, err := spent(b.cmd.Process.Pid)
	if err != nil {
		return f, nil, err
	}
	begun := time.Now()
	took := make([][]time.Duration, producers)
	err = each(producers, func(i int) error {
		for time.Since(begun) < *load {
			from := time.Now()
			if err := all[i].transaction(); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(from))
		}
		return nil
	})
	wall := time.Since(begun)
	after, err2 := spent(b.cmd.Process.Pid)
	if err := errors.Join(err, err2); err != nil {
		return f, nil, err
	}
	for _, ds := range took {
		every = append(every, ds...)
	}
	return figures{int64(len(every)), wall, after - before}, every, nil
}

// producer makes transactions of one record.
type producer struct {
	*wire
	name     string
	offsets  bool // an offset of a group goes with each
	id       int64
	epoch    int16
	sequence int32
}

func (p *producer) init() error {
	if err := findCoordinator(p.wire, 1, p.name); err != nil {
		return err
	}
	if err := findCoordinator(p.wire, 0, p.name); err != nil {
		return err
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 5, &p.name, 60_000
	req.ProducerID, req.ProducerEpoch = -1, -1
	return retried(func() error {
		resp, err := answered[*kmsg.InitProducerIDResponse](p.wire, req)
		if err != nil {
			return err
		}
		p.id, p.epoch, p.sequence = resp.ProducerID, resp.ProducerEpoch, 0
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}

func (p *producer) transaction() error {
	if p.offsets {
		if err := retried(p.commitOffset); err != nil {
			return fmt.Errorf("TxnOffsetCommit: %w", err)
		}
	}
	if err := retried(p.produce); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 5, p.name, p.id, p.epoch, true
	return retried(func() error {
		resp, err := answered[*kmsg.EndTxnResponse](p.wire, req)
		if err != nil {
			return err
		}
		if resp.ErrorCode == 0 {
			p.id, p.epoch, p.sequence = resp.ProducerID, resp.ProducerEpoch, 0 // they begin anew with an epoch
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}

func (p *producer) commitOffset() error {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = 5, p.name, p.name, p.id, p.epoch, -1
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic = txnTopic
	one := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	one.Offset, one.LeaderEpoch, one.Metadata = 1, -1, kmsg.StringPtr("")
	t.Partitions = append(t.Partitions, one)
	req.Topics = append(req.Topics, t)
	resp, err := answered[*kmsg.TxnOffsetCommitResponse](p.wire, req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

func (p *producer) produce() error {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.TransactionID, req.Acks, req.TimeoutMillis = 12, &p.name, -1, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = txnTopic
	one := kmsg.NewProduceRequestTopicPartition()
	one.Records = p.batch(make([]byte, 100))
	t.Partitions = append(t.Partitions, one)
	req.Topics = append(req.Topics, t)
	resp, err := answered[*kmsg.ProduceResponse](p.wire, req)
	if err != nil {
		return err
	}
	code := resp.Topics[0].Partitions[0].ErrorCode
	if code == 0 {
		p.sequence++
	}
	return kerr.ErrorForCode(code)
}

// batch is one of one record of the transaction.
func (p *producer) batch(value []byte) []byte {
	rec := []byte{0, 0, 0}             // attributes, timestamp delta, offset delta
	rec = binary.AppendVarint(rec, -1) // no key
	rec = binary.AppendVarint(rec, int64(len(value)))
	rec = append(append(rec, value...), 0) // no headers
	batch := kmsg.NewRecordBatch()
	batch.Magic, batch.Attributes, batch.NumRecords, batch.PartitionLeaderEpoch = 2, 1<<4, 1, -1
	batch.FirstTimestamp = time.Now().UnixMilli()
	batch.MaxTimestamp = batch.FirstTimestamp
	batch.ProducerID, batch.ProducerEpoch, batch.FirstSequence = p.id, p.epoch, p.sequence
	batch.Records = append(binary.AppendVarint(nil, int64(len(rec))), rec...)
	batch.Length = int32(49 + len(batch.Records))
	all := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(all[17:], crc32.Checksum(all[21:], castagnoli))
	return all
}
