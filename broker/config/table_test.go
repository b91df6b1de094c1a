package config

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// tsv reads a table of testdata: those of shared/reference, read from live Kafka 4.4.0 and 3.9.1.
func tsv(t *testing.T, file string) []map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	head := strings.Split(lines[0], "\t")
	var rows []map[string]string
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, cell := range strings.Split(line, "\t") {
			row[head[i]] = cell
		}
		rows = append(rows, row)
	}
	return rows
}

// sameRow holds a row against a line of a reference table.
func sameRow(t *testing.T, r *Row, want map[string]string) {
	t.Helper()
	valid := want["valid_values"]
	if strings.HasPrefix(valid, "[0.8.0") {
		valid = releases
	}
	if r.Type.String() != want["type"] || r.Default != want["default"] || r.Valid != valid {
		t.Errorf("%s: %v, default %q, valid %q; Kafka has %v", r.Name, r.Type, r.Default, r.Valid, want)
	}
	if mode, ok := want["update_mode"]; ok && r.Mode.String() != mode {
		t.Errorf("%s: %v, Kafka has %s", r.Name, r.Mode, mode)
	}
	if internal := r.Flags&Internal != 0; internal != (want["internal"] == "yes") {
		t.Errorf("%s: internal %v, Kafka has %v", r.Name, internal, want)
	}
}

func TestBrokerRowsAreKafkas(t *testing.T) {
	four := map[string]bool{}
	for _, want := range tsv(t, "broker-configs.tsv") {
		four[want["name"]] = true
		r := findBroker(want["name"])
		if r == nil {
			t.Errorf("%s has no row", want["name"])
			continue
		}
		sameRow(t, &r.Row, want)
		if r.Flags&Kafka3 != 0 {
			t.Errorf("%s: 4.4.0 has it", r.Name)
		}
	}
	for _, want := range tsv(t, "broker-configs-kafka3.tsv") {
		if four[want["name"]] {
			continue
		}
		r := findBroker(want["name"])
		if r == nil {
			t.Errorf("%s has no row", want["name"])
			continue
		}
		sameRow(t, &r.Row, want)
		if r.Flags&Kafka3 == 0 {
			t.Errorf("%s: 4.4.0 does not have it", r.Name)
		}
	}
}

func TestTopicRowsAreKafkas(t *testing.T) {
	four := map[string]bool{}
	for _, file := range []string{"topic-configs.tsv", "topic-configs-kafka3.tsv"} {
		for _, want := range tsv(t, file) {
			if four[want["name"]] {
				continue
			}
			four[want["name"]] = true
			r := findTopic(want["name"])
			if r == nil {
				t.Errorf("%s has no row", want["name"])
				continue
			}
			sameRow(t, &r.Row, want)
			if r.From != want["broker_default_from"] {
				t.Errorf("%s: from %s, Kafka has %v", r.Name, r.From, want)
			}
		}
	}
}

func TestOtherRowsAreKafkas(t *testing.T) {
	for _, want := range tsv(t, "group-configs.tsv") {
		r := findGroup(want["name"])
		if r == nil {
			t.Errorf("%s has no row", want["name"])
			continue
		}
		sameRow(t, &r.Row, want)
		if r.From != want["broker_default_from"] {
			t.Errorf("%s: from %s, Kafka has %v", r.Name, r.From, want)
		}
	}
	for _, want := range tsv(t, "client-metrics-configs.tsv") {
		if r := findClientMetrics(want["name"]); r == nil {
			t.Errorf("%s has no row", want["name"])
		} else {
			sameRow(t, r, want)
		}
	}
	for _, want := range tsv(t, "quota-configs.tsv") {
		if want["entity"] == "broker" {
			if r := findBroker(want["name"]); r == nil {
				t.Errorf("%s has no row", want["name"])
			} else {
				sameRow(t, &r.Row, want)
			}
			continue
		}
		i := slices.IndexFunc(quotaRows, func(r Row) bool { return r.Name == want["name"] })
		if i < 0 {
			t.Errorf("%s has no row", want["name"])
			continue
		}
		sameRow(t, &quotaRows[i], want)
	}
}

// TestRowsAreWhole: every row has a doc and a kind of effect that its other columns bear out,
// and the areas are sorted, as the search needs.
func TestRowsAreWhole(t *testing.T) {
	topicDefaults := map[string]bool{}
	for _, r := range topicRows {
		for _, from := range strings.Split(r.From, ",") {
			topicDefaults[from] = true
		}
	}
	for _, area := range brokerAreas {
		rows := *area
		if !slices.IsSortedFunc(rows, func(a, b brokerRow) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("the area of %s is not sorted", rows[0].Name)
		}
		for _, r := range rows {
			isDefault := r.Flags&TopicDefault != 0
			if r.Effect() == Acted && r.Field == nil && !isDefault {
				t.Errorf("%s is acted upon but names no field", r.Name)
			}
			if r.Effect() == RefusedEffect && r.Why == "" {
				t.Errorf("%s is refused without a reason", r.Name)
			}
			if isDefault != topicDefaults[r.Name] && r.Name != "log.flush.scheduler.interval.ms" {
				t.Errorf("%s: TopicDefault is %v, but a topic row names it: %v", r.Name, isDefault, topicDefaults[r.Name])
			}
		}
	}
	for _, r := range topicRows {
		if r.Effect() == Acted && r.Field == nil {
			t.Errorf("%s is acted upon but names no field", r.Name)
		}
	}
	names := map[string]bool{}
	for _, r := range Table() {
		if r.Doc == "" || !strings.HasSuffix(r.Doc, ".") {
			t.Errorf("%s %s: doc %q", r.Scope, r.Name, r.Doc)
		}
		if names[r.Scope+r.Name] {
			t.Errorf("%s %s has two rows", r.Scope, r.Name)
		}
		names[r.Scope+r.Name] = true
	}
	if !slices.IsSortedFunc(topicRows, func(a, b topicRow) int { return strings.Compare(a.Name, b.Name) }) ||
		!slices.IsSortedFunc(groupRows, func(a, b groupRow) int { return strings.Compare(a.Name, b.Name) }) ||
		!slices.IsSortedFunc(clientMetricsRows, func(a, b Row) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("topic, group or client metrics rows are not sorted")
	}
}

// TestEveryFieldIsSet: each acted setting, when it is set to something else, changes the
// snapshot that the broker reads.
func TestEveryFieldIsSet(t *testing.T) {
	other := map[string]string{
		"listeners": "PLAINTEXT://:1", "advertised.listeners": "PLAINTEXT://b:1", "inter.broker.listener.name": "PLAINTEXT",
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT",
		"max.connections.per.ip.overrides": "1.2.3.4:5", "process.roles": "broker", "broker.id": "7", "node.id": "7",
		"offsets.topic.compression.codec": "3", "offsets.topic.replication.factor": "2", "transaction.state.log.replication.factor": "2", "log.dirs": "/x", "log.dir": "/x", "queued.max.request.bytes": "200000000",
		"cleanup.policy": "compact", "compression.type": "zstd", "message.timestamp.type": "LogAppendTime",
		"min.cleanable.dirty.ratio": "0.25", "controller.listener.names": "CONTROLLER",
		"group.consumer.assignors": "range", "group.consumer.migration.policy": "upgrade", "group.coordinator.rebalance.protocols": "classic",
	}
	value := func(r *Row) string {
		switch v, ok := other[r.Name]; {
		case ok:
			return v
		case r.Type == Boolean && r.Default == "true":
			return "false"
		case r.Type == Boolean:
			return "true"
		case r.Type == String:
			return "x"
		}
		return "4242424"
	}
	plain := buildOK(t, nil)
	for _, area := range brokerAreas {
		for i := range *area {
			r := &(*area)[i]
			if r.Field == nil {
				continue
			}
			v := value(&r.Row)
			changed := buildOK(t, map[string]string{r.Name: v})
			got := show(&r.Row, v)
			if text := format(deref(r.Field(changed.Broker()))); text != *got {
				t.Errorf("%s=%s: the field is %q", r.Name, v, text)
			}
			if format(deref(r.Field(plain.Broker()))) == *got && other[r.Name] == "" {
				t.Errorf("%s: %s is its default, so the test proves nothing", r.Name, v)
			}
		}
	}
	for i := range topicRows {
		r := &topicRows[i]
		if r.Field == nil {
			continue
		}
		v := value(&r.Row)
		switch r.Valid {
		case "[1,...,9] or -1", "[1,...,17]", "[-131072,...,22]":
			v = "5"
		}
		s := buildOK(t, nil)
		if err := s.CheckTopic(map[string]string{r.Name: v}); err != nil {
			t.Errorf("%s=%s: %v", r.Name, v, err)
			continue
		}
		s.Apply(Topics, "a", map[string]string{r.Name: v})
		if text := format(deref(r.Field(s.Topic("a")))); text != *show(&r.Row, v) {
			t.Errorf("%s=%s: the field is %q", r.Name, v, text)
		}
		if format(deref(r.Field(s.Topic("a")))) == format(deref(r.Field(s.Topic("b")))) {
			t.Errorf("%s: %s is its default, so the test proves nothing", r.Name, v)
		}
	}
}

// TestBrokerGivesTopicsTheirDefaults: each broker setting that a topic row names is seen in
// topics that do not set the topic's.
func TestBrokerGivesTopicsTheirDefaults(t *testing.T) {
	for i := range topicRows {
		r := &topicRows[i]
		if r.From == "" || r.Field == nil {
			continue
		}
		for _, from := range strings.Split(r.From, ",") {
			v, want := "2424242", "2424242"
			switch {
			case r.Type == Boolean:
				v, want = "true", "true"
			case strings.HasSuffix(from, ".hours"):
				v, want = "2", "7200000"
			case strings.HasSuffix(from, ".minutes"):
				v, want = "3", "180000"
			case strings.HasPrefix(from, "compression.") && r.Type == Int:
				v, want = "5", "5"
			case r.Name == "compression.type":
				v, want = "gzip", "gzip"
			case r.Name == "cleanup.policy":
				v, want = "compact", "compact"
			case r.Name == "message.timestamp.type":
				v, want = "LogAppendTime", "LogAppendTime"
			case r.Type == Double:
				v, want = "0.25", "0.25"
			}
			s := buildOK(t, map[string]string{from: v})
			if got := format(deref(r.Field(s.Topic("a")))); got != want {
				t.Errorf("%s=%s gives %s=%s", from, v, r.Name, got)
			}
		}
	}
}

func buildOK(t *testing.T, settings map[string]string) *Store {
	t.Helper()
	s, err := New(Options{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func deref(p any) any {
	switch p := p.(type) {
	case *bool:
		return *p
	case *int64:
		return *p
	case *float64:
		return *p
	case *string:
		return *p
	case *[]string:
		return *p
	}
	return nil
}
