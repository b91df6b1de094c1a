package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ErrInvalidConfig marks a value that a setting does not take, ErrInvalidRequest a change that
// cannot be made as it is asked for. The text of the error that wraps one of them is for the
// client, in Kafka's words where Kafka has some.
var (
	ErrInvalidConfig  = errors.New("invalid config")
	ErrInvalidRequest = errors.New("invalid request")
)

// refusal is an error whose text is the whole message.
type refusal struct {
	kind error
	text string
}

func (e *refusal) Error() string { return e.text }
func (e *refusal) Unwrap() error { return e.kind }

func invalidConfig(format string, args ...any) error {
	return &refusal{ErrInvalidConfig, fmt.Sprintf(format, args...)}
}

func invalidRequest(format string, args ...any) error {
	return &refusal{ErrInvalidRequest, fmt.Sprintf(format, args...)}
}

// invalidValue is Kafka's ConfigException: it names the setting, the value and the reason.
func invalidValue(name, value, reason string) error {
	return invalidConfig("Invalid value %s for configuration %s: %s", value, name, reason)
}

// trim cuts what Java's String.trim cuts.
func trim(s string) string { return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' }) }

// parse reads a value as ConfigDef.parseType does and checks it against the row's bounds.
// The result is a bool, int64, float64, string or []string.
func parse(r *Row, raw string) (any, error) {
	v, err := parseType(r.Name, raw, r.Type)
	if err != nil {
		return nil, err
	}
	return v, check(r, v)
}

func parseType(name, raw string, t Type) (any, error) {
	s := trim(raw)
	notANumber := func() error { return invalidValue(name, raw, "Not a number of type "+t.String()) }
	bits := 64
	switch t {
	case Boolean:
		switch {
		case strings.EqualFold(s, "true"):
			return true, nil
		case strings.EqualFold(s, "false"):
			return false, nil
		}
		return nil, invalidValue(name, raw, "Expected value to be either true or false")
	case Int:
		bits = 32
	case Short:
		bits = 16
	case Long:
	case Double:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // Java takes what is too large for infinity
			return nil, notANumber()
		}
		return f, nil
	case List:
		return splitList(s), nil
	default:
		return s, nil
	}
	n, err := strconv.ParseInt(s, 10, bits)
	if err != nil {
		return nil, notANumber()
	}
	return n, nil
}

// splitList splits at commas with white space around them. Items may be empty; an empty text
// has none.
func splitList(s string) []string {
	if s == "" {
		return []string{}
	}
	items := strings.Split(s, ",")
	for i := range items {
		items[i] = strings.Trim(items[i], " \t\n\v\f\r")
	}
	return items
}

// format writes a parsed value as Kafka prints it.
func format(v any) string {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return formatDouble(v)
	case []string:
		return strings.Join(v, ",")
	case string:
		return v
	}
	return ""
}

// formatDouble is Java's Double.toString.
func formatDouble(f float64) string {
	switch abs := math.Abs(f); {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(fmt.Sprintf("%vinity", f), "+")
	case f == 0, abs >= 1e-3 && abs < 1e7:
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent)
	return mantissa + "E" + strconv.Itoa(n)
}

// check holds a parsed value against the row's Valid, which is in the notation of Kafka's
// validators.
func check(r *Row, v any) error {
	valid := r.Valid
	if valid == "" {
		return nil
	}
	switch valid {
	case "non-null string":
		return nil
	case "non-empty string":
		if v == "" {
			return invalidValue(r.Name, "", "String must be non-empty")
		}
		return nil
	case "non-empty list":
		return nil // its default is the empty list; Kafka tests what is set elsewhere
	case releases:
		return checkRelease(r.Name, v.(string))
	case throttled:
		return checkThrottled(r.Name, v.([]string))
	}
	if r.Name == "share.auto.offset.reset" {
		return checkOffsetReset(v.(string))
	}
	fold := false
	if rest, ok := strings.CutPrefix(valid, "(case insensitive) "); ok {
		valid, fold = rest, true
	}
	list, suffix, _ := strings.Cut(strings.TrimPrefix(valid, "["), "]")
	items := strings.Split(list, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	if slices.Contains(items, "...") {
		return checkRange(r.Name, v, items, suffix)
	}
	switch v := v.(type) {
	case string:
		if fold && slices.ContainsFunc(items, func(s string) bool { return strings.EqualFold(s, v) }) || slices.Contains(items, v) {
			return nil
		}
		if fold {
			return invalidValue(r.Name, v, "String must be one of (case insensitive): "+strings.Join(items, ", "))
		}
		return invalidValue(r.Name, v, "String must be one of: "+strings.Join(items, ", "))
	case []string:
		for _, s := range v {
			if s == "" {
				return invalidConfig("Configuration '%s' values must not be empty.", r.Name)
			}
			if !slices.Contains(items, s) {
				return invalidValue(r.Name, s, "String must be one of: "+strings.Join(items, ", "))
			}
		}
	}
	return nil
}

// checkRange reads "[min,...]", "[min,...,max]" and "[min,...,max] or other".
func checkRange(name string, v any, items []string, suffix string) error {
	var n float64
	switch v := v.(type) {
	case int64:
		n = float64(v)
	case float64:
		n = v
	}
	other, orOther := strings.CutPrefix(suffix, " or ")
	lowest, _ := strconv.ParseFloat(items[0], 64)
	last := items[len(items)-1]
	highest, err := strconv.ParseFloat(last, 64)
	bounded := err == nil
	if orOther {
		if x, _ := strconv.ParseFloat(other, 64); n == x || n >= lowest && n <= highest {
			return nil
		}
		return invalidValue(name, format(v), fmt.Sprintf("Value must be between %s and %s or equal to %s", items[0], last, other))
	}
	if n < lowest {
		return invalidValue(name, format(v), "Value must be at least "+items[0])
	}
	if bounded && n > highest {
		return invalidValue(name, format(v), "Value must be no more than "+last)
	}
	return nil
}

// checkThrottled takes "*", nothing, or a list of partition:broker.
func checkThrottled(name string, items []string) error {
	if len(items) == 1 && items[0] == "*" {
		return nil
	}
	digits := func(s string) bool {
		return s != "" && strings.Trim(s, "0123456789") == ""
	}
	for _, s := range items {
		if p, b, ok := strings.Cut(s, ":"); !ok || !digits(p) || !digits(b) {
			return invalidValue(name, "["+strings.Join(items, ", ")+"]",
				name+" must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...")
		}
	}
	return nil
}

// checkRelease takes the releases that Kafka 3.9.1 knows as inter-broker protocols: 0.8.0 to
// 4.0, with or without the -IV suffix.
func checkRelease(name, v string) error {
	base, iv, hasIV := strings.Cut(v, "-IV")
	parts := strings.Split(base, ".")
	numbers := make([]int, len(parts))
	ok := len(parts) >= 2 && len(parts) <= 4
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		ok = ok && err == nil && n >= 0 && p[0] != '+'
		numbers[i] = n
	}
	if hasIV {
		n, err := strconv.Atoi(iv)
		ok = ok && err == nil && n >= 0
	}
	if ok {
		switch major, minor := numbers[0], numbers[1]; major {
		case 0:
			ok = minor >= 8 && minor <= 11
		case 1:
			ok = minor <= 1
		case 2:
			ok = minor <= 8
		case 3:
			ok = minor <= 9
		default:
			ok = major == 4 && minor == 0
		}
	}
	if !ok {
		return invalidValue(name, v, fmt.Sprintf("Version `%s` is not a valid version; allowed are 0.8.0 to 4.0", v))
	}
	return nil
}

// checkOffsetReset takes latest, earliest, and by_duration: with an ISO 8601 duration.
func checkOffsetReset(v string) error {
	if v == "latest" || v == "earliest" {
		return nil
	}
	if d, ok := strings.CutPrefix(v, "by_duration:"); ok && isoDuration(d) {
		return nil
	}
	const name = "share.auto.offset.reset"
	return invalidValue(name, v, fmt.Sprintf("Invalid value `%s` for configuration %s. The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.", v, name))
}

// isoDuration reports whether s is PnDTnHnMn.nS, in which each part may be missing but not all.
func isoDuration(s string) bool {
	s, ok := strings.CutPrefix(strings.ToUpper(s), "P")
	if !ok {
		return false
	}
	days, clock, hasClock := strings.Cut(s, "T")
	some := false
	part := func(s, unit string, fraction bool) string {
		n, rest, ok := strings.Cut(s, unit)
		if !ok {
			return s
		}
		whole, frac, hasFrac := strings.Cut(n, ".")
		if whole == "" || strings.Trim(whole, "0123456789") != "" || hasFrac && (!fraction || strings.Trim(frac, "0123456789") != "") {
			return s
		}
		some = true
		return rest
	}
	if part(days, "D", false) != "" {
		return false
	}
	clock = part(part(part(clock, "H", false), "M", false), "S", true)
	return clock == "" && some && !(hasClock && strings.HasSuffix(s, "T"))
}

// assign stores a parsed value in the field that a row names.
func assign(field, v any) {
	switch p := field.(type) {
	case *bool:
		*p = v.(bool)
	case *int64:
		*p = v.(int64)
	case *float64:
		*p = v.(float64)
	case *string:
		*p = v.(string)
	case *[]string:
		*p = v.([]string)
	}
}
