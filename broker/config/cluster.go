package config

import (
	"slices"
	"strings"
)

// spoken are the values of inter.broker.protocol.version for the one protocol that is spoken to other
// brokers.
var spoken = []string{"3.9-IV0", "3.9"}

// setCluster settles what only counts in a cluster, and for it alone.
func (b *Broker) setCluster(settings map[string]string) error {
	if b.ZooKeeperConnectionTimeoutMs == 0 {
		b.ZooKeeperConnectionTimeoutMs = b.ZooKeeperSessionTimeoutMs
	}
	b.ZooKeeperConnect = trim(b.ZooKeeperConnect)
	if b.ZooKeeperConnect == "" {
		return nil
	}
	if version, set := settings["inter.broker.protocol.version"]; set && !slices.Contains(spoken, version) && !strings.HasPrefix(version, "3.9.") {
		return invalidValue("inter.broker.protocol.version", version, "brokers are spoken to by the protocol of 3.9; allowed are "+strings.Join(spoken, " and "))
	}
	if len(b.raw.processRoles) > 0 {
		return invalidValue("process.roles", strings.Join(b.raw.processRoles, ","), "It is of KRaft, and zookeeper.connect is set; allowed is one of them")
	}
	return nil
}
