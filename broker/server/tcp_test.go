package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ottla/protocol"

	"github.com/prometheus/client_golang/prometheus"
)

// fileRange is a range of an open file, as the log hands it out.
type fileRange struct {
	f        *os.File
	off, len int64
	released *atomic.Int32
}

func (r fileRange) Fd() (uintptr, int64, bool) { return r.f.Fd(), r.off, true }
func (r fileRange) Len() int64                 { return r.len }
func (r fileRange) Release()                   { r.released.Add(1) }
func (r fileRange) ReadAt(p []byte, off int64) (int, error) {
	return r.f.ReadAt(p, r.off+off)
}

// memRange is a range without a descriptor.
type memRange struct{ fileRange }

func (memRange) Fd() (uintptr, int64, bool) { return 0, 0, false }

func randomFile(t testing.TB, size int) (*os.File, []byte) {
	content := make([]byte, size)
	r := rand.New(rand.NewPCG(1, uint64(size)))
	for i := 0; i+8 <= size; i += 8 {
		binary.LittleEndian.PutUint64(content[i:], r.Uint64())
	}
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, content
}

// rangesAnswer is an answer with ranges between letters.
func rangesAnswer(released *atomic.Int32, rs ...protocol.Range) (*protocol.Answer, int64) {
	a := &protocol.Answer{Parts: []protocol.Part{{}}}
	size := int64(0)
	for i, r := range rs {
		a.Parts = append(a.Parts, protocol.Part{Range: r}, protocol.Part{Bytes: []byte{'a' + byte(i)}})
		size += r.Len() + 1
	}
	a.Parts[0].Bytes = binary.BigEndian.AppendUint32(nil, uint32(size))
	a.Release = func() {
		for _, r := range rs {
			r.Release()
		}
	}
	return a, size
}

func TestFileRangesAreSent(t *testing.T) {
	f, content := randomFile(t, 9<<20)
	var released atomic.Int32
	part := func(off, n int64) fileRange { return fileRange{f, off, n, &released} }
	rs := []protocol.Range{
		part(100, 5000), part(7, sendfileFrom), part(1, 9<<20-1), memRange{part(3, readChunk*2+5)}, part(0, 1), part(1<<20, 1<<20),
	}
	s := start(t, options(func(context.Context, []byte) (protocol.Reply, error) {
		a, _ := rangesAnswer(&released, rs...)
		return protocol.Reply{Answer: a}, nil
	}))
	var want []byte
	for i, r := range rs {
		b := make([]byte, r.Len())
		r.ReadAt(b, 0)
		want = append(append(want, b...), 'a'+byte(i))
	}
	nc := dial(t, s)
	go func() {
		for range 3 {
			nc.Write(frameOf("x"))
		}
	}()
	for range 3 {
		got, err := readFrame(nc)
		if err != nil || got != string(want) {
			t.Fatalf("got %d bytes, %v; want %d", len(got), err, len(want))
		}
	}
	nc.Close()
	closedFor(t, s, closedByPeer, 1)
	if n := released.Load(); n != int32(3*len(rs)) {
		t.Errorf("%d ranges released, want %d", n, 3*len(rs))
	}
	if pos, _ := f.Seek(0, io.SeekCurrent); pos != 0 {
		t.Errorf("the file's own position was moved to %d", pos)
	}
	_ = content
}

// TestTruncatedFileClosesTheConnection: the log was cut under a range that is being sent; the
// client must not get a frame that is filled up with something else.
func TestTruncatedFileClosesTheConnection(t *testing.T) {
	for _, size := range []int64{1000, 1 << 20} {
		f, _ := randomFile(t, int(size))
		var released atomic.Int32
		s := start(t, options(func(context.Context, []byte) (protocol.Reply, error) {
			a, _ := rangesAnswer(&released, fileRange{f, 0, size + 1, &released})
			return protocol.Reply{Answer: a}, nil
		}))
		nc := dial(t, s)
		nc.Write(frameOf("x"))
		if got, err := io.ReadAll(nc); int64(len(got)) > size+4 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
		closedFor(t, s, closedBroken, 1)
		if released.Load() != 1 {
			t.Error("the range was not released")
		}
	}
}

// TestRandomFrames sends frames of many sizes in pieces of many sizes and wants them back.
func TestRandomFrames(t *testing.T) {
	o := options(echo)
	o.QueuedMaxRequestBytes = 1 << 20
	s := start(t, o)
	var wg sync.WaitGroup
	for seed := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(9, seed))
			nc := dial(t, s)
			var sent bytes.Buffer
			var bodies []string
			for range 300 {
				n := 1 + r.IntN(100)
				switch r.IntN(12) {
				case 0:
					n = 1 + r.IntN(300_000)
				case 1, 2:
					n = 1 + r.IntN(3*scratchSize)
				}
				b := make([]byte, n)
				for i := range b {
					b[i] = byte(i * n)
				}
				bodies = append(bodies, string(b))
				sent.Write(frameOf(string(b)))
			}
			go func() {
				for sent.Len() > 0 {
					if _, err := nc.Write(sent.Next(1 + r.IntN(2*scratchSize))); err != nil {
						return
					}
				}
			}()
			for i, b := range bodies {
				if got, err := readFrame(nc); err != nil || got != b {
					t.Errorf("seed %d: frame %d of %d bytes: got %d, %v", seed, i, len(b), len(got), err)
					return
				}
			}
			nc.Close()
		})
	}
	wg.Wait()
	closedFor(t, s, closedByPeer, 4)
	if s.budget.used != 0 || s.budget.over {
		t.Errorf("budget: %d bytes used, over %v", s.budget.used, s.budget.over)
	}
}

// TestGarbage: whatever comes, only its own connection is closed, and without an answer.
func TestGarbage(t *testing.T) {
	lines := &logLines{}
	o := options(echo)
	o.Logger = slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := start(t, o)
	other := dial(t, s)
	for i, b := range []string{
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"\xff\xff\xff\xff",
		"\x80\x00\x00\x00",
		"\x06\x40\x00\x01\x00\x00", // 100 MiB and a byte
		"\x00\x00\x00\x00",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", // a TLS hello
	} {
		nc := dial(t, s)
		nc.Write([]byte(b))
		if got, _ := io.ReadAll(nc); len(got) > 0 {
			t.Errorf("%q was answered with %q", b, got)
		}
		closedFor(t, s, closedMalformed, uint64(i+1))
		other.Write(frameOf("still here"))
		wantFrame(t, other, "still here")
	}
	if n := strings.Count(lines.String(), "\n"); n != 6 || strings.Contains(lines.String(), "level=WARN") {
		t.Errorf("log:\n%s", lines)
	}
	nc := dial(t, s)
	nc.Write([]byte("\x00\x00\x00\x09abc"))
	nc.(*net.TCPConn).CloseWrite()
	wantClosed(t, nc)
	closedFor(t, s, closedBroken, 1)
}

// TestClaimedLengthsTakeNothing: connections that announce 90 MiB each and send little.
func TestClaimedLengthsTakeNothing(t *testing.T) {
	s := start(t, options(echo))
	before := heap()
	for range 100 {
		nc := dial(t, s)
		nc.Write(append([]byte("\x05\xa0\x00\x00\x00\x00"), make([]byte, 1000)...))
	}
	other := dial(t, s)
	for range 100 {
		other.Write(frameOf("still here"))
		wantFrame(t, other, "still here")
	}
	if used := heap() - before; used > 8<<20 {
		t.Errorf("%d bytes for 100 connections", used)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestSenderThatDoesNotRead: 400 requests of 1 MiB on one connection, answers not read.
// Memory stays bounded, others are served, and when the client reads, all answers come in order.
func TestSenderThatDoesNotRead(t *testing.T) {
	const requests = 400
	var handled atomic.Int32
	padding := strings.Repeat("p", 64<<10)
	o := options(func(_ context.Context, frame []byte) (protocol.Reply, error) {
		n := handled.Add(1)
		if n%2 == 0 {
			return protocol.Reply{Wait: func(context.Context) (*protocol.Answer, error) {
				return answerOf(string(frame[:8]) + padding), nil
			}}, nil
		}
		return protocol.Reply{Answer: answerOf(string(frame[:8]) + padding)}, nil
	})
	o.SendBuffer = 64 << 10 // or the answers would fit into the sockets
	s := start(t, o)
	before := heap()
	nc := dial(t, s)
	nc.(*net.TCPConn).SetReadBuffer(64 << 10)
	sent := make(chan error, 1)
	go func() {
		body := make([]byte, 1<<20)
		for i := range requests {
			copy(body, fmt.Sprintf("%08d", i))
			if _, err := nc.Write(frameOf(string(body))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	// The reader has stopped when the number of handled requests stands still.
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for last := int32(-1); last != handled.Load() || last < 10; {
		last = handled.Load()
		<-look.C
	}
	if n := handled.Load(); n > requests/2 {
		t.Errorf("%d requests were handled while no answer was read", n)
	}
	if used := heap() - before; used > 64<<20 {
		t.Errorf("%d bytes in use", used)
	}
	other := dial(t, s)
	other.Write(frameOf("another one"))
	if _, err := readFrame(other); err != nil {
		t.Error(err)
	}
	for i := range requests {
		got, err := readFrame(nc)
		if err != nil || got[:8] != fmt.Sprintf("%08d", i) {
			t.Fatalf("answer %d: %.8q, %v", i, got, err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestHalfClosed: a peer that says that it sends nothing more gets its answers.
func TestHalfClosed(t *testing.T) {
	release := make(chan struct{})
	s := start(t, options(func(_ context.Context, frame []byte) (protocol.Reply, error) {
		return protocol.Reply{Wait: func(context.Context) (*protocol.Answer, error) {
			<-release
			return answerOf(string(frame)), nil
		}}, nil
	}))
	nc := dial(t, s)
	nc.Write(append(frameOf("a"), frameOf("b")...))
	nc.(*net.TCPConn).CloseWrite()
	close(release)
	wantFrame(t, nc, "a")
	wantFrame(t, nc, "b")
	wantClosed(t, nc)
}

func TestMaxConnections(t *testing.T) {
	o := options(echo)
	o.Limits = fixed(Limits{Connections: 2, PerIP: -1})
	s := start(t, o)
	a, b := dial(t, s), dial(t, s)
	for _, nc := range []net.Conn{a, b} {
		nc.Write(frameOf("x"))
		wantFrame(t, nc, "x")
	}
	c := dial(t, s) // waits in the backlog
	c.Write(frameOf("y"))
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a third connection was served: %v", err)
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	a.Close()
	wantFrame(t, c, "y")
}

// TestAbandoned ends a handler that waits for a peer which has left, once the idle limit is over.
func TestAbandoned(t *testing.T) {
	waits, ended := make(chan struct{}), make(chan struct{})
	o := options(func(ctx context.Context, _ []byte) (protocol.Reply, error) {
		close(waits)
		<-ctx.Done()
		close(ended)
		return protocol.Reply{}, ctx.Err()
	})
	o.IdleTimeout = 20 * time.Millisecond
	nc := dial(t, start(t, o))
	nc.Write(frameOf("x"))
	<-waits
	nc.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the handler waits on")
	}
}

// TestLimitsChange raises a limit that a connection waits for.
func TestLimitsChange(t *testing.T) {
	var now atomic.Pointer[Limits]
	now.Store(&Limits{Connections: 1, PerIP: -1})
	changed := make(chan struct{})
	o := options(echo)
	o.Limits = func() (Limits, <-chan struct{}) {
		if l := now.Load(); l.Connections == 1 {
			return *l, changed
		}
		return *now.Load(), nil
	}
	s := start(t, o)
	a, b := dial(t, s), dial(t, s)
	a.Write(frameOf("x"))
	wantFrame(t, a, "x")
	b.Write(frameOf("y"))
	now.Store(&Limits{Connections: 2, PerIP: -1})
	close(changed)
	wantFrame(t, b, "y")
}

func TestMaxConnectionsPerIP(t *testing.T) {
	for _, c := range []struct {
		perIP     int
		overrides map[string]int
		want      int
	}{{2, nil, 2}, {0, nil, 0}, {0, map[string]int{"127.0.0.1": 1}, 1}, {5, map[string]int{"localhost": 1}, 1}, {1, map[string]int{"10.0.0.1": 7}, 1}} {
		o := options(echo)
		o.Limits = fixed(Limits{PerIP: c.perIP, Overrides: c.overrides})
		s := start(t, o)
		var open []net.Conn
		for i := range c.want + 2 {
			nc := dial(t, s)
			nc.Write(frameOf("x"))
			if got, err := readFrame(nc); (err == nil && got == "x") != (i < c.want) {
				t.Errorf("%+v: connection %d: %q, %v", c, i, got, err)
			}
			open = append(open, nc)
		}
		if c.want > 0 { // a place that is left can be taken
			open[0].Close()
			closedFor(t, s, closedByPeer, 1)
			nc := dial(t, s)
			nc.Write(frameOf("x"))
			wantFrame(t, nc, "x")
		}
	}
}

func TestListeners(t *testing.T) {
	o := options(nil)
	o.Listeners = []Listener{{Name: "IN", Host: "localhost"}, {Name: "OUT"}, {Name: "V4", Host: "0.0.0.0"}}
	o.Backlog = 50
	reg := prometheus.NewRegistry()
	o.Registerer = reg
	o.Open = func(c protocol.Conn) Session {
		return handler(func(context.Context, []byte) (protocol.Reply, error) {
			return protocol.Reply{Answer: answerOf(fmt.Sprint(c.Listener, " ", c.Local))}, nil
		})
	}
	s := start(t, o)
	for _, b := range s.Addrs() {
		port := s.Port(b.Listener)
		hosts := []string{"127.0.0.1"}
		if b.Addr.(*net.TCPAddr).IP.To4() == nil && b.Addr.(*net.TCPAddr).IP.IsLoopback() {
			hosts = []string{"::1"}
		}
		for _, host := range hosts {
			addr := net.JoinHostPort(host, fmt.Sprint(port))
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			nc.Write(frameOf("x"))
			wantFrame(t, nc, b.Listener+" "+addr)
			nc.Close()
		}
	}
	if s.Port("NONE") != 0 {
		t.Error("a listener that is not there has a port")
	}
	if n, err := reg.Gather(); err != nil || len(n) != 6 {
		t.Errorf("%d metrics, %v", len(n), err)
	}
	// A port that is taken is named with its listener.
	o.Listeners = []Listener{{Name: "TWICE", Host: "localhost", Port: s.Port("IN")}}
	o.Registerer = nil
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), "TWICE") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("%v", err)
	}
}

func TestCloseWithoutRun(t *testing.T) {
	s, err := Listen(options(echo))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := s.Run(context.Background()); err == nil {
		t.Error("a closed server ran")
	}
}

// TestPanicIsOneConnection: a handler that panics, at once and in its second stage, is logged.
func TestPanicIsOneConnection(t *testing.T) {
	lines := &logLines{}
	o := options(func(_ context.Context, frame []byte) (protocol.Reply, error) {
		if string(frame) == "now" {
			panic("first stage")
		}
		return protocol.Reply{Wait: func(context.Context) (*protocol.Answer, error) { panic("second stage") }}, nil
	})
	o.Logger = slog.New(slog.NewTextHandler(lines, nil))
	s := start(t, o)
	for i, b := range []string{"now", "later"} {
		nc := dial(t, s)
		nc.Write(frameOf(b))
		wantClosed(t, nc)
		closedFor(t, s, closedPanic, uint64(i+1))
	}
	if l := lines.String(); !strings.Contains(l, "first stage") || !strings.Contains(l, "second stage") || !strings.Contains(l, "tcp_test.go") {
		t.Errorf("log: %s", l)
	}
}

// TestIdleConnectionsCostLittle holds 1,000 connections that have each had a request.
func TestIdleConnectionsCostLittle(t *testing.T) {
	const connections = 1000
	o := options(echo)
	o.IdleTimeout = 10 * time.Minute
	s := start(t, o)
	clients := make([]net.Conn, connections)
	before := heap()
	for i := range clients {
		nc, err := net.Dial("tcp", s.Addrs()[0].Addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		clients[i] = nc
		nc.Write(frameOf("hello"))
		wantFrame(t, nc, "hello")
	}
	heap() // stacks shrink by half in a collection
	each := (heap() - before) / connections
	t.Logf("%d bytes a connection, both ends", each)
	if each > 20<<10 {
		t.Errorf("%d bytes a connection", each)
	}
}

// TestPartsOverTime: an answer of many parts, of which the socket takes some at a time, arrives
// as it is.
func TestPartsOverTime(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var want []byte
	var parts []protocol.Part
	for range gatherParts + gatherParts/2 {
		b := make([]byte, r.IntN(4<<10))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		want = append(want, b...)
		parts = append(parts, protocol.Part{Bytes: b})
	}
	o := options(func(context.Context, []byte) (protocol.Reply, error) {
		return protocol.Reply{Answer: &protocol.Answer{Parts: parts}}, nil
	})
	o.SendBuffer = 40 << 10
	nc := dial(t, start(t, o))
	nc.Write(frameOf("x"))
	got := make([]byte, len(want))
	for at := 0; at < len(got); {
		n, err := nc.Read(got[at:min(len(got), at+1+r.IntN(64<<10))])
		if err != nil {
			t.Fatal(err)
		}
		at += n
	}
	if !bytes.Equal(got, want) {
		t.Error("the bytes differ")
	}
}
