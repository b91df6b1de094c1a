package group

import (
	"unicode/utf8"

	"ottla/coordinator"
)

// Topic is the internal topic that keeps groups and offsets.
const Topic = "__consumer_offsets"

// PartitionOf places a group on a partition of Topic.
func PartitionOf(group string, partitions int32) int32 {
	return coordinator.PartitionOf(group, partitions)
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
