package integration

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"ottla/protocol/record"
)

// oldRecord is what the dump tool printed of a record.
type oldRecord struct {
	offset, at int64
	key, value string // NULL for null
}

// oldRecords are the records of the fixture with old formats, by topic.
func oldRecords(t *testing.T) map[string][]oldRecord {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(foreignDirs, oldFormats, "expected-records.txt"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) .*?(?: key: (\S+))?(?: payload: (\S+))?$`)
	all, topic := map[string][]oldRecord{}, ""
	for l := range strings.Lines(string(data)) {
		l = strings.TrimSuffix(l, "\n")
		if name, ok := strings.CutPrefix(l, "Dumping "); ok {
			topic = name[:strings.Index(name, "-0/")]
		}
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		r := oldRecord{key: "NULL", value: "NULL"}
		r.offset, _ = strconv.ParseInt(m[1], 10, 64)
		r.at, _ = strconv.ParseInt(m[2], 10, 64)
		if m[3] != "-1" {
			r.key = m[5]
		}
		if m[4] != "-1" {
			r.value = m[6]
		}
		all[topic] = append(all[topic], r)
	}
	if len(all["fmt-v0"]) != 16 || len(all["fmt-v1"]) != 16 || len(all["fmt-v2"]) != 16 {
		t.Fatalf("%d, %d, %d records", len(all["fmt-v0"]), len(all["fmt-v1"]), len(all["fmt-v2"]))
	}
	return all
}

// oldDirs are the directories that hold messages of formats 0 and 1: as 3.9.1 left one, and as
// brokers of before leader epochs, topic ids and time indexes did: 0.8.2 to 0.10.0 with only an id
// in meta.properties, and 0.8.0 with no such file.
func oldDirs(t *testing.T, run func(t *testing.T, dir string)) {
	for name, meta := range map[string]*string{"3.9.1": nil, "0.9": kmsg.StringPtr("#\n#Mon Nov 30 15:44:22 UTC 2026\nversion=0\nbroker.id=3\n"), "0.8.0": kmsg.StringPtr("")} {
		t.Run(name, func(t *testing.T) {
			dir := foreign(t, oldFormats)
			if meta != nil {
				bare(t, dir, *meta)
				gone := []string{"fmt-v2-0"} // there was no such format
				if *meta == "" {
					gone = append(gone, "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint") // 0.8.1 has them
				}
				for _, name := range gone {
					if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
						t.Fatal(err)
					}
				}
			}
			run(t, dir)
		})
	}
}

// TestForeignOldFormats reads messages of formats 0 and 1 as clients of every age, and goes on
// writing behind them.
func TestForeignOldFormats(t *testing.T) {
	expected := oldRecords(t)
	oldDirs(t, func(t *testing.T, dir string) {
		logs := map[string][]byte{}
		for _, topic := range []string{"fmt-v0", "fmt-v1"} {
			b, err := os.ReadFile(filepath.Join(dir, topic+"-0", "00000000000000000000.log"))
			if err != nil {
				t.Fatal(err)
			}
			logs[topic] = b
		}
		b := StartWith(t, Options{Dir: dir})
		if !strings.Contains(b.Log(), "withOldFormats=2") {
			t.Error("not said what was found")
		}
		check := func(topic string, more ...oldRecord) {
			t.Helper()
			want := append(slices.Clone(expected[topic]), more...)
			var lines []string
			for _, r := range want {
				lines = append(lines, fmt.Sprintf("%s\t0\t%d\t%d\t%s\t%s\t", topic, r.offset, r.at, r.key, r.value))
			}
			from := int64(0)
			if topic == "fmt-v0" {
				// Kafka's lz4 of format 0 has a wrong checksum in its header (KIP-57), which clients in Go refuse;
				// those before it come, and with them the error.
				from, lines = 16, lines[16:]
			}
			for name, v := range map[string]*kversion.Versions{"newest": nil, "0.11": kversion.V0_11_0(), "0.10": kversion.V0_10_2()} {
				if len(lines) > 0 {
					compare(t, topic+" by a client of "+name, consumedFrom(t, b.Addr(), from, len(lines), v, topic), lines)
				}
			}
		}
		for topic := range logs {
			check(topic)
		}

		// A broker sends what it has to those who can read it: byte by byte, and down to Fetch v0.
		w := dialWire(t, b.Addr())
		for topic, file := range logs {
			for version := int16(0); version <= 12; version++ {
				req := fetchOf(topic, [16]byte{}, 0)
				p := ask[*kmsg.FetchResponse](w, req, version).Topics[0].Partitions[0]
				if p.ErrorCode != 0 || p.HighWatermark != 16 {
					t.Fatalf("%s, Fetch v%d: %d, high watermark %d", topic, version, p.ErrorCode, p.HighWatermark)
				}
				if topic == "fmt-v0" || version >= 2 {
					if string(p.RecordBatches) != string(file) {
						t.Errorf("%s, Fetch v%d: %d bytes, the file has %d", topic, version, len(p.RecordBatches), len(file))
					}
				}
				var got []oldRecord
				for e := range record.All(p.RecordBatches) {
					if e.Magic() > 0 && version < 2 || e.ComputeCRC() != e.CRC() {
						t.Errorf("%s, Fetch v%d: entry of format %d, crc %x, computed %x", topic, version, e.Magic(), e.CRC(), e.ComputeCRC())
					}
					for r, err := range record.Records(e, 0) {
						if err != nil {
							t.Fatal(err)
						}
						o := oldRecord{r.Offset, r.Timestamp, "NULL", "NULL"}
						if r.Key != nil {
							o.key = string(r.Key)
						}
						if r.Value != nil {
							o.value = string(r.Value)
						}
						got = append(got, o)
					}
				}
				want := slices.Clone(expected[topic])
				if version < 2 {
					for i := range want {
						want[i].at = -1
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, Fetch v%d:\ngot  %v\nwant %v", topic, version, got, want)
				}
			}
		}

		// Offsets by time: of format 1 they are found, inside of compressed messages too; format 0 has none.
		for at, want := range map[int64]spot{
			1700000000000: {0, 0, 1700000000000}, 1700000000001: {0, 1, 1700000001000}, 1700000002500: {0, 3, 1700000003000}, 1700000003001: {0, -1, -1},
		} {
			equal(t, fmt.Sprint("fmt-v1 at ", at), w.list("fmt-v1", at, 0, 7), want)
		}
		equal(t, "fmt-v0 by time", w.list("fmt-v0", 1, 0, 7), spot{0, -1, -1})
		equal(t, "first offset", w.start("fmt-v0"), 0)

		// What is written now is of format 2, whoever writes it, and follows.
		for topic := range logs {
			w.stored(topic, newBatch(nil, sample{key: []byte("new"), value: []byte("two"), at: 1800000000000}))
			old := kmsg.MessageV1{Magic: 1, Timestamp: 1800000000001, Key: []byte("old"), Value: []byte("one")}
			raw := old.AppendTo(nil)
			binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
			binary.BigEndian.PutUint32(raw[12:], crc32.ChecksumIEEE(raw[16:]))
			req := produceOf(topic, 0, raw)
			if p := ask[*kmsg.ProduceResponse](w, req, 2).Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != 17 {
				t.Errorf("%s: an old message at %d, code %d", topic, p.BaseOffset, p.ErrorCode)
			}
			check(topic, oldRecord{16, 1800000000000, "new", "two"}, oldRecord{17, 1800000000001, "old", "one"})
			now, err := os.ReadFile(filepath.Join(dir, topic+"-0", "00000000000000000000.log"))
			if err != nil || !strings.HasPrefix(string(now), string(logs[topic])) {
				t.Errorf("%s: the old messages are not what they were, %v", topic, err)
			}
			for e := range record.All(now[len(logs[topic]):]) {
				if e.Magic() != 2 {
					t.Errorf("%s: written in format %d", topic, e.Magic())
				}
			}
		}
		b.Restart()
		for topic := range logs {
			check(topic, oldRecord{16, 1800000000000, "new", "two"}, oldRecord{17, 1800000000001, "old", "one"})
			if _, err := os.Stat(filepath.Join(dir, topic+"-0", "partition.metadata")); err != nil {
				t.Error(err)
			}
		}
	})
}
