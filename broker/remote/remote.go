// Package remote is other brokers as the rooms of this one reach them: the controller's requests to
// a broker, a follower's to a leader, a leader's to the controller, as Kafka 3.9's requests. It turns
// what they answer into the errors of the rooms that ask, and decides nothing.
package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"ottla/broker/metadata"
	"ottla/broker/peer"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrNoAddress: it is not known where a broker is.
var ErrNoAddress = errors.New("no address of the broker is known")

// Book has where brokers are on the listener between brokers.
type Book struct {
	listener string

	mu      sync.Mutex
	address map[int32]string // guarded by mu
}

// NewBook is an empty one, for a listener (inter.broker.listener.name).
func NewBook(listener string) *Book { return &Book{listener: listener, address: map[int32]string{}} }

// Know notes where brokers are. Others that were noted stay.
func (b *Book) Know(brokers []metadata.Broker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range brokers {
		if e, ok := brokers[i].Endpoint(b.listener); ok && e.Host != "" {
			b.address[brokers[i].ID] = net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
		}
	}
}

// Of says where a broker is; ErrNoAddress.
func (b *Book) Of(id int32) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a, ok := b.address[id]; ok {
		return a, nil
	}
	return "", fmt.Errorf("%w: %d, listener %s", ErrNoAddress, id, b.listener)
}

// Options is what ways to other brokers are made from.
type Options struct {
	Self    int32
	Book    *Book
	Timeout time.Duration // for an answer; 0: peer.AnswerTimeout
	Dial    func(ctx context.Context, address string) (net.Conn, error)
}

// client makes a client of one broker.
func (o *Options) client(id int32, name string) *peer.Client {
	return peer.New(peer.Options{
		Address:  func() (string, error) { return o.Book.Of(id) },
		ClientID: name, Timeout: o.Timeout, Dial: o.Dial,
	})
}

// do sends a request and gives its answer in its own type.
func do[A kmsg.Response](ctx context.Context, c *peer.Client, req kmsg.Request) (A, error) {
	resp, err := c.Do(ctx, req)
	if err != nil {
		var none A
		return none, err
	}
	return resp.(A), nil
}

// meaning is what codes mean to one room: the first row that has the code.
type meaning []struct {
	code *kerr.Error
	err  error
}

func (m meaning) of(code int16) error {
	if code == 0 {
		return nil
	}
	for _, row := range m {
		if row.code.Code == code {
			return row.err
		}
	}
	return kerr.ErrorForCode(code)
}
