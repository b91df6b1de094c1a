package registry

import (
	"maps"
	"slices"
)

// memory is the store of a root that is gone with the process.
type memory struct {
	nodes map[string]*record
	below map[string]map[string]struct{} // children's names by parent; none: no entry
	last  int64                          // zxid
}

func newMemory() *memory {
	return &memory{nodes: map[string]*record{"/": {}}, below: map[string]map[string]struct{}{}}
}

// memoryTxn writes through and can be undone.
type memoryTxn struct {
	*memory
	undo []func()
}

func (m *memory) begin(bool) (txn, error) { return &memoryTxn{memory: m}, nil }
func (m *memory) commit(txn) error        { return nil }
func (m *memory) exclusive() bool         { return false }
func (m *memory) close() error            { return nil }

func (m *memory) discard(t txn) {
	for _, undo := range slices.Backward(t.(*memoryTxn).undo) {
		undo()
	}
}

func (t *memoryTxn) get(path string) *record { return t.nodes[path] }
func (t *memoryTxn) zxid() int64             { return t.last }

func (t *memoryTxn) setZxid(zxid int64) {
	before := t.last
	t.undo = append(t.undo, func() { t.last = before })
	t.last = zxid
}

func (t *memoryTxn) put(path string, r *record) {
	before := t.nodes[path]
	t.undo = append(t.undo, func() { t.place(path, before) })
	t.place(path, r)
}

func (t *memoryTxn) remove(path string) {
	before := t.nodes[path]
	t.undo = append(t.undo, func() { t.place(path, before) })
	t.place(path, nil)
}

func (m *memory) place(path string, r *record) {
	had := m.nodes[path] != nil
	if r != nil {
		m.nodes[path] = r
	} else {
		delete(m.nodes, path)
	}
	if path == "/" || had == (r != nil) {
		return
	}
	parent, name := split(path)
	switch names := m.below[parent]; {
	case r == nil:
		delete(names, name)
		if len(names) == 0 {
			delete(m.below, parent)
		}
	case names == nil:
		m.below[parent] = map[string]struct{}{name: {}}
	default:
		names[name] = struct{}{}
	}
}

func (t *memoryTxn) children(path string) []string { return slices.Sorted(maps.Keys(t.below[path])) }
