//go:build clients

package integration

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDocker builds the image and runs docker-compose.yml as it stands, against a daemon of its own. Base images
// cannot be pulled on every machine that tests this, so docker/stand-ins.sh makes some. Where no daemon can run
// the test is skipped and says why.
func TestDocker(t *testing.T) {
	d := startDocker(t)
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	took := func(what string) {
		t.Logf("%s: %v", what, time.Since(begun).Round(10*time.Millisecond))
		begun = time.Now()
	}
	d.must("bash", filepath.Join(root, "integration", "docker", "stand-ins.sh"))
	took("stand-ins for the base images")
	port, httpPort := freePort(t), freePort(t)
	d.env = append(d.env, "OTTLA_PORT="+port, "OTTLA_HTTP_PORT="+httpPort)
	compose := func(args ...string) string {
		t.Helper()
		return d.must("docker-compose", append([]string{"-p", "ottlatest", "-f", filepath.Join(root, "docker-compose.yml")}, args...)...)
	}
	compose("build")
	took("docker-compose build")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the broker's output:\n%s", tail(compose("logs", "--no-color"), 100))
		}
		compose("down", "-v")
	})

	compose("up", "-d")
	d.healthy("ottlatest_ottla_1")
	took("docker-compose up, until healthy")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	addr := net.JoinHostPort("localhost", port)
	c := dialKgo(t, addr).(*kgoClient)
	defer func() { c.close() }()
	if err := c.createTopic(ctx, "kept", 3); err != nil {
		t.Fatal(err)
	}
	if err := c.send(ctx, "kept", "zstd", messages(0, 1000, time.Now())); err != nil {
		t.Fatal(err)
	}
	meta, err := c.admin.BrokerMetadata(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if b := meta.Brokers[0]; b.Host != "localhost" || fmt.Sprint(b.Port) != port {
		t.Errorf("clients on this machine are told %s:%d, want %s", b.Host, b.Port, addr)
	}
	// a container of the same network reaches it by the service's name
	d.must("docker", "run", "--rm", "--network", "ottlatest_default", "ottla", "sh", "-c", "nc -w 2 ottla 19092 </dev/null")

	// another container on the kept volume, under another host name
	begun = time.Now()
	compose("stop", "-t", "10")
	took("docker-compose stop")
	if code := strings.TrimSpace(d.must("docker", "inspect", "-f", "{{.State.ExitCode}}", "ottlatest_ottla_1")); code != "0" {
		t.Errorf("the container ended with %s, want 0", code)
	}
	compose("rm", "-f")
	compose("run", "-d", "--name", "other", "--service-ports", "--use-aliases", "ottla")
	t.Cleanup(func() { d.must("docker", "rm", "-f", "other") })
	d.healthy("other")
	if n := count(ctx, t, addr, "kept"); n != 1000 {
		t.Errorf("%d records on the kept volume, want 1000", n)
	}
	again, err := c.admin.BrokerMetadata(ctx)
	if err != nil || again.Cluster != meta.Cluster {
		t.Errorf("cluster id %q, %v; want %q as before", again.Cluster, err, meta.Cluster)
	}

	// the image alone: no variable, no setting, any user
	alone := freePort(t)
	d.must("docker", "run", "-d", "--name", "alone", "--user", "12345:0", "-p", alone+":9092", "ottla")
	t.Cleanup(func() { d.must("docker", "rm", "-f", "alone") })
	d.healthy("alone")
	size := strings.TrimSpace(d.must("docker", "image", "inspect", "-f", "{{.Size}}", "ottla"))
	t.Logf("the image has %s bytes on the stand-in base", size)
}

// docker is a daemon of the test's own.
type docker struct {
	t   *testing.T
	env []string
}

func startDocker(t *testing.T) *docker {
	t.Helper()
	for _, program := range []string{"dockerd", "docker", "docker-compose", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s here; integration/setup.sh installs it", program)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("a daemon of our own needs root")
	}
	dir, err := os.MkdirTemp("", "ottla-docker-")
	if err != nil {
		t.Fatal(err)
	}
	socket := "unix://" + filepath.Join(dir, "sock")
	log := &output{}
	daemon := exec.Command("dockerd", "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "-H", socket)
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = daemon.Wait()
	}()
	t.Cleanup(func() {
		_ = daemon.Process.Signal(os.Interrupt)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			_ = daemon.Process.Kill()
			<-ended
		}
		os.RemoveAll(dir)
	})
	d := &docker{t: t, env: append(os.Environ(), "DOCKER_HOST="+socket, "DOCKER_BUILDKIT=0", "COMPOSE_DOCKER_CLI_BUILD=0")}
	limit := time.After(time.Minute)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		if _, err := d.run("docker", "info"); err == nil {
			return d
		}
		select {
		case <-again.C:
		case <-ended:
			t.Skipf("no Docker daemon can run here:\n%s", tail(log.String(), 15))
		case <-limit:
			t.Skipf("the Docker daemon did not answer within a minute:\n%s", tail(log.String(), 15))
		}
	}
}

func (d *docker) run(command string, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = d.env
	endWithParent(cmd)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", command, strings.Join(args, " "), err, tail(out.String(), 40), tail(errOut.String(), 40))
	}
	return out.String(), nil
}

func (d *docker) must(command string, args ...string) string {
	d.t.Helper()
	out, err := d.run(command, args...)
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

// healthy waits until the image's own health check says so.
func (d *docker) healthy(container string) {
	d.t.Helper()
	limit := time.After(time.Minute)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		state := strings.TrimSpace(d.must("docker", "inspect", "-f", "{{.State.Status}} {{.State.Health.Status}}", container))
		if state == "running healthy" {
			return
		}
		select {
		case <-again.C:
		case <-limit:
			logs, _ := d.run("docker", "logs", container)
			d.t.Fatalf("%s is %s after a minute\n%s", container, state, tail(logs, 40))
		}
	}
}

// freePort is a port that nobody listens on at this moment.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
