package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ottla/compat"
)

// Listener is one listener, or one advertised address. An empty host means every address of
// the machine in a listener, and the address by which the client came in an advertised one;
// port 0 means a free port, and the port that the listener of that name got.
type Listener struct {
	Name     string // upper case
	Protocol string
	Host     string
	Port     int
}

// plaintext is the protocol that can be opened.
const plaintext = "PLAINTEXT"

// parseProtocolMap reads listener.security.protocol.map: NAME:PROTOCOL, separated by commas.
func parseProtocolMap(value string) (map[string]string, error) {
	const setting = "listener.security.protocol.map"
	m := map[string]string{}
	for _, item := range splitList(trim(value)) {
		if item == "" {
			continue
		}
		i := strings.LastIndexByte(item, ':')
		if i < 0 {
			return nil, invalidValue(setting, value, "Expected NAME:PROTOCOL, separated by commas, but found "+item)
		}
		name, protocol := strings.ToUpper(trim(item[:i])), strings.ToUpper(trim(item[i+1:]))
		if !slices.Contains(compat.SecurityProtocols[:], protocol) {
			return nil, invalidValue(setting, value, "Invalid security protocol "+protocol+"; allowed are "+strings.Join(compat.SecurityProtocols[:], ", "))
		}
		m[name] = protocol
	}
	return m, nil
}

// parseListeners reads listeners or advertised.listeners (SocketServerConfigs and CoreUtils in
// Kafka): NAME://host:port, separated by commas; empty items are dropped, names made upper
// case. Names must differ, and with distinctPorts ports too, except that an IPv4 and an IPv6
// address may share one. Listeners in skip are left out and need no protocol.
func parseListeners(setting string, items []string, protocols map[string]string, skip []string, distinctPorts bool) ([]Listener, error) {
	value := strings.Join(items, ",")
	refuse := func(reason string) error { return invalidValue(setting, value, reason) }
	var all, open []Listener
	for _, item := range items {
		if item == "" {
			continue
		}
		l, ok := parseEndpoint(item)
		if !ok {
			return nil, refuse("Unable to parse " + item + " to a broker endpoint; expected NAME://host:port, with a port from 0 to 65535")
		}
		if slices.ContainsFunc(all, func(o Listener) bool { return o.Name == l.Name }) {
			return nil, refuse("Each listener must have a different name, listeners: " + value)
		}
		all = append(all, l)
		if slices.Contains(skip, l.Name) {
			continue
		}
		l.Protocol, ok = protocols[l.Name]
		if !ok {
			return nil, refuse("No security protocol defined for listener " + l.Name + "; listener.security.protocol.map must have it")
		}
		open = append(open, l)
	}
	if distinctPorts {
		for i, a := range all {
			for _, b := range all[:i] {
				if a.Port == b.Port && a.Port != 0 && !oneIsIPv4OtherIPv6(a.Host, b.Host) {
					return nil, refuse("Each listener must have a different port unless exactly one listener has an IPv4 address and the other IPv6 address, listeners: " + value + ", port: " + strconv.Itoa(a.Port))
				}
			}
		}
	}
	return open, nil
}

// parseEndpoint reads NAME://host:port. The host may be empty, a name, or an address with or
// without brackets.
func parseEndpoint(s string) (l Listener, ok bool) {
	i := strings.LastIndex(s, "://")
	if i < 0 {
		return l, false
	}
	l.Name = strings.ToUpper(s[:i])
	rest := s[i+3:]
	i = strings.LastIndexByte(rest, ':')
	if i < 0 {
		return l, false
	}
	l.Host = strings.TrimSuffix(strings.TrimPrefix(rest[:i], "["), "]")
	if !hostPattern(l.Host) {
		return l, false
	}
	port, err := strconv.ParseUint(rest[i+1:], 10, 16)
	l.Port = int(port)
	return l, err == nil
}

// hostPattern reports whether a host has only the characters that Kafka allows.
func hostPattern(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', strings.IndexByte("-%._:", c) >= 0:
		default:
			return false
		}
	}
	return true
}

func oneIsIPv4OtherIPv6(a, b string) bool {
	x, err := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	return err == nil && err2 == nil && x.Is4() != y.Is4()
}

// setListeners fills in what Broker says about listeners.
func (b *Broker) setListeners(set func(string) bool) error {
	protocols, err := parseProtocolMap(b.raw.protocolMap)
	if err != nil {
		return err
	}
	var skip []string
	for _, name := range b.raw.controllerNames {
		skip = append(skip, strings.ToUpper(name))
	}
	b.Listeners, err = parseListeners("listeners", b.raw.listeners, protocols, skip, true)
	if err != nil {
		return err
	}
	value := strings.Join(b.raw.listeners, ",")
	if len(b.Listeners) == 0 {
		return invalidValue("listeners", value, "There must be at least one broker listener. Perhaps all listeners appear in controller.listener.names?")
	}
	for _, l := range b.Listeners {
		if l.Protocol != plaintext {
			return invalidValue("listeners", value, "Listener "+l.Name+" has the security protocol "+l.Protocol+"; allowed is "+plaintext)
		}
	}
	if err := b.setAdvertised(protocols, skip, set); err != nil {
		return err
	}
	return b.setInterBroker(set)
}

func (b *Broker) setAdvertised(protocols map[string]string, skip []string, set func(string) bool) error {
	const setting = "advertised.listeners"
	if !set(setting) {
		for _, l := range b.Listeners {
			l.Host = ""
			b.Advertised = append(b.Advertised, l)
		}
		return nil
	}
	value := strings.Join(b.raw.advertised, ",")
	advertised, err := parseListeners(setting, b.raw.advertised, protocols, skip, false)
	if err != nil {
		return err
	}
	if len(advertised) == 0 {
		return invalidValue(setting, value, "There must be at least one broker advertised listener. Perhaps all listeners appear in controller.listener.names?")
	}
	for _, l := range advertised {
		if l.Host == "0.0.0.0" {
			return invalidValue(setting, value, "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.")
		}
		if !slices.ContainsFunc(b.Listeners, func(o Listener) bool { return o.Name == l.Name }) {
			return invalidValue(setting, value, "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "+
				names(advertised)+". The valid options based on the current configuration are "+names(b.Listeners))
		}
	}
	b.Advertised = advertised
	return nil
}

func (b *Broker) setInterBroker(set func(string) bool) error {
	const setting = "inter.broker.listener.name"
	known := func(name string) bool {
		return slices.ContainsFunc(b.Advertised, func(l Listener) bool { return l.Name == name })
	}
	name := strings.ToUpper(b.raw.interBrokerListener)
	switch {
	case set(setting) && set("security.inter.broker.protocol"):
		return invalidValue(setting, b.raw.interBrokerListener, "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
	case set(setting) && !known(name):
		return invalidValue(setting, b.raw.interBrokerListener, "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based on currently configured listeners are "+names(b.Advertised))
	case !set(setting):
		name = b.raw.interBrokerProtocol
		if !known(name) {
			if set("security.inter.broker.protocol") {
				return invalidValue("security.inter.broker.protocol", name, "It must be a listener name defined in advertised.listeners, which are "+names(b.Advertised))
			}
			name = b.Advertised[0].Name
		}
	}
	b.InterBrokerListener = name
	return nil
}

func names(listeners []Listener) string {
	var s []string
	for _, l := range listeners {
		s = append(s, l.Name)
	}
	return strings.Join(s, ",")
}

// parsePerIP reads max.connections.per.ip.overrides: host:count, separated by commas.
func parsePerIP(value string) (map[string]int64, error) {
	const setting = "max.connections.per.ip.overrides"
	var m map[string]int64
	for _, item := range splitList(trim(value)) {
		if item == "" {
			continue
		}
		i := strings.LastIndexByte(item, ':')
		if i < 0 {
			return nil, invalidValue(setting, value, "Expected host:count, separated by commas, but found "+item)
		}
		host := trim(item[:i])
		n, err := strconv.ParseInt(trim(item[i+1:]), 10, 32)
		if err != nil || n < 0 {
			return nil, invalidValue(setting, value, "Expected host:count with a count from 0 to 2147483647, but found "+item)
		}
		if host == "" || !hostPattern(host) {
			return nil, invalidValue(setting, value, "max.connections.per.ip.overrides contains invalid addresses : "+host)
		}
		if m == nil {
			m = map[string]int64{}
		}
		m[host] = n
	}
	return m, nil
}
