package server

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"ottla/protocol"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handler makes a session of a function.
type handler func(ctx context.Context, frame []byte) (protocol.Reply, error)

func (h handler) Handle(ctx context.Context, frame []byte) (protocol.Reply, error) {
	return h(ctx, frame)
}
func (h handler) Close() {}

// frameOf adds the length prefix.
func frameOf(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func answerOf(body string) *protocol.Answer {
	return &protocol.Answer{Parts: []protocol.Part{{Bytes: frameOf(body)}}}
}

// echo answers every frame with itself.
func echo(_ context.Context, frame []byte) (protocol.Reply, error) {
	return protocol.Reply{Answer: answerOf(string(frame))}, nil
}

// readFrame reads one frame, without its length.
func readFrame(r io.Reader) (string, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return "", err
	}
	b := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(r, b)
	return string(b), err
}

func wantFrame(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got, err := readFrame(r)
	if err != nil || got != want {
		t.Fatalf("got %.60q, %v; want %.60q", got, err, want)
	}
}

func wantClosed(t *testing.T, r io.Reader) {
	t.Helper()
	if b, err := io.ReadAll(r); len(b) > 0 {
		t.Fatalf("got %d bytes, %v; want the end", len(b), err)
	}
}

func options(h handler) Options {
	return Options{
		Listeners:       []Listener{{Name: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "127.0.0.1"}},
		Open:            func(protocol.Conn) Session { return h },
		MaxRequestBytes: 100 << 20,
		MaxOtherBytes:   16 << 20,
		Limits:          fixed(Limits{PerIP: -1}),
		Logger:          slog.New(slog.DiscardHandler),
	}
}

// pipe serves one end of a pipe and returns the other; stop ends it and waits.
func pipe(t *testing.T, o Options) (client net.Conn, stop func()) {
	t.Helper()
	o.Listeners = nil
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	client, nc := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serve(ctx, "PLAINTEXT", &listenerMetrics{}, nc)
	}()
	go func() { // as Run does
		<-ctx.Done()
		s.stop()
	}()
	return client, func() {
		cancel()
		<-done
		client.Close()
	}
}

// start runs a server on a real socket until the test ends.
func start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background()) }()
	t.Cleanup(func() {
		begun := time.Now()
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d > 3*time.Second { // a loaded machine
			t.Errorf("stopping took %v", d)
		}
	})
	return s
}

func dial(t testing.TB, s *Server) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addrs()[0].Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { nc.Close() })
	return nc
}

// closedFor waits until a connection was closed for a reason.
func closedFor(t *testing.T, s *Server, r closeReason, n uint64) {
	t.Helper()
	for begun := time.Now(); s.metrics.reasons[r].Load() < n; {
		if time.Since(begun) > 10*time.Second {
			var all []string
			for i := range closeReasons {
				if s.metrics.reasons[i].Load() > 0 {
					all = append(all, closeReasonNames[i])
				}
			}
			t.Fatalf("not closed for %q; closed for %s", closeReasonNames[r], strings.Join(all, ", "))
		}
		runtime.Gosched() // there is no event to wait for: the counter is the last thing that happens
	}
}

// log collects log lines.
type logLines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fixed are limits that never change.
func fixed(l Limits) func() (Limits, <-chan struct{}) {
	return func() (Limits, <-chan struct{}) { return l, nil }
}
