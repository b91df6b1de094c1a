package record

import (
	"fmt"
	"strings"
)

// Codec is a compression of records by its number in the attributes.
type Codec int8

const (
	None Codec = iota
	Gzip
	Snappy
	Lz4
	Zstd

	// Producer, as a target, keeps what the client chose. It is never in a batch.
	Producer Codec = -1
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// Name is what Kafka calls the codec: none, gzip, snappy, lz4, zstd; producer for the target.
func (c Codec) Name() string {
	if c == Producer {
		return "producer"
	}
	if !c.Known() {
		return fmt.Sprintf("unknown(%d)", int8(c))
	}
	return codecNames[c]
}

func (c Codec) String() string { return c.Name() }

// Known says that the number has a meaning: three bits have room for three more.
func (c Codec) Known() bool { return c >= None && c <= Zstd }

// ParseCodec reads a value of compression.type: a codec's name, uncompressed or producer.
func ParseCodec(name string) (Codec, error) {
	switch name = strings.ToLower(name); name {
	case "producer":
		return Producer, nil
	case "uncompressed":
		return None, nil
	}
	for c, known := range codecNames {
		if name == known {
			return Codec(c), nil
		}
	}
	return None, fmt.Errorf("unknown compression name: %q", name)
}

// levelOf is the level to pack with: 0 stands for the codec's default, and what lies outside of
// the codec's range (compression.gzip.level and its sisters, KIP-390, KIP-780) is cut to it.
func levelOf(c Codec, level int) int {
	low, high, preset := 0, 0, 0
	switch c {
	case Gzip:
		low, high, preset = 1, 9, -1
		if level == -1 {
			return -1
		}
	case Lz4:
		low, high, preset = 1, 17, 9
	case Zstd:
		low, high, preset = -131072, 22, 3
	}
	if level == 0 {
		return preset
	}
	return min(max(level, low), high)
}
