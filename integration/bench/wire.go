package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is one connection that sends a request and reads its answer, with as little as it takes: a
// whole client in each of thousands of members would be most of what is measured.
type wire struct {
	conn      net.Conn
	in        *bufio.Reader
	out       []byte
	frame     []byte
	format    *kmsg.RequestFormatter
	sent, got int32
}

func dial(addr string) (*wire, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &wire{conn: c, in: bufio.NewReaderSize(c, 1024), format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench"))}, nil
}

func (w *wire) close() { w.conn.Close() }

// ask sends a request and reads its answer.
func (w *wire) ask(req kmsg.Request) (kmsg.Response, error) {
	if err := w.send(req); err != nil {
		return nil, err
	}
	return w.receive(req)
}

func (w *wire) send(req kmsg.Request) error {
	w.sent++
	w.out = w.format.AppendRequest(w.out[:0], req, w.sent)
	_, err := w.conn.Write(w.out)
	return err
}

// receive reads the answer to a request like req, the oldest that is not answered yet, for at most two minutes.
func (w *wire) receive(req kmsg.Request) (kmsg.Response, error) {
	if err := w.conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(w.in, head[:]); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(head[:])) - 4
	w.frame = slices.Grow(w.frame[:0], size)[:size]
	if _, err := io.ReadFull(w.in, w.frame); err != nil {
		return nil, err
	}
	if w.got++; int32(binary.BigEndian.Uint32(head[4:])) != w.got {
		return nil, errors.New("the answer to another request")
	}
	resp, body := req.ResponseKind(), w.frame
	if resp.IsFlexible() {
		body = body[1:] // no tags in the header
	}
	return resp, resp.ReadFrom(body)
}

// answered is ask for an answer of a known kind.
func answered[T kmsg.Response](w *wire, req kmsg.Request) (T, error) {
	resp, err := w.ask(req)
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return resp.(T), nil
}

// again tells that a request may succeed when it is repeated: coordinators are not there at once.
func again(code int16) bool {
	return slices.Contains([]int16{kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code,
		kerr.ConcurrentTransactions.Code, kerr.UnknownTopicOrPartition.Code, kerr.NotLeaderForPartition.Code}, code)
}

// findCoordinator asks until there is one: the first question makes the internal topic.
func findCoordinator(w *wire, kind int8, key string) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorType, req.CoordinatorKeys = 4, kind, []string{key}
		resp, err := answered[*kmsg.FindCoordinatorResponse](w, req)
		if err != nil {
			return err
		}
		if len(resp.Coordinators) == 1 && resp.Coordinators[0].ErrorCode == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no coordinator of %s within a minute: %+v", key, resp.Coordinators)
		}
	}
}

// commitOf is an OffsetCommit of one group for partitions of a topic.
func commitOf(group, member string, generation int32, topic string, partitions ...int32) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 8, group, member, generation
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	for _, n := range partitions {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.LeaderEpoch, p.Metadata = n, -1, kmsg.StringPtr("")
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// committed is the first error in the answer to an OffsetCommit.
func committed(w *wire, req *kmsg.OffsetCommitRequest) error {
	resp, err := answered[*kmsg.OffsetCommitResponse](w, req)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return fmt.Errorf("commit of %s: %w", req.Group, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	}
	return nil
}

// retried calls until there is no error that passes by itself, for at most a minute.
func retried(f func() error) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := f()
		var k *kerr.Error
		if err == nil || !errors.As(err, &k) || !again(k.Code) || time.Now().After(deadline) {
			return err
		}
	}
}

// percentile of durations, which it sorts.
func percentile(ds []time.Duration, p float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[min(len(ds)-1, int(float64(len(ds))*p))]
}

// logged gives the first line of a broker's log that has all of the words.
func logged(dir string, words ...string) string {
	data, _ := os.ReadFile(dir + ".log")
	for line := range strings.Lines(string(data)) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return line
		}
	}
	return ""
}
