package group

import "unicode/utf8"

// Topic is the internal topic that keeps groups and offsets.
const Topic = "__consumer_offsets"

// PartitionOf places a group on a partition of Topic as Kafka does: Java's String.hashCode,
// its sign bit cleared the way of Kafka's Utils.abs, modulo the number of partitions.
func PartitionOf(group string, partitions int32) int32 {
	h := javaHash(group)
	if h == -1<<31 {
		h = 0
	}
	if h < 0 {
		h = -h
	}
	return h % partitions
}

// javaHash is String.hashCode over UTF-16 units. Bytes that are no UTF-8 count as Java decodes
// them, as U+FFFD.
func javaHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + 0xD800 + r>>10
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + r
	}
	return h
}

// utf16Len is Java's String.length.
func utf16Len(s string) int {
	n := utf8.RuneCountInString(s)
	for _, r := range s {
		if r >= 0x10000 {
			n++
		}
	}
	return n
}
