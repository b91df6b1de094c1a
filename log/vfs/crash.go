package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashClone returns what a new process may find after a power failure at this moment: all
// that was synced; of each directory's later changes any prefix; of each file's later changes
// any prefix, the last of them torn at any byte, and now and then zeros where its bytes did not
// arrive although the file had grown. The same seed and history give the same result. The file
// system itself is left as it is, so that one history can crash in many ways.
//
// It is for a file system of NewCrashable; of any other nothing is left.
func (m *Memory) CrashClone(seed uint64) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crash{rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), map[*fileNode]*fileNode{}}
	clone := newMemory(true)
	clone.root = c.dir(m.root)
	return clone
}

// KillClone returns what a new process finds after this one was killed while the system went
// on: everything that was written, in the order in which it was.
func (m *Memory) KillClone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crash{nil, map[*fileNode]*fileNode{}}
	clone := newMemory(true)
	clone.root = c.dir(m.root)
	return clone
}

type crash struct {
	rand *rand.Rand // nil: nothing is lost
	done map[*fileNode]*fileNode
}

func (c *crash) dir(d *dirNode) *dirNode {
	left := d.entries
	if c.rand != nil {
		left = maps.Clone(d.kept)
		for _, op := range d.ops[:c.rand.IntN(len(d.ops)+1)] {
			op(left)
		}
	}
	clone := newDir()
	for _, name := range slices.Sorted(maps.Keys(left)) {
		var n node
		switch of := left[name].(type) {
		case *dirNode:
			n = c.dir(of)
		case *fileNode:
			n = c.file(of)
		}
		clone.entries[name], clone.kept[name] = n, n
	}
	return clone
}

func (c *crash) file(f *fileNode) *fileNode {
	if made, ok := c.done[f]; ok {
		return made
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	clone := &fileNode{crashes: true, time: f.time}
	c.done[f] = clone
	if c.rand == nil {
		clone.data = f.data.clone()
	} else {
		clone.data = f.kept.clone()
		if n := c.rand.IntN(len(f.changes) + 1); n > 0 {
			for _, change := range f.changes[:n-1] {
				change.apply(&clone.data)
			}
			c.tear(f.changes[n-1], &clone.data)
		}
	}
	clone.kept = clone.data.clone()
	return clone
}

func (c change) apply(to *chunks) {
	if c.bytes == nil {
		to.resize(c.off)
		return
	}
	to.writeAt(c.bytes, c.off)
}

// tear applies a part of a change.
func (c *crash) tear(last change, to *chunks) {
	if last.bytes == nil || c.rand.IntN(3) == 0 {
		last.apply(to)
		return
	}
	cut := c.rand.IntN(len(last.bytes) + 1)
	grown := last.off + int64(len(last.bytes))
	change{last.off, last.bytes[:cut:cut]}.apply(to)
	if c.rand.IntN(4) == 0 && grown > to.size {
		to.resize(grown)
	}
}
