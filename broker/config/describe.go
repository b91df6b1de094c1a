package config

import (
	"log/slog"
	"slices"
	"strings"
)

// Source is where a value comes from, as DescribeConfigs says it.
type Source int8

// The sources, by their numbers on the wire.
const (
	TopicSource          Source = 1
	DynamicBroker        Source = 2
	DynamicDefaultBroker Source = 3
	StaticBroker         Source = 4
	DefaultSource        Source = 5
	DynamicBrokerLogger  Source = 6
	ClientMetricsSource  Source = 7
	GroupSource          Source = 8
)

// Entry is one setting as DescribeConfigs shows it. Value is nil where there is none and for
// secrets. Synonyms are all values that the setting could have, the one in force first.
type Entry struct {
	Name      string
	Value     *string
	Source    Source
	ReadOnly  bool
	Sensitive bool
	Type      Type
	Doc       string
	Synonyms  []Synonym
}

// Synonym is one value of a setting, under the name by which it is set.
type Synonym struct {
	Name   string
	Value  *string
	Source Source
}

// DescribeTopic returns the settings of a topic by name: all that Kafka 4.4 has, and those of
// 3.9.1 that the topic sets.
func (s *Store) DescribeTopic(name string) []Entry { return s.DescribeNewTopic(s.own(Topics, name)) }

// DescribeNewTopic returns the settings that a topic would have with these of its own.
func (s *Store) DescribeNewTopic(values map[string]string) []Entry {
	now := s.current.Load()
	var entries []Entry
	for i := range topicRows {
		r := &topicRows[i]
		own, isOwn := values[r.Name]
		if r.Flags&(Internal|Kafka3) != 0 && !isOwn {
			continue
		}
		e := Entry{Name: r.Name, Type: r.Type, Doc: r.Doc, Sensitive: r.Sensitive()}
		if v, _, ok := topicValue(r, now.settings, values); ok {
			e.Value = show(&r.Row, v)
		}
		if isOwn {
			e.Synonyms = append(e.Synonyms, Synonym{r.Name, show(&r.Row, own), TopicSource})
		}
		if first, _, _ := strings.Cut(r.From, ","); first != "" {
			e.Synonyms = append(e.Synonyms, s.synonyms(now, first, brokerSynonyms(first))...)
		}
		entries = append(entries, e.withSource())
	}
	return entries
}

// DescribeBroker returns the settings of this broker: all that Kafka 4.4 has, ottla's own, and
// of the others those that are set. Settings without a row are shown as secrets, as in Kafka.
func (s *Store) DescribeBroker() []Entry {
	now := s.current.Load()
	var entries []Entry
	for _, area := range brokerAreas {
		rows := *area
		for i := range rows {
			r := &rows[i]
			_, set := now.settings[r.Name]
			// Consoles take the version of the cluster from inter.broker.protocol.version.
			if r.Flags&(Internal|Kafka3|Quota) != 0 && !set && r.Name != "inter.broker.protocol.version" {
				continue
			}
			entries = append(entries, s.brokerEntry(now, r.Name, true))
		}
	}
	for name := range now.settings {
		if findBroker(name) == nil {
			entries = append(entries, s.brokerEntry(now, name, true))
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries
}

// DescribeBrokerDefaults returns the dynamic settings that all brokers have.
func (s *Store) DescribeBrokerDefaults() []Entry {
	now := s.current.Load()
	var entries []Entry
	for name := range now.dynamicDefault {
		entries = append(entries, s.brokerEntry(now, name, false))
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries
}

// brokerEntry describes one broker setting, of this broker or only as set for all.
func (s *Store) brokerEntry(now *snapshot, name string, perBroker bool) Entry {
	e := Entry{Name: name, ReadOnly: true, Sensitive: true}
	r := findBrokerOrListener(name)
	_, listener := listenerBase(name)
	if r != nil {
		e.Type, e.Doc, e.Sensitive = r.Type, r.Doc, r.Sensitive()
		e.ReadOnly = r.Mode == ReadOnly || r.Flags&Fixed != 0 || listener
	}
	settings := now.settings
	if !perBroker {
		settings = now.dynamicDefault
	}
	value, ok := settings[name]
	if !ok && r != nil {
		value, ok = r.defaultOf()
	}
	if ok && r != nil {
		e.Value = show(&r.Row, value)
	}
	names := brokerSynonyms(name)
	if listener && r != nil {
		names = append(slices.Clone(names), r.Name)
	}
	e.Synonyms = s.synonyms(now, name, names)
	if !perBroker {
		e.Synonyms = slices.DeleteFunc(e.Synonyms, func(y Synonym) bool { return y.Source != DynamicDefaultBroker })
	}
	return e.withSource()
}

// synonyms lists the values that a broker setting could have, by what counts first. The ones
// before the first of the setting's own name are left out (ConfigHelper.configSynonyms).
func (s *Store) synonyms(now *snapshot, name string, names []string) []Synonym {
	r := findBrokerOrListener(name)
	sensitive := r == nil || r.Sensitive()
	var all []Synonym
	add := func(name, value string, source Source) {
		y := Synonym{Name: name, Source: source}
		if !sensitive {
			y.Value = &value
		}
		all = append(all, y)
	}
	for _, layer := range [...]struct {
		values map[string]string
		source Source
	}{{now.dynamic, DynamicBroker}, {now.dynamicDefault, DynamicDefaultBroker}, {s.static, StaticBroker}} {
		for _, n := range names {
			if v, ok := layer.values[n]; ok {
				add(n, v, layer.source)
			}
		}
	}
	for _, n := range names {
		if r := findBroker(n); r != nil && r.Flags&(Kafka3|Quota) == 0 {
			if v, ok := r.defaultOf(); ok {
				add(n, v, DefaultSource)
			}
		}
	}
	for i, y := range all {
		if y.Name == name {
			return all[i:]
		}
	}
	return nil
}

// DescribeGroup returns the settings of a group, whether or not it exists.
func (s *Store) DescribeGroup(name string) []Entry {
	now, values := s.current.Load(), s.own(Groups, name)
	var entries []Entry
	for i := range groupRows {
		r := &groupRows[i]
		own, isOwn := values[r.Name]
		if _, set := now.settings[r.From]; r.Flags&Internal != 0 && !isOwn && !set {
			continue
		}
		e := Entry{Name: r.Name, Type: r.Type, Doc: r.Doc}
		value := r.Default
		if from, ok := now.settings[r.From]; ok {
			value = from
		} else if from := findBroker(r.From); from != nil {
			value = from.Default
		}
		if isOwn {
			value = own
			e.Synonyms = append(e.Synonyms, Synonym{r.Name, show(&r.Row, own), GroupSource})
		}
		if r.From != "" {
			e.Synonyms = append(e.Synonyms, s.synonyms(now, r.From, []string{r.From})...)
		} else {
			e.Synonyms = append(e.Synonyms, Synonym{r.Name, show(&r.Row, r.Default), DefaultSource})
		}
		e.Value = show(&r.Row, value)
		entries = append(entries, e.withSource())
	}
	return entries
}

// DescribeClientMetrics returns the settings of a client metrics subscription.
func (s *Store) DescribeClientMetrics(name string) []Entry {
	values := s.own(ClientMetrics, name)
	var entries []Entry
	for i := range clientMetricsRows {
		r := &clientMetricsRows[i]
		e := Entry{Name: r.Name, Type: r.Type, Doc: r.Doc, Value: show(r, r.Default)}
		if own, ok := values[r.Name]; ok {
			e.Value = show(r, own)
			e.Synonyms = []Synonym{{r.Name, e.Value, ClientMetricsSource}}
		}
		entries = append(entries, e.withSource())
	}
	return entries
}

// withSource sets the source to that of the value in force.
func (e Entry) withSource() Entry {
	e.Source = DefaultSource
	if len(e.Synonyms) > 0 {
		e.Source = e.Synonyms[0].Source
	}
	return e
}

// show is a value as Kafka prints it after parsing; nil for a secret.
func show(r *Row, value string) *string {
	if r.Sensitive() {
		return nil
	}
	if v, err := parseType(r.Name, value, r.Type); err == nil {
		value = format(v)
	}
	return &value
}

// Logger is the name of the one logger whose level can be described and changed.
const Logger = "root"

// levels are Kafka's names of levels, by slog's numbers.
var levels = [...]struct {
	name  string
	level slog.Level
}{
	{"DEBUG", slog.LevelDebug}, {"ERROR", slog.LevelError}, {"FATAL", slog.LevelError + 4},
	{"INFO", slog.LevelInfo}, {"TRACE", slog.LevelDebug - 4}, {"WARN", slog.LevelWarn},
}

// DescribeLoggers returns the levels of the log.
func (s *Store) DescribeLoggers() []Entry {
	name := "INFO"
	for _, l := range levels {
		if l.level == s.level.Level() {
			name = l.name
		}
	}
	return []Entry{{Name: Logger, Value: &name, Source: DynamicBrokerLogger}}
}

// EditLoggers changes levels of the log, all or none (RuntimeLoggerManager); with validateOnly
// it only says whether it could.
func (s *Store) EditLoggers(edits []Edit, validateOnly bool) error {
	level := s.level.Level()
	for _, e := range edits {
		switch e.Op {
		case Set, Delete:
			if e.Name != Logger {
				return invalidConfig("Logger %s does not exist!", e.Name)
			}
		case Append:
			return invalidRequest("APPEND operation is not allowed for the BROKER_LOGGER resource")
		case Subtract:
			return invalidRequest("SUBTRACT operation is not allowed for the BROKER_LOGGER resource")
		default:
			return invalidRequest("Unknown operation type %d is not allowed for the BROKER_LOGGER resource", e.Op)
		}
		if e.Op == Delete {
			return invalidRequest("Removing the log level of the root logger is not allowed")
		}
		known := false
		var allowed []string
		for _, l := range levels {
			allowed = append(allowed, l.name)
			if l.name == e.Value {
				level, known = l.level, true
			}
		}
		if !known {
			return invalidConfig("Cannot set the log level of %s to %s as it is not a supported log level. Valid log levels are %s",
				e.Name, e.Value, strings.Join(allowed, ", "))
		}
	}
	if !validateOnly {
		s.level.Set(level)
	}
	return nil
}
