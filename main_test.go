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
	for _, c := range []struct {
		args []string
		err  string
	}{
		{[]string{"topics"}, `unknown command "topics" for "ottla"`},
		{[]string{"--nope"}, "unknown flag: --nope"},
		{[]string{"--set", "x"}, `--set: "x" is not name=value`},
		{[]string{"--config", "/nope/server.properties"}, "open /nope/server.properties: no such file or directory"},
		{[]string{"--log-level", "x"}, "--log-level x: allowed are debug, info, warn and error"},
		{[]string{"serve", "--log-format", "x"}, "--log-format x: allowed are text and json"},
		{[]string{"--set", "num.partitions=0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"},
		{[]string{"serve", "--listen", "localhost:x"}, "Invalid value PLAINTEXT://localhost:x for configuration listeners: Unable to parse PLAINTEXT://localhost:x to a broker endpoint; expected NAME://host:port, with a port from 0 to 65535"},
	} {
		if _, err := run(c.args...); err == nil || err.Error() != c.err {
			t.Errorf("%v: %v", c.args, err)
		}
	}
}

func TestVersion(t *testing.T) {
	if out, err := run("version"); err != nil || !strings.HasPrefix(out, "ottla "+version+" (go") {
		t.Errorf("%s %v", out, err)
	}
}

func TestSettingsTable(t *testing.T) {
	out, err := run("settings", "log.retention.ms", "zookeeper.connect")
	if err != nil || !strings.Contains(out, "log.retention.ms") || !strings.Contains(out, "refused: the ZooKeeper cluster mode") || strings.Contains(out, "num.partitions") {
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
