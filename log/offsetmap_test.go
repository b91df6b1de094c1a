package log

import (
	"fmt"
	"testing"
)

func TestOffsetMap(t *testing.T) {
	m := newOffsetMap(1000*slotBytes, 0.9, 1<<40)
	defer m.free()
	key := func(i int) []byte { return []byte(fmt.Sprint("key", i)) }
	for i := range 900 {
		if !m.put(key(i), int64(i)) {
			t.Fatalf("full at %d", i)
		}
	}
	if m.put(key(900), 900) || m.put(key(3), 901) {
		t.Fatal("a full map took more")
	}
	for i := range 900 {
		if got := m.get(key(i)); got != int64(i) {
			t.Fatalf("key %d is at %d", i, got)
		}
	}
	if m.get(key(900)) != noOffset || m.get(nil) != noOffset || m.latest != 899 {
		t.Fatal("a key that is not there was found")
	}
	if u := m.utilization(1000 * slotBytes); u != 0.9 {
		t.Fatal(u)
	}
	// Memory is taken for what there can be, not for what is allowed.
	small := newOffsetMap(1<<30, 0.9, 100)
	defer small.free()
	if len(small.slots) != 200 {
		t.Fatalf("%d slots", len(small.slots))
	}
	for i := range 100 {
		small.put(key(i), int64(i))
		small.put(key(i), int64(i+1000))
	}
	if small.get(key(7)) != 1007 || small.used != 100 {
		t.Fatal(small.get(key(7)))
	}
	// The places of keys are not those of another map.
	a, b := newOffsetMap(1<<20, 0.9, 10), newOffsetMap(1<<20, 0.9, 10)
	defer a.free()
	defer b.free()
	_, x := a.find(key(1))
	_, y := b.find(key(1))
	if x == y {
		t.Fatal("hashes can be foretold")
	}
}
