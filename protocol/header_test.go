package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestParseHeader(t *testing.T) {
	for _, c := range []struct {
		name  string
		frame string
		want  Header
		body  string
	}{
		{"with a client id", "\x00\x03\x00\x01\x00\x00\x00\x07\x00\x03abcbody", Header{Key: 3, Version: 1, CorrelationID: 7, ClientID: []byte("abc")}, "body"},
		{"null client id", "\x00\x03\x00\x01\x00\x00\x00\x07\xff\xffbody", Header{Key: 3, Version: 1, CorrelationID: 7}, "body"},
		{"flexible", "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x03abc\x00body", Header{Key: 3, Version: 9, CorrelationID: 7, ClientID: []byte("abc"), Flexible: true}, "body"},
		{"flexible, null client id", "\x00\x03\x00\x09\x00\x00\x00\x07\xff\xff\x00body", Header{Key: 3, Version: 9, CorrelationID: 7, Flexible: true}, "body"},
		{"flexible, empty client id", "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x00\x00body", Header{Key: 3, Version: 9, CorrelationID: 7, ClientID: []byte{}, Flexible: true}, "body"},
		{"unknown tags", "\x00\x03\x00\x0c\x00\x00\x00\x07\x00\x00\x02\x09\x02xy\xff\x01\x00body", Header{Key: 3, Version: 12, CorrelationID: 7, ClientID: []byte{}, Flexible: true}, "body"},
		{"ControlledShutdown v0 has no client id", "\x00\x07\x00\x00\x00\x00\x00\x07\x00\x00\x00\x01", Header{Key: 7, CorrelationID: 7}, "\x00\x00\x00\x01"},
		{"ControlledShutdown v1 has one", "\x00\x07\x00\x01\x00\x00\x00\x07\x00\x01a\x00\x00\x00\x01", Header{Key: 7, Version: 1, CorrelationID: 7, ClientID: []byte("a")}, "\x00\x00\x00\x01"},
		{"ApiVersions of the future", "\x00\x12\x00\x63\x00\x00\x00\x07\x00\x01a\x00body", Header{Key: 18, Version: 99, CorrelationID: 7, ClientID: []byte("a"), Flexible: true}, "body"},
		{"ApiVersions v0", "\x00\x12\x00\x00\x00\x00\x00\x07\x00\x01a", Header{Key: 18, CorrelationID: 7, ClientID: []byte("a")}, ""},
		{"unknown key", "\x7f\xff\x00\x00\x00\x00\x00\x07\x00\x01abody", Header{Key: 32767, CorrelationID: 7, ClientID: []byte("a")}, "body"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, body, err := ParseHeader([]byte(c.frame))
			if err != nil {
				t.Fatal(err)
			}
			if h.Key != c.want.Key || h.Version != c.want.Version || h.CorrelationID != c.want.CorrelationID || h.Flexible != c.want.Flexible ||
				!bytes.Equal(h.ClientID, c.want.ClientID) || (h.ClientID == nil) != (c.want.ClientID == nil) || string(body) != c.body {
				t.Errorf("got %+v and body %q, want %+v and %q", h, body, c.want, c.body)
			}
			for n := range len(c.frame) - len(c.body) {
				if _, _, err := ParseHeader([]byte(c.frame[:n])); !errors.Is(err, ErrMalformed) {
					t.Errorf("cut to %d bytes: %v", n, err)
				}
			}
		})
	}
	for name, frame := range map[string]string{
		"client id of -2":            "\x00\x03\x00\x01\x00\x00\x00\x07\xff\xfe",
		"more tags than bytes":       "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x00\xff\xff\xff\xff\x0f\x01\x01",
		"tag longer than the frame":  "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x00\x01\x01\x7fx",
		"tag count of 64 bits":       "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"an HTTP request, shortened": "GET / HTTP",
	} {
		if _, _, err := ParseHeader([]byte(frame)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResponseHeaders(t *testing.T) {
	for _, c := range []struct {
		key, version int16
		want         int // bytes
	}{{3, 8, 4}, {3, 9, 5}, {18, 0, 4}, {18, 3, 4}, {18, 5, 4}, {47, 0, 4}, {7, 0, 4}, {7, 3, 5}} {
		h := Header{Key: c.key, Version: c.version, CorrelationID: 9, Flexible: flexible(c.key, c.version)}
		b := appendResponseHeader(nil, h)
		if len(b) != c.want || binary.BigEndian.Uint32(b) != 9 {
			t.Errorf("key %d version %d: %x", c.key, c.version, b)
		}
	}
}

// FuzzHeader: no frame makes ParseHeader panic, and what it accepts is a header and the rest
// of the frame.
func FuzzHeader(f *testing.F) {
	for _, g := range goldenFrames(f) {
		if !g.response {
			f.Add(g.frame)
		}
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := ParseHeader(frame)
		if err != nil {
			return
		}
		if !bytes.HasSuffix(frame, body) || len(h.ClientID)+len(body)+8 > len(frame) {
			t.Fatalf("%x: header %+v, body %x", frame, h, body)
		}
		if h.ClientID == nil {
			return
		}
		// kmsg writes no tags, so what it writes is a prefix up to them.
		id := string(h.ClientID)
		want := kmsg.NewRequestFormatter(kmsg.FormatterClientID(id)).AppendRequest(nil, &raw{key: h.Key, version: h.Version}, h.CorrelationID)
		if !bytes.HasPrefix(frame, want[4:]) {
			t.Fatalf("%x: kmsg writes the header as %x", frame, want[4:])
		}
	})
}

// raw is a request without a body, for kmsg's formatter.
type raw struct {
	kmsg.Request
	key, version int16
}

func (r *raw) Key() int16                 { return r.key }
func (r *raw) GetVersion() int16          { return r.version }
func (r *raw) MaxVersion() int16          { return r.version }
func (r *raw) IsFlexible() bool           { return false }
func (r *raw) AppendTo(dst []byte) []byte { return dst }
