package config

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
)

// golden reads a recording of testdata, whose first lines say how it was made.
func golden(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") })
}

// line writes an entry as the recordings have it.
func line(e Entry) string {
	text := func(v *string) string {
		if v == nil {
			return "<null>"
		}
		return *v
	}
	var synonyms []string
	for _, y := range e.Synonyms {
		synonyms = append(synonyms, fmt.Sprintf("%s=%s(%d)", y.Name, text(y.Value), y.Source))
	}
	return fmt.Sprintf("%s\t%s\tsrc %d\ttype %d\tro %v\tsens %v\t%s", e.Name, text(e.Value), e.Source, e.Type, e.ReadOnly, e.Sensitive, strings.Join(synonyms, " "))
}

// same compares entries with a recording. Differences that are there on purpose are given as
// the lines that ottla has instead; "" where it has none, and further names where only it has one.
func same(t *testing.T, entries []Entry, want []string, instead map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, e := range entries {
		got[e.Name] = line(e)
	}
	for _, w := range want {
		name, _, _ := strings.Cut(w, "\t")
		if other, ok := instead[name]; ok {
			w = other
		}
		if got[name] != w {
			t.Errorf("got  %s\nwant %s", got[name], w)
		}
		delete(got, name)
	}
	for name, g := range got {
		if w := instead[name]; w != g {
			t.Errorf("Kafka does not have %q (want %q)", g, w)
		}
	}
}

func TestDescribeTopicIsKafkas(t *testing.T) {
	s := buildOK(t, map[string]string{"log.retention.hours": "100"})
	s.Apply(Topics, "t1", map[string]string{"retention.ms": "7654321"})
	same(t, s.DescribeTopic("t1"), golden(t, "kafka-4.4.0-topic.tsv"), map[string]string{
		// Kafka sets it cluster-wide where eligible leader replicas are on.
		"min.insync.replicas":            "min.insync.replicas\t1\tsrc 5\ttype 3\tro false\tsens false\tmin.insync.replicas=1(5)",
		"message.timestamp.after.max.ms": "message.timestamp.after.max.ms\t9223372036854775807\tsrc 5\ttype 5\tro false\tsens false\tlog.message.timestamp.after.max.ms=9223372036854775807(5)",
	})
}

func TestDescribeBrokerIsKafkas(t *testing.T) {
	s := buildOK(t, map[string]string{
		"process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@127.0.0.1:39093",
		"listeners":            "PLAINTEXT://127.0.0.1:39092,CONTROLLER://127.0.0.1:39093",
		"advertised.listeners": "PLAINTEXT://127.0.0.1:39092", "inter.broker.listener.name": "PLAINTEXT",
		"controller.listener.names": "CONTROLLER", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs": "/tmp/kafka-data", "num.partitions": "1", "offsets.topic.replication.factor": "1",
		"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
		"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
		"group.initial.rebalance.delay.ms": "0", "log.retention.hours": "100",
	})
	same(t, s.DescribeBroker(), golden(t, "kafka-4.4.0-broker.tsv"), map[string]string{
		"min.insync.replicas":                "min.insync.replicas\t1\tsrc 5\ttype 3\tro false\tsens false\tmin.insync.replicas=1(5)",
		"log.message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms\t9223372036854775807\tsrc 5\ttype 5\tro false\tsens false\tlog.message.timestamp.after.max.ms=9223372036854775807(5)",
		"broker.id":                          "broker.id\t1\tsrc 4\ttype 3\tro true\tsens false\tbroker.id=1(4) broker.id=1(5)",
		"node.id":                            "node.id\t1\tsrc 4\ttype 3\tro true\tsens false\tnode.id=1(4) node.id=1(5)",
		"controller.listener.names":          "controller.listener.names\tCONTROLLER\tsrc 4\ttype 7\tro true\tsens false\tcontroller.listener.names=CONTROLLER(4) controller.listener.names=(5)",
		"process.roles":                      "process.roles\tbroker,controller\tsrc 4\ttype 7\tro true\tsens false\tprocess.roles=broker,controller(4) process.roles=(5)",
		"listeners":                          "listeners\tPLAINTEXT://127.0.0.1:39092,CONTROLLER://127.0.0.1:39093\tsrc 4\ttype 7\tro true\tsens false\tlisteners=PLAINTEXT://127.0.0.1:39092,CONTROLLER://127.0.0.1:39093(4) listeners=PLAINTEXT://localhost:9092(5)",
		"listener.security.protocol.map":     "listener.security.protocol.map\tPLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\tsrc 4\ttype 2\tro true\tsens false\tlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT(4) listener.security.protocol.map=SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT(5)",
		"log.dir":                            "log.dir\t./ottla-data\tsrc 5\ttype 7\tro true\tsens false\tlog.dir=./ottla-data(5)",
		"ottla.request.max.bytes":            "ottla.request.max.bytes\t16777216\tsrc 5\ttype 3\tro true\tsens false\tottla.request.max.bytes=16777216(5)",
		"inter.broker.protocol.version":      "inter.broker.protocol.version\t3.9-IV0\tsrc 5\ttype 2\tro true\tsens false\t",
	})
}

// TestDescribeDynamic has the dynamic settings that the recordings were made with.
func TestDescribeDynamic(t *testing.T) {
	s := buildOK(t, map[string]string{"log.roll.hours": "100"})
	s.Apply(Brokers, DefaultName, map[string]string{"log.segment.bytes": "20000000", "log.roll.ms": "777", "nope.custom": "v"})
	s.Apply(Brokers, "1", map[string]string{
		"log.flush.interval.ms": "55", "max.connections": "123", "sasl.jaas.config": "zz",
		"listener.name.plaintext.sasl.jaas.config": "zz", "listener.name.plaintext.max.connections": "7",
		"unclean.leader.election.enable": "true", "leader.replication.throttled.rate": "1000",
	})
	want := golden(t, "kafka-4.4.0-dynamic.tsv")
	some := func(entries []Entry) []Entry {
		return slices.DeleteFunc(entries, func(e Entry) bool {
			return !slices.ContainsFunc(want, func(l string) bool { return strings.HasPrefix(l, e.Name+"\t") })
		})
	}
	same(t, some(s.DescribeBroker()), want, nil)
	want = golden(t, "kafka-4.4.0-dynamic-topic.tsv")
	same(t, some(s.DescribeTopic("x1")), want, nil)

	var names []string
	for _, e := range s.DescribeBrokerDefaults() {
		names = append(names, line(e))
	}
	if got := strings.Join(names, "\n"); got != "log.roll.ms\t777\tsrc 3\ttype 5\tro false\tsens false\tlog.roll.ms=777(3)\n"+
		"log.segment.bytes\t20000000\tsrc 3\ttype 3\tro false\tsens false\tlog.segment.bytes=20000000(3)\n"+
		"nope.custom\t<null>\tsrc 3\ttype 0\tro true\tsens true\tnope.custom=<null>(3)" {
		t.Errorf("defaults of all brokers:\n%s", got)
	}
}

func TestDescribeGroupIsKafkas(t *testing.T) {
	s := buildOK(t, nil)
	s.Apply(Groups, NodeName(Groups, "a/g"), map[string]string{
		"consumer.heartbeat.interval.ms": "14000", "consumer.session.timeout.ms": "46000", "share.auto.offset.reset": "by_duration:PT1H"})
	same(t, s.DescribeGroup("a/g"), golden(t, "kafka-4.4.0-group.tsv"), nil)
	if got := s.Names(Groups); !slices.Equal(got, []string{"a/g"}) {
		t.Errorf("groups %q", got)
	}
	s.Apply(Groups, NodeName(Groups, "a/g"), nil)
	if got := s.Names(Groups); len(got) != 0 {
		t.Errorf("groups after the settings went: %q", got)
	}
}

func TestDescribeClientMetricsIsKafkas(t *testing.T) {
	s := buildOK(t, nil)
	s.Apply(ClientMetrics, "m", map[string]string{"match": "client_id=a.*", "metrics": "org.apache."})
	same(t, s.DescribeClientMetrics("m"), golden(t, "kafka-4.4.0-client-metrics.tsv"), nil)
}

func TestLoggers(t *testing.T) {
	level := new(slog.LevelVar)
	s, err := New(Options{Level: level})
	if err != nil {
		t.Fatal(err)
	}
	if got := line(s.DescribeLoggers()[0]); got != "root\tINFO\tsrc 6\ttype 0\tro false\tsens false\t" {
		t.Error(got)
	}
	for _, c := range []struct {
		edit Edit
		err  string
	}{
		{Edit{Set, "root", "DEBUGX"}, "Cannot set the log level of root to DEBUGX as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"},
		{Edit{Set, "nope", "DEBUG"}, "Logger nope does not exist!"},
		{Edit{Delete, "root", ""}, "Removing the log level of the root logger is not allowed"},
		{Edit{Append, "root", "INFO"}, "APPEND operation is not allowed for the BROKER_LOGGER resource"},
	} {
		if err := s.EditLoggers([]Edit{c.edit}, false); err == nil || err.Error() != c.err {
			t.Errorf("%v: %v", c.edit, err)
		}
	}
	if err := s.EditLoggers([]Edit{{Set, "root", "DEBUG"}}, true); err != nil || level.Level() != slog.LevelInfo {
		t.Error("validate only:", err, level)
	}
	if err := s.EditLoggers([]Edit{{Set, "root", "DEBUG"}}, false); err != nil || level.Level() != slog.LevelDebug {
		t.Error(err, level)
	}
}
