package integration

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport is which of ottla's rooms each room may import. Imports go downwards only; a room
// that is not here is refused, so that its place is decided and not found.
var mayImport = map[string][]string{
	"protocol/record": {},
	"log/vfs":         {},
	"broker/metadata": {},
	"broker/metrics":  {},

	"protocol": {"protocol/record"},
	"compat":   {"protocol"},
	"log":      {"protocol/record", "log/vfs"},
	// reads records of internal topics for tools and for adoption; its tests read segments
	"protocol/schema": {"protocol/record"},

	"coordinator":         {"protocol", "protocol/record"},
	"coordinator/group":   {"protocol", "protocol/record", "coordinator"},
	"coordinator/txn":     {"protocol", "protocol/record", "coordinator"},
	"coordinator/share":   {"protocol", "protocol/record", "coordinator"},
	"coordinator/streams": {"protocol", "protocol/record", "coordinator"},

	"broker/server":   {"protocol"},
	"broker/auth":     {"protocol"},
	"broker/quota":    {"protocol"},
	"broker/peer":     {"protocol", "broker/auth"},
	"broker/registry": {"compat"},
	// reads metadata that another Kafka has left, from files, and makes nodes of them
	"broker/adopt":      {"compat", "log/vfs", "protocol/record", "protocol/schema"},
	"broker/replica":    {"log", "protocol", "protocol/record", "broker/metadata", "broker/peer"},
	"broker/controller": {"compat", "broker/metadata", "broker/registry", "broker/peer"},
	// other brokers, as the rooms that ask them need them
	"broker/remote": {"compat", "protocol", "log", "coordinator", "coordinator/txn", "broker/metadata", "broker/peer", "broker/replica", "broker/controller"},
	// config sets the Options of these rooms, so it is above them
	"broker/config": {"compat", "log", "coordinator", "coordinator/group", "coordinator/txn", "coordinator/share", "coordinator/streams",
		"broker/server", "broker/auth", "broker/quota", "broker/replica", "broker/controller"},
	// follow reads the registry's nodes, whose shapes are in compat
	"broker/follow": {"compat", "broker/registry", "broker/metadata", "broker/config", "broker/auth"},

	"broker/api":     allBut("broker", "broker/server", "broker/console", "broker/api", "compat/cli", "integration", "."),
	"broker/console": allBut("broker", "broker/console", "compat/cli", "integration", "."),
	"compat/cli":     allBut("broker", "broker/api", "broker/server", "compat/cli", "integration", "."),
	"broker":         allBut("broker", "compat/cli", "integration", "."),
	".":              allBut("integration", "."),
	"integration":    allBut("integration", "."),
}

// below are the rooms that the upper ones may import, in one list.
var below = []string{
	"protocol/record", "protocol/schema", "protocol", "log/vfs", "log", "compat", "compat/cli",
	"coordinator", "coordinator/group", "coordinator/txn", "coordinator/share", "coordinator/streams",
	"broker", "broker/adopt", "broker/api", "broker/auth", "broker/config", "broker/console", "broker/controller", "broker/follow", "broker/metadata",
	"broker/metrics", "broker/peer", "broker/quota", "broker/registry", "broker/remote", "broker/replica", "broker/server",
}

func allBut(rooms ...string) []string {
	return slices.DeleteFunc(slices.Clone(below), func(r string) bool { return slices.Contains(rooms, r) })
}

// topLevel is what may lie at the root of the repository.
var topLevel = []string{
	".ci", ".dockerignore", ".git", ".gitignore", "ARCHITECTURE.md", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "NOTICE", "README.md",
	"broker", "compat", "coordinator", "docker-compose.yml", "go.mod", "go.sum", "integration", "log", "main.go", "main_test.go", "dev_cluster.go", "protocol",
}

func TestTopLevel(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		own := slices.ContainsFunc(strings.Fields(string(ignored)), func(p string) bool {
			ok, _ := path.Match(strings.Trim(p, "/"), e.Name())
			return ok
		})
		if !own && !slices.Contains(topLevel, e.Name()) {
			t.Errorf("%s lies at the root; the house has no such room", e.Name())
		}
	}
}

func TestImports(t *testing.T) {
	for _, f := range sources(t) {
		may, known := mayImport[f.room]
		if !known {
			t.Errorf("%s: %s is not a room of the house; give it a row in mayImport", f.path, f.room)
			continue
		}
		if f.test { // a test may also build what its room's neighbours are made of
			may = closure(f.room)
		}
		for _, spec := range f.ast.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			room, ours := strings.CutPrefix(name, "ottla/")
			if name == "ottla" {
				room, ours = ".", true
			}
			if ours && room != f.room && !slices.Contains(may, room) {
				t.Errorf("%s: %s may not import %s", f.path, f.room, room)
			}
		}
	}
}

// closure is all that a room may import, directly or not.
func closure(room string) []string {
	seen := map[string]bool{}
	var add func(string)
	add = func(r string) {
		for _, x := range mayImport[r] {
			if !seen[x] {
				seen[x] = true
				add(x)
			}
		}
	}
	add(room)
	return slices.Collect(maps.Keys(seen))
}

// source is one Go file of the repository.
type source struct {
	path string // from the root
	room string // its folder: "." for the root
	test bool
	fset *token.FileSet
	ast  *ast.File
}

func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// sources parses every Go file but programs that are run by go generate alone. It reads the files itself:
// a test that asked `go list` would be answered from the test cache.
func sources(t *testing.T) []source {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	var all []source
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != root && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil || ignored(f) {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		room := path.Dir(rel)
		if strings.HasPrefix(room, "integration/") {
			room = "integration"
		}
		all = append(all, source{rel, room, strings.HasSuffix(rel, "_test.go"), fset, f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go files found")
	}
	return all
}

// ignored says whether a file is never part of a build.
func ignored(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if c.Pos() < f.Package && constraint.IsGoBuild(c.Text) {
				if x, err := constraint.Parse(c.Text); err == nil && x.String() == "ignore" {
					return true
				}
			}
		}
	}
	return false
}
