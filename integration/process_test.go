package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ours starts a broker for a test of the process itself, which an external broker cannot stand for.
func ours(t *testing.T, opts Options) *Broker {
	t.Helper()
	if os.Getenv(envBootstrap) != "" {
		t.Skip("a test of the ottla process")
	}
	return StartWith(t, opts)
}

func TestReadyLine(t *testing.T) {
	t.Parallel()
	b := ours(t, Options{})
	for _, want := range []string{`PLAINTEXT://` + regexp.QuoteMeta(b.Addr()), `data in ` + regexp.QuoteMeta(b.Dir()), `embedded`, `\d+ ms`} {
		if !regexp.MustCompile(want).MatchString(b.Ready()) {
			t.Errorf("ready line %q, want %s in it", b.Ready(), want)
		}
	}
}

// TestStopsAtOnce: a signal ends a broker within a second, with clients waiting in Fetch and in groups.
func TestStopsAtOnce(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := ours(t, Options{Settings: []string{"group.initial.rebalance.delay.ms=0"}})
			c := dialKgo(t, b.Addr())
			defer c.close()
			ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
			defer stop()
			if err := c.createTopic(ctx, "waiting", 2); err != nil {
				t.Fatal(err)
			}
			if err := c.send(ctx, "waiting", "none", messages(0, 10, time.Now())); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("waiting"), kgo.FetchMaxWait(30*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				defer cl.CloseAllowingRebalance()
				polled := make(chan struct{})
				go func() {
					defer close(polled)
					cl.PollFetches(ctx)
				}()
				defer func() { <-polled }()
				defer stop()
			}
			took := b.StopBy(signal)
			if took > time.Second {
				t.Errorf("the broker took %v to end", took)
			}
			if _, err := os.Stat(filepath.Join(b.Dir(), ".kafka_cleanshutdown")); err != nil {
				t.Errorf("the next start needs a recovery: %v", err)
			}
			b.Start()
			if n := count(ctx, t, b.Addr(), "waiting"); n != 10 {
				t.Errorf("%d records after the restart, want 10", n)
			}
		})
	}
}

// count reads a topic from its start to its end.
func count(ctx context.Context, t *testing.T, addr, topic string) int {
	t.Helper()
	c := dialKgo(t, addr).(*kgoClient)
	defer c.close()
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	var want int
	for _, p := range ends[topic] {
		want += int(p.Offset)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	n := 0
	for n < want {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatalf("%d of %d records: %v", n, want, err)
		}
		n += fs.NumRecords()
	}
	return n
}

func TestSecondBrokerOnTheSameData(t *testing.T) {
	t.Parallel()
	b := ours(t, Options{})
	out, errOut, status := Run(t, "--data-dir", b.Dir(), "--listen", "127.0.0.1:0", "--http", "")
	if status != 1 || !strings.Contains(errOut, b.Dir()) || !strings.Contains(errOut, "lock") {
		t.Errorf("status %d, want 1 and the directory named as locked\n%s%s", status, out, errOut)
	}
	c := dialKgo(t, b.Addr())
	defer c.close()
	if _, err := c.topics(t.Context()); err != nil {
		t.Errorf("the first broker was disturbed: %v", err)
	}
}

func TestBrokenSettings(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		set  string
		want []string
	}{
		{"num.partitions=none", []string{"num.partitions", "none"}},
		{"num.partitions=0", []string{"num.partitions", "0", "1"}},
		{"log.cleanup.policy=keep", []string{"log.cleanup.policy", "keep", "compact", "delete"}},
		{"listeners=PLAINTEXT//x", []string{"listeners", "PLAINTEXT//x"}},
	} {
		out, errOut, status := Run(t, "--data-dir", t.TempDir(), "--http", "", "--set", x.set)
		if status != 1 {
			t.Errorf("%s: status %d, want 1\n%s%s", x.set, status, out, errOut)
		}
		for _, w := range x.want {
			if !strings.Contains(errOut, w) {
				t.Errorf("%s: the message has no %q: %s", x.set, w, errOut)
			}
		}
	}
}

// TestStartAndStopOnOnePort: twenty times in a row on one port: start, use, stop, delete.
func TestStartAndStopOnOnePort(t *testing.T) {
	t.Parallel()
	b := ours(t, Options{})
	for i := range 20 {
		c := dialKgo(t, b.Addr())
		topic := fmt.Sprintf("t%d", i)
		if err := c.createTopic(t.Context(), topic, 1); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if err := c.send(t.Context(), topic, "none", messages(0, 1, time.Now())); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		c.close()
		b.Stop()
		if err := os.RemoveAll(b.Dir()); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if _, err := os.Stat(b.Dir()); !os.IsNotExist(err) {
			t.Fatalf("round %d: something was written after the stop: %v", i, err)
		}
		b.Start()
	}
}

func TestInMemory(t *testing.T) {
	t.Parallel()
	b := ours(t, Options{Args: []string{"--in-memory"}})
	c := dialKgo(t, b.Addr())
	defer c.close()
	if err := c.createTopic(t.Context(), "m", 3); err != nil {
		t.Fatal(err)
	}
	if err := c.send(t.Context(), "m", "zstd", messages(0, 1000, time.Now())); err != nil {
		t.Fatal(err)
	}
	if n := count(t.Context(), t, b.Addr(), "m"); n != 1000 {
		t.Errorf("%d records, want 1000", n)
	}
	if _, err := os.Stat("ottla-data"); !errors.Is(err, os.ErrNotExist) { // where a broker without --data-dir would keep it
		t.Errorf("on disk: %v; want nothing", err)
	}
	if !strings.Contains(b.Ready(), "memory") {
		t.Errorf("ready line %q does not say that nothing is kept", b.Ready())
	}
}

// TestHTTP: metrics and health are there, and a port that is taken is a warning.
func TestHTTP(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := taken.Addr().String()
	b := ours(t, Options{Args: []string{"--http", addr}})
	if !strings.Contains(b.Log(), "level=WARN") || !strings.Contains(b.Log(), addr) {
		t.Errorf("no warning that %s is taken:\n%s", addr, b.Log())
	}
	taken.Close()
	b.Stop()
	b.Start()
	c := dialKgo(t, b.Addr())
	defer c.close()
	if _, err := c.topics(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/healthz": "", "/readyz": "", "/metrics": "process_resident_memory_bytes"} {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Error(err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: status %d, %v, want 200 and %q in\n%.500s", path, resp.StatusCode, err, want, body)
		}
	}
}
