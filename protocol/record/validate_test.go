package record

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// open are rules that refuse nothing.
func open() Rules {
	return Rules{Partition: "t-0", Now: judgeNow, BeforeMax: math.MaxInt64, AfterMax: math.MaxInt64, Codec: Producer, RequestVersion: 9}
}

func TestValidateInPlace(t *testing.T) {
	for _, c := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
		b := sample(c)
		v, err := Validate(b, open())
		if err != nil {
			t.Fatal(c, err)
		}
		if &v.Records[0] != &b[0] || v.Rewritten || v.Count != 4 || v.MaxTimestamp != 1700000003000 || v.ShallowOffsetOfMax != 3 || v.AppendTime != -1 {
			t.Errorf("%s: %+v", c, v)
		}
		r := open()
		r.LogAppend = true
		v, err = Validate(b, r)
		if err != nil || v.Rewritten || v.AppendTime != judgeNow || v.MaxTimestamp != judgeNow || v.ShallowOffsetOfMax != 3 {
			t.Errorf("%s: %+v %v", c, v, err)
		}
		if !b.LogAppendTime() || b.MaxTimestamp() != judgeNow || checkCRC(b) != nil {
			t.Errorf("%s: %v", c, b)
		}
	}
}

// A client that numbers its records wrongly gets them stored with the right offsets.
func TestWrongDeltas(t *testing.T) {
	for _, c := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
		b := change(wrongDeltas(c), func(b Batch) {
			b.putInt64(atProducerID, 8)
			b.putInt32(atBaseSequence, 3)
			b[atProducerEpoch], b[atProducerEpoch+1] = 0, 2
			b.SetAttributes(b.Attributes() | transactionalBit)
		})
		v, err := Validate(b, open())
		if err != nil || !v.Rewritten || v.Count != 3 {
			t.Fatal(c, v, err)
		}
		got := Batch(v.Records)
		if err := checkCRC(got); err != nil {
			t.Error(err)
		}
		if got.Codec() != c || got.ProducerID() != 8 || got.BaseSequence() != 3 || got.ProducerEpoch() != 2 || !got.IsTransactional() {
			t.Error(c, got)
		}
		for i, r := range collect(t, got) {
			if r.Offset != int64(i) || r.Timestamp != 1700000000000+int64(i) || string(r.Key) != "k" {
				t.Errorf("%s: %+v", c, r)
			}
		}
	}
}

func TestTooLarge(t *testing.T) {
	b := sample(None)
	r := open()
	r.MaxBatchBytes = len(b)
	if _, err := Validate(b, r); err != nil {
		t.Error(err)
	}
	r.MaxBatchBytes--
	if _, err := Validate(b, r); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	// What counts is the batch as it is sent and as it is stored.
	small := sample(Zstd)
	r.MaxBatchBytes = len(small)
	if _, err := Validate(small, r); err != nil {
		t.Error(err)
	}
	r.Codec = None
	if _, err := Validate(small, r); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	// Packing ends where the limit is reached, whatever the client packed.
	bomb := raw(Zstd, 1, appendRecord(nil, 0, 0, nil, make([]byte, 20<<20), nil))
	for _, c := range []Codec{None, Gzip, Snappy, Lz4} {
		r := open()
		r.Codec, r.MaxBatchBytes = c, 16<<10
		if _, err := Validate(bomb, r); !errors.Is(err, ErrTooLarge) {
			t.Error(c, err)
		}
	}
	set := nest(1, Gzip, bytes.Repeat(sampleSet(1, None), 1000))
	r = open()
	r.MaxBatchBytes, r.Codec, r.RequestVersion = len(set)+1, None, 2
	if _, err := Validate(change(set, func(b Batch) { b.SetBaseOffset(0) }), r); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func TestRecordSizeLimit(t *testing.T) {
	body := appendRecord(nil, 0, 0, nil, make([]byte, 1000), nil)
	body = appendRecord(body, 0, 1, nil, make([]byte, 1000), nil)
	for _, c := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
		r := open()
		r.MaxDecompressedBytes = 1007
		if _, err := Validate(raw(c, 2, body), r); err != nil {
			t.Error(c, err)
		}
		r.MaxDecompressedBytes--
		_, err := Validate(raw(c, 2, body), r)
		if c == None {
			if err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, ErrInvalidRecord) || !strings.Contains(err.Error(), "1007 exceeds the configured maximum record size of 1006") {
			t.Error(c, err)
		}
	}
	r := open()
	r.MaxDecompressedBytes, r.RequestVersion = 100, 2
	if _, err := Validate(sampleSet(0, Snappy), r); !errors.Is(err, ErrInvalidRecord) {
		t.Error(err)
	}
}

func TestManyFaults(t *testing.T) {
	b := NewBuilder(nil, BuilderOptions{Codec: Gzip})
	for range maxRecordFaults * 3 {
		b.Add(judgeNow, nil, nil)
	}
	r := open()
	r.Compacted = true
	_, err := Validate(b.Finish(), r)
	var e *RecordError
	if !errors.As(err, &e) || !errors.Is(err, ErrInvalidRecord) || len(e.Records) != maxRecordFaults || e.Total != maxRecordFaults*3 {
		t.Fatal(err)
	}
	if !strings.HasPrefix(e.Message, "One or more records have been rejected due to 3000 record errors in total, and only showing the first three errors at most: "+
		"[RecordError(batchIndex=0, message='Compacted topic cannot accept message without key in topic partition t-0'), RecordError(batchIndex=1,") {
		t.Error(e.Message)
	}
}

func TestOtherMagicInside(t *testing.T) {
	r := open()
	r.RequestVersion = 2
	for _, magic := range []int8{0, 1} {
		if _, err := Validate(nest(magic, Gzip, sampleSet(1-magic, None)), r); !errors.Is(err, ErrInvalidRecord) {
			t.Error(err)
		}
	}
}

func TestValidateReplicated(t *testing.T) {
	r := open()
	r.Origin = Replication
	at := func(b Batch, offset int64) Batch { return change(b, func(b Batch) { b.SetBaseOffset(offset) }) }
	var data []byte
	for _, b := range []Batch{at(sample(Gzip), 100), at(timed(5), 104), at(EndMarker{true, 1}.Batch(1, 1, 9), 110), sampleSet(1, Gzip)} {
		data = append(data, b...)
	}
	whole := len(data)
	copy(data[whole-len(sampleSet(1, Gzip)):], change(sampleSet(1, Gzip), func(b Batch) { b.SetBaseOffset(115) }))
	want := bytes.Clone(data)
	v, err := Validate(append(data, sample(None)[:40]...), r)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(v.Records, want) || v.Rewritten || v.Count != 4+1+1+1 || v.MaxTimestamp != 1700000005000 || v.ShallowOffsetOfMax != 115 || v.AppendTime != -1 {
		t.Errorf("%+v", v)
	}
	if _, err := Validate(append(bytes.Clone(want), want...), r); !errors.Is(err, ErrInvalidRecord) {
		t.Error("offsets that go back:", err)
	}
	want[len(want)-1]++
	if _, err := Validate(want, r); !errors.Is(err, ErrCorrupt) {
		t.Error("checksum:", err)
	}
	if v, err := Validate(nil, r); err != nil || len(v.Records) != 0 || v.Count != 0 || v.MaxTimestamp != -1 {
		t.Error(v, err)
	}
}

// TestEras takes the record sets that clients of their time sent or got.
func TestEras(t *testing.T) {
	for _, e := range eras(t) {
		t.Run(e.name(), func(t *testing.T) {
			var first []Record
			count := 0
			for b := range All(unhex(t, e.Hex)) {
				if err := checkCRC(b); err != nil {
					t.Error(err)
				}
				all := collect(t, b)
				if b.Magic() >= 2 && len(all) != int(b.Count()) {
					t.Errorf("%d records of %d", len(all), b.Count())
				}
				first = append(first, all...)
				count += len(all)
			}
			for _, want := range e.sample() {
				if !slices.ContainsFunc(first, func(r Record) bool {
					return (want.Offset == -1 || r.Offset == want.Offset) && r.Timestamp == want.Timestamp &&
						bytes.Equal(r.Key, want.Key) && bytes.Equal(r.Value, want.Value) && (r.Key == nil) == (want.Key == nil)
				}) {
					t.Errorf("missing %+v", want)
				}
			}
			if e.In != "Produce request" {
				return
			}
			r := open()
			r.RequestVersion = e.Version
			v, err := Validate(unhex(t, e.Hex), r)
			if err != nil || v.Count != count || v.Rewritten != (e.Magic < 2) || Batch(v.Records).Codec().Name() != e.Codec {
				t.Fatalf("%+v %v", v, err)
			}
			if e.Magic == 2 {
				return
			}
			for i, r := range collect(t, v.Records) {
				r.Offset = first[i].Offset
				if d := cmp.Diff(first[i], r); d != "" {
					t.Error(i, d)
				}
			}
			// and back: the old client reads what it sent
			down, err := DownConvert(v.Records, e.Magic, 0)
			if err != nil {
				t.Fatal(err)
			}
			back := 0
			for b := range All(down) {
				if b.Magic() != e.Magic {
					t.Error(b)
				}
				for _, r := range collect(t, b) {
					if r.Offset = first[back].Offset; !cmp.Equal(first[back], r) {
						t.Error(cmp.Diff(first[back], r))
					}
					back++
				}
			}
			if back != count {
				t.Errorf("%d of %d records came back", back, count)
			}
		})
	}
}

func TestDownConvertErrors(t *testing.T) {
	if _, err := DownConvert(sample(None), 2, 0); !errors.Is(err, ErrUnsupportedForFormat) {
		t.Error(err)
	}
	good := sample(None)
	converted, err := DownConvert(good, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good) // with a new checksum nobody would see it any more
	flipped[len(flipped)-1] ^= 1
	for _, c := range []struct {
		bad  []byte
		want error
	}{
		{flipped, ErrCorrupt},
		{sample(Zstd), ErrUnsupportedCompression},
		{change(good, func(b Batch) { b.putInt32(atCount, 9) }), ErrInvalidRecord},
		{change(good, func(b Batch) { b.SetAttributes(int16(Gzip)) }), ErrCodec},
		{change(good, func(b Batch) { b[atMagic] = 9 }), ErrCorrupt},
	} {
		got, err := DownConvert(append(bytes.Clone(good), c.bad...), 1, 0)
		if !errors.Is(err, c.want) || !bytes.Equal(got, converted) {
			t.Errorf("%v, want %v; %d bytes", err, c.want, len(got))
		}
	}
	if got, err := DownConvert(append(bytes.Clone(good), good[:len(good)-1]...), 1, 0); err != nil || !bytes.Equal(got, converted) {
		t.Error("a torn tail:", err)
	}
}

// Those who want the content find the same mistakes as those who only check.
func TestBrokenRecords(t *testing.T) {
	for i, body := range bodies {
		for _, c := range []Codec{None, Snappy} {
			b := raw(c, 1, body)
			_, want := Validate(bytes.Clone(b), open())
			var got error
			for _, err := range Records(b, 0) {
				got = err
			}
			if (got == nil) != (i == 11 || i == 12 || i == len(bodies)-1) || (got == nil) != (want == nil) || got != nil && !errors.Is(got, ErrInvalidRecord) {
				t.Errorf("body %d, %s: %v, Validate says %v", i, c, got, want)
			}
		}
	}
	for _, b := range []Batch{
		change(sample(None), func(b Batch) { b.putInt32(atCount, -1) }),
		change(sample(None), func(b Batch) { b.putInt32(atCount, 3) }),
		change(sample(Lz4), func(b Batch) { b.putInt32(atCount, 5) }),
	} {
		n := 0
		for _, err := range Records(b, 0) {
			if err != nil && !errors.Is(err, ErrInvalidRecord) {
				t.Error(err)
			} else if err != nil {
				n++
			}
		}
		if n != 1 {
			t.Error(b, "has no mistake")
		}
	}
}

// Any records come back as they went in, through every codec and the old formats.
func TestRandomRecords(t *testing.T) {
	const seed = 42
	rnd := rand.New(rand.NewPCG(seed, seed))
	random := func() []byte {
		switch n := rnd.IntN(10); n {
		case 0:
			return nil
		case 1:
			return []byte{}
		case 2:
			return make([]byte, rnd.IntN(50_000))
		default:
			return bytes.Repeat([]byte{byte(n), byte(rnd.Uint32())}, 1+rnd.IntN(100))
		}
	}
	for round := range 60 {
		codec := Codec(round % 5)
		b := NewBuilder(nil, BuilderOptions{Codec: codec, BaseOffset: rnd.Int64N(1 << 40)})
		var want []Record
		for i := range 1 + rnd.IntN(40) {
			r := Record{Offset: b.o.BaseOffset + int64(i), Timestamp: rnd.Int64N(1 << 45), Key: random(), Value: random()}
			for range rnd.IntN(3) {
				r.Headers = append(r.Headers, Header{string(random()), random()})
			}
			b.Add(r.Timestamp, r.Key, r.Value, r.Headers...)
			want = append(want, r)
		}
		batch := b.Finish()
		// cmp takes minutes for so many bytes.
		if got := collect(t, batch); !reflect.DeepEqual(want, got) {
			t.Fatalf("seed %d, round %d: %s", seed, round, cmp.Diff(want, got))
		}
		if codec == Zstd {
			continue
		}
		for magic := range int8(2) {
			old, err := DownConvert(batch, magic, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []Record
			for m := range All(old) {
				got = append(got, collect(t, m)...)
			}
			for i, w := range want {
				if w.Headers = nil; magic == 0 {
					w.Timestamp = -1
				}
				if !reflect.DeepEqual(w, got[i]) {
					t.Fatalf("seed %d, round %d, magic %d: %s", seed, round, magic, cmp.Diff(w, got[i]))
				}
			}
			r := open()
			r.RequestVersion = 2
			v, err := Validate(old, r)
			if err != nil || v.Count != len(want) || Batch(v.Records).Codec() != codec {
				t.Fatalf("seed %d, round %d, magic %d: %+v %v", seed, round, magic, v, err)
			}
		}
	}
}

func TestRecordsStops(t *testing.T) {
	for _, b := range []Batch{sample(None), sample(Lz4), sampleSet(0, Gzip), sampleSet(1, Gzip)} {
		n := 0
		for range Records(b, 0) {
			if n++; n == 2 {
				break
			}
		}
		if n != 2 {
			t.Error(n)
		}
	}
}

func TestRecordsOfCompressedMayBeKept(t *testing.T) {
	for _, b := range []Batch{sample(Gzip), sampleSet(0, Snappy)} {
		all := collect(t, b)
		clear(b)
		if string(all[0].Key) != "k0" || len(all[0].Value) == 0 {
			t.Error(all[0])
		}
	}
}

// The walk over a batch that is stored as it came allocates nothing.
func TestValidateAllocs(t *testing.T) {
	for _, c := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
		b := bulk(c, 1000, 100)
		r := open()
		n := testing.AllocsPerRun(20, func() {
			if _, err := Validate(b, r); err != nil {
				t.Fatal(err)
			}
		})
		// The pools may be emptied meanwhile: by the garbage collector, and by the race detector.
		if n > 20 || c == None && n > 0 {
			t.Errorf("%s: %v allocations", c, n)
		}
	}
}

// bulk is a batch of n records with values that pack to about half.
func bulk(c Codec, n, size int) Batch {
	b := NewBuilder(nil, BuilderOptions{Codec: c})
	value := make([]byte, size)
	x := uint32(1)
	for i := range n {
		for j := range value {
			x = x*1664525 + 1013904223
			value[j] = "0123456789abcdef"[x>>28]
		}
		b.Add(1700000000000+int64(i), []byte("key"), value)
	}
	return b.Finish()
}
