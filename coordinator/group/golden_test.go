package group

import (
	"bufio"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ottla/coordinator"
	"ottla/protocol/record"
)

// dumped is what kafka-dump-log says of the logs in testdata: the state that its records add
// up to, worked out here without the machine.
type dumped struct {
	Offsets map[string]map[string]map[int32]string // group, topic, partition: offset and metadata
	Groups  map[string]dumpedGroup
}

type dumpedGroup struct {
	Generation int32
	Protocol   string
	Type       string
	Members    int
}

var dumpLine = regexp.MustCompile(`key: (\{.*\}) payload: (.*)$`)

func readDump(t *testing.T, path string) dumped {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := dumped{map[string]map[string]map[int32]string{}, map[string]dumpedGroup{}}
	set := func(group, topic string, partition int32, v *string) {
		if d.Offsets[group] == nil {
			d.Offsets[group] = map[string]map[int32]string{}
		}
		if d.Offsets[group][topic] == nil {
			d.Offsets[group][topic] = map[int32]string{}
		}
		if v == nil {
			delete(d.Offsets[group][topic], partition)
		} else {
			d.Offsets[group][topic][partition] = *v
		}
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// The one transaction in these logs is committed, so its record counts like the others.
		if strings.Contains(lines.Text(), "endTxnMarker: ABORT") {
			t.Fatal("the dump has an aborted transaction")
		}
		m := dumpLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		var key struct {
			Type string
			Data struct {
				Group, Topic string
				Partition    int32
			}
		}
		if err := json.Unmarshal([]byte(m[1]), &key); err != nil {
			t.Fatal(err)
		}
		var value struct {
			Data struct {
				Offset       json.Number
				Metadata     string
				Generation   int32
				Protocol     string
				ProtocolType string
				Members      []any
			}
		}
		deleted := m[2] == "<DELETE>"
		if !deleted {
			if err := json.Unmarshal([]byte(m[2]), &value); err != nil {
				t.Fatal(err)
			}
		}
		switch key.Type {
		case "1":
			if deleted {
				set(key.Data.Group, key.Data.Topic, key.Data.Partition, nil)
				continue
			}
			v := value.Data.Offset.String() + " " + value.Data.Metadata
			set(key.Data.Group, key.Data.Topic, key.Data.Partition, &v)
		case "2":
			if deleted {
				delete(d.Groups, key.Data.Group)
				continue
			}
			d.Groups[key.Data.Group] = dumpedGroup{value.Data.Generation, value.Data.Protocol, value.Data.ProtocolType, len(value.Data.Members)}
		}
	}
	if len(d.Offsets) == 0 {
		t.Fatal("no offsets in the dump")
	}
	return d
}

// replayLog feeds a machine with a log file, and calls each for its records.
func replayLog(t *testing.T, m *Machine, path string, each func(record.Record)) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for b := range record.All(data) {
		producer := int64(-1)
		if b.IsTransactional() {
			producer = b.ProducerID()
		}
		for r, err := range record.Records(b, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if b.IsControl() {
				end, _, err := record.ParseEndMarker(r)
				if err != nil {
					t.Fatal(err)
				}
				m.ReplayMarker(b.ProducerID(), end.Commit)
				continue
			}
			m.Replay(coordinator.Logged{Record: coordinator.Record{Key: r.Key, Value: r.Value}, Offset: r.Offset, Time: r.Timestamp, Producer: producer})
			each(r)
		}
	}
}

func TestReplayOfKafkasLogs(t *testing.T) {
	for _, name := range []string{"kafka-4.4.0-kraft", "kafka-3.9.1-zk"} {
		t.Run(name, func(t *testing.T) {
			expected := readDump(t, "testdata/"+name+".txt")
			got := dumped{map[string]map[string]map[int32]string{}, map[string]dumpedGroup{}}
			for _, partition := range []string{"0", "1"} {
				stats := &Stats{}
				m := NewMachine(Defaults, stats)
				replayLog(t, m, "testdata/"+name+"-"+partition+".log", func(record.Record) {})
				want(t, "malformed records", stats.Malformed.Load(), 0)
				for id, g := range m.groups {
					if PartitionOf(id, 2) != int32(partition[0]-'0') {
						t.Errorf("group %s is in partition %s", id, partition)
					}
					if g.since >= 0 {
						e := dumpedGroup{Generation: g.generation, Type: g.protocolType, Members: len(g.order)}
						if g.protocol != nil {
							e.Protocol = *g.protocol
						}
						got.Groups[id] = e
					}
					got.Offsets[id] = map[string]map[int32]string{}
					for topic, offsets := range g.offsets {
						got.Offsets[id][topic] = map[int32]string{}
						for p, o := range offsets {
							got.Offsets[id][topic][p] = json.Number(itoa(o.at)).String() + " " + o.metadata
						}
					}
				}
			}
			if d := cmp.Diff(expected, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func itoa(n int64) string { b, _ := json.Marshal(n); return string(b) }

// What 4.4 wrote, written anew, must be the same bytes.
func TestRecordsAsKafkaWritesThem(t *testing.T) {
	for _, partition := range []string{"0", "1"} {
		m := NewMachine(Defaults, nil)
		n := 0
		replayLog(t, m, "testdata/kafka-4.4.0-kraft-"+partition+".log", func(r record.Record) {
			id, p, isOffset, known, err := readKey(r.Key)
			if !known || err != nil {
				return
			}
			var again coordinator.Record
			switch {
			case isOffset && r.Value == nil:
				again = offsetTombstone(p)
			case isOffset:
				o, err := readOffset(r.Value)
				if err != nil {
					t.Fatal(err)
				}
				again = offsetRecord(p, o)
			default:
				again = groupRecord(m.groups[id], func(mb *member) []byte { return mb.assignment })
			}
			if d := cmp.Diff(coordinator.Record{Key: r.Key, Value: r.Value}, again); d != "" {
				t.Fatalf("record %d: %s", r.Offset, d)
			}
			n++
		})
		if n == 0 {
			t.Fatal("no records")
		}
	}
}
