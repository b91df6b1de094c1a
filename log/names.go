package log

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Names in a log directory (Kafka's LogFileUtils and LocalLog).
const (
	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	txnSuffix      = ".txnindex"
	snapshotSuffix = ".snapshot"

	deletedSuffix = ".deleted" // a file that nobody uses any more
	cleanedSuffix = ".cleaned" // a compaction's result before it is whole
	swapSuffix    = ".swap"    // a compaction's result that replaces segments
	cutSuffix     = ".cut"     // bytes that were cut out of a file, or a file that was set aside; nobody reads it

	deleteDirSuffix = "-delete" // a partition that was deleted
	futureDirSuffix = "-future" // a replica on its way from another directory
	strayDirSuffix  = "-stray"  // a replica that the controller did not know

	epochFile     = "leader-epoch-checkpoint"
	partitionFile = "partition.metadata"

	lockFile        = ".lock"
	metaFile        = "meta.properties"
	cleanFile       = ".kafka_cleanshutdown"
	recoveryFile    = "recovery-point-offset-checkpoint"
	watermarkFile   = "replication-offset-checkpoint"
	startFile       = "log-start-offset-checkpoint"
	cleanerFile     = "cleaner-offset-checkpoint"
	temporarySuffix = ".tmp"

	metadataTopic    = "__cluster_metadata"     // KRaft's own log, not a partition of a broker
	remoteIndexCache = "remote-log-index-cache" // of tiered storage

	offsetDigits = 20
	maxDirName   = 255
	maxTopic     = 249
)

// offsetName is a file's name: the offset with 20 digits, and what the file is.
func offsetName(offset int64, suffix string) string {
	var b [offsetDigits + 32]byte
	for i := offsetDigits - 1; i >= 0; i-- {
		b[i] = byte('0' + offset%10)
		offset /= 10
	}
	return string(append(b[:offsetDigits], suffix...))
}

// parseOffsetName takes such a name apart: suffix is all after the digits, as ".log" or
// ".index.swap". A name with fewer digits is somebody else's: nobody would find its file again.
func parseOffsetName(name string) (offset int64, suffix string, ok bool) {
	i := strings.IndexByte(name, '.')
	if i != offsetDigits {
		return 0, "", false
	}
	for _, c := range []byte(name[:i]) {
		if c < '0' || c > '9' {
			return 0, "", false
		}
	}
	offset, err := strconv.ParseInt(name[:i], 10, 64)
	return offset, name[i:], err == nil
}

// dirKind says what a directory below a log directory is.
type dirKind uint8

const (
	dirUnknown dirKind = iota
	dirPartition
	dirDeleted
	dirFuture
	dirStray
)

// parseDirName takes the name of a partition's directory apart: TOPIC-PARTITION, or with
// another kind TOPIC-PARTITION.ID-delete and so on, where the topic may be cut short.
func parseDirName(name string) (topic string, partition int32, kind dirKind) {
	kind = dirPartition
	for _, s := range []struct {
		suffix string
		kind   dirKind
	}{{deleteDirSuffix, dirDeleted}, {futureDirSuffix, dirFuture}, {strayDirSuffix, dirStray}} {
		if rest, ok := strings.CutSuffix(name, s.suffix); ok {
			dot := strings.LastIndexByte(rest, '.')
			if dot < 0 {
				break // a topic may be called x-delete
			}
			name, kind = rest[:dot], s.kind
			break
		}
	}
	dash := strings.LastIndexByte(name, '-')
	if dash < 1 || dash == len(name)-1 {
		return "", 0, dirUnknown
	}
	topic = name[:dash]
	n, err := strconv.ParseInt(name[dash+1:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != name[dash+1:] || !validTopic(topic) {
		return "", 0, dirUnknown
	}
	return topic, int32(n), kind
}

// validTopic says whether the name is one that Kafka allows for a topic.
func validTopic(name string) bool {
	if name == "" || name == "." || name == ".." || len(name) > maxTopic {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

func dirName(topic string, partition int32) string {
	return topic + "-" + strconv.Itoa(int(partition))
}

// retiredDirName is what a partition's directory is renamed to when it goes: unique, and no longer
// than a file system allows, for which the topic is cut.
func retiredDirName(topic string, partition int32, suffix string) string {
	var id [16]byte
	rand.Read(id[:])
	tail := "-" + strconv.Itoa(int(partition)) + "." + hex.EncodeToString(id[:]) + suffix
	return topic[:min(len(topic), maxDirName-len(tail))] + tail
}

// formatPartitionFile is the content of partition.metadata: no newline ends it.
func formatPartitionFile(id [16]byte) []byte {
	return []byte("version: 0\ntopic_id: " + base64.RawURLEncoding.EncodeToString(id[:]))
}

// parsePartitionFile gives the topic id of a partition.metadata.
func parsePartitionFile(data []byte) (id [16]byte, err error) {
	var version, topic string
	for line := range strings.Lines(string(data)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		switch value = strings.TrimSpace(value); {
		case ok && key == "version":
			version = value
		case ok && key == "topic_id":
			topic = value
		case strings.TrimSpace(line) != "":
			return id, fmt.Errorf("unexpected line %q", line)
		}
	}
	if version != "0" {
		return id, fmt.Errorf("unknown version %q", version)
	}
	raw, err := base64.RawURLEncoding.DecodeString(topic)
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("invalid topic id %q", topic)
	}
	copy(id[:], raw)
	return id, nil
}
