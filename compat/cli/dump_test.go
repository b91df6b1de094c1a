package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ottla/log/vfs"
)

// kafkaData has Kafka's own log directories, and what its tool printed of them; its README.md
// says how they were recorded.
const kafkaData = "../../log/testdata"

// run is what `ottla dump` prints, and its exit status.
func run(t testing.TB, args ...string) (out, errOut string, status int) {
	t.Helper()
	var o, e bytes.Buffer
	cmd := Dump()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	cmd.SetArgs(append([]string{}, args...)) // nil stands for those of the process
	if err := cmd.Execute(); err != nil {
		return o.String(), e.String() + "ottla: " + err.Error() + "\n", 1
	}
	return o.String(), e.String(), 0
}

// sameLines compares text line by line.
func sameLines(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	if len(g) != len(w) {
		t.Fatalf("%d lines, want %d", len(g), len(w))
	}
}

// TestDumpOfKafka prints Kafka's directories as Kafka's tool did. What was printed with 3.9.1 and
// differs in 4.4.0 is changed here: with v0 and v1 it has a brace behind the checksum.
func TestDumpOfKafka(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	old := func(s string) string {
		var lines []string
		for line := range strings.Lines(s) {
			if strings.Contains(line, " isValid: ") {
				line = strings.Replace(line, "}", "", 1)
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, "")
	}
	for _, c := range []struct {
		dir, expected string
		options       string
		change        func(string) string
	}{
		{"kafka-4.4.0-kraft", kafkaData + "/kafka-4.4.0-kraft/expected-batches.txt", "", nil},
		{"kafka-4.4.0-kraft", kafkaData + "/kafka-4.4.0-kraft/expected-records.txt", "--print-data-log", nil},
		{"kafka-4.4.0-kraft", kafkaData + "/kafka-4.4.0-kraft/expected-indexes-snapshots.txt", "", nil},
		{"kafka-4.4.0-kraft", "testdata/expected/kafka-4.4.0-kraft-consumer-offsets.txt", "--offsets-decoder", nil},
		{"kafka-4.4.0-kraft", "testdata/expected/kafka-4.4.0-kraft-transaction-state.txt", "--transaction-log-decoder", nil},
		{"kafka-4.4.0-kraft", "testdata/expected/kafka-4.4.0-kraft-cluster-metadata.txt", "--cluster-metadata-decoder", nil},
		{"kafka-3.9.1-zk", kafkaData + "/kafka-3.9.1-zk/expected-batches.txt", "", nil},
		{"kafka-3.9.1-zk", kafkaData + "/kafka-3.9.1-zk/expected-records.txt", "--print-data-log", nil},
		{"kafka-3.9.1-zk", kafkaData + "/kafka-3.9.1-zk/expected-indexes-snapshots.txt", "", nil},
		{"kafka-3.9.1-zk", "testdata/expected/kafka-3.9.1-zk-consumer-offsets.txt", "--offsets-decoder", nil},
		{"kafka-3.9.1-zk", "testdata/expected/kafka-3.9.1-zk-transaction-state.txt", "--transaction-log-decoder", nil},
		{"kafka-3.9.1-zk-old-formats", kafkaData + "/kafka-3.9.1-zk-old-formats/expected-batches.txt", "", nil},
		{"kafka-3.9.1-zk-old-formats", kafkaData + "/kafka-3.9.1-zk-old-formats/expected-records.txt", "--print-data-log", old},
		{"kafka-3.9.1-zk-old-formats", kafkaData + "/kafka-3.9.1-zk-old-formats/expected-indexes-snapshots.txt", "", nil},
	} {
		t.Run(c.dir+" "+filepath.Base(c.expected), func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(wd, c.expected))
			if err != nil {
				t.Fatal(err)
			}
			want := string(b)
			if c.change != nil {
				want = c.change(want)
			}
			var files []string
			for line := range strings.Lines(want) {
				if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Dumping "); ok {
					files = append(files, name)
				}
			}
			t.Chdir(filepath.Join(wd, kafkaData, c.dir, "data"))
			args := []string{"--files", strings.Join(files, ",")}
			if c.options != "" {
				args = append(args, c.options)
			}
			out, errOut, status := run(t, args...)
			sameLines(t, out, want)
			if errOut != "" || status != 0 {
				t.Errorf("status %d, and said %q", status, errOut)
			}
		})
	}
}

// TestDumpDirectory: a directory's files come in the order of their names, those below it too, and
// nothing is said of the lock.
func TestDumpDirectory(t *testing.T) {
	t.Chdir(filepath.Join(kafkaData, "kafka-4.4.0-kraft", "data"))
	lock := filepath.Join(t.TempDir(), ".lock")
	if err := os.WriteFile(lock, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out, errOut, status := run(t, "txn-0/", filepath.Dir(lock))
	var names []string
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Dumping "); ok {
			names = append(names, name)
		}
	}
	want := []string{"00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex", "00000000000000000004.index",
		"00000000000000000004.log", "00000000000000000004.snapshot", "00000000000000000004.timeindex", "00000000000000000004.txnindex",
		"00000000000000000017.snapshot", "leader-epoch-checkpoint", "partition.metadata"}
	for i := range want {
		want[i] = "txn-0/" + want[i]
	}
	if !slices.Equal(names, want) || errOut != "" || status != 0 {
		t.Errorf("dumped %q, status %d, and said %q", names, status, errOut)
	}
	out, errOut, status = run(t, ".")
	for _, want := range []string{
		"cluster.id: MkU3OEVBNTcwNTJENDM2Qg\n",
		"Dumping cleaner-offset-checkpoint\ntopic: compacted partition: 0 offset: 31\n",
		"Dumping log-start-offset-checkpoint\ntopic: trimmed partition: 0 offset: 8\n",
		"topic: codecs partition: 0 offset: 28\n",
		"Dumping txn-0/partition.metadata\ntopicId: oYXxpj2cSuCvS1A0rdTlow\n",
		"Dumping txn-0/leader-epoch-checkpoint\nepoch: 0 startOffset: 0\n",
		"Dumping codecs-0/00000000000000000000.log\nLog starting offset: 0\nbaseOffset: 0 ",
	} {
		if !strings.Contains(strings.ReplaceAll(out, "Dumping ./", "Dumping "), want) {
			t.Errorf("nothing is %q", want)
		}
	}
	if status != 0 || !strings.Contains(errOut, "Ignoring unknown file ") || strings.Contains(errOut, "onsecutive") {
		t.Errorf("status %d, and said %q", status, errOut)
	}
}

func TestDumpOptions(t *testing.T) {
	t.Chdir(filepath.Join(kafkaData, "kafka-4.4.0-kraft", "data"))
	file := "codecs-0/00000000000000000000.log"
	for _, c := range []struct {
		args      []string
		out, said string // beginning of the output, and part of what is said
		status    int
	}{
		{nil, "", "no files are named", 1},
		{[]string{"--print-data-log"}, "", "no files are named", 1},
		{[]string{"--help"}, "Print what is in the files of a log", "", 0},
		{[]string{"--version"}, "4.4.0\n", "", 0},
		{[]string{"--files"}, "", "option files requires an argument", 1},
		{[]string{"--nonsense", "--files", file}, "", "nonsense is not a recognized option", 1},
		{[]string{"--files=" + file, "--max-bytes", "x"}, "", "--max-bytes x: allowed are numbers from 0 to 2147483647", 1},
		{[]string{"--files=" + file, "--max-bytes", "-1"}, "", "--max-bytes -1: allowed are", 1},
		{[]string{"--deep-iteration=yes", file}, "", "option deep-iteration takes no argument", 1},
		{[]string{"--value-decoder-class", "com.example.Mine", file}, "", "--value-decoder-class com.example.Mine: there is no such decoder; allowed are StringDecoder, IntegerDecoder, LongDecoder", 1},
		{[]string{"-files", file}, "Dumping codecs-0/00000000000000000000.log\nLog starting offset: 0\nbaseOffset: 0", "", 0},
		{[]string{"--max-bytes=0", "--files", file}, "Dumping codecs-0/00000000000000000000.log\nLog starting offset: 0\n", "", 0},
		{[]string{"no-such-0/00000000000000000000.log"}, "Dumping no-such-0/00000000000000000000.log\nLog starting offset: 0\n", "no such file", 1},
		{[]string{"--key-decoder-class", "kafka.serializer.StringDecoder", "--value-decoder-class", "--skip-record-metadata", file}, "Dumping", "", 0},
	} {
		out, errOut, status := run(t, c.args...)
		if !strings.HasPrefix(out, c.out) || c.out == "" && out != "" || !strings.Contains(errOut, c.said) || c.said == "" && errOut != "" || status != c.status {
			t.Errorf("%q: status %d, said %q, printed %.200q", c.args, status, errOut, out)
		}
	}
}

// TestDumpChangesNothing: Kafka's tool makes an index that is not there.
func TestDumpChangesNothing(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile(filepath.Join(kafkaData, "kafka-4.4.0-kraft", "data", "codecs-0", "00000000000000000000.timeindex"))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "00000000000000000000.timeindex")
	if err := os.WriteFile(name, b, 0o444); err != nil {
		t.Fatal(err)
	}
	if _, errOut, status := run(t, name, filepath.Join(dir, "00000000000000000000.txnindex")); status != 1 || !strings.Contains(errOut, "no such file") {
		t.Errorf("status %d, and said %q", status, errOut)
	}
	list, err := vfs.OS().ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestUTF8 replaces what Java replaces: each want is what new String(bytes, UTF_8) of Java 17 printed.
func TestUTF8(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                  "plain",
		"\u00e9\u20ac\U0001f600": "\u00e9\u20ac\U0001f600",
		"a\xffb":                 "a\ufffdb",
		"\xe2\x82":               "\ufffd",
		"\xe2\x82x":              "\ufffdx",
		"\xed\xa0\x80x":          "\ufffdx",
		"\xc0\x80":               "\ufffd\ufffd",
		"\xf0\x9f\x98":           "\ufffd",
		"\xf0\x9f\x98x":          "\ufffdx",
		"\xf0\x80\x80\x80":       "\ufffd\ufffd\ufffd\ufffd",
		"\xf5\x80":               "\ufffd\ufffd",
		"\xe0\x80\x80":           "\ufffd\ufffd\ufffd",
		"\xed\xa0A":              "\ufffdA",
		"\xed\xa0":               "\ufffd",
		"\xed\xa0\xf0":           "\ufffd\ufffd",
		"\xf4\x90\x80\x80":       "\ufffd\ufffd\ufffd\ufffd",
	} {
		if got := string(appendUTF8(nil, []byte(in))); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}
