package config

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

// TestCheckTopicSaysWhatKafkaSays has answers recorded from Kafka 4.4.0 to CreateTopics.
func TestCheckTopicSaysWhatKafkaSays(t *testing.T) {
	s := buildOK(t, nil)
	const throttledText = " must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
	for _, c := range []struct{ values, err string }{
		{"nope=1", "Unknown topic config name: nope"},
		{"nope2=1;retention.ms=x", "Unknown topic config name: nope2"},
		{"retention.ms=x", "Invalid value x for configuration retention.ms: Not a number of type LONG"},
		{"retention.ms=-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"},
		{"retention.ms=", "Invalid value  for configuration retention.ms: Not a number of type LONG"},
		{"retention.ms=9223372036854775808", "Invalid value 9223372036854775808 for configuration retention.ms: Not a number of type LONG"},
		{"cleanup.policy=foo", "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete"},
		{"cleanup.policy=Compact", "Invalid value Compact for configuration cleanup.policy: String must be one of: compact, delete"},
		{"cleanup.policy=compact,", "Configuration 'cleanup.policy' values must not be empty."},
		{"cleanup.policy=delete,delete", ""},
		{"cleanup.policy=", ""},
		{"cleanup.policy=compact, delete", ""},
		{"compression.type=none", "Invalid value none for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"compression.gzip.level=0", "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"},
		{"compression.gzip.level=10", "Invalid value 10 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"},
		{"compression.gzip.level=-1", ""},
		{"compression.lz4.level=18", "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17"},
		{"compression.lz4.level=0", "Invalid value 0 for configuration compression.lz4.level: Value must be at least 1"},
		{"compression.zstd.level=99", "Invalid value 99 for configuration compression.zstd.level: Value must be no more than 22"},
		{"min.cleanable.dirty.ratio=2", "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"},
		{"min.cleanable.dirty.ratio=x", "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE"},
		{"unclean.leader.election.enable=yes", "Invalid value yes for configuration unclean.leader.election.enable: Expected value to be either true or false"},
		{"unclean.leader.election.enable= TRUE ", ""},
		{"min.insync.replicas=0", "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"},
		{"segment.bytes=1000", "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576"},
		{"segment.bytes=3000000000", "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT"},
		{"segment.bytes=1.5", "Invalid value 1.5 for configuration segment.bytes: Not a number of type INT"},
		{"segment.bytes= +2000000 ", ""},
		{"internal.segment.bytes=1000", ""},
		{"message.timestamp.type=x", "Invalid value x for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime"},
		{"min.compaction.lag.ms=100;max.compaction.lag.ms=50", "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (50)"},
		{"remote.storage.enable=true", "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."},
		{"remote.storage.enable=false", ""},
		{"remote.log.copy.disable=true", ""},
		{"leader.replication.throttled.replicas=x", "Invalid value [x] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas" + throttledText},
		{"leader.replication.throttled.replicas=0:1,x", "Invalid value [0:1, x] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas" + throttledText},
		{"follower.replication.throttled.replicas=0:1:2", "Invalid value [0:1:2] for configuration follower.replication.throttled.replicas: follower.replication.throttled.replicas" + throttledText},
		{"follower.replication.throttled.replicas=*,0:1", "Invalid value [*, 0:1] for configuration follower.replication.throttled.replicas: follower.replication.throttled.replicas" + throttledText},
		{"leader.replication.throttled.replicas=*", ""},
		{"leader.replication.throttled.replicas=0:1,1:2", ""},
		{"follower.replication.throttled.replicas=", ""},
		{"segment.index.bytes=3", "Invalid value 3 for configuration segment.index.bytes: Value must be at least 4"},
		{"local.retention.ms=-3", "Invalid value -3 for configuration local.retention.ms: Value must be at least -2"},
		{"max.decompressed.message.bytes=2147483640", "Invalid value 2147483640 for configuration max.decompressed.message.bytes: Value must be no more than 2147483639"},
		{"retention.bytes=-5", ""},
		// 3.9.1 has these; 4.4.0 does not know them.
		{"message.format.version=2.0", ""},
		{"message.format.version=0.10.2", ""},
		{"message.downconversion.enable=false", ""},
		{"message.format.version=5.0", "Invalid value 5.0 for configuration message.format.version: Version `5.0` is not a valid version; allowed are 0.8.0 to 4.0"},
	} {
		checkError(t, c.values, s.CheckTopic(assignments(c.values)), c.err, ErrInvalidConfig)
	}
}

// assignments reads a=b;c=d.
func assignments(s string) map[string]string {
	m := map[string]string{}
	for _, a := range strings.Split(s, ";") {
		if name, value, ok := strings.Cut(a, "="); ok {
			m[name] = value
		}
	}
	return m
}

func checkError(t *testing.T, what string, err error, want string, kind error) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case want != "" && (err == nil || err.Error() != want || !errors.Is(err, kind)):
		t.Errorf("%s:\ngot  %v\nwant %s", what, err, want)
	}
}

// TestCheckBrokerSaysWhatKafkaSays has answers recorded from Kafka 4.4.0 to
// IncrementalAlterConfigs, but for the listeners, which Kafka could change.
func TestCheckBrokerSaysWhatKafkaSays(t *testing.T) {
	s := buildOK(t, nil)
	for _, c := range []struct {
		values    string
		perBroker bool
		err       string
	}{
		{"log.retention.ms=3600001", true, ""},
		{"log.retention.ms=3600002;log.segment.bytes=20000000", false, ""},
		{"my.custom=x", true, ""},
		{"leader.replication.throttled.rate=1000", true, ""},
		{"max.connections.per.ip.overrides=1.2.3.4:5", true, ""},
		{"listener.name.plaintext.max.connections=7", false, ""},
		{"sasl.jaas.config=zz", true, ""},
		{"log.retention.hours=3", false, "Cannot update these configs dynamically: [log.retention.hours]"},
		{"log.dirs=/tmp/x;num.partitions=1", true, "Cannot update these configs dynamically: [log.dirs, num.partitions]"},
		{"process.roles=x", false, "Cannot update these configs dynamically: [process.roles]"},
		{"log.retention.ms=x", true, "Invalid value x for configuration log.retention.ms: Not a number of type LONG"},
		{"log.segment.bytes=1", true, "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576"},
		{"max.connections=x", true, "Invalid value x for configuration max.connections: Not a number of type INT"},
		{"listeners=PLAINTEXT://:1", false, "Cannot update these configs at default cluster level, broker id must be specified: [listeners]"},
		{"listeners=PLAINTEXT://:1", true, "Cannot update these configs while ottla runs, they need a restart: [listeners]"},
		{"ssl.keystore.location=x", true, "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]"},
		{"listener.name.plaintext.ssl.keystore.location=x", false, "Cannot update these configs at default cluster level, broker id must be specified: [listener.name.plaintext.ssl.keystore.location]"},
		{"max.connections.per.ip=0", true, "Invalid value 0 for configuration max.connections.per.ip: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."},
		{"log.retention.ms=0", true, "Invalid value 0 for configuration log.retention.ms: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"},
		{"num.io.threads=4;num.network.threads=6;log.cleaner.threads=2;num.replica.fetchers=2", true, ""},
		{"num.io.threads=3", true, threads("Dynamic thread count update validation failed for num.io.threads=3, value should be at least half the current value 8")},
		{"num.io.threads=17", false, threads("Dynamic thread count update validation failed for num.io.threads=17, value should not be greater than double the current value 8")},
		{"background.threads=0", true, "Invalid value 0 for configuration background.threads: Value must be at least 1"},
		{"num.recovery.threads.per.data.dir=5", true, threads("Dynamic thread count update validation failed for num.recovery.threads.per.data.dir=5, value should not be greater than double the current value 2")},
		{"log.cleaner.threads=3", true, threads("Log cleaner threads cannot be increased to more than double the current value 1")},
		{"log.cleaner.threads=0", true, threads("Log cleaner threads should be at least 1")}, // 4.4.0 says "/ by zero", of its own fault
		{"cordoned.log.dirs=/x", true, "Invalid value /x for configuration cordoned.log.dirs: directories cannot be taken out of use; allowed is no value"},
	} {
		checkError(t, c.values, s.CheckBroker(assignments(c.values), c.perBroker), c.err, ErrInvalidRequest)
	}
}

func threads(reason string) string {
	return "Invalid value org.apache.kafka.common.config.ConfigException: " + reason + " for configuration Invalid dynamic configuration"
}

func TestCheckGroupSaysWhatKafkaSays(t *testing.T) {
	s := buildOK(t, nil)
	for _, c := range []struct{ values, err string }{
		{"nope=1", "Unknown group config name: nope"},
		{"consumer.session.timeout.ms=1", "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."},
		{"consumer.heartbeat.interval.ms=1", "consumer.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive."},
		{"consumer.session.timeout.ms=x", "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT"},
		{"consumer.session.timeout.ms=0", "Invalid value 0 for configuration consumer.session.timeout.ms: Value must be at least 1"},
		{"consumer.session.timeout.ms=46000", ""},
		{"share.auto.offset.reset=x", "Invalid value x for configuration share.auto.offset.reset: Invalid value `x` for configuration share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."},
		{"share.auto.offset.reset=by_duration:PT1H", ""},
		{"share.auto.offset.reset=by_duration:P1DT2H3M4.5S", ""},
		{"share.record.lock.duration.ms=1000", "share.record.lock.duration.ms must be in the range 15000 to 60000 inclusive."},
		{"streams.num.standby.replicas=10", "streams.num.standby.replicas must be less than or equal to 2"},
		{"consumer.session.timeout.ms=x;consumer.heartbeat.interval.ms=1", "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT"},
		{"streams.rack.aware.assignment.tags=a,b,a", "streams.rack.aware.assignment.tags must not contain duplicate tag keys."},
		{"streams.rack.aware.assignment.tags=a,b", ""},
		{"streams.assignor.name=nope", "streams.assignor.name 'nope' is not a registered task assignor. Registered assignors are: [sticky]."},
		{"streams.assignor.name=sticky", ""},
		{"errors.deadletterqueue.topic.name=__x", "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'"},
		{"errors.deadletterqueue.topic.name=x", ""},
	} {
		checkError(t, c.values, s.CheckGroup(assignments(c.values)), c.err, ErrInvalidConfig)
	}
	s = buildOK(t, map[string]string{"group.consumer.min.session.timeout.ms": "100", "group.consumer.min.heartbeat.interval.ms": "100"})
	for _, c := range []struct{ values, err string }{
		{"consumer.session.timeout.ms=5000", "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"},
		{"consumer.session.timeout.ms=5001", ""},
		{"consumer.session.timeout.ms=300;consumer.heartbeat.interval.ms=300", "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"},
		{"consumer.session.timeout.ms=300;consumer.heartbeat.interval.ms=200", ""},
	} {
		checkError(t, c.values, s.CheckGroup(assignments(c.values)), c.err, ErrInvalidConfig)
	}
	for _, d := range []string{"", "P", "PT", "P1", "PT1", "1H", "PT1HT", "PTH", "P-1D", "PT1.5H", "P1DT"} {
		if isoDuration(d) {
			t.Errorf("%q is taken for a duration", d)
		}
	}
}

func TestCheckClientMetricsSaysWhatKafkaSays(t *testing.T) {
	s := buildOK(t, nil)
	for _, c := range []struct {
		values, err string
		kind        error
	}{
		{"nope=1", "Unknown client metrics configuration: nope", ErrInvalidRequest},
		{"interval.ms=1", "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)", ErrInvalidRequest},
		{"interval.ms=x", "Invalid value x for configuration interval.ms: Not a number of type INT", ErrInvalidConfig},
		{"match=x", "Illegal client matching pattern: x", ErrInvalidConfig},
		{"match=client_id=(", "Illegal client matching pattern: client_id=(", ErrInvalidConfig},
		{"match=client_id=a.*", "", nil},
		{"metrics=org.apache.", "", nil},
	} {
		checkError(t, c.values, s.CheckClientMetrics(assignments(c.values)), c.err, c.kind)
	}
}

func TestEdit(t *testing.T) {
	s := buildOK(t, nil)
	for _, c := range []struct {
		kind, now string
		edit      Edit
		want, err string
	}{
		{Topics, "a=1", Edit{Set, "b", "2"}, "a=1;b=2", ""},
		{Topics, "a=1;b=2", Edit{Delete, "a", ""}, "b=2", ""},
		{Topics, "a=1", Edit{Delete, "nope", ""}, "a=1", ""},
		{Topics, "", Edit{Append, "cleanup.policy", "compact"}, "cleanup.policy=delete,compact", ""},
		{Topics, "cleanup.policy=delete,compact", Edit{Append, "cleanup.policy", "compact"}, "cleanup.policy=delete,compact", ""},
		{Topics, "cleanup.policy=delete,compact", Edit{Subtract, "cleanup.policy", "delete"}, "cleanup.policy=compact", ""},
		{Topics, "cleanup.policy=compact", Edit{Subtract, "cleanup.policy", "compact"}, "cleanup.policy=", ""},
		{Topics, "", Edit{Append, "follower.replication.throttled.replicas", "0:1,1:1"}, "follower.replication.throttled.replicas=0:1,1:1", ""},
		{Topics, "", Edit{Append, "retention.ms", "1"}, "", "Can't APPEND to key retention.ms because its type is not LIST."},
		{Topics, "", Edit{Subtract, "nope", "1"}, "", "Can't SUBTRACT to key nope because its type is not LIST."},
		{Brokers, "", Edit{Append, "log.cleanup.policy", "compact"}, "log.cleanup.policy=delete,compact", ""},
		{Brokers, "", Edit{Append, "log.retention.ms", "1"}, "", "Config value append is not allowed for config key: log.retention.ms"},
		{Brokers, "", Edit{Append, "nope", "1"}, "", "Unknown config name: nope"},
		{Groups, "", Edit{Append, "streams.rack.aware.assignment.tags", "a"}, "", "Can't APPEND to key streams.rack.aware.assignment.tags because its type is not LIST."},
		{ClientMetrics, "", Edit{Append, "interval.ms", "1"}, "", "Can't APPEND to key interval.ms because its type is not LIST."},
		{Topics, "", Edit{9, "retention.ms", "1"}, "", "Unknown operations type 9"},
	} {
		got, err := s.Edit(c.kind, assignments(c.now), []Edit{c.edit})
		switch {
		case c.err != "":
			if err == nil || err.Error() != c.err {
				t.Errorf("%v: %v, want %s", c.edit, err, c.err)
			}
		case err != nil || !maps.Equal(got, assignments(c.want)):
			t.Errorf("%v on %s: %v, %v", c.edit, c.now, got, err)
		}
	}
}
