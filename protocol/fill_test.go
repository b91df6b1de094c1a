package protocol

import (
	"math/rand/v2"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fill puts random values into every field of a kmsg struct: nulls, empty and short lists,
// tags that nobody knows.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		if t, ok := v.Addr().Interface().(*kmsg.Tags); ok {
			if r.IntN(4) == 0 {
				for range 1 + r.IntN(3) {
					t.Set(100+r.Uint32N(1<<20), randomBytes(r, 200))
				}
			}
			return
		}
		if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
			d.Default()
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name == "Version" && depth == 0 {
				continue
			}
			fill(r, v.Field(i), depth+1)
		}
	case reflect.Pointer:
		if r.IntN(3) == 0 {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem(), depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if r.IntN(4) > 0 {
				v.SetBytes(randomBytes(r, 300))
			}
			return
		}
		if r.IntN(5) == 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
		for i := range v.Len() {
			fill(r, v.Index(i), depth+1)
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(r.Uint32N(256)))
		}
	case reflect.String:
		v.SetString(string(randomBytes(r, 150)))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> r.IntN(64))
	case reflect.Uint16, reflect.Uint32:
		v.SetUint(r.Uint64() & 0xffff)
	case reflect.Float64:
		v.SetFloat(r.Float64())
	default:
		panic("no rule for " + v.Type().String())
	}
}

func randomBytes(r *rand.Rand, most int) []byte {
	n := r.IntN(8)
	if r.IntN(8) == 0 {
		n = r.IntN(most)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return b
}
