//go:build clients

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const groupToolsHead = `# What kafka-consumer-groups, kafka-groups and kafka-get-offsets of Kafka %s say of groups on Kafka 4.4.0. Recorded by
# TestGroupTools itself, with OTTLA_TEST_RECORD=1 and OTTLA_TEST_BOOTSTRAP at such a broker, just started, with the settings of the test.
# Lines are sorted, those of standard error after the others, columns have one space between them, ids that are made up are ID.
`

// TestGroupTools44 and TestGroupTools39: the tools for groups say of ottla's what they say of Kafka's, in every case
// that they have: groups of both protocols, with members and without, unknown ones, and every way to set offsets.
func TestGroupTools44(t *testing.T) { groupTools(t, "4.4.0") }
func TestGroupTools39(t *testing.T) { groupTools(t, "3.9.1") }

func groupTools(t *testing.T, release string) {
	t.Parallel()
	b := Start(t, append([]string{"group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=3"}, quickGroups...)...)
	k := openTools(t, release, b.Addr())
	makeGroups(t, b)
	file := filepath.Join(t.TempDir(), "offsets.csv")
	var text strings.Builder
	for line := range strings.Lines(groupToolsScript) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if words[0] == "4" {
			if release < "4" {
				continue
			}
			words = words[1:]
		}
		if words[0] == "file" { // the lines that --from-file reads next
			if err := os.WriteFile(file, []byte(strings.Join(words[1:], "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		r := k.try("", words[0], strings.Fields(strings.ReplaceAll(strings.Join(words[1:], " "), "FILE", file))...)
		fmt.Fprintf(&text, "\n$ %s -> %d\n", strings.Join(words, " "), r.Status)
		for _, l := range append(plainLines(r.Out, b.Addr(), file), plainLines(r.Err, b.Addr(), file)...) {
			fmt.Fprintln(&text, l)
		}
	}
	recorded(t, "group-tools-"+release+".txt", fmt.Sprintf(groupToolsHead, release), text.String())
}

var (
	trace   = regexp.MustCompile(`^\s+at |^Caused by|^\s*\.\.\. \d+ more|^SLF4J`)
	madeUp  = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(^|\s)[A-Za-z0-9_-]{22}(?:==)?(\s|$)|Valid \w+ are: .*`)
	columns = regexp.MustCompile(`\s+`)
)

// plainLines is what a tool prints, sorted, without what differs from run to run.
func plainLines(s, addr, file string) []string {
	s = strings.NewReplacer(addr, "BROKER", file, "FILE").Replace(s)
	var all []string
	for line := range strings.Lines(s) {
		if strings.HasPrefix(line, "Option  ") { // how it is used, to its end
			break
		}
		if trace.MatchString(line) {
			continue
		}
		line = madeUp.ReplaceAllString(strings.TrimSpace(columns.ReplaceAllString(line, " ")), "${1}ID${2}")
		if line != "" {
			all = append(all, line)
		}
	}
	slices.Sort(all)
	return all
}

// makeGroups makes two topics with ten records a partition, a second apart from 2025 on, and groups: one that has only
// offsets, and of each protocol one that its members have left and one with two members.
func makeGroups(t *testing.T, b *Broker) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cl := kgoDial(t, kgo.SeedBrokers(b.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()))
	adm := kadm.NewClient(cl)
	topics := map[string]int32{"orders": 3, "events": 2}
	offsets := func(topic string, from int64) kadm.Offsets {
		all := kadm.Offsets{}
		for p := range topics[topic] {
			all.Add(kadm.Offset{Topic: topic, Partition: p, At: from + int64(p), LeaderEpoch: -1})
		}
		return all
	}
	for topic, partitions := range topics {
		_, err := adm.CreateTopic(ctx, partitions, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, topic)
		must(err)
		for p := range partitions {
			for i := range int64(10) {
				r := &kgo.Record{Topic: topic, Partition: p, Value: []byte("v"), Timestamp: time.UnixMilli(1735689600000 + i*1000)}
				must(cl.ProduceSync(ctx, r).FirstErr())
			}
		}
	}
	commit := func(group string, at kadm.Offsets) {
		t.Helper()
		got, err := adm.CommitOffsets(ctx, group, at)
		must(err)
		must(got.Error())
	}
	commit("idle", offsets("orders", 3))
	commit("idle", offsets("events", 5))

	// client makes a member of a group that reads topics
	client := func(group string, next bool, name, instance string, reads ...string) *kgo.Client {
		opts := []kgo.Opt{kgo.ClientID(name), kgo.ConsumeTopics(reads...), kgo.Balancers(kgo.RangeBalancer())}
		if instance != "" {
			opts = append(opts, kgo.InstanceID(instance))
		}
		if next {
			return nextGen(t, b, group, opts...)
		}
		return kgoDial(t, append(opts, kgo.SeedBrokers(b.Addr()), kgo.ConsumerGroup(group), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(200*time.Millisecond))...)
	}
	commitBy := func(m *kgo.Client, topic string, from int64) {
		t.Helper()
		at := map[string]map[int32]kgo.EpochOffset{}
		offsets(topic, from).Each(func(o kadm.Offset) {
			if at[topic] == nil {
				at[topic] = map[int32]kgo.EpochOffset{}
			}
			at[topic][o.Partition] = kgo.EpochOffset{Epoch: -1, Offset: o.At}
		})
		var failed error
		m.CommitOffsetsSync(ctx, at, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
			failed = err
		})
		must(failed)
	}
	stable := func(group string, next bool, members, partitions int) {
		t.Helper()
		eventually(t, group+" is stable", time.Minute, func() bool { return stableGroup(ctx, adm, group, next, members, partitions) })
	}
	for _, g := range []struct {
		left, live string
		next       bool
	}{{"left", "live", false}, {"left-next", "live-next", true}} {
		m := client(g.left, g.next, "gone", "", "orders")
		stable(g.left, g.next, 1, 3)
		commitBy(m, "orders", 1)
		m.Close()
		one := client(g.live, g.next, "one", "", "orders")
		stable(g.live, g.next, 1, 3)
		client(g.live, g.next, "two", "instance-two", "events")
		stable(g.live, g.next, 2, 5)
		commitBy(one, "orders", 2)
	}
	eventually(t, "left is empty, and takes offsets from outside", time.Minute, func() bool {
		got, err := adm.CommitOffsets(ctx, "left", offsets("events", 4))
		return err == nil && got.Ok()
	})
}

// stableGroup tells whether a group has so many members that have so many partitions in all.
func stableGroup(ctx context.Context, adm *kadm.Client, group string, next bool, members, partitions int) bool {
	sum := 0
	if next {
		groups, err := adm.DescribeConsumerGroups(ctx, group)
		g := groups[group]
		if err != nil || g.Err != nil || g.State != "Stable" || len(g.Members) != members {
			return false
		}
		for _, m := range g.Members {
			sum += len(partitionNames(m.Assignment))
		}
		return sum == partitions
	}
	groups, err := adm.DescribeGroups(ctx, group)
	g := groups[group]
	if err != nil || g.Err != nil || g.State != "Stable" || len(g.Members) != members {
		return false
	}
	g.AssignedPartitions().Each(func(string, int32) { sum++ })
	return sum == partitions
}
