package config

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"ottla/log"
)

// Topic is what is in force for one topic: its own settings over the broker's. It is never
// changed once it is handed out, and the same pointer is handed out until something changes.
type Topic struct {
	Log                   log.Options
	MinInsyncReplicas     int64
	UncleanLeaderElection bool

	cleanupPolicy            []string
	timestampType            string
	timestampDifferenceMaxMs int64
	internalSegmentBytes     int64
}

// units are the broker settings that give a topic setting in another unit than milliseconds.
var units = [...]struct {
	suffix string
	ms     int64
}{{".hours", 3600000}, {".minutes", 60000}}

// topicValue is the value of a topic setting, as text: the topic's own, else that of the first
// broker setting which is set, else the default. explicit is false for the last of these. The
// value of a broker setting in hours or minutes comes in milliseconds.
func topicValue(r *topicRow, settings, values map[string]string) (value string, explicit, ok bool) {
	if v, ok := values[r.Name]; ok {
		return v, true, true
	}
	for from := range strings.SplitSeq(r.From, ",") {
		v, ok := settings[from]
		if !ok {
			continue
		}
		for _, u := range units {
			if n, err := strconv.ParseInt(trim(v), 10, 64); err == nil && strings.HasSuffix(from, u.suffix) {
				v = strconv.FormatInt(n*u.ms, 10)
			}
		}
		if r.Name == "retention.ms" && strings.HasPrefix(trim(v), "-") {
			v = "-1"
		}
		return v, true, true
	}
	value, ok = r.defaultOf()
	return value, false, ok
}

// buildTopic makes a topic's snapshot of the broker's settings and the topic's own.
func buildTopic(settings, values map[string]string) (*Topic, error) {
	t := &Topic{timestampDifferenceMaxMs: math.MaxInt64}
	var before, after bool
	for i := range topicRows {
		r := &topicRows[i]
		if r.Field == nil {
			continue
		}
		value, explicit, ok := topicValue(r, settings, values)
		if !ok {
			continue
		}
		// What the broker gives was checked as the broker's; checkDefaults does the rest.
		v, err := parseType(r.Name, value, r.Type)
		if err != nil {
			return nil, err
		}
		assign(r.Field(t), v)
		switch r.Name {
		case "message.timestamp.before.max.ms":
			before = explicit
		case "message.timestamp.after.max.ms":
			after = explicit
		}
	}
	t.Log.CleanupDelete = slices.Contains(t.cleanupPolicy, "delete")
	t.Log.CleanupCompact = slices.Contains(t.cleanupPolicy, "compact")
	t.Log.LogAppendTime = t.timestampType == "LogAppendTime"
	if t.internalSegmentBytes > 0 {
		t.Log.SegmentBytes = t.internalSegmentBytes
	}
	if d := t.timestampDifferenceMaxMs; d != math.MaxInt64 { // the bounds of Kafka 3.6 and later come first
		if !before {
			t.Log.TimestampBeforeMaxMs = d
		}
		if !after {
			t.Log.TimestampAfterMaxMs = d
		}
	}
	return t, t.check()
}

// check holds settings against each other (LogConfig.validateValues).
func (t *Topic) check() error {
	if t.Log.MinCompactionLagMs > t.Log.MaxCompactionLagMs {
		return invalidConfig("conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)",
			t.Log.MinCompactionLagMs, t.Log.MaxCompactionLagMs)
	}
	return nil
}

// checkDefaults holds the broker settings that give topics their defaults against the bounds
// that Kafka has for them, in the words of KafkaConfig.validateValues.
func checkDefaults(settings map[string]string, t *Topic) error {
	refuse := func(topic, reason string) error {
		for from := range strings.SplitSeq(findTopic(topic).From, ",") {
			if v, ok := settings[from]; ok {
				return invalidValue(from, v, reason)
			}
		}
		return invalidConfig("%s", reason)
	}
	switch {
	case t.Log.SegmentMs < 1:
		return refuse("segment.ms", "log.roll.ms must be greater than or equal to 1")
	case t.Log.SegmentJitterMs < 0:
		return refuse("segment.jitter.ms", "log.roll.jitter.ms must be greater than or equal to 0")
	case t.Log.RetentionMs != -1 && t.Log.RetentionMs < 1:
		return refuse("retention.ms", "log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
	}
	return nil
}

// CheckTopic tells whether settings may stand at a topic: every name is known, every value is
// allowed, and they agree with each other and the broker's. Errors wrap ErrInvalidConfig.
func (s *Store) CheckTopic(values map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if findTopic(name) == nil {
			return invalidConfig("Unknown topic config name: %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := checkTopicValue(name, values[name]); err != nil {
			return err
		}
	}
	_, err := buildTopic(s.current.Load().settings, values)
	return err
}

// checkTopicValue checks one setting of a topic by itself.
func checkTopicValue(name, value string) error {
	r := findTopic(name)
	if r == nil {
		return invalidConfig("Unknown topic config name: %s", name)
	}
	v, err := parse(&r.Row, value)
	if err != nil {
		return err
	}
	return refused(&r.Row, v, nil)
}
