//go:build clients

package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// verifiableEvent is a line of kafka-verifiable-producer or kafka-verifiable-consumer.
type verifiableEvent struct {
	Name       string `json:"name"`
	Value      string `json:"value"`
	Partition  int32  `json:"partition"`
	Offset     int64  `json:"offset"`
	Count      int    `json:"count"`
	Success    bool   `json:"success"`
	Sent       int    `json:"sent"`
	Acked      int    `json:"acked"`
	Partitions []struct {
		Partition            int32
		MinOffset, MaxOffset int64
	} `json:"partitions"`
}

// startVerifiable runs a class of Java, and calls back with each line. The function that it returns ends its input
// and waits for the process, which must end with status 0.
func startVerifiable(t *testing.T, line func(string), command ...string) (end func()) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	endWithParent(cmd)
	errors := &output{}
	cmd.Stderr = errors
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			line(lines.Text())
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	end = sync.OnceFunc(func() {
		in.Close()
		late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", command[len(command)-1], err, tail(errors.String(), 40))
		}
	})
	t.Cleanup(end)
	return end
}

// TestVerifiable: kafka-verifiable-producer writes while the broker is killed and started, and two consumers of each
// protocol read: what was acknowledged is read, at the offset that was told, and all is committed in the end.
func TestVerifiable(t *testing.T) {
	t.Parallel()
	const records = 5000
	b := Start(t, append([]string{"group.initial.rebalance.delay.ms=0"}, quickGroups...)...)
	adm := kadm.NewClient(kgoDial(t, kgo.SeedBrokers(b.Addr())))
	if _, err := adm.CreateTopic(t.Context(), 4, 1, nil, "verifiable"); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	acked := map[string]string{}                       // guarded by mu: value by partition and offset
	seen := map[string]map[string]string{}             // guarded by mu: the same for each group
	data := verifiableEvent{}                          // guarded by mu: the producer's last word
	count := map[string]map[string]int{}               // guarded by mu: events by tool and name
	listed, told := map[string]int{}, map[string]int{} // guarded by mu: records by consumer, one by one and in sums
	take := func(tool, line string) {
		mu.Lock()
		defer mu.Unlock()
		var e verifiableEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%s printed %q: %v", tool, line, err)
			return
		}
		if count[tool] == nil {
			count[tool] = map[string]int{}
		}
		count[tool][e.Name]++
		group, _, _ := strings.Cut(tool, "/")
		at := fmt.Sprint(e.Partition, "/", e.Offset)
		switch e.Name {
		case "producer_send_success":
			acked[at] = e.Value
		case "tool_data":
			data = e
		case "record_data":
			if seen[group] == nil {
				seen[group] = map[string]string{}
			}
			seen[group][at] = e.Value
			listed[tool]++
		case "records_consumed":
			told[tool] += e.Count
			sum := 0
			for _, p := range e.Partitions {
				sum += int(p.MaxOffset - p.MinOffset + 1)
			}
			if sum != e.Count {
				t.Errorf("%s: %d records in %s", tool, e.Count, line)
			}
		case "offsets_committed":
			if e.Success {
				count[tool]["committed"]++
			}
		}
	}

	consumers := javaCommand(t, "4.4.0", "Verifiables")
	for _, c := range []string{
		"classic/a --group-id classic --assignment-strategy org.apache.kafka.clients.consumer.RoundRobinAssignor",
		"classic/b --group-id classic --assignment-strategy org.apache.kafka.clients.consumer.RoundRobinAssignor --group-instance-id b",
		"next/a --group-id next --group-protocol consumer --group-remote-assignor range",
		"next/b --group-id next --group-protocol consumer --group-remote-assignor range --group-instance-id b",
	} {
		consumers = append(consumers, c+" --topic verifiable --reset-policy earliest --verbose")
	}
	stopConsumers := startVerifiable(t, func(line string) {
		tool, line, _ := strings.Cut(line, " ")
		take(tool, line)
	}, append(consumers, b.Addr())...)
	for group, next := range map[string]bool{"classic": false, "next": true} {
		eventually(t, group+" is stable", time.Minute, func() bool { return stableGroup(t.Context(), adm, group, next, 2, 4) })
	}
	stopProducer := startVerifiable(t, func(line string) { take("producer", line) }, append(javaCommand(t, "4.4.0", "org.apache.kafka.tools.VerifiableProducer"),
		"--topic", "verifiable", "--max-messages", fmt.Sprint(records), "--throughput", "1500", "--acks", "-1", "--repeating-keys", "100", "--bootstrap-server", b.Addr())...)

	eventually(t, "some records are written and read", time.Minute, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(acked) >= records/4 && len(seen["classic"]) > 0 && len(seen["next"]) > 0
	})
	b.Restart()
	eventually(t, "all are sent", 90*time.Second, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return data.Sent > 0
	})
	stopProducer()
	ends, err := adm.ListEndOffsets(t.Context(), "verifiable")
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"classic", "next"} {
		eventually(t, group+" commits all", time.Minute, func() bool {
			at, err := adm.FetchOffsets(t.Context(), group)
			ok := err == nil
			ends.Each(func(l kadm.ListedOffset) {
				o, _ := at.Lookup(l.Topic, l.Partition)
				ok = ok && o.At == l.Offset
			})
			return ok
		})
	}
	stopConsumers() // what was committed has been printed before

	mu.Lock()
	defer mu.Unlock()
	// the tool does not try again: what was under way when the broker was killed has failed
	good, bad := count["producer"]["producer_send_success"], count["producer"]["producer_send_error"]
	if data.Sent != records || data.Acked != good || good+bad != records || good < records/2 {
		t.Errorf("the producer says %+v, and %d records were acknowledged, %d not", data, good, bad)
	}
	values := map[string]bool{}
	for at, value := range acked {
		values[value] = true
		for group := range seen {
			if seen[group][at] != value {
				t.Errorf("%s: %q at %s, which was acknowledged for %q", group, seen[group][at], at, value)
			}
		}
	}
	if len(values) != good {
		t.Errorf("%d different values in %d acknowledged records", len(values), good)
	}
	for tool, want := range map[string][]string{
		"producer":  {"startup_complete", "shutdown_complete", "tool_data"},
		"classic/a": {"startup_complete", "partitions_assigned", "records_consumed", "committed", "shutdown_complete"},
		"classic/b": {"startup_complete", "partitions_assigned", "records_consumed", "committed", "shutdown_complete"},
		"next/a":    {"startup_complete", "partitions_assigned", "records_consumed", "committed", "shutdown_complete"},
		"next/b":    {"startup_complete", "partitions_assigned", "records_consumed", "committed", "shutdown_complete"},
	} {
		for _, name := range want {
			if count[tool][name] == 0 {
				t.Errorf("%s: no %s in %v", tool, name, count[tool])
			}
		}
		if listed[tool] != told[tool] {
			t.Errorf("%s: %d records one by one, %d in sums", tool, listed[tool], told[tool])
		}
	}
}
