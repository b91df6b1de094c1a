package cli

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ottla/broker/registry"
	"ottla/compat"
)

// placing says what becomes of a node when a tree is carried elsewhere.
type placing int8

const (
	placeLeft    placing = iota // left where it is, and counted
	placeSilent                 // left where it is: it means something only there
	placeCarried                // with all below it, unless that is placed otherwise
)

const (
	pathTokens       = "/delegation_token"
	pathTokenChanges = "/delegation_token/token_changes"
)

// place is where a path is placed: as the nearest of these that it is, or is below. What is left
// silently are the nodes of brokers that run, notifications, whose readers are elsewhere, and
// sequence counters.
func place(path string) placing {
	for at := path; at != "/"; at = parentOf(at) {
		switch at {
		case compat.PathCluster, compat.PathControllerEpoch, compat.PathTopics, compat.PathConfig, compat.PathDeleteTopics,
			compat.PathProducerIDs, compat.PathFeature, compat.PathConsumers, compat.PathACLs, compat.PathACLsExtended, pathTokens:
			return placeCarried
		case compat.PathBrokers, compat.PathController, compat.PathConfigChanges, compat.PathISRChanges, compat.PathLogDirEvents,
			compat.PathACLChanges, compat.PathACLChangesExtended, pathTokenChanges, pathZooKeeper:
			return placeSilent
		case compat.PathAdmin:
			if at == path {
				return placeSilent
			}
			return placeLeft // an order to a controller, which another one must not carry out later
		}
	}
	return placeLeft
}

const pathZooKeeper = "/zookeeper" // its own

func parentOf(path string) string { return path[:max(1, strings.LastIndexByte(path, '/'))] }

// sortNodes puts parents before children and all into the order of their parts, so that two
// exports can be compared line by line.
func sortNodes(nodes []treeNode) {
	slices.SortFunc(nodes, func(a, b treeNode) int {
		return slices.Compare(strings.Split(a.path, "/"), strings.Split(b.path, "/"))
	})
}

// readTree reads what is to be carried; left names what is not, by the highest node.
func readTree(t registry.Tree) (nodes []treeNode, left []string, err error) {
	level := []string{"/"}
	for len(level) > 0 {
		var next []string
		for _, path := range level {
			names, _, err := t.Children(path, nil)
			if errors.Is(err, registry.ErrNoNode) {
				continue // gone in between
			} else if err != nil {
				return nil, nil, err
			}
			for _, name := range names {
				next = append(next, strings.TrimSuffix(path, "/")+"/"+name)
			}
		}
		found, err := t.GetAll(next, nil)
		if err != nil {
			return nil, nil, err
		}
		level = level[:0]
		for _, n := range found {
			if n.Err != nil || n.Stat.EphemeralOwner != 0 {
				continue
			}
			switch place(n.Path) {
			case placeCarried:
				nodes = append(nodes, treeNode{path: n.Path, data: n.Data})
			case placeLeft:
				left = append(left, n.Path)
				continue
			}
			if n.Stat.NumberOfNodes > 0 && n.Path != pathZooKeeper {
				level = append(level, n.Path)
			}
		}
	}
	sortNodes(nodes)
	slices.Sort(left)
	return nodes, left, nil
}

// contents is what the summary tells, and what decides whether a tree may be written over.
type contents struct {
	cluster                   string
	topics, partitions, users int
}

func contentsOf(nodes []treeNode) (c contents, err error) {
	for _, n := range nodes {
		part := strings.Split(n.path[1:], "/")
		switch {
		case n.path == compat.PathClusterID:
			id, err := compat.DecodeClusterID(n.data)
			if err != nil {
				return c, fmt.Errorf("%s%s: %w", n.from, n.path, err)
			}
			c.cluster = id.ID
		case len(part) == 3 && part[0] == "brokers" && part[1] == "topics":
			c.topics++
			topic, err := compat.DecodeTopic(n.data)
			if err != nil {
				return c, fmt.Errorf("%s%s: %w", n.from, n.path, err)
			}
			c.partitions += len(topic.Partitions)
		case len(part) == 3 && part[0] == "config" && part[1] == "users" && part[2] != compat.DefaultEntity:
			c.users++
		}
	}
	return c, nil
}

// plan is what has to be done to a tree.
type plan struct {
	ops                    []registry.Op
	made, changed, removed int
	kept                   int // differ, and stay as they are
}

// planWrite finds the ops that make the nodes in a tree that has some already. What is there and
// differs is changed, unless keep is set; what is there beyond the nodes stays, unless remove is set.
// Of counters the higher one stays in any case.
func planWrite(t registry.Tree, nodes, before []treeNode, keep, remove bool) (*plan, error) {
	p := &plan{}
	have := make(map[string][]byte, len(before))
	for _, n := range before {
		have[n.path] = n.data
	}
	want := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		want[n.path] = true
	}
	parents := map[string]bool{"/": true}
	var need func(path string) error
	need = func(path string) error { // makes the nodes above
		parent := parentOf(path)
		if parents[parent] {
			return nil
		}
		parents[parent] = true
		if _, ok := have[parent]; ok || want[parent] {
			return nil
		}
		if err := need(parent); err != nil {
			return err
		}
		if _, err := t.Exists(parent, nil); errors.Is(err, registry.ErrNoNode) {
			p.ops = append(p.ops, registry.Create(parent, nil, registry.Persistent))
		} else if err != nil {
			return err
		}
		return nil
	}
	if remove {
		for _, n := range slices.Backward(before) { // children first
			if !want[n.path] && n.path != compat.PathFeature {
				p.ops = append(p.ops, registry.Delete(n.path, registry.AnyVersion))
				p.removed++
			}
		}
	}
	var last []registry.Op // a tree without its cluster's id is not complete
	for _, n := range nodes {
		if err := need(n.path); err != nil {
			return nil, err
		}
		ops := &p.ops
		if n.path == compat.PathClusterID {
			ops = &last
		}
		old, ok := have[n.path]
		switch {
		case !ok:
			*ops = append(*ops, registry.Create(n.path, n.data, registry.Persistent))
			p.made++
		case bytes.Equal(old, n.data) && (old == nil) == (n.data == nil):
		case newer(n.path, old, n.data):
		case keep && !newer(n.path, n.data, old):
			p.kept++
		default:
			*ops = append(*ops, registry.Set(n.path, n.data, registry.AnyVersion))
			p.changed++
		}
	}
	for _, path := range compat.PersistentPaths { // a broker makes them before anything else
		if err := need(path + "/x"); err != nil {
			return nil, err
		}
	}
	p.ops = append(p.ops, last...)
	return p, nil
}

// newer says whether a is a counter that is further than b. To go back would give out a producer's
// id twice, or let an old controller's word count.
func newer(path string, a, b []byte) bool {
	switch path {
	case compat.PathControllerEpoch:
		x, err1 := compat.DecodeControllerEpoch(a)
		y, err2 := compat.DecodeControllerEpoch(b)
		return err1 == nil && err2 == nil && x > y
	case compat.PathProducerIDs:
		x, err1 := compat.DecodeProducerBlock(a)
		y, err2 := compat.DecodeProducerBlock(b)
		return err1 == nil && err2 == nil && x.End > y.End
	}
	return false
}

const carryOps = 500 // of one transaction

// do writes a plan: at once where the root can, else in transactions of some hundred nodes each.
func (p *plan) do(t registry.Tree) error {
	return t.Group(func(t registry.Tree) error {
		for ops := p.ops; len(ops) > 0; {
			n, size := 0, 0
			for ; n < len(ops) && n < carryOps; n++ {
				size += len(ops[n].Path) + len(ops[n].Data) + 64
				if limit := t.MultiLimit(); limit > 0 && size > limit && n > 0 {
					break
				}
			}
			if _, err := t.Multi(ops[:n]...); err != nil {
				return err // it names the node
			}
			ops = ops[n:]
		}
		return nil
	})
}

// levels names the feature levels that a node has, for the summary.
func levels(data []byte) string {
	n, err := compat.DecodeFeature(data)
	if err != nil || len(n.Levels) == 0 {
		return ""
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(n.Levels)) {
		all = append(all, fmt.Sprintf("%s %d", name, n.Levels[name]))
	}
	return strings.Join(all, ", ")
}
