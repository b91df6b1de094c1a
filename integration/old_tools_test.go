//go:build clients

package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// oldTool runs a tool of Kafka 0.8.2.2 to its end, in a JVM of its own: most of them end by System.exit. Each of the expressions
// must match what it prints. Settings of the machine: {zk}, {brokers} in the arguments.
func (c *oldCluster) oldTool(want []string, stdin, class string, arguments ...string) string {
	c.t.Helper()
	ctx, stop := context.WithTimeout(c.t.Context(), time.Minute)
	defer stop()
	out, ended := c.tryOldTool(ctx, stdin, class, arguments...)
	if ended != nil {
		c.t.Errorf("%s %s: %v", class, strings.Join(arguments, " "), ended)
	}
	for _, w := range want {
		if !regexp.MustCompile(`(?m)` + w).MatchString(out) {
			c.t.Errorf("%s %s: nothing matches %q in\n%s", class, strings.Join(arguments, " "), w, out)
		}
	}
	return out
}

func (c *oldCluster) tryOldTool(ctx context.Context, stdin, class string, arguments ...string) (string, error) {
	c.t.Helper()
	command := javaCommand(c.t, "0.8.2.2", class)
	fill := strings.NewReplacer("{zk}", c.z.address+"/kafka", "{brokers}", strings.Join(c.addrs(), ","))
	for _, a := range arguments {
		command = append(command, fill.Replace(a))
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	endWithParent(cmd)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	err := cmd.Run()
	return out.String(), err
}

// numbersFrom is a line a number.
func numbersFrom(from, to int) string {
	var b strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintln(&b, n)
	}
	return b.String()
}

// TestOldTools runs the tools of 0.8.2.2 as people did; most of them write into ZooKeeper what they want.
func TestOldTools(t *testing.T) {
	c := startOldCluster(t, 2)
	topics := func(want []string, arguments ...string) string {
		t.Helper()
		return c.oldTool(want, "", "kafka.admin.TopicCommand", append([]string{"--zookeeper", "{zk}"}, arguments...)...)
	}
	topics(w(`^Created topic "t"\.$`), "--create", "--topic", "t", "--partitions", "2", "--replication-factor", "2", "--config", "segment.bytes=1048576")
	topics(w(`^Adding partitions succeeded!$`), "--alter", "--topic", "t", "--partitions", "4")
	topics(w(`^Updated config for topic "t"\.$`), "--alter", "--topic", "t", "--config", "max.message.bytes=2000")
	allInSync(t, c.tree, "t", 4, 2)
	topics(w(`^Topic:t\tPartitionCount:4\tReplicationFactor:2\tConfigs:(segment.bytes=1048576,max.message.bytes=2000|max.message.bytes=2000,segment.bytes=1048576)$`,
		`^\tTopic: t\tPartition: 3\tLeader: [12]\tReplicas: (1,2|2,1)\tIsr: (1,2|2,1)$`), "--describe", "--topic", "t")
	topics(w(`^t$`), "--list")

	produce := func(from int, arguments ...string) {
		t.Helper()
		c.oldTool(nil, numbersFrom(from, from+20), "kafka.tools.ConsoleProducer", append([]string{"--broker-list", "{brokers}", "--topic", "t", "--request-required-acks", "-1"}, arguments...)...)
	}
	produce(0, "--sync")
	produce(20, "--new-producer", "--compression-codec", "gzip")
	produce(40, "--compression-codec", "snappy")
	produce(60, "--new-producer", "--compression-codec", "lz4")
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := c.tryOldTool(soon, strings.Repeat("x", 3000)+"\n", "kafka.tools.ConsoleProducer", "--broker-list", "{brokers}", "--topic", "t", "--sync",
		"--request-required-acks", "-1", "--message-send-max-retries", "1")
	if err == nil || !strings.Contains(out, "FailedToSendMessageException") {
		t.Errorf("the tool's max.message.bytes does not count: %v\n%s", err, out)
	}

	group := filepath.Join(t.TempDir(), "consumer.properties")
	if err := os.WriteFile(group, []byte("group.id=g\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out = c.oldTool(w("^Consumed 80 messages$"), "", "kafka.tools.ConsoleConsumer", "--zookeeper", "{zk}", "--topic", "t", "--from-beginning", "--max-messages", "80", "--consumer.config", group)
	got := regexp.MustCompile(`(?m)^\d+$`).FindAllString(out, -1)
	want := strings.Fields(numbersFrom(0, 80))
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("consumed: %s", d)
	}
	c.oldTool(w(`^Group +Topic +Pid +Offset +logSize +Lag +Owner$`, `^g +t +0 +\d+ +\d+ +0 +none$`, `^g +t +3 +\d+ +\d+ +0 +none$`), "",
		"kafka.tools.ConsumerOffsetChecker", "--zookeeper", "{zk}", "--group", "g", "--topic", "t")
	file := filepath.Join(t.TempDir(), "offsets")
	c.oldTool(nil, "", "kafka.tools.ExportZkOffsets", "--zkconnect", "{zk}", "--group", "g", "--output-file", file)
	exported, _ := os.ReadFile(file)
	if n := strings.Count(string(exported), "/consumers/g/offsets/t/"); n != 4 {
		t.Errorf("exported:\n%s", exported)
	}
	if err := os.WriteFile(file, []byte("/consumers/g/offsets/t/2:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.oldTool(nil, "", "kafka.tools.ImportZkOffsets", "--zkconnect", "{zk}", "--input-file", file)
	if at := znode(t, c.tree, "/consumers/g/offsets/t/2"); at != "1" {
		t.Errorf("imported: %s", at)
	}

	ends := c.oldTool(w(`^t:0:\d+$`, `^t:3:\d+$`), "", "kafka.tools.GetOffsetShell", "--broker-list", "{brokers}", "--topic", "t", "--time", "-1")
	sum := 0
	for _, m := range regexp.MustCompile(`(?m)^t:\d:(\d+)$`).FindAllStringSubmatch(ends, -1) {
		var n int
		fmt.Sscan(m[1], &n)
		sum += n
	}
	if sum != 80 {
		t.Errorf("ends of 80 messages:\n%s", ends)
	}
	c.oldTool(w(`^\d+$`), "", "kafka.tools.SimpleConsumerShell", "--broker-list", "{brokers}", "--topic", "t", "--partition", "0", "--max-messages", "1", "--no-wait-at-logend")

	// It compares the replicas for ever.
	few, stop := context.WithTimeout(t.Context(), 4*time.Second)
	out, _ = c.tryOldTool(few, "", "kafka.tools.ReplicaVerificationTool", "--broker-list", "{brokers}", "--topic-white-list", "t", "--report-interval-ms", "300", "--time", "-2")
	stop()
	if !regexp.MustCompile(`max lag is 0 for partition \[t,\d\] at offset [1-9]\d* among 4 paritions`).MatchString(out) {
		t.Errorf("replicas are not found to be equal:\n%s", out)
	}

	// Leaders: all to broker 1, by a move of the preferred replica, and an election.
	moves := filepath.Join(t.TempDir(), "moves.json")
	var parts []string
	for p := range 4 {
		parts = append(parts, fmt.Sprintf(`{"topic":"t","partition":%d,"replicas":[1,2]}`, p))
	}
	if err := os.WriteFile(moves, []byte(`{"version":1,"partitions":[`+strings.Join(parts, ",")+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c.oldTool(w(`^Successfully started reassignment of partitions`), "", "kafka.admin.ReassignPartitionsCommand", "--zookeeper", "{zk}", "--reassignment-json-file", moves, "--execute")
	eventually(t, "the moves have ended", 30*time.Second, func() bool { return znode(t, c.tree, "/admin/reassign_partitions") == "absent" })
	c.oldTool(w(`^Reassignment of partition \[t,3\] completed successfully$`), "", "kafka.admin.ReassignPartitionsCommand", "--zookeeper", "{zk}", "--reassignment-json-file", moves, "--verify")
	c.oldTool(w(`^Successfully started preferred replica election`), "", "kafka.admin.PreferredReplicaLeaderElectionCommand", "--zookeeper", "{zk}")
	eventually(t, "broker 1 leads", 30*time.Second, func() bool {
		for p := range int32(4) {
			if stateOf(t, c.tree, "t", p).Leader != 1 {
				return false
			}
		}
		return true
	})

	topics(w(`Topic t is marked for deletion`), "--delete", "--topic", "t")
	eventually(t, "the topic is gone", 30*time.Second, func() bool { return znode(t, c.tree, "/brokers/topics/t") == "absent" })
	for _, b := range c.brokers {
		if log := b.Log(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "panic") {
			t.Errorf("a broker had trouble:\n%s", log)
		}
	}
}
