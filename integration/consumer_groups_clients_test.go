//go:build clients

package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestConsumerGroupTools: Kafka 4.4's own consumer with group.protocol=consumer, and
// kafka-consumer-groups on the group that it leaves.
func TestConsumerGroupTools(t *testing.T) {
	t.Parallel()
	b := Start(t, "group.consumer.assignors=uniform,range,roundrobin,block")
	k := openTools(t, "4.4.0", b.Addr())
	k.run(nil, "", "kafka-topics", "--create", "--topic", "next-java", "--partitions", "4")
	var lines strings.Builder
	for i := range 200 {
		fmt.Fprintf(&lines, "k%d:v%d\n", i, i)
	}
	k.run(nil, lines.String(), "kafka-console-producer", "--topic", "next-java", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
	consume := func(from ...string) {
		t.Helper()
		args := append([]string{"--topic", "next-java", "--group", "gj", "--max-messages", "200", "--timeout-ms", "30000",
			"--command-property", "group.protocol=consumer"}, from...)
		k.run([]string{`Processed a total of 200 messages`}, "", "kafka-console-consumer", args...)
	}
	consume("--from-beginning")
	k.run([]string{`gj`}, "", "kafka-consumer-groups", "--list", "--type", "consumer")
	k.run([]string{`gj\s+next-java\s+0\s+\d+\s+\d+\s+0`}, "", "kafka-consumer-groups", "--describe", "--group", "gj")
	k.run([]string{`gj\s.*Empty\s+0`}, "", "kafka-consumer-groups", "--describe", "--group", "gj", "--state")
	k.run([]string{`gj\s+next-java\s+0\s+0`}, "", "kafka-consumer-groups", "--reset-offsets", "--group", "gj", "--topic", "next-java", "--to-earliest", "--execute")
	consume("--command-property", "group.remote.assignor=block")
	k.run([]string{`gj\s+Consumer\s+consumer`}, "", "kafka-groups", "--list")
	k.run(nil, "", "kafka-consumer-groups", "--delete-offsets", "--group", "gj", "--topic", "next-java")
	k.run(nil, "", "kafka-consumer-groups", "--delete", "--group", "gj")
	if out := k.run(nil, "", "kafka-consumer-groups", "--list"); strings.Contains(out, "gj") {
		t.Errorf("still listed: %s", out)
	}
}

// quickGroups has the members of consumer groups speak often.
var quickGroups = []string{"group.consumer.heartbeat.interval.ms=200", "group.consumer.min.heartbeat.interval.ms=200"}

// TestConfluentConsumerGroups and TestJavaConsumerGroups run the scenario of all clients with
// group.protocol=consumer: members come and go, the broker is killed under them.
func TestConfluentConsumerGroups(t *testing.T) {
	dir := installed(t, "python")
	t.Setenv("OTTLA_GROUP_PROTOCOL", "consumer")
	scenario(t, Start(t, quickGroups...), perCodec, func(t *testing.T, addr string) client {
		return drive(t, addr, filepath.Join(dir, "python", "bin", "python"), filepath.Join("clients", "confluent.py"))
	})
}

func TestJavaConsumerGroups(t *testing.T) {
	command := javaCommand(t, "4.4.0", "Driver")
	t.Setenv("OTTLA_GROUP_PROTOCOL", "consumer")
	scenario(t, Start(t, quickGroups...), perCodec, func(t *testing.T, addr string) client {
		return drive(t, addr, command...)
	})
}

// TestJavaRollingMigration: Java's consumers, replaced one at a time by such of the other
// group.protocol and back (Rolling.java): with an eager and with a cooperative assignor, static
// members and dynamic ones.
func TestJavaRollingMigration(t *testing.T) {
	command := javaCommand(t, "4.4.0", "Rolling")
	for _, args := range [][]string{{"CooperativeStickyAssignor", "dynamic"}, {"RangeAssignor", "static"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			b := Start(t, append(quickGroups, "group.initial.rebalance.delay.ms=0")...)
			cmd := exec.Command(command[0], append(slices.Concat(command[1:], args), b.Addr())...)
			endWithParent(cmd)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil || !strings.HasPrefix(string(out), "rolled: ") {
				t.Errorf("%s%v\n%s", out, err, tail(stderr.String(), 100))
			}
			t.Log(string(out))
		})
	}
}
