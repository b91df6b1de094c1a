package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ottla/log"
	"ottla/protocol/record"
)

// runCheck is the command with what is typed in; it fails as the program's exit code says.
func runCheck(t *testing.T, typed string, args ...string) (out string, err error) {
	t.Helper()
	var b bytes.Buffer
	cmd := Check()
	cmd.SetArgs(append([]string{}, args...)) // nil stands for those of the process
	cmd.SetIn(strings.NewReader(typed))
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return b.String(), err
}

func openLog(t *testing.T, dir string) (*log.Manager, *log.Log) {
	t.Helper()
	m, err := log.OpenManager(log.ManagerOptions{Dirs: []string{dir}, BrokerID: 1, ClusterID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Load(); err != nil {
		t.Fatal(err)
	}
	l, err := m.Host("orders", 0, [16]byte{1}, false)
	if err != nil {
		m.Close()
		t.Fatal(err)
	}
	return m, l
}

// TestCheck goes the way of an operator: a broker that runs, one that was stopped, damage, a repair that
// is refused and one that is agreed to, and the broker again.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	m, l := openLog(t, dir)
	for _, v := range []string{"first", "second", "third"} {
		b := record.NewBuilder(nil, record.BuilderOptions{})
		b.Add(1_700_000_000_000, []byte("k"), []byte(v))
		if _, err := l.Append(log.Append{Records: b.Finish(), RequestVersion: 9}); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := runCheck(t, "", dir); err != nil || !strings.Contains(out, "in use by a broker") || !strings.Contains(out, "1 partitions, 1 segments, 3 batches") {
		t.Errorf("beside a broker: %v\n%s", err, out)
	}
	if out, err := runCheck(t, "y\n", "--repair", dir); err == nil || !strings.Contains(err.Error(), "stop the broker") {
		t.Errorf("repair beside a broker: %v\n%s", err, out)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := runCheck(t, "", "--repair", dir); err != nil || !strings.Contains(out, "(stopped cleanly)") || !strings.Contains(out, "0 wrong, 0 notes") {
		t.Errorf("after a stop: %v\n%s", err, out)
	}

	name := filepath.Join(dir, "orders-0", "00000000000000000000.log")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(whole, []byte("second"))
	broken := bytes.Clone(whole)
	broken[at] ^= 1
	if err := os.WriteFile(name, broken, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := runCheck(t, "", dir)
	if err == nil || !strings.Contains(err.Error(), "1 thing is wrong") || !strings.Contains(out, "wrong: "+name+" at byte 74: ") || !strings.Contains(out, "repair: cut 75 bytes out") {
		t.Errorf("damaged: %v\n%s", err, out)
	}
	if out, err := runCheck(t, "", "--topic", "other", dir); err != nil || !strings.Contains(out, "0 partitions") {
		t.Errorf("another topic: %v\n%s", err, out)
	}
	if out, err := runCheck(t, "n\n", "--repair", dir); err == nil || !strings.Contains(out, "[y/N]") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("not agreed: %v\n%s", err, out)
	}
	if now, _ := os.ReadFile(name); !bytes.Equal(now, broken) {
		t.Fatal("the file was changed")
	}
	out, err = runCheck(t, "yes\n", "--repair", "--topic", "orders", dir)
	if err != nil || !strings.Contains(out, "cutting 75 bytes at byte 74 of "+name) || !strings.Contains(out, "0 wrong") {
		t.Errorf("repair: %v\n%s", err, out)
	}
	if cut, _ := os.ReadFile(name + ".74.cut"); !bytes.Equal(cut, broken[74:149]) {
		t.Errorf("cut out: %q", cut)
	}
	m, l = openLog(t, dir)
	if l.Err() != nil || l.End() != 3 || l.Size() != int64(len(whole)-75) {
		t.Errorf("after the repair: %v, ends at %d with %d bytes", l.Err(), l.End(), l.Size())
	}
	m.Close()

	other := t.TempDir()
	if err := os.Rename(filepath.Join(dir, "orders-0"), filepath.Join(other, "orders-0")); err != nil {
		t.Fatal(err)
	}
	if out, err := runCheck(t, "", dir, other); err != nil || strings.Count(out, "0 wrong") != 2 {
		t.Errorf("moved to another directory: %v\n%s", err, out)
	}
	if out, err := runCheck(t, "", "--repair", "--yes", dir); err != nil || !strings.Contains(out, "strike the partition off") {
		t.Errorf("directory gone: %v\n%s", err, out)
	}
	m, l = openLog(t, dir)
	if l.End() != 0 {
		t.Errorf("ends at %d", l.End())
	}
	m.Close()
}

func TestCheckRefuses(t *testing.T) {
	empty := t.TempDir()
	if err := os.WriteFile(filepath.Join(empty, "letter.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		err  string
	}{
		{nil, "requires at least 1 arg"},
		{[]string{filepath.Join(empty, "none")}, "no such file"},
		{[]string{"--repair", filepath.Join(empty, "none")}, "no such file"},
		{[]string{empty}, "is no log directory"},
		{[]string{"--yes", empty}, "--yes is for --repair"},
	} {
		if out, err := runCheck(t, "", c.args...); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
	}
}
