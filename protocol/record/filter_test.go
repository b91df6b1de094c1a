package record

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// numbered is a batch of n records k0=v0 and so on; every fourth is a tombstone.
func numbered(o BuilderOptions, n int, value string) Batch {
	b := NewBuilder(nil, o)
	for i := range n {
		v := fmt.Appendf(nil, "%s%d", value, i)
		if i%4 == 3 {
			v = nil
		}
		b.Add(int64(1000+i*7), fmt.Appendf(nil, "k%d", i), v, Header{"h", []byte{byte(i)}})
	}
	return b.Finish()
}

// numberedOld is the same in a v0 or v1 set.
func numberedOld(magic int8, codec Codec, n int, base int64) Batch {
	if codec == None {
		return Batch(appendMessage(nil, magic, base, 1000, 0, []byte("k0"), []byte("v0")))
	}
	w := newWrapper(nil, magic, codec)
	for i := range n {
		w.add(Record{Offset: base + int64(i), Timestamp: int64(1000 + i*7), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)}, 0)
	}
	b, err := w.finish(0, nil)
	if err != nil {
		panic(err)
	}
	return b
}

func recordsOf(t testing.TB, b Batch) (list []Record) {
	t.Helper()
	for r, err := range Records(b, 0) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

func sameRecord(a, b Record) bool {
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp && bytes.Equal(a.Key, b.Key) && (a.Key == nil) == (b.Key == nil) &&
		bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y Header) bool { return x.Key == y.Key && bytes.Equal(x.Value, y.Value) })
}

func TestFilterKeepsWhatItShall(t *testing.T) {
	producer := &ProducerInfo{ID: 9, Epoch: 3, Sequence: 17, Transactional: true}
	var entries []Batch
	for codec := None; codec <= Zstd; codec++ {
		for _, n := range []int{1, 5, 300} {
			for _, value := range []string{"v", strings.Repeat("long ", 5000)} {
				if n == 300 && len(value) > 1 {
					continue
				}
				entries = append(entries, numbered(BuilderOptions{BaseOffset: 1 << 40, LeaderEpoch: 4, Producer: producer, Codec: codec}, n, value))
			}
			entries = append(entries, numbered(BuilderOptions{LogAppend: true, AppendTime: 5000, Codec: codec}, n, "v"))
			if codec != Zstd {
				entries = append(entries, numberedOld(0, codec, n, 700), numberedOld(1, codec, n, 700))
			}
		}
	}
	var f Filter
	for _, b := range entries {
		before := recordsOf(t, b)
		for _, every := range []int64{1, 2, 3, 1000} {
			for _, rules := range []FilterRules{{}, {KeepEmpty: true}, {Horizon: 8000}, {Horizon: 8000, NeedsHorizon: true}, {DropAll: true}, {DropAll: true, KeepEmpty: true}} {
				original := bytes.Clone(b)
				keep := func(s Sketch) bool { return s.Offset%every == 1%every }
				got, n, err := f.Append([]byte("head"), b, rules, keep)
				what := fmt.Sprintf("%v, every %d, %+v", b, every, rules)
				if err != nil || string(got[:4]) != "head" || !bytes.Equal(original, b) {
					t.Fatalf("%s: %v", what, err)
				}
				var want []Record
				tombstone := false
				for _, r := range before {
					if keep(Sketch{Offset: r.Offset}) && !rules.DropAll {
						want = append(want, r)
						tombstone = tombstone || r.Value == nil
					}
				}
				if n.Kept != len(want) || n.Read != len(before) {
					t.Fatalf("%s: %+v, want %d", what, n, len(want))
				}
				got = got[4:]
				if len(want) == 0 && !(rules.KeepEmpty && b.Magic() == 2) {
					if len(got) > 0 {
						t.Fatalf("%s: %d bytes are left", what, len(got))
					}
					continue
				}
				k, rest, err := Split(got)
				if err != nil || len(rest) > 0 || k.CRC() != k.ComputeCRC() {
					t.Fatalf("%s: %v, %d bytes behind it, checksum %x", what, err, len(rest), k.CRC())
				}
				if after := recordsOf(t, k); !slices.EqualFunc(after, want, sameRecord) {
					t.Fatalf("%s: %v, want %v", what, after, want)
				}
				if b.Magic() < 2 {
					if k.Magic() != b.Magic() || k.Codec() != b.Codec() || k.LastOffset() != want[len(want)-1].Offset {
						t.Fatalf("%s: became %v", what, k)
					}
					continue
				}
				if k.BaseOffset() != b.BaseOffset() || k.LastOffset() != b.LastOffset() || k.LeaderEpoch() != b.LeaderEpoch() || k.ProducerID() != b.ProducerID() ||
					k.ProducerEpoch() != b.ProducerEpoch() || k.BaseSequence() != b.BaseSequence() || k.IsTransactional() != b.IsTransactional() || k.LogAppendTime() != b.LogAppendTime() {
					t.Fatalf("%s: became %v", what, k)
				}
				horizon := (tombstone || rules.NeedsHorizon) && len(want) > 0
				switch {
				case k.HasDeleteHorizon() != horizon || horizon && k.BaseTimestamp() != rules.Horizon:
					t.Fatalf("%s: horizon %v at %d", what, k.HasDeleteHorizon(), k.BaseTimestamp())
				case len(want) == 0 && (len(k) != HeaderSize || k.MaxTimestamp() != b.MaxTimestamp() || k.BaseTimestamp() != -1 || k.Codec() != None):
					t.Fatalf("%s: %v", what, k)
				case len(want) > 0 && k.Codec() != b.Codec():
					t.Fatalf("%s: %v", what, k)
				case len(want) == len(before) && !horizon && !bytes.Equal(k, b):
					t.Fatalf("%s: it lost nothing and is another", what)
				}
				if len(want) > 0 && !horizon && k.BaseTimestamp() != want[0].Timestamp && len(want) < len(before) {
					t.Fatalf("%s: base timestamp %d, want that of the first record, %d", what, k.BaseTimestamp(), want[0].Timestamp)
				}
				if k.HasDeleteHorizon() { // which stays when it is filtered again
					again, _, err := f.Append(nil, k, FilterRules{Horizon: 9000, NeedsHorizon: true}, func(s Sketch) bool { return s.Offset == want[0].Offset })
					if err != nil || Batch(again).BaseTimestamp() != rules.Horizon || !sameRecord(recordsOf(t, again)[0], want[0]) {
						t.Fatalf("%s: again: %v, %v", what, Batch(again), err)
					}
				}
			}
		}
	}
}

// Numbers may be written longer than they need be; a key must be found all the same.
func TestFilterReadsLongNumbers(t *testing.T) {
	body := []byte{0, 0x80, 0x00, 0x80, 0x80, 0x00, 0x84, 0x00, 'k', 'k', 0x82, 0x80, 0x00, 'v', 0x80, 0x00}
	b := slices.Clone(numbered(BuilderOptions{}, 1, "v")[:HeaderSize])
	b = append(append(b, byte(2*len(body))), body...)
	b.setLength(len(b))
	b.UpdateCRC()
	want := recordsOf(t, b)
	if string(want[0].Key) != "kk" || string(want[0].Value) != "v" {
		t.Fatal(want)
	}
	var f Filter
	if err := f.Scan(b, func(s Sketch) bool {
		if string(s.Key) != "kk" || !s.HasValue {
			t.Errorf("%q", s.Key)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	got, _, err := f.Append(nil, b, FilterRules{Horizon: 5, NeedsHorizon: true}, func(Sketch) bool { return true })
	if err != nil || !sameRecord(recordsOf(t, got)[0], want[0]) {
		t.Fatal(err)
	}
}

func TestFilterAllocatesNothing(t *testing.T) {
	for codec := None; codec <= Zstd; codec++ {
		few, many := 0.0, 0.0
		for n, to := range map[int]*float64{10: &few, 2000: &many} {
			b := numbered(BuilderOptions{Codec: codec}, n, "v")
			var f Filter
			out := make([]byte, 0, 1<<20)
			keep := func(s Sketch) bool { return s.Offset%2 == 0 }
			scan := func(Sketch) bool { return true }
			*to = testing.AllocsPerRun(20, func() {
				f.Scan(b, scan)
				f.Append(out, b, FilterRules{Horizon: 1}, keep)
			})
		}
		if many > few+500 { // pools may be emptied meanwhile, and are, at random, under the race detector
			t.Errorf("%s: %v allocations for 10 records, %v for 2000", codec, few, many)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for codec := None; codec <= Zstd; codec++ {
		f.Add([]byte(numbered(BuilderOptions{Codec: codec}, 5, "v")), uint8(3), true)
		if codec != Zstd {
			f.Add([]byte(numberedOld(1, codec, 4, 9)), uint8(2), false)
			f.Add([]byte(numberedOld(0, codec, 4, 9)), uint8(2), false)
		}
	}
	var filter Filter
	f.Fuzz(func(t *testing.T, data []byte, every uint8, horizon bool) {
		b, _, err := Split(data)
		if err != nil {
			return
		}
		keep := func(s Sketch) bool { return every == 0 || s.Offset%int64(every) == 0 }
		got, n, err := filter.Append(nil, b, FilterRules{KeepEmpty: true, Horizon: 1 << 41, NeedsHorizon: horizon}, keep)
		if err != nil || len(got) == 0 {
			return
		}
		var want []Record
		for r, err := range Records(b, 0) {
			if err != nil {
				t.Fatalf("it was filtered, and cannot be read: %v", err)
			}
			if keep(Sketch{Offset: r.Offset}) {
				want = append(want, r)
			}
		}
		if after := recordsOf(t, got); n.Kept != len(want) || !slices.EqualFunc(after, want, sameRecord) {
			t.Fatalf("%v, want %v", after, want)
		}
	})
}
