package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"ottla/log/vfs"
)

// fileCache holds the descriptors of all segments' files. They are opened when they are
// needed; beyond max the one that was not used for longest is closed (second chance), and
// those that nobody used for a while are closed by sweep, down to a few.
//
// Closing a descriptor does not lose an error of writing back: Linux reports one that nobody
// has seen to the first fsync of a file that is opened later (errseq_t, 4.16).
type fileCache struct {
	fs  vfs.FS
	max int

	mu   sync.Mutex
	open []*handle // guarded by mu; closed ones are dropped when they are met
	hand int
}

// handle is one descriptor with the number of its users; one of them is its slot.
type handle struct {
	f     vfs.File
	owner *slot
	refs  atomic.Int32
	used  atomic.Bool // since the hand passed
}

func (h *handle) release() {
	if h.refs.Add(-1) == 0 {
		h.f.Close() // nothing that was written can be lost here, see fileCache
	}
}

// slot is where a file's descriptor is while it is open. Its lock is held for an open, never
// for a read or a write.
type slot struct {
	mu sync.Mutex
	h  *handle
}

// get returns the descriptor for use until its release, opening path() if it is not open. A
// file that is renamed while it is being opened is tried again under its new name.
func (c *fileCache) get(s *slot, path func() string, flag int) (*handle, error) {
	s.mu.Lock()
	if h := s.h; h != nil {
		h.refs.Add(1)
		s.mu.Unlock()
		if !h.used.Load() {
			h.used.Store(true)
		}
		return h, nil
	}
	name := path()
	f, err := c.fs.OpenFile(name, os.O_RDWR|flag, 0o644)
	for (err == nil || errors.Is(err, fs.ErrNotExist)) && path() != name {
		if err == nil { // it may be another file, that has the name now
			f.Close()
		}
		name = path()
		f, err = c.fs.OpenFile(name, os.O_RDWR|flag, 0o644)
	}
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	h := &handle{f: f, owner: s}
	h.used.Store(true)
	h.refs.Store(2)
	s.h = h
	s.mu.Unlock()
	c.add(h)
	return h, nil
}

// drop closes the slot's descriptor once its users are done with it. With only set, the slot
// must still hold that one.
func (s *slot) drop(only *handle) bool {
	s.mu.Lock()
	h := s.h
	if h == nil || only != nil && h != only {
		s.mu.Unlock()
		return false
	}
	s.h = nil
	s.mu.Unlock()
	h.release()
	return true
}

func (s *slot) holds(h *handle) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.h == h
}

// add takes in a new descriptor and closes others that are too many.
func (c *fileCache) add(h *handle) {
	var victims [4]*handle
	n := 0
	c.mu.Lock()
	c.open = append(c.open, h)
	for tries := 2 * len(c.open); len(c.open) > c.max && n < len(victims) && tries > 0; tries-- {
		if c.hand >= len(c.open) {
			c.hand = 0
		}
		at := c.open[c.hand]
		if at == h || at.used.Swap(false) {
			c.hand++
			continue
		}
		victims[n] = at
		n++
		c.removeLocked(c.hand)
	}
	c.mu.Unlock()
	for _, v := range victims[:n] {
		v.owner.drop(v)
	}
}

func (c *fileCache) removeLocked(i int) {
	last := len(c.open) - 1
	c.open[i] = c.open[last]
	c.open[last] = nil
	c.open = c.open[:last]
}

// sweep closes what was not used since the last sweep, while more than keep are open.
func (c *fileCache) sweep(keep int) {
	c.mu.Lock()
	var victims []*handle
	for i := 0; i < len(c.open); {
		h := c.open[i]
		if !h.owner.holds(h) {
			c.removeLocked(i)
			continue
		}
		if len(c.open) > keep && !h.used.Swap(false) {
			victims = append(victims, h)
			c.removeLocked(i)
			continue
		}
		i++
	}
	if cap(c.open) > 4*len(c.open)+64 {
		c.open = append([]*handle(nil), c.open...)
	}
	c.mu.Unlock()
	for _, v := range victims {
		v.owner.drop(v)
	}
}

// count is how many descriptors are open, for metrics and tests.
func (c *fileCache) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, h := range c.open {
		if h.owner.holds(h) {
			n++
		}
	}
	return n
}

// Range is a piece of a segment that stays readable until Release, also when the segment is
// deleted meanwhile. Release is called once; the other methods may be called by several
// goroutines. A log that is truncated below the piece makes reads of it come short.
type Range struct {
	h      *handle
	off, n int64
}

// Fd is the descriptor and where the piece starts in its file, for sendfile. ok is false for
// files in memory, which are read by ReadAt.
func (r *Range) Fd() (fd uintptr, offset int64, ok bool) {
	fd, ok = r.h.f.Fd()
	return fd, r.off, ok
}

// Len is the size of the piece in bytes.
func (r *Range) Len() int64 { return r.n }

// ReadAt reads at an offset within the piece, as io.ReaderAt.
func (r *Range) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= r.n {
		return 0, io.EOF
	}
	if rest := r.n - off; int64(len(p)) > rest {
		n, err := r.h.f.ReadAt(p[:rest], r.off+off)
		if err == nil {
			err = io.EOF
		}
		return n, err
	}
	return r.h.f.ReadAt(p, r.off+off)
}

// Release gives the descriptor back.
func (r *Range) Release() {
	if h := r.h; h != nil {
		r.h = nil
		h.release()
	}
}

// readFile reads a small file whole.
func readFile(fsys vfs.FS, name string) ([]byte, error) { return readAtMost(fsys, name, maxSmallFile) }

// readAtMost reads a file whole. One that is larger than most is Damage.
func readAtMost(fsys vfs.FS, name string, most int64) ([]byte, error) {
	f, size, err := openSized(fsys, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > most {
		return nil, &Damage{File: name, Position: -1, Reason: "far too large"}
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return data[:n], nil
}

// openSized opens a file for reading, and says how large it was then.
func openSized(fsys vfs.FS, name string) (f vfs.File, size int64, err error) {
	if f, err = fsys.OpenFile(name, os.O_RDONLY, 0); err != nil {
		return nil, 0, err
	}
	if size, err = f.Size(); err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

// maxSmallFile bounds what is read into memory in one piece: 4 million producers' snapshot.
const maxSmallFile = 256 << 20

// writeFile writes a small file under its name at once. It is not durable before its next sync.
func writeFile(fsys vfs.FS, name string, data []byte, sync bool) error {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if len(data) > 0 {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// replaceFile writes a small file so that at any time, and after a crash, either the old or
// the new content is there whole: a temporary file, fsync, rename (Kafka's CheckpointFile).
// Whether the new one is there after a crash needs a sync of the directory.
func replaceFile(fsys vfs.FS, name string, data []byte) error {
	tmp := name + temporarySuffix
	if err := writeFile(fsys, tmp, data, true); err != nil {
		fsys.Remove(tmp)
		return err
	}
	return fsys.Rename(tmp, name)
}

// unsynced says of an error that it is that of an fsync.
func unsynced(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", errUnsynced, err)
	}
	return err
}

// setAside gives a file a name that nobody reads: its own with .cut, and a number if that is taken.
func setAside(fsys vfs.FS, name string) error {
	to, err := freeName(fsys, name+cutSuffix)
	if err != nil {
		return err
	}
	return fsys.Rename(name, to)
}

// freeName is the name, with a number behind it if it is taken.
func freeName(fsys vfs.FS, name string) (string, error) {
	free := name
	for i := 2; ; i++ {
		switch _, err := fsys.Stat(free); {
		case notExist(err):
			return free, nil
		case err != nil:
			return "", err
		}
		free = name + "." + strconv.Itoa(i)
	}
}

// syncFile makes a file that was written earlier durable.
func syncFile(fsys vfs.FS, name string) error {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = unsynced(f.Sync())
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
