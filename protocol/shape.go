package protocol

import (
	"fmt"
)

// MaxDecodedBytes is the memory that one decoded request may take beside its frame. Kafka has
// no such limit; the largest honest requests (a Fetch or an OffsetCommit of some ten thousand
// partitions) stay at a tenth of it.
const MaxDecodedBytes = 32 << 20

// shape describes the bodies of one API's requests in the versions min to max. Fields holds
// the fields in their order on the wire, tagged ones last, each as:
//
//	op               kind, with isArray, isNullable, isTagged
//	from, to         the versions that have the field
//	from             only if isNullable: the versions that may have a null
//	tag              only if isTagged
//	size (2 bytes)   only if kind is kindStruct: estimate of the decoded struct's bytes
//	length (2 bytes) only if kind is kindStruct: of the struct's own fields, which follow
type shape struct {
	key      int16
	min, max int8
	flexible int8 // first flexible version, -1: none
	fields   string
}

// The kinds of fields. Those up to kindFixed16 have a fixed size, see fixedSize.
const (
	kindFixed1 = iota + 1
	kindFixed2
	kindFixed4
	kindFixed8
	kindFixed16
	kindString
	kindBytes
	kindStruct

	kindMask   = 0x0f
	isArray    = 0x10
	isNullable = 0x20
	isTagged   = 0x40
)

var fixedSize = [...]int{kindFixed1: 1, kindFixed2: 2, kindFixed4: 4, kindFixed8: 8, kindFixed16: 16}

// What unknown tags cost: kmsg keeps them in a map for each struct that has some.
const (
	costTagMap = 320
	costTag    = 96
)

// findShape returns the shape of a request, nil where the version is not known.
func findShape(key, version int16) *shape {
	if key < 0 || int(key) >= len(shapeIndex)-1 {
		return nil
	}
	for i := shapeIndex[key]; i < shapeIndex[key+1]; i++ {
		if s := &shapes[i]; version >= int16(s.min) && version <= int16(s.max) {
			return s
		}
	}
	return nil
}

// CheckShape walks the body of a request and refuses, with an error that wraps ErrMalformed,
// what must not be handed to a decoder: a length or count that exceeds the bytes left, a null
// where Kafka has none, and a body whose decoded form would take more than limit bytes
// (counts times an estimate of what one element takes; MaxDecodedBytes in the broker). It allocates nothing.
//
// Bytes that follow the body are left alone, as Kafka does.
func CheckShape(key, version int16, body []byte, limit int) error {
	_, err := checkShape(key, version, body, limit)
	return err
}

// checkShape also returns what follows the body.
func checkShape(key, version int16, body []byte, limit int) (rest []byte, err error) {
	s := findShape(key, version)
	if s == nil {
		return nil, fmt.Errorf("%w: key %d has no version %d", ErrMalformed, key, version)
	}
	w := walker{
		reader:  reader{b: body},
		version: uint8(version),
		flex:    s.flexible >= 0 && version >= int16(s.flexible),
		left:    limit,
	}
	w.fields(s.fields)
	if w.bad || w.why != "" {
		why := w.why
		if why == "" {
			why = "it is cut short"
		}
		return nil, fmt.Errorf("%w: body of key %d version %d (%d bytes): %s", ErrMalformed, key, version, len(body), why)
	}
	return w.b, nil
}

type walker struct {
	reader
	version uint8
	flex    bool
	left    int    // bytes that the decoded form may still take
	why     string // what is wrong, if it is not just cut short
}

func (w *walker) refuse(why string) {
	if w.why == "" && !w.bad {
		w.why = why
	}
	w.fail()
}

// spend counts n elements of size bytes each.
func (w *walker) spend(n, size int) {
	if n > w.left/max(size, 1) {
		w.refuse("it would take too much memory when decoded")
		return
	}
	w.left -= n * size
}

// field is one field's description, taken apart.
type field struct {
	op       uint8
	from, to uint8
	nullFrom uint8 // 255: never null
	tag      uint8
	size     int    // of a struct: estimate of its decoded form
	fields   string // of a struct
}

// next takes the first field off a shape.
func next(s string) (f field, rest string) {
	f.op, f.from, f.to = s[0], s[1], s[2]
	s = s[3:]
	f.nullFrom = 255
	if f.op&isNullable != 0 {
		f.nullFrom, s = s[0], s[1:]
	}
	if f.op&isTagged != 0 {
		f.tag, s = s[0], s[1:]
	}
	if f.op&kindMask == kindStruct {
		f.size = int(s[0])<<8 | int(s[1])
		n := int(s[2])<<8 | int(s[3])
		f.fields, s = s[4:4+n], s[4+n:]
	}
	return f, s
}

func (f *field) in(version uint8) bool { return version >= f.from && version <= f.to }

// fields walks the fields of a struct, its tagged ones included.
func (w *walker) fields(s string) {
	for s != "" && s[0]&isTagged == 0 {
		var f field
		if f, s = next(s); f.in(w.version) {
			w.field(&f)
			if w.bad {
				return
			}
		}
	}
	if !w.flex {
		return
	}
	unknown := 0
	for range w.tagCount() {
		number := w.uvarint()
		value := w.take(w.length())
		if w.bad {
			return
		}
		if !w.tagged(s, number, value) {
			unknown++
		}
	}
	if unknown > 0 {
		w.spend(1, costTagMap)
		w.spend(unknown, costTag)
	}
}

// tagged walks the value of a tagged field and says whether the struct has it. One that this
// version does not have is refused, as by Kafka; kmsg would decode it all the same.
func (w *walker) tagged(s string, number uint32, value []byte) bool {
	for s != "" {
		var f field
		if f, s = next(s); uint32(f.tag) != number {
			continue
		}
		if !f.in(w.version) {
			w.refuse("it has a tagged field of another version")
			return true
		}
		outer := w.b
		w.b = value
		w.field(&f)
		if !w.bad {
			w.b = outer
		}
		return true
	}
	return false
}

func (w *walker) field(f *field) {
	kind := f.op & kindMask
	if f.op&isArray != 0 {
		w.array(f, kind)
		return
	}
	if kind == kindStruct && f.op&isNullable != 0 && w.version >= f.nullFrom {
		if int8(w.uint8()) < 0 {
			return
		}
		w.spend(1, f.size)
	}
	w.value(f, kind)
}

// value walks one value, which for strings and bytes may be null if the field is no array.
func (w *walker) value(f *field, kind uint8) {
	switch kind {
	case kindString:
		n := 0
		if w.flex {
			n = int(w.uvarint()) - 1
		} else {
			n = int(int16(w.uint16()))
		}
		if n < 0 {
			w.null(f, n)
			return
		}
		w.take(n)
		if f.op&isNullable != 0 {
			n += 16 // kmsg has a pointer to it
		}
		w.spend(1, n)
	case kindBytes: // aliases the frame
		n := 0
		if w.flex {
			n = int(w.uvarint()) - 1
		} else {
			n = int(int32(w.uint32()))
		}
		if n < 0 {
			w.null(f, n)
			return
		}
		w.take(n)
	case kindStruct:
		w.fields(f.fields)
	default:
		w.take(fixedSize[kind])
	}
}

func (w *walker) array(f *field, kind uint8) {
	n := 0
	if w.flex {
		n = int(w.uvarint()) - 1
	} else {
		n = int(int32(w.uint32()))
	}
	if n < 0 {
		w.null(f, n)
		return
	}
	if n > len(w.b) { // no element takes less than a byte
		w.refuse("it announces more elements than there are bytes")
		return
	}
	switch {
	case kind <= kindFixed16:
		w.spend(n, fixedSize[kind])
		w.take(n * fixedSize[kind])
		return
	case kind == kindString:
		w.spend(n, 16)
	case kind == kindBytes:
		w.spend(n, 24)
	case kind == kindStruct:
		w.spend(n, f.size)
	}
	element := *f
	element.nullFrom = 255
	element.op &^= isNullable
	for i := 0; i < n && !w.bad; i++ {
		w.value(&element, kind)
	}
}

// null checks that a field whose length says null may be null.
func (w *walker) null(f *field, n int) {
	if n != -1 || w.version < f.nullFrom {
		w.refuse("it has a null or a negative length where there is none")
	}
}
