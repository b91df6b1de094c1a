package schema

import (
	"encoding/binary"
	"fmt"
	"math"
)

// message is a definition. Versions go from 0 to most.
type message struct {
	name     string
	id       int16
	most     int16
	flexible from // the first flexible version
	fields   []field
}

// from is a version plus one, so that nothing is never.
type from int8

const (
	never from = iota
	v0
	v1
	v2
	v3
	v4
)

func (f from) holds(version int16) bool { return f != never && version >= int16(f)-1 }

// field is a field of a definition. Tagged fields have a default: def for numbers, null with
// nullDefault, else what is empty.
type field struct {
	name        string
	kind        kind
	array       bool
	since       int16
	until       from // the last version that has it, never: all have
	null        from // the first version in which it may be null
	tagged      from // the first version in which it is tagged
	tag         uint32
	def         int64
	nullDefault bool
	fields      []field // of a struct
}

func (f *field) in(version int16) bool {
	return version >= f.since && (f.until == never || version <= int16(f.until)-1)
}

type kind int8

const (
	tBool kind = iota
	tInt8
	tInt16
	tUint16
	tInt32
	tInt64
	tFloat64
	tString
	tBytes
	tUUID
	tStruct
)

// decoder reads from the front of b. After an error it reads nothing. Nothing is allocated for a
// length before that many bytes are known to be there.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
		d.b = nil
	}
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail("%d bytes wanted, %d left", n, len(d.b))
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) int16() int16 {
	if b := d.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (d *decoder) int32() int32 {
	if b := d.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if b := d.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (d *decoder) int8() int8 {
	if b := d.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

// uvarint reads one of at most 32 bits.
func (d *decoder) uvarint() uint32 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 || size > binary.MaxVarintLen32 || n > math.MaxUint32 {
		d.fail("no unsigned varint")
		return 0
	}
	d.b = d.b[size:]
	return uint32(n)
}

// length reads how long something is, -1 for null. Each of its parts has a byte at least.
func (d *decoder) length(flexible, short bool) int {
	n := 0
	switch {
	case flexible:
		n = int(d.uvarint()) - 1
	case short:
		n = int(d.int16())
	default:
		n = int(d.int32())
	}
	if n < -1 || n > len(d.b) {
		d.fail("length %d with %d bytes left", n, len(d.b))
		return 0
	}
	if d.err != nil {
		return 0
	}
	return n
}

// message reads the fields of one of the definitions.
func (d *decoder) message(table []message, kind messageKind, id, version int16) (Message, error) {
	var def *message
	for i := range table {
		if table[i].id == id {
			def = &table[i]
		}
	}
	switch {
	case def == nil:
		return Message{Type: id}, fmt.Errorf("%w: %d", ErrUnknownType, id)
	case version < 0 || version > def.most:
		return Message{}, fmt.Errorf("%w: %s in version %d", ErrVersion, def.name, version)
	}
	m := Message{Name: def.name, Type: id, Version: version, kind: kind}
	m.Fields = d.structure(def.fields, version, def.flexible.holds(version))
	if d.err != nil {
		return Message{}, fmt.Errorf("%s in version %d: %w", def.name, version, d.err)
	}
	return m, nil
}

func (d *decoder) structure(fields []field, version int16, flexible bool) Struct {
	s := make(Struct, 0, len(fields))
	tags := false
	for i := range fields {
		f := &fields[i]
		switch {
		case !f.in(version):
		case f.tagged.holds(version):
			tags = true
		default:
			s = append(s, Field{f.name, d.value(f, version, flexible)})
		}
	}
	if flexible {
		s = d.tags(fields, s, version, tags)
	}
	return s
}

// tags reads the tagged fields behind a struct. Those that are not known are left out.
func (d *decoder) tags(fields []field, s Struct, version int16, known bool) Struct {
	n := d.uvarint()
	if n == 0 {
		return s
	}
	values := make([]Field, len(fields)) // by their definition, for the order
	for ; n > 0 && d.err == nil; n-- {
		tag, size := d.uvarint(), d.uvarint()
		body := decoder{b: d.take(int(size))}
		for i := range fields {
			f := &fields[i]
			if known && d.err == nil && f.in(version) && f.tagged.holds(version) && f.tag == tag {
				if v := body.taggedValue(f, version); !f.isDefault(v) {
					values[i] = Field{f.name, v}
				}
				if body.err != nil {
					d.fail("tagged field %s: %v", f.name, body.err)
				}
			}
		}
	}
	all := make(Struct, 0, len(fields))
	for i := range fields { // what came before is in this order too
		if len(s) > 0 && s[0].Name == fields[i].name {
			all, s = append(all, s[0]), s[1:]
		} else if values[i].Name != "" {
			all = append(all, values[i])
		}
	}
	return all
}

// taggedValue reads the body of a tag. Whether a struct is there is a varint in it, and a byte
// elsewhere.
func (d *decoder) taggedValue(f *field, version int16) any {
	if f.kind != tStruct || f.array || !f.null.holds(version) {
		return d.value(f, version, true)
	}
	if d.uvarint() == 0 {
		return nil
	}
	return d.structure(f.fields, version, true)
}

func (d *decoder) value(f *field, version int16, flexible bool) any {
	if f.array {
		return d.array(f, version, flexible)
	}
	switch f.kind {
	case tBool:
		return d.int8() != 0
	case tInt8:
		return d.int8()
	case tInt16:
		return d.int16()
	case tUint16:
		return uint16(d.int16())
	case tInt32:
		return d.int32()
	case tInt64:
		return d.int64()
	case tFloat64:
		return math.Float64frombits(uint64(d.int64()))
	case tUUID:
		return d.uuid()
	case tStruct:
		if f.null.holds(version) && d.int8() < 0 {
			return nil
		}
		return d.structure(f.fields, version, flexible)
	case tString:
		if b, ok := d.bytes(f, version, flexible, true); ok {
			return string(b)
		}
	case tBytes:
		if b, ok := d.bytes(f, version, flexible, false); ok {
			return append([]byte{}, b...)
		}
	}
	return nil
}

func (d *decoder) uuid() (id [16]byte) {
	copy(id[:], d.take(len(id)))
	return id
}

func (d *decoder) bytes(f *field, version int16, flexible, short bool) (b []byte, ok bool) {
	n := d.length(flexible, short)
	if n < 0 {
		if !f.null.holds(version) {
			d.fail("null in %s", f.name)
		}
		return nil, false
	}
	return d.take(n), true
}

func (d *decoder) array(f *field, version int16, flexible bool) any {
	n := d.length(flexible, false)
	if n < 0 {
		if !f.null.holds(version) {
			d.fail("null in %s", f.name)
		}
		return nil
	}
	switch f.kind {
	case tInt16:
		return elements(d, n, d.int16)
	case tInt32:
		return elements(d, n, d.int32)
	case tUUID:
		return elements(d, n, d.uuid)
	case tString:
		return elements(d, n, func() string {
			b, ok := d.bytes(&field{name: f.name}, version, flexible, true)
			if !ok {
				d.fail("null in %s", f.name)
			}
			return string(b)
		})
	default:
		return elements(d, n, func() Struct { return d.structure(f.fields, version, flexible) })
	}
}

// elements reads n of them. It grows as they come: a struct is bigger than its bytes.
func elements[T any](d *decoder, n int, read func() T) []T {
	list := []T{}
	for ; n > 0 && d.err == nil; n-- {
		list = append(list, read())
	}
	return list
}

// isDefault says whether Kafka's writers would leave a tagged field out.
func (f *field) isDefault(v any) bool {
	switch v := v.(type) {
	case nil:
		return f.nullDefault
	case bool:
		return v == (f.def != 0)
	case int8:
		return int64(v) == f.def
	case int16:
		return int64(v) == f.def
	case uint16:
		return int64(v) == f.def
	case int32:
		return int64(v) == f.def
	case int64:
		return v == f.def
	case float64:
		return v == 0
	case [16]byte:
		return v == [16]byte{}
	case string:
		return v == "" && !f.nullDefault
	case []byte:
		return len(v) == 0 && !f.nullDefault
	case []int16:
		return len(v) == 0 && !f.nullDefault
	case []int32:
		return len(v) == 0 && !f.nullDefault
	case []string:
		return len(v) == 0 && !f.nullDefault
	case [][16]byte:
		return len(v) == 0 && !f.nullDefault
	case []Struct:
		return len(v) == 0 && !f.nullDefault
	}
	return false // a struct: Kafka's never is there with nothing but defaults
}
