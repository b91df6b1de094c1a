package vfs

import (
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"
)

// chunkBytes is the size of the pieces that a file in memory is made of. The first one grows
// by doubling up to it, so that small files are small, and no large one is ever copied.
const chunkBytes = 256 << 10

// chunks are the bytes of a file. Bytes that were never written are zero.
type chunks struct {
	list [][]byte
	size int64
}

func (c *chunks) readAt(p []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	p = p[:min(int64(len(p)), c.size-off)]
	for n := 0; n < len(p); {
		i, at := int((off+int64(n))/chunkBytes), int((off+int64(n))%chunkBytes)
		n += copy(p[n:], c.list[i][at:])
	}
	return len(p)
}

func (c *chunks) writeAt(p []byte, off int64) {
	if end := off + int64(len(p)); end > c.size {
		c.resize(end)
	}
	for n := 0; n < len(p); {
		i, at := int((off+int64(n))/chunkBytes), int((off+int64(n))%chunkBytes)
		n += copy(c.list[i][at:], p[n:])
	}
}

func (c *chunks) resize(size int64) {
	if size < c.size {
		keep := int((size + chunkBytes - 1) / chunkBytes)
		clear(c.list[keep:])
		c.list = c.list[:keep]
		if at := size % chunkBytes; at > 0 {
			clear(c.list[keep-1][at:])
		}
		c.size = size
		return
	}
	whole := int(size / chunkBytes)
	for len(c.list) < whole {
		c.list = append(c.list, nil)
	}
	if size%chunkBytes > 0 && len(c.list) == whole {
		c.list = append(c.list, nil)
	}
	for i := max(0, int(c.size/chunkBytes)); i < len(c.list); i++ {
		want := chunkBytes
		if i == 0 && size < chunkBytes {
			for want = 128; int64(want) < size; {
				want *= 2
			}
		}
		if len(c.list[i]) < want {
			grown := make([]byte, want)
			copy(grown, c.list[i])
			c.list[i] = grown
		}
	}
	c.size = size
}

func (c *chunks) clone() chunks {
	d := chunks{size: c.size, list: make([][]byte, len(c.list))}
	for i, b := range c.list {
		d.list[i] = append([]byte(nil), b...)
	}
	return d
}

// change is something that a file saw since its last sync: bytes at off, or, with nil bytes,
// a truncation to off.
type change struct {
	off   int64
	bytes []byte
}

type fileNode struct {
	crashes bool

	mu      sync.RWMutex
	data    chunks   // guarded by mu, as all below
	kept    chunks   // as it was at the last sync; only with crashes
	changes []change // from kept to data
	time    time.Time
}

func (n *fileNode) info(name string) fs.FileInfo {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return fileInfo{name: name, size: n.data.size, time: n.time}
}

func (n *fileNode) truncate(size int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.data.resize(size)
	n.time = time.Now()
	if n.crashes {
		n.changes = append(n.changes, change{off: size})
	}
}

func (n *fileNode) write(p []byte, off int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.data.writeAt(p, off)
	n.time = time.Now()
	if n.crashes {
		n.changes = append(n.changes, change{off, append([]byte{}, p...)})
	}
}

func (n *fileNode) sync() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.changes {
		if c.bytes == nil {
			n.kept.resize(c.off)
		} else {
			n.kept.writeAt(c.bytes, c.off)
		}
	}
	n.changes = nil
}

// memFile is an open fileNode.
type memFile struct {
	node   *fileNode
	name   string
	closed atomic.Bool
}

func (f *memFile) check(op string) error {
	if f.closed.Load() {
		return pathError(op, f.name, fs.ErrClosed)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read"); err != nil {
		return 0, err
	}
	f.node.mu.RLock()
	n := f.node.data.readAt(p, off)
	f.node.mu.RUnlock()
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check("write"); err != nil {
		return 0, err
	}
	f.node.write(p, off)
	return len(p), nil
}

func (f *memFile) Truncate(size int64) error {
	if err := f.check("truncate"); err != nil {
		return err
	}
	f.node.truncate(size)
	return nil
}

func (f *memFile) Sync() error {
	if err := f.check("sync"); err != nil {
		return err
	}
	f.node.sync()
	return nil
}

func (f *memFile) Size() (int64, error) {
	if err := f.check("stat"); err != nil {
		return 0, err
	}
	f.node.mu.RLock()
	defer f.node.mu.RUnlock()
	return f.node.data.size, nil
}

func (f *memFile) Fd() (uintptr, bool) { return 0, false }

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	return nil
}
