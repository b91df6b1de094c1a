//go:build clients

package integration

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// txnScript is what producers do, step by step: who.what, or who.what:with. The producers a and b share one
// transactional id; m and n are members of one group.
type txnScript struct {
	name     string
	settings map[string]any // of the producers
	steps    string
}

// txnScripts end in the same way on Kafka: testdata/transactions.tsv has how, for each client.
var txnScripts = []txnScript{
	{"commit and abort", nil, "a.open a.init a.begin a.send a.offsets a.commit a.begin a.send a.offsets a.abort a.begin a.send a.commit a.close"},
	{"nothing in it", nil, "a.open a.init a.begin a.commit a.begin a.abort a.begin a.send a.commit a.close"},
	{"fenced: send", nil, "a.open a.init a.begin a.send b.open b.init a.send a.commit a.abort b.begin b.send b.commit b.close a.close"},
	{"fenced: send to another partition", nil, "a.open a.init a.begin a.send b.open b.init a.send:1 a.abort b.begin b.send b.commit b.close a.close"},
	{"fenced: offsets", nil, "a.open a.init a.begin a.send b.open b.init a.offsets a.abort b.begin b.send b.commit b.close a.close"},
	{"fenced: commit", nil, "a.open a.init a.begin a.send b.open b.init a.commit a.begin b.begin b.send b.commit b.close a.close"},
	{"fenced: abort", nil, "a.open a.init a.begin a.send b.open b.init a.abort a.begin b.begin b.send b.commit b.close a.close"},
	{"fenced: begin", nil, "a.open a.init a.begin a.send a.commit b.open b.init a.begin a.send a.commit b.begin b.send b.commit b.close a.close"},
	{"fenced: the other is at it", nil, "a.open a.init a.begin a.send b.open b.init b.begin b.send a.commit b.commit b.close a.close"},
	{"fenced: begins anew", nil, "a.open a.init a.begin a.send b.open b.init b.begin b.send a.close a.open a.init b.commit a.begin a.send a.commit b.close a.close"},
	{"fenced by admin", nil, "a.open a.init a.begin a.send x.fence a.commit a.abort b.open b.init b.begin b.send b.commit b.close a.close"},
	{"timed out: send", soon, "a.open a.init a.begin a.send x.expire a.send a.abort a.close"},
	{"timed out: offsets", soon, "a.open a.init a.begin a.send x.expire a.offsets a.abort a.close"},
	{"timed out: commit", soon, "a.open a.init a.begin a.send x.expire a.commit a.begin a.close"},
	{"timed out: abort", soon, "a.open a.init a.begin a.send x.expire a.abort a.begin a.send a.commit a.close"},
	{"timed out: another goes on", soon, "a.open a.init a.begin a.send x.expire b.open b.init b.begin b.send b.commit b.close a.close"},
	{"timeout too large", map[string]any{"transaction.timeout.ms": 900001}, "a.open a.init a.close"},
	{"offsets of nobody", nil, "m.join a.open a.init a.begin a.send a.offsets:unknown a.commit a.abort a.begin a.send a.offsets:m a.commit a.close m.leave"},
	{"offsets of a member", nil, "m.join a.open a.init a.begin a.send a.offsets:m a.commit m.leave n.join a.begin a.send a.offsets:n a.commit a.close n.leave"},
	{"offsets of a static member", nil, "m.join:i a.open a.init a.begin a.send a.offsets:m a.commit n.join:i a.begin a.send a.offsets:m a.commit a.abort a.begin a.send a.offsets:n a.commit a.close n.leave"},
	{"offsets of a member of the next protocol", nil, "m.next a.open a.init a.begin a.send a.offsets:m a.commit a.begin a.send a.offsets:unknown a.abort a.begin a.send a.offsets:m a.commit a.close m.leave"},
	{"too large for the topic", nil, "a.open a.init a.begin a.send a.send:large a.commit a.abort a.begin a.send a.commit a.close"},
	{"two phases", map[string]any{"transaction.two.phase.commit.enable": true}, "a.open a.init a.begin a.send a.commit a.close"},
}

// soon is a timeout that has run out soon.
var soon = map[string]any{"transaction.timeout.ms": 2000}

// restartScripts have the broker killed between two steps.
var restartScripts = []txnScript{
	{"killed: send", nil, "a.open a.init a.begin a.send x.kill a.send a.commit a.begin a.send a.commit a.close"},
	{"killed: offsets, commit", nil, "a.open a.init a.begin a.send x.kill a.offsets a.commit a.close"},
	{"killed: commit", nil, "a.open a.init a.begin a.send a.offsets x.kill a.commit a.close"},
	{"killed: abort", nil, "a.open a.init a.begin a.send a.offsets x.kill a.abort a.begin a.send a.commit a.close"},
	{"killed: after the commit", nil, "a.open a.init a.begin a.send a.offsets a.commit x.kill a.begin a.send a.commit a.close"},
	{"killed: fenced", nil, "a.open a.init a.begin a.send b.open b.init x.kill a.commit b.begin b.send b.commit b.close a.close"},
}

// levelScripts have transaction.version change between two steps, from 2 to 0 and back; a producer that is there hears
// of it when it connects anew.
var levelScripts = []txnScript{
	{"levels: in a transaction", nil, "a.open a.init a.begin a.send x.level:0 a.send a.offsets a.commit a.begin a.send a.abort x.level:2 a.begin a.send a.commit a.close"},
	{"levels: another takes over", nil, "x.level:2 a.open a.init a.begin a.send x.level:0 b.open b.init a.commit b.begin b.send x.level:2 a.close a.open a.init b.commit a.begin a.send a.commit b.close a.close"},
	{"levels: after a kill", nil, "x.level:2 a.open a.init a.begin a.send x.level:1 x.kill a.send a.commit a.begin a.send x.level:2 x.kill a.commit a.begin a.send a.commit a.close"},
}

// theatre is where scripts are played: a broker, and a program that is the client.
type theatre struct {
	broker *Broker
	c      *driven
	adm    *kadm.Client
	client string // as in testdata/transactions.tsv
	mark   string // in front of the names of this run
}

func newTheatre(t *testing.T, b *Broker, client string, command ...string) *theatre {
	c := drive(t, b.Addr(), command...).(*driven)
	t.Cleanup(c.close)
	return &theatre{b, c, kadm.NewClient(kgoDial(t, kgo.SeedBrokers(b.Addr()))), client, fmt.Sprintf("%s-%d", strings.ReplaceAll(client, " ", "-"), time.Now().UnixNano()%1e9)}
}

// play plays a script, and tells every step that was not ok, what can be read of the topic then, and the group's offset.
func (s *theatre) play(t *testing.T, script txnScript) string {
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	topic := s.mark + "-" + strings.NewReplacer(" ", "-", ":", "", ",", "").Replace(script.name)
	if _, err := s.adm.CreateTopic(ctx, 2, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("2000")}, topic); err != nil {
		t.Fatal(err)
	}
	var said []string
	for i, step := range strings.Fields(script.steps) {
		who, op, _ := strings.Cut(step, ".")
		op, with, _ := strings.Cut(op, ":")
		a := args{"name": topic + who, "topic": topic, "group": topic}
		switch op {
		case "expire":
			eventually(t, "the transaction has timed out", 40*time.Second, func() bool {
				d, err := s.adm.DescribeTransactions(ctx, topic)
				return err == nil && d[topic].State == "CompleteAbort"
			})
			continue
		case "kill":
			s.broker.Restart()
			continue
		case "level":
			s.finalize(t, with)
			continue
		case "open":
			a = args{"name": topic + who, "producer": topic, "settings": script.settings}
		case "fence":
			if err := s.fence(ctx, topic); err != nil {
				t.Fatal(err)
			}
			continue
		case "send":
			a = args{"name": topic + who, "topic": topic, "partition": 0, "value": fmt.Sprint(who, i)}
			switch with {
			case "1":
				a["partition"] = 1
			case "large":
				a["value"] = strings.Repeat("large", 1000)
			}
		case "offsets":
			a["partition"], a["offset"] = 0, i
			if with != "" {
				a["member"] = topic + with
			}
			if with == "unknown" {
				a["member"] = with
			}
		case "join":
			a["settings"] = map[string]any{}
			if with != "" {
				a["settings"] = map[string]any{"group.instance.id": with}
			}
		case "next":
			op, a["settings"] = "join", map[string]any{"group.protocol": "consumer"}
		default:
			a = args{"name": topic + who}
		}
		var is string
		if err := s.c.do(ctx, op, a, &is); err != nil {
			t.Fatalf("%d %s: %v", i, step, err)
		}
		if is != "ok" && op != "join" {
			said = append(said, fmt.Sprintf("%d %s: %s", i, step, is))
		}
	}
	return strings.Join(append(said, s.left(ctx, t, topic)), "; ")
}

// finalize sets the level of transaction.version.
func (s *theatre) finalize(t *testing.T, level string) {
	t.Helper()
	n, err := strconv.Atoi(level)
	if err != nil {
		t.Fatal(err)
	}
	r := kmsg.NewPtrUpdateFeaturesRequest()
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType = "transaction.version", int16(n), 2
	if transactionVersion(t, s.broker.Addr()) < u.MaxVersionLevel {
		u.UpgradeType = 1
	}
	r.FeatureUpdates = append(r.FeatureUpdates, u)
	a := request[*kmsg.UpdateFeaturesResponse](t, kgoDial(t, kgo.SeedBrokers(s.broker.Addr())), r)
	equal(t, "error of UpdateFeatures", a.ErrorCode, 0)
	eventually(t, "transaction.version is "+level, 20*time.Second, func() bool { return transactionVersion(t, s.broker.Addr()) == u.MaxVersionLevel })
}

// transactionVersion is the finalized level of transaction.version; what is 0 is not told.
func transactionVersion(t *testing.T, addr string) int16 {
	t.Helper()
	r := kmsg.NewPtrApiVersionsRequest()
	r.ClientSoftwareName, r.ClientSoftwareVersion = "test", "1"
	for _, f := range request[*kmsg.ApiVersionsResponse](t, kgoDial(t, kgo.SeedBrokers(addr)), r).FinalizedFeatures {
		if f.Name == "transaction.version" {
			return f.MaxVersionLevel
		}
	}
	return 0
}

// fence is what fenceProducers of the admin client does.
func (s *theatre) fence(ctx context.Context, id string) error {
	var is string
	if err := s.c.do(ctx, "fence", args{"producer": id}, &is); err != nil {
		return err
	}
	if is != "ok" {
		return errors.New(is)
	}
	return nil
}

// left is what a topic's readers see in the end, once nothing is open there any more.
func (s *theatre) left(ctx context.Context, t *testing.T, topic string) string {
	t.Helper()
	total := 0
	eventually(t, "no transaction is open in "+topic, 40*time.Second, func() bool {
		stable, err1 := s.adm.ListCommittedOffsets(ctx, topic)
		end, err2 := s.adm.ListEndOffsets(ctx, topic)
		if errors.Join(err1, err2) != nil {
			return false
		}
		open := false
		stable.Each(func(o kadm.ListedOffset) {
			e, _ := end.Lookup(o.Topic, o.Partition)
			open = open || o.Err != nil || e.Err != nil || e.Offset != o.Offset
			total += int(e.Offset)
		})
		return !open
	})
	read := "nothing"
	if total > 0 {
		read = strings.Join(committed(ctx, t, s.broker.Addr(), topic), " ")
	}
	at := "none"
	if o, err := s.adm.FetchOffsetsForTopics(ctx, topic, topic); err == nil {
		if p, ok := o.Lookup(topic, 0); ok && p.At >= 0 {
			at = fmt.Sprint(p.At)
		}
	}
	return fmt.Sprintf("reads %s; offset %s", read, at)
}

// committed are the records that a reader of committed ones gets of a topic up to the end of its log, by partition.
func committed(ctx context.Context, t *testing.T, addr, topic string) (all []string) {
	t.Helper()
	ends, err := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(addr))).ListEndOffsets(ctx, topic)
	if err != nil || ends.Error() != nil {
		t.Fatal(err, ends.Error())
	}
	for _, end := range ends.Offsets().Sorted() {
		cl := kgoDial(t, kgo.SeedBrokers(addr), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {end.Partition: kgo.NewOffset().At(0)}}))
		for at := int64(0); at < end.At && ctx.Err() == nil; {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				at = r.Offset + 1
				if !r.Attrs.IsControl() {
					all = append(all, string(r.Value))
				}
			})
		}
		cl.Close()
	}
	if ctx.Err() != nil {
		t.Fatal(ctx.Err())
	}
	return all
}

// outcomes are the lines of testdata/transactions.tsv for a client: how each script ends on real Kafka.
func outcomes(t *testing.T, client string) map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "transactions.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma, r.Comment, r.LazyQuotes = '\t', '#', true
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, row := range rows {
		if row[0] == client {
			all[row[1]] = row[2]
		}
	}
	return all
}

// plays plays scripts, some at a time, and compares how they end.
func (s *theatre) plays(t *testing.T, name string, scripts []txnScript, atOnce int) {
	t.Helper()
	want := outcomes(t, s.client)
	t.Run(name, func(t *testing.T) {
		var wg sync.WaitGroup
		free := make(chan struct{}, atOnce)
		for _, script := range scripts {
			how, known := want[script.name]
			if how == "-" {
				continue // not for this client
			}
			free <- struct{}{}
			wg.Go(func() { // most of them wait, and t.Parallel lets two of all tests wait
				defer func() { <-free }()
				t.Run(script.name, func(t *testing.T) {
					got := s.play(t, script)
					if !known || !slices.Contains(strings.Split(how, " | "), got) {
						t.Errorf("ends otherwise than on Kafka:\n%s\t%s\t%s\nwant\n%s", s.client, script.name, got, how)
					}
				})
			})
		}
		wg.Wait()
	})
}

// txnSettings are for brokers under scripts.
var txnSettings = []string{"group.initial.rebalance.delay.ms=0", "transaction.state.log.num.partitions=5", "offsets.topic.num.partitions=5"}

func TestJavaTransactions44(t *testing.T) {
	javaTransactions(t, "4.4.0", map[string]any{"group.protocol": "consumer"})
}
func TestJavaTransactions39(t *testing.T) { javaTransactions(t, "3.9.1", nil) }

// javaTransactions plays the scripts with Kafka's own producer of a release, and has it copy a topic.
func javaTransactions(t *testing.T, release string, settings map[string]any) {
	t.Parallel()
	s := newTheatre(t, Start(t, txnSettings...), "java "+release, javaCommand(t, release, "Transactions")...)
	s.plays(t, "scripts", txnScripts, 8)
	t.Run("admin", func(t *testing.T) { s.administers(t, release) })
	s.plays(t, "killed", restartScripts, 1)
	t.Run("copies", func(t *testing.T) { s.copies(t, settings) })
}

// TestJavaTransactionVersions plays them where the cluster has not agreed on the newest transaction.version, and where it changes.
func TestJavaTransactionVersions(t *testing.T) {
	t.Parallel()
	s := newTheatre(t, Start(t, txnSettings...), "java 4.4.0", javaCommand(t, "4.4.0", "Transactions")...)
	mark := s.mark
	for _, level := range []string{"1", "0"} {
		scripts := txnScripts
		if level == "1" { // changes the log's records alone
			scripts = scripts[:8]
		}
		s.finalize(t, level)
		s.client, s.mark = "java 3.9.1", mark+level // its producers do then what those of before did
		s.plays(t, "at "+level, scripts, 8)
	}
	s.client = "java 4.4.0"
	s.finalize(t, "2")
	s.plays(t, "levels", levelScripts, 1)
}

// TestConfluentTransactions plays them with librdkafka.
func TestConfluentTransactions(t *testing.T) {
	t.Parallel()
	dir := installed(t, "python")
	s := newTheatre(t, Start(t, txnSettings...), "confluent", filepath.Join(dir, "python", "bin", "python"), filepath.Join("clients", "confluent_txn.py"))
	s.plays(t, "scripts", txnScripts, 8)
	s.plays(t, "killed", restartScripts, 1)
}
