package compat

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recode decodes a node by its path and encodes it again; nil for paths that ottla does not
// know.
func recode(path string, data []byte) ([]byte, error) {
	part := func(p, prefix string) bool { return strings.HasPrefix(p, prefix+"/") }
	switch {
	case path == PathClusterID:
		n, err := DecodeClusterID(data)
		return n.Encode(), err
	case path == PathController:
		n, err := DecodeController(data)
		return n.Encode(), err
	case path == PathControllerEpoch:
		n, err := DecodeControllerEpoch(data)
		return EncodeControllerEpoch(n), err
	case path == PathFeature:
		n, err := DecodeFeature(data)
		return n.Encode(), err
	case path == PathProducerIDs:
		n, err := DecodeProducerBlock(data)
		return n.Encode(), err
	case part(path, PathBrokerIDs):
		n, err := DecodeBroker(data)
		return n.Encode(), err
	case part(path, PathTopics) && strings.HasSuffix(path, "/state"):
		n, err := DecodeState(data)
		return n.Encode(), err
	case part(path, PathTopics):
		n, err := DecodeTopic(data)
		return n.Encode(), err
	case part(path, PathConfigChanges):
		n, err := DecodeConfigChange(data)
		return n.Encode(), err
	case part(path, PathConfig):
		n, err := DecodeConfig(data)
		return n.Encode(), err
	case path == PathReassign, path == PathPreferredElection, part(path, PathISRChanges):
		n, err := DecodePartitions(data)
		return n.Encode(), err
	case part(path, PathLogDirEvents):
		n, err := DecodeLogDirEvent(data)
		return n.Encode(), err
	}
	return nil, nil
}

// What 3.9.1 wrote is read and written again with the same keys and values, in whatever order.
func TestZnodesGolden(t *testing.T) {
	f, err := os.Open("testdata/znodes.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	known := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		path, data, ok := strings.Cut(s.Text(), "\t")
		if !ok || strings.HasPrefix(path, "#") {
			continue
		}
		out, err := recode(path, []byte(data))
		if err != nil {
			t.Errorf("%s %s: %v", path, data, err)
			continue
		}
		if out == nil {
			continue
		}
		known++
		var want, got any
		if err := errors.Join(json.Unmarshal([]byte(data), &want), json.Unmarshal(out, &got)); err != nil {
			t.Errorf("%s %s: %v", path, out, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-Kafka +ottla):\n%s", path, diff)
		}
	}
	if known < 90 {
		t.Errorf("only %d nodes were compared", known)
	}
}

func TestZnodesOlder(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       BrokerNode
	}{
		{"version 1", `{"jmx_port":9999,"timestamp":"2233345666","host":"localhost","version":1,"port":9092}`, BrokerNode{
			Endpoints: []Endpoint{{"PLAINTEXT", "PLAINTEXT", "localhost", 9092}}, JMXPort: 9999, Timestamp: 2233345666}},
		{"version 3", `{"version":3,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"1","endpoints":["PLAINTEXT://host1:9092","SSL://[::1]:9093"],"rack":"dc1"}`, BrokerNode{
			Endpoints: []Endpoint{{"PLAINTEXT", "PLAINTEXT", "host1", 9092}, {"SSL", "SSL", "::1", 9093}}, Rack: "dc1", JMXPort: 9999, Timestamp: 1}},
		{"version 5", `{"version":5,"host":null,"port":-1,"jmx_port":-1,"timestamp":"1","endpoints":["A://h:1"],"listener_security_protocol_map":{"A":"SSL"},"features":{"f":{"min_version":1,"max_version":3}}}`, BrokerNode{
			Endpoints: []Endpoint{{"A", "SSL", "h", 1}}, JMXPort: -1, Timestamp: 1, Features: map[string]FeatureRange{"f": {1, 3}}}},
		{"no host", `{"version":5,"host":"","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["A://:9092"],"listener_security_protocol_map":{"A":"PLAINTEXT"},"features":{}}`, BrokerNode{
			Endpoints: []Endpoint{{"A", "PLAINTEXT", "", 9092}}, JMXPort: -1, Timestamp: 1}},
	} {
		got, err := DecodeBroker([]byte(c.data))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		again, err := DecodeBroker(got.Encode())
		if err != nil || !cmp.Equal(again, got) {
			t.Errorf("%s came back as %+v, %v", c.name, again, err)
		}
	}
	if n, err := DecodeFeature([]byte(`{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":2}}}`)); err != nil || n.Levels["f"] != 2 {
		t.Errorf("feature version 1: %+v %v", n, err)
	}
	if n, err := DecodeConfigChange([]byte(`"t1"`)); err != nil || n.Entity != "topics/t1" {
		t.Error(n, err)
	}
	if n, err := DecodeConfigChange([]byte(`{"version":1,"entity_type":"clients","entity_name":"c"}`)); err != nil || n.Entity != "clients/c" {
		t.Errorf("config change version 1: %+v %v", n, err)
	}
	if n, err := DecodeTopic([]byte(`{"version":1,"partitions":{"2":[1],"0":[2,1]}}`)); err != nil || !cmp.Equal(n.Partitions, [][]int32{{2, 1}, nil, {1}}) {
		t.Errorf("topic version 1 with a hole: %+v %v", n, err)
	}
}

func TestZnodesMalformed(t *testing.T) {
	for path, bad := range map[string][]string{
		PathClusterID:            {"", "{}", `{"version":"2","id":"x"}`, `{"version":"1"}`},
		PathController:           {"{}", `{"version":2}`, "[]", "null"},
		PathControllerEpoch:      {"", "x", "-1", "99999999999"},
		PathFeature:              {"{}", `{"version":3,"status":1,"features":{}}`, `{"version":2,"status":2,"features":{}}`, `{"version":2,"status":1,"features":{"f":{}}}`},
		PathProducerIDs:          {`{"version":1,"broker":1}`, `{"version":1,"broker":1,"block_start":"5","block_end":"1"}`},
		PathBroker(1):            {"{}", `{"version":0}`, `{"version":1}`, `{"version":4,"endpoints":["x"]}`, `{"version":4,"endpoints":["A://h:70000"],"listener_security_protocol_map":{"A":"SSL"}}`, `{"version":4,"endpoints":["B://h:1"],"listener_security_protocol_map":{}}`},
		PathTopic("t"):           {"", `{"version":3,"partitions":{"x":[1]}}`, `{"version":3,"partitions":{"2000000000":[1]}}`, `{"version":3,"topic_id":"short","partitions":{}}`, `{"version":4,"partitions":{}}`},
		PathState("t", 0):        {"", `{"version":1}`, `{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1}`, `{"controller_epoch":1,"leader":3,"version":1,"leader_epoch":0,"isr":[3,1]} x`},
		PathConfigChanges + "/c": {"{}", `{"version":2,"entity_path":"topics"}`, `""`, `"t`},
		PathConfig + "/topics/t": {"{}", `{"version":2,"config":{}}`, `{"version":1}`},
		PathLogDirEvents + "/x":  {"{}", `{"version":1}`},
	} {
		for _, data := range bad {
			if _, err := recode(path, []byte(data)); !errors.Is(err, ErrZnode) {
				t.Errorf("%s %q: %v", path, data, err)
			}
		}
	}
}

func TestSanitize(t *testing.T) {
	for name, want := range map[string]string{
		"plain-name_1.x": "plain-name_1.x", "a b": "a%20b", "CN=x, O=é*": "CN%3Dx%2C%20O%3D%C3%A9%2A", "": "", "a%2": "a%252",
	} {
		if got := Sanitize(name); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
		if got := Desanitize(want); got != name {
			t.Errorf("%q came back as %q", name, got)
		}
	}
	if got := Desanitize("a+b%zz%"); got != "a b%zz%" {
		t.Errorf("got %q", got)
	}
}

// No data may make a decoder panic or allocate without bound, and what it takes it writes so
// that it reads the same.
func FuzzZnodes(f *testing.F) {
	paths := []string{
		PathClusterID, PathController, PathControllerEpoch, PathFeature, PathProducerIDs, PathBroker(1), PathTopic("t"),
		PathState("t", 0), PathConfigChanges + "/c", PathConfig + "/topics/t", PathLogDirEvents + "/x", PathReassign,
	}
	for i, path := range paths {
		f.Add(byte(i), []byte(`{"version":1,"config":{"a":"b"}}`))
		f.Add(byte(i), []byte(`{"controller_epoch":1,"leader":3,"version":1,"leader_epoch":0,"isr":[3,1]}`))
		f.Add(byte(i), []byte(`{"partitions":{"0":[2,1,3]},"topic_id":"pzHIfHnxQpG3WGurB9f0Gg","adding_replicas":{"0":[2]},"removing_replicas":{"0":[3]},"version":3}`))
		_ = path
	}
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		path := paths[int(which)%len(paths)]
		once, err := recode(path, data)
		if err != nil {
			return
		}
		twice, err := recode(path, once)
		if err != nil || string(twice) != string(once) {
			t.Errorf("%s %q: %q and then %q, %v", path, data, once, twice, err)
		}
		if n, ok := quickState(data); ok {
			var w stateWire
			if err := json.Unmarshal(data, &w); err != nil || w.Leader == nil || !cmp.Equal(n, StateNode{w.ControllerEpoch, *w.Leader, w.LeaderEpoch, w.ISR, w.Recovery}) {
				t.Errorf("%q: quick %+v, JSON %+v %v", data, n, w, err)
			}
		}
	})
}

func BenchmarkDecodeState(b *testing.B) {
	data := StateNode{1, 3, 0, []int32{3, 1}, 0}.Encode()
	for b.Loop() {
		if _, err := DecodeState(data); err != nil {
			b.Fatal(err)
		}
	}
}
