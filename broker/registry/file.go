package registry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// file is the store of the embedded root: one bbolt file. A node's key is the depth of its path
// and the path, so that the children of a node, and all nodes of a level below a node, lie
// together. Buckets: nodes; ephemeral (path to owner, so that open need not look for them);
// meta (zxid, format). bbolt's own numbers are in the machine's byte order: the file does not move
// between machines of different order.
//
// Ephemeral nodes of an earlier process are swept when the file is opened. The sweep stays an
// open transaction, in which all reads take place, until the first write commits it: starting a
// broker costs one transaction, not two.
type file struct {
	path    string
	db      *bolt.DB
	pending *bolt.Tx // the sweep, nil when it is done
	room    int64    // up to where the file has blocks of the disk, see keepRoom
}

var (
	bucketNodes     = []byte("nodes")
	bucketEphemeral = []byte("ephemeral")
	bucketMeta      = []byte("meta")
	keyZxid         = []byte("zxid")
	keyFormat       = []byte("format")
)

// FileName is the embedded registry's file in a broker's directory.
const FileName = "ottla.registry"

const (
	fileFormat = 1
	// mapSize is address space, not memory: as long as the file fits, growing it need not wait
	// for readers.
	mapSize = 64 << 20
)

// guarded does something with the file. bbolt keeps no checksums, asserts the shape of its pages where
// it meets them, and follows them into memory that is none: then the file is damaged.
func (f *file) guarded(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s is damaged (%v); moved away, the topics are made again of the logs that are there", ErrStorage, f.path, p)
		}
	}()
	return do()
}

func openFile(path string) (*file, error) {
	f := &file{path: path}
	if err := f.guarded(f.open); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *file) open() error {
	path := f.path
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
	if err := checkLength(path); err != nil {
		return err
	}
	db, err := bolt.Open(path, 0o644, &bolt.Options{
		Timeout:         time.Millisecond, // one attempt: who holds the lock keeps it
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: mapSize,
		NoStatistics:    true,
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("%w: %s", ErrInUse, path)
	} else if err != nil {
		return fmt.Errorf("%w: open %s: %w", ErrStorage, path, err)
	}
	f.db = db
	db.View(func(tx *bolt.Tx) error {
		f.keepRoom(tx.Size())
		return nil
	})
	if err := f.sweep(); err != nil {
		db.Close()
		return err
	}
	return nil
}

// checkLength finds a file that has lost its end. bbolt maps the file and does not look, and to
// read where the file is not ends the process. Where its two meta pages have what is needed:
// after a page's head of 16 bytes magic, page size at 8, number of pages at 40, transaction at 48.
func checkLength(path string) error {
	const head, magic, metaSize = 16, 0xED0CDAED, 64
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%w: open %s: %w", ErrStorage, path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%w: open %s: %w", ErrStorage, path, err)
	}
	var newest, need uint64
	at := int64(head)
	for range 2 {
		b := make([]byte, metaSize)
		if _, err := f.ReadAt(b, at); err != nil || binary.NativeEndian.Uint32(b) != magic {
			return nil // not a whole meta page: bbolt says what it thinks of it
		}
		size := uint64(binary.NativeEndian.Uint32(b[8:]))
		if pages, tx := binary.NativeEndian.Uint64(b[40:]), binary.NativeEndian.Uint64(b[48:]); tx >= newest {
			newest, need = tx, pages*size
		}
		at += int64(size)
	}
	if uint64(info.Size()) < need {
		return fmt.Errorf("%w: %s is cut off: %d bytes of %d; moved away, the topics are made again of the logs that are there", ErrStorage, path, info.Size(), need)
	}
	return nil
}

// sweep begins the transaction that forgets ephemeral nodes; nothing to do leaves none open.
func (f *file) sweep() error {
	tx, err := f.db.Begin(true)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
	t := &fileTxn{f: f, tx: tx}
	if tx.Bucket(bucketMeta) == nil {
		for _, name := range [][]byte{bucketNodes, bucketEphemeral, bucketMeta} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				tx.Rollback()
				return fmt.Errorf("%w: %w", ErrStorage, err)
			}
		}
		t.keep(tx.Bucket(bucketMeta).Put(keyFormat, []byte{fileFormat}))
		t.put("/", &record{})
		f.pending = tx
		return t.err
	}
	if v := tx.Bucket(bucketMeta).Get(keyFormat); len(v) != 1 || v[0] != fileFormat {
		tx.Rollback()
		return fmt.Errorf("%w: format %v is not known", ErrStorage, v)
	}
	var ops []Op
	c := tx.Bucket(bucketEphemeral).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		ops = append(ops, Delete(string(k), AnyVersion))
	}
	if len(ops) == 0 {
		return tx.Rollback()
	}
	if _, _, err := multi(t, 0, 0, ops); err != nil || t.err != nil {
		tx.Rollback()
		return fmt.Errorf("%w: ephemeral nodes: %w", ErrStorage, errors.Join(err, t.err))
	}
	f.pending = tx
	return nil
}

func (f *file) exclusive() bool { return f.pending != nil }

func (f *file) begin(write bool) (txn, error) {
	if f.pending != nil {
		return &fileTxn{f: f, tx: f.pending}, nil
	}
	var tx *bolt.Tx
	err := f.guarded(func() (err error) {
		if tx, err = f.db.Begin(write); err != nil {
			err = fmt.Errorf("%w: %w", ErrStorage, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &fileTxn{f: f, tx: tx}, nil
}

func (f *file) commit(tt txn) error {
	t := tt.(*fileTxn)
	if t.err == nil && !t.wrote {
		f.discard(t)
		return nil
	}
	resweep := t.tx == f.pending
	err := t.err
	size := t.tx.Size() // with what this transaction adds it is more, which the next one sees
	if err == nil {
		err = f.guarded(t.tx.Commit)
	}
	if err != nil {
		t.undo()
	}
	f.pending = nil
	if err == nil {
		f.keepRoom(size)
		return nil
	}
	kind := ErrStorage
	if passing(err) {
		kind = ErrFull
	}
	if !errors.Is(err, kind) {
		err = fmt.Errorf("%w: %w", kind, err)
	}
	if resweep {
		err = errors.Join(err, f.guarded(f.sweep))
	}
	return err
}

func (f *file) discard(tt txn) {
	t := tt.(*fileTxn)
	if t.tx != f.pending {
		t.undo()
	} else if t.wrote {
		t.undo()
		f.pending = nil
		f.guarded(f.sweep) // it succeeded on the same pages before
	}
}

// close keeps ephemeral nodes in the file; the next open sweeps them.
func (f *file) close() error {
	if f.pending != nil {
		(&fileTxn{f: f, tx: f.pending}).undo()
		f.pending = nil
	}
	return f.guarded(f.db.Close)
}

// passing tells errors after which the file is as before: there was no room.
func passing(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

type fileTxn struct {
	f     *file
	tx    *bolt.Tx
	all   *bolt.Bucket // bucketNodes, once it was asked for
	wrote bool
	err   error // the first; a commit answers it
	key   []byte
}

func (t *fileTxn) keep(err error) {
	if t.err == nil {
		t.err = err
	}
}

// guard does something with the transaction; what is wrong with the file a commit answers, and a read.
func (t *fileTxn) guard(do func() error) { t.keep(t.f.guarded(do)) }

// undo gives the transaction up. One that was committed is over already.
func (t *fileTxn) undo() { t.f.guarded(t.tx.Rollback) }

func (t *fileTxn) nodes() *bolt.Bucket {
	if t.all == nil {
		t.all = t.tx.Bucket(bucketNodes)
	}
	return t.all
}

// keyOf is valid until the next call.
func (t *fileTxn) keyOf(path string) []byte {
	depth := byte(0)
	if path != "/" {
		depth = byte(strings.Count(path, "/")) // checkPath bounds it
	}
	t.key = append(append(t.key[:0], depth), path...)
	return t.key
}

func (t *fileTxn) get(path string) (r *record) {
	t.guard(func() (err error) {
		if v := t.nodes().Get(t.keyOf(path)); v != nil {
			r, err = decodeRecord(v)
		}
		return err
	})
	return r
}

func (t *fileTxn) put(path string, r *record) {
	t.wrote = true
	t.guard(func() error {
		err := t.nodes().Put([]byte(string(t.keyOf(path))), r.encode())
		if err == nil && r.owner != 0 {
			err = t.tx.Bucket(bucketEphemeral).Put([]byte(path), binary.BigEndian.AppendUint64(nil, uint64(r.owner)))
		}
		return err
	})
}

func (t *fileTxn) remove(path string) {
	t.wrote = true
	t.guard(func() error {
		return errors.Join(t.nodes().Delete(t.keyOf(path)), t.tx.Bucket(bucketEphemeral).Delete([]byte(path)))
	})
}

func (t *fileTxn) children(path string) (names []string) {
	prefix := t.keyOf(path)
	prefix[0]++
	if path != "/" {
		prefix = append(prefix, '/')
	}
	t.key = prefix
	t.guard(func() error {
		c := t.nodes().Cursor()
		for k, _ := c.Seek(prefix); k != nil && len(k) > len(prefix) && string(k[:len(prefix)]) == string(prefix); k, _ = c.Next() {
			names = append(names, string(k[len(prefix):]))
		}
		return nil
	})
	return names
}

func (t *fileTxn) zxid() (zxid int64) {
	t.guard(func() error {
		if v := t.tx.Bucket(bucketMeta).Get(keyZxid); len(v) == 8 {
			zxid = int64(binary.BigEndian.Uint64(v))
		}
		return nil
	})
	return zxid
}

func (t *fileTxn) setZxid(zxid int64) {
	t.wrote = true
	t.guard(func() error {
		return t.tx.Bucket(bucketMeta).Put(keyZxid, binary.BigEndian.AppendUint64(nil, uint64(zxid)))
	})
}

const recordHasData = 1

// encode writes the fields as varints, then the data.
func (r *record) encode() []byte {
	b := make([]byte, 1, 64+len(r.data))
	if r.data != nil {
		b[0] = recordHasData
	}
	for _, n := range []int64{r.czxid, r.mzxid, r.pzxid, r.ctime, r.mtime, int64(r.version), int64(r.made), int64(r.nodes), r.owner} {
		b = binary.AppendVarint(b, n)
	}
	return append(b, r.data...)
}

func decodeRecord(b []byte) (*record, error) {
	whole := len(b)
	bad := func() (*record, error) {
		return nil, fmt.Errorf("%w: a record of %d bytes cannot be read", ErrStorage, whole)
	}
	if len(b) == 0 || b[0]&^recordHasData != 0 {
		return bad()
	}
	flags, b := b[0], b[1:]
	var n [9]int64
	for i := range n {
		v, size := binary.Varint(b)
		if size <= 0 {
			return bad()
		}
		n[i], b = v, b[size:]
	}
	r := &record{
		czxid: n[0], mzxid: n[1], pzxid: n[2], ctime: n[3], mtime: n[4],
		version: int32(n[5]), made: int32(n[6]), nodes: int32(n[7]), owner: n[8],
	}
	if flags&recordHasData != 0 {
		r.data = append(make([]byte, 0, len(b)), b...)
	} else if len(b) > 0 {
		return bad()
	}
	return r, nil
}
