package coordinator

// PartitionOf places a key (a group, a transactional id) on a partition of its internal topic
// as Kafka does: Java's String.hashCode, its sign bit cleared the way of Kafka's Utils.abs,
// modulo the number of partitions.
func PartitionOf(key string, partitions int32) int32 {
	h := JavaHash(key)
	if h == -1<<31 {
		h = 0
	}
	if h < 0 {
		h = -h
	}
	return h % partitions
}

// JavaHash is String.hashCode over UTF-16 units. Bytes that are no UTF-8 count as Java decodes
// them, as U+FFFD.
func JavaHash(s string) int32 {
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
