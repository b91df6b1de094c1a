package config

import (
	"bytes"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestNewNamesTheBrokenSetting(t *testing.T) {
	for _, c := range []struct{ settings, err string }{
		{"num.partitions=0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"},
		{"num.partitions=x", "Invalid value x for configuration num.partitions: Not a number of type INT"},
		{"auto.create.topics.enable=yes", "Invalid value yes for configuration auto.create.topics.enable: Expected value to be either true or false"},
		{"ssl.client.auth=maybe", "Invalid value maybe for configuration ssl.client.auth: String must be one of: required, requested, none"},
		{"group.consumer.migration.policy=UPgrade", ""},
		{"group.consumer.migration.policy=x", "Invalid value x for configuration group.consumer.migration.policy: String must be one of (case insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL"},
		{"node.id=2;broker.id=1", "Invalid value 2 for configuration node.id: You must set `node.id` to the same value as `broker.id`."},
		{"node.id=-1", "Invalid value -1 for configuration node.id: Value must be at least 0"},
		{"broker.id=-2", "Invalid value -2 for configuration broker.id: broker.id must be greater than or equal to -1"},
		{"broker.id=3000000000", "Invalid value 3000000000 for configuration broker.id: Not a number of type INT"},
		{"log.dirs=", "Invalid value  for configuration log.dirs: At least one log directory must be defined via log.dirs or log.dir."},
		{"log.dirs=a,b,a", "Invalid value a,b,a for configuration log.dirs: Each directory must be named once, but a is there twice"},
		{"process.roles=controller", "Invalid value controller for configuration process.roles: It must contain broker: ottla has no controllers apart from brokers. Allowed are broker and broker,controller"},
		{"process.roles=x", "Invalid value x for configuration process.roles: String must be one of: broker, controller"},
		{"zookeeper.connect=zk:2181", ""},
		{"zookeeper.connect=zk:2181;inter.broker.protocol.version=3.9", ""},
		{"zookeeper.connect=zk:2181;inter.broker.protocol.version=2.6", "Invalid value 2.6 for configuration inter.broker.protocol.version: brokers are spoken to by the protocol of 3.9; allowed are 3.9-IV0 and 3.9"},
		{"inter.broker.protocol.version=2.6", ""},
		{"zookeeper.connect=zk:2181;process.roles=broker", "Invalid value broker for configuration process.roles: It is of KRaft, and zookeeper.connect is set; allowed is one of them"},
		{"zookeeper.set.acl=true", "Invalid value true for configuration zookeeper.set.acl: nobody logs in to ZooKeeper, so nodes are open to everybody; allowed is false"},
		{"zookeeper.ssl.client.enable=true", "Invalid value true for configuration zookeeper.ssl.client.enable: ZooKeeper is spoken to without TLS; allowed is false"},
		{"zookeeper.connect=", ""},
		{"zookeeper.session.timeout.ms=6000", ""},
		{"remote.log.storage.system.enable=true", "Invalid value true for configuration remote.log.storage.system.enable: tiered storage is not built; allowed is false"},
		{"remote.log.storage.system.enable=false", ""},
		{"authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "Invalid value kafka.security.authorizer.AclAuthorizer for configuration authorizer.class.name: access control is not built; without it everybody may do everything, which this setting forbids; allowed is no value, or allow.everyone.if.no.acl.found=true beside it"},
		{"authorizer.class.name=kafka.security.authorizer.AclAuthorizer;allow.everyone.if.no.acl.found=true", ""},
		{"create.topic.policy.class.name=a.B", "Invalid value a.B for configuration create.topic.policy.class.name: it names a Java class, which ottla cannot run; allowed is no value"},
		{"queued.max.request.bytes=1000", "Invalid value 1000 for configuration queued.max.request.bytes: queued.max.request.bytes must be larger or equal to socket.request.max.bytes"},
		{"max.connections.per.ip=0", "Invalid value 0 for configuration max.connections.per.ip: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."},
		{"max.connections.per.ip=0;max.connections.per.ip.overrides=127.0.0.1:5", ""},
		{"max.connections.per.ip.overrides=a", "Invalid value a for configuration max.connections.per.ip.overrides: Expected host:count, separated by commas, but found a"},
		{"max.connections.per.ip.overrides=a:x", "Invalid value a:x for configuration max.connections.per.ip.overrides: Expected host:count with a count from 0 to 2147483647, but found a:x"},
		{"max.connections.per.ip.overrides=a/b:1", "Invalid value a/b:1 for configuration max.connections.per.ip.overrides: max.connections.per.ip.overrides contains invalid addresses : a/b"},
		{"offsets.topic.compression.codec=9", "Invalid value 9 for configuration offsets.topic.compression.codec: Unknown compression type id: 9; allowed are 0 to 4"},
		{"log.retention.minutes=0", "Invalid value 0 for configuration log.retention.minutes: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"},
		{"log.roll.ms=0", "Invalid value 0 for configuration log.roll.ms: log.roll.ms must be greater than or equal to 1"},
		{"log.cleanup.policy=x", "Invalid value x for configuration log.cleanup.policy: String must be one of: compact, delete"},
		{"listener.name.external.max.connections=x", "Invalid value x for configuration max.connections: Not a number of type INT"},
		{"inter.broker.protocol.version=2.8", ""},
		{"inter.broker.protocol.version=x", "Invalid value x for configuration inter.broker.protocol.version: Version `x` is not a valid version; allowed are 0.8.0 to 4.0"},
		{"jmx.port=9999", ""},
	} {
		_, err := New(Options{Settings: assignments(c.settings)})
		checkError(t, c.settings, err, c.err, ErrInvalidConfig)
	}
}

func TestDefaults(t *testing.T) {
	s := buildOK(t, nil)
	b := s.Broker()
	if b.ID != 1 || b.IDSet || !slices.Equal(b.LogDirs, []string{"./ottla-data"}) || b.MetadataLogDir != "" || b.BrokerRack != "" {
		t.Errorf("%+v", b)
	}
	if b.RequestMaxBytes != 16<<20 || b.SocketRequestMaxBytes != 100<<20 || !b.AutoCreateTopicsEnable || b.MaxConnectionsPerIPOverrides != nil {
		t.Errorf("%+v", b)
	}
	o := s.Topic("t").Log
	if o.SegmentBytes != 1<<30 || o.RetentionMs != 604800000 || o.RetentionBytes != -1 || !o.CleanupDelete || o.CleanupCompact ||
		o.LogAppendTime || o.Compression != "producer" || o.FlushMs != 9223372036854775807 || o.TimestampAfterMaxMs != math.MaxInt64 || o.SegmentJitterMs != 0 {
		t.Errorf("%+v", o)
	}
}

func TestIDs(t *testing.T) {
	for settings, want := range map[string]int32{"": 1, "node.id=0": 0, "broker.id=0": 0, "broker.id=-1": 1, "broker.id=-1;node.id=3": 3, "broker.id=3;node.id=3": 3} {
		b := buildOK(t, assignments(settings)).Broker()
		if b.ID != want || b.IDSet != (settings != "" && settings != "broker.id=-1") {
			t.Errorf("%s: id %d, set %v", settings, b.ID, b.IDSet)
		}
	}
}

// TestLayers: a topic's own settings come before the dynamic ones of the broker, those before
// the dynamic ones of all brokers, the static ones, the defaults.
func TestLayers(t *testing.T) {
	s := buildOK(t, map[string]string{"log.retention.hours": "1", "max.connections": "10"})
	retention := func(want int64) {
		t.Helper()
		if got := s.Topic("t").Log.RetentionMs; got != want {
			t.Errorf("retention %d, want %d", got, want)
		}
	}
	retention(3600000)
	s.Apply(Brokers, DefaultName, map[string]string{"log.retention.ms": "2000", "max.connections": "20"})
	retention(2000)
	s.Apply(Brokers, "2", map[string]string{"log.retention.ms": "1"})
	retention(2000)
	s.Apply(Brokers, "1", map[string]string{"log.retention.ms": "3000", "max.connections": "30"})
	retention(3000)
	s.Apply(Topics, "t", map[string]string{"retention.ms": "4000", "flush.messages": "1"})
	retention(4000)
	if got := s.Topic("other").Log.RetentionMs; got != 3000 {
		t.Errorf("another topic has %d", got)
	}
	if got := s.Broker().MaxConnections; got != 30 {
		t.Errorf("max.connections %d", got)
	}
	s.Apply(Topics, "t", map[string]string{"flush.messages": "1"})
	retention(3000)
	s.Apply(Brokers, "1", nil)
	retention(2000)
	if got := s.Topic("t").Log.FlushMessages; got != 1 {
		t.Errorf("flush.messages %d after the broker's settings changed", got)
	}
	s.Apply(Brokers, "", nil)
	retention(3600000)
	if got := s.Broker().MaxConnections; got != 10 {
		t.Errorf("max.connections %d", got)
	}
}

func TestTopicIsTheSameUntilItChanges(t *testing.T) {
	s := buildOK(t, nil)
	a := s.Topic("a")
	if s.Topic("b") != a {
		t.Error("topics without settings do not share")
	}
	s.Apply(Topics, "a", map[string]string{"retention.ms": "1"})
	own := s.Topic("a")
	if own == a || s.Topic("a") != own || s.Topic("b") != a {
		t.Error("not the same pointer")
	}
	s.Apply(Topics, "a", nil)
	if s.Topic("a") != a {
		t.Error("settings went, but the topic keeps its own snapshot")
	}
	if n := testing.AllocsPerRun(100, func() { s.Topic("a") }); n > 1 { // the name as a key of the map
		t.Errorf("%v allocations", n)
	}
}

// TestTimestampDifference: the setting of before Kafka 3.6 gives both bounds where they are not
// set themselves.
func TestTimestampDifference(t *testing.T) {
	s := buildOK(t, nil)
	s.Apply(Topics, "a", map[string]string{"message.timestamp.difference.max.ms": "5"})
	if o := s.Topic("a").Log; o.TimestampBeforeMaxMs != 5 || o.TimestampAfterMaxMs != 5 {
		t.Errorf("%+v", o)
	}
	s.Apply(Topics, "a", map[string]string{"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "7"})
	if o := s.Topic("a").Log; o.TimestampBeforeMaxMs != 5 || o.TimestampAfterMaxMs != 7 {
		t.Errorf("%+v", o)
	}
}

func TestInvalidStoredValuesAreLeftOut(t *testing.T) {
	var text bytes.Buffer
	s, err := New(Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(Topics, "a", map[string]string{"retention.ms": "x", "nope": "1", "segment.bytes": "2000000"})
	if o := s.Topic("a").Log; o.RetentionMs != 604800000 || o.SegmentBytes != 2000000 {
		t.Errorf("%+v", o)
	}
	s.Apply(Brokers, "1", map[string]string{"num.partitions": "5", "max.connections": "7", "max.connections.per.ip": "x"})
	if b := s.Broker(); b.NumPartitions != 1 || b.MaxConnections != 7 {
		t.Errorf("%+v", b)
	}
	if n := strings.Count(text.String(), "is not valid and is ignored"); n != 4 {
		t.Errorf("%d log lines:\n%s", n, &text)
	}
	before := s.Broker()
	s.Apply(Brokers, "1", map[string]string{"max.connections.per.ip": "0"})
	if s.Broker() != before || !strings.Contains(text.String(), "contradict each other") {
		t.Errorf("a contradiction was applied:\n%s", &text)
	}
}

func TestUnknownSettingsAreOneLogLine(t *testing.T) {
	var text bytes.Buffer
	_, err := New(Options{Settings: assignments("b.c=1;a.b=2;num.partitions=3;listener.name.x.ssl.client.auth=none;allow.everyone.if.no.acl.found=true"),
		Logger: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil || strings.Count(text.String(), "\n") != 1 || !strings.Contains(text.String(), `names="a.b, b.c"`) {
		t.Errorf("%v\n%s", err, &text)
	}
}

func TestNextTellsOfChanges(t *testing.T) {
	s := buildOK(t, nil)
	b, changed := s.Next()
	if b != s.Broker() {
		t.Error("not the current one")
	}
	s.Apply(Topics, "a", map[string]string{"retention.ms": "1"})
	select {
	case <-changed:
		t.Error("a topic's change is told as the broker's")
	default:
	}
	s.Apply(Brokers, "1", map[string]string{"max.connections": "5"})
	<-changed
	if b, _ := s.Next(); b.MaxConnections != 5 {
		t.Errorf("max.connections %d", b.MaxConnections)
	}
}

func TestConcurrentReadsAndChanges(t *testing.T) {
	s := buildOK(t, nil)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				switch i {
				case 0:
					s.Apply(Topics, "a", map[string]string{"retention.ms": "1"})
				case 1:
					s.Apply(Brokers, "1", map[string]string{"log.segment.bytes": "2000000"})
				case 2:
					s.DescribeTopic("a")
					s.DescribeBroker()
				default:
					if o := s.Topic("a").Log; o.RetentionMs != 1 && o.RetentionMs != 604800000 {
						t.Errorf("%+v", o)
					}
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkNew(b *testing.B) {
	settings := map[string]string{"log.retention.hours": "100", "listeners": "PLAINTEXT://:9092"}
	for b.Loop() {
		if _, err := New(Options{Settings: settings}); err != nil {
			b.Fatal(err)
		}
	}
}
