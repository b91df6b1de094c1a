// Package integration runs whole brokers and unmodified clients against them.
//
// What Go alone can do runs in `go test ./...`; what needs other languages, Kafka's
// tools or containers has the build tag clients and is installed by setup.sh.
package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What the environment can change:
//
//	OTTLA_TEST_BINARY     a built ottla to run, instead of building this tree's
//	OTTLA_TEST_BUILD      extra flags for go build, such as -race
//	OTTLA_TEST_BOOTSTRAP  HOST:PORT of a broker that is up already, to run against
//	OTTLA_TEST_RESTART    with it: shell command that kills -9 and starts that broker on the same data,
//	                      and returns when its port is open
//	OTTLA_TEST_RECORD     with it: some tests write what that broker answers into testdata, to compare others with
const (
	envBinary    = "OTTLA_TEST_BINARY"
	envBuild     = "OTTLA_TEST_BUILD"
	envBootstrap = "OTTLA_TEST_BOOTSTRAP"
	envRestart   = "OTTLA_TEST_RESTART"
)

// readyWithin bounds the time from process start to the ready line; a busy two-core machine
// that builds beside it is far slower than the milliseconds that a start takes.
const readyWithin = 15 * time.Second

// Options say how a broker process is started.
type Options struct {
	Settings []string // name=value, given as --set
	Args     []string // further arguments of the command
	Env      []string // NAME=value, added to the test's own
	Dir      string   // data directory; empty: a new one that ends with the test
	Addr     string   // HOST:PORT to listen on; empty: a free port of 127.0.0.1
}

// Broker is one ottla process, or the external broker that the environment names.
// Its methods end the test where the process does not do as told.
type Broker struct {
	tb   testing.TB
	opts Options

	addr    string
	ready   string // the line that said so
	started time.Duration

	cmd    *exec.Cmd // nil: external, or not running
	out    *output
	exited chan struct{} // closed when the process is gone and err is set
	err    error
}

// external serialises the tests that share one external broker.
var external sync.Mutex

// Start runs a broker that ends with the test. Settings are name=value.
func Start(tb testing.TB, settings ...string) *Broker {
	tb.Helper()
	return StartWith(tb, Options{Settings: settings})
}

// StartWith is Start with everything that can be said about the process.
func StartWith(tb testing.TB, opts Options) *Broker {
	tb.Helper()
	if addr := os.Getenv(envBootstrap); addr != "" {
		external.Lock()
		tb.Cleanup(external.Unlock)
		return &Broker{tb: tb, addr: addr, opts: opts}
	}
	if opts.Dir == "" {
		opts.Dir = filepath.Join(tb.TempDir(), "data")
	}
	b := &Broker{tb: tb, opts: opts}
	tb.Cleanup(b.end)
	b.start()
	return b
}

// Addr is HOST:PORT for clients.
func (b *Broker) Addr() string { return b.addr }

// Dir is the data directory; empty for an external broker.
func (b *Broker) Dir() string { return b.opts.Dir }

// External says whether this broker is not ours to start and stop.
func (b *Broker) External() bool { return b.opts.Dir == "" }

// Ready is the line that the broker printed when it was ready.
func (b *Broker) Ready() string { return b.ready }

// StartTook is the time from process start to the ready line.
func (b *Broker) StartTook() time.Duration { return b.started }

// PID is the process id; 0 when it does not run or is external.
func (b *Broker) PID() int {
	if b.cmd == nil {
		return 0
	}
	return b.cmd.Process.Pid
}

// Log is all that the process has printed since its last start.
func (b *Broker) Log() string {
	if b.out == nil {
		return ""
	}
	return b.out.String()
}

// Stop sends SIGTERM, wants status 0, and returns how long the process took to end.
func (b *Broker) Stop() time.Duration {
	b.tb.Helper()
	return b.StopBy(syscall.SIGTERM)
}

// StopBy is Stop by another signal.
func (b *Broker) StopBy(signal syscall.Signal) time.Duration {
	b.tb.Helper()
	if b.cmd == nil {
		b.tb.Fatal("Stop: no process of ours runs")
	}
	begun := time.Now()
	_ = b.cmd.Process.Signal(signal)
	select {
	case <-b.exited:
	case <-time.After(10 * time.Second):
		b.kill()
		b.tb.Fatalf("broker still ran 10 s after %v\n%s", signal, b.Log())
	}
	took := time.Since(begun)
	if b.err != nil {
		b.tb.Fatalf("broker ended with %v after %v\n%s", b.err, signal, b.Log())
	}
	b.cmd = nil
	return took
}

// Kill ends the process by SIGKILL, as a power cut of the process alone.
func (b *Broker) Kill() {
	b.tb.Helper()
	if b.cmd == nil {
		b.tb.Fatal("Kill: no process of ours runs")
	}
	b.kill()
}

// Start starts the broker again after Stop or Kill: same address, same data.
func (b *Broker) Start() {
	b.tb.Helper()
	if b.cmd != nil {
		b.tb.Fatal("Start: it runs already")
	}
	b.opts.Addr = b.addr
	b.start()
}

// Restart kills the broker by SIGKILL and starts it on the same address and data.
// It skips the test where the broker is external and the environment says no way to do it.
func (b *Broker) Restart() {
	b.tb.Helper()
	if !b.External() {
		b.Kill()
		b.Start()
		return
	}
	command := os.Getenv(envRestart)
	if command == "" {
		b.tb.Skipf("%s names a broker, %s no way to restart it", envBootstrap, envRestart)
	}
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		b.tb.Fatalf("%s: %v\n%s", command, err, out)
	}
}

func (b *Broker) start() {
	b.tb.Helper()
	cmd := b.command()
	b.out = &output{line: make(chan string, 1)}
	cmd.Stdout, cmd.Stderr = b.out, b.out
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		b.tb.Fatal(err)
	}
	b.cmd, b.exited, b.err = cmd, make(chan struct{}), nil
	exited := b.exited
	go func() {
		b.err = cmd.Wait()
		close(exited)
	}()
	select {
	case line := <-b.out.line:
		b.started = time.Since(begun)
		b.ready, b.addr = line, dialable(address(line))
	case <-exited:
		b.cmd = nil
		b.tb.Fatalf("broker ended before it was ready: %v\n%s", b.err, b.Log())
	case <-time.After(readyWithin):
		b.tb.Fatalf("broker printed no ready line within %v\n%s", readyWithin, b.Log())
	}
}

func (b *Broker) command() *exec.Cmd {
	b.tb.Helper()
	listen := b.opts.Addr
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	args := []string{"--listen", listen, "--http", ""}
	if !slices.Contains(b.opts.Args, "--in-memory") {
		args = append(args, "--data-dir", b.opts.Dir)
	}
	for _, s := range b.opts.Settings {
		args = append(args, "--set", s)
	}
	cmd := exec.Command(Binary(b.tb), append(args, b.opts.Args...)...)
	cmd.Env = append(os.Environ(), b.opts.Env...)
	endWithParent(cmd)
	return cmd
}

func (b *Broker) kill() {
	_ = b.cmd.Process.Kill()
	<-b.exited
	b.cmd = nil
}

// end is what the test's end does: a broker that still runs must stop as it should.
func (b *Broker) end() {
	if b.cmd != nil {
		select {
		case <-b.exited:
			b.tb.Errorf("broker ended by itself: %v", b.err)
			b.cmd = nil
		default:
			b.Stop()
		}
	}
	if b.tb.Failed() {
		b.tb.Logf("the broker's output:\n%s", tail(b.Log(), 200))
	}
}

// Run runs the ottla command to its end and returns what it printed and its exit status.
func Run(tb testing.TB, args ...string) (stdout, stderr string, status int) {
	tb.Helper()
	ctx, stop := context.WithTimeout(tb.Context(), 30*time.Second)
	defer stop()
	var o, e bytes.Buffer
	cmd := exec.CommandContext(ctx, Binary(tb), args...)
	cmd.Stdout, cmd.Stderr = &o, &e
	endWithParent(cmd)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		tb.Fatal(err)
	}
	if ctx.Err() != nil {
		tb.Fatalf("ottla %s: no end after 30 s\n%s%s", strings.Join(args, " "), o.String(), e.String())
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

var (
	buildOnce  sync.Once
	buildDir   string
	binaryPath string
	buildErr   error
)

// Binary is the path of the ottla to test, built from this tree once a test process.
func Binary(tb testing.TB) string {
	tb.Helper()
	buildOnce.Do(func() {
		if binaryPath = os.Getenv(envBinary); binaryPath == "" {
			binaryPath, buildErr = build()
		}
	})
	if buildErr != nil {
		tb.Fatal(buildErr)
	}
	return binaryPath
}

// RemoveBinary removes what Binary built; for TestMain.
func RemoveBinary() {
	if buildDir != "" {
		os.RemoveAll(buildDir)
	}
}

func build() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	if err := touchSources(root); err != nil {
		return "", err
	}
	if buildDir, err = os.MkdirTemp("", "ottla-build-"); err != nil {
		return "", err
	}
	path := filepath.Join(buildDir, "ottla")
	args := append([]string{"build", "-o", path}, strings.Fields(os.Getenv(envBuild))...)
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// touchSources looks at every file that the build reads. The test process does not import them,
// so without this `go test` would answer from its cache after a change of the broker; what a test
// stats inside the module is part of the cache's key.
func touchSources(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case filepath.Ext(path) == ".go" || d.Name() == "go.mod":
			_, err = os.Stat(path)
		}
		return err
	})
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory")
		}
	}
}

// hostPort finds the first HOST:PORT of a line; the host may be empty, a name, or an address.
var hostPort = regexp.MustCompile(`(?:^|[\s/=(])((?:[A-Za-z0-9._-]*|\[[0-9A-Fa-f:.%]+\]):[0-9]{1,5})\b`)

// address returns the address that a ready line names; empty when it is not a ready line.
func address(line string) string {
	if !strings.HasPrefix(line, "ottla is ready") {
		return ""
	}
	m := hostPort.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	return m[1]
}

// dialable turns an address that a broker listens on into one that a client can dial.
func dialable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// output keeps what a process prints and passes the ready line on, once.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer // guarded by mu
	done bool         // guarded by mu: line was sent
	line chan string  // holds one
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p)
	if o.done {
		return len(p), nil
	}
	for l := range strings.Lines(o.buf.String()) {
		if strings.HasSuffix(l, "\n") && address(l) != "" {
			o.line <- strings.TrimSpace(l)
			o.done = true
			break
		}
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func tail(s string, lines int) string {
	all := strings.SplitAfter(s, "\n")
	if len(all) > lines {
		all = append([]string{"…\n"}, all[len(all)-lines:]...)
	}
	return strings.Join(all, "")
}
