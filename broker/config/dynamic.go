package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// CheckBroker tells whether settings may stand as the dynamic ones of this broker (perBroker)
// or of all brokers: all can be changed while the broker runs and are allowed beside what else
// is set. Errors wrap ErrInvalidRequest, as Kafka answers them (KAFKA-13609).
func (s *Store) CheckBroker(values map[string]string, perBroker bool) error {
	err := checkDynamic(values, perBroker)
	if err == nil {
		now := s.current.Load()
		dynamic, dynamicDefault := now.dynamic, values
		if perBroker {
			dynamic, dynamicDefault = values, now.dynamicDefault
		}
		var next *snapshot
		if next, err = s.build(dynamicDefault, dynamic); err == nil {
			err = checkThreads(now, next)
		}
	}
	if err != nil {
		return &refusal{ErrInvalidRequest, err.Error()}
	}
	return nil
}

// checkThreads lets a number of threads at most double or halve at once, as Kafka does (DynamicThreadPool and
// LogCleaner, validateReconfiguration), whether or not ottla has such threads.
func checkThreads(now, next *snapshot) error {
	const cleaners = "log.cleaner.threads"
	for _, name := range []string{"background.threads", cleaners, "num.io.threads", "num.network.threads",
		"num.recovery.threads.per.data.dir", "num.replica.fetchers"} {
		is, ok := now.number(name)
		will, valid := next.number(name)
		if !ok || !valid || is == will {
			continue
		}
		var reason string
		switch failed := fmt.Sprintf("Dynamic thread count update validation failed for %s=%d, value should ", name, will); {
		case will < 1 && name == cleaners:
			reason = "Log cleaner threads should be at least 1"
		case will < is/2 && name == cleaners:
			reason = fmt.Sprintf("Log cleaner threads cannot be reduced to less than half the current value %d", is)
		case will > is*2 && name == cleaners:
			reason = fmt.Sprintf("Log cleaner threads cannot be increased to more than double the current value %d", is)
		case will < is/2:
			reason = fmt.Sprintf("%sbe at least half the current value %d", failed, is)
		case will > is*2:
			reason = fmt.Sprintf("%snot be greater than double the current value %d", failed, is)
		default:
			continue
		}
		return invalidConfig("Invalid value org.apache.kafka.common.config.ConfigException: %s for configuration Invalid dynamic configuration", reason)
	}
	return nil
}

// checkDynamic checks dynamic broker settings by themselves (DynamicBrokerConfig.validateConfigs).
// Names without a row are let through: Kafka has them for plug-ins.
func checkDynamic(values map[string]string, perBroker bool) error {
	var readOnly, security, fixed, single []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		base, listener := listenerBase(name)
		r := findBroker(name)
		switch {
		case listener:
			if b := findBroker(base); b == nil || b.Mode != ClusterWide {
				single = append(single, name)
			}
		case r == nil:
		case r.Mode == ReadOnly:
			readOnly = append(readOnly, name)
		case r.Flags&Fixed != 0:
			fixed, single = append(fixed, name), append(single, name)
		case r.Mode == PerBroker:
			if strings.HasPrefix(name, "ssl.") {
				security = append(security, name)
			}
			single = append(single, name)
		}
	}
	refuse := func(text string, names []string) error {
		return invalidRequest("%s: [%s]", text, strings.Join(names, ", "))
	}
	if len(readOnly) > 0 {
		return refuse("Cannot update these configs dynamically", readOnly)
	}
	if len(security) > 0 {
		return refuse("These security configs can be dynamically updated only per-listener using the listener prefix", security)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if r := findBrokerOrListener(name); r != nil {
			v, err := parse(&r.Row, values[name])
			if err != nil {
				return err
			}
			if err := refused(&r.Row, v, values); err != nil {
				return err
			}
		}
	}
	if len(single) > 0 && !perBroker {
		return refuse("Cannot update these configs at default cluster level, broker id must be specified", single)
	}
	if len(fixed) > 0 {
		return refuse("Cannot update these configs while ottla runs, they need a restart", fixed)
	}
	return nil
}

// number is the value of a broker setting that no field of Broker holds.
func (s *Store) number(name string) (n int64, ok bool) { return s.current.Load().number(name) }

func (s *snapshot) number(name string) (n int64, ok bool) {
	r := findBroker(name)
	if r == nil {
		return 0, false
	}
	value, ok := s.settings[name]
	if !ok {
		value = r.Default
	}
	n, err := strconv.ParseInt(trim(value), 10, 64)
	return n, err == nil
}

// CheckClientMetrics tells whether settings may stand at a client metrics subscription
// (ClientMetricsConfigs.validate).
func (s *Store) CheckClientMetrics(values map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if findClientMetrics(name) == nil {
			return invalidRequest("Unknown client metrics configuration: %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := s.checkEntityValue(ClientMetrics, name, values[name]); err != nil {
			return err
		}
	}
	return nil
}

// checkEntityValue checks one setting of a group or a client metrics subscription by itself.
func (s *Store) checkEntityValue(kind, name, value string) error {
	var r *Row
	switch kind {
	case Groups:
		if g := findGroup(name); g != nil {
			r = &g.Row
		}
	case ClientMetrics:
		r = findClientMetrics(name)
	}
	if r == nil {
		return invalidConfig("Unknown config name: %s", name)
	}
	v, err := parse(r, value)
	if err != nil || kind != ClientMetrics {
		return err
	}
	switch name {
	case "interval.ms":
		if n := v.(int64); n < 100 || n > 3600000 {
			return invalidRequest("Invalid value %d for interval.ms, interval must be between 100 and 3600000 (1 hour)", n)
		}
	case "match":
		return checkClientMatch(v.([]string))
	}
	return nil
}

// checkClientMatch takes key=pattern of the keys that tell clients apart.
func checkClientMatch(items []string) error {
	keys := []string{"client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port"}
	for _, item := range items {
		key, pattern, ok := strings.Cut(item, "=")
		if _, err := regexp.Compile(trim(pattern)); !ok || err != nil || trim(pattern) == "" || !slices.Contains(keys, trim(key)) || strings.Contains(pattern, "=") {
			return invalidConfig("Illegal client matching pattern: %s", item)
		}
	}
	return nil
}

// Op is what IncrementalAlterConfigs does to a setting; the values are the wire's.
type Op int8

// The operations. Append and Subtract are for settings of type LIST.
const (
	Set Op = iota
	Delete
	Append
	Subtract
)

// Edit is one operation on one setting. Value is not read by Delete.
type Edit struct {
	Op    Op
	Name  string
	Value string
}

// Edit returns the settings of an entity after some operations on those that it has. What
// Append and Subtract start from is the default where the entity does not have the setting.
func (s *Store) Edit(kind string, values map[string]string, edits []Edit) (map[string]string, error) {
	after := maps.Clone(values)
	if after == nil {
		after = map[string]string{}
	}
	for _, e := range edits {
		switch e.Op {
		case Set:
			after[e.Name] = e.Value
		case Delete:
			delete(after, e.Name)
		case Append, Subtract:
			r, err := listRow(kind, e)
			if err != nil {
				return nil, err
			}
			now, ok := after[e.Name]
			if !ok && r.Default != null {
				now = r.Default
			}
			after[e.Name] = edited(e.Op, now, e.Value)
		default:
			return nil, invalidRequest("Unknown operations type %d", e.Op)
		}
	}
	return after, nil
}

func edited(op Op, now, value string) string {
	var items []string
	for _, item := range splitList(now) {
		if item != "" {
			items = append(items, item)
		}
	}
	for v := range strings.SplitSeq(value, ",") {
		at := slices.Index(items, v)
		switch {
		case op == Append && at < 0:
			items = append(items, v)
		case op == Subtract && at >= 0:
			items = slices.Delete(items, at, at+1)
		}
	}
	return strings.Join(items, ",")
}

// listRow returns the row of a setting that Append and Subtract work on.
func listRow(kind string, e Edit) (*Row, error) {
	if kind == Brokers {
		r := findBrokerOrListener(e.Name)
		if r == nil {
			return nil, invalidConfig("Unknown config name: %s", e.Name)
		}
		if r.Type != List {
			verb := map[Op]string{Append: "append", Subtract: "subtract"}[e.Op]
			return nil, invalidConfig("Config value %s is not allowed for config key: %s", verb, e.Name)
		}
		return &r.Row, nil
	}
	var r *Row
	switch kind {
	case Topics:
		if t := findTopic(e.Name); t != nil {
			r = &t.Row
		}
	case ClientMetrics:
		r = findClientMetrics(e.Name)
	}
	if r == nil || r.Type != List { // also for groups' lists, as in Kafka
		verb := map[Op]string{Append: "APPEND", Subtract: "SUBTRACT"}[e.Op]
		return nil, invalidConfig("Can't %s to key %s because its type is not LIST.", verb, e.Name)
	}
	return r, nil
}
