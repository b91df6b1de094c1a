package registry

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// record is one node as the local roots keep it. It is not changed once it was put.
type record struct {
	data                []byte // nil: null
	czxid, mzxid, pzxid int64
	ctime, mtime        int64
	version             int32
	made                int32 // children ever made: the next sequence number
	nodes               int32 // children there are
	owner               int64
}

func (r *record) stat() Stat {
	return Stat{
		Czxid: r.czxid, Mzxid: r.mzxid, Pzxid: r.pzxid, Ctime: r.ctime, Mtime: r.mtime,
		Version: r.version, Cversion: 2*r.made - r.nodes, EphemeralOwner: r.owner,
		DataLength: int32(len(r.data)), NumberOfNodes: r.nodes,
	}
}

// txn is one transaction on a store. Reads see the writes before them.
type txn interface {
	get(path string) *record // nil: none
	put(path string, r *record)
	remove(path string)
	children(path string) []string // ascending
	zxid() int64
	setZxid(int64)
}

// store keeps the nodes of a local root. Its caller lets at most one writer in, and no reader
// beside it where exclusive says so.
type store interface {
	begin(write bool) (txn, error)
	commit(txn) error // the end of a writing txn, also where it fails
	discard(txn)      // the end of any other
	exclusive() bool
	close() error
}

// machine is the tree's logic for one Multi: a layer of changes over a txn, which reaches the
// txn only when every op has succeeded.
type machine struct {
	under   txn
	changed map[string]*record // nil: removed
	zxid    int64
	now     int64
	session int64
	out     effects
}

// effects is what a transaction does beyond the nodes, once it is durable.
type effects struct {
	fired []Event
	made  []ownedNode // ephemeral nodes
	gone  []ownedNode
}

type ownedNode struct {
	owner int64
	path  string
}

func (m *machine) get(path string) *record {
	if r, ok := m.changed[path]; ok {
		return r
	}
	return m.under.get(path)
}

// edit gives a copy of a node that may be changed.
func (m *machine) edit(path string) *record {
	r := m.get(path)
	if r == nil {
		return nil
	}
	c := *r
	m.changed[path] = &c
	return &c
}

// multi does the ops of one transaction. An error is an *OpError and has changed nothing.
func multi(under txn, session, now int64, ops []Op) ([]Result, effects, error) {
	m := machine{
		under: under, changed: make(map[string]*record, 2*len(ops)), zxid: under.zxid() + 1, now: now, session: session,
	}
	results := make([]Result, len(ops))
	for i, op := range ops {
		var err error
		if results[i], err = m.do(op); err != nil {
			return nil, effects{}, &OpError{i, op, err}
		}
	}
	if len(m.changed) == 0 {
		return results, effects{}, nil // only checks
	}
	for _, path := range slices.Sorted(maps.Keys(m.changed)) { // in key order: what a B+ tree takes best
		if r := m.changed[path]; r != nil {
			under.put(path, r)
		} else {
			under.remove(path)
		}
	}
	under.setZxid(m.zxid)
	return results, m.out, nil
}

func (m *machine) do(op Op) (Result, error) {
	if err := checkPath(op.Path, op.Kind == OpCreate && op.Mode&Sequence != 0); err != nil {
		return Result{}, err
	}
	switch op.Kind {
	case OpCreate:
		return m.create(op)
	case OpSet:
		r := m.get(op.Path)
		if err := versionIs(r, op.Version); err != nil {
			return Result{}, err
		}
		r = m.edit(op.Path)
		r.data, r.mzxid, r.mtime = slices.Clone(op.Data), m.zxid, m.now
		r.version++
		m.out.fired = append(m.out.fired, Event{NodeChanged, op.Path, m.zxid})
		return Result{op.Path, r.stat()}, nil
	case OpDelete:
		return Result{}, m.delete(op)
	case OpCheck:
		return Result{}, versionIs(m.get(op.Path), op.Version)
	}
	return Result{}, fmt.Errorf("%w: kind of op %d", ErrBadPath, op.Kind)
}

func versionIs(r *record, version int32) error {
	switch {
	case r == nil:
		return ErrNoNode
	case version != AnyVersion && version != r.version:
		return fmt.Errorf("%w: it is %d, not %d", ErrBadVersion, r.version, version)
	}
	return nil
}

func (m *machine) create(op Op) (Result, error) {
	if op.Path == "/" {
		return Result{}, ErrNodeExists
	}
	parentPath, _ := split(op.Path)
	parent := m.get(parentPath)
	switch {
	case parent == nil:
		return Result{}, ErrNoNode
	case parent.owner != 0:
		return Result{}, ErrNoChildrenForEphemerals
	}
	path := op.Path
	if op.Mode&Sequence != 0 {
		path += fmt.Sprintf("%010s", strconv.Itoa(int(parent.made)))
	}
	if m.get(path) != nil {
		return Result{}, ErrNodeExists
	}
	parent = m.edit(parentPath)
	parent.made++
	parent.nodes++
	parent.pzxid = m.zxid
	r := &record{data: slices.Clone(op.Data), czxid: m.zxid, mzxid: m.zxid, pzxid: m.zxid, ctime: m.now, mtime: m.now}
	if op.Mode&Ephemeral != 0 {
		r.owner = m.session
		m.out.made = append(m.out.made, ownedNode{r.owner, path})
	}
	m.changed[path] = r
	m.out.fired = append(m.out.fired, Event{NodeCreated, path, m.zxid}, Event{ChildrenChanged, parentPath, m.zxid})
	return Result{path, r.stat()}, nil
}

func (m *machine) delete(op Op) error {
	if op.Path == "/" {
		return fmt.Errorf("%w: the root stays", ErrBadPath)
	}
	r := m.get(op.Path)
	if err := versionIs(r, op.Version); err != nil {
		return err
	}
	if r.nodes > 0 {
		return ErrNotEmpty
	}
	if r.owner != 0 {
		m.out.gone = append(m.out.gone, ownedNode{r.owner, op.Path})
	}
	parentPath, _ := split(op.Path)
	parent := m.edit(parentPath)
	parent.nodes--
	parent.pzxid = m.zxid
	m.changed[op.Path] = nil
	m.out.fired = append(m.out.fired, Event{NodeDeleted, op.Path, m.zxid}, Event{ChildrenChanged, parentPath, m.zxid})
	return nil
}
