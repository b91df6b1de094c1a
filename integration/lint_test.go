package integration

import (
	"go/ast"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"ottla/compat"
)

// TestNoSleepInTests: a sleep that waits for something to happen is too short on a busy machine and
// too long on every other. In a bubble of testing/synctest time is fake and a sleep is exact.
func TestNoSleepInTests(t *testing.T) {
	for _, f := range sources(t) {
		if !f.test {
			continue
		}
		var bubbles []ast.Node
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && isSelector(c.Fun, "synctest", "Test") {
				bubbles = append(bubbles, c)
			}
			return true
		})
		ast.Inspect(f.ast, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if ok && isSelector(c.Fun, "time", "Sleep") && !slices.ContainsFunc(bubbles, func(b ast.Node) bool { return b.Pos() <= c.Pos() && c.End() <= b.End() }) {
				t.Errorf("%s: time.Sleep outside a synctest bubble; wait for what is to happen", f.at(c))
			}
			return true
		})
	}
}

// TestAnswersComeFromConstructors: kmsg's constructors put Kafka's defaults into an answer, which are often -1 or
// null; in a struct literal they would be Go's zeroes, and clients act on those.
func TestAnswersComeFromConstructors(t *testing.T) {
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.CompositeLit:
				if answerType(x.Type) {
					t.Errorf("%s: literal of %s; use its constructor", f.at(x), name(x.Type))
				}
				elem := element(x.Type)
				for _, e := range x.Elts { // []kmsg.XResponseTopic{{...}}
					if kv, ok := e.(*ast.KeyValueExpr); ok {
						e = kv.Value
					}
					if lit, ok := e.(*ast.CompositeLit); ok && lit.Type == nil && answerType(elem) {
						t.Errorf("%s: literal of %s; use its constructor", f.at(lit), name(elem))
					}
				}
			case *ast.CallExpr:
				if id, ok := x.Fun.(*ast.Ident); ok && id.Name == "new" && len(x.Args) == 1 && answerType(x.Args[0]) {
					t.Errorf("%s: new(%s); use its constructor", f.at(x), name(x.Args[0]))
				}
			case *ast.ValueSpec:
				if answerType(x.Type) && x.Values == nil {
					t.Errorf("%s: zero value of %s; use its constructor", f.at(x), name(x.Type))
				}
			}
			return true
		})
	}
}

// TestEveryServedAPIHasItsFile: the handler of an API is in the file that has its name.
func TestEveryServedAPIHasItsFile(t *testing.T) {
	have := map[string]bool{}
	for _, f := range sources(t) {
		have[f.path] = true
	}
	for _, a := range compat.APIs {
		if file := "broker/api/" + snake(a.Name) + ".go"; a.State == compat.Served && !have[file] {
			t.Errorf("%s is served, and there is no %s", a.Name, file)
		}
	}
}

// history is what comments do not say: plans, tickets and what was before.
var history = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b|(?i)\bnot (yet )?implemented\b|\bissue #?\d+\b|\bphase \d`)

// TestCommentsSayWhatHolds keeps plans out of the code.
func TestCommentsSayWhatHolds(t *testing.T) {
	for _, f := range sources(t) {
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				if m := history.FindString(c.Text); m != "" && !strings.HasPrefix(f.path, "integration/lint_test.go") {
					t.Errorf("%s: %q in a comment", f.at(c), m)
				}
			}
		}
	}
}

func isSelector(x ast.Expr, pkg, sel string) bool {
	s, ok := x.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != sel {
		return false
	}
	id, ok := s.X.(*ast.Ident)
	return ok && id.Name == pkg
}

// answerType says whether x is a struct of an answer: kmsg.…Response….
func answerType(x ast.Expr) bool {
	s, ok := x.(*ast.SelectorExpr)
	if !ok || !strings.Contains(s.Sel.Name, "Response") {
		return false
	}
	id, ok := s.X.(*ast.Ident)
	return ok && id.Name == "kmsg" && !strings.HasPrefix(s.Sel.Name, "New")
}

func element(x ast.Expr) ast.Expr {
	switch x := x.(type) {
	case *ast.ArrayType:
		return x.Elt
	case *ast.MapType:
		return x.Value
	}
	return nil
}

func name(x ast.Expr) string { return "kmsg." + x.(*ast.SelectorExpr).Sel.Name }

// snake turns ListOffsets into list_offsets.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) {
			if i > 0 {
				b.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{"Produce": "produce", "InitProducerId": "init_producer_id", "ApiVersions": "api_versions"} {
		if got := snake(in); got != want {
			t.Errorf("snake(%s) = %s, want %s", strconv.Quote(in), got, want)
		}
	}
}
