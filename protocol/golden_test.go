package protocol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// testdata/frames has requests of kcat, Java, franz-go and other clients and the answers of
// Kafka 4.4.0 and 3.9.1, recorded by a proxy between them: in hex with the length prefix, each
// under a comment with key, version and which of the two it is.
type golden struct {
	where        string
	key, version int16
	response     bool
	frame        []byte // without its length prefix
}

func goldenFrames(tb testing.TB) []golden {
	names, err := filepath.Glob("testdata/frames/*.hex")
	if err != nil || len(names) == 0 {
		tb.Fatal("no golden frames", err)
	}
	var all []golden
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			tb.Fatal(err)
		}
		defer file.Close()
		sc := bufio.NewScanner(file)
		sc.Buffer(nil, 1<<20)
		var g golden
		for line := 1; sc.Scan(); line++ {
			text := sc.Text()
			if strings.HasPrefix(text, "#") {
				var kind string
				if _, err := fmt.Sscanf(text, "# key %d version %d, %s", &g.key, &g.version, &kind); err != nil {
					tb.Fatalf("%s:%d: %v", name, line, err)
				}
				g.response = kind == "response"
				continue
			}
			b, err := hex.DecodeString(text)
			if err != nil || len(b) < 4 || int(binary.BigEndian.Uint32(b)) != len(b)-4 {
				tb.Fatalf("%s:%d: not a frame: %v", name, line, err)
			}
			g.frame = b[4:]
			g.where = fmt.Sprintf("%s:%d", filepath.Base(name), line)
			all = append(all, g)
		}
	}
	return all
}

// TestGoldenFrames decodes every recorded frame and encodes it again to the same bytes.
func TestGoldenFrames(t *testing.T) {
	for _, g := range goldenFrames(t) {
		if g.response {
			goldenResponse(t, g)
		} else {
			goldenRequest(t, g)
		}
	}
}

func goldenRequest(t *testing.T, g golden) {
	h, body, err := ParseHeader(g.frame)
	if err != nil || h.Key != g.key || h.Version != g.version {
		t.Errorf("%s: header %+v, %v", g.where, h, err)
		return
	}
	if rest, err := checkShape(h.Key, h.Version, body, MaxDecodedBytes); err != nil || len(rest) > 0 {
		t.Errorf("%s: %d bytes over, %v", g.where, len(rest), err)
	}
	req := kmsg.RequestForKey(h.Key)
	req.SetVersion(h.Version)
	if err := req.ReadFrom(body); err != nil {
		t.Errorf("%s: %v", g.where, err)
		return
	}
	if got := req.AppendTo(nil); !bytes.Equal(got, body) {
		t.Errorf("%s: encoded again\n%x, was\n%x", g.where, got, body)
	}
}

func goldenResponse(t *testing.T, g golden) {
	h := Header{
		Key: g.key, Version: g.version, Flexible: flexible(g.key, g.version),
		CorrelationID: int32(binary.BigEndian.Uint32(g.frame)),
	}
	resp := kmsg.ResponseForKey(g.key)
	resp.SetVersion(g.version)
	if err := resp.ReadFrom(g.frame[len(appendResponseHeader(nil, h)):]); err != nil {
		t.Errorf("%s: %v", g.where, err)
		return
	}
	answers := map[string]*Answer{"EncodeResponse": EncodeResponse(h, resp)}
	if f, ok := resp.(*kmsg.FetchResponse); ok {
		answers["EncodeFetch"] = EncodeFetch(h, f, nil)
	}
	for name, a := range answers {
		if got := flatten(a); !bytes.Equal(got[4:], g.frame) {
			t.Errorf("%s: %s gives\n%x, was\n%x", g.where, name, got[4:], g.frame)
		}
		a.Release()
	}
}

// flatten joins the parts of an answer.
func flatten(a *Answer) []byte {
	var b []byte
	for _, p := range a.Parts {
		if p.Range == nil {
			b = append(b, p.Bytes...)
			continue
		}
		at := len(b)
		b = append(b, make([]byte, p.Range.Len())...)
		if _, err := p.Range.ReadAt(b[at:], 0); err != nil {
			panic(err)
		}
	}
	return b
}
