package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"ottla/compat"
)

// run executes a command line and returns what it prints.
func run(args ...string) (out string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := command(&stdout, &stderr)
	cmd.SetArgs(args)
	err = cmd.Execute()
	return stdout.String() + stderr.String(), err
}

func TestCommandLineOverFile(t *testing.T) {
	file := t.TempDir() + "/server.properties"
	if err := os.WriteFile(file, []byte("num.partitions=3\nlisteners=PLAINTEXT://:1\nbroker.rack=a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := serveOptions{config: file, set: []string{"num.partitions=4", "log.dirs=/x", "num.partitions=5"}, dataDir: "/data", listen: "localhost:0"}
	got, err := o.settings()
	want := map[string]string{"num.partitions": "5", "listeners": "PLAINTEXT://localhost:0", "broker.rack": "a", "log.dirs": "/data"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	o = serveOptions{listen: "A://:1,B://:2"}
	if got, _ := o.settings(); got["listeners"] != "A://:1,B://:2" {
		t.Errorf("%v", got)
	}
}

func TestBrokenCommandLines(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/server.properties"
	if err := os.WriteFile(file, []byte("num.partitions=none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const endpoint = " to a broker endpoint; expected NAME://host:port, with a port from 0 to 65535"
	for _, c := range []struct {
		args []string
		err  string
	}{
		{[]string{"--nope"}, "unknown flag: --nope"},
		{[]string{"-x"}, "unknown shorthand flag: 'x' in -x"},
		{[]string{"serve", "now"}, `unknown command "now" for "ottla serve"`},
		{[]string{"version", "now"}, `unknown command "now" for "ottla version"`},
		{[]string{"apis", "now"}, `unknown command "now" for "ottla apis"`},
		{[]string{"settings", "--nope"}, "unknown flag: --nope"},
		{[]string{"--config", "/nope/server.properties"}, "open /nope/server.properties: no such file or directory"},
		{[]string{"--config", dir}, "read " + dir + ": is a directory"},
		{[]string{"--config", file}, "Invalid value none for configuration num.partitions: Not a number of type INT"},
		{[]string{"--config"}, "flag needs an argument: --config"},
		{[]string{"--set", "x"}, `--set: "x" is not name=value`},
		{[]string{"--set", "=x"}, `--set: "=x" is not name=value`},
		{[]string{"--set", "num.partitions=0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"},
		{[]string{"--set", "log.cleanup.policy=keep"}, "Invalid value keep for configuration log.cleanup.policy: String must be one of: compact, delete"},
		{[]string{"--set", "broker.id=1", "--set", "node.id=2"}, "Invalid value 2 for configuration node.id: You must set `node.id` to the same value as `broker.id`."},
		{[]string{"--set", "broker.id=-2"}, "Invalid value -2 for configuration broker.id: broker.id must be greater than or equal to -1"},
		{[]string{"--data-dir", ","}, "Invalid value , for configuration log.dirs: At least one log directory must be defined via log.dirs or log.dir."},
		{[]string{"--data-dir", file}, "lock log directory: log storage failed: open " + file + "/.lock: not a directory"},
		{[]string{"serve", "--listen", "localhost:x"}, "Invalid value PLAINTEXT://localhost:x for configuration listeners: Unable to parse PLAINTEXT://localhost:x" + endpoint},
		{[]string{"--listen", "localhost"}, "Invalid value PLAINTEXT://localhost for configuration listeners: Unable to parse PLAINTEXT://localhost" + endpoint},
		{[]string{"--listen", "SSL://:1"}, "Invalid value SSL://:1 for configuration listeners: Listener SSL has the security protocol SSL; allowed is PLAINTEXT"},
		{[]string{"--in-memory=x"}, `invalid argument "x" for "--in-memory" flag: strconv.ParseBool: parsing "x": invalid syntax`},
		{[]string{"--in-memory", "--data-dir", "d"}, "--data-dir d: allowed is no directory beside --in-memory, which keeps nothing on disk"},
		{[]string{"--http", "x"}, "--http x: allowed are host:port, with a port from 0 to 65535, and nothing at all"},
		{[]string{"--http", ":x"}, "--http :x: allowed are host:port, with a port from 0 to 65535, and nothing at all"},
		{[]string{"--log-level", "x"}, "--log-level x: allowed are debug, info, warn and error"},
		{[]string{"serve", "--log-format", "x"}, "--log-format x: allowed are text and json"},
	} {
		if _, err := run(c.args...); err == nil || err.Error() != c.err {
			t.Errorf("%v: %v", c.args, err)
		}
	}
}

// TestDumpLog: the word of Kafka's tool does that tool's job.
func TestDumpLog(t *testing.T) {
	for _, name := range []string{"dump", "dump-log"} {
		out, err := run(name, "--deep-iteration", "--files", "log/testdata/kafka-4.4.0-kraft/data/appendtime-0/00000000000000000000.log")
		if err != nil || !strings.HasPrefix(out, "Dumping log/testdata/") || strings.Count(out, "\n| offset: ") != 5 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestToolsNamesAreFree: the first words of Kafka's other tools do nothing else.
func TestToolsNamesAreFree(t *testing.T) {
	for name := range strings.FieldsSeq(`topics console-producer console-consumer consumer-groups configs acls cluster broker-api-versions
		storage get-offsets delete-records log-dirs features reassign-partitions leader-election transactions share-groups streams-groups
		producer-perf-test consumer-perf-test metadata-quorum server-start server-stop zookeeper-server-start zookeeper-shell
		run-class client-metrics delegation-tokens mirror-maker verifiable-producer verifiable-consumer groups`) {
		_, err := run(name, "--bootstrap-server", "localhost:9092", "--list")
		if err == nil || !strings.HasPrefix(err.Error(), `unknown command "`+name+`" for "ottla"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHelp: every flag of a broker is there, and says what it takes.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}} {
		out, err := run(args...)
		if err != nil {
			t.Error(err)
		}
		for _, want := range []string{"--config file", "--set name=value", "--data-dir directory", "--listen address", "--in-memory ", "--http address", "--log-format text", "--log-level level"} {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in\n%s", args, want, out)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	if out, err := run("version"); err != nil || !strings.HasPrefix(out, "ottla "+version+" (go") {
		t.Errorf("%s %v", out, err)
	}
}

func TestSettingsTable(t *testing.T) {
	out, err := run("settings", "log.retention.ms", "zookeeper.set.acl")
	if err != nil || !strings.Contains(out, "log.retention.ms") || !strings.Contains(out, "refused: nobody logs in to ZooKeeper") || strings.Contains(out, "num.partitions") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run("settings", "--json")
	var rows []jsonSetting
	if err != nil || json.Unmarshal([]byte(out), &rows) != nil {
		t.Fatal(err, out)
	}
	i := slices.IndexFunc(rows, func(r jsonSetting) bool { return r.Name == "log.dir" })
	if i < 0 || rows[i].Default != "./ottla-data" || rows[i].KafkaDefault != "/tmp/kafka-logs" || rows[i].Effect != "acted" {
		t.Errorf("%+v", rows[max(i, 0)])
	}
}

func TestAPIsTable(t *testing.T) {
	out, err := run("apis")
	if err != nil || strings.Count(out, "\n") != len(compat.APIs)+1 {
		t.Errorf("%v\n%s", err, out)
	}
}
