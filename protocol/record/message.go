package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// Where the fields of a v0 or v1 message lie, its offset and length included (Kafka's
// LegacyRecord). v1 (KIP-32) has a timestamp before the key.
const (
	atMessageCRC        = 12 // CRC-32 of all that follows
	atMessageAttributes = 17
	atMessageTimestamp  = 18
	atMessageKeyV0      = 18
	atMessageKeyV1      = 26

	minMessageV0 = 14 // without offset and length: a null key and a null value
	minMessageV1 = 22
)

// message is a v0 or v1 message taken apart.
type message struct {
	timestamp  int64 // -1 in v0
	key, value []byte
}

// parseMessage reads an entry whose size was checked for its format.
func parseMessage(b Batch) (m message, err error) {
	at := atMessageKeyV0
	m.timestamp = noTimestamp
	if b.Magic() == 1 {
		at = atMessageKeyV1
		m.timestamp = b.int64(atMessageTimestamp)
	}
	if m.key, at, err = messageField(b, at); err != nil {
		return m, err
	}
	m.value, _, err = messageField(b, at)
	return m, err
}

func messageField(b Batch, at int) (field []byte, next int, err error) {
	if len(b)-at < 4 {
		return nil, 0, fmt.Errorf("%w: message ends within a length", ErrCorrupt)
	}
	size := int(b.int32(at))
	at += 4
	if size < 0 {
		return nil, at, nil
	}
	if size > len(b)-at {
		return nil, 0, fmt.Errorf("%w: message field of %d bytes, of which there are %d", ErrCorrupt, size, len(b)-at)
	}
	return b[at : at+size : at+size], at + size, nil
}

// openWrapper begins to read the set inside a compressed v0 or v1 message.
func openWrapper(b Batch, most int64, alone bool) (cursor, error) {
	switch m, err := parseMessage(b); {
	case err != nil:
		return cursor{}, err
	case b.Codec() == Zstd:
		return cursor{}, fmt.Errorf("%w: invalid wrapper compressionType found in legacy deep record iterator %d", ErrInvalidRecord, b.Magic())
	case m.value == nil:
		return cursor{}, fmt.Errorf("%w: found invalid compressed record set with null value (magic = %d)", ErrInvalidRecord, b.Magic())
	default:
		return openStream(b.Codec(), m.value, b.Magic(), most, alone)
	}
}

// inner reads the next message of a compressed set into buf, which grows as bytes come. At
// the end it answers io.EOF, also if that comes within a message (old clients cut sets off).
func (c *cursor) inner(buf []byte) (Batch, error) {
	buf, err := c.read(buf[:0], entryPrefix)
	if err != nil {
		return nil, shortIsEOF(err)
	}
	size := int64(int32(binary.BigEndian.Uint32(buf[atLength:])))
	if size < minMessageV0 {
		return nil, fmt.Errorf("%w: record size is less than the minimum record overhead (%d)", ErrCorrupt, minMessageV0)
	}
	if c.most > 0 && size > c.most {
		return nil, fmt.Errorf("%w: invalid record size: %d exceeds the configured maximum record size of %d", ErrInvalidRecord, size, c.most)
	}
	if buf, err = c.read(buf, size); err != nil {
		return nil, shortIsEOF(err)
	}
	return Batch(buf), nil
}

func shortIsEOF(err error) error {
	if err == io.ErrUnexpectedEOF {
		return io.EOF
	}
	return err
}

// eachMessage calls do for the messages of an entry: for each of the set in a wrapper, else
// for the entry itself. What do is given is valid during the call. The offsets are those that
// are stored: absolute in v0, relative to the first of the set in v1.
func eachMessage(b Batch, most int64, alone bool, do func(Batch, message) error) error {
	if b.Codec() == None {
		m, err := parseMessage(b)
		if err != nil {
			return err
		}
		return do(b, m)
	}
	c, err := openWrapper(b, most, alone)
	if err != nil {
		return err
	}
	defer c.close()
	appendTime := b.LogAppendTime()
	count, last := 0, int64(0)
	for buf := Batch(nil); ; count++ {
		if buf, err = c.inner(buf); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if buf.Magic() != 0 && buf.Magic() != 1 {
			return fmt.Errorf("%w: inner message's magic %d does not match outer magic %d", ErrInvalidRecord, buf.Magic(), b.Magic())
		}
		if err := checkSize(buf.Magic(), len(buf)-entryPrefix); err != nil {
			return err
		}
		if buf.Codec() != None {
			return fmt.Errorf("%w: inner messages must not be compressed", ErrInvalidRecord)
		}
		m, err := parseMessage(buf)
		if err != nil {
			return err
		}
		if appendTime && buf.Magic() == 1 {
			m.timestamp = b.MaxTimestamp()
		}
		last = buf.BaseOffset()
		if err := do(buf, m); err != nil {
			return err
		}
	}
	if count == 0 {
		return fmt.Errorf("%w: found invalid compressed record set with no inner records", ErrInvalidRecord)
	}
	_, err = wrapperBase(b, last)
	return err
}

// wrapperBase is what the offsets inside a wrapper count from, given the last one.
func wrapperBase(b Batch, last int64) (int64, error) {
	switch outer := b.BaseOffset(); {
	case b.Magic() == 0 || outer == 0: // some versions of librdkafka leave it at 0
		return 0, nil
	case outer < last:
		return 0, fmt.Errorf("%w: found invalid wrapper offset in compressed v1 message set, wrapper offset '%d' is less than the last inner message offset '%d' and it is not zero",
			ErrInvalidRecord, outer, last)
	default:
		return outer - last, nil
	}
}

// messageRecords is Records for v0 and v1.
func messageRecords(b Batch, most int64, yield func(Record, error) bool) {
	eachRecord(b, most, func(_ Batch, r Record, err error) bool { return yield(r, err) })
}

var errStopped = fmt.Errorf("stopped")

// appendMessage appends one message of v0 or v1.
func appendMessage(dst []byte, magic int8, offset, timestamp int64, attributes int8, key, value []byte) []byte {
	from := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, uint64(offset))
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0, byte(magic), byte(attributes))
	if magic == 1 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(timestamp))
	}
	dst = appendNullable(dst, key)
	dst = appendNullable(dst, value)
	finishMessage(dst[from:])
	return dst
}

// finishMessage fills in what depends on a message's end.
func finishMessage(b []byte) {
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-entryPrefix))
	binary.BigEndian.PutUint32(b[atMessageCRC:], crc32.ChecksumIEEE(b[atMagic:]))
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return binary.BigEndian.AppendUint32(dst, 1<<32-1)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...)
}
