package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// suites are those that have an allow list.
var suites = []string{"smoke-kcat", "franz-go", "kafka-python", "pitfalls"}

// allowList is the names in suites/NAME.allow: tests that pass and must go on doing so. The list only grows.
func allowList(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("suites", name+".allow"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			names = append(names, line)
		}
	}
	return names
}

// finding is one line of suites/FINDINGS.md: a test that does not pass, why, and what will make it pass.
type finding struct{ why, what string }

var findingRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]+) \\|$")

// findingsOf is the table below the suite's heading in FINDINGS.md.
func findingsOf(t *testing.T, name string) map[string]finding {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("suites", "FINDINGS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## "+name+"\n")
	if !ok {
		t.Fatalf("FINDINGS.md has no heading %q", "## "+name)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	all := map[string]finding{}
	for _, m := range findingRow.FindAllStringSubmatch(section, -1) {
		all[m[1]] = finding{strings.TrimSpace(m[2]), strings.TrimSpace(m[3])}
	}
	return all
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }

func TestSuiteLists(t *testing.T) {
	for _, name := range suites {
		allowed, findings := allowList(t, name), findingsOf(t, name)
		if len(allowed) == 0 {
			t.Errorf("%s.allow has no names", name)
		}
		if !slices.IsSorted(allowed) {
			t.Errorf("%s.allow is not sorted", name)
		}
		if len(slices.Compact(slices.Clone(allowed))) != len(allowed) {
			t.Errorf("%s.allow has a name twice", name)
		}
		for test, f := range findings {
			if contains(allowed, test) {
				t.Errorf("%s: %s is both allowed and a finding", name, test)
			}
			if f.why == "" || f.what == "" {
				t.Errorf("%s: the finding %s does not say why, or what will make it pass", name, test)
			}
		}
	}
}
