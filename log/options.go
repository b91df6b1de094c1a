package log

import (
	"math"

	"ottla/protocol/record"
)

// Options are the settings of one topic's logs. A value is never changed once it is handed
// out: a change makes a new one, and the log reads the current one at each decision.
// Times are in milliseconds, sizes in bytes; -1 means no limit where noted.
type Options struct {
	SegmentBytes       int64
	SegmentMs          int64
	SegmentJitterMs    int64
	SegmentIndexBytes  int64
	IndexIntervalBytes int64
	RetentionBytes     int64 // -1: no limit
	RetentionMs        int64 // -1: no limit
	FlushMessages      int64
	FlushMs            int64
	FileDeleteDelayMs  int64
	Preallocate        bool

	CleanupDelete          bool
	CleanupCompact         bool
	DeleteRetentionMs      int64
	MinCompactionLagMs     int64
	MaxCompactionLagMs     int64
	MinCleanableDirtyRatio float64

	MaxMessageBytes                int64 // a whole batch, header included
	MaxDecompressedMessageBytes    int64
	Compression                    string // producer, uncompressed, gzip, snappy, lz4, zstd
	GzipLevel, Lz4Level, ZstdLevel int64
	LogAppendTime                  bool // message.timestamp.type=LogAppendTime
	TimestampBeforeMaxMs           int64
	TimestampAfterMaxMs            int64
}

// defaults are Kafka's, for callers that give no options. min.insync.replicas and the like are
// not the log's concern.
var defaults = Options{
	SegmentBytes: 1 << 30, SegmentMs: 7 * 24 * 3600e3, SegmentIndexBytes: 10 << 20, IndexIntervalBytes: 4096,
	RetentionBytes: -1, RetentionMs: 7 * 24 * 3600e3, FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64,
	FileDeleteDelayMs: 60e3, CleanupDelete: true, DeleteRetentionMs: 24 * 3600e3, MaxCompactionLagMs: math.MaxInt64,
	MinCleanableDirtyRatio: 0.5, MaxMessageBytes: 1<<20 + 12, MaxDecompressedMessageBytes: 64 << 20,
	Compression: "producer", GzipLevel: -1, Lz4Level: 9, ZstdLevel: 3,
	TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: 3600e3,
}

// DefaultOptions are the settings of a topic that has none of its own, as in Kafka.
func DefaultOptions() *Options {
	o := defaults
	return &o
}

// rules are what the options demand of records.
func (o *Options) rules(partition string, a Append, now int64) record.Rules {
	codec, level := record.Producer, int64(0)
	switch o.Compression {
	case "uncompressed", "none":
		codec = record.None
	case "gzip":
		codec, level = record.Gzip, o.GzipLevel
	case "snappy":
		codec = record.Snappy
	case "lz4":
		codec, level = record.Lz4, o.Lz4Level
	case "zstd":
		codec, level = record.Zstd, o.ZstdLevel
	}
	return record.Rules{
		Partition: partition, Now: now,
		LogAppend: o.LogAppendTime, BeforeMax: o.TimestampBeforeMaxMs, AfterMax: o.TimestampAfterMaxMs,
		MaxBatchBytes: int(o.MaxMessageBytes), MaxDecompressedBytes: o.MaxDecompressedMessageBytes,
		Codec: codec, Level: int(level), Compacted: o.CleanupCompact,
		Origin: a.Origin, RequestVersion: a.RequestVersion,
	}
}
