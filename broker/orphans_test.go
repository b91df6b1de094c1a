package broker

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// running starts a broker on a directory and gives a client of it; stop ends both.
func running(t *testing.T, dir string) (client *kgo.Client, stop func()) {
	t.Helper()
	ready := make(chan struct{})
	b, err := New(Options{
		Settings: map[string]string{"log.dirs": dir, "listeners": "PLAINTEXT://127.0.0.1:0"},
		Ready:    func(Ready) { close(ready) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	<-ready
	client, err = kgo.NewClient(kgo.SeedBrokers(b.Addrs()[0].Addr.String()), kgo.AllowAutoTopicCreation(),
		kgo.DefaultProduceTopic("kept"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	return client, func() {
		client.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func produce(t *testing.T, c *kgo.Client, value string) {
	t.Helper()
	if err := c.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func topicID(t *testing.T, c *kgo.Client, name string) kadm.TopicID {
	t.Helper()
	topics, err := kadm.NewClient(c).ListTopics(t.Context(), name)
	if err != nil || topics[name].Err != nil {
		t.Fatal(err, topics[name].Err)
	}
	return topics[name].ID
}

// TestRegistryLost: the topics come back from their logs, with their ids and their records, and
// what is written then follows them.
func TestRegistryLost(t *testing.T) {
	dir := t.TempDir()
	c, stop := running(t, dir)
	produce(t, c, "a")
	id := topicID(t, c, "kept")
	stop()
	if err := os.Remove(filepath.Join(dir, registryFile)); err != nil {
		t.Fatal(err)
	}
	c, stop = running(t, dir)
	defer stop()
	if now := topicID(t, c, "kept"); now != id {
		t.Errorf("topic id %v, was %v", now, id)
	}
	configs, err := kadm.NewClient(c).DescribeTopicConfigs(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range configs[0].Configs {
		if e.Key == "retention.ms" && e.MaybeValue() != "-1" { // old records would go before anybody could say what they are
			t.Errorf("retention.ms %s", e.MaybeValue())
		}
	}
	produce(t, c, "b")
	c.AddConsumeTopics("kept")
	var got []string
	for len(got) < 2 {
		f := c.PollFetches(t.Context())
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range f.Records() {
			got = append(got, string(r.Value))
		}
	}
	if strings.Join(got, " ") != "a b" {
		t.Errorf("got %q", got)
	}
}

// TestCopiedDirectory: a copy of a partition's directory becomes a topic with an id of its own, for clients
// ask for records by the id.
func TestCopiedDirectory(t *testing.T) {
	dir := t.TempDir()
	c, stop := running(t, dir)
	produce(t, c, "a")
	id := topicID(t, c, "kept")
	stop()
	if err := os.Remove(filepath.Join(dir, registryFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "sister-0"), os.DirFS(filepath.Join(dir, "kept-0"))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, stop = running(t, dir)
		if now, other := topicID(t, c, "kept"), topicID(t, c, "sister"); now != id || other == id || other == (kadm.TopicID{}) {
			t.Errorf("topic ids %v and %v, was %v", now, other, id)
		}
		produce(t, c, "b")
		c.AddConsumeTopics("sister")
		f := c.PollFetches(t.Context())
		if r := f.Records(); f.Err() != nil || len(r) != 1 || string(r[0].Value) != "a" {
			t.Errorf("%v, %v", f.Err(), r)
		}
		stop()
	}
}

// TestLogWithoutTopic: beside topics that are known it is set aside, and a new topic of its name
// can be made.
func TestLogWithoutTopic(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	c, stop := running(t, other)
	produce(t, c, "old")
	stop()
	c, stop = running(t, dir)
	if _, err := kadm.NewClient(c).CreateTopic(t.Context(), 1, 1, nil, "another"); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := os.Rename(filepath.Join(other, "kept-0"), filepath.Join(dir, "kept-0")); err != nil {
		t.Fatal(err)
	}
	c, stop = running(t, dir)
	defer stop()
	aside, err := filepath.Glob(filepath.Join(dir, "kept-0.*-stray"))
	if err != nil || len(aside) != 1 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	produce(t, c, "new")
	c.AddConsumeTopics("kept")
	f := c.PollFetches(t.Context())
	if r := f.Records(); f.Err() != nil || len(r) != 1 || string(r[0].Value) != "new" {
		t.Errorf("%v, %v", f.Err(), r)
	}
}

// TestAnotherTopicsLog: a log that has the name of a topic and another id is set aside, and the topic
// works at once, both where the start opens the log and where it is left for later.
func TestAnotherTopicsLog(t *testing.T) {
	for _, clean := range []bool{true, false} {
		dir := t.TempDir()
		c, stop := running(t, dir)
		produce(t, c, "a")
		stop()
		other := "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg"
		if err := os.WriteFile(filepath.Join(dir, "kept-0", "partition.metadata"), []byte(other), 0o644); err != nil {
			t.Fatal(err)
		}
		if !clean {
			if err := os.Remove(filepath.Join(dir, ".kafka_cleanshutdown")); err != nil {
				t.Fatal(err)
			}
		}
		c, stop = running(t, dir)
		produce(t, c, "b")
		ends, err := kadm.NewClient(c).ListEndOffsets(t.Context(), "kept")
		if err != nil {
			t.Fatal(err)
		}
		if end, ok := ends.Lookup("kept", 0); !ok || end.Err != nil || end.Offset != 1 {
			t.Errorf("clean %v: the topic ends at %v", clean, end)
		}
		stop()
		if set, _ := filepath.Glob(filepath.Join(dir, "kept-0.*-stray")); len(set) != 1 {
			t.Errorf("clean %v: set aside %q", clean, set)
		}
	}
}

// TestLogDirsAfterStart: what is on disk is told from the first moment on.
func TestLogDirsAfterStart(t *testing.T) {
	dir := t.TempDir()
	c, stop := running(t, dir)
	if _, err := kadm.NewClient(c).CreateTopic(t.Context(), 200, 1, nil, "many"); err != nil {
		t.Fatal(err)
	}
	stop()
	c, stop = running(t, dir)
	defer stop()
	dirs, err := kadm.NewClient(c).DescribeAllLogDirs(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	dirs.Each(func(d kadm.DescribedLogDir) {
		count += len(d.Topics["many"])
	})
	if count != 200 {
		t.Errorf("%d partitions are told of", count)
	}
}
