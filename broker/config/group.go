package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// CheckGroup tells whether settings may stand at a group (GroupConfig.validate): known names,
// allowed values, within the bounds that the broker sets. Errors wrap ErrInvalidConfig.
func (s *Store) CheckGroup(values map[string]string) error {
	names := slices.Sorted(maps.Keys(values))
	for _, name := range names {
		if findGroup(name) == nil {
			return invalidConfig("Unknown group config name: %s", name)
		}
	}
	if tags := splitList(values["streams.rack.aware.assignment.tags"]); len(slices.Compact(slices.Sorted(slices.Values(tags)))) < len(tags) {
		return invalidConfig("streams.rack.aware.assignment.tags must not contain duplicate tag keys.")
	}
	for _, name := range names {
		if err := s.checkEntityValue(Groups, name, values[name]); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := s.checkGroupBounds(name, values[name]); err != nil {
			return err
		}
	}
	if name, has := values["streams.assignor.name"]; has {
		if known := s.list("group.streams.assignors"); !slices.Contains(known, trim(name)) {
			return invalidConfig("streams.assignor.name '%s' is not a registered task assignor. Registered assignors are: [%s].", trim(name), strings.Join(known, ", "))
		}
	}
	for _, kind := range []string{"consumer", "share", "streams"} {
		if err := s.checkGroupSession(kind, values); err != nil {
			return err
		}
	}
	if strings.HasPrefix(trim(values["errors.deadletterqueue.topic.name"]), "__") {
		return invalidConfig("errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")
	}
	return nil
}

// checkGroupBounds holds a group's number against the broker's group.KIND.min.X and .max.X.
func (s *Store) checkGroupBounds(name, value string) error {
	n, err := strconv.ParseInt(trim(value), 10, 64)
	if err != nil {
		return nil // not a number
	}
	kind, rest, _ := strings.Cut(name, ".")
	rest = strings.TrimPrefix(rest, "num.")
	lowest, hasLowest := s.number("group." + kind + ".min." + rest)
	highest, hasHighest := s.number("group." + kind + ".max." + rest)
	switch {
	case hasLowest && hasHighest && (n < lowest || n > highest):
		return invalidConfig("%s must be in the range %d to %d inclusive.", name, lowest, highest)
	case hasLowest && n < lowest:
		return invalidConfig("%s must be greater than or equal to %d", name, lowest)
	case hasHighest && n > highest:
		return invalidConfig("%s must be less than or equal to %d", name, highest)
	}
	return nil
}

// checkGroupSession has the session of a kind of groups be longer than the time between heartbeats,
// where one of them is set; what is not set is the broker's.
func (s *Store) checkGroupSession(kind string, values map[string]string) error {
	session, heartbeat := kind+".session.timeout.ms", kind+".heartbeat.interval.ms"
	of := func(name string) (n int64, isSet bool) {
		if value, has := values[name]; has {
			n, _ = strconv.ParseInt(trim(value), 10, 64)
			return n, true
		}
		n, _ = s.number("group." + name)
		return n, false
	}
	long, hasSession := of(session)
	short, hasHeartbeat := of(heartbeat)
	if (hasSession || hasHeartbeat) && long <= short {
		return invalidConfig("%s must be greater than %s", session, heartbeat)
	}
	return nil
}

// list is the value of a broker setting of type LIST that no field of Broker holds.
func (s *Store) list(name string) []string {
	value, ok := s.current.Load().settings[name]
	if r := findBroker(name); !ok && r != nil {
		value = r.Default
	}
	return splitList(value)
}
