package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// logs are the segments in testdata/logs, by the name that the dump tool calls them.
func logs(t testing.TB, release string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "logs", release, "*", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatal("no logs of", release, err)
	}
	all := map[string][]byte{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(filepath.Dir(f))+"/"+filepath.Base(f)] = b
	}
	return all
}

// TestDump reads logs that Kafka wrote and compares with what Kafka's dump tool says of them.
func TestDump(t *testing.T) {
	for _, release := range []string{"4.4.0", "3.9.1-old-formats"} {
		t.Run(release, func(t *testing.T) {
			expected, err := os.ReadFile(filepath.Join("testdata", "logs", release, "expected-records.txt"))
			if err != nil {
				t.Fatal(err)
			}
			all := logs(t, release)
			for _, section := range strings.Split(string(expected), "Dumping ")[1:] {
				name, want, _ := strings.Cut(section, "\n")
				_, want, _ = strings.Cut(want, "\n") // Log starting offset
				log, ok := all[name]
				if !ok {
					t.Errorf("%s: no such file", name)
					continue
				}
				got, wantLines := strings.Split(dump(t, log), "\n"), strings.Split(want, "\n")
				for i, line := range wantLines {
					if i >= len(got) || got[i] != line {
						t.Errorf("%s, line %d:\ngot  %q\nwant %q", name, i, append(got, "")[min(i, len(got))], line)
						break
					}
				}
				if len(got) != len(wantLines) {
					t.Errorf("%s: %d lines, want %d", name, len(got), len(wantLines))
				}
			}
		})
	}
}

// dump writes what kafka-dump-log --deep-iteration --print-data-log does.
func dump(t *testing.T, log []byte) string {
	var out strings.Builder
	s := NewScanner(bytes.NewReader(log), 0, int64(len(log)), true)
	for s.Next() {
		b, err := s.Entry(nil)
		if err != nil {
			t.Fatal(err)
		}
		kind := fmt.Sprintf("%s: %d", timeType(b), b.MaxTimestamp())
		tail := fmt.Sprintf("position: %d %s size: %d magic: %d compresscodec: %s crc: %d isvalid: %v\n",
			s.Position(), kind, s.Size(), b.Magic(), b.Codec(), b.CRC(), b.CRC() == b.ComputeCRC())
		if b.Magic() >= 2 {
			horizon := "OptionalLong.empty"
			if b.HasDeleteHorizon() {
				horizon = fmt.Sprintf("OptionalLong[%d]", b.BaseTimestamp())
			}
			fmt.Fprintf(&out, "baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d "+
				"partitionLeaderEpoch: %d isTransactional: %v isControl: %v deleteHorizonMs: %s %s",
				b.BaseOffset(), b.LastOffset(), b.Count(), b.BaseSequence(), b.LastSequence(), b.ProducerID(), b.ProducerEpoch(),
				b.LeaderEpoch(), b.IsTransactional(), b.IsControl(), horizon, tail)
		} else {
			fmt.Fprintf(&out, "offset: %d %s", b.LastOffset(), tail)
		}
		crcs := messageCRCs(t, b)
		for r, err := range Records(b, 0) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "| offset: %d %s: %d keySize: %d valueSize: %d", r.Offset, timeType(b), r.Timestamp, size(r.Key), size(r.Value))
			if b.Magic() >= 2 {
				var names []string
				for _, h := range r.Headers {
					names = append(names, h.Key)
				}
				sequence := int32(-1)
				if b.BaseSequence() >= 0 {
					sequence = AddSequence(b.BaseSequence(), int32(r.Offset-b.BaseOffset()))
				}
				fmt.Fprintf(&out, " sequence: %d headerKeys: [%s]", sequence, strings.Join(names, ","))
			} else {
				fmt.Fprintf(&out, " isValid: true crc: %d}", crcs[0])
				crcs = crcs[1:]
			}
			if b.IsControl() {
				m, ok, err := ParseEndMarker(r)
				if err != nil || !ok {
					t.Fatal(m, ok, err)
				}
				fmt.Fprintf(&out, " endTxnMarker: %s coordinatorEpoch: %d\n", map[bool]string{true: "COMMIT", false: "ABORT"}[m.Commit], m.CoordinatorEpoch)
				continue
			}
			if r.Key != nil {
				fmt.Fprintf(&out, " key: %s", r.Key)
			}
			if r.Value != nil {
				fmt.Fprintf(&out, " payload: %s", r.Value)
			}
			out.WriteByte('\n')
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func messageCRCs(t *testing.T, b Batch) (sums []uint32) {
	if b.Magic() >= 2 {
		return nil
	}
	err := eachMessage(b, 0, true, func(inner Batch, _ message) error {
		sums = append(sums, inner.CRC())
		return checkCRC(inner)
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

func timeType(b Batch) string {
	switch {
	case b.Magic() == 0:
		return "NoTimestampType"
	case b.LogAppendTime():
		return "LogAppendTime"
	}
	return "CreateTime"
}

func size(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

// era is one line of testdata/message-sets.jsonl.
type era struct {
	Era, In, Codec string
	Version        int16
	Magic          int8
	Hex            string
	Decoded        []struct {
		Offset, BaseOffset int64
		BaseTimestamp      int64
		Timestamp          *int64
		Key, Value         *string
		Codec              string
		Control            bool
		Inner              []eraMessage
		Records            []eraMessage
		More               int
	}
}

type eraMessage struct {
	Offset, OffsetDelta, TimestampDelta int64
	Timestamp                           *int64
	Key, Value                          *string
	More                                int
}

func (e era) name() string { return fmt.Sprintf("%s %s %s", e.Era, e.In, e.Codec) }

// sample are the records that the recorder decoded: some of each entry. The offset is -1
// where only the end of a set, which it left out, says what offsets count from.
func (e era) sample() (all []Record) {
	add := func(offset int64, ms *int64, key, value *string) {
		r := Record{Offset: offset, Timestamp: -1}
		if ms != nil {
			r.Timestamp = *ms
		}
		if key != nil {
			r.Key = []byte(*key)
		}
		if value != nil {
			r.Value = []byte(*value)
		}
		all = append(all, r)
	}
	for _, d := range e.Decoded {
		for _, r := range d.Records {
			if d.Control {
				continue // shown in hex; TestDump has some
			}
			if ms := d.BaseTimestamp + r.TimestampDelta; r.More == 0 {
				add(d.BaseOffset+r.OffsetDelta, &ms, r.Key, r.Value)
			}
		}
		for _, m := range d.Inner {
			switch n := len(d.Inner); {
			case m.More > 0:
			case e.Magic == 0:
				add(m.Offset, m.Timestamp, m.Key, m.Value)
			case d.Inner[n-1].More > 0:
				add(-1, m.Timestamp, m.Key, m.Value)
			default:
				add(d.Offset-d.Inner[n-1].Offset+m.Offset, m.Timestamp, m.Key, m.Value)
			}
		}
		if e.Magic < 2 && len(d.Inner) == 0 && d.More == 0 {
			add(d.Offset, d.Timestamp, d.Key, d.Value)
		}
	}
	return all
}

func eras(t testing.TB) (all []era) {
	for _, line := range lines(t, "testdata/message-sets.jsonl") {
		var e era
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}
