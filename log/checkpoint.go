package log

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// key names a partition.
type key struct {
	topic     string
	partition int32
}

// formatCheckpoint is the text of an offset checkpoint (Kafka's OffsetCheckpointFile): the
// version, the number of entries, and a line "TOPIC PARTITION OFFSET" for each.
func formatCheckpoint(offsets map[key]int64) []byte {
	b := make([]byte, 0, 16+40*len(offsets))
	b = append(b, "0\n"...)
	b = strconv.AppendInt(b, int64(len(offsets)), 10)
	b = append(b, '\n')
	for k, offset := range offsets {
		b = append(b, k.topic...)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(k.partition), 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, offset, 10)
		b = append(b, '\n')
	}
	return b
}

// parseCheckpoint reads such a text. An empty file is an empty checkpoint.
func parseCheckpoint(data []byte) (map[key]int64, error) {
	lines, err := checkpointLines(data)
	if err != nil {
		return nil, err
	}
	offsets := make(map[key]int64, len(lines))
	for _, line := range lines {
		e, err := checkpointEntry(line)
		if err != nil {
			return nil, err
		}
		offsets[key{e.Topic, e.Partition}] = e.Offset
	}
	return offsets, nil
}

// checkpointEntry reads a line of an offset checkpoint.
func checkpointEntry(line string) (CheckpointEntry, error) {
	f := strings.Fields(line)
	if len(f) != 3 {
		return CheckpointEntry{}, malformed(line)
	}
	p, err1 := strconv.ParseInt(f[1], 10, 32)
	offset, err2 := strconv.ParseInt(f[2], 10, 64)
	if err1 != nil || err2 != nil {
		return CheckpointEntry{}, malformed(line)
	}
	return CheckpointEntry{f[0], int32(p), offset}, nil
}

func malformed(line string) error { return fmt.Errorf("malformed line %.200q", line) }

// checkpointLines checks the head of a checkpoint file and returns its entries.
func checkpointLines(data []byte) ([]string, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n\r"), "\n")
	if v := strings.TrimSpace(lines[0]); v != "0" {
		return nil, fmt.Errorf("unknown version %q", v)
	}
	if len(lines) < 2 {
		return nil, fmt.Errorf("no number of entries")
	}
	n, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	if err != nil || n != len(lines)-2 {
		return nil, fmt.Errorf("%d entries where %q are announced", len(lines)-2, lines[1])
	}
	return lines[2:], nil
}

// formatEpochs is the text of leader-epoch-checkpoint.
func formatEpochs(entries []epochEntry) []byte {
	b := append([]byte("0\n"), strconv.Itoa(len(entries))...)
	b = append(b, '\n')
	for _, e := range entries {
		b = strconv.AppendInt(b, int64(e.epoch), 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, e.start, 10)
		b = append(b, '\n')
	}
	return b
}

// parseEpochs reads such a text. The entries rise in both numbers.
func parseEpochs(data []byte) ([]epochEntry, error) {
	lines, err := checkpointLines(data)
	if err != nil {
		return nil, err
	}
	entries := make([]epochEntry, 0, len(lines))
	for _, line := range lines {
		e, err := epochLine(line)
		if err == nil && (e.epoch < 0 || e.start < 0) {
			err = malformed(line)
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	// As Kafka's cache does when it reads the file: later entries win over conflicting ones.
	var e epochs
	for _, entry := range entries {
		e.assign(entry.epoch, entry.start)
	}
	return e.list, nil
}

// epochLine reads a line of a leader-epoch-checkpoint, whatever the numbers are.
func epochLine(line string) (epochEntry, error) {
	f := strings.Fields(line)
	if len(f) != 2 {
		return epochEntry{}, malformed(line)
	}
	epoch, err1 := strconv.ParseInt(f[0], 10, 32)
	start, err2 := strconv.ParseInt(f[1], 10, 64)
	if err1 != nil || err2 != nil {
		return epochEntry{}, malformed(line)
	}
	return epochEntry{int32(epoch), start}, nil
}
