package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// eachVersion calls f for every version that shapes has.
func eachVersion(f func(key, version int16)) {
	for i := range shapes {
		for v := int16(shapes[i].min); v <= int16(shapes[i].max); v++ {
			f(shapes[i].key, v)
		}
	}
}

func randomBody(r *rand.Rand, key, version int16) []byte {
	req := kmsg.RequestForKey(key)
	fill(r, reflect.ValueOf(req).Elem(), 0)
	req.SetVersion(version)
	if f, ok := req.(*kmsg.FetchRequest); ok {
		// kmsg writes tagged fields in versions that may not have them.
		if version < 15 {
			f.ReplicaState = kmsg.NewFetchRequestReplicaState()
		}
		for i := range f.Topics {
			for j := range f.Topics[i].Partitions {
				p := &f.Topics[i].Partitions[j]
				if d := kmsg.NewFetchRequestTopicPartition(); version < 17 {
					p.ReplicaDirectoryID, p.HighWatermark = d.ReplicaDirectoryID, d.HighWatermark
				} else if version < 18 {
					p.HighWatermark = d.HighWatermark
				}
			}
		}
	}
	return req.AppendTo(nil)
}

func TestCheckShapeAcceptsWhatKmsgWrites(t *testing.T) {
	eachVersion(func(key, version int16) {
		t.Run(fmt.Sprintf("%s_v%d", kmsg.NameForKey(key), version), func(t *testing.T) {
			if m := kmsg.RequestForKey(key).MaxVersion(); m < version {
				t.Skipf("kmsg ends at version %d", m)
			}
			r := rand.New(rand.NewPCG(uint64(key), uint64(version)))
			for range 60 {
				body := randomBody(r, key, version)
				rest, err := checkShape(key, version, append(body, "tail"...), MaxDecodedBytes)
				if err != nil {
					t.Fatalf("%x: %v", body, err)
				}
				if string(rest) != "tail" {
					t.Fatalf("%x: %d bytes over, want 4", body, len(rest))
				}
				for range 8 {
					cut := r.IntN(len(body) + 1)
					if cut == len(body) {
						continue
					}
					if err := CheckShape(key, version, body[:cut], MaxDecodedBytes); !errors.Is(err, ErrMalformed) {
						t.Fatalf("%x cut to %d bytes: %v", body, cut, err)
					}
				}
			}
		})
	})
}

func TestShapesFitTheTable(t *testing.T) {
	for key := int16(-2); key < 200; key++ {
		for version := int16(-2); version < 30; version++ {
			s := findShape(key, version)
			if s != nil && (s.key != key || version < int16(s.min) || version > int16(s.max)) {
				t.Fatalf("key %d version %d has the shape of key %d", key, version, s.key)
			}
			if s == nil {
				if err := CheckShape(key, version, nil, MaxDecodedBytes); !errors.Is(err, ErrMalformed) {
					t.Fatalf("key %d version %d: %v", key, version, err)
				}
				continue
			}
			req := kmsg.RequestForKey(key)
			req.SetVersion(version)
			if version <= req.MaxVersion() && req.IsFlexible() != flexible(key, version) {
				t.Errorf("key %d version %d: flexible is %v for kmsg", key, version, req.IsFlexible())
			}
		}
	}
}

// TestCheckShapeRefusesBombs: none of these may be decoded. A decoder that believes the counts
// takes hundreds of megabytes for them.
func TestCheckShapeRefusesBombs(t *testing.T) {
	count := func(n int) []byte { return binary.AppendUvarint(nil, uint64(n+1)) }
	long := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	zeros := func(n int) []byte { return make([]byte, n) }
	ones := func(n int) []byte { return bytes.Repeat([]byte{1}, n) }
	join := func(bs ...[]byte) []byte { return bytes.Join(bs, nil) }
	for _, c := range []struct {
		name         string
		key, version int16
		body         []byte
	}{
		{"DeleteGroups: more names than bytes", 42, 0, join(long(1<<31-1), zeros(100))},
		{"DeleteGroups: negative count", 42, 0, join(long(1<<31), zeros(100))},
		{"DeleteGroups: 20 MiB of empty names", 42, 2, join(count(20<<20-6), ones(20<<20))},
		{"DeleteGroups: 20 MiB of empty names, old form", 42, 0, join(long(10<<20), zeros(20<<20))},
		{"Metadata: 16 MiB of topics", 3, 12, join(count(900_000), zeros(16<<20))},
		{"OffsetCommit: a name longer than the frame", 8, 2, []byte("\x7f\xffgroup")},
		{"OffsetFetch: null group before there were nulls", 9, 7, []byte("\x00\x01\x00\x00")},
		{"Metadata: null topics in version 0", 3, 0, long(1<<32 - 1)},
		{"Metadata: a varint without end", 3, 9, bytes.Repeat([]byte{0xff}, 30)},
		{"Metadata: a billion tags", 3, 9, join([]byte{1, 0, 0, 0}, count(1<<30))},
		{"Metadata: a tag longer than the frame", 3, 9, []byte{1, 0, 0, 0, 1, 100, 100, 1}},
		{"Metadata: millions of tags", 3, 9, join([]byte{1, 0, 0, 0}, count(4<<20-1), zeros(16<<20))},
		{"Fetch: a known tag that is cut short", 1, 12, join(zeros(4+4+4+1+4+4), []byte{1, 1, 1}, []byte{1, 0, 2, 9, 'x'})},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckShape(c.key, c.version, c.body, MaxDecodedBytes)
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("not refused: %v", err)
			}
			t.Log(err)
		})
	}
}

func TestCheckShapeAllocatesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, key := range []int16{0, 1, 3, 8} {
		s := shapes[shapeIndex[key+1]-1]
		body := randomBody(r, key, int16(s.max))
		if n := testing.AllocsPerRun(100, func() {
			if err := CheckShape(key, int16(s.max), body, MaxDecodedBytes); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("key %d: %v allocations", key, n)
		}
	}
}

// TestDecodedSizeIsBounded makes, for every list of every request, a body of that list's
// shortest elements that is just accepted, and decodes it: it may not take a multiple of what
// was allowed for it.
func TestDecodedSizeIsBounded(t *testing.T) {
	const limit = 256 << 10
	for i := range shapes {
		s := &shapes[i]
		version := int16(s.max)
		if version > kmsg.RequestForKey(s.key).MaxVersion() {
			continue
		}
		n := widest(s.key, version, limit)
		body := uniformBody(s, version, n)
		if err := CheckShape(s.key, version, body, limit); err != nil {
			t.Fatalf("key %d version %d with %d elements: %v", s.key, version, n, err)
		}
		req := kmsg.RequestForKey(s.key)
		req.SetVersion(version)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := req.ReadFrom(body)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatalf("key %d version %d: %v", s.key, version, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > limit*3 { // half of that without the race detector, under which appended slices are made twice
			t.Errorf("key %d version %d: %d elements in %d bytes took %d, allowed %d", s.key, version, n, len(body), took, limit)
		}
	}
}

// widest returns how many elements the lists of uniformBody may have.
func widest(key, version int16, limit int) int {
	lo, hi := 0, 1<<15
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if CheckShape(key, version, uniformBody(findShape(key, version), version, mid), limit) == nil {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// uniformBody makes a body whose outermost lists have n elements and inner ones one; strings
// have two bytes, what can be null is not.
func uniformBody(s *shape, version int16, n int) []byte {
	u := uniform{version: uint8(version), flex: s.flexible >= 0 && version >= int16(s.flexible)}
	u.fields(s.fields, n)
	return u.b
}

type uniform struct {
	b       []byte
	version uint8
	flex    bool
}

func (u *uniform) fields(s string, n int) {
	tagged := 0
	for s != "" {
		var f field
		if f, s = next(s); !f.in(u.version) {
			continue
		}
		if f.op&isTagged != 0 {
			tagged++
			continue
		}
		kind := f.op & kindMask
		if f.op&isArray == 0 {
			if kind == kindStruct && f.op&isNullable != 0 {
				u.b = append(u.b, 1)
			}
			u.value(&f, kind)
			continue
		}
		u.length(n, 4)
		for range n {
			u.value(&f, kind)
		}
	}
	if u.flex { // one tag that nobody knows
		u.b = append(u.b, 1, 100, 0)
	}
}

func (u *uniform) value(f *field, kind uint8) {
	switch kind {
	case kindStruct:
		u.fields(f.fields, 1)
	case kindString:
		u.length(2, 2)
		u.b = append(u.b, "ab"...)
	case kindBytes:
		u.length(0, 4)
	default:
		u.b = append(u.b, make([]byte, fixedSize[kind])...)
	}
}

func (u *uniform) length(n, old int) {
	switch {
	case u.flex:
		u.b = binary.AppendUvarint(u.b, uint64(n+1))
	case old == 2:
		u.b = binary.BigEndian.AppendUint16(u.b, uint16(n))
	default:
		u.b = binary.BigEndian.AppendUint32(u.b, uint32(n))
	}
}

// FuzzRequest: whatever CheckShape lets through, kmsg decodes, without a panic and without
// more memory than allowed.
func FuzzRequest(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	eachVersion(func(key, version int16) {
		if version <= kmsg.RequestForKey(key).MaxVersion() {
			f.Add(key, version, randomBody(r, key, version))
		}
	})
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		if CheckShape(key, version, body, 1<<20) != nil {
			return
		}
		req := kmsg.RequestForKey(key)
		if version > req.MaxVersion() {
			return
		}
		req.SetVersion(version)
		if err := req.ReadFrom(body); err != nil {
			t.Fatalf("key %d version %d: accepted, but %v: %x", key, version, err, body)
		}
		req.AppendTo(nil)
	})
}

func BenchmarkCheckShape(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	body := randomBody(r, 1, 18)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if err := CheckShape(1, 18, body, MaxDecodedBytes); err != nil {
			b.Fatal(err)
		}
	}
}
