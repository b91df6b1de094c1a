package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"ottla/protocol"
)

// byHand is an answer that the test completes.
type byHand struct {
	done    chan func(*protocol.Answer, error) // what to complete it with
	stopped chan struct{}
	now     *protocol.Answer // not nil: complete with it from within Start
}

func newByHand() *byHand {
	return &byHand{done: make(chan func(*protocol.Answer, error), 1), stopped: make(chan struct{}, 1)}
}

func (l *byHand) Start(done func(*protocol.Answer, error)) {
	if l.now != nil {
		done(l.now, nil)
		return
	}
	l.done <- done
}

func (l *byHand) Stop() {
	select {
	case done := <-l.done:
		l.stopped <- struct{}{}
		done(answerOf("stopped"), nil)
	default: // it was done
	}
}

// laterThen answers "later" by hand and all else at once.
func laterThen(l *byHand) handler {
	return func(_ context.Context, frame []byte) (protocol.Reply, error) {
		if strings.HasPrefix(string(frame), "later") {
			return protocol.Reply{Later: l}, nil
		}
		return protocol.Reply{Answer: answerOf(string(frame))}, nil
	}
}

func TestLaterHoldsUpWhatFollows(t *testing.T) {
	l := newByHand()
	handled := make(chan string, 4)
	next := laterThen(l)
	nc := dial(t, start(t, options(func(ctx context.Context, frame []byte) (protocol.Reply, error) {
		handled <- string(frame)
		return next(ctx, frame)
	})))
	nc.Write(append(append(frameOf("a"), frameOf("later")...), frameOf("b")...))
	wantFrame(t, nc, "a")
	done := <-l.done
	if len(handled) != 2 {
		t.Errorf("%d requests were handled before the answer, want 2", len(handled))
	}
	done(answerOf("now"), nil)
	wantFrame(t, nc, "now")
	wantFrame(t, nc, "b")
}

func TestLaterAtOnce(t *testing.T) {
	l := newByHand()
	l.now = answerOf("at once")
	client, stop := pipe(t, options(laterThen(l)))
	defer stop()
	for range 3 {
		go client.Write(frameOf("later"))
		wantFrame(t, client, "at once")
	}
}

// TestLaterOfPeerThatFinishedSending: it still gets its answer, and then the end.
func TestLaterOfPeerThatFinishedSending(t *testing.T) {
	l := newByHand()
	nc := dial(t, start(t, options(laterThen(l))))
	nc.Write(frameOf("later"))
	nc.(*net.TCPConn).CloseWrite()
	(<-l.done)(answerOf("still"), nil)
	wantFrame(t, nc, "still")
	wantClosed(t, nc)
}

func TestLaterEndsWithItsConnection(t *testing.T) {
	for name, end := range map[string]func(*Server, net.Conn){
		"the server stops": func(s *Server, _ net.Conn) { go s.Close() },
		"the peer is gone": func(_ *Server, nc net.Conn) {
			nc.(*net.TCPConn).SetLinger(0) // a reset
			nc.Close()
		},
	} {
		l := newByHand()
		s := start(t, options(laterThen(l)))
		nc := dial(t, s)
		nc.Write(frameOf("later"))
		l.done <- <-l.done // it has begun
		end(s, nc)
		select {
		case <-l.stopped:
		case <-time.After(10 * time.Second):
			t.Errorf("%s: it goes on waiting", name)
		}
	}
}

func TestLaterThatFails(t *testing.T) {
	l := newByHand()
	s := start(t, options(laterThen(l)))
	nc := dial(t, s)
	nc.Write(frameOf("later"))
	(<-l.done)(nil, errors.New("no"))
	wantClosed(t, nc)
}

// TestLaterToSlowPeer: who completes answers is not held up by a peer that does not read, and
// nothing is lost.
func TestLaterToSlowPeer(t *testing.T) {
	l := newByHand()
	o := options(laterThen(l))
	o.SendBuffer = 4 << 10
	nc := dial(t, start(t, o))
	nc.(*net.TCPConn).SetReadBuffer(4 << 10)
	want := bytes.Repeat([]byte("a line of an answer that is too long\n"), 1600)
	for range 8 {
		nc.Write(frameOf("later"))
		done := <-l.done
		begun := time.Now()
		done(answerOf(string(want)), nil)
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("held up for %v", d)
		}
		got := make([]byte, 4+len(want))
		if _, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got[4:], want) {
			t.Fatalf("the bytes differ, %v", err)
		}
	}
}

// TestAfter: it runs once the answer is on its way.
func TestAfter(t *testing.T) {
	sent := make(chan struct{})
	ran := make(chan struct{})
	nc := dial(t, start(t, options(func(context.Context, []byte) (protocol.Reply, error) {
		return protocol.Reply{Answer: answerOf("x"), After: func() {
			<-sent
			close(ran)
		}}, nil
	})))
	nc.Write(frameOf("x"))
	wantFrame(t, nc, "x")
	close(sent)
	<-ran
}
