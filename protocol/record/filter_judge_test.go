package record

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// filterHorizon is the delete horizon of every case: the time of it and a minute.
const filterHorizon = 1700000060000

// filterCases are entries of all formats and codecs by name.
func filterCases() (names []string, entries map[string]Batch) {
	entries = map[string]Batch{}
	add := func(name string, b Batch) { names, entries[name] = append(names, name), b }
	producer := &ProducerInfo{ID: 9, Epoch: 3, Sequence: 17, Transactional: true}
	for codec := None; codec <= Zstd; codec++ {
		add(codec.Name()+"-5", numbered(BuilderOptions{BaseOffset: 1 << 33, LeaderEpoch: 4, Producer: producer, Codec: codec}, 5, "v"))
		add(codec.Name()+"-40", numbered(BuilderOptions{BaseOffset: 100, Codec: codec}, 40, "value"))
		add(codec.Name()+"-append", numbered(BuilderOptions{BaseOffset: 6, LogAppend: true, AppendTime: 5000, Codec: codec}, 7, "v"))
		var f Filter
		with, _, _ := f.Append(nil, numbered(BuilderOptions{BaseOffset: 6, Codec: codec}, 7, "v"), FilterRules{Horizon: 4000, NeedsHorizon: true}, func(Sketch) bool { return true })
		add(codec.Name()+"-horizon", with)
		if codec != Zstd {
			add(codec.Name()+"-v0", numberedOld(0, codec, 6, 700))
			add(codec.Name()+"-v1", numberedOld(1, codec, 6, 700))
		}
	}
	marker := EndMarker{Commit: true, CoordinatorEpoch: 5}.Batch(9, 3, 7000)
	marker.SetBaseOffset(12)
	marker.SetLeaderEpoch(2)
	add("marker", marker)
	return names, entries
}

// TestFilterJudge holds Filter to what Kafka's MemoryRecords.filterTo makes of the same bytes: the same
// bytes without compression; with it the same header and records, as the codecs are others.
func TestFilterJudge(t *testing.T) {
	names, entries := filterCases()
	params := []string{}
	for _, every := range []int{1, 2, 3, 1000} {
		for _, empty := range []string{"keep", "drop"} {
			for _, horizon := range []string{"horizon", "none"} {
				params = append(params, fmt.Sprintf("%d,%s,%s", every, empty, horizon))
			}
		}
	}
	if *writeCases {
		var out strings.Builder
		for _, name := range names {
			for _, p := range params {
				fmt.Fprintf(&out, "%s/%s\t%s\t%s\n", name, p, p, hex.EncodeToString(entries[name]))
			}
		}
		if err := os.WriteFile("testdata/filter-cases.tsv", []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		t.SkipNow()
	}
	answers := map[string][]string{}
	for _, line := range lines(t, "testdata/filter-answers.tsv") {
		f := strings.Split(line, "\t")
		answers[f[0]] = f[1:]
	}
	var filter Filter
	cases := lines(t, "testdata/filter-cases.tsv")
	if len(cases) != len(names)*len(params) || len(answers) != len(cases) {
		t.Fatalf("%d cases and %d answers, want %d", len(cases), len(answers), len(names)*len(params))
	}
	for _, line := range cases {
		f := strings.Split(line, "\t")
		data, err := hex.DecodeString(f[2])
		if err != nil {
			t.Fatal(err)
		}
		p := strings.Split(f[1], ",")
		every, _ := strconv.ParseInt(p[0], 10, 64)
		got, n, err := filter.Append(nil, Batch(data), FilterRules{KeepEmpty: p[1] == "keep", Horizon: filterHorizon, NeedsHorizon: p[2] == "horizon"},
			func(s Sketch) bool { return s.Offset%every == 1%every })
		if err != nil {
			t.Fatalf("%s: %v", f[0], err)
		}
		answer := answers[f[0]]
		if answer[0] == "IllegalStateException" && Batch(data).Magic() < 2 && len(got) == 0 {
			continue // Kafka gives up where an old entry should stay empty; ours lets it go
		}
		want, err := hex.DecodeString(answer[2])
		if err != nil || strconv.Itoa(n.Read) != answer[0] || strconv.Itoa(n.Kept) != answer[1] {
			t.Errorf("%s: %+v, Kafka %v", f[0], n, answer[:2])
			continue
		}
		if len(got) == 0 || len(want) == 0 || Batch(want).Codec() == None {
			if !bytes.Equal(got, want) {
				t.Errorf("%s: %x, Kafka %x", f[0], got, want)
			}
			continue
		}
		g, w := Batch(got), Batch(want)
		if !slices.EqualFunc(recordsOf(t, g), recordsOf(t, w), sameRecord) {
			t.Errorf("%s: other records", f[0])
		}
		same := g.Magic() == w.Magic() && g.BaseOffset() == w.BaseOffset() && g.Attributes() == w.Attributes() && g.MaxTimestamp() == w.MaxTimestamp()
		if same && g.Magic() == 2 {
			same = bytes.Equal(g[atLeaderEpoch:atCRC], w[atLeaderEpoch:atCRC]) && bytes.Equal(g[atAttributes:HeaderSize], w[atAttributes:HeaderSize])
		}
		if !same {
			t.Errorf("%s: %v %x, Kafka %v %x", f[0], g, g[:HeaderSize], w, w[:HeaderSize])
		}
	}
}
