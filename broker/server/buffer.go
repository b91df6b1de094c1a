package server

import (
	"math/bits"
	"sync"
	"time"
)

// Buffers come in sizes of 9/8 times a power of two: a batch of 16 KiB or 1 MiB, as clients
// make them by default, fits into the class of its size together with the rest of its request.
// What is larger than the largest class is left to the garbage collector.
const (
	minClass   = 9  // 576 bytes
	largeClass = 16 // 72 KiB: from here on buffers stand on the shelf
	maxClass   = 24 // 18 MiB
)

const (
	// shelfBytes bounds the large buffers that nobody uses.
	shelfBytes = 24 << 20
	// shelfSweep is how often those that were not needed since the last time are given up.
	shelfSweep = 10 * time.Second
	// shelfReturn is from how much on what was given up goes back to the system at once: after a load
	// there is little that would have the garbage collector do it.
	shelfReturn = 4 << 20
)

var pools [largeClass]sync.Pool // of *buffer

type buffer struct {
	b     []byte
	class int
}

func classSize(class int) int { return 1<<class + 1<<(class-3) }

// buffers are a server's. Small ones come from pools that the garbage collector empties. A large
// one costs as much to make as a read of its content: its pages have to be cleared, and a
// collection follows a few of them. So these stand on a shelf, the one that was used last on
// top, which the processor may still have in its cache.
type buffers struct {
	mu    sync.Mutex
	shelf [maxClass + 1][]*buffer // guarded by mu
	bytes int                     // guarded by mu: on the shelf
	spare [maxClass + 1]int       // guarded by mu: the fewest that stood there since the last sweep
}

// get returns a buffer of at least n bytes.
func (s *buffers) get(n int) *buffer {
	class := max(bits.Len(uint(max(n-1, 0)))-1, minClass)
	if classSize(class) < n {
		class++
	}
	switch {
	case class > maxClass:
		return &buffer{b: make([]byte, n), class: -1}
	case class < largeClass:
		if b, ok := pools[class].Get().(*buffer); ok {
			return b
		}
	default:
		if b := s.take(class); b != nil {
			return b
		}
	}
	return &buffer{b: make([]byte, classSize(class)), class: class}
}

// take takes a large buffer off the shelf, nil if there is none of the class.
func (s *buffers) take(class int) *buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.shelf[class]
	n := len(row) - 1
	if n < 0 {
		return nil
	}
	b := row[n]
	row[n] = nil
	s.shelf[class] = row[:n]
	s.bytes -= len(b.b)
	s.spare[class] = min(s.spare[class], n)
	return b
}

func (s *buffers) put(b *buffer) {
	switch {
	case b.class < 0:
		return
	case b.class < largeClass:
		pools[b.class].Put(b)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes+len(b.b) > shelfBytes {
		return
	}
	s.bytes += len(b.b)
	s.shelf[b.class] = append(s.shelf[b.class], b)
}

// sweep gives up the large buffers that were not needed since the last time, and says how many bytes
// they had.
func (s *buffers) sweep() (given int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for class, row := range s.shelf {
		n := s.spare[class] // the lowest ones: they were used least
		for _, b := range row[:n] {
			given += len(b.b)
		}
		left := copy(row, row[n:])
		clear(row[left:])
		s.shelf[class], s.spare[class] = row[:left], left
	}
	s.bytes -= given
	return given
}
