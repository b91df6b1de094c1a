package config

import (
	"slices"
	"strings"
)

// TableRow is a row of the printed table, with what depends on where it stands.
type TableRow struct {
	Row
	Scope    string // broker, topic, group, client metrics, quota
	Own      string // ottla's default, as it is printed; it differs from Row.Default on purpose only
	From     string // the broker settings that give a topic's or group's default, the first that is set counting
	Synonyms string // broker settings that mean the same in another unit, the first that is set counting
}

// Table returns every setting, sorted by scope and name.
func Table() []TableRow {
	var rows []TableRow
	for _, area := range brokerAreas {
		for i := range *area {
			r := &(*area)[i]
			t := TableRow{Row: r.Row, Scope: "broker", Own: null}
			if v, ok := r.defaultOf(); ok {
				t.Own = v
			}
			if s := brokerSynonyms(r.Name); len(s) > 1 {
				t.Synonyms = strings.Join(s, ",")
			}
			rows = append(rows, t)
		}
	}
	slices.SortFunc(rows, func(a, b TableRow) int { return strings.Compare(a.Name, b.Name) })
	for _, r := range topicRows {
		t := TableRow{Row: r.Row, Scope: "topic", Own: null, From: r.From}
		if v, ok := r.defaultOf(); ok {
			t.Own = v
		}
		rows = append(rows, t)
	}
	for _, r := range groupRows {
		rows = append(rows, TableRow{Row: r.Row, Scope: "group", Own: r.Default, From: r.From})
	}
	for _, r := range clientMetricsRows {
		rows = append(rows, TableRow{Row: r, Scope: "client metrics", Own: r.Default})
	}
	for _, r := range quotaRows {
		rows = append(rows, TableRow{Row: r, Scope: "quota", Own: r.Default})
	}
	return rows
}
