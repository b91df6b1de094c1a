// Package protocol has the bytes on the wire that kmsg leaves to us: headers of requests and
// answers, the check of a request's shape before it is decoded, whole answer frames, and the
// Fetch answer with holes for records that are sent from files. It knows no sockets.
package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error about bytes that are not what the protocol says.
// Its sender is not answered: the connection is closed.
var ErrMalformed = errors.New("malformed request")

// The keys that the framing itself has to know.
const (
	keyProduce            = 0
	keyControlledShutdown = 7
	keyApiVersions        = 18
)

// Header is a request's header, of any of its versions 0, 1 and 2.
type Header struct {
	Key           int16
	Version       int16
	CorrelationID int32
	ClientID      []byte // aliases the frame; nil where it was null or, in version 0, not there
	Flexible      bool   // the request has compact lengths and tagged fields
}

// ParseHeader splits a frame (without its length prefix) into header and body.
//
// Which header version a request has depends on its key and version (Kafka's
// ApiMessageType.requestHeaderVersion): 2 for a flexible request, 1 for others, 0 for
// ControlledShutdown v0, which has no client id. Tagged fields of the header are skipped. An
// ApiVersions request of a version that is not known yet is read like its highest one, so
// that it can be answered. The error wraps ErrMalformed.
func ParseHeader(frame []byte) (h Header, body []byte, err error) {
	if len(frame) < 8 {
		return h, nil, fmt.Errorf("%w: %d bytes cannot hold a header", ErrMalformed, len(frame))
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	h.Flexible = flexible(h.Key, h.Version)
	r := reader{b: frame[8:]}
	if h.Key == keyControlledShutdown && h.Version == 0 {
		return h, r.b, nil
	}
	// The client id keeps its two-byte length in header version 2.
	n := int(int16(r.uint16()))
	if n >= 0 {
		h.ClientID = r.take(n)
	}
	if n < -1 {
		r.fail()
	}
	if h.Flexible {
		for range r.tagCount() {
			r.uvarint()
			r.take(r.length())
			if r.bad {
				break
			}
		}
	}
	if r.bad {
		return h, nil, fmt.Errorf("%w: header of key %d version %d is cut short", ErrMalformed, h.Key, h.Version)
	}
	return h, r.b, nil
}

// CarriesRecords says whether requests of a key hold records of clients: such requests may be
// as large as socket.request.max.bytes, others are limited further.
func CarriesRecords(key int16) bool { return key == keyProduce }

// appendResponseHeader appends the header that answers h: the correlation id and, for a
// flexible request, an empty set of tags. ApiVersions never has tags there, because a client
// reads that answer before it knows what the broker speaks.
func appendResponseHeader(dst []byte, h Header) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.CorrelationID))
	if h.Flexible && h.Key != keyApiVersions {
		dst = append(dst, 0)
	}
	return dst
}

// flexible says whether a request is written with compact lengths and tagged fields.
func flexible(key, version int16) bool {
	s := findShape(key, version)
	if s == nil {
		return key == keyApiVersions && version >= 3
	}
	return s.flexible >= 0 && version >= int16(s.flexible)
}
