package registry

import (
	"errors"
	"fmt"

	"ottla/compat"
)

// Offset is the next offset that a group of Kafka 0.8's clients reads of a partition.
type Offset struct {
	Topic     string
	Partition int32
	Offset    int64
}

// offsetsShare is the part of a transaction that is filled with offsets: their parents need room too.
const offsetsShare = 4

// CommitOffsets keeps offsets where clients of Kafka 0.8 keep theirs: the node of a partition has
// the offset in decimal, and persistent nodes without data above it. Of a partition that is named
// twice the last counts. An error says nothing of what was kept of offsets that are too many for
// one transaction; committing them again does no harm.
func CommitOffsets(t Tree, group string, offsets []Offset) error {
	at := map[string]int{}
	var sets []Op
	for _, o := range offsets {
		path, data := compat.PathConsumerOffset(group, o.Topic, o.Partition), compat.EncodeConsumerOffset(o.Offset)
		if i, ok := at[path]; ok {
			sets[i].Data = data
			continue
		}
		if err := CheckPath(path); err != nil {
			return err
		}
		at[path] = len(sets)
		sets = append(sets, Set(path, data, AnyVersion))
	}
	return t.Group(func(t Tree) error {
		for len(sets) > 0 {
			n, bytes := 0, 0
			for n < len(sets) && (n == 0 || t.MultiLimit() == 0 || bytes < t.MultiLimit()/offsetsShare) {
				bytes += len(sets[n].Path) + len(sets[n].Data)
				n++
			}
			if err := setOrCreate(t, sets[:n]); err != nil {
				return err
			}
			sets = sets[n:]
		}
		return nil
	})
}

// setOrCreate sets nodes, and makes those that are missing with their parents. Others may make
// and delete the same nodes meanwhile; each time that they are in the way they have got somewhere.
func setOrCreate(t Tree, sets []Op) error {
	_, err := t.Multi(sets...)
	for errors.Is(err, ErrNoNode) || errors.Is(err, ErrNodeExists) {
		var paths []string
		known := map[string]bool{}
		for _, set := range sets {
			for i := 1; i < len(set.Path); i++ {
				if set.Path[i] == '/' && !known[set.Path[:i]] {
					known[set.Path[:i]] = true
					paths = append(paths, set.Path[:i])
				}
			}
		}
		var ops []Op
		if ops, err = missing(t, paths); err != nil {
			return err
		}
		paths = paths[:0]
		for _, set := range sets {
			paths = append(paths, set.Path)
		}
		nodes, err2 := t.GetAll(paths, nil)
		if err2 != nil {
			return err2
		}
		for i, n := range nodes {
			if errors.Is(n.Err, ErrNoNode) {
				ops = append(ops, Create(n.Path, sets[i].Data, Persistent))
			} else {
				ops = append(ops, sets[i])
			}
		}
		_, err = t.Multi(ops...)
	}
	return err
}

// CommittedOffsets reads what CommitOffsets or such a client has kept, for each of the partitions in
// their order (their Offset is not looked at): the offset, or -1 and an error, which is ErrNoNode where
// there is none, else one that names the node.
func CommittedOffsets(t Tree, group string, of []Offset) (offsets []int64, errs []error, err error) {
	paths := make([]string, len(of))
	for i, o := range of {
		paths[i] = compat.PathConsumerOffset(group, o.Topic, o.Partition)
	}
	nodes, err := t.GetAll(paths, nil)
	if err != nil {
		return nil, nil, err
	}
	offsets, errs = make([]int64, len(of)), make([]error, len(of))
	for i, n := range nodes {
		offsets[i] = -1
		if n.Err != nil || n.Data == nil { // without data there is none either, as for Kafka
			errs[i] = ErrNoNode
			continue
		}
		if at, err := compat.DecodeConsumerOffset(n.Data); err != nil {
			errs[i] = fmt.Errorf("%s: %w", n.Path, err)
		} else {
			offsets[i] = at
		}
	}
	return offsets, errs, nil
}
