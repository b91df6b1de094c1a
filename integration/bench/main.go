// Command bench measures what a broker costs before any load: the time from process start to the first
// answer, on a fresh directory and on an existing one, and its resident memory idle and with idle connections.
// With a flag it measures something else: -compact, -large, -groups, -txn, -offsets (groups.sh runs the last three).
//
//	go run ./integration/bench [-rounds 5] [-topics 10] NAME COMMAND...
//
// The command starts the broker in the foreground; $PORT and $DIR in it are replaced by a free port of 127.0.0.1 and
// the data directory. It prints one row of a Markdown table, below -header the head of it.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	rounds = flag.Int("rounds", 5, "starts of each kind; the best and the median are shown")
	topics = flag.Int("topics", 10, "topics of six partitions in the existing directory")
	header = flag.Bool("header", false, "print the table's head and nothing else")
	few    = flag.Int("few", 1000, "idle connections whose memory is measured")
	many   = flag.Int("many", 10000, "idle connections that must be held and answered")
)

func main() {
	flag.Parse()
	if *pivoting {
		if err := pivot(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if *header && *largeOnly {
		fmt.Println("| broker | what | measured |\n|---|---|---|")
		return
	}
	if *header && *compaction {
		fmt.Println("| broker | 100 B, MB/s | CPU s/GB | 1 KiB, MB/s | CPU s/GB |\n|---|---|---|---|---|")
		return
	}
	if *header {
		fmt.Println("| broker | start, fresh directory, ms: best/median | start, existing directory, ms: best/median | idle, MiB |" +
			fmt.Sprintf(" %d idle connections, MiB more | %d connections, MiB more |", *few, *many))
		fmt.Println("|---|---|---|---|---|---|")
		return
	}
	if flag.NArg() < 2 {
		flag.Usage()
		os.Exit(2)
	}
	of := measure
	switch {
	case *compaction:
		of = compact
	case *largeOnly:
		of = large
	case *groupsOnly:
		of = groups
	case *txnOnly:
		of = transactions
	case *offsetsOnly:
		of = offsets
	}
	row, err := of(flag.Arg(0), flag.Args()[1:])
	if row != "" {
		fmt.Println(row) // also what was measured before a failure
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(name string, command []string) (string, error) {
	work, err := os.MkdirTemp("", "ottla-bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	var fresh, existing []time.Duration
	for i := range *rounds {
		b, err := start(command, filepath.Join(work, "fresh"+strconv.Itoa(i)))
		if err != nil {
			return "", err
		}
		fresh = append(fresh, b.took)
		if err := b.stop(); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(work, "existing")
	b, err := start(command, dir)
	if err != nil {
		return "", err
	}
	if err := fill(b.addr); err != nil {
		return "", errors.Join(err, b.stop())
	}
	if err := b.stop(); err != nil {
		return "", err
	}
	for range *rounds {
		if b, err = start(command, dir); err != nil {
			return "", err
		}
		existing = append(existing, b.took)
		if err := b.stop(); err != nil {
			return "", err
		}
	}
	if b, err = start(command, filepath.Join(work, "memory")); err != nil {
		return "", err
	}
	mem, err := memory(b)
	if err := errors.Join(err, b.stop()); err != nil {
		return "", err
	}
	return fmt.Sprintf("| %s | %s | %s | %.1f | %.1f | %.1f |", name, bestMedian(fresh), bestMedian(existing), mem[0], mem[1]-mem[0], mem[2]-mem[0]), nil
}

func bestMedian(ds []time.Duration) string {
	slices.Sort(ds)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return fmt.Sprintf("**%.1f**/%.1f", ms(ds[0]), ms(ds[len(ds)/2]))
}

// broker is a process that has answered once.
type broker struct {
	cmd  *exec.Cmd
	addr string
	took time.Duration // from process start to the answer
}

func start(command []string, dir string) (*broker, error) {
	port := freePort()
	addr := net.JoinHostPort("127.0.0.1", port)
	args := make([]string, len(command))
	for i, a := range command {
		args[i] = strings.NewReplacer("$PORT", port, "$DIR", dir).Replace(a)
	}
	cmd := exec.Command(args[0], args[1:]...)
	log, err := os.Create(dir + ".log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b := &broker{cmd: cmd, addr: addr}
	for {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			err = ask(c)
			c.Close()
		}
		b.took = time.Since(begun)
		if err == nil {
			return b, nil
		}
		if b.took > time.Minute {
			printed, _ := os.ReadFile(dir + ".log")
			return nil, errors.Join(fmt.Errorf("no answer within a minute: %w\n%s", err, printed), b.stop())
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// freePort is a port that is free together with the next one, which Kafka's controller takes. It lies below those
// that the kernel gives to clients: one of these may be in use as a client's by the time the broker listens.
func freePort() string {
	for {
		port := 20000 + rand.IntN(10000)
		a, err1 := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		b, err2 := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1)))
		if err1 == nil {
			a.Close()
		}
		if err2 == nil {
			b.Close()
		}
		if err1 == nil && err2 == nil {
			return strconv.Itoa(port)
		}
	}
}

// ask sends ApiVersions and reads the answer.
func ask(c net.Conn) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = 3
	req.ClientSoftwareName, req.ClientSoftwareVersion = "bench", "1"
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 1)); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 3
	if err := resp.ReadFrom(body[4:]); err != nil {
		return err
	}
	if resp.ErrorCode != 0 {
		return fmt.Errorf("ApiVersions: error %d", resp.ErrorCode)
	}
	return nil
}

func (b *broker) stop() error {
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := b.cmd.Wait()
	if b.cmd.ProcessState.ExitCode() == 143 { // a JVM's way to end by SIGTERM
		return nil
	}
	return err
}

// fill puts a few topics with records and a group's commits into the directory.
func fill(addr string) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation())
	if err != nil {
		return err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	for i := range *topics {
		topic := fmt.Sprintf("topic-%d", i)
		if _, err := admin.CreateTopic(ctx, 6, 1, nil, topic); err != nil {
			return err
		}
		var rs []*kgo.Record
		for n := range 1000 {
			rs = append(rs, &kgo.Record{Topic: topic, Key: []byte(strconv.Itoa(n)), Value: make([]byte, 100)})
		}
		if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			return err
		}
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 0, 1, -1)
		if err := admin.CommitAllOffsets(ctx, "group", offsets); err != nil {
			return err
		}
	}
	return nil
}

// memory returns the resident MiB of an idle broker, with few idle connections, and with many; each has asked once.
func memory(b *broker) ([3]float64, error) {
	var mem [3]float64
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for i, n := range []int{0, *few, *many} {
		for len(conns) < n {
			c, err := net.Dial("tcp", b.addr)
			if err != nil {
				return mem, fmt.Errorf("connection %d: %w", len(conns), err)
			}
			conns = append(conns, c)
			if err := ask(c); err != nil {
				return mem, fmt.Errorf("connection %d: %w", len(conns), err)
			}
		}
		time.Sleep(3 * time.Second) // what the last answer took is given back meanwhile
		var err error
		if mem[i], err = resident(b.cmd.Process.Pid); err != nil {
			return mem, err
		}
	}
	for i, c := range conns {
		if err := ask(c); err != nil {
			return mem, fmt.Errorf("connection %d of %d was not held: %w", i, len(conns), err)
		}
	}
	return mem, nil
}

func resident(pid int) (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(v)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}
