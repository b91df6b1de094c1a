package integration

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ottla/broker"
)

// TestBrokenCommandsEndWithOne: what the command line gets wrong goes to standard error, in one line, with status 1.
func TestBrokenCommandsEndWithOne(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"topics", "--list"}, `unknown command "topics"`},
		{[]string{"--nope"}, "unknown flag: --nope"},
		{[]string{"--http", "nowhere"}, "--http nowhere: allowed are"},
		{[]string{"--data-dir", t.TempDir(), "--http", "", "--listen", addr}, addr},
	} {
		out, errOut, status := Run(t, c.args...)
		if status != 1 || out != "" || !strings.HasPrefix(errOut, "ottla: ") || !strings.Contains(errOut, c.want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%v: status %d, %q and %q, want 1, nothing and one line with %q", c.args, status, out, errOut, c.want)
		}
	}
}

// TestJSONLog: every line of the log is JSON with time, level and message.
func TestJSONLog(t *testing.T) {
	t.Parallel()
	if os.Getenv(envBootstrap) != "" {
		t.Skip("a test of the ottla process")
	}
	b := StartWith(t, Options{Settings: []string{"unknown.setting=1"}, Args: []string{"--log-format", "json", "--log-level", "debug"}})
	w := dialWire(t, b.Addr())
	w.write([]byte{0, 0, 0, 0}) // a frame of nothing
	w.wantClosed("an empty frame")
	b.Stop()
	lines := 0
	for line := range strings.Lines(b.Log()) {
		if strings.HasPrefix(line, "ottla is ready") {
			continue
		}
		var entry struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == "" || entry.Level == "" || entry.Msg == "" {
			t.Errorf("%v: %s", err, line)
		}
		lines++
	}
	if lines < 2 { // the setting and the frame
		t.Errorf("%d lines:\n%s", lines, b.Log())
	}
}

// TestMetaProperties: a new directory gets version 0; what is there is kept as it is.
func TestMetaProperties(t *testing.T) {
	t.Parallel()
	read := func(dir string) map[string]string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "meta.properties"))
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]string{}
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
				values[strings.TrimSpace(name)] = strings.TrimSpace(value)
			}
		}
		return values
	}
	run := func(dir string, settings map[string]string) error {
		t.Helper()
		all := map[string]string{"log.dirs": dir, "listeners": "PLAINTEXT://127.0.0.1:0"}
		for k, v := range settings {
			all[k] = v
		}
		b, err := broker.New(broker.Options{Settings: all})
		if err != nil {
			return err
		}
		return b.Close()
	}
	const cluster = "AAAAAAAAAAAAAAAAAAAAAA"
	for name, c := range map[string]struct {
		file     string // before
		settings map[string]string
		want     map[string]string // "*": anything
	}{
		"new":       {"", nil, map[string]string{"version": "0", "broker.id": "1", "cluster.id": "*"}},
		"new, id 0": {"", map[string]string{"broker.id": "0"}, map[string]string{"version": "0", "broker.id": "0", "cluster.id": "*"}},
		"version 0, other keys": {"version=0\nbroker.id=7\ncluster.id=" + cluster + "\nsomething.else=x y\n", nil,
			map[string]string{"version": "0", "broker.id": "7", "cluster.id": cluster, "something.else": "x y"}},
		"version 1": {"version=1\nnode.id=0\ncluster.id=" + cluster + "\ndirectory.id=CCCCCCCCCCCCCCCCCCCCCQ\nmore=1\n", nil,
			map[string]string{"version": "1", "node.id": "0", "cluster.id": cluster, "directory.id": "CCCCCCCCCCCCCCCCCCCCCQ", "more": "1"}},
	} {
		dir := t.TempDir()
		if c.file != "" {
			if err := os.WriteFile(filepath.Join(dir, "meta.properties"), []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // and a start more changes nothing
			if err := run(dir, c.settings); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got := read(dir)
			for k, v := range c.want {
				if got[k] != v && (v != "*" || got[k] == "") {
					t.Errorf("%s: %s is %q, want %q", name, k, got[k], v)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("%s: %v, want the keys of %v", name, got, c.want)
			}
		}
	}
	dir := t.TempDir()
	if err := run(dir, map[string]string{"broker.id": "3"}); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, map[string]string{"broker.id": "4"}); err == nil || !strings.Contains(err.Error(), "belongs to broker 3, this is broker 4") {
		t.Errorf("another broker's directory: %v", err)
	}
}
