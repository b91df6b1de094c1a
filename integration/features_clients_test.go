//go:build clients

package integration

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFeaturesTool: kafka-features of Kafka 4.4.0, which is its AdminClient's describeFeatures and
// updateFeatures, in all its commands.
func TestFeaturesTool(t *testing.T) {
	t.Parallel()
	b := Start(t)
	k := openTools(t, "4.4.0", b.Addr())
	row := func(feature, low, high, level string) string {
		return `^Feature: ` + feature + `\s+SupportedMinVersion: ` + low + `\s+SupportedMaxVersion: ` + high + `\s+FinalizedVersionLevel: ` + level + `\s+Epoch: \d+`
	}
	described := k.run([]string{row("group.version", "0", "1", "1"), row("metadata.version", "3.3-IV3", "4.4-IV2", "4.4-IV2"),
		row("transaction.version", "0", "2", "2")}, "", "kafka-features", "describe")
	if n := strings.Count(described, "Feature: "); n != 3 {
		t.Errorf("%d features, want those that are built: %s", n, described)
	}
	k.run([]string{`group.version can be downgraded to 0`}, "", "kafka-features", "downgrade", "--feature", "group.version=0", "--dry-run")
	k.run([]string{`group.version was downgraded to 0`}, "", "kafka-features", "downgrade", "--feature", "group.version=0")
	k.run([]string{row("group.version", "0", "1", "0")}, "", "kafka-features", "describe")
	k.run([]string{`group.version was upgraded to 1`}, "", "kafka-features", "upgrade", "--feature", "group.version=1")
	k.run([]string{`group.version was disabled`, `transaction.version was disabled`}, "", "kafka-features", "disable", "--feature", "group.version", "--feature", "transaction.version")
	k.run([]string{row("group.version", "0", "1", "0"), row("transaction.version", "0", "2", "0")}, "", "kafka-features", "describe")
	k.run([]string{`group.version was upgraded to 1`, `metadata.version was upgraded to 33`, `transaction.version was upgraded to 2`}, "", "kafka-features", "upgrade",
		"--feature", "group.version=1", "--feature", "transaction.version=2", "--feature", "metadata.version=33")
	k.run([]string{`transaction.version was downgraded to 1`}, "", "kafka-features", "downgrade", "--feature", "transaction.version=1", "--unsafe")
	k.refuse(`Could not upgrade transaction.version to 3. The update failed for all features since the following feature had an error: Invalid update version 3 for feature transaction.version. Local controller \d+ only supports versions 0-2`,
		"kafka-features", "upgrade", "--feature", "transaction.version=3")
	k.refuse(`Can't downgrade the version of this feature without setting the upgrade type`, "kafka-features", "upgrade", "--feature", "metadata.version=25")
	k.refuse(`Unsupported metadata.version downgrade from 33 to 25`, "kafka-features", "downgrade", "--metadata", "4.0-IV3")
	k.refuse(`Unsafe metadata downgrade is not supported in this version`, "kafka-features", "downgrade", "--metadata", "4.0-IV3", "--unsafe")
	k.run([]string{`transaction.version=2`}, "", "kafka-features", "version-mapping", "--release-version", "4.4-IV2")
	k.run([]string{`transaction.version=2 has no dependencies`}, "", "kafka-features", "feature-dependencies", "--feature", "transaction.version=2")
}

// TestForeignLevels: the levels of a directory that Kafka 4.4.0 has made are those of the cluster,
// also where they are not the newest ones.
func TestForeignLevels(t *testing.T) {
	t.Parallel()
	libs := filepath.Join(installed(t, "kafka-4.4.0"), "kafka-4.4.0", "libs", "*")
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "server.properties")
	err := os.WriteFile(file, []byte("process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\ncontroller.listener.names=C\n"+
		"listeners=PLAINTEXT://127.0.0.1:2,C://127.0.0.1:1\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,C:PLAINTEXT\nlog.dirs="+data+"\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("java", "-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", libs,
		"kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", file, "--release-version", "4.0-IV3",
		"--feature", "transaction.version=1", "--feature", "group.version=0").CombinedOutput()
	if err != nil {
		t.Fatalf("format: %v\n%s", err, out)
	}
	b := StartWith(t, Options{Dir: data})
	want := map[string]int16{"metadata.version": 25, "transaction.version": 1}
	for range 2 {
		w := dialWire(t, b.Addr())
		if levels, _ := w.finalized(); !maps.Equal(levels, want) {
			t.Errorf("levels %v, want %v", levels, want)
		}
		equal(t, "heartbeat", w.nextGenHeartbeat("g"), 35)
		if b.External() {
			break
		}
		b.Restart()
	}
	level(t, b.Addr(), "metadata.version", 33)
	level(t, b.Addr(), "group.version", 1)
}
