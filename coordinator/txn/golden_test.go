package txn

import (
	"bufio"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ottla/coordinator"
	"ottla/protocol/record"
)

// dumped is what kafka-dump-log says of one record.
type dumped struct {
	Offset     int64
	ID         string
	Producer   int64
	Previous   int64
	Next       int64
	Epoch      int16
	Timeout    int32
	State      string
	Partitions []Partition
	Updated    int64
	Started    int64
	Version    int16
}

var (
	newLine = regexp.MustCompile(`^\| offset: (\d+) .* key: (\{.*\}) payload: (\{.*\})$`)
	oldLine = regexp.MustCompile(`^\| offset: (\d+) .* key: transaction_metadata::transactionalId=(\S+) payload: producerId:(\d+),producerEpoch:(\d+),state=(\w+),partitions=\[(.*)\],txnLastUpdateTimestamp=(\d+),txnTimeoutMs=(\d+)$`)
)

// readDump reads both forms in which the tool prints; the older leaves out when a transaction began.
func readDump(t *testing.T, path string) (all []dumped, whole bool) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	num := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	defer func() { // Kafka's sets have no order, ours are sorted
		for _, d := range all {
			slices.SortFunc(d.Partitions, comparePartitions)
		}
	}()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		if m := oldLine.FindStringSubmatch(line); m != nil {
			d := dumped{Offset: num(m[1]), ID: m[2], Producer: num(m[3]), Previous: -1, Next: -1, Epoch: int16(num(m[4])), State: m[5], Updated: num(m[7]), Timeout: int32(num(m[8]))}
			for _, p := range strings.FieldsFunc(m[6], func(r rune) bool { return r == ',' }) {
				i := strings.LastIndexByte(p, '-')
				d.Partitions = append(d.Partitions, Partition{strings.TrimSpace(p[:i]), int32(num(p[i+1:]))})
			}
			all = append(all, d)
			continue
		}
		m := newLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("line not understood: %s", line)
		}
		whole = true
		var key struct {
			Data struct{ TransactionalId string }
		}
		var value struct {
			Data struct {
				ProducerId, PreviousProducerId, NextProducerId *int64
				ProducerEpoch                                  int16
				TransactionTimeoutMs                           int32
				TransactionStatus                              string
				TransactionPartitions                          []struct {
					Topic        string
					PartitionIds []int32
				}
				TransactionLastUpdateTimestampMs, TransactionStartTimestampMs int64
				ClientTransactionVersion                                      int16
			}
		}
		if err := json.Unmarshal([]byte(m[2]), &key); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(m[3]), &value); err != nil {
			t.Fatal(err)
		}
		v := value.Data
		d := dumped{Offset: num(m[1]), ID: key.Data.TransactionalId, Producer: *v.ProducerId, Previous: -1, Next: -1, Epoch: v.ProducerEpoch, Timeout: v.TransactionTimeoutMs,
			State: v.TransactionStatus, Updated: v.TransactionLastUpdateTimestampMs, Started: v.TransactionStartTimestampMs, Version: v.ClientTransactionVersion}
		if v.PreviousProducerId != nil {
			d.Previous = *v.PreviousProducerId
		}
		if v.NextProducerId != nil {
			d.Next = *v.NextProducerId
		}
		for _, p := range v.TransactionPartitions {
			for _, n := range p.PartitionIds {
				d.Partitions = append(d.Partitions, Partition{p.Topic, n})
			}
		}
		all = append(all, d)
	}
	return all, whole
}

func eachRecord(t *testing.T, path string, f func(record.Record)) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for b := range record.All(data) {
		for r, err := range record.Records(b, 0) {
			if err != nil {
				t.Fatal(err)
			}
			f(r)
		}
	}
}

func TestReplayOfKafkasLogs(t *testing.T) {
	for _, name := range []string{"kafka-4.4.0-kraft", "kafka-3.9.1-zk"} {
		t.Run(name, func(t *testing.T) {
			expected, whole := readDump(t, "testdata/"+name+".txt")
			stats := &Stats{}
			m := NewMachine(Defaults, stats)
			var got []dumped
			eachRecord(t, "testdata/"+name+"-1.log", func(r record.Record) {
				m.Replay(coordinator.Logged{Record: coordinator.Record{Key: r.Key, Value: r.Value}, Offset: r.Offset, Time: r.Timestamp, Producer: -1})
				id, _, _ := readKey(r.Key)
				e := m.ids[id]
				d := dumped{r.Offset, id, e.producer, e.previous, e.next, e.epoch, e.timeout, e.state.String(), e.partitions, e.updated, e.started, e.version}
				if !whole {
					d.Started = 0
				}
				got = append(got, d)
				if p := coordinator.PartitionOf(id, 2); p != 1 {
					t.Errorf("%s belongs to partition %d", id, p)
				}
			})
			if d := cmp.Diff(expected, got); d != "" {
				t.Fatal(d)
			}
			want(t, "malformed records", stats.Malformed.Load(), 0)
			if e := m.Start(coordinator.Instant{Wall: startOfTime}); len(e.Outside) > 0 || m.Wake() != coordinator.Never {
				t.Errorf("something is open after a clean stop: %+v", e.Outside)
			}
		})
	}
}

// What Kafka wrote, written anew, must be the same bytes.
func TestRecordsAsKafkaWritesThem(t *testing.T) {
	for name, level := range map[string]int16{"kafka-4.4.0-kraft": 2, "kafka-3.9.1-zk": 0} {
		n := 0
		eachRecord(t, "testdata/"+name+"-1.log", func(r record.Record) {
			id, _, err := readKey(r.Key)
			if err != nil {
				t.Fatal(err)
			}
			is, err := readMeta(r.Value)
			if err != nil {
				t.Fatal(err)
			}
			again := idRecord(id, is, level)
			if k := len(is.partitions); k > 1 && is.partitions[0].Topic != is.partitions[k-1].Topic {
				want(t, "length", len(again.Value), len(r.Value)) // the order of topics is any
				return
			}
			if d := cmp.Diff(coordinator.Record{Key: r.Key, Value: r.Value}, again); d != "" {
				t.Fatalf("%s, record %d: %s", name, r.Offset, d)
			}
			n++
		})
		if n == 0 {
			t.Fatal("no records")
		}
	}
}

// The machine, asked for what the producers of the golden log did, writes Kafka's records.
func TestMachineWritesWhatKafkaWrote(t *testing.T) {
	expected, _ := readDump(t, "testdata/kafka-4.4.0-kraft.txt")
	w := newWorld(t)
	w.ids = 1
	now := map[string]Producer{}
	for _, d := range expected {
		w.now.Wall = d.Updated
		p := now[d.ID]
		var err error
		before := len(w.log)
		switch d.State {
		case "Empty":
			now[d.ID], err = w.tryInit(InitRequest{ID: d.ID, Timeout: d.Timeout})
		case "Ongoing":
			e := w.m.ids[d.ID]
			var fresh []Partition
			for _, at := range d.Partitions {
				if e.state != Ongoing || len(e.partitions) == 0 || e.partitions[0] != at {
					fresh = append(fresh, at)
				}
			}
			err = w.add(d.ID, p, d.Version, fresh...)
		case "PrepareCommit", "PrepareAbort":
			now[d.ID], err = w.end(d.ID, p, d.Version, d.State == "PrepareCommit")
		default:
			for i, e := range w.endings {
				if e.ID == d.ID {
					w.endings = append(w.endings[:i:i], w.endings[i+1:]...)
					w.take(w.m.Completed(w.now, e, &coordinator.Ticket{}))
					break
				}
			}
		}
		want(t, "error", err, nil)
		if len(w.log) != before+1 {
			t.Fatalf("%d records for offset %d", len(w.log)-before, d.Offset)
		}
		is, err := readMeta(w.log[before].Value)
		want(t, "error", err, nil)
		got := dumped{d.Offset, d.ID, is.producer, is.previous, is.next, is.epoch, is.timeout, is.state.String(), is.partitions, is.updated, is.started, is.version}
		if diff := cmp.Diff(d, got); diff != "" {
			t.Fatalf("offset %d: %s", d.Offset, diff)
		}
	}
}

func FuzzReplay(f *testing.F) {
	for _, name := range []string{"kafka-4.4.0-kraft", "kafka-3.9.1-zk"} {
		data, err := os.ReadFile("testdata/" + name + "-1.log")
		if err != nil {
			f.Fatal(err)
		}
		for b := range record.All(data) {
			for r := range record.Records(b, 0) {
				f.Add(r.Key, r.Value)
			}
		}
	}
	f.Add([]byte{0, 0, 0, 1, 'a'}, []byte(nil))
	f.Add([]byte{0, 1}, []byte{9, 9})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m := NewMachine(Defaults, nil)
		m.Replay(coordinator.Logged{Record: coordinator.Record{Key: key, Value: value}})
		e := m.Start(coordinator.Instant{Wall: startOfTime})
		for _, is := range m.ids {
			again := NewMachine(Defaults, nil)
			r := idRecord(is.id, is.meta, 2)
			again.Replay(coordinator.Logged{Record: r})
			if d := cmp.Diff(is.meta, again.ids[is.id].meta, cmp.AllowUnexported(meta{})); d != "" {
				t.Fatal(d)
			}
		}
		for range 3 { // whatever was read, time may pass
			if m.Wake() == coordinator.Never {
				break
			}
			e = m.Tick(coordinator.Instant{Mono: m.Wake(), Wall: startOfTime})
			if e.Then != nil {
				e.Then(coordinator.Commit{Now: coordinator.Instant{Wall: startOfTime}})
			}
		}
		m.Stop()
	})
}
