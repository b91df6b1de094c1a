package schema

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ottla/protocol/record"
)

// spelled is a record as the dump tool spells it: what comes behind the offsets and sizes.
func spelled(t *testing.T, topic string, b record.Batch, r record.Record) string {
	t.Helper()
	var k, v Message
	var err error
	switch {
	case b.IsControl():
		if v, err = Control(r.Key, r.Value); err != nil {
			t.Errorf("%s at %d: %v", topic, r.Offset, err)
		}
		switch v.Type {
		case 0, 1:
			word := [...]string{"ABORT", "COMMIT"}[v.Type]
			return "endTxnMarker: " + word + " coordinatorEpoch: " + string((&printer{}).value(nil, v.Fields.Get("coordinatorEpoch")))
		case 2:
			return "LeaderChange: " + string(v.AppendJSON(nil))
		case 3:
			return "SnapshotHeader " + string(v.AppendJSON(nil))
		}
		return "SnapshotFooter " + string(v.AppendJSON(nil))
	case topic == "__cluster_metadata":
		v, err = Metadata(r.Value)
	case topic == "__consumer_offsets":
		k, v, err = Offsets(r.Key, r.Value)
	default:
		k, v, err = Transactions(r.Key, r.Value)
	}
	if err != nil {
		t.Errorf("%s at %d: %v", topic, r.Offset, err)
	}
	switch {
	case topic == "__cluster_metadata":
		return "payload: " + string(v.AppendJSON(nil))
	case r.Value == nil:
		return "key: " + string(k.AppendJSON(nil)) + " payload: <DELETE>"
	}
	return "key: " + string(k.AppendJSON(nil)) + " payload: " + string(v.AppendJSON(nil))
}

// TestDump reads what real Kafka wrote and compares with what its dump tool prints of that.
func TestDump(t *testing.T) {
	line := regexp.MustCompile(`^\| offset: .* headerKeys: \[\] (.*)$`)
	for _, c := range []struct{ dir, file string }{
		{"4.4.0-kraft", "expected-cluster-metadata.txt"},
		{"4.4.0-kraft", "expected-consumer-offsets.txt"},
		{"4.4.0-kraft", "expected-transaction-state.txt"},
		{"3.9.1-zk", "expected-consumer-offsets.txt"},
		{"3.9.1-zk", "expected-transaction-state.txt"},
	} {
		t.Run(c.dir+"/"+c.file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", c.dir, c.file))
			if err != nil {
				t.Fatal(err)
			}
			for _, section := range strings.Split(string(text), "Dumping ")[1:] {
				name, rest, _ := strings.Cut(section, "\n")
				var want []string
				for _, l := range strings.Split(rest, "\n") {
					if m := line.FindStringSubmatch(l); m != nil {
						want = append(want, m[1])
					}
				}
				data, err := os.ReadFile(filepath.Join("testdata", c.dir, name))
				if err != nil {
					t.Fatal(err)
				}
				topic := name[:strings.LastIndexByte(filepath.Dir(name), '-')]
				i := 0
				for b := range record.All(data) {
					for r, err := range record.Records(b, 0) {
						if err != nil {
							t.Fatal(err)
						}
						got := spelled(t, topic, b, r)
						switch {
						case i >= len(want):
							t.Fatalf("%s: more records than lines", name)
						case c.dir == "3.9.1-zk" && topic == "__transaction_state":
							// 3.9.1 printed it otherwise; its values are compared where 4.4 has them in JSON
							if strings.Contains(want[i], "state=") {
								_, state, _ := strings.Cut(want[i], "state=")
								state, _, _ = strings.Cut(state, ",")
								if !strings.Contains(got, `"transactionStatus":"`+state+`"`) {
									t.Errorf("%s:\ngot  %s\nwant %s", name, got, want[i])
								}
							}
						case got != want[i]:
							t.Errorf("%s:\ngot  %s\nwant %s", name, got, want[i])
						}
						i++
					}
				}
				if i != len(want) {
					t.Errorf("%s: %d records, want %d", name, i, len(want))
				}
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		value []byte
		want  error
	}{
		{"nothing", nil, ErrMalformed},
		{"frame of another version", []byte{2, 2, 0}, ErrVersion},
		{"a type that is not known", []byte{1, 0x7f, 0, 0}, ErrUnknownType},
		{"a version that is not known", []byte{1, 2, 9, 0}, ErrVersion},
		{"a string longer than the record", []byte{1, 2, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}, ErrMalformed},
		{"null where there is none", []byte{1, 2, 0, 0, 0}, ErrMalformed},
		{"bytes behind it", []byte{1, 20, 0, 0, 0}, ErrMalformed},
	} {
		if _, err := Metadata(c.value); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if _, _, err := Offsets([]byte{0, 99, 0}, nil); !errors.Is(err, ErrUnknownType) {
		t.Errorf("key of a newer Kafka: %v", err)
	}
	if m, err := Metadata([]byte{1, 20, 0, 1, 9, 1, 7}); err != nil || len(m.Fields) != 0 { // NoOpRecord, tag 9
		t.Errorf("unknown tag: %v, %v", m, err)
	}
}

// TestTags holds the order of fields and the defaults that are left out.
func TestTags(t *testing.T) {
	value := append([]byte{1, 5, 0, 0, 0, 0, 7}, make([]byte, 16)...) // PartitionChangeRecord of partition 7
	value = append(value, 3,                                          // tags
		0, 1, 0, // isr: null, its default
		1, 4, 0, 0, 0, 2, // leader 2
		2, 5, 2, 0, 0, 0, 3) // replicas [3]
	m, err := Metadata(value)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"PARTITION_CHANGE_RECORD","version":0,"data":{"partitionId":7,"topicId":"AAAAAAAAAAAAAAAAAAAAAA","leader":2,"replicas":[3]}}`
	if got := string(m.AppendJSON(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if As[int32](m.Fields, "leader") != 2 || m.Fields.Has("isr") || As[string](m.Fields, "leader") != "" {
		t.Errorf("%v", m.Fields)
	}
}

func TestJavaNumbersAndStrings(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 50: "50.0", 1048576: "1048576.0", 5000000: "5000000.0", 1e7: "1.0E7", 12345678.5: "1.23456785E7",
		0.001: "0.001", 0.0005: "5.0E-4", -2.5: "-2.5", -1e9: "-1.0E9",
	} {
		if got := string(AppendDouble(nil, v)); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	if got := string(appendString(nil, "a\"\\\n\x01\x1fé\xff/")); got != `"a\"\\\n\u0001\u001Fé`+"\ufffd"+`/"` {
		t.Error(got)
	}
}

func fuzz(f *testing.F, dir string, read func(key, value []byte) []Message) {
	files, err := filepath.Glob(filepath.Join("testdata", "*", dir, "*"))
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for b := range record.All(data) {
			for r, err := range record.Records(b, 0) {
				if err == nil {
					f.Add(r.Key, r.Value)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		for _, m := range read(key, value) {
			m.AppendJSON(nil)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	fuzz(f, "__cluster_metadata-*", func(key, value []byte) []Message {
		m, _ := Metadata(value)
		c, _ := Control(key, value)
		return []Message{m, c}
	})
}

func FuzzOffsets(f *testing.F) {
	fuzz(f, "__consumer_offsets-*", func(key, value []byte) []Message {
		k, v, _ := Offsets(key, value)
		s, u, _ := Share(key, value)
		return []Message{k, v, s, u}
	})
}

func FuzzTransactions(f *testing.F) {
	fuzz(f, "__transaction_state-*", func(key, value []byte) []Message {
		k, v, _ := Transactions(key, value)
		return []Message{k, v}
	})
}
