package record

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func scanned(s *Scanner) (positions []int64) {
	for s.Next() {
		positions = append(positions, s.Position())
	}
	return positions
}

func TestScanner(t *testing.T) {
	log := append([]byte("not a part of it"), sample(None)...)
	from := int64(16)
	want := []int64{from}
	for _, b := range []Batch{bulk(None, 2000, 100), sampleSet(0, Gzip), appendMessage(nil, 0, 1, -1, 0, nil, nil), bulk(Lz4, 3000, 100), timed(1)} {
		want = append(want, int64(len(log)))
		log = append(log, b...)
	}
	end := int64(len(log))
	for _, verify := range []bool{false, true} {
		s := NewScanner(bytes.NewReader(append(log, "and more"...)), from, end, verify)
		for i := 0; s.Next(); i++ {
			if s.Position() != want[i] || int(s.Size()) != s.Header().Length() {
				t.Errorf("entry %d at %d with %d bytes, want %d", i, s.Position(), s.Size(), want[i])
			}
			b, err := s.Entry(nil)
			if err != nil || !bytes.Equal(b, log[s.Position():s.End()]) || b.BaseOffset() != s.Header().BaseOffset() || b.CRC() != s.Header().CRC() {
				t.Error(i, b, err)
			}
			if b.Magic() == 2 && b.Count() != s.Header().Count() {
				t.Error(s.Header())
			}
		}
		if s.Err() != nil || s.End() != end {
			t.Error(s.Err(), s.End())
		}
		// Any end but those of entries is torn.
		for cut := from; cut < end; cut += 1 + (cut % 977) {
			s := NewScanner(bytes.NewReader(log[:cut]), from, cut, verify)
			n := len(scanned(s))
			whole := from
			if n < len(want) {
				whole = want[n]
			}
			var c *CorruptionError
			if cut == whole {
				if s.Err() != nil {
					t.Fatal(cut, s.Err())
				}
			} else if !errors.As(s.Err(), &c) || c.Position != whole || !errors.Is(s.Err(), ErrShort) || !errors.Is(s.Err(), ErrCorrupt) || s.End() != whole {
				t.Fatalf("cut at %d: %v, end %d, want %d", cut, s.Err(), s.End(), whole)
			}
		}
	}
	// A wrong bit is found in every entry, by those who look.
	for i, at := range want {
		next := append(want, end)[i+1]
		bad := bytes.Clone(log)
		bad[next-1] ^= 1
		if s := NewScanner(bytes.NewReader(bad), from, end, false); len(scanned(s)) != len(want) || s.Err() != nil {
			t.Error(i, s.Err())
		}
		s := NewScanner(bytes.NewReader(bad), from, end, true)
		n := len(scanned(s))
		var c *CorruptionError
		if n != i || !errors.As(s.Err(), &c) || c.Position != at || errors.Is(s.Err(), ErrShort) || s.End() != at || s.Next() {
			t.Errorf("entry %d: %v after %d", i, s.Err(), n)
		}
	}
	for _, bad := range []struct {
		at    int
		value byte
	}{{atMagic, 7}, {atLength, 0xff}, {atLength + 3, 0x10}} {
		b := sample(None)
		b[bad.at] = bad.value
		if bad.at == atLength+3 {
			b[atLength+2] = 0
		}
		if s := NewScanner(bytes.NewReader(b), 0, int64(len(b)), true); s.Next() || !errors.Is(s.Err(), ErrCorrupt) || errors.Is(s.Err(), ErrShort) {
			t.Error(bad, s.Err())
		}
	}
}

type failing struct{ io.ReaderAt }

func (failing) ReadAt([]byte, int64) (int, error) { return 0, iotest.ErrTimeout }

// An error of the file is not corruption.
func TestScannerFileErrors(t *testing.T) {
	s := NewScanner(failing{}, 0, 100, true)
	var c *CorruptionError
	if s.Next() || !errors.Is(s.Err(), iotest.ErrTimeout) || errors.As(s.Err(), &c) {
		t.Error(s.Err())
	}
	b := sample(None)
	s = NewScanner(bytes.NewReader(b[:100]), 0, int64(len(b)), true)
	if s.Next() || !errors.Is(s.Err(), io.ErrUnexpectedEOF) || errors.As(s.Err(), &c) {
		t.Error("a file that is shorter than its region:", s.Err())
	}
}
