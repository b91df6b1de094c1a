//go:build clients

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hang leaves a transaction open in a partition that no coordinator knows of, as before KIP-890 a Produce did that
// came after the end of its transaction. Its record was made an hour ago.
func hang(t *testing.T, addr, topic string, partition int32) (producer int64) {
	t.Helper()
	cl := kgoDial(t, kgo.SeedBrokers(addr))
	init := kmsg.NewPtrInitProducerIDRequest()
	id := request[*kmsg.InitProducerIDResponse](t, cl, init)
	equal(t, "error of InitProducerId", id.ErrorCode, 0)
	r := kmsg.NewPtrProduceRequest()
	r.TransactionID, r.Acks, r.TimeoutMillis = kmsg.StringPtr("hanging"), -1, 5000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rp.Partition = partition
	rp.Records = newBatch(func(b *kmsg.RecordBatch) {
		from(id.ProducerID, id.ProducerEpoch, 0)(b)
		b.Attributes |= 1 << 4
	}, sample{value: []byte("hangs"), at: time.Now().Add(-time.Hour).UnixMilli()})
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	w := dialWire(t, addr)
	p := ask[*kmsg.ProduceResponse](w, r, 11)
	equal(t, "error of Produce", p.Topics[0].Partitions[0].ErrorCode, 0)
	return id.ProducerID
}

// transactions runs kafka-transactions, whose options of the cluster come first.
func (k *tools) transactions(args ...string) result {
	k.t.Helper()
	ctx, stop := context.WithTimeout(k.t.Context(), 2*time.Minute)
	defer stop()
	var r result
	err := k.c.do(ctx, "", map[string]any{"class": "org.apache.kafka.tools.TransactionsCommand", "args": append([]string{"--bootstrap-server", k.addr}, args...), "stdin": ""}, &r)
	if err != nil {
		k.t.Fatal(err)
	}
	return r
}

func TestTransactionTools44(t *testing.T) { transactionTools(t, "4.4.0") }
func TestTransactionTools39(t *testing.T) { transactionTools(t, "3.9.1") }

// transactionTools runs kafka-transactions of a release on an open transaction and on two that hang.
func transactionTools(t *testing.T, release string) {
	t.Parallel()
	b := Start(t, append([]string{"transaction.partition.verification.enable=false"}, txnSettings...)...)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	k := openTools(t, release, b.Addr())
	topic := fmt.Sprintf("hanging-%d", time.Now().UnixNano()%1e9)
	id := topic + "-open"
	adm := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(b.Addr())))
	if _, err := adm.CreateTopic(ctx, 3, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	open := kgoDial(t, kgo.SeedBrokers(b.Addr()), kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := open.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := open.ProduceSync(ctx, kgo.StringRecord("open")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	one, two := hang(t, b.Addr(), topic, 1), hang(t, b.Addr(), topic, 2)

	// says runs the tool, which must end with a status; the lines of its table, or what it complains of, must match.
	says := func(status int, want string, args ...string) {
		t.Helper()
		k.check(k.transactions(args...), status, []string{want}, "kafka-transactions", args)
	}
	lacks := func(what string, args ...string) {
		t.Helper()
		r := k.transactions(args...)
		if r.Status != 0 || strings.Contains(r.Out, what) {
			t.Errorf("kafka-transactions %v: status %d, want 0 and nothing of %s\n%s%s", args, r.Status, what, r.Out, r.Err)
		}
	}
	listed := `^` + id + `\s+1\s+\d+\s+Ongoing\s*$`
	says(0, listed, "list")
	says(0, listed, "list", "--duration-filter", "0")
	lacks(id, "list", "--duration-filter", "100000")
	says(0, `^1\s+`+id+`\s+\d+\s+0\s+Ongoing\s+40000\s+\d{13}\s+\d+\s+`+topic+`-0\s*$`, "describe", "--transactional-id", id)
	says(1, "`"+topic+"-not` failed because the ID could not be found", "describe", "--transactional-id", topic+"-not")

	table := `^ProducerId\s+ProducerEpoch\s+LatestCoordinatorEpoch\s+LastSequence\s+LastTimestamp\s+CurrentTransactionStartOffset\s*\n`
	at := func(partition string) []string {
		return []string{"describe-producers", "--topic", topic, "--partition", partition}
	}
	says(0, table+`\d+\s+0\s+-1\s+0\s+\d{13}\s+0\s*$`, at("0")...)
	says(0, table+fmt.Sprint(one)+`\s+0\s+-1\s+0\s+\d{13}\s+0\s*$`, append(at("1"), "--broker-id", "1")...)

	table = `^Topic\s+Partition\s+ProducerId\s+ProducerEpoch\s+CoordinatorEpoch\s+StartOffset\s+LastTimestamp\s+Duration\(min\)\s*\n`
	both := fmt.Sprintf(`%s%s\s+1\s+%d\s+0\s+-1\s+0\s+\d{13}\s+60\s*\n%s\s+2\s+%d\s+0\s+-1\s+0\s+\d{13}\s+60\s*$`, table, topic, one, topic, two)
	says(0, both, "find-hanging", "--broker-id", "1")
	says(0, both, "find-hanging", "--topic", topic)
	lacks(topic, "find-hanging", "--topic", topic, "--partition", "1", "--max-transaction-timeout", "100")

	abort := func(partition string, how ...string) []string {
		return append([]string{"abort", "--topic", topic, "--partition", partition}, how...)
	}
	says(1, `Could not find any open transactions starting at offset 5 on partition `+topic+`-1`, abort("1", "--start-offset", "5")...)
	says(0, "", abort("1", "--start-offset", "0")...)
	says(0, "", abort("2", "--producer-id", fmt.Sprint(two), "--producer-epoch", "0", "--coordinator-epoch", "-1")...)
	says(0, fmt.Sprint(one)+`\s+0\s+0\s+0\s+\d{13}\s+None\s*$`, at("1")...)
	says(0, fmt.Sprint(two)+`\s+0\s+0\s+0\s+\d{13}\s+None\s*$`, at("2")...)
	lacks(topic, "find-hanging", "--broker-id", "1")

	var want []string
	if release < "4" {
		want = []string{"open"}
		if err := open.EndTransaction(ctx, kgo.TryCommit); err != nil {
			t.Error(err)
		}
	} else {
		says(0, listed, "list", "--transactional-id-pattern", topic+".*")
		lacks(id, "list", "--transactional-id-pattern", topic)
		says(1, `ListTransactions request sent to broker 1 failed with an unexpected exception`, "list", "--transactional-id-pattern", "(")
		says(0, "", "forceTerminateTransaction", "--transactionalId", id)
		says(0, `^`+id+`\s+1\s+\d+\s+Empty\s*$`, "list")
		if err := open.EndTransaction(ctx, kgo.TryCommit); !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
			t.Errorf("commit after forceTerminateTransaction: %v", err)
		}
	}
	if all := committed(ctx, t, b.Addr(), topic); !slices.Equal(all, want) {
		t.Errorf("reads %v, want %v", all, want)
	}
}
