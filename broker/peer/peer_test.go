package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// script is a broker that answers each request by a function; nil ends the connection.
func script(t *testing.T, answer func(n int, key int16, correlation int32) []byte) *Client {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		n := 0
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			for {
				var head [12]byte
				if _, err := io.ReadFull(conn, head[:]); err != nil {
					break
				}
				rest := make([]byte, int(binary.BigEndian.Uint32(head[:]))-8)
				if _, err := io.ReadFull(conn, rest); err != nil {
					break
				}
				out := answer(n, int16(binary.BigEndian.Uint16(head[4:])), int32(binary.BigEndian.Uint32(head[8:])))
				n++
				if out == nil {
					break
				}
				conn.Write(out)
			}
			conn.Close()
		}
	}()
	c := New(Options{Address: func() (string, error) { return ln.Addr().String(), nil }, ClientID: "7", Timeout: 5 * time.Second})
	t.Cleanup(func() {
		c.Close()
		ln.Close()
		<-done
	})
	return c
}

func framed(correlation int32, tags bool, resp kmsg.Response) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(correlation))
	if tags {
		b = append(b, 1, 0, 2, 'x', 'y') // one tag of two bytes
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func shutdown() *kmsg.ControlledShutdownRequest {
	req := kmsg.NewPtrControlledShutdownRequest()
	req.Version, req.BrokerID = 3, 7
	return req
}

// TestDo: answers are read, with tags in their header, and a connection that was lost is opened again.
func TestDo(t *testing.T) {
	c := script(t, func(n int, key int16, correlation int32) []byte {
		if key != 7 {
			t.Errorf("key %d", key)
		}
		if n == 1 {
			return nil
		}
		resp := kmsg.NewPtrControlledShutdownResponse()
		resp.Version, resp.ErrorCode = 3, int16(n)
		return framed(correlation, true, resp)
	})
	for n := range 3 {
		resp, err := c.Do(context.Background(), shutdown())
		if n == 1 {
			if !errors.Is(err, ErrLost) {
				t.Fatalf("request %d: %v", n, err)
			}
			continue
		}
		if err != nil || resp.(*kmsg.ControlledShutdownResponse).ErrorCode != int16(n) {
			t.Fatalf("request %d: %+v, %v", n, resp, err)
		}
	}
}

// TestBadAnswers: an answer that is none ends the connection, with an error and no more memory than
// has arrived.
func TestBadAnswers(t *testing.T) {
	for name, bytes := range map[string][]byte{
		"negative length": {0xff, 0xff, 0xff, 0xff},
		"short":           {0, 0, 0, 1, 0},
		"endless":         {0x7f, 0xff, 0xff, 0xff},
		"other request":   {0, 0, 0, 5, 0, 0, 0, 99, 0},
		"cut header":      {0, 0, 0, 6, 0, 0, 0, 1, 9, 9},
		"cut body":        {0, 0, 0, 5, 0, 0, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := script(t, func(int, int16, int32) []byte { return bytes })
			if _, err := c.Do(context.Background(), shutdown()); !errors.Is(err, ErrAnswer) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestEnds: a request ends with its context and with the client, not with its timeout.
func TestEnds(t *testing.T) {
	asked := make(chan struct{}, 2)
	hold := make(chan struct{})
	defer close(hold)
	silent := func() *Client {
		return script(t, func(int, int16, int32) []byte { asked <- struct{}{}; <-hold; return nil })
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-asked; cancel() }()
	if _, err := silent().Do(ctx, shutdown()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	c := silent()
	go func() { <-asked; c.Close() }()
	if _, err := c.Do(context.Background(), shutdown()); !errors.Is(err, ErrLost) {
		t.Errorf("closed: %v", err)
	}
	if _, err := c.Do(context.Background(), shutdown()); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	none := New(Options{Address: func() (string, error) { return "", errors.New("who?") }})
	if _, err := none.Do(context.Background(), shutdown()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("no address: %v", err)
	}
}
