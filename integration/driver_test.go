//go:build clients

package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// installed is the folder that setup.sh fills; the test is skipped where part is not in it,
// unless CI is set: there a missing client is a failure.
func installed(t *testing.T, part string) string {
	t.Helper()
	dir := os.Getenv("OTTLA_CLIENTS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(cache, "ottla-clients")
	}
	if _, err := os.Stat(filepath.Join(dir, part)); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v; integration/setup.sh installs it", err)
		}
		t.Skipf("%v; integration/setup.sh installs it", err)
	}
	return dir
}

// driven is a client in another language: a program that takes one JSON command a line and answers
// in one line, {"id":…,"value":…} or {"id":…,"error":…}. What a member is handed comes between the
// answers, {"member":…,"records":[[partition, offset, key, value, milliseconds],…]}.
type driven struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr *output
	done   chan struct{} // closed when its output has ended

	mu      sync.Mutex
	last    int                   // guarded by mu: id of the last command
	waiting map[int]chan answer   // guarded by mu
	members map[int]*drivenMember // guarded by mu
}

type answer struct {
	ID      int             `json:"id"`
	Value   json.RawMessage `json:"value"`
	Error   string          `json:"error"`
	Member  int             `json:"member"`
	Records [][5]any        `json:"records"`
}

// drive starts the program; its last argument is the broker's address.
func drive(t *testing.T, addr string, command ...string) client {
	t.Helper()
	c := &driven{
		t: t, cmd: exec.Command(command[0], append(command[1:], addr)...), stderr: &output{},
		done: make(chan struct{}), waiting: map[int]chan answer{}, members: map[int]*drivenMember{},
	}
	endWithParent(c.cmd)
	c.cmd.Stderr = c.stderr
	in, err1 := c.cmd.StdinPipe()
	out, err2 := c.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, c.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	c.in = in
	go c.read(out)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the client's standard error:\n%s", tail(c.stderr.String(), 100))
		}
	})
	return c
}

func (c *driven) read(out io.Reader) {
	defer close(c.done)
	lines := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var a answer
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&a); err != nil {
			c.t.Errorf("client said %.200q: %v", line, err)
			continue
		}
		c.mu.Lock()
		m, w := c.members[a.Member], c.waiting[a.ID]
		delete(c.waiting, a.ID)
		c.mu.Unlock()
		switch {
		case a.Member > 0 && m != nil:
			m.take(a.Records)
		case w != nil:
			w <- a
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiting {
		w <- answer{Error: "the client ended"}
	}
	c.waiting = nil
}

// args are a command's arguments by name.
type args map[string]any

// do sends a command and decodes its answer into value, unless that is nil.
func (c *driven) do(ctx context.Context, op string, a args, value any) error {
	w := make(chan answer, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return fmt.Errorf("%s: the client has ended", op)
	}
	c.last++
	if a == nil {
		a = args{}
	}
	a["id"], a["op"] = c.last, op
	c.waiting[c.last] = w
	line, err := json.Marshal(a)
	if err == nil {
		_, err = c.in.Write(append(line, '\n'))
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	select {
	case got := <-w:
		if got.Error != "" {
			return fmt.Errorf("%s: %s", op, got.Error)
		}
		if value == nil {
			return nil
		}
		return json.Unmarshal(got.Value, value)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", op, ctx.Err())
	}
}

func (c *driven) codecs() []string {
	var names []string
	if err := c.do(c.t.Context(), "codecs", nil, &names); err != nil {
		c.t.Fatal(err)
	}
	return names
}

func (c *driven) createTopic(ctx context.Context, topic string, partitions int) error {
	return c.do(ctx, "create", args{"topic": topic, "partitions": partitions}, nil)
}

func (c *driven) topics(ctx context.Context) (names []string, err error) {
	return names, c.do(ctx, "topics", nil, &names)
}

func (c *driven) leaders(ctx context.Context, topic string) (ids map[int32]int32, err error) {
	return ids, c.do(ctx, "leaders", args{"topic": topic}, &ids)
}

func (c *driven) send(ctx context.Context, topic, codec string, ms []message) error {
	rows := make([][3]any, len(ms))
	for i, m := range ms {
		rows[i] = [3]any{m.Key, m.Value, m.Time.UnixMilli()}
	}
	return c.do(ctx, "send", args{"topic": topic, "codec": codec, "messages": rows}, nil)
}

func (c *driven) groups(ctx context.Context) (names []string, err error) {
	return names, c.do(ctx, "groups", nil, &names)
}

func (c *driven) group(ctx context.Context, name string) (string, int, error) {
	var g struct {
		State   string `json:"state"`
		Members int    `json:"members"`
	}
	err := c.do(ctx, "group", args{"group": name}, &g)
	return g.State, g.Members, err
}

func (c *driven) committed(ctx context.Context, group, topic string) (at map[int32]int64, err error) {
	return at, c.do(ctx, "committed", args{"group": group, "topic": topic}, &at)
}

func (c *driven) offsetAt(ctx context.Context, topic string, partition int32, at time.Time) (offset int64, err error) {
	return offset, c.do(ctx, "offset_at", args{"topic": topic, "partition": partition, "at": at.UnixMilli()}, &offset)
}

// close ends the program by the end of its input.
func (c *driven) close() {
	c.in.Close()
	select {
	case <-c.done:
	case <-time.After(30 * time.Second):
		c.t.Error("the client did not end within 30 s of its input")
		_ = c.cmd.Process.Kill()
		<-c.done
	}
	if err := c.cmd.Wait(); err != nil && !c.t.Failed() {
		c.t.Errorf("the client ended with %v\n%s", err, tail(c.stderr.String(), 100))
	}
}

// drivenMember is a member inside the program. The program's output must be read on while nobody
// takes a member's messages, so they queue here.
type drivenMember struct {
	c      *driven
	number int
	out    chan message
	left   chan struct{} // closed by leave
	done   chan struct{} // closed when out is

	mu     sync.Mutex
	queue  []message     // guarded by mu
	queued chan struct{} // holds one: there is something in queue
}

func (c *driven) join(ctx context.Context, group, topic string) (member, error) {
	return c.joinWith(ctx, args{"group": group, "topic": topic})
}

// joinWith is join with whatever else a program takes.
func (c *driven) joinWith(ctx context.Context, a args) (*drivenMember, error) {
	m := &drivenMember{c: c, out: make(chan message), left: make(chan struct{}), done: make(chan struct{}), queued: make(chan struct{}, 1)}
	c.mu.Lock()
	m.number = len(c.members) + 1 // members get their numbers in the order in which they join
	c.members[m.number] = m
	c.mu.Unlock()
	go m.run()
	var number int
	if err := c.do(ctx, "join", a, &number); err != nil {
		close(m.left)
		return nil, err
	}
	if number != m.number {
		close(m.left)
		return nil, fmt.Errorf("join: member %d, want %d", number, m.number)
	}
	return m, nil
}

func (m *drivenMember) take(records [][5]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		int := func(v any) int64 {
			n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
			if err != nil {
				m.c.t.Errorf("record %v: %v", r, err)
			}
			return n
		}
		m.queue = append(m.queue, message{int32(int(r[0])), int(r[1]), fmt.Sprint(r[2]), fmt.Sprint(r[3]), time.UnixMilli(int(r[4]))})
	}
	select {
	case m.queued <- struct{}{}:
	default:
	}
}

func (m *drivenMember) run() {
	defer close(m.done)
	defer close(m.out)
	for {
		select {
		case <-m.queued:
		case <-m.left:
			return
		}
		m.mu.Lock()
		now := m.queue
		m.queue = nil
		m.mu.Unlock()
		for _, msg := range now {
			select {
			case m.out <- msg:
			case <-m.left:
				return
			}
		}
	}
}

func (m *drivenMember) records() <-chan message { return m.out }

func (m *drivenMember) commit(ctx context.Context) error {
	return m.c.do(ctx, "commit", args{"member": m.number}, nil)
}

func (m *drivenMember) leave() error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	err := m.c.do(ctx, "leave", args{"member": m.number}, nil)
	close(m.left)
	<-m.done
	return err
}
