package registry

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// zkWatch is one call's part in a watch. Calls have parts of their own, so that one that sets none
// in the end takes nothing away from another.
type zkWatch struct {
	w    *Watcher
	live bool // the server has the watch
}

// zkWatches are by whole path.
type zkWatches map[string][]*zkWatch

func (s zkWatches) take(path string) []*zkWatch {
	fired := s[path]
	delete(s, path)
	return fired
}

func (s zkWatches) remove(path string, x *zkWatch) {
	if list := slices.DeleteFunc(s[path], func(y *zkWatch) bool { return x == y }); len(list) > 0 {
		s[path] = list
	} else {
		delete(s, path)
	}
}

// read does one read, again after a lost connection. With a watcher it takes part in the watch
// before the read is sent; call is told whether the server has to be asked for the watch or has
// it already.
func (t *zkTree) read(s *zkSession, path string, w *Watcher, in zkWatches, call func(set bool) error) error {
	deadline := time.NewTimer(t.o.Patience)
	defer deadline.Stop()
	whole := t.whole(path)
	for {
		if err := s.wait(deadline.C); err != nil {
			return err
		}
		set, mine := t.watch(s, whole, w, in)
		err := call(set)
		t.watched(whole, mine, in, err)
		if again, err := s.judge(err); !again {
			if err != nil {
				return fmt.Errorf("%w: %s", err, path)
			}
			return nil
		}
	}
}

func (t *zkTree) watch(s *zkSession, whole string, w *Watcher, in zkWatches) (set bool, mine *zkWatch) {
	if w == nil {
		return false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.over != nil {
		return false, nil
	}
	t.watchers[w] = struct{}{}
	set = !slices.ContainsFunc(in[whole], func(x *zkWatch) bool { return x.live })
	mine = &zkWatch{w: w}
	in[whole] = append(in[whole], mine)
	return set, mine
}

// watched ends what watch has begun.
func (t *zkTree) watched(whole string, mine *zkWatch, in zkWatches, err error) {
	if mine == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(in[whole], mine) {
		return // it has fired, or the session has ended
	}
	if err != nil || slices.ContainsFunc(in[whole], func(x *zkWatch) bool { return x != mine && x.live && x.w == mine.w }) {
		in.remove(whole, mine)
		return
	}
	mine.live = true
}

// zkErrors are the library's errors that the tree has too.
var zkErrors = []struct{ from, to error }{
	{zk.ErrNoNode, ErrNoNode},
	{zk.ErrNodeExists, ErrNodeExists},
	{zk.ErrBadVersion, ErrBadVersion},
	{zk.ErrNotEmpty, ErrNotEmpty},
	{zk.ErrNoChildrenForEphemerals, ErrNoChildrenForEphemerals},
	{zk.ErrInvalidPath, ErrBadPath},
	{zk.ErrBadArguments, ErrBadPath},
	{zk.ErrNoAuth, ErrNoAuth},
	{zk.ErrAuthFailed, ErrNoAuth},
	{zk.ErrInvalidACL, ErrNoAuth},
}

func zkError(err error) (error, bool) {
	for _, e := range zkErrors {
		if errors.Is(err, e.from) {
			return e.to, true
		}
	}
	return err, false
}

// judge tells whether a call has no answer, so that nothing is known, or else what it says.
func (s *zkSession) judge(err error) (again bool, _ error) {
	if err == nil {
		return false, nil
	}
	if known, ok := zkError(err); ok {
		return false, known
	}
	t := s.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s.over != nil:
		return false, s.over
	case errors.Is(err, zk.ErrSessionExpired):
		t.endLocked(s, ErrSessionExpired, Expired)
		return false, ErrSessionExpired
	case errors.Is(err, zk.ErrSessionMoved):
		if s.wire != nil {
			s.wire.Close() // another server has the session; the client has to look for it
		}
		return true, nil
	case lost(err):
		return true, nil
	}
	return false, fmt.Errorf("ZooKeeper: %w", err)
}

// lost tells errors of the connection from those of a request.
func lost(err error) bool {
	for _, e := range []error{zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrClosing, io.EOF, net.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	_, is := errors.AsType[net.Error](err)
	return is
}

// multi does a transaction whose paths are whole. Results have whole paths too.
//
// A transaction that has had no answer may have taken place. When there is a connection again, what
// is in the tree decides: it is then taken as done, or done now, or its outcome stays unknown and
// the error is ErrConnectionLoss. The request that had no answer cannot come later than that: the
// server has let go of the old connection before it took the new one.
func (t *zkTree) multi(s *zkSession, ops []Op) ([]Result, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	requests, size := make([]any, len(ops)), 0
	acl := zk.WorldACL(zk.PermAll)
	for i, op := range ops {
		const overhead = 96 // what else there is on the wire, and more
		size += len(op.Path) + len(op.Data) + overhead
		switch op.Kind {
		case OpCreate:
			requests[i] = &zk.CreateRequest{Path: op.Path, Data: op.Data, Acl: acl, Flags: int32(op.Mode)}
		case OpSet:
			requests[i] = &zk.SetDataRequest{Path: op.Path, Data: op.Data, Version: op.Version}
		case OpDelete:
			requests[i] = &zk.DeleteRequest{Path: op.Path, Version: op.Version}
		case OpCheck:
			requests[i] = &zk.CheckVersionRequest{Path: op.Path, Version: op.Version}
		default:
			return nil, &OpError{i, op, fmt.Errorf("%w: kind of op %d", ErrBadPath, op.Kind)}
		}
	}
	if size > t.o.MaxBuffer { // a server ends the connection at one that is too long
		return nil, fmt.Errorf("%w: %s and %d more: %d bytes of %d (jute.maxbuffer)", ErrTooLarge, ops[0].Path, len(ops)-1, size, t.o.MaxBuffer)
	}
	deadline := time.NewTimer(t.o.Patience)
	defer deadline.Stop()
	for unsure := false; ; {
		if err := s.wait(deadline.C); err != nil {
			return nil, err
		}
		if unsure {
			o := outcome{t: t, s: s, ops: ops, deadline: deadline.C}
			switch done, err := o.find(); {
			case err != nil:
				return nil, err
			case done:
				return o.results, nil
			}
		}
		answers, err := s.conn.Multi(requests...)
		if err == nil {
			return resultsOf(ops, answers)
		}
		if failed := failedOp(ops, answers); failed != nil {
			return nil, failed
		}
		again, why := s.judge(err)
		if !again {
			return nil, why
		}
		unsure = unsure || !errors.Is(err, zk.ErrNoServer) // that was not sent
	}
}

func resultsOf(ops []Op, answers []zk.MultiResponse) ([]Result, error) {
	if len(answers) != len(ops) {
		return nil, fmt.Errorf("ZooKeeper: %d answers to %d ops", len(answers), len(ops))
	}
	results := make([]Result, len(ops))
	for i, a := range answers {
		switch ops[i].Kind {
		case OpCreate:
			results[i].Path = a.String
		case OpSet:
			results[i].Path = ops[i].Path
			if a.Stat != nil {
				results[i].Stat = statOf(a.Stat)
			}
		}
	}
	return results, nil
}

// failedOp finds the op for which a transaction was refused: the first one with an error.
func failedOp(ops []Op, answers []zk.MultiResponse) error {
	for i, a := range answers {
		if a.Error == nil || i >= len(ops) {
			continue
		}
		known, ok := zkError(a.Error)
		if !ok {
			if errors.Is(a.Error, zk.ErrSessionExpired) || errors.Is(a.Error, zk.ErrSessionMoved) {
				return nil
			}
			known = fmt.Errorf("ZooKeeper: %w", a.Error)
		}
		return &OpError{i, ops[i], known}
	}
	return nil
}
