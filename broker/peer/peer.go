// Package peer is the way to another broker: requests go out, their answers come back. What they
// mean is for those who ask.
package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Errors of a request that has had no answer; whether it has had its effect is then not known, but
// after ErrUnreachable.
var (
	ErrUnreachable = errors.New("broker not reached")
	ErrLost        = errors.New("connection to the broker lost")
	ErrAnswer      = errors.New("answer of the broker not understood")
	ErrClosed      = errors.New("client is closed")
)

const (
	// MaxAnswer is the longest answer that is read. Followers ask for less, but get one batch whole.
	MaxAnswer = 256 << 20

	// AnswerTimeout is how long an answer is waited for where nothing else is said.
	AnswerTimeout = 30 * time.Second

	dialTimeout = 10 * time.Second // socket.connection.setup.timeout.ms
	growBy      = 1 << 20          // an answer is given room as it arrives
	keepBuffer  = 1 << 20          // what a client that waits may hold
)

// Options is what a Client is made from.
type Options struct {
	// Address says where the broker is; asked at every connection. Its error is an ErrUnreachable.
	Address  func() (string, error)
	ClientID string
	Timeout  time.Duration // for one answer; 0: AnswerTimeout
	// Dial opens a connection. Nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Client speaks to one broker over one connection, opened when it is needed, and has one request
// under way at a time. It has no goroutine.
type Client struct {
	o   Options
	fmt *kmsg.RequestFormatter

	mu    sync.Mutex // held during a request
	conn  net.Conn   // guarded by mu; nil: none
	last  int32      // guarded by mu: correlation id
	out   []byte     // guarded by mu
	in    []byte     // guarded by mu
	ended context.Context
	end   context.CancelFunc
}

// New makes a client, which is not connected yet.
func New(o Options) *Client {
	if o.Timeout <= 0 {
		o.Timeout = AnswerTimeout
	}
	if o.Dial == nil {
		d := net.Dialer{Timeout: dialTimeout}
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
	}
	c := &Client{o: o, fmt: kmsg.NewRequestFormatter(kmsg.FormatterClientID(o.ClientID))}
	c.ended, c.end = context.WithCancel(context.Background())
	return c
}

// Do sends a request, whose version is set, and waits for its answer. What the answer has as bytes
// is valid until the next Do. After an error, and if ctx ends, the connection is given up.
func (c *Client) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	defer context.AfterFunc(c.ended, cancel)()
	if err := c.connectLocked(ctx); err != nil {
		return nil, err
	}
	resp, err := c.askLocked(ctx, req)
	if err != nil {
		c.conn.Close()
		c.conn = nil
		if cause := ctx.Err(); cause != nil {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		return nil, err
	}
	return resp, nil
}

func (c *Client) connectLocked(ctx context.Context) error {
	if c.ended.Err() != nil {
		return ErrClosed
	}
	if c.conn != nil {
		return nil
	}
	address, err := c.o.Address()
	if err == nil {
		c.conn, err = c.o.Dial(ctx, address)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return nil
}

func (c *Client) askLocked(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	conn := c.conn
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	c.last++
	c.out = c.fmt.AppendRequest(c.out[:0], req, c.last)
	if _, err := conn.Write(c.out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	if cap(c.out) > keepBuffer {
		c.out = nil
	}
	frame, err := c.frameLocked()
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if got := int32(binary.BigEndian.Uint32(frame)); got != c.last {
		return nil, fmt.Errorf("%w: it is to request %d, not %d", ErrAnswer, got, c.last)
	}
	body := frame[4:]
	if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		if body, err = skipTags(body); err != nil {
			return nil, err
		}
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrAnswer, kmsg.Key(req.Key()).Name(), err)
	}
	return resp, nil
}

// frameLocked reads an answer without its length. Its memory grows as it arrives.
func (c *Client) frameLocked() ([]byte, error) {
	if cap(c.in) > keepBuffer {
		c.in = nil
	}
	var head [4]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	size := int(int32(binary.BigEndian.Uint32(head[:])))
	if size < 4 || size > MaxAnswer {
		return nil, fmt.Errorf("%w: of %d bytes", ErrAnswer, size)
	}
	c.in = c.in[:0]
	for len(c.in) < size {
		had := len(c.in)
		more := min(size-had, max(growBy, had))
		if cap(c.in) < had+more {
			c.in = append(make([]byte, 0, had+more), c.in...)
		}
		c.in = c.in[:had+more]
		if _, err := io.ReadFull(c.conn, c.in[had:]); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return c.in, nil
}

// skipTags cuts the tagged fields of an answer's header off.
func skipTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, fmt.Errorf("%w: its header is cut short", ErrAnswer)
	}
	b = b[n:]
	for range count {
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("%w: its header is cut short", ErrAnswer)
		}
		size, m := binary.Uvarint(b[n:])
		if m <= 0 || size > uint64(len(b)-n-m) {
			return nil, fmt.Errorf("%w: its header is cut short", ErrAnswer)
		}
		b = b[n+m+int(size):]
	}
	return b, nil
}

// End is Close for somebody who cannot wait: what is under way ends soon.
func (c *Client) End() {
	c.end()
	if c.mu.TryLock() {
		defer c.mu.Unlock()
		c.dropLocked()
	}
}

// Close ends a request that is under way, with an error, and every later one.
func (c *Client) Close() {
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked()
}

func (c *Client) dropLocked() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}
