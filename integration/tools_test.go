//go:build clients

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestTools44 and TestTools39 run Kafka's console tools of a release as people and their scripts do:
// what is checked is what scripts look for in the output.
func TestTools44(t *testing.T) { consoleTools(t, "4.4.0") }
func TestTools39(t *testing.T) { consoleTools(t, "3.9.1") }

// tools runs Kafka's tools in one JVM.
type tools struct {
	t       *testing.T
	c       *driven
	release string
	addr    string
}

// result is what a tool printed, and its exit status.
type result struct {
	Out    string `json:"out"`
	Err    string `json:"err"`
	Status int    `json:"status"`
}

func openTools(t *testing.T, release, addr string) *tools {
	c := drive(t, addr, javaCommand(t, release, "Tools")...).(*driven)
	t.Cleanup(c.close)
	return &tools{t: t, c: c, release: release, addr: addr}
}

// class is where a tool lives: some moved from Scala to Java between the releases.
func (k *tools) class(tool string) string {
	moved := map[string]string{
		"kafka-configs": "kafka.admin.ConfigCommand", "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
		"kafka-console-producer": "kafka.tools.ConsoleProducer",
	}
	if c := moved[tool]; c != "" && k.release < "4" {
		return c
	}
	return "org.apache.kafka.tools." + map[string]string{
		"kafka-topics": "TopicCommand", "kafka-configs": "ConfigCommand", "kafka-broker-api-versions": "BrokerApiVersionsCommand",
		"kafka-console-producer": "ConsoleProducer", "kafka-console-consumer": "consumer.ConsoleConsumer",
		"kafka-consumer-groups": "consumer.group.ConsumerGroupCommand", "kafka-groups": "GroupsCommand",
		"kafka-get-offsets": "GetOffsetShell", "kafka-delete-records": "DeleteRecordsCommand", "kafka-log-dirs": "LogDirsCommand",
		"kafka-leader-election": "LeaderElectionCommand", "kafka-producer-perf-test": "ProducerPerformance",
		"kafka-consumer-perf-test": "ConsumerPerformance", "kafka-verifiable-producer": "VerifiableProducer",
		"kafka-verifiable-consumer": "VerifiableConsumer", "kafka-cluster": "ClusterTool",
		"kafka-reassign-partitions": "reassign.ReassignPartitionsCommand", "kafka-features": "FeatureCommand",
	}[tool]
}

// try runs a tool to its end, whatever that is. The address is added as --bootstrap-server.
func (k *tools) try(stdin, tool string, args ...string) result {
	k.t.Helper()
	ctx, stop := context.WithTimeout(k.t.Context(), 2*time.Minute)
	defer stop()
	var r result
	switch tool {
	case "kafka-producer-perf-test":
	case "kafka-features": // it is no option of the command that follows
		args = append([]string{"--bootstrap-server", k.addr}, args...)
	default:
		args = append(args, "--bootstrap-server", k.addr)
	}
	err := k.c.do(ctx, "", map[string]any{"class": k.class(tool), "args": args, "stdin": stdin}, &r)
	if err != nil {
		k.t.Fatalf("%s %s: %v", tool, strings.Join(args, " "), err)
	}
	return r
}

// run runs a tool that must succeed and whose output must match each of the expressions.
func (k *tools) run(want []string, stdin, tool string, args ...string) string {
	k.t.Helper()
	r := k.try(stdin, tool, args...)
	k.check(r, 0, want, tool, args)
	return r.Out
}

// alone is run in a JVM of its own, for a tool that ends by System.exit.
func (k *tools) alone(want []string, tool string, args ...string) {
	k.t.Helper()
	ctx, stop := context.WithTimeout(k.t.Context(), 2*time.Minute)
	defer stop()
	command := javaCommand(k.t, k.release, k.class(tool))
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], append(args, "--bootstrap-server", k.addr)...)...)
	endWithParent(cmd)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil {
		k.t.Errorf("%s: %v", tool, e)
	}
	k.check(result{out.String(), err.String(), cmd.ProcessState.ExitCode()}, 0, want, tool, args)
}

// refuse runs a tool that must end with status 1 and say why.
func (k *tools) refuse(want string, tool string, args ...string) {
	k.t.Helper()
	k.check(k.try("", tool, args...), 1, []string{want}, tool, args)
}

func (k *tools) check(r result, status int, want []string, tool string, args []string) {
	k.t.Helper()
	all := r.Out + r.Err
	if r.Status != status {
		k.t.Errorf("%s %s: status %d, want %d\n%s", tool, strings.Join(args, " "), r.Status, status, all)
	}
	for _, w := range want {
		if !regexp.MustCompile(`(?m)` + w).MatchString(all) {
			k.t.Errorf("%s %s: nothing matches %q in\n%s", tool, strings.Join(args, " "), w, all)
		}
	}
}

// until runs a tool again until its output matches: Kafka 4 answers some things a moment late.
func (k *tools) until(want string, tool string, args ...string) {
	k.t.Helper()
	limit := time.Now().Add(30 * time.Second)
	re := regexp.MustCompile(`(?m)` + want)
	for {
		r := k.try("", tool, args...)
		if r.Status == 0 && re.MatchString(r.Out+r.Err) {
			return
		}
		if time.Now().After(limit) {
			k.t.Fatalf("%s %s: nothing matches %q in\n%s%s", tool, strings.Join(args, " "), want, r.Out, r.Err)
		}
	}
}

func w(patterns ...string) []string { return patterns }

func consoleTools(t *testing.T, release string) {
	b := Start(t, "group.initial.rebalance.delay.ms=0")
	k := openTools(t, release, b.Addr())
	topic := fmt.Sprintf("tools-%d", time.Now().UnixNano()%1e9)
	q := regexp.QuoteMeta(topic)

	// topics
	k.run(w(`^Created topic `+q+`\.`), "", "kafka-topics", "--create", "--topic", topic, "--partitions", "6", "--replication-factor", "1", "--config", "retention.ms=3600000")
	k.until(`^`+q+`$`, "kafka-topics", "--list")
	k.refuse(`already exists`, "kafka-topics", "--create", "--topic", topic)
	k.run(nil, "", "kafka-topics", "--create", "--if-not-exists", "--topic", topic)
	k.until(`^Topic: `+q+`\s+TopicId: \S{22}\s+PartitionCount: 6\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=3600000`, "kafka-topics", "--describe", "--topic", topic)
	k.run(w(`^\s+Topic: `+q+`\s+Partition: 5\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+`), "", "kafka-topics", "--describe", "--topic", topic)
	k.run(nil, "", "kafka-topics", "--alter", "--topic", topic, "--partitions", "8")
	k.until(`PartitionCount: 8`, "kafka-topics", "--describe", "--topic", topic)
	k.refuse(`(?i)(currently has|would not be an increase)`, "kafka-topics", "--alter", "--topic", topic, "--partitions", "3")
	for _, f := range []string{"--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"} {
		if out := k.run(nil, "", "kafka-topics", "--describe", "--topic", topic, f); strings.Contains(out, topic) {
			t.Errorf("kafka-topics --describe %s lists\n%s", f, out)
		}
	}
	k.refuse(`does not exist`, "kafka-topics", "--describe", "--topic", topic+".not")
	k.refuse(`(?i)invalid`, "kafka-topics", "--create", "--topic", "a b")

	// produce and consume
	var in strings.Builder
	for i := range 100 {
		fmt.Fprintf(&in, "k%d:v%d\n", i%10, i)
	}
	k.run(nil, in.String(), "kafka-console-producer", "--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:")
	k.run(nil, "compressed\n", "kafka-console-producer", "--topic", topic, "--compression-codec", "zstd")
	out := k.run(w(`^k7:v77$`, `(?m)compressed$`, `Processed a total of 101 messages`), "", "kafka-console-consumer", "--topic", topic, "--from-beginning",
		"--max-messages", "101", "--timeout-ms", "30000", "--group", topic+".group", "--property", "print.key=true", "--property", "key.separator=:")
	if n := strings.Count(out, "\n"); n < 101 {
		t.Errorf("kafka-console-consumer printed %d lines, want 101\n%s", n, out)
	}
	k.run(w(`Partition:0\b`, `CreateTime:\d{13}`, `Offset:0\b`), "", "kafka-console-consumer", "--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "1", "--timeout-ms", "30000",
		"--property", "print.partition=true", "--property", "print.timestamp=true", "--property", "print.offset=true")

	// offsets
	if sum := sumOffsets(t, k.run(nil, "", "kafka-get-offsets", "--topic", topic), topic); sum != 101 {
		t.Errorf("kafka-get-offsets: %d records in all, want 101", sum)
	}
	if sum := sumOffsets(t, k.run(nil, "", "kafka-get-offsets", "--topic", topic, "--time", "earliest"), topic); sum != 0 {
		t.Errorf("kafka-get-offsets --time earliest: %d, want 0", sum)
	}
	k.run(w(`^`+q+`:\d:\d+$`), "", "kafka-get-offsets", "--topic-partitions", topic+":0-8", "--time", "max-timestamp")
	k.run(w(`^`+q+`:\d:0$`), "", "kafka-get-offsets", "--topic", topic, "--time", fmt.Sprint(time.Now().Add(-time.Hour).UnixMilli()))

	groups(k, topic)
	configs(k, topic)
	theRest(k, topic)

	k.run(nil, "", "kafka-topics", "--delete", "--topic", topic)
	k.refuse(`does not exist`, "kafka-topics", "--describe", "--topic", topic)
	if out := k.run(nil, "", "kafka-topics", "--list"); regexp.MustCompile(`(?m)^` + q + `$`).MatchString(out) {
		t.Errorf("kafka-topics --list after the delete:\n%s", out)
	}
}

// sumOffsets adds up the lines topic:partition:offset, one for each of eight partitions.
func sumOffsets(t *testing.T, out, topic string) int {
	t.Helper()
	lines := regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(topic)+`:(\d+):(\d+)$`).FindAllStringSubmatch(out, -1)
	if len(lines) != 8 {
		t.Errorf("offsets of %d partitions, want 8:\n%s", len(lines), out)
	}
	sum := 0
	for _, l := range lines {
		var n int
		fmt.Sscan(l[2], &n)
		sum += n
	}
	return sum
}

func groups(k *tools, topic string) {
	k.t.Helper()
	group, q := topic+".group", regexp.QuoteMeta(topic)
	k.run(w(`^`+q+`\.group$`), "", "kafka-consumer-groups", "--list")
	k.run(w(`^`+q+`\.group\s+Empty`), "", "kafka-consumer-groups", "--list", "--state")
	k.run(w(`GROUP\s+TOPIC\s+PARTITION\s+CURRENT-OFFSET\s+LOG-END-OFFSET\s+LAG\s+CONSUMER-ID\s+HOST\s+CLIENT-ID`,
		`^`+q+`\.group\s+`+q+`\s+\d\s+(\d+)\s+\d+\s+0\s+-\s+-\s+-`), "", "kafka-consumer-groups", "--describe", "--group", group, "--offsets")
	k.run(w(`GROUP\s+COORDINATOR \(ID\)\s+ASSIGNMENT-STRATEGY\s+STATE\s+#MEMBERS`, `Empty\s+0`), "", "kafka-consumer-groups", "--describe", "--group", group, "--state")
	k.run(w(`has no active members`), "", "kafka-consumer-groups", "--describe", "--group", group, "--members")
	k.run(w(q+`\.group\s+`+q+`\s+3\s+0\b`), "", "kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
	k.run(w(`^`+q+`\.group\s+`+q+`\s+\d\s+0\s+(\d+)\s+[1-9]`), "", "kafka-consumer-groups", "--describe", "--group", group)
	k.run(w(q+`\.group\s+`+q+`\s+0\s+1\b`), "", "kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", topic+":0", "--shift-by", "1", "--dry-run")
	k.run(w(`(?i)successful`), "", "kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
	k.run(nil, "", "kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute")
	k.run(w(`was successful`), "", "kafka-consumer-groups", "--delete", "--group", group)
	if out := k.run(nil, "", "kafka-consumer-groups", "--list"); strings.Contains(out, group+"\n") {
		k.t.Errorf("kafka-consumer-groups --list after the delete:\n%s", out)
	}
	if k.release >= "4" {
		k.run(nil, "", "kafka-groups", "--list")
	}
}

func configs(k *tools, topic string) {
	k.t.Helper()
	entity := []string{"--entity-type", "topics", "--entity-name", topic}
	with := func(args ...string) []string { return append(args, entity...) }
	k.run(w(`^\s*retention\.ms=3600000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:retention\.ms=3600000`), "", "kafka-configs", with("--describe")...)
	k.run(w(`Completed updating config for topic `), "", "kafka-configs", with("--alter", "--add-config", "max.message.bytes=100000,cleanup.policy=[compact,delete]")...)
	k.until(`max\.message\.bytes=100000`, "kafka-configs", with("--describe")...)
	k.until(`cleanup\.policy=compact,delete`, "kafka-configs", with("--describe")...)
	k.run(w(`Completed updating config for topic `), "", "kafka-configs", with("--alter", "--delete-config", "max.message.bytes,cleanup.policy")...)
	k.until(`^\s*max\.message\.bytes=1048588 .*synonyms=\{DEFAULT_CONFIG:message\.max\.bytes=1048588`, "kafka-configs", with("--describe", "--all")...)
	k.refuse(`(?i)invalid value`, "kafka-configs", with("--alter", "--add-config", "retention.ms=soon")...)
	k.refuse(`(?i)unknown`, "kafka-configs", with("--alter", "--add-config", "no.such.setting=1")...)
	k.refuse(`(?i)does not exist|unknown`, "kafka-configs", "--alter", "--add-config", "retention.ms=1", "--entity-type", "topics", "--entity-name", topic+".not")

	id := strings.TrimSpace(regexp.MustCompile(`\(id: (\d+) `).FindStringSubmatch(k.run(nil, "", "kafka-broker-api-versions"))[1])
	broker := []string{"--entity-type", "brokers", "--entity-name", id}
	k.run(w(`All configs for broker `+id+` are`, `log\.segment\.bytes=1073741824 .*synonyms=\{DEFAULT_CONFIG:log\.segment\.bytes=1073741824`, `compression\.type=producer`), "", "kafka-configs", append([]string{"--describe", "--all"}, broker...)...)
	k.run(w(`Completed updating config for broker `+id), "", "kafka-configs", append([]string{"--alter", "--add-config", "log.retention.ms=7200000"}, broker...)...)
	k.until(`log\.retention\.ms=7200000 .*DYNAMIC_BROKER_CONFIG:log\.retention\.ms=7200000`, "kafka-configs", append([]string{"--describe"}, broker...)...)
	k.run(nil, "", "kafka-configs", append([]string{"--alter", "--delete-config", "log.retention.ms"}, broker...)...)
	k.run(w(`Completed updating default config for brokers in the cluster`), "", "kafka-configs", "--alter", "--add-config", "log.cleaner.backoff.ms=16000", "--entity-type", "brokers", "--entity-default")
	k.until(`log\.cleaner\.backoff\.ms=16000 .*DYNAMIC_DEFAULT_BROKER_CONFIG:log\.cleaner\.backoff\.ms=16000`, "kafka-configs", "--describe", "--entity-type", "brokers", "--entity-default")
	k.run(nil, "", "kafka-configs", "--alter", "--delete-config", "log.cleaner.backoff.ms", "--entity-type", "brokers", "--entity-default")
}

func theRest(k *tools, topic string) {
	k.t.Helper()
	q := regexp.QuoteMeta(topic)

	k.run(w(`\(id: \d+ rack: null`, `Produce\(0\): 0 to \d+ \[usable: \d+\]`, `Metadata\(3\): 0 to \d+ \[usable: \d+\]`, `ApiVersions\(18\): 0 to \d+ \[usable: \d+\]`), "", "kafka-broker-api-versions")
	k.run(w(`^Cluster ID: \S{22}$`), "", "kafka-cluster", "cluster-id")
	k.run(w(`No partition reassignments found\.`), "", "kafka-reassign-partitions", "--list")
	k.run(w(`(?i)(already elected|successfully completed)`), "", "kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
	k.run(nil, "", "kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")

	out := k.run(nil, "", "kafka-log-dirs", "--describe", "--topic-list", topic)
	var dirs struct {
		Brokers []struct {
			LogDirs []struct {
				Error      *string
				Partitions []struct {
					Partition       string
					Size, OffsetLag int64
					IsFuture        bool
				}
			}
		}
	}
	line := regexp.MustCompile(`(?m)^\{.*\}$`).FindString(out)
	if err := json.Unmarshal([]byte(line), &dirs); err != nil || len(dirs.Brokers) != 1 || len(dirs.Brokers[0].LogDirs) != 1 {
		k.t.Errorf("kafka-log-dirs: %v\n%s", err, out)
	} else if d := dirs.Brokers[0].LogDirs[0]; d.Error != nil || len(d.Partitions) != 8 {
		k.t.Errorf("kafka-log-dirs: %d partitions, want 8\n%s", len(d.Partitions), out)
	}

	file := filepath.Join(k.t.TempDir(), "delete.json")
	spec := fmt.Sprintf(`{"partitions":[{"topic":%q,"partition":0,"offset":-1}],"version":1}`, topic)
	if err := os.WriteFile(file, []byte(spec), 0o600); err != nil {
		k.t.Fatal(err)
	}
	k.run(w(`partition: `+q+`-0\s+low_watermark: \d+`), "", "kafka-delete-records", "--offset-json-file", file)

	perf := topic + ".perf"
	k.run(nil, "", "kafka-topics", "--create", "--topic", perf, "--partitions", "2")
	props := []string{"--producer-props", "bootstrap.servers=" + k.addr, "acks=all"}
	k.run(w(`^20000 records sent, .*99\.9th`), "", "kafka-producer-perf-test", append([]string{"--topic", perf, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"}, props...)...)
	messages := "--messages"
	if k.release >= "4" {
		messages = "--num-records"
	}
	k.run(w(`20000`), "", "kafka-consumer-perf-test", "--topic", perf, messages, "20000", "--timeout", "30000", "--group", perf+".group")

	k.alone(w(`"name":"startup_complete"`, `"name":"producer_send_success"`, `"name":"tool_data".*"acked":200|"acked":200.*"name":"tool_data"`), "kafka-verifiable-producer", "--topic", perf, "--max-messages", "200", "--throughput", "-1")
	k.alone(w(`"name":"startup_complete"`, `"name":"partitions_assigned"`, `"name":"records_consumed"`, `"name":"offsets_committed".*"success":true|"success":true.*"name":"offsets_committed"`), "kafka-verifiable-consumer", "--topic", perf, "--group-id", perf+".verifiable", "--max-messages", "200", "--reset-policy", "earliest")
	k.run(nil, "", "kafka-topics", "--delete", "--topic", perf)
}
