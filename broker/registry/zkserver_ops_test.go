package registry

import (
	"cmp"
	"encoding/binary"
	"errors"
)

// jute reads and writes ZooKeeper's encoding: numbers big endian, strings and bytes after their
// length, -1 for null.
type jute struct {
	b   []byte
	bad bool
}

func (j *jute) take(n int) []byte {
	if n < 0 || n > len(j.b) {
		j.bad = true
		return make([]byte, max(0, min(n, 8)))
	}
	b := j.b[:n]
	j.b = j.b[n:]
	return b
}

func (j *jute) int() int32  { return int32(binary.BigEndian.Uint32(j.take(4))) }
func (j *jute) long() int64 { return int64(binary.BigEndian.Uint64(j.take(8))) }
func (j *jute) bool() bool  { return j.take(1)[0] != 0 }

func (j *jute) bytes() []byte {
	n := j.int()
	if n < 0 {
		return nil
	}
	return append([]byte{}, j.take(int(n))...)
}

func (j *jute) string() string { return string(j.bytes()) }

func (j *jute) strings() (all []string) {
	for range j.int() {
		if j.bad {
			break
		}
		all = append(all, j.string())
	}
	return all
}

func (j *jute) putInt(n int32)  { j.b = binary.BigEndian.AppendUint32(j.b, uint32(n)) }
func (j *jute) putLong(n int64) { j.b = binary.BigEndian.AppendUint64(j.b, uint64(n)) }

func (j *jute) putBytes(b []byte) {
	if b == nil {
		j.putInt(-1)
		return
	}
	j.putInt(int32(len(b)))
	j.b = append(j.b, b...)
}

func (j *jute) putStat(s Stat) {
	j.putLong(s.Czxid)
	j.putLong(s.Mzxid)
	j.putLong(s.Ctime)
	j.putLong(s.Mtime)
	j.putInt(s.Version)
	j.putInt(s.Cversion)
	j.putInt(0)
	j.putLong(s.EphemeralOwner)
	j.putInt(s.DataLength)
	j.putInt(s.NumberOfNodes)
	j.putLong(s.Pzxid)
}

func zkCode(err error) int32 {
	for _, e := range []struct {
		err  error
		code int32
	}{
		{ErrNoNode, -101}, {ErrBadVersion, -103}, {ErrNoChildrenForEphemerals, -108}, {ErrNodeExists, -110},
		{ErrNotEmpty, -111}, {ErrSessionExpired, -112}, {ErrClosed, -112}, {ErrBadPath, -8},
	} {
		if errors.Is(err, e.err) {
			return e.code
		}
	}
	return -1
}

func (c *zkServerConn) do(kind int32, q, out *jute) int32 {
	s := c.s.tree
	watcher := func(set bool) *Watcher {
		if set {
			return c.w
		}
		return nil
	}
	switch kind {
	case zkPing:
	case zkClose:
		c.z.mu.Lock()
		delete(c.z.sessions, c.id)
		c.z.mu.Unlock()
		s.Close()
	case zkSync:
		out.putBytes([]byte(q.string()))
	case zkExists:
		path := q.string()
		st, err := s.Exists(path, watcher(q.bool()))
		if err != nil {
			return zkCode(err)
		}
		out.putStat(st)
	case zkGetData:
		path := q.string()
		data, st, err := s.Get(path, watcher(q.bool()))
		if err != nil {
			return zkCode(err)
		}
		out.putBytes(data)
		out.putStat(st)
	case zkChildren:
		path := q.string()
		names, st, err := s.Children(path, watcher(q.bool()))
		if err != nil {
			return zkCode(err)
		}
		out.putInt(int32(len(names)))
		for _, name := range names {
			out.putBytes([]byte(name))
		}
		out.putStat(st)
	case zkMulti:
		return c.multi(q, out)
	case zkSetWatches:
		c.setWatches(q)
	default:
		return -6 // unimplemented
	}
	return 0
}

func (c *zkServerConn) multi(q, out *jute) int32 {
	var ops []Op
	for !q.bad {
		kind, done := q.int(), q.bool()
		q.int()
		if done {
			break
		}
		op := Op{Path: q.string()}
		switch kind {
		case zkCreate:
			op.Kind, op.Data = OpCreate, q.bytes()
			for range q.int() { // the access list
				q.int()
				q.string()
				q.string()
			}
			op.Mode = Mode(q.int())
		case zkSetData:
			op.Kind, op.Data, op.Version = OpSet, q.bytes(), q.int()
		case zkDelete:
			op.Kind, op.Version = OpDelete, q.int()
		case zkCheck:
			op.Kind, op.Version = OpCheck, q.int()
		}
		ops = append(ops, op)
	}
	results, err := c.s.tree.Multi(ops...)
	failed, refused := errors.AsType[*OpError](err)
	if err != nil && !refused {
		return zkCode(err)
	}
	head := func(kind int32, done bool, code int32) {
		out.putInt(kind)
		out.b = append(out.b, map[bool]byte{true: 1}[done])
		out.putInt(code)
	}
	for i, op := range ops {
		switch {
		case refused:
			code := int32(0)
			switch cmp.Compare(i, failed.Index) {
			case 0:
				code = zkCode(failed.Err)
			case 1:
				code = -2 // runtime inconsistency
			}
			head(-1, false, code)
			out.putInt(code)
		case op.Kind == OpCreate:
			head(zkCreate, false, 0)
			out.putBytes([]byte(results[i].Path))
		case op.Kind == OpSet:
			head(zkSetData, false, 0)
			out.putStat(results[i].Stat)
		case op.Kind == OpDelete:
			head(zkDelete, false, 0)
		default:
			head(zkCheck, false, 0)
		}
	}
	head(-1, true, -1)
	return 0
}

// setWatches takes up the watches of a client that has come back, and fires those whose nodes have
// changed since it was here (org.apache.zookeeper.server.DataTree.setWatches).
func (c *zkServerConn) setWatches(q *jute) {
	since := q.long()
	for _, path := range q.strings() {
		_, st, err := c.s.tree.Get(path, c.w)
		if err != nil {
			c.w.add(Event{NodeDeleted, path, 0})
		} else if st.Mzxid > since {
			c.fire(c.z.root.data, path, NodeChanged)
		}
	}
	for _, path := range q.strings() {
		if _, err := c.s.tree.Exists(path, c.w); err == nil {
			c.fire(c.z.root.data, path, NodeCreated)
		}
	}
	for _, path := range q.strings() {
		_, st, err := c.s.tree.Children(path, c.w)
		if err != nil {
			c.w.add(Event{NodeDeleted, path, 0})
		} else if st.Pzxid > since {
			c.fire(c.z.root.children, path, ChildrenChanged)
		}
	}
}

func (c *zkServerConn) fire(set watches, path string, kind EventKind) {
	l := c.z.root
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range set.take(path) {
		if w == c.w {
			w.add(Event{kind, path, 0})
		} else {
			set.set(path, w)
		}
	}
}
