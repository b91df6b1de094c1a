package protocol

import (
	"encoding/binary"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// keepEncoded is the capacity up to which a buffer goes back to the pool of answers; what was
// larger is left to the garbage collector, so that one huge answer does not stay.
const keepEncoded = 256 << 10

// encoded is an answer with the buffer that it was encoded into. It goes back to the pool as
// a whole when the answer is released.
type encoded struct {
	Answer
	buf   []byte
	holes []Range // released with the answer
}

var answers sync.Pool // of *encoded

func newEncoded() *encoded {
	e, ok := answers.Get().(*encoded)
	if !ok {
		e = &encoded{buf: make([]byte, 0, 512)}
		e.Release = e.release
	}
	return e
}

func (e *encoded) release() {
	for i, r := range e.holes {
		if r != nil {
			r.Release()
		}
		e.holes[i] = nil
	}
	e.holes = e.holes[:0]
	clear(e.Parts)
	e.Parts = e.Parts[:0]
	if cap(e.buf) > keepEncoded {
		e.buf = make([]byte, 0, 512)
	}
	answers.Put(e)
}

// EncodeResponse encodes the whole frame that answers h, the length prefix included. The
// buffer is pooled: it must not be used after Release.
func EncodeResponse(h Header, resp kmsg.Response) *Answer {
	e := newEncoded()
	resp.SetVersion(h.Version)
	b := append(e.buf[:0], 0, 0, 0, 0)
	b = appendResponseHeader(b, h)
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	e.buf = b
	e.Parts = append(e.Parts[:0], Part{Bytes: b})
	return &e.Answer
}
