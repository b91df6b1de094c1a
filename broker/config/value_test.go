package config

import (
	"errors"
	"math"
	"testing"
)

func TestFormatDouble(t *testing.T) {
	for f, want := range map[float64]string{0: "0.0", 0.5: "0.5", 2: "2.0", 1e7: "1.0E7", 9999999: "9999999.0", 0.001: "0.001", 0.0001: "1.0E-4",
		math.MaxFloat64: "1.7976931348623157E308", 2147483647: "2.147483647E9", -1.5: "-1.5", math.Inf(1): "Infinity", math.Inf(-1): "-Infinity"} {
		if got := formatDouble(f); got != want {
			t.Errorf("%v: %s, want %s", f, got, want)
		}
	}
}

// TestDefaultsAreValid: every default reads as its type and prints as Kafka prints it.
func TestDefaultsAreValid(t *testing.T) {
	for _, r := range Table() {
		if r.Default == null || r.Default == required {
			continue
		}
		v, err := parse(&r.Row, r.Default)
		if err != nil {
			t.Errorf("%s %s: %v", r.Scope, r.Name, err)
			continue
		}
		if got := format(v); got != r.Default {
			t.Errorf("%s %s: %s prints as %s", r.Scope, r.Name, r.Default, got)
		}
	}
}

func FuzzParseValue(f *testing.F) {
	for _, s := range []string{"", "1", " -1 ", "true", "a,b", "1e5", "0x10", "NaN", "9223372036854775808", "by_duration:PT1H", "3.9-IV0", "0:1,1:2"} {
		for _, name := range []string{"retention.ms", "cleanup.policy", "min.cleanable.dirty.ratio", "preallocate", "compression.gzip.level", "message.format.version", "leader.replication.throttled.replicas"} {
			f.Add(name, s)
		}
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		rows := []*Row{findClientMetrics(name)}
		if r := findTopic(name); r != nil {
			rows = append(rows, &r.Row)
		}
		if r := findBroker(name); r != nil {
			rows = append(rows, &r.Row)
		}
		if r := findGroup(name); r != nil {
			rows = append(rows, &r.Row)
		}
		for _, r := range rows {
			if r == nil {
				continue
			}
			v, err := parse(r, value)
			if err != nil {
				if !errors.Is(err, ErrInvalidConfig) {
					t.Fatalf("%s=%q: %v is not ErrInvalidConfig", name, value, err)
				}
				continue
			}
			// What is printed reads as the same value.
			again, err := parse(r, format(v))
			if err != nil || format(again) != format(v) {
				t.Fatalf("%s=%q prints as %q, which reads as %v, %v", name, value, format(v), again, err)
			}
		}
	})
}
