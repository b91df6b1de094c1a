package server

import "testing"

func TestBuffers(t *testing.T) {
	var s buffers
	for _, n := range []int{0, 1, 576, 577, 36 << 10, 1<<20 + 64<<10, 5 << 20, classSize(maxClass), classSize(maxClass) + 1} {
		b := s.get(n)
		if len(b.b) < n {
			t.Errorf("%d bytes for %d", len(b.b), n)
		}
		s.put(b)
	}
	if s.bytes > shelfBytes {
		t.Errorf("%d bytes on the shelf", s.bytes)
	}

	s = buffers{}
	first, second := s.get(1<<20), s.get(1<<20)
	s.put(first)
	s.put(second)
	if got := s.get(1 << 20); got != second {
		t.Error("the buffer that was used last does not come first")
	}
	s.put(second)
	s.sweep() // what stood there all the time is known from here on
	s.put(s.get(1 << 20))
	s.sweep()
	if n := len(s.shelf[second.class]); n != 1 {
		t.Errorf("%d buffers are left where one was in use, want 1", n)
	}
	s.sweep()
	s.sweep()
	if s.bytes != 0 {
		t.Errorf("%d bytes are left where none were in use", s.bytes)
	}
}

func TestShelfIsBounded(t *testing.T) {
	var s buffers
	var all []*buffer
	for range 8 {
		all = append(all, s.get(8<<20))
	}
	for _, b := range all {
		s.put(b)
	}
	if s.bytes > shelfBytes || s.bytes == 0 {
		t.Errorf("%d bytes on the shelf, at most %d", s.bytes, shelfBytes)
	}
}
