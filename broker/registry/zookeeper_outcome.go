package registry

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// outcome finds out whether a transaction whose answer was lost has taken place. All that one
// transaction changes has its number, the zxid: a node that it has made or set shows it, until
// somebody changes the node again.
type outcome struct {
	t        *zkTree
	s        *zkSession
	ops      []Op
	deadline <-chan time.Time

	results []Result // if it has
	zxid    int64    // of the transaction, where the nodes tell; else 0
}

// trace is what a transaction leaves at one path.
type trace struct {
	made, set, deleted bool
	owner              int64  // of a node made
	data               []byte // afterwards
	version            int32  // afterwards; AnyVersion: not known
}

// sign is what one path says.
type sign int8

const (
	signNone  sign = iota // nothing either way
	signDone              // as the transaction leaves it
	signNot               // as it would not be
	signMoved             // changed by others since, or never touched: cannot be told
)

// find reads the nodes. An error is ErrConnectionLoss where it cannot be told what happened.
func (o *outcome) find() (done bool, err error) {
	// The server that has the session now may be behind the one that had it.
	if err := o.again(func() error { _, err := o.s.conn.Sync("/"); return err }); err != nil {
		return false, err
	}
	traces, order := o.traces()
	stats := map[string]Stat{}
	fits, moved, counted := 0, 0, false
	for _, path := range order {
		st, data, there, err := o.node(path)
		if err != nil {
			return false, err
		}
		stats[path] = st
		says, zxid := traces[path].sign(st, data, there)
		switch says {
		case signNot:
			return false, nil
		case signMoved:
			moved++
		case signDone:
			fits++
			if zxid != 0 && o.zxid != 0 && zxid != o.zxid {
				return false, nil // not all of one transaction
			}
			if zxid != 0 {
				o.zxid, counted = zxid, true
			}
		}
	}
	sequences := slices.ContainsFunc(o.ops, func(op Op) bool { return op.Kind == OpCreate && op.Mode&Sequence != 0 })
	switch {
	case moved > 0, sequences && !counted:
		return false, fmt.Errorf("%w while %s %s and %d more were written: the outcome is not known", ErrConnectionLoss, o.ops[0].Kind, o.t.local(o.ops[0].Path), len(o.ops)-1)
	case fits == 0:
		return false, nil
	}
	return o.fill(stats)
}

// again repeats a read while the connection is lost.
func (o *outcome) again(f func() error) error {
	for {
		if err := o.s.wait(o.deadline); err != nil {
			return err
		}
		again, err := o.s.judge(f())
		if !again {
			return err
		}
	}
}

func (o *outcome) node(whole string) (st Stat, data []byte, there bool, err error) {
	err = o.again(func() error {
		d, zst, err := o.s.conn.Get(whole)
		if err == nil {
			st, data = statOf(zst), d
		}
		return err
	})
	if errors.Is(err, ErrNoNode) {
		return Stat{}, nil, false, nil
	}
	return st, data, err == nil, err
}

// traces are by path, but for nodes with sequences, whose paths are not known.
func (o *outcome) traces() (map[string]*trace, []string) {
	traces, order := map[string]*trace{}, []string(nil)
	for _, op := range o.ops {
		if op.Kind == OpCheck || op.Kind == OpCreate && op.Mode&Sequence != 0 {
			continue
		}
		x := traces[op.Path]
		if x == nil {
			x = &trace{version: AnyVersion}
			traces[op.Path] = x
			order = append(order, op.Path)
		}
		switch op.Kind {
		case OpCreate:
			*x = trace{made: true, data: op.Data, version: 0}
			if op.Mode&Ephemeral != 0 {
				x.owner = o.s.id
			}
		case OpSet:
			x.data = op.Data
			if x.version != AnyVersion {
				x.version++
			} else if op.Version != AnyVersion {
				x.version = op.Version + 1
			}
			x.set = true
		case OpDelete:
			*x = trace{deleted: true, version: AnyVersion}
		}
	}
	return traces, order
}

// sign compares a trace with what is there, and gives the zxid of what fits.
func (x *trace) sign(st Stat, data []byte, there bool) (sign, int64) {
	same := there && bytes.Equal(data, x.data) && (data == nil) == (x.data == nil)
	switch {
	case x.deleted:
		if there {
			return signNot, 0
		}
		return signDone, 0
	case x.made && !there:
		return signNot, 0
	case x.made:
		switch {
		case st.EphemeralOwner != x.owner:
			return signNot, 0
		case st.Version > x.version:
			return signMoved, 0
		case st.Version == x.version && same && st.Mzxid == st.Czxid:
			return signDone, st.Mzxid
		}
		return signNot, 0
	case !there:
		return signMoved, 0
	case x.version == AnyVersion:
		if same {
			return signDone, st.Mzxid
		}
		return signNone, 0 // whoever sets any version may do it again
	case st.Version > x.version:
		return signMoved, 0
	case st.Version == x.version && same:
		return signDone, st.Mzxid
	}
	return signNot, 0
}

// fill makes the results of a transaction that has taken place.
func (o *outcome) fill(stats map[string]Stat) (bool, error) {
	o.results = make([]Result, len(o.ops))
	taken := map[string]bool{}
	for i, op := range o.ops {
		r := &o.results[i]
		switch {
		case op.Kind == OpCreate && op.Mode&Sequence != 0:
			path, err := o.sequence(op, taken)
			if err != nil {
				return false, err
			}
			taken[path] = true
			r.Path = path
		case op.Kind == OpCreate:
			r.Path = op.Path
		case op.Kind == OpSet:
			r.Path, r.Stat = op.Path, stats[op.Path]
		}
	}
	return true, nil
}

// sequence finds the node with a sequence that the transaction has made, by its zxid.
func (o *outcome) sequence(op Op, taken map[string]bool) (string, error) {
	parent, prefix := split(op.Path)
	var names []string
	err := o.again(func() (err error) { names, _, err = o.s.conn.Children(parent); return err })
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	if parent == "/" {
		parent = ""
	}
	for _, name := range slices.Backward(names) {
		path := parent + "/" + name
		if !strings.HasPrefix(name, prefix) || len(name) != len(prefix)+10 || taken[path] {
			continue
		}
		st, _, there, err := o.node(path)
		if err != nil {
			return "", err
		}
		if there && st.Czxid == o.zxid {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w while %s was made: it has taken place, and the node is gone", ErrConnectionLoss, o.t.local(op.Path))
}
