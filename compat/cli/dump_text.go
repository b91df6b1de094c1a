package cli

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"ottla/protocol/schema"
)

// valueDecoder is one of the classes of --key-decoder-class and --value-decoder-class. The zero
// value is the one for strings.
type valueDecoder struct {
	name   string
	size   int // bytes that it reads; 0: all
	append func(dst, b []byte) []byte
}

// decoderTable has Kafka's four (org.apache.kafka.tools.api), and those for the other types that
// Kafka's serializers write. Of bytes Kafka prints where they lie in its memory.
func decoderTable() []valueDecoder {
	return []valueDecoder{
		{"StringDecoder", 0, appendUTF8},
		{"IntegerDecoder", 4, func(dst, b []byte) []byte {
			return strconv.AppendInt(dst, int64(int32(binary.BigEndian.Uint32(b))), 10)
		}},
		{"LongDecoder", 8, func(dst, b []byte) []byte {
			return strconv.AppendInt(dst, int64(binary.BigEndian.Uint64(b)), 10)
		}},
		{"DefaultDecoder", 0, hex.AppendEncode},
		{"ShortDecoder", 2, func(dst, b []byte) []byte {
			return strconv.AppendInt(dst, int64(int16(binary.BigEndian.Uint16(b))), 10)
		}},
		{"FloatDecoder", 4, func(dst, b []byte) []byte {
			return strconv.AppendFloat(dst, float64(math.Float32frombits(binary.BigEndian.Uint32(b))), 'g', -1, 32)
		}},
		{"DoubleDecoder", 8, func(dst, b []byte) []byte {
			return schema.AppendDouble(dst, math.Float64frombits(binary.BigEndian.Uint64(b)))
		}},
	}
}

func decoderNames() string {
	var names []string
	for _, d := range decoderTable() {
		names = append(names, d.name)
	}
	return strings.Join(names, ", ")
}

var errNoDecoder = errors.New("there is no such decoder")

// findDecoder takes a class name: of 4.4's package, of that of 3.9 and before, or without one.
func findDecoder(class string) (valueDecoder, error) {
	name := strings.TrimPrefix(strings.TrimPrefix(class, "org.apache.kafka.tools.api."), "kafka.serializer.")
	for _, d := range decoderTable() {
		if d.name == name {
			return d, nil
		}
	}
	return valueDecoder{}, fmt.Errorf("%w; allowed are %s", errNoDecoder, decoderNames())
}

// decode appends a key or value. Too few bytes are an error, too many are left out, as in Java.
func (d *valueDecoder) decode(dst, b []byte) ([]byte, error) {
	if d.append == nil {
		return appendUTF8(dst, b), nil
	}
	if len(b) < d.size {
		return dst, fmt.Errorf("%s needs %d bytes, and a key or value has %d", d.name, d.size, len(b))
	}
	return d.append(dst, b), nil
}

// appendUTF8 appends text as Java reads it: what is not UTF-8 becomes U+FFFD, one for each piece
// that Java's decoder takes as one.
func appendUTF8(dst, b []byte) []byte {
	for len(b) > 0 {
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
			dst = append(dst, b[:n]...)
			b = b[n:]
			continue
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
		b = b[malformed(b):]
	}
	return dst
}

// malformed is how many bytes of what is not UTF-8 Java replaces at once: the longest beginning of
// a character; and of the halves of surrogate pairs, which UTF-8 has not, all three bytes.
func malformed(b []byte) int {
	follows := func(i int) bool { return i < len(b) && b[i]&0xc0 == 0x80 }
	switch c := b[0]; {
	case c&0xf0 == 0xe0 && follows(1):
		if c == 0xe0 && b[1] < 0xa0 {
			return 1
		}
		if c == 0xed && b[1] >= 0xa0 {
			if follows(2) || len(b) == 2 {
				return min(3, len(b))
			}
		}
		return 2
	case c >= 0xf0 && c <= 0xf4 && follows(1):
		if c == 0xf0 && b[1] < 0x90 || c == 0xf4 && b[1] > 0x8f {
			return 1
		}
		if follows(2) {
			return 3
		}
		return 2
	}
	return 1
}
