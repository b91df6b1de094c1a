package adopt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ottla/log/vfs"
	"ottla/protocol/record"
	"ottla/protocol/schema"
)

const (
	fixture = "testdata/kafka-4.4.0"
	logName = "00000000000000000000.log"
	snapped = "00000000000000000085-0000000001.checkpoint"
)

// copied is a fixture in a directory of the test's own.
func copied(t testing.TB, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, dir string) *Image {
	t.Helper()
	i, _, err := Read(vfs.OS(), []string{dir}, "")
	if err != nil || i == nil {
		t.Fatal(i, err)
	}
	return i
}

func nodes(p *Plan) string {
	var b strings.Builder
	for _, n := range p.Nodes {
		b.WriteString(n.Path + " " + string(n.Data) + "\n")
	}
	return b.String()
}

var features = map[string]int16{"transaction.version": 2}

// TestPlan compares with nodes that were checked by eye against what was asked of Kafka. The ids
// are those that Kafka gave.
func TestPlan(t *testing.T) {
	i := read(t, fixture)
	p := i.Plan(vfs.OS(), []string{fixture}, 1, features)
	want, err := os.ReadFile("testdata/kafka-4.4.0-nodes.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := nodes(p); got != string(want) {
		t.Errorf("nodes:\n%s", got)
	}
	if i.From != snapped || i.Offset != 86 || i.Torn {
		t.Errorf("from %q to %d", i.From, i.Offset)
	}
	if p.Topics != 4 || p.Partitions != 12 || p.Empty != 2 || p.Users != 1 || p.ACLs != 4 || p.Quotas != 5 || len(p.Elsewhere) != 0 {
		t.Errorf("%+v", p)
	}
	if len(p.Lost) != 1 || !strings.Contains(p.Lost[0], `"a/b"`) { // no node can have that name
		t.Errorf("lost: %q", p.Lost)
	}
}

// TestRecords holds what the fixture does not have.
func TestRecords(t *testing.T) {
	message := func(name string, fields ...any) schema.Message {
		m := schema.Message{Name: name}
		for i := 0; i < len(fields); i += 2 {
			m.Fields = append(m.Fields, schema.Field{Name: fields[i].(string), Value: fields[i+1]})
		}
		return m
	}
	id := func(n byte) (id uuid) { id[15] = n; return id }
	entity := func(kind string, name any) schema.Struct {
		return schema.Struct{{Name: "entityType", Value: kind}, {Name: "entityName", Value: name}}
	}
	config := func(kind int8, of, name string, value any) schema.Message {
		return message("ConfigRecord", "resourceType", kind, "resourceName", of, "name", name, "value", value)
	}
	i := newImage()
	for _, m := range []schema.Message{
		message("TopicRecord", "name", "t", "topicId", id(1)),
		message("PartitionRecord", "partitionId", int32(0), "topicId", id(1), "replicas", []int32{1, 2}, "leaderEpoch", int32(5)),
		message("PartitionRecord", "partitionId", int32(1), "topicId", id(1), "replicas", []int32{2}, "leaderEpoch", int32(6)),
		message("PartitionChangeRecord", "partitionId", int32(0), "topicId", id(1), "leader", int32(2)),
		message("PartitionChangeRecord", "partitionId", int32(0), "topicId", id(1), "isr", []int32{1}),
		message("PartitionChangeRecord", "partitionId", int32(0), "topicId", id(1), "leader", int32(-1), "replicas", []int32{2}),
		config(kindTopic, "t", "a", "1"), config(kindTopic, "t", "b", "2"), config(kindTopic, "t", "a", nil),
		config(kindBroker, "7", "log.cleaner.threads", "3"), config(kindBroker, "8", "gone", "3"), config(kindBroker, "8", "gone", nil),
		config(99, "x", "y", "z"),
		message("UserScramCredentialRecord", "name", "u", "mechanism", int8(9), "iterations", int32(4096)),
		message("ClientQuotaRecord", "entity", []schema.Struct{entity("user", nil), entity("client-id", "c")}, "key", "request_percentage", "value", 0.5, "remove", false),
		message("ClientQuotaRecord", "entity", []schema.Struct{entity("planet", "p")}, "key", "request_percentage", "value", 0.5, "remove", false),
		message("FeatureLevelRecord", "name", "transaction.version", "featureLevel", int16(9)),
		message("FeatureLevelRecord", "name", "group.version", "featureLevel", int16(1)),
		message("DelegationTokenRecord", "tokenId", "a"), message("DelegationTokenRecord", "tokenId", "b"), message("RemoveDelegationTokenRecord", "tokenId", "a"),
		message("ProducerIdsRecord", "nextProducerId", int64(3000)),
		message("NoOpRecord"),
	} {
		if err := i.apply(m); err != nil {
			t.Fatal(m.Name, err)
		}
	}
	if err := i.check(); err != nil {
		t.Fatal(err)
	}
	p := i.Plan(vfs.NewMemory(), []string{"/d"}, 1, features)
	got := nodes(p)
	for _, want := range []string{
		`/brokers/topics/t/partitions/0/state {"controller_epoch":0,"leader":-1,"version":1,"leader_epoch":7,"isr":[1]}`,
		`/brokers/topics/t/partitions/1/state {"controller_epoch":0,"leader":-1,"version":1,"leader_epoch":6,"isr":[1]}`,
		`/config/topics/t {"version":1,"config":{"b":"2"}}`,
		`/config/brokers/7 {"version":1,"config":{"log.cleaner.threads":"3"}}`,
		`/config/users/<default>/clients/c {"version":1,"config":{"request_percentage":"0.5"}}`,
		`/latest_producer_id_block {"version":1,"broker":1,"block_start":"2000","block_end":"2999"}`,
		`/feature {"features":{"transaction.version":{"max_version_level":2}},"version":2,"status":1}`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "/config/brokers/8") || strings.Contains(got, "/kafka-acl") {
		t.Errorf("too much:\n%s", got)
	}
	lost := strings.Join(p.Lost, "; ")
	for _, want := range []string{"1 delegation token", `"x", a resource of type 99`, `user "u", of mechanism 9`, "a planet client"} {
		if !strings.Contains(lost, want) {
			t.Errorf("%q is not said in %q", want, lost)
		}
	}
	if !slices.Equal(p.Elsewhere, []string{"t"}) || p.Empty != 2 {
		t.Errorf("%+v", p)
	}
	for name, m := range map[string]schema.Message{
		"a topic twice":          message("TopicRecord", "name", "t", "topicId", id(1)),
		"removal of no topic":    message("RemoveTopicRecord", "topicId", id(2)),
		"partition of no topic":  message("PartitionRecord", "partitionId", int32(0), "topicId", id(2)),
		"change of no partition": message("PartitionChangeRecord", "partitionId", int32(9), "topicId", id(1)),
	} {
		if err := i.apply(m); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := i.apply(message("PartitionRecord", "partitionId", int32(5), "topicId", id(1))); err != nil || !errors.Is(i.check(), ErrBroken) {
		t.Errorf("a partition is missing: %v", err)
	}
}

// TestLogAlone: snapshot and records behind it say the same as all records from the first on.
func TestLogAlone(t *testing.T) {
	dir := copied(t, fixture)
	if err := os.Remove(filepath.Join(dir, metadataDir, snapped)); err != nil {
		t.Fatal(err)
	}
	a, b := read(t, fixture), read(t, dir)
	if b.From == a.From {
		t.Fatalf("both from %s", a.From)
	}
	if x, y := nodes(a.Plan(vfs.OS(), []string{fixture}, 1, features)), nodes(b.Plan(vfs.OS(), []string{fixture}, 1, features)); x != y {
		t.Errorf("from the snapshot:\n%s\nfrom the log:\n%s", x, y)
	}
}

// TestOtherBroker: a broker that had no replicas of a topic gets all its partitions, empty.
func TestOtherBroker(t *testing.T) {
	p := read(t, fixture).Plan(vfs.OS(), []string{t.TempDir()}, 9, features)
	if p.Empty != p.Partitions || len(p.Elsewhere) != p.Topics {
		t.Errorf("%+v", p)
	}
}

// TestEpoch: what a log has seen counts, where the metadata are behind it.
func TestEpoch(t *testing.T) {
	dir := copied(t, fixture)
	if err := os.WriteFile(filepath.Join(dir, "orders-1", epochFile), []byte("0\n2\n0 0\n77 5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := nodes(read(t, dir).Plan(vfs.OS(), []string{dir}, 1, features)); !strings.Contains(got, `/brokers/topics/orders/partitions/1/state {"controller_epoch":0,"leader":-1,"version":1,"leader_epoch":77,"isr":[1]}`) {
		t.Error(got)
	}
}

// TestDamage: what is not whole is not used at all, but for an append that Kafka's death cut short.
func TestDamage(t *testing.T) {
	size := func(dir, name string) int64 {
		info, err := os.Stat(filepath.Join(dir, metadataDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	flip := func(dir, name string, at int64) {
		f, err := os.OpenFile(filepath.Join(dir, metadataDir, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var b [1]byte
		f.ReadAt(b[:], at)
		b[0] ^= 0x40
		f.WriteAt(b[:], at)
	}
	cut := func(dir, name string, off int64) {
		if err := os.Truncate(filepath.Join(dir, metadataDir, name), size(dir, name)-off); err != nil {
			t.Fatal(err)
		}
	}
	rm := func(parts ...string) {
		if err := os.Remove(filepath.Join(parts...)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		do    func(dir string)
		whole bool
		from  string
	}{
		{"a bit of the log", func(d string) { flip(d, logName, 700) }, false, ""},
		{"a bit of the snapshot, the log has all", func(d string) { flip(d, snapped, 700) }, true, "00000000000000000000-0000000000.checkpoint"},
		{"a bit of both", func(d string) { flip(d, snapped, 700); flip(d, logName, 700) }, false, ""},
		{"a snapshot that is cut", func(d string) { cut(d, snapped, 80) }, true, "00000000000000000000-0000000000.checkpoint"},
		{"a log that is cut after a clean stop", func(d string) { cut(d, logName, 10) }, false, ""},
		{"a log that is cut after a crash", func(d string) { cut(d, logName, 10); rm(d, cleanFile) }, true, snapped},
		{"no log", func(d string) { rm(d, metadataDir, logName) }, true, snapped},
		{"a log that begins too late", func(d string) {
			rm(d, metadataDir, snapped)
			if err := os.Rename(filepath.Join(d, metadataDir, logName), filepath.Join(d, metadataDir, "00000000000000000030.log")); err != nil {
				t.Fatal(err)
			}
		}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copied(t, fixture)
			c.do(dir)
			i, at, err := Read(vfs.OS(), []string{dir}, "")
			if at != filepath.Join(dir, metadataDir) {
				t.Errorf("in %q", at)
			}
			switch {
			case c.whole && (err != nil || i.From != c.from):
				t.Errorf("%v, %v", i, err)
			case !c.whole && !errors.Is(err, ErrBroken):
				t.Errorf("%v, %v", i, err)
			}
		})
	}
}

// TestCluster: metadata of another cluster are not taken over, and no metadata are no error.
func TestCluster(t *testing.T) {
	if _, dir, err := Read(vfs.OS(), []string{fixture}, "another"); err == nil || errors.Is(err, ErrBroken) || dir == "" {
		t.Error(dir, err)
	}
	if i, dir, err := Read(vfs.OS(), []string{t.TempDir(), filepath.Join(t.TempDir(), "none")}, ""); i != nil || dir != "" || err != nil {
		t.Error(i, dir, err)
	}
}

// TestBootstrap: a directory that was formatted by a Kafka before 4.0 and never used has only this.
func TestBootstrap(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join(fixture, metadataDir, "00000000000000000000-0000000000.checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, bootstrapFile), data, 0o644); err != nil {
		t.Fatal(err)
	}
	i := read(t, dir)
	if i.features["transaction.version"] != 2 || i.From != bootstrapFile {
		t.Errorf("%v", i)
	}
}

// varint is an unsigned one, as lengths are; a compact string has one more.
func metadataRecord(id, version byte, fields ...any) []byte {
	b := []byte{metadataFrameVersion, id, version}
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			b = append(append(b, byte(len(f)+1)), f...)
		case []byte:
			b = append(b, f...)
		case int:
			b = append(b, byte(f))
		}
	}
	return b
}

const metadataFrameVersion = 1

// TestTransactions: records between the marks of a transaction count when it ends, and not if it
// was aborted or did not end.
func TestTransactions(t *testing.T) {
	id := func(n byte) []byte { return append(make([]byte, 15), n) }
	topic := func(name string, n byte) []byte { return metadataRecord(2, 0, name, id(n), 0) }
	begin, end, abort := metadataRecord(23, 0, 0), metadataRecord(24, 0, 0), metadataRecord(25, 0, 0)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, metadataDir), 0o755); err != nil {
		t.Fatal(err)
	}
	var log []byte
	next := int64(0)
	for _, batch := range [][][]byte{{topic("before", 1)}, {begin, topic("whole", 2)}, {topic("too", 3), end}, {begin, topic("aborted", 4), abort}, {topic("between", 5)}, {begin, topic("open", 6)}} {
		b := record.NewBuilder(nil, record.BuilderOptions{BaseOffset: next})
		for _, r := range batch {
			b.Add(1, nil, r)
		}
		done := b.Finish()
		next = done.NextOffset()
		log = append(log, done...)
	}
	if err := os.WriteFile(filepath.Join(dir, metadataDir, logName), log, 0o644); err != nil {
		t.Fatal(err)
	}
	i := read(t, dir)
	var names []string
	for name := range i.names {
		names = append(names, name)
	}
	if slices.Sort(names); strings.Join(names, " ") != "before between too whole" {
		t.Errorf("%q", names)
	}
}

func TestCompacted(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, cleanerFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("0\n2\na 0 31\nb 4 0\n")
	if got := Compacted(vfs.OS(), []string{dir, filepath.Join(dir, "none")}); len(got) != 2 || !got["a"] || !got["b"] {
		t.Errorf("%v", got)
	}
	for _, text := range []string{"", "1\n1\na 0 1\n", "0\n2\na 0 1\n", "0\n0\n"} {
		if write(text); len(Compacted(vfs.OS(), []string{dir})) != 0 {
			t.Errorf("%q is read", text)
		}
	}
}

func TestOldFormat(t *testing.T) {
	dirs := []string{t.TempDir(), "../../log/testdata/kafka-3.9.1-zk-old-formats/data"}
	for topic, want := range map[string]bool{"fmt-v0": true, "fmt-v1": true, "fmt-v2": false, "none": false} {
		if got := OldFormat(vfs.OS(), dirs, topic, 0); got != want {
			t.Errorf("%s: %v", topic, got)
		}
	}
}

// FuzzRead: whatever lies there, it is an image or an error.
func FuzzRead(f *testing.F) {
	for _, name := range []string{logName, snapped} {
		data, err := os.ReadFile(filepath.Join(fixture, metadataDir, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, []byte("0\n1\norders 0 3\n"))
	}
	f.Fuzz(func(t *testing.T, data, small []byte) {
		mem := vfs.NewMemory()
		for b := range record.All(data) { // checksums are right: what comes behind them is tried
			b.UpdateCRC()
		}
		for name, content := range map[string][]byte{metadataDir + "/" + logName: data, metadataDir + "/" + snapped: data, cleanerFile: small, "orders-0/" + epochFile: small} {
			path := filepath.Join("/d", name)
			if err := mem.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			file, err := mem.OpenFile(path, os.O_CREATE|os.O_RDWR, fs.FileMode(0o644))
			if err != nil {
				t.Fatal(err)
			}
			file.WriteAt(content, 0)
			file.Close()
		}
		Compacted(mem, []string{"/d"})
		if i, _, err := Read(mem, []string{"/d"}, ""); err == nil && i != nil {
			i.Plan(mem, []string{"/d"}, 1, features)
		}
	})
}
