//go:build clients

package integration

import "testing"

// TestGroupConfigsTool: kafka-configs of Kafka 4.4.0 on the settings of groups, and a consumer that is
// told of them.
func TestGroupConfigsTool(t *testing.T) {
	t.Parallel()
	k := openTools(t, "4.4.0", Start(t).Addr())
	groups := func(args ...string) []string { return append([]string{"--entity-type", "groups"}, args...) }
	k.run([]string{`Completed updating config for group g\.`}, "", "kafka-configs", groups("--entity-name", "g", "--alter", "--add-config", "consumer.heartbeat.interval.ms=6000,consumer.session.timeout.ms=50000")...)
	k.run([]string{`Dynamic configs for group g are:`, `consumer.heartbeat.interval.ms=6000 sensitive=false synonyms=\{DYNAMIC_GROUP_CONFIG:consumer.heartbeat.interval.ms=6000, DEFAULT_CONFIG:group.consumer.heartbeat.interval.ms=5000\}`},
		"", "kafka-configs", groups("--entity-name", "g", "--describe")...)
	k.run([]string{`All configs for group g are:`, `consumer.session.timeout.ms=50000`, `share.session.timeout.ms=45000`}, "", "kafka-configs", groups("--entity-name", "g", "--describe", "--all")...)
	k.run([]string{`Dynamic configs for group g are:`}, "", "kafka-configs", groups("--describe")...)
	k.refuse(`consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive`, "kafka-configs", groups("--entity-name", "g", "--alter", "--add-config", "consumer.session.timeout.ms=1")...)
	k.refuse(`Unknown group config name: nope`, "kafka-configs", groups("--entity-name", "g", "--alter", "--add-config", "nope=1")...)
	k.run(nil, "", "kafka-configs", groups("--entity-name", "g", "--alter", "--delete-config", "consumer.heartbeat.interval.ms,consumer.session.timeout.ms")...)
	k.run([]string{`The group 'g' doesn't exist and doesn't have dynamic config\.`}, "", "kafka-configs", groups("--entity-name", "g", "--describe")...)
}
