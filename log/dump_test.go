package log

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ottla/protocol/record"
)

// compareDump writes what Kafka's dump tool writes of each segment.
func compareDump(t *testing.T, m *Manager, dir string) {
	t.Helper()
	for _, file := range []string{"expected-batches.txt", "expected-records.txt"} {
		want, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		for head := range strings.Lines(string(want)) {
			name, ok := strings.CutPrefix(strings.TrimSpace(head), "Dumping ")
			if !ok {
				continue
			}
			topic, partition, _ := parseDirName(filepath.Dir(name))
			base, _, _ := parseOffsetName(filepath.Base(name))
			l := m.Log(topic, partition)
			if l == nil {
				t.Fatalf("no log for %s", name)
			}
			fmt.Fprintf(&got, "Dumping %s\nLog starting offset: %d\n", name, base)
			dumpSegment(t, &got, l, base, file == "expected-records.txt")
		}
		g, w := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Fatalf("%s, line %d:\n got %s\nwant %s", file, i+1, g[i], w[i])
			}
		}
		if len(g) != len(w) {
			t.Fatalf("%s: %d lines, want %d", file, len(g), len(w))
		}
	}
}

func dumpSegment(t *testing.T, w *bytes.Buffer, l *Log, base int64, records bool) {
	t.Helper()
	list := l.segments()
	s := list[floor(list, base)]
	if s.base != base {
		t.Fatalf("%s has no segment %d", l, base)
	}
	c, err := s.read(base, 1<<60, 1<<60, 1<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	if c.Range == nil {
		return
	}
	defer c.Range.Release()
	data := make([]byte, c.Range.Len())
	if _, err := c.Range.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	pos := 0
	for b := range record.All(data) {
		dumpBatch(w, b, pos)
		pos += len(b)
		if records {
			dumpRecords(t, w, b)
		}
	}
}

func timeType(b record.Batch) string {
	switch {
	case b.Magic() == 0:
		return "NoTimestampType"
	case b.LogAppendTime():
		return "LogAppendTime"
	}
	return "CreateTime"
}

func dumpBatch(w *bytes.Buffer, b record.Batch, pos int) {
	if b.Magic() >= 2 {
		horizon := "OptionalLong.empty"
		if b.HasDeleteHorizon() {
			horizon = fmt.Sprintf("OptionalLong[%d]", b.BaseTimestamp())
		}
		fmt.Fprintf(w, "baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d partitionLeaderEpoch: %d isTransactional: %v isControl: %v deleteHorizonMs: %s",
			b.BaseOffset(), b.LastOffset(), b.Count(), b.BaseSequence(), b.LastSequence(), b.ProducerID(), b.ProducerEpoch(), b.LeaderEpoch(), b.IsTransactional(), b.IsControl(), horizon)
	} else {
		fmt.Fprintf(w, "offset: %d", b.LastOffset())
	}
	fmt.Fprintf(w, " position: %d %s: %d size: %d magic: %d compresscodec: %s crc: %d isvalid: %v\n",
		pos, timeType(b), b.MaxTimestamp(), len(b), b.Magic(), b.Codec(), b.CRC(), b.CRC() == b.ComputeCRC())
}

func dumpRecords(t *testing.T, w *bytes.Buffer, b record.Batch) {
	i := int32(0)
	for r, err := range record.Records(b, 0) {
		if err != nil {
			t.Fatal(err)
		}
		size := func(b []byte) int {
			if b == nil {
				return -1
			}
			return len(b)
		}
		fmt.Fprintf(w, "| offset: %d %s: %d keySize: %d valueSize: %d", r.Offset, timeType(b), r.Timestamp, size(r.Key), size(r.Value))
		if b.Magic() >= 2 {
			seq := int32(-1)
			if b.BaseSequence() >= 0 {
				seq = record.AddSequence(b.BaseSequence(), i)
			}
			var names []string
			for _, h := range r.Headers {
				names = append(names, h.Key)
			}
			fmt.Fprintf(w, " sequence: %d headerKeys: [%s]", seq, strings.Join(names, ","))
		} else {
			// The message's own checksum is the record room's to show.
			fmt.Fprintf(w, " isValid: true crc: %d}", innerCRC(b, r))
		}
		if b.IsControl() {
			m, _, err := record.ParseEndMarker(r)
			if err != nil {
				t.Fatal(err)
			}
			kind := map[bool]string{true: "COMMIT", false: "ABORT"}[m.Commit]
			fmt.Fprintf(w, " endTxnMarker: %s coordinatorEpoch: %d", kind, m.CoordinatorEpoch)
		} else {
			if r.Key != nil {
				fmt.Fprintf(w, " key: %s", r.Key)
			}
			if r.Value != nil {
				fmt.Fprintf(w, " payload: %s", r.Value)
			}
		}
		w.WriteByte('\n')
		i++
	}
}

// innerCRC is the checksum of a message of v0 or v1 as it would stand alone.
func innerCRC(b record.Batch, r record.Record) uint32 {
	msg := make([]byte, 16, 64)
	msg = append(msg, byte(b.Magic()), 0)
	if b.Magic() == 1 {
		msg = appendInt64(msg, r.Timestamp)
	}
	for _, part := range [][]byte{r.Key, r.Value} {
		n := uint32(len(part))
		if part == nil {
			n = 1<<32 - 1
		}
		msg = append(msg, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
		msg = append(msg, part...)
	}
	return record.Batch(msg).ComputeCRC()
}

func appendInt64(b []byte, v int64) []byte {
	for shift := 56; shift >= 0; shift -= 8 {
		b = append(b, byte(v>>shift))
	}
	return b
}
