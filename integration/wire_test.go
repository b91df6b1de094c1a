package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ottla/broker"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience bounds every wait for something that comes in milliseconds on an idle machine.
const patience = 20 * time.Second

// embedded is a broker in this process: quick to start, and with a clock that a test can move.
type embedded struct {
	addr  string   // of the first listener
	addrs []string // of all listeners, in the order of the setting
	stop  func() error
}

// embed starts a broker in this process on a directory (empty: in memory) and, by default, on a
// free port. Whoever starts it calls stop, which waits for its end.
func embed(tb testing.TB, dir string, now func() time.Time, settings ...string) *embedded {
	tb.Helper()
	all := map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0"}
	if dir != "" {
		all["log.dirs"] = dir
	}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		all[name] = value
	}
	b, err := broker.New(broker.Options{
		Settings: all,
		InMemory: dir == "",
		Logger:   slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Now:      now,
	})
	if err != nil {
		tb.Fatal(err)
	}
	e := &embedded{}
	for _, a := range b.Addrs() {
		e.addrs = append(e.addrs, a.Addr.String())
	}
	e.addr = e.addrs[0]
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	e.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	return e
}

// wire is one raw connection that speaks whole frames, to see what clients hide. Requests may be
// sent ahead; answers are received in the order of their requests. Its methods end the test where
// the broker does not answer as it must, so they belong on the test's goroutine.
type wire struct {
	testing.TB
	nc          net.Conn
	correlation int32
	sent        []sentRequest // not answered so far
}

type sentRequest struct {
	req         kmsg.Request
	version     int16
	correlation int32
}

// dialWire opens a connection that ends with the test.
func dialWire(tb testing.TB, addr string) *wire {
	tb.Helper()
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { nc.Close() })
	return &wire{TB: tb, nc: nc}
}

// frame encodes a request under the next correlation id.
func (w *wire) frame(req kmsg.Request, version int16) []byte {
	w.correlation++
	req.SetVersion(version)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("pitfall")).AppendRequest(nil, req, w.correlation)
}

// write sends bytes as they are.
func (w *wire) write(b []byte) {
	w.Helper()
	_ = w.nc.SetWriteDeadline(time.Now().Add(patience))
	if _, err := w.nc.Write(b); err != nil {
		w.Fatalf("write: %v", err)
	}
}

// send sends a request whose answer receive will take.
func (w *wire) send(req kmsg.Request, version int16) {
	w.Helper()
	w.write(w.frame(req, version))
	w.sent = append(w.sent, sentRequest{req, version, w.correlation})
}

// read returns the next frame without its length.
func (w *wire) read(limit time.Duration) ([]byte, error) {
	_ = w.nc.SetReadDeadline(time.Now().Add(limit))
	var size [4]byte
	if _, err := io.ReadFull(w.nc, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(w.nc, b)
	return b, err
}

// receive takes the answer to the oldest request that has none.
func receive[R kmsg.Response](w *wire) R {
	w.Helper()
	s := w.sent[0]
	w.sent = w.sent[1:]
	b, err := w.read(patience)
	if err != nil {
		w.Fatalf("%s v%d: %v", kmsg.NameForKey(s.req.Key()), s.version, err)
	}
	resp, correlation, err := decodeAnswer(s.req, s.version, b)
	if err != nil {
		w.Fatalf("%s v%d: answer %x: %v", kmsg.NameForKey(s.req.Key()), s.version, b, err)
	}
	if correlation != s.correlation {
		w.Fatalf("%s v%d: correlation id %d, want %d", kmsg.NameForKey(s.req.Key()), s.version, correlation, s.correlation)
	}
	return resp.(R)
}

// ask sends a request and returns its answer.
func ask[R kmsg.Response](w *wire, req kmsg.Request, version int16) R {
	w.Helper()
	w.send(req, version)
	return receive[R](w)
}

// decodeAnswer reads an answer of the request's kind and its correlation id out of a whole frame;
// bytes behind the answer are an error.
func decodeAnswer(req kmsg.Request, version int16, frame []byte) (kmsg.Response, int32, error) {
	r := kbin.Reader{Src: frame}
	correlation := r.Int32()
	resp := req.ResponseKind()
	resp.SetVersion(version)
	if resp.IsFlexible() && resp.Key() != kmsg.ApiVersions.Int16() {
		kmsg.SkipTags(&r)
	}
	if !r.Ok() {
		return nil, 0, errors.New("cut header")
	}
	if err := resp.ReadFrom(r.Src); err != nil {
		return nil, 0, err
	}
	if got := resp.AppendTo(nil); len(got) != len(r.Src) {
		return nil, 0, errors.New("bytes behind the answer")
	}
	return resp, correlation, nil
}

// quiet fails the test when anything comes within d: what was asked has to wait.
func (w *wire) quiet(d time.Duration) {
	w.Helper()
	b, err := w.read(d)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		w.Fatalf("%x, %v came within %v; want nothing", b, err, d)
	}
}

// wantClosed fails the test unless the broker closes the connection without a further byte.
func (w *wire) wantClosed(after string) {
	w.Helper()
	b, err := w.read(patience)
	var timeout net.Error
	if err == nil || len(b) > 0 {
		w.Fatalf("%s: answered %x, want the connection closed", after, b)
	}
	if errors.As(err, &timeout) && timeout.Timeout() {
		w.Fatalf("%s: the connection is not closed", after)
	}
}

// equal ends the test unless got is want.
func equal[V comparable](tb testing.TB, what string, got, want V) {
	tb.Helper()
	if got != want {
		tb.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// eventually ends the test unless ok holds within limit; it asks every few milliseconds.
func eventually(tb testing.TB, what string, limit time.Duration, ok func() bool) {
	tb.Helper()
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			tb.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// sample is a record of a batch that a test builds.
type sample struct {
	key, value []byte
	at         int64 // milliseconds; 0: now
}

func values(vs ...string) []sample {
	all := make([]sample, len(vs))
	for i, v := range vs {
		all[i].value = []byte(v)
	}
	return all
}

// newBatch encodes records as one batch without compression and without a producer id. edit, if
// any, changes the header or the encoded records before length and checksum are set.
func newBatch(edit func(*kmsg.RecordBatch), samples ...sample) []byte {
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(len(samples)), LastOffsetDelta: int32(len(samples)) - 1, MaxTimestamp: -1,
	}
	for i, s := range samples {
		if s.at == 0 {
			s.at = time.Now().UnixMilli()
		}
		if i == 0 {
			b.FirstTimestamp = s.at
		}
		b.MaxTimestamp = max(b.MaxTimestamp, s.at)
		r := kmsg.Record{OffsetDelta: int32(i), TimestampDelta64: s.at - b.FirstTimestamp, Key: s.key, Value: s.value}
		rest := r.AppendTo(nil)[1:] // behind the length, which is a single byte while it is 0
		b.Records = append(kbin.AppendVarint(b.Records, int32(len(rest))), rest...)
	}
	if edit != nil {
		edit(&b)
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// gzipped is an edit of newBatch that compresses the records.
func gzipped(b *kmsg.RecordBatch) {
	b.Attributes |= 1
	b.Records = gzipOf(b.Records)
}

func gzipOf(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b)
	_ = z.Close()
	return out.Bytes()
}

// from is an edit of newBatch that makes the batch an idempotent producer's.
func from(producer int64, epoch int16, sequence int32) func(*kmsg.RecordBatch) {
	return func(b *kmsg.RecordBatch) {
		b.ProducerID, b.ProducerEpoch, b.FirstSequence = producer, epoch, sequence
	}
}

// batchesIn decodes the whole batches of a Fetch answer and verifies their checksums.
func batchesIn(tb testing.TB, raw []byte) (all []kmsg.RecordBatch) {
	tb.Helper()
	for len(raw) > 0 {
		if len(raw) < 12 || len(raw) < 12+int(binary.BigEndian.Uint32(raw[8:])) {
			tb.Fatalf("%d bytes of a cut batch", len(raw))
		}
		n := 12 + int(binary.BigEndian.Uint32(raw[8:]))
		var b kmsg.RecordBatch
		if err := b.ReadFrom(raw[:n]); err != nil {
			tb.Fatalf("stored batch: %v", err)
		}
		equal(tb, "checksum of a stored batch", uint32(b.CRC), crc32.Checksum(raw[21:n], crc32.MakeTable(crc32.Castagnoli)))
		all, raw = append(all, b), raw[n:]
	}
	return all
}

// filesUnder reads every file below a directory.
func filesUnder(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}
