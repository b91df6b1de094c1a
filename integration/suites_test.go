//go:build clients

package integration

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The suites that others wrote. They lie beside the repository, in ../shared/conformance, and get what they run from
// package registries; without that folder these tests are skipped. What must pass is in suites/*.allow, what does
// not pass yet in suites/FINDINGS.md.

func TestSuiteSmokeKcat(t *testing.T)   { conformance(t, "smoke-kcat", 5*time.Minute) }
func TestSuiteKafkaPython(t *testing.T) { conformance(t, "kafka-python", 20*time.Minute) }

// TestSuiteFranzGo runs the suite of the release that go.mod names.
func TestSuiteFranzGo(t *testing.T) {
	conformance(t, "franz-go", 20*time.Minute, "KGO_VERSION="+moduleVersion(t, "github.com/twmb/franz-go"))
}

// shared is a folder of ../shared.
func shared(t *testing.T, parts ...string) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(append([]string{filepath.Dir(root), "shared"}, parts...)...)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the suites are not beside the repository: %v", err)
	}
	return dir
}

func moduleVersion(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// racy are tests that a client loses to itself now and then, whatever the broker does; see FINDINGS.md. They are tried
// a few times, all others once.
var racy = regexp.MustCompile(`^test\.integration\.test_(?:consumer|producer)_integration::(\w+)`)

const racyRuns = 6

// conformance runs ../shared/conformance/NAME.sh against a broker with the settings that it asks for.
func conformance(t *testing.T, name string, limit time.Duration, env ...string) {
	t.Parallel() // they wait more than they work
	script := filepath.Join(shared(t, "conformance"), name+".sh")
	settings, err := exec.Command("bash", script, "--settings").Output()
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", freePort(t))
	b := StartWith(t, Options{Addr: addr, Settings: append(strings.Fields(string(settings)),
		"group.initial.rebalance.delay.ms=0", "advertised.listeners=PLAINTEXT://"+addr)}) // the suites look for it among what is set
	work := filepath.Join(installed(t, "."), "suites")
	run := func(more ...string) ([]byte, error) {
		ctx, stop := context.WithTimeout(t.Context(), limit)
		defer stop()
		cmd := exec.CommandContext(ctx, "bash", script, b.Addr())
		cmd.Env = slices.Concat(os.Environ(), env, more, []string{"SUITE_WORK=" + work})
		endWithParent(cmd)
		return cmd.CombinedOutput()
	}
	out, err := run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // it could not be fetched or built
		t.Logf("once more, after:\n%s", tail(string(out), 20))
		out, err = run()
	}
	if err != nil && !errors.As(err, &exit) || exit != nil && exit.ExitCode() != 1 && exit.ExitCode() != 0 {
		t.Fatalf("%s: %v\n%s", script, err, tail(string(out), 40))
	}
	results := func() map[string]string {
		got := map[string]string{}
		for _, m := range regexp.MustCompile(`(?m)^(pass|fail|skip)\t *[0-9.]+\t(.*?)(?: \(no result: .*\))?$`).FindAllStringSubmatch(string(out), -1) {
			got[m[2]] = m[1]
		}
		return got
	}
	got := results()
	for range racyRuns {
		var lost, functions []string
		for _, test := range allowList(t, name) {
			if m := racy.FindStringSubmatch(test); m != nil && got[test] != "pass" {
				lost, functions = append(lost, test), append(functions, m[1])
			}
		}
		if len(lost) == 0 {
			break
		}
		t.Logf("once more, for %q", lost)
		more, _ := run("PYTEST_ADDOPTS=-k '" + strings.Join(functions, " or ") + "'")
		out = append(out, more...)
		again := results() // of a test that is there twice the later one
		for _, test := range lost {
			got[test] = again[test]
		}
	}
	judge(t, name, got, string(out))
}

// TestSuitePitfalls runs the cases of known-pitfalls.md that can be tried from outside. Some want settings that
// others would suffer from, so there are three runs.
func TestSuitePitfalls(t *testing.T) {
	t.Parallel()
	dir := shared(t, "conformance", "pitfalls")
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Skip(err)
	}
	work := t.TempDir() // shared is not to be written to, and go build may want to
	if err := os.CopyFS(work, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(work, "pitfalls.bin")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = work
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	got, all := map[string]string{}, ""
	for _, x := range []struct {
		cases    string
		settings []string
	}{
		{"^group-5$", []string{"group.initial.rebalance.delay.ms=0", "offsets.retention.minutes=1", "offsets.retention.check.interval.ms=1000"}},
		{"^net-1$", []string{"connections.max.idle.ms=5000"}},
		{".", []string{"group.initial.rebalance.delay.ms=0", "log.retention.check.interval.ms=1000", "log.cleaner.backoff.ms=1000"}},
	} {
		out := pitfalls(t, program, x.cases, x.settings)
		all += out
		for _, m := range regexp.MustCompile(`(?m)^(PASS|FAIL|SKIP)\t(\S+)`).FindAllStringSubmatch(out, -1) {
			if r := strings.ToLower(m[1]); got[m[2]] == "" || got[m[2]] == "skip" {
				got[m[2]] = r
			}
		}
	}
	judge(t, "pitfalls", got, all)
}

func pitfalls(t *testing.T, program, cases string, settings []string) string {
	b := Start(t, settings...)
	s := serveRestarts(t)
	cmd := exec.CommandContext(t.Context(), program, "-run", cases, "-restart", s.command, b.Addr())
	cmd.Env = append(os.Environ(), "LOG_DIR="+b.Dir())
	endWithParent(cmd)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case r := <-s.asked:
			r.answer <- b.restartAfter(r.between)
		case err := <-done:
			var exit *exec.ExitError
			if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
				t.Fatalf("pitfalls -run %s: %v\n%s", cases, err, out.String())
			}
			return out.String()
		}
	}
}

// restartAfter is Restart with a shell command between the kill and the start.
func (b *Broker) restartAfter(between string) error {
	if b.External() {
		if err := os.Setenv("BETWEEN", between); err != nil {
			return err
		}
		b.Restart()
		return nil
	}
	b.Kill()
	if between != "" {
		if out, err := exec.Command("sh", "-c", between).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", between, err, out)
		}
	}
	b.Start()
	return nil
}

// restarts lets a suite restart the broker by a shell command: this test binary run again, which asks this
// process through a socket and waits for its word.
type restarts struct {
	command string
	asked   chan restart
}

type restart struct {
	between string // shell command to run while the broker is down
	answer  chan error
}

// envAsk makes the test binary ask for a restart and do nothing else; it names the socket.
const envAsk = "OTTLA_TEST_ASK_RESTART"

func init() {
	if socket := os.Getenv(envAsk); socket != "" {
		os.Exit(askRestart(socket))
	}
}

func askRestart(socket string) int {
	c, err := net.Dial("unix", socket)
	if err == nil {
		_, err = fmt.Fprintf(c, "%q\n", os.Getenv("BETWEEN"))
	}
	var word []byte
	if err == nil {
		word, err = io.ReadAll(c)
	}
	if err != nil || string(word) != "ok" {
		fmt.Fprintf(os.Stderr, "restart: %v: %s\n", err, word)
		return 1
	}
	return 0
}

func serveRestarts(t *testing.T) *restarts {
	t.Helper()
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ottla-ask-") // a socket's path must be short, so not the test's folder
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &restarts{command: envAsk + "=" + socket + " " + me, asked: make(chan restart)}
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
		os.RemoveAll(dir)
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			r := restart{answer: make(chan error, 1)}
			fmt.Sscanf(line, "%q", &r.between)
			select {
			case s.asked <- r:
				if err := <-r.answer; err != nil {
					fmt.Fprint(c, err)
				} else {
					fmt.Fprint(c, "ok")
				}
			case <-t.Context().Done():
			}
			c.Close()
		}
	}()
	return s
}

// judge holds a suite's results against its lists: what is in NAME.allow must pass, and nothing else may
// fail than what FINDINGS.md says. What passes although it is a finding belongs into the list.
func judge(t *testing.T, name string, got map[string]string, out string) {
	t.Helper()
	allowed, findings := allowList(t, name), findingsOf(t, name)
	if len(got) == 0 {
		t.Fatalf("%s gave no results\n%s", name, tail(out, 40))
	}
	failed := false
	for _, test := range allowed {
		if got[test] != "pass" {
			failed = true
			t.Errorf("%s: %s must pass, and has %q", name, test, got[test])
		}
	}
	for _, test := range slices.Sorted(maps.Keys(got)) {
		result := got[test]
		_, finding := findings[test]
		switch {
		case result == "pass" && finding:
			t.Errorf("%s: %s passes: move it from FINDINGS.md to %s.allow", name, test, name)
		case result == "pass" && !contains(allowed, test):
			t.Errorf("%s: %s passes and is new: add it to %s.allow", name, test, name)
		case result != "pass" && !finding && !contains(allowed, test):
			failed = true
			t.Errorf("%s: %s has %q and no line in FINDINGS.md", name, test, result)
		}
	}
	if failed {
		t.Logf("its output:\n%s", tail(out, 150))
	}
	n := map[string]int{}
	for _, r := range got {
		n[r]++
	}
	t.Logf("%s: %d passed, %d failed, %d skipped", name, n["pass"], n["fail"], n["skip"])
}
