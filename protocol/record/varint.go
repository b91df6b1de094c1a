package record

// Zigzag varints as protocol buffers write them. The readers return n = 0 if b ends within
// the number and n < 0 if it is longer than its type allows (Kafka's ByteUtils).

const (
	maxVarint32 = 5
	maxVarint64 = 10
)

func varint32(b []byte) (v int32, n int) {
	if len(b) > 0 && b[0] < 0x80 { // most lengths, deltas and counts
		u := uint32(b[0])
		return int32(u>>1) ^ -int32(u&1), 1
	}
	var u uint32
	for i := 0; i < len(b); i++ {
		if i == maxVarint32 {
			return 0, -1
		}
		u |= uint32(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
	}
	if len(b) >= maxVarint32 {
		return 0, -1
	}
	return 0, 0
}

func varint64(b []byte) (v int64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		u := uint64(b[0])
		return int64(u>>1) ^ -int64(u&1), 1
	}
	var u uint64
	for i := 0; i < len(b); i++ {
		if i == maxVarint64 {
			return 0, -1
		}
		u |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
	if len(b) >= maxVarint64 {
		return 0, -1
	}
	return 0, 0
}

func appendVarint(b []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		b = append(b, byte(u)|0x80)
		u >>= 7
	}
	return append(b, byte(u))
}

func varintSize(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
