// Package registry is the tree that a cluster agrees on, with ZooKeeper's data model: versions,
// ephemeral nodes, sequence nodes, transactions, watches. It has roots of several kinds behind
// one interface; what is written against Tree runs on each of them.
//
// Locks, outermost first: Local.mu, then Watcher.mu. No lock is held while a caller's function
// runs, except that Group holds the writers' lock for the length of its function.
package registry

import (
	"errors"
	"fmt"
)

// What a call on a tree can end with. ZooKeeper's names.
var (
	ErrNoNode                  = errors.New("no node")
	ErrNodeExists              = errors.New("node exists")
	ErrBadVersion              = errors.New("bad version")
	ErrNotEmpty                = errors.New("node has children")
	ErrNoChildrenForEphemerals = errors.New("ephemeral nodes may not have children")
	ErrBadPath                 = errors.New("bad path")
	ErrSessionExpired          = errors.New("session expired")                 // a write under way may have taken place; its ephemeral nodes are gone
	ErrConnectionLoss          = errors.New("connection to the registry lost") // a write may have taken place
	ErrClosed                  = errors.New("registry closed")
	ErrStorage                 = errors.New("registry storage failed")                     // for good; the broker stops
	ErrFull                    = errors.New("no room on the disk for the registry's file") // that write failed, and nothing else
	ErrInUse                   = errors.New("registry in use by another process")
	ErrNoAuth                  = errors.New("no permission for the node")
	ErrTooLarge                = errors.New("larger than the registry takes")
)

// maxDepth bounds the parts of a path; Kafka's deepest has six.
const maxDepth = 100

// AnyVersion stands for whatever version a node has.
const AnyVersion int32 = -1

// Stat is what the tree knows of a node besides its data. Zxids are the numbers of transactions:
// of the node's creation, of its last change, of the last change of its children's names.
type Stat struct {
	Czxid, Mzxid, Pzxid       int64
	Ctime, Mtime              int64 // ms since 1970
	Version, Cversion         int32 // Cversion counts children made and deleted
	EphemeralOwner            int64 // session, 0 for a persistent node
	DataLength, NumberOfNodes int32 // bytes; children
}

// Mode is how a node is made.
type Mode int8

const (
	Persistent Mode = 0
	Ephemeral  Mode = 1 // gone with the session
	Sequence   Mode = 2 // the name gets ten digits that count the parent's children ever made
)

// OpKind is what an Op does.
type OpKind int8

const (
	OpCreate OpKind = iota
	OpSet
	OpDelete
	OpCheck
)

func (k OpKind) String() string { return [...]string{"create", "set", "delete", "check"}[k] }

// Op is one part of a transaction.
type Op struct {
	Kind    OpKind
	Path    string
	Data    []byte // nil is null data, which is not empty data
	Version int32
	Mode    Mode
}

// Create makes a node; its parent must exist.
func Create(path string, data []byte, mode Mode) Op {
	return Op{Kind: OpCreate, Path: path, Data: data, Mode: mode}
}

// Set replaces a node's data.
func Set(path string, data []byte, version int32) Op {
	return Op{Kind: OpSet, Path: path, Data: data, Version: version}
}

// Delete removes a node without children.
func Delete(path string, version int32) Op { return Op{Kind: OpDelete, Path: path, Version: version} }

// Check lets the transaction fail unless the node has this version.
func Check(path string, version int32) Op { return Op{Kind: OpCheck, Path: path, Version: version} }

// Result is what one op of a transaction gave: the path made or set (a made one with its sequence),
// and after Set the node's state. The state after Create is not told on every root.
type Result struct {
	Path string
	Stat Stat
}

// OpError says which op of a transaction failed; nothing of it has taken place.
type OpError struct {
	Index int
	Op    Op
	Err   error
}

func (e *OpError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op.Kind, e.Op.Path, e.Err) }
func (e *OpError) Unwrap() error { return e.Err }

// Node is one answer of GetAll.
type Node struct {
	Path string
	Data []byte
	Stat Stat
	Err  error // ErrNoNode, or nil
}

// Tree is one session on the tree. Its calls may come from any goroutine.
//
// A read with a Watcher (nil: none) sets a watch, which is gone after one event, as in ZooKeeper:
// Get and GetAll on the node's data and deletion, Children on its children and deletion; Exists
// also where there is no node. The watch is set before the read, so no change falls between.
// Get and Children of a node that does not exist set none. Within a session an event comes before
// the change that it is of can be read.
type Tree interface {
	Get(path string, w *Watcher) ([]byte, Stat, error)
	// Exists answers ErrNoNode where there is no node.
	Exists(path string, w *Watcher) (Stat, error)
	// Children gives the names below path in ascending order.
	Children(path string, w *Watcher) ([]string, Stat, error)
	// GetAll reads many nodes in one go, in the order asked for.
	GetAll(paths []string, w *Watcher) ([]Node, error)

	// Create makes one node and answers its path.
	Create(path string, data []byte, mode Mode) (string, error)
	Set(path string, data []byte, version int32) (Stat, error)
	Delete(path string, version int32) error
	// Multi does all ops or none; the error is then an *OpError, or one of the sentinels.
	Multi(ops ...Op) ([]Result, error)
	// Group runs f with a tree whose writes become durable together, where the root can do so:
	// an embedded root pays for one transaction. They can be seen by others when Group has
	// returned nil. Each Multi in it stands or falls by itself; an error of f or of the root
	// undoes all where the root can, and none on ZooKeeper. f must use no other tree.
	Group(f func(Tree) error) error

	// Session is the id by which ephemeral nodes are owned.
	Session() int64
	// MultiLimit is the most bytes of paths and data that one Multi takes; 0: no limit.
	MultiLimit() int
	// Renew opens a new session after ErrSessionExpired; until then every call is refused. The
	// watches of the old one are gone; its watchers are told that the tree is connected again.
	Renew() error
	// Close ends the session and its ephemeral nodes.
	Close() error
}

// checkPath holds ZooKeeper's rules for paths (PathUtils.validatePath). With sequence the last
// part may be empty.
func checkPath(path string, sequence bool) error {
	bad := func(why string) error { return fmt.Errorf("%w %q: %s", ErrBadPath, path, why) }
	if path == "" || path[0] != '/' {
		return bad("it must begin with /")
	}
	if path == "/" {
		return nil
	}
	for _, r := range path {
		if r < 0x20 || r >= 0x7f && (r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 && r <= 0xffff) {
			return bad("it has a character that may not be there")
		}
	}
	start, depth := 1, 1
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		switch part := path[start:i]; {
		case part == "" && !(sequence && i == len(path)):
			return bad("it has an empty part")
		case part == "." || part == "..":
			return bad("it has a relative part")
		}
		if depth++; depth > maxDepth {
			return bad("it is too deep")
		}
		start = i + 1
	}
	return nil
}

// split gives the parent and the last part of a checked path other than /.
func split(path string) (parent, name string) {
	i := len(path) - 1
	for path[i] != '/' {
		i--
	}
	if i == 0 {
		return "/", path[1:]
	}
	return path[:i], path[i+1:]
}

// CheckPath says what is wrong with a path of a node, by ZooKeeper's rules; an ErrBadPath.
func CheckPath(path string) error { return checkPath(path, false) }
