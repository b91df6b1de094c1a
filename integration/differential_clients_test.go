//go:build clients

package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDifferentialKafka sends the scripts' requests to Kafka 4.4.0 and compares its answers with those that the
// files have. With OTTLA_DIFFERENTIAL=write the files are written anew. OTTLA_DIFFERENTIAL_KAFKA names a broker that
// is up already, with differentialSettings and those of kafka44.
func TestDifferentialKafka(t *testing.T) {
	addr := os.Getenv("OTTLA_DIFFERENTIAL_KAFKA")
	if addr == "" {
		addr = kafka44(t, differentialSettings...)
	}
	eachScript(t, func(t *testing.T, file string, s *script) {
		p := &play{TB: t, addr: addr, area: fmt.Sprint(filepath.Base(file), time.Now().UnixNano()%1e6)}
		p.prepare()
		was := s.write()
		for _, c := range s.cases {
			for i, answers := range p.run(c) {
				c.steps[i].kafka = answers
			}
		}
		if os.Getenv("OTTLA_DIFFERENTIAL") == "write" {
			if err := os.WriteFile(file, []byte(s.write()), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if d := cmp.Diff(strings.Split(was, "\n"), strings.Split(s.write(), "\n")); d != "" {
			t.Errorf("Kafka answers otherwise than %s says:\n%s", file, d)
		}
	})
}

// kafka44 starts one broker of Kafka 4.4.0, which is its own controller, and gives its address. It computes the
// assignments of consumer groups at once, as ottla does.
func kafka44(t *testing.T, settings ...string) string {
	t.Helper()
	libs := filepath.Join(installed(t, "kafka-4.4.0"), "kafka-4.4.0", "libs", "*")
	addr := net.JoinHostPort("127.0.0.1", fmt.Sprint(freePorts(t)))
	controller := net.JoinHostPort("127.0.0.1", fmt.Sprint(freePorts(t)))
	dir := t.TempDir()
	file := filepath.Join(dir, "server.properties")
	err := os.WriteFile(file, fmt.Appendf(nil, `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[2]s
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[2]s
advertised.listeners=PLAINTEXT://%[1]s
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=%[3]s
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.consumer.assignment.interval.ms=0
group.consumer.assignor.offload.enable=false
%[4]s
`, addr, controller, filepath.Join(dir, "data"), strings.Join(settings, "\n")), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	java := []string{"-Xmx384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", libs}
	format := exec.Command("java", append(java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", file)...)
	if out, err := format.CombinedOutput(); err != nil {
		t.Fatalf("format: %v\n%s", err, out)
	}
	out := &output{line: make(chan string, 1)}
	cmd := exec.Command("java", append(java, "kafka.Kafka", file)...)
	cmd.Stdout, cmd.Stderr = out, out
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Kafka said\n%s", tail(out.String(), 60))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			nc.Close()
			tick.Stop()
			return addr
		}
		select {
		case <-ctx.Done():
			t.Fatalf("Kafka does not listen: %v\n%s", err, tail(out.String(), 60))
		case <-tick.C:
		}
	}
}
