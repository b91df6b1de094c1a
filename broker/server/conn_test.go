package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ottla/protocol"
)

// slow answers "slow…" after an hour, "wait…" by a second stage of an hour, anything else at once.
func slow(ctx context.Context, frame []byte) (protocol.Reply, error) {
	body := string(frame)
	hour := func(ctx context.Context) error {
		select {
		case <-time.After(time.Hour):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch {
	case strings.HasPrefix(body, "slow"):
		if err := hour(ctx); err != nil {
			return protocol.Reply{}, err
		}
	case strings.HasPrefix(body, "wait"):
		return protocol.Reply{Wait: func(ctx context.Context) (*protocol.Answer, error) {
			if err := hour(ctx); err != nil {
				return nil, err
			}
			return answerOf(string(frame)), nil // the frame is still valid
		}}, nil
	case strings.HasPrefix(body, "none"):
		return protocol.Reply{}, nil
	case strings.HasPrefix(body, "fail"):
		return protocol.Reply{}, errors.New("no")
	case strings.HasPrefix(body, "panic"):
		panic("oh")
	}
	return protocol.Reply{Answer: answerOf(body)}, nil
}

func TestAnswersKeepTheOrderOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, stop := pipe(t, options(slow))
		defer stop()
		want := []string{"a", "slow1", "b", "wait1", "wait2", "c", "d", "slow2", "wait3", "e"}
		go func() {
			for _, b := range want {
				client.Write(frameOf(b))
				client.Write(frameOf("none"))
			}
		}()
		begun := time.Now()
		for _, b := range want {
			wantFrame(t, client, b)
		}
		// slow1 holds up what follows; the waits overlap with slow2 but not with one another.
		if d := time.Since(begun); d != 4*time.Hour {
			t.Errorf("took %v", d)
		}
	})
}

// TestWhatIsCompleteDoesNotWait: an answer leaves although a later request is still being
// handled, and one before a second stage leaves before it.
func TestWhatIsCompleteDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, stop := pipe(t, options(slow))
		defer stop()
		go client.Write(bytes.Join([][]byte{frameOf("a"), frameOf("wait"), frameOf("b"), frameOf("slow")}, nil))
		begun := time.Now()
		wantFrame(t, client, "a")
		if d := time.Since(begun); d != 0 {
			t.Errorf("the first answer took %v", d)
		}
		wantFrame(t, client, "wait")
		wantFrame(t, client, "b")
		if d := time.Since(begun); d != time.Hour {
			t.Errorf("the second stage took %v", d)
		}
		wantFrame(t, client, "slow")
	})
}

func TestErrorClosesAfterEarlierAnswers(t *testing.T) {
	for _, last := range []string{"fail", "panic"} {
		synctest.Test(t, func(t *testing.T) {
			client, stop := pipe(t, options(slow))
			defer stop()
			go client.Write(bytes.Join([][]byte{frameOf("a"), frameOf("wait"), frameOf(last), frameOf("b")}, nil))
			wantFrame(t, client, "a")
			wantFrame(t, client, "wait")
			wantClosed(t, client)
		})
	}
}

func TestIdleConnections(t *testing.T) {
	o := options(slow)
	o.IdleTimeout = 5 * time.Second
	until := func(t *testing.T, client io.Reader) time.Duration {
		begun := time.Now()
		wantClosed(t, client)
		return time.Since(begun)
	}
	synctest.Test(t, func(t *testing.T) {
		client, stop := pipe(t, o)
		defer stop()
		if d := until(t, client); d != 5*time.Second {
			t.Errorf("closed after %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a request in hand is not idle, and time begins anew after it
		client, stop := pipe(t, o)
		defer stop()
		time.Sleep(4 * time.Second)
		client.Write(frameOf("slow"))
		wantFrame(t, client, "slow")
		time.Sleep(4 * time.Second)
		client.Write(frameOf("wait"))
		wantFrame(t, client, "wait")
		if d := until(t, client); d < 5*time.Second || d > 10*time.Second {
			t.Errorf("closed after %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) { // one byte a while keeps a connection
		client, stop := pipe(t, o)
		defer stop()
		for _, b := range frameOf("abc") {
			time.Sleep(4 * time.Second)
			client.Write([]byte{b})
		}
		wantFrame(t, client, "abc")
	})
}

// TestPeerThatDoesNotRead: answers that nobody takes do not stay for good, and the connection
// is not read from while they are pending.
func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		o := options(func(ctx context.Context, frame []byte) (protocol.Reply, error) {
			handled++
			return protocol.Reply{Wait: func(context.Context) (*protocol.Answer, error) {
				return answerOf(string(frame)), nil
			}}, nil
		})
		o.IdleTimeout = 10 * time.Minute
		client, stop := pipe(t, o)
		defer stop()
		gone := make(chan error)
		go func() {
			for {
				if _, err := client.Write(frameOf("x")); err != nil {
					gone <- err
					return
				}
			}
		}()
		synctest.Wait()
		if handled < maxPending || handled > maxPending+1 {
			t.Errorf("%d requests were handled, want about %d", handled, maxPending)
		}
		begun := time.Now()
		<-gone
		if d := time.Since(begun); d < 5*time.Minute || d > 10*time.Minute {
			t.Errorf("given up after %v", d)
		}
	})
}

func TestPendingBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		big := make([]byte, 1<<20)
		o := options(func(ctx context.Context, frame []byte) (protocol.Reply, error) {
			handled++
			return protocol.Reply{Wait: func(ctx context.Context) (*protocol.Answer, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}, nil
		})
		client, stop := pipe(t, o)
		defer stop()
		go func() {
			for {
				if _, err := client.Write(frameOf(string(big))); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if handled > maxPendingBytes>>20+1 {
			t.Errorf("%d requests of 1 MiB were handled", handled)
		}
	})
}

func TestStopEndsHandlersAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, stop := pipe(t, options(slow))
		go client.Write(bytes.Join([][]byte{frameOf("wait"), frameOf("slow")}, nil))
		synctest.Wait()
		begun := time.Now()
		stop()
		if d := time.Since(begun); d > time.Second {
			t.Errorf("stopping took %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) { // nobody reads the answer
		client, stop := pipe(t, options(slow))
		go client.Write(frameOf("a"))
		synctest.Wait()
		begun := time.Now()
		stop()
		if d := time.Since(begun); d > time.Second {
			t.Errorf("stopping took %v", d)
		}
	})
}

// TestFrameLengths: lengths that no frame has, each on a connection of its own.
func TestFrameLengths(t *testing.T) {
	prefix := func(n uint32, rest string) []byte { return append(binary.BigEndian.AppendUint32(nil, n), rest...) }
	for name, b := range map[string][]byte{
		"HTTP":                   []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
		"-1":                     prefix(1<<32-1, ""),
		"0":                      prefix(0, ""),
		"above the limit":        prefix(100<<20+1, ""),
		"large and not Produce":  prefix(16<<20+1, "\x00\x03"),
		"much more than is sent": prefix(90<<20, "\x00\x03"),
	} {
		synctest.Test(t, func(t *testing.T) {
			client, stop := pipe(t, options(slow))
			defer stop()
			go client.Write(b)
			if got, err := io.ReadAll(client); len(got) > 0 || err != nil {
				t.Errorf("%s: got %q, %v", name, got, err)
			}
		})
	}
	for name, b := range map[string][]byte{
		"a Produce of just the limit": prefix(100<<20, "\x00\x00"),
		"other of just the limit":     prefix(16<<20, "\x00\x03"),
		"large, key not there yet":    prefix(100<<20, "\x00"),
	} {
		synctest.Test(t, func(t *testing.T) {
			client, stop := pipe(t, options(slow))
			defer stop()
			if _, err := client.Write(b); err != nil {
				t.Fatal(err)
			}
			client.SetReadDeadline(time.Now().Add(time.Hour))
			if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%s: not waited for: %v", name, err)
			}
		})
	}
}
