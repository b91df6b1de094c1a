package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ottla/broker/registry"
	"ottla/compat"
	"ottla/log"
	"ottla/log/vfs"
)

const (
	clusterA = "AAAAAAAAQACAAAAAAAAAAA"
	clusterB = "BBBBBBBBQACAAAAAAAAAAA"
)

// sampleTree is a tree with something of every kind.
func sampleTree(t *testing.T, tree registry.Tree, cluster string, topics ...string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := registry.ClusterID(tree, cluster); err != nil {
		t.Fatal(err)
	}
	_, err := registry.Join(tree, 1, compat.BrokerNode{})
	must(err)
	create := func(path string, data any, mode registry.Mode) {
		t.Helper()
		var b []byte
		if data != nil {
			b = fmt.Append([]byte{}, data)
		}
		_, err := tree.Create(path, b, mode)
		must(err)
	}
	create(compat.PathController, `{}`, registry.Ephemeral)
	create(compat.PathControllerEpoch, "7", registry.Persistent)
	create(compat.PathFeature, string(compat.FeatureNode{Enabled: true, Levels: map[string]int16{"transaction.version": 2}}.Encode()), registry.Persistent)
	for i, topic := range topics {
		create(compat.PathTopic(topic), string(compat.TopicNode{ID: [16]byte{byte(i + 1)}, Partitions: [][]int32{{1}, {1}}}.Encode()), registry.Persistent)
		create(compat.PathPartitions(topic), nil, registry.Persistent)
		for p := range int32(2) {
			create(compat.PathPartition(topic, p), nil, registry.Persistent)
			create(compat.PathState(topic, p), string(compat.StateNode{ControllerEpoch: 7, Leader: 1, ISR: []int32{1}}.Encode()), registry.Persistent)
		}
		create(compat.PathEntity("topics", topic), string(compat.ConfigNode{Config: map[string]string{"retention.ms": "5"}}.Encode()), registry.Persistent)
	}
	create("/config/users/alice", `{"version":1,"config":{"producer_byte_rate":"1"}}`, registry.Persistent)
	create("/config/users/"+compat.DefaultEntity, `{"version":1,"config":{}}`, registry.Persistent)
	create("/config/changes/config_change_", `{"version":2,"entity_path":"topics/a"}`, registry.Persistent|registry.Sequence)
	create("/kafka-acl", nil, registry.Persistent)
	create("/kafka-acl/Topic", nil, registry.Persistent)
	create("/kafka-acl/Topic/orders", `{"acls":[],"version":1}`, registry.Persistent)
	create("/kafka-acl-changes", nil, registry.Persistent)
	create("/kafka-acl-changes/acl_changes_", "TOPIC:orders", registry.Persistent|registry.Sequence)
	create("/consumers/old", nil, registry.Persistent)
	create("/consumers/old/offsets", "\xff\x00", registry.Persistent) // no text
	create("/consumers/empty", "", registry.Persistent)
	create("/admin/reassign_partitions", `{"version":1,"partitions":[]}`, registry.Persistent)
	create("/odd", "x", registry.Persistent)
	_, err = tree.Set(compat.PathProducerIDs, compat.ProducerBlockNode{Broker: 1, Start: 5000, End: 5999}.Encode(), registry.AnyVersion)
	must(err)
}

// sampleDir is a data directory with such a tree and a meta.properties.
func sampleDir(t *testing.T, cluster string, version int, topics ...string) string {
	t.Helper()
	dir := t.TempDir()
	tree, err := registry.OpenFile(filepath.Join(dir, registry.FileName))
	if err != nil {
		t.Fatal(err)
	}
	sampleTree(t, tree, cluster, topics...)
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
	writeMeta(t, dir, cluster, version)
	return dir
}

func writeMeta(t *testing.T, dir, cluster string, version int) {
	t.Helper()
	text := fmt.Sprintf("#\nversion=%d\nbroker.id=1\ncluster.id=%s\n", version, cluster)
	if err := os.WriteFile(filepath.Join(dir, "meta.properties"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runRegistry runs the command.
func runRegistry(stdin string, args ...string) (out, said string, err error) {
	cmd := Registry()
	var o, e bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.Execute()
	return o.String(), e.String(), err
}

func mustRegistry(t *testing.T, stdin string, args ...string) (out, said string) {
	t.Helper()
	out, said, err := runRegistry(stdin, args...)
	if err != nil {
		t.Fatalf("registry %v: %v", args, err)
	}
	return out, said
}

func refusedRegistry(t *testing.T, stdin string, want []string, args ...string) {
	t.Helper()
	_, _, err := runRegistry(stdin, args...)
	if err == nil {
		t.Errorf("registry %v: no error, want %q", args, want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("registry %v: %v; want %q in it", args, err, w)
		}
	}
}

const sampleExport = `{"path":"/cluster","mode":"persistent"}
{"path":"/cluster/id","mode":"persistent","data":"{\"version\":\"1\",\"id\":\"AAAAAAAAQACAAAAAAAAAAA\"}"}
{"path":"/config","mode":"persistent"}
{"path":"/config/brokers","mode":"persistent"}
{"path":"/config/clients","mode":"persistent"}
{"path":"/config/ips","mode":"persistent"}
{"path":"/config/topics","mode":"persistent"}
{"path":"/config/topics/a","mode":"persistent","data":"{\"version\":1,\"config\":{\"retention.ms\":\"5\"}}"}
{"path":"/config/users","mode":"persistent"}
{"path":"/config/users/<default>","mode":"persistent","data":"{\"version\":1,\"config\":{}}"}
{"path":"/config/users/alice","mode":"persistent","data":"{\"version\":1,\"config\":{\"producer_byte_rate\":\"1\"}}"}
{"path":"/consumers","mode":"persistent"}
{"path":"/consumers/empty","mode":"persistent","data":""}
{"path":"/consumers/old","mode":"persistent"}
{"path":"/consumers/old/offsets","mode":"persistent","base64":"/wA="}
{"path":"/controller_epoch","mode":"persistent","data":"7"}
{"path":"/feature","mode":"persistent","data":"{\"features\":{\"transaction.version\":{\"max_version_level\":2}},\"version\":2,\"status\":1}"}
{"path":"/kafka-acl","mode":"persistent"}
{"path":"/kafka-acl/Topic","mode":"persistent"}
{"path":"/kafka-acl/Topic/orders","mode":"persistent","data":"{\"acls\":[],\"version\":1}"}
{"path":"/latest_producer_id_block","mode":"persistent","data":"{\"version\":1,\"broker\":1,\"block_start\":\"5000\",\"block_end\":\"5999\"}"}
`

// A tree without feature levels is of a Kafka 3.9: a registry that it comes into keeps its own levels, and a
// new one gets those that a broker begins with.
func TestRegistryWithoutLevels(t *testing.T) {
	out, _ := mustRegistry(t, "", "export", "--data-dir", sampleDir(t, clusterA, 0, "a"))
	const level = `\"transaction.version\":{\"max_version_level\":2}`
	none := strings.Replace(out, level, "", 1)
	if none == out {
		t.Fatal("no level in the file")
	}
	fresh, kept := t.TempDir(), sampleDir(t, clusterA, 0, "a")
	for dir, want := range map[string]bool{fresh: false, kept: true} {
		mustRegistry(t, none, "import", "--data-dir", dir, "--force")
		again, _ := mustRegistry(t, "", "export", "--data-dir", dir)
		if has := strings.Contains(again, level); has != want || strings.Contains(again, compat.PathFeature) != want {
			t.Errorf("level kept: %v, want %v, in\n%s", has, want, again)
		}
	}
}

// What a tree is in a file, and that nothing is lost on the way there and back.
func TestRegistryFile(t *testing.T) {
	dir := sampleDir(t, clusterA, 0, "a")
	out, said := mustRegistry(t, "", "export", "--data-dir", dir)
	topics := `{"path":"/brokers/topics","mode":"persistent"}
{"path":"/brokers/topics/a","mode":"persistent","data":"{\"partitions\":{\"0\":[1],\"1\":[1]},\"topic_id\":\"AQAAAAAAAAAAAAAAAAAAAA\",\"adding_replicas\":{},\"removing_replicas\":{},\"version\":3}"}
{"path":"/brokers/topics/a/partitions","mode":"persistent"}
{"path":"/brokers/topics/a/partitions/0","mode":"persistent"}
{"path":"/brokers/topics/a/partitions/0/state","mode":"persistent","data":"{\"controller_epoch\":7,\"leader\":1,\"version\":1,\"leader_epoch\":0,\"isr\":[1]}"}
{"path":"/brokers/topics/a/partitions/1","mode":"persistent"}
{"path":"/brokers/topics/a/partitions/1/state","mode":"persistent","data":"{\"controller_epoch\":7,\"leader\":1,\"version\":1,\"leader_epoch\":0,\"isr\":[1]}"}
`
	want := `{"path":"/admin/delete_topics","mode":"persistent"}` + "\n" + topics + sampleExport
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("the file: %s", diff)
	}
	if strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "carried 29 nodes (cluster "+clusterA+", 1 topics with 2 partitions, 1 users)") || !strings.Contains(said, "left out: /admin/reassign_partitions, /odd") {
		t.Errorf("it said %q", said)
	}

	file := filepath.Join(t.TempDir(), "tree.json")
	mustRegistry(t, "", "export", "--data-dir", filepath.Join(dir, registry.FileName), "--file", file)
	for _, args := range [][]string{{"--file", file}, nil} {
		other := filepath.Join(t.TempDir(), "new")
		_, said = mustRegistry(t, out, append([]string{"import", "--data-dir", other}, args...)...)
		if !strings.Contains(said, "29 made, 0 changed, 0 removed") {
			t.Errorf("it said %q", said)
		}
		if again, _ := mustRegistry(t, "", "export", "--data-dir", other); again != out {
			t.Errorf("after import: %s", cmp.Diff(out, again))
		}
		tree, err := registry.OpenFile(filepath.Join(other, registry.FileName))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range compat.PersistentPaths {
			if _, err := tree.Exists(path, nil); err != nil {
				t.Error(err)
			}
		}
		tree.Close()
	}
}

// The tree of a real 3.9.1 (compat/testdata/znodes.tsv says how it was recorded) goes through whole.
func TestRegistryOfKafka(t *testing.T) {
	recorded, err := os.ReadFile("../testdata/znodes.tsv")
	if err != nil {
		t.Fatal(err)
	}
	tree := registry.OpenMemory()
	defer tree.Close()
	want := map[string]string{}
	for line := range strings.Lines(string(recorded)) {
		path, data, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || path[0] != '/' {
			continue
		}
		for i := 1; i < len(path); i++ {
			if path[i] == '/' {
				tree.Create(path[:i], nil, registry.Persistent)
			}
		}
		if _, err := tree.Create(path, []byte(data), registry.Persistent); errors.Is(err, registry.ErrNodeExists) {
			_, err = tree.Set(path, []byte(data), registry.AnyVersion)
			if err != nil {
				t.Fatal(err)
			}
		}
		want[path] = data
	}
	nodes, left, err := readTree(tree)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range nodes {
		if err := checkNode(n); err != nil {
			t.Error(err)
		}
		got[n.path] = string(n.data)
	}
	carried := 0
	for path, data := range want {
		dropped := false
		for _, p := range []string{"/brokers/ids/", "/controller", "/config/changes/", "/kafka-acl-changes", "/kafka-acl-extended-changes",
			"/isr_change_notification", "/log_dir_event_notification", "/admin/reassign_partitions", "/admin/preferred_replica_election"} {
			dropped = dropped || path != compat.PathControllerEpoch && strings.HasPrefix(path, p)
		}
		if value, ok := got[path]; ok == dropped || ok && value != data {
			t.Errorf("%s: %q %v, want %q", path, value, ok, data)
		}
		if !dropped {
			carried++
		}
	}
	if carried < 20 {
		t.Errorf("only %d nodes were to be carried", carried)
	}
	for _, path := range left {
		if !strings.HasPrefix(path, "/admin/") {
			t.Errorf("left: %s", path)
		}
	}
}

// Over what there is: refused, kept or replaced; counters never go back.
func TestRegistryOverATree(t *testing.T) {
	from, _ := mustRegistry(t, "", "export", "--data-dir", sampleDir(t, clusterA, 0, "a", "b"))
	low := strings.NewReplacer(`"data":"7"`, `"data":"3"`, "5000", "1000", "5999", "1999", `\"5\"`, `\"6\"`).Replace(from)
	target := func() string { return sampleDir(t, clusterA, 0, "b", "c") }
	has := func(dir string, want map[string]string) {
		t.Helper()
		tree, err := registry.OpenFile(filepath.Join(dir, registry.FileName))
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		for path, w := range want {
			data, _, err := tree.Get(path, nil)
			if w == "" && errors.Is(err, registry.ErrNoNode) {
				continue
			}
			if err != nil || !strings.Contains(string(data), w) || w == "" {
				t.Errorf("%s is %q, %v; want %q", path, data, err, w)
			}
		}
	}
	dir := target()
	refusedRegistry(t, low, []string{"has 2 topics", "--merge", "--force", dir}, "import", "--data-dir", dir)
	has(dir, map[string]string{"/brokers/topics/a": ""})

	_, said := mustRegistry(t, low, "import", "--data-dir", dir, "--merge", "--dry-run")
	if !strings.HasPrefix(said, "would carry") || !strings.Contains(said, "7 made, 0 changed, 0 removed") {
		t.Errorf("it said %q", said)
	}
	has(dir, map[string]string{"/brokers/topics/a": ""})

	mustRegistry(t, low, "import", "--data-dir", dir, "--merge")
	counters := map[string]string{"/controller_epoch": "7", "/latest_producer_id_block": "5999"}
	has(dir, counters)
	has(dir, map[string]string{"/brokers/topics/a": "AQAA", "/brokers/topics/c": "AgAA", "/config/topics/b": `"5"`, "/config/topics/a": `"6"`})

	dir = target()
	_, said = mustRegistry(t, low, "import", "--data-dir", dir, "--force")
	if !strings.Contains(said, "7 made, 2 changed, 7 removed") {
		t.Errorf("it said %q", said)
	}
	has(dir, counters)
	has(dir, map[string]string{"/brokers/topics/a": "AQAA", "/brokers/topics/c": "", "/config/topics/c": "", "/config/topics/b": `"6"`, "/odd": "x"})

	high := strings.NewReplacer(`"data":"7"`, `"data":"30"`, "5999", "69999").Replace(from)
	mustRegistry(t, high, "import", "--data-dir", dir, "--merge")
	has(dir, map[string]string{"/controller_epoch": "30", "/latest_producer_id_block": "69999"})
}

func TestRegistryOfAnotherCluster(t *testing.T) {
	from, _ := mustRegistry(t, "", "export", "--data-dir", sampleDir(t, clusterA, 0))
	dir := sampleDir(t, clusterB, 0)
	refusedRegistry(t, from, []string{"meta.properties", clusterA, clusterB}, "import", "--data-dir", dir, "--force")
	if err := os.Remove(filepath.Join(dir, "meta.properties")); err != nil {
		t.Fatal(err)
	}
	refusedRegistry(t, from, []string{clusterA, clusterB, "--force"}, "import", "--data-dir", dir)
	refusedRegistry(t, from, []string{clusterA, clusterB, "--force"}, "import", "--data-dir", dir, "--merge")
	mustRegistry(t, from, "import", "--data-dir", dir, "--force")

	kraft := sampleDir(t, clusterA, 1)
	if _, said := mustRegistry(t, "", "export", "--data-dir", kraft); !strings.Contains(said, "version 1 (KRaft)") {
		t.Errorf("it said %q", said)
	}
}

// Nobody touches a registry that a broker has open.
func TestRegistryInUse(t *testing.T) {
	dir := sampleDir(t, clusterA, 0)
	for _, args := range [][]string{{"export", "--data-dir", dir}, {"import", "--data-dir", dir, "--force"}} {
		lock, err := log.LockDir(vfs.OS(), dir)
		if err != nil {
			t.Fatal(err)
		}
		refusedRegistry(t, sampleExport, []string{"stop the broker first", dir}, args...)
		lock.Close()
		tree, err := registry.OpenFile(filepath.Join(dir, registry.FileName))
		if err != nil {
			t.Fatal(err)
		}
		refusedRegistry(t, sampleExport, []string{"stop the broker first", dir}, args...)
		tree.Close()
	}
}

func TestRegistryRefuses(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	refusedRegistry(t, "", []string{"--data-dir", "--zookeeper"}, "export")
	refusedRegistry(t, "", []string{"exclude"}, "import", "--data-dir", dir, "--force", "--merge")
	refusedRegistry(t, "", []string{"no registry", dir}, "export", "--data-dir", dir)
	refusedRegistry(t, "", []string{none}, "export", "--data-dir", none)
	refusedRegistry(t, "", []string{none}, "import", "--data-dir", dir, "--file", none)
	refusedRegistry(t, "", []string{"host:port"}, "export", "--zookeeper", ":x")
	refusedRegistry(t, "", []string{"127.0.0.1:1"}, "export", "--zookeeper", "127.0.0.1:1", "--timeout", "1ms")
	good := `{"path":"/cluster","mode":"persistent"}` + "\n"
	line := func(path, data string) string {
		return fmt.Sprintf(`{"path":%q,"mode":"persistent","data":%q}`, path, data)
	}
	for bad, want := range map[string][]string{
		"":                                                                  {"no node"},
		good + `{"path":"/consu`:                                            {"line 2", "cut off"},
		good + "\n" + `nonsense`:                                            {"line 3"},
		good + `{"path":"/cluster/id"}`:                                     {"line 2", "/cluster/id", "mode", "persistent"},
		`{"path":"/cluster","mode":"ephemeral"}`:                            {"line 1", "mode", "ephemeral"},
		`{"path":"cluster","mode":"persistent"}`:                            {"line 1", "cluster", "begin with /"},
		`{"path":"/cluster/","mode":"persistent"}`:                          {"line 1", "empty part"},
		`{"path":"/cluster","mode":"persistent","owner":1}`:                 {"line 1", "owner"},
		`{"path":"/cluster","mode":"persistent"} {}`:                        {"line 1", "behind"},
		`{"path":"/consumers/x","mode":"persistent","base64":"*"}`:          {"line 1", "base64"},
		`{"path":"/consumers/x","mode":"persistent","base64":"","data":""}`: {"line 1", "/consumers/x", "exclude"},
		good + good: {"line 2", "line 1", "/cluster"},
		`{"path":"/brokers/ids/1","mode":"persistent"}`:                                           {"line 1", "/brokers/ids/1", "none of the nodes"},
		`{"path":"/odd","mode":"persistent"}`:                                                     {"line 1", "/odd", "none of the nodes"},
		good + line("/cluster/id", "{}"):                                                          {"line 2", "/cluster/id", "version"},
		good + line("/brokers/topics/a", `{"version":9}`):                                         {"line 2", "/brokers/topics/a", "version 9"},
		good + line("/brokers/topics/a/partitions/0/state", `{"version":1}`):                      {"line 2", "/brokers/topics/a/partitions/0/state", "leader"},
		good + line("/config/topics/a", `{"version":1`):                                           {"line 2", "/config/topics/a"},
		good + line("/config/users/alice", `{"version":1,"config":{"producer_byte_rate":"1.0"}}`): {"line 2", "/config/users/alice", "producer_byte_rate"},
		good + line("/controller_epoch", `x`):                                                     {"line 2", "/controller_epoch"},
		good + line("/latest_producer_id_block", `{"version":1}`):                                 {"line 2", "/latest_producer_id_block"},
		good + line("/consumers/x", strings.Repeat("x", registry.JuteMaxBuffer)):                  {"line 2", "/consumers/x", "jute.maxbuffer"},
		good + strings.Repeat("x", jsonLine+1):                                                    {"line 2", "longer"},
	} {
		refusedRegistry(t, bad, want, "import", "--data-dir", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, registry.FileName)); err == nil {
		if out, _, err := runRegistry("", "export", "--data-dir", dir); err == nil {
			t.Errorf("something was written: %s", out)
		}
	}
}

func FuzzRegistryFile(f *testing.F) {
	f.Add([]byte(sampleExport))
	f.Add([]byte(`{"path":"/consumers/x","mode":"persistent","base64":"/wA="}`))
	f.Add([]byte(`{"path":"/consumers/x","mode":"persistent","data":"é<\u0000>"}`))
	f.Add([]byte("{}\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		nodes, err := readNodes(bytes.NewReader(b))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := writeNodes(&out, nodes); err != nil {
			t.Fatal(err)
		}
		again, err := readNodes(&out)
		if err != nil {
			t.Fatal(err)
		}
		for i := range nodes {
			if nodes[i].path != again[i].path || !bytes.Equal(nodes[i].data, again[i].data) || (nodes[i].data == nil) != (again[i].data == nil) {
				t.Fatalf("%q came back as %q", nodes[i], again[i])
			}
		}
	})
}
