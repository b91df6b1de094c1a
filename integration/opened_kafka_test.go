//go:build clients

package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// registryTool runs `ottla registry` and gives what it said.
func registryTool(t *testing.T, args ...string) string {
	t.Helper()
	out, said, status := Run(t, append([]string{"registry"}, args...)...)
	if status != 0 {
		t.Fatalf("ottla registry %s: status %d\n%s%s", strings.Join(args, " "), status, out, said)
	}
	return said
}

// jvm runs a class of Kafka 3.9.1's jars until it is stopped; what it says is given back then.
func jvm(t *testing.T, heap, class string, args ...string) (out *output, stop func() string) {
	t.Helper()
	log4j := filepath.Join(t.TempDir(), "log4j.properties")
	err := os.WriteFile(log4j, []byte("log4j.rootLogger=INFO, o\nlog4j.appender.o=org.apache.log4j.ConsoleAppender\n"+
		"log4j.appender.o.layout=org.apache.log4j.PatternLayout\nlog4j.appender.o.layout.ConversionPattern=%p %m (%c)%n\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	libs := filepath.Join(installed(t, "kafka-3.9.1"), "kafka-3.9.1", "libs", "*")
	out = &output{line: make(chan string, 1)}
	cmd := exec.Command("java", append([]string{"-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dzookeeper.jmx.log4j.disable=true", "-Dlog4j.configuration=file:" + log4j, "-cp", libs, class}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	stop = func() string {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(60 * time.Second):
			_ = cmd.Process.Kill()
			<-exited
			t.Errorf("%s did not stop", class)
		}
		return out.String()
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		if t.Failed() {
			t.Logf("%s said\n%s", class, tail(out.String(), 60))
		}
	})
	return out, stop
}

func zooKeeper39(t *testing.T) (addr string, stop func() string) {
	t.Helper()
	dir, port := t.TempDir(), freePorts(t)
	file := filepath.Join(dir, "zoo.cfg")
	err := os.WriteFile(file, fmt.Appendf(nil, "tickTime=1000\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n", dir, port), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, stop = jvm(t, "128M", "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	return fmt.Sprintf("127.0.0.1:%d", port), stop
}

// kafka39 starts a broker of Kafka 3.9.1 on a directory, with a ZooKeeper, and waits until it serves.
func kafka39(t *testing.T, dir, zk string) (addr string, stop func() string) {
	t.Helper()
	addr = net.JoinHostPort("127.0.0.1", fmt.Sprint(freePorts(t)))
	file := filepath.Join(t.TempDir(), "server.properties")
	err := os.WriteFile(file, fmt.Appendf(nil, `broker.id=1
zookeeper.connect=%s
listeners=PLAINTEXT://%s
log.dirs=%s
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=2
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
controlled.shutdown.enable=true
log.index.size.max.bytes=4096
`, zk, addr, dir), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	out, stop := jvm(t, "384M", "kafka.Kafka", file)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl := kgoDial(t, kgo.SeedBrokers(addr))
	adm := kadm.NewClient(cl)
	for { // its controller tells it of its partitions when it serves already
		topics, err := adm.ListTopicsWithInternal(ctx)
		leaders := 0
		topics.EachPartition(func(p kadm.PartitionDetail) {
			if p.Leader == 1 {
				leaders++
			}
		})
		if ends, err2 := adm.ListEndOffsets(ctx, topics.Names()...); err == nil && err2 == nil && ends.Error() == nil && leaders > 0 {
			return addr, stop
		}
		if said := out.String(); ctx.Err() != nil || strings.Contains(said, "shut down completed") {
			checkKafkaLog(t, said)
			t.Fatalf("Kafka does not serve: %v", err)
		}
	}
}

// ordinary are the warnings that Kafka has of every start on one broker: its controller wants to
// reach it before it listens.
var ordinary = regexp.MustCompile(`\(org\.apache\.kafka\.clients\.NetworkClient\)|\(kafka\.controller\.RequestSendThread\)`)

// checkKafkaLog looks for what Kafka had against the directory or the tree.
func checkKafkaLog(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		level, _, _ := strings.Cut(line, " ")
		if (level == "WARN" || level == "ERROR" || level == "FATAL") && !ordinary.MatchString(line) {
			t.Errorf("Kafka said: %s", line)
		}
	}
	if t.Failed() {
		t.Logf("Kafka said\n%s", tail(log, 60))
	}
}

// dumpsOf has kafka-dump-log read everything in a directory.
func dumpsOf(t *testing.T, dir string, releases []string) {
	t.Helper()
	find := func(patterns ...string) string {
		var files []string
		for _, p := range patterns {
			found, err := filepath.Glob(filepath.Join(dir, p))
			if err != nil || len(found) == 0 {
				t.Fatalf("no %s: %v", p, err)
			}
			files = append(files, found...)
		}
		slices.Sort(files)
		return strings.Join(files, ",")
	}
	indexes := find("*/*.index", "*/*.timeindex")
	for _, args := range [][]string{
		{"--deep-iteration", "--files", find("*/*.log", "*/*.txnindex", "*/*.snapshot")},
		{"--index-sanity-check", "--files", indexes},
		{"--verify-index-only", "--files", indexes},
		{"--offsets-decoder", "--files", find("__consumer_offsets-*/*.log")},
		{"--transaction-log-decoder", "--files", find("__transaction_state-*/*.log")},
	} {
		for _, release := range releases {
			out := dumpLogTool(t, release, args...)
			for _, wrong := range []string{"isvalid: false", "invalid bytes", "Mismatches in", "failed", "Index timestamp", "skipping"} {
				if strings.Contains(out, wrong) {
					t.Errorf("%s %s: %q in\n%s", release, args[0], wrong, tail(out, 40))
				}
			}
		}
	}
}
