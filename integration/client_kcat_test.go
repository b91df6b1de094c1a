//go:build clients

package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestKcat(t *testing.T) {
	if _, err := exec.LookPath("kcat"); err != nil {
		installed(t, "kcat") // says that setup.sh installs it
	}
	b := Start(t, "group.initial.rebalance.delay.ms=0", "num.partitions=6")
	scenario(t, b, perCodec, func(t *testing.T, addr string) client {
		return &kcat{kgoClient: dialKgo(t, addr).(*kgoClient), ours: !b.External()}
	})
}

// kcat is the command line client on Debian's librdkafka. What it has no words for (groups, commits) is asked by
// kgo; a topic comes to be by auto-creation with num.partitions, where the broker is ours.
type kcat struct {
	*kgoClient
	ours bool // the broker has num.partitions as the scenario wants it
}

// command is kcat to its end.
func (c *kcat) command(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "kcat", append([]string{"-b", c.addr}, args...)...)
	endWithParent(cmd)
	cmd.Stdin = strings.NewReader(stdin)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kcat %s: %w: %s", strings.Join(args, " "), err, errOut.String())
	}
	return string(out), nil
}

func (c *kcat) createTopic(ctx context.Context, topic string, partitions int) error {
	if !c.ours {
		return c.kgoClient.createTopic(ctx, topic, partitions)
	}
	_, err := c.command(ctx, "", "-L", "-t", topic, "-X", "allow.auto.create.topics=true")
	return err
}

func (c *kcat) metadata(ctx context.Context, args ...string) (names []string, leaders map[int32]int32, err error) {
	out, err := c.command(ctx, "", append([]string{"-L", "-J"}, args...)...)
	if err != nil {
		return nil, nil, err
	}
	var m struct {
		Topics []struct {
			Topic      string
			Error      string
			Partitions []struct{ Partition, Leader int32 }
		}
	}
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		return nil, nil, err
	}
	leaders = map[int32]int32{}
	for _, t := range m.Topics {
		names = append(names, t.Topic)
		if t.Error != "" {
			err = errors.New(t.Error)
		}
		for _, p := range t.Partitions {
			leaders[p.Partition] = p.Leader
		}
	}
	return names, leaders, err
}

func (c *kcat) topics(ctx context.Context) ([]string, error) {
	names, _, err := c.metadata(ctx)
	return names, err
}

func (c *kcat) leaders(ctx context.Context, topic string) (map[int32]int32, error) {
	_, leaders, err := c.metadata(ctx, "-t", topic)
	return leaders, err
}

func (c *kcat) send(ctx context.Context, topic, codec string, ms []message) error {
	var in strings.Builder
	for _, m := range ms {
		fmt.Fprintf(&in, "%s:%s\n", m.Key, m.Value)
	}
	_, err := c.command(ctx, in.String(), "-P", "-t", topic, "-z", codec, "-K", ":", "-X", "enable.idempotence=true", "-X", "partitioner=murmur2_random")
	return err
}

var queried = regexp.MustCompile(`\[\d+\] offset (-?\d+)`)

func (c *kcat) offsetAt(ctx context.Context, topic string, partition int32, at time.Time) (int64, error) {
	out, err := c.command(ctx, "", "-Q", "-t", fmt.Sprintf("%s:%d:%d", topic, partition, at.UnixMilli()))
	if err != nil {
		return 0, err
	}
	m := queried.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("kcat -Q says %q", out)
	}
	return strconv.ParseInt(m[1], 10, 64)
}

// kcatMember is one kcat -G. It commits by itself, every 100 ms and when it ends.
type kcatMember struct {
	c            *kcat
	group, topic string
	cmd          *exec.Cmd
	out          chan message
	done         chan struct{}
	left         chan struct{}
}

func (c *kcat) join(_ context.Context, group, topic string) (member, error) {
	m := &kcatMember{c: c, group: group, topic: topic, out: make(chan message), done: make(chan struct{}), left: make(chan struct{})}
	m.cmd = exec.Command("kcat", "-b", c.addr, "-q", "-u", "-E", "-f", `%p %o %T %k %s\n`, "-X", "auto.offset.reset=earliest",
		"-X", "auto.commit.interval.ms=100", "-X", "heartbeat.interval.ms=200", "-X", "fetch.wait.max.ms=200", "-X", "reconnect.backoff.max.ms=500",
		"-G", group, topic)
	endWithParent(m.cmd)
	stderr := &output{}
	m.cmd.Stderr = stderr
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(m.done)
		defer close(m.out)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f := strings.SplitN(lines.Text(), " ", 5)
			if len(f) != 5 {
				c.t.Errorf("kcat -G printed %q", lines.Text())
				continue
			}
			p, err1 := strconv.ParseInt(f[0], 10, 32)
			o, err2 := strconv.ParseInt(f[1], 10, 64)
			at, err3 := strconv.ParseInt(f[2], 10, 64)
			if err := errors.Join(err1, err2, err3); err != nil {
				c.t.Errorf("kcat -G printed %q: %v", lines.Text(), err)
			}
			select {
			case m.out <- message{int32(p), o, f[3], f[4], time.UnixMilli(at)}:
			case <-m.left:
			}
		}
		if err := m.cmd.Wait(); err != nil {
			c.t.Logf("kcat -G: %v: %s", err, tail(stderr.String(), 20))
		}
	}()
	return m, nil
}

func (m *kcatMember) records() <-chan message { return m.out }

// commit does nothing: kcat commits what it has printed, and the scenario waits for that.
func (m *kcatMember) commit(context.Context) error { return nil }

func (m *kcatMember) leave() error {
	close(m.left)
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.done:
		return nil
	case <-time.After(20 * time.Second):
		_ = m.cmd.Process.Kill()
		<-m.done
		return errors.New("kcat -G: no end within 20 s of SIGTERM")
	}
}
