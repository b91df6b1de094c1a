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
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("malformed line %q", line)
		}
		p, err := strconv.ParseInt(f[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("malformed line %q", line)
		}
		offset, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("malformed line %q", line)
		}
		offsets[key{f[0], int32(p)}] = offset
	}
	return offsets, nil
}

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
		f := strings.Fields(line)
		if len(f) != 2 {
			return nil, fmt.Errorf("malformed line %q", line)
		}
		epoch, err := strconv.ParseInt(f[0], 10, 32)
		if err != nil || epoch < 0 {
			return nil, fmt.Errorf("malformed line %q", line)
		}
		start, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || start < 0 {
			return nil, fmt.Errorf("malformed line %q", line)
		}
		entries = append(entries, epochEntry{int32(epoch), start})
	}
	// As Kafka's cache does when it reads the file: later entries win over conflicting ones.
	var e epochs
	for _, entry := range entries {
		e.assign(entry.epoch, entry.start)
	}
	return e.list, nil
}
