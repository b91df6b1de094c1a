package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestListeners(t *testing.T) {
	for _, c := range []struct{ settings, open, advertised, inter, err string }{
		{"", "PLAINTEXT:PLAINTEXT localhost 9092", "PLAINTEXT:PLAINTEXT  9092", "PLAINTEXT", ""},
		{"listeners=PLAINTEXT://:9092,", "PLAINTEXT:PLAINTEXT  9092", "PLAINTEXT:PLAINTEXT  9092", "PLAINTEXT", ""},
		{"listeners=plaintext://0.0.0.0:9092", "PLAINTEXT:PLAINTEXT 0.0.0.0 9092", "PLAINTEXT:PLAINTEXT  9092", "PLAINTEXT", ""},
		{"listeners=PLAINTEXT://[::]:9092", "PLAINTEXT:PLAINTEXT :: 9092", "PLAINTEXT:PLAINTEXT  9092", "PLAINTEXT", ""},
		{"listeners=PLAINTEXT://::1:0", "PLAINTEXT:PLAINTEXT ::1 0", "PLAINTEXT:PLAINTEXT  0", "PLAINTEXT", ""},
		{"listeners=PLAINTEXT://localhost:1;advertised.listeners=PLAINTEXT://kafka:2", "PLAINTEXT:PLAINTEXT localhost 1", "PLAINTEXT:PLAINTEXT kafka 2", "PLAINTEXT", ""},
		{"listeners=TC-0://:1, BROKER://:2,CONTROLLER://:3;listener.security.protocol.map=tc-0:plaintext , BROKER:PLAINTEXT,CONTROLLER:SSL,;controller.listener.names=controller;advertised.listeners=BROKER://b:2,;inter.broker.listener.name=broker",
			"TC-0:PLAINTEXT  1, BROKER:PLAINTEXT  2", "BROKER:PLAINTEXT b 2", "BROKER", ""},
		{"listeners=PLAINTEXT://1.2.3.4:1,B://[::1]:1;listener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
			"PLAINTEXT:PLAINTEXT 1.2.3.4 1, B:PLAINTEXT ::1 1", "PLAINTEXT:PLAINTEXT  1, B:PLAINTEXT  1", "PLAINTEXT", ""},
		{"listeners=EXTERNAL://:1;listener.security.protocol.map=EXTERNAL:PLAINTEXT", "EXTERNAL:PLAINTEXT  1", "EXTERNAL:PLAINTEXT  1", "EXTERNAL", ""},

		{"listeners=", "", "", "", "Invalid value  for configuration listeners: There must be at least one broker listener. Perhaps all listeners appear in controller.listener.names?"},
		{"listeners=9092", "", "", "", "Invalid value 9092 for configuration listeners: Unable to parse 9092 to a broker endpoint; expected NAME://host:port, with a port from 0 to 65535"},
		{"listeners=PLAINTEXT://a_b/c:1", "", "", "", "Invalid value PLAINTEXT://a_b/c:1 for configuration listeners: Unable to parse PLAINTEXT://a_b/c:1 to a broker endpoint; expected NAME://host:port, with a port from 0 to 65535"},
		{"listeners=PLAINTEXT://:65536", "", "", "", "Invalid value PLAINTEXT://:65536 for configuration listeners: Unable to parse PLAINTEXT://:65536 to a broker endpoint; expected NAME://host:port, with a port from 0 to 65535"},
		{"listeners=PLAINTEXT://:-1", "", "", "", "Invalid value PLAINTEXT://:-1 for configuration listeners: Unable to parse PLAINTEXT://:-1 to a broker endpoint; expected NAME://host:port, with a port from 0 to 65535"},
		{"listeners=PLAINTEXT://:1,plaintext://:2", "", "", "", "Invalid value PLAINTEXT://:1,plaintext://:2 for configuration listeners: Each listener must have a different name, listeners: PLAINTEXT://:1,plaintext://:2"},
		{"listeners=PLAINTEXT://:1,SSL://:1", "", "", "", "Invalid value PLAINTEXT://:1,SSL://:1 for configuration listeners: Each listener must have a different port unless exactly one listener has an IPv4 address and the other IPv6 address, listeners: PLAINTEXT://:1,SSL://:1, port: 1"},
		{"listeners=X://:1", "", "", "", "Invalid value X://:1 for configuration listeners: No security protocol defined for listener X; listener.security.protocol.map must have it"},
		{"listeners=SASL_SSL://:1", "", "", "", "Invalid value SASL_SSL://:1 for configuration listeners: Listener SASL_SSL has the security protocol SASL_SSL; allowed is PLAINTEXT"},
		{"listener.security.protocol.map=A:B", "", "", "", "Invalid value A:B for configuration listener.security.protocol.map: Invalid security protocol B; allowed are PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"},
		{"listener.security.protocol.map=A", "", "", "", "Invalid value A for configuration listener.security.protocol.map: Expected NAME:PROTOCOL, separated by commas, but found A"},
		{"advertised.listeners=PLAINTEXT://0.0.0.0:9092", "", "", "", "Invalid value PLAINTEXT://0.0.0.0:9092 for configuration advertised.listeners: advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."},
		{"advertised.listeners=SSL://a:9092", "", "", "", "Invalid value SSL://a:9092 for configuration advertised.listeners: advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found SSL. The valid options based on the current configuration are PLAINTEXT"},
		{"inter.broker.listener.name=X", "", "", "", "Invalid value X for configuration inter.broker.listener.name: inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based on currently configured listeners are PLAINTEXT"},
		{"inter.broker.listener.name=PLAINTEXT;security.inter.broker.protocol=PLAINTEXT", "", "", "", "Invalid value PLAINTEXT for configuration inter.broker.listener.name: Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."},
		{"security.inter.broker.protocol=SSL", "", "", "", "Invalid value SSL for configuration security.inter.broker.protocol: It must be a listener name defined in advertised.listeners, which are PLAINTEXT"},
		{"listeners=CONTROLLER://:1;controller.listener.names=CONTROLLER;process.roles=broker,controller", "", "", "", "Invalid value CONTROLLER://:1 for configuration listeners: There must be at least one broker listener. Perhaps all listeners appear in controller.listener.names?"},
	} {
		s, err := New(Options{Settings: assignments(c.settings)})
		if c.err != "" {
			checkError(t, c.settings, err, c.err, ErrInvalidConfig)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.settings, err)
			continue
		}
		b := s.Broker()
		if show := showListeners(b.Listeners); show != c.open {
			t.Errorf("%s: opens %s", c.settings, show)
		}
		if show := showListeners(b.Advertised); show != c.advertised {
			t.Errorf("%s: advertises %s", c.settings, show)
		}
		if b.InterBrokerListener != c.inter {
			t.Errorf("%s: between brokers %s", c.settings, b.InterBrokerListener)
		}
	}
}

func showListeners(listeners []Listener) string {
	var all []string
	for _, l := range listeners {
		all = append(all, fmt.Sprintf("%s:%s %s %d", l.Name, l.Protocol, l.Host, l.Port))
	}
	return strings.Join(all, ", ")
}

// TestComposeFile has the settings of the compose file that Kafka's own documentation gives
// (docker/examples/docker-compose-files/single-node/plaintext).
func TestComposeFile(t *testing.T) {
	b := buildOK(t, assignments("node.id=1;listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT;"+
		"advertised.listeners=PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092;process.roles=broker,controller;"+
		"controller.quorum.voters=1@broker:29093;listeners=CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092;"+
		"inter.broker.listener.name=PLAINTEXT;controller.listener.names=CONTROLLER;offsets.topic.replication.factor=1;"+
		"group.initial.rebalance.delay.ms=0;transaction.state.log.min.isr=1;transaction.state.log.replication.factor=1;"+
		"share.coordinator.state.topic.replication.factor=1;share.coordinator.state.topic.min.isr=1;log.dirs=/tmp/kraft-combined-logs")).Broker()
	if got := showListeners(b.Listeners); got != "PLAINTEXT_HOST:PLAINTEXT  9092, PLAINTEXT:PLAINTEXT  19092" {
		t.Error(got)
	}
	if got := showListeners(b.Advertised); got != "PLAINTEXT_HOST:PLAINTEXT localhost 9092, PLAINTEXT:PLAINTEXT broker 19092" {
		t.Error(got)
	}
}

func FuzzListeners(f *testing.F) {
	for _, s := range []string{"PLAINTEXT://:9092", "A://[::1]:0,B://1.2.3.4:1,", "://:", "SSL://host:65535", ",,", "A://B://c:1"} {
		f.Add(s, "A:PLAINTEXT,B:SSL")
	}
	f.Fuzz(func(t *testing.T, value, protocolMap string) {
		protocols, err := parseProtocolMap(protocolMap)
		if err != nil {
			protocols = map[string]string{"PLAINTEXT": "PLAINTEXT"}
		}
		listeners, err := parseListeners("listeners", splitList(trim(value)), protocols, nil, true)
		if err != nil {
			return
		}
		// What was read can be written and read again.
		var again []string
		for _, l := range listeners {
			again = append(again, fmt.Sprintf("%s://[%s]:%d", l.Name, l.Host, l.Port))
		}
		same, err := parseListeners("listeners", again, protocols, nil, true)
		if err != nil || showListeners(same) != showListeners(listeners) {
			t.Fatalf("%q is %s, and then %s, %v", value, showListeners(listeners), showListeners(same), err)
		}
	})
}
