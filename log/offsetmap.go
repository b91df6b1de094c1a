package log

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offsetMap knows the last offset of each key in the dirty part of a log (Kafka's
// SkimpyOffsetMap). It keeps 16 bytes of a key's hash in place of the key, and its memory is
// fixed when it is made.
//
// Two keys with one hash would be one key to it, and the record of one of them would be lost. So
// the hash is SHA-256 over a secret of 16 random bytes, made anew for each map, and the key; of the
// result 128 bits are kept. Nobody who writes keys can know the secret, and without it nobody can
// choose keys that collide (with Kafka's MD5 that takes seconds). What is left is chance: among the
// 5 million keys of the default buffer it is below 2^-83 a round, far below that of a memory that
// returns another byte than was put in.
type offsetMap struct {
	slots  []mapSlot
	used   int
	most   int   // keys that may be put in
	latest int64 // last offset that the map speaks about, -1: none
	key    []byte
	memory []byte // what slots lie in, for the system to have back; nil: the collector's
}

// mapSlot is an entry; next is the offset after the record's, so that 0 is an empty slot.
type mapSlot struct {
	hash [2]uint64
	next int64
}

const (
	slotBytes  = int64(unsafe.Sizeof(mapSlot{})) // 24, as Kafka's with MD5
	secretSize = 16
)

// newOffsetMap makes a map in at most so many bytes, filled up to load, for at most keys of them.
func newOffsetMap(bytes int64, load float64, keys int64) *offsetMap {
	slots := bytes / slotBytes
	m := &offsetMap{most: int(float64(slots) * load), latest: noOffset, key: make([]byte, secretSize, 256)}
	// Half empty it is quick; a table that large is not always allowed.
	if slots = min(slots, max(2*keys, 16)); slots > 0 {
		m.slots, m.memory = mapMemory(int(slots))
	}
	m.most = min(m.most, int(slots)-1) // a search ends at an empty slot
	rand.Read(m.key[:secretSize])
	return m
}

// mapMemory takes memory from the system itself: a large map is needed for a moment, and with it
// in the heap the collector would grant as much again to garbage.
func mapMemory(slots int) ([]mapSlot, []byte) {
	memory, err := unix.Mmap(-1, 0, slots*int(slotBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]mapSlot, slots), nil
	}
	return unsafe.Slice((*mapSlot)(unsafe.Pointer(unsafe.SliceData(memory))), slots), memory
}

// free gives the memory back. The map may not be used any more.
func (m *offsetMap) free() {
	m.slots = nil
	if m.memory != nil {
		_ = unix.Munmap(m.memory) // it was mapped just so
		m.memory = nil
	}
}

// find is the slot of a key, or the empty one where it belongs.
func (m *offsetMap) find(key []byte) (*mapSlot, [2]uint64) {
	m.key = append(m.key[:secretSize], key...)
	sum := sha256.Sum256(m.key)
	hash := [2]uint64{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
	at, _ := bits.Mul64(hash[0], uint64(len(m.slots)))
	for {
		if s := &m.slots[at]; s.next == 0 || s.hash == hash {
			return s, hash
		}
		if at++; at == uint64(len(m.slots)) {
			at = 0
		}
	}
}

// put says that a key has a record at an offset. It is false if the map is full.
func (m *offsetMap) put(key []byte, offset int64) bool {
	if m.used >= m.most {
		return false
	}
	s, hash := m.find(key)
	if s.next == 0 {
		s.hash = hash
		m.used++
	}
	s.next = offset + 1
	m.latest = offset
	return true
}

// get is the last offset of a key, noOffset if it has none.
func (m *offsetMap) get(key []byte) int64 {
	s, _ := m.find(key)
	return s.next - 1
}

// utilization is how much of the room for keys is in use, from 0 to 1, by Kafka's count.
func (m *offsetMap) utilization(bytes int64) float64 {
	return float64(m.used) * float64(slotBytes) / float64(max(bytes, 1))
}
