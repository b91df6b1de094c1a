package record

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAccessors(t *testing.T) {
	b := NewBuilder([]byte("kept"), BuilderOptions{BaseOffset: 1 << 40, LeaderEpoch: 7, Codec: Zstd,
		Producer: &ProducerInfo{ID: 12, Epoch: 3, Sequence: math.MaxInt32 - 1, Transactional: true}})
	for i := range 4 {
		b.Add(int64(1000-i), nil, []byte{byte(i)})
	}
	got := b.Finish()
	type fields struct {
		Magic                  int8
		Base, Last, Next       int64
		Length, Size           int
		Epoch                  int32
		Delta, Count           int32
		BaseTime, MaxTime      int64
		Producer               int64
		ProducerEpoch          int16
		Sequence, LastSequence int32
		Codec                  Codec
		Control, Txn, Append   bool
	}
	want := fields{2, 1 << 40, 1<<40 + 3, 1<<40 + 4, len(got), len(got), 7, 3, 4, 1000, 1000, 12, 3, math.MaxInt32 - 1, 1, Zstd, false, true, false}
	is := fields{got.Magic(), got.BaseOffset(), got.LastOffset(), got.NextOffset(), got.Length(), len(got), got.LeaderEpoch(),
		got.LastOffsetDelta(), got.Count(), got.BaseTimestamp(), got.MaxTimestamp(), got.ProducerID(), got.ProducerEpoch(),
		got.BaseSequence(), got.LastSequence(), got.Codec(), got.IsControl(), got.IsTransactional(), got.LogAppendTime()}
	if d := cmp.Diff(want, is); d != "" {
		t.Error(d)
	}
	crc := got.CRC()
	got.SetBaseOffset(5)
	got.SetLeaderEpoch(9)
	if got.ComputeCRC() != crc || got.BaseOffset() != 5 || got.LeaderEpoch() != 9 {
		t.Error("offset and epoch are outside of the checksum")
	}
	got.SetMaxTimestamp(5)
	if got.ComputeCRC() == crc {
		t.Error("the maximum timestamp is not")
	}
	got.UpdateCRC()
	if checkCRC(got) != nil {
		t.Error("UpdateCRC left the checksum wrong")
	}
}

func TestOldFormatsHaveNoProducer(t *testing.T) {
	for _, magic := range []int8{0, 1} {
		b := sampleSet(magic, Gzip)
		if b.LeaderEpoch() != -1 || b.ProducerID() != -1 || b.ProducerEpoch() != -1 || b.BaseSequence() != -1 || b.LastSequence() != -1 ||
			b.IsControl() || b.IsTransactional() || b.HasDeleteHorizon() || b.LastOffset() != 12 || b.Codec() != Gzip {
			t.Error(b)
		}
	}
}

func TestAddSequence(t *testing.T) {
	for _, c := range [][3]int32{{0, 1, 1}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 1, math.MaxInt32}, {math.MaxInt32 - 1, 3, 1}, {5, 0, 5}} {
		if got := AddSequence(c[0], c[1]); got != c[2] {
			t.Errorf("%d + %d = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestSplit(t *testing.T) {
	b := sample(None)
	two := append(append([]byte(nil), b...), sampleSet(1, None)...)
	first, rest, err := Split(two)
	if err != nil || !bytes.Equal(first, b) || len(rest) != len(two)-len(b) || cap(first) != len(first) {
		t.Fatal(first, len(rest), err)
	}
	if n := len(slices.Collect(All(two))); n != 4 {
		t.Errorf("%d entries, want 4", n)
	}
	if n := len(slices.Collect(All(two[:len(two)-1]))); n != 3 {
		t.Errorf("%d whole entries, want 3", n)
	}
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, ErrShort},
		{"half a length", b[:11], ErrShort},
		{"no magic", b[:16], ErrShort},
		{"no end", b[:len(b)-1], ErrShort},
		{"length below zero", change(b, func(b Batch) { b.putInt32(atLength, -1) }), ErrCorrupt},
		{"length too small", change(b, func(b Batch) { b.putInt32(atLength, 48) }), ErrCorrupt},
		{"length too small for v1", change(sampleSet(1, None), func(b Batch) { b.putInt32(atLength, 21) }), ErrCorrupt},
		{"magic", change(b, func(b Batch) { b[atMagic] = 3 }), ErrCorrupt},
	} {
		if _, rest, err := Split(c.data); !errors.Is(err, c.want) || len(rest) != len(c.data) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestBuilderAgainstKmsg holds the builder to kmsg, which knows no codec.
func TestBuilderAgainstKmsg(t *testing.T) {
	got := sample(None)
	var b kmsg.RecordBatch
	if err := b.ReadFrom(got); err != nil {
		t.Fatal(err)
	}
	want := kmsg.NewRecordBatch()
	want.Length, want.PartitionLeaderEpoch, want.Magic, want.CRC = int32(len(got)-12), -1, 2, b.CRC
	want.LastOffsetDelta, want.FirstTimestamp, want.MaxTimestamp = 3, 1700000000000, 1700000003000
	want.ProducerID, want.ProducerEpoch, want.FirstSequence, want.NumRecords = -1, -1, -1, 4
	want.Records = b.Records
	if d := cmp.Diff(want, b); d != "" {
		t.Error(d)
	}
	if got := want.AppendTo(nil); !bytes.Equal(got, sample(None)) {
		t.Error("kmsg writes other bytes")
	}
	in := b.Records
	for i := range 4 {
		var r kmsg.Record
		if err := r.ReadFrom(in); err != nil {
			t.Fatal(i, err)
		}
		if int(r.OffsetDelta) != i || r.Attributes != 0 || (r.Key == nil) != (i == 1) || (r.Value == nil) != (i == 2) {
			t.Errorf("%+v", r)
		}
		again := r.AppendTo(nil)
		if !bytes.Equal(again, in[:len(again)]) {
			t.Errorf("kmsg writes record %d in other bytes", i)
		}
		in = in[len(again):]
	}
}

// TestCodecsAgainstKgo has every codec unpacked by kgo's decompressor and packed by its compressor.
func TestCodecsAgainstKgo(t *testing.T) {
	body := sample(None).Body()
	unpack := kgo.DefaultDecompressor()
	for _, c := range []struct {
		codec Codec
		kgo   kgo.CompressionCodec
	}{{Gzip, kgo.GzipCompression()}, {Snappy, kgo.SnappyCompression()}, {Lz4, kgo.Lz4Compression()}, {Zstd, kgo.ZstdCompression()}} {
		got, err := unpack.Decompress(raw(c.codec, 4, body).Body(), kgo.CompressionCodecType(c.codec))
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s for kgo: %v", c.codec, err)
		}
		pack, err := kgo.DefaultCompressor(c.kgo)
		if err != nil {
			t.Fatal(err)
		}
		packed, codec := pack.Compress(new(bytes.Buffer), body, kgo.CompressFlag(0))
		if Codec(codec) != c.codec {
			t.Fatal("kgo took", codec)
		}
		b := change(raw(None, 4, packed), func(b Batch) { b.SetAttributes(int16(c.codec)) })
		if d := cmp.Diff(collect(t, raw(None, 4, body)), collect(t, b)); d != "" {
			t.Errorf("%s from kgo: %s", c.codec, d)
		}
	}
}

func TestBuilder(t *testing.T) {
	if b := NewBuilder(nil, BuilderOptions{Codec: Gzip}).Finish(); b != nil {
		t.Error("a batch without records:", b)
	}
	prefix := []byte("prefix")
	b := NewBuilder(prefix, BuilderOptions{LogAppend: true, AppendTime: 99})
	b.Add(1, []byte("k"), nil)
	if b.Count() != 1 || b.Size() != HeaderSize+8 {
		t.Error(b.Count(), b.Size())
	}
	got := b.Finish()
	if got.MaxTimestamp() != 99 || !got.LogAppendTime() || got.BaseTimestamp() != 1 {
		t.Error(got)
	}
	if d := cmp.Diff([]Record{{Timestamp: 99, Key: []byte("k")}}, collect(t, got)); d != "" {
		t.Error(d)
	}
}

func TestControl(t *testing.T) {
	for _, m := range []EndMarker{{true, 7}, {false, math.MaxInt32}} {
		b := m.Batch(42, 5, 1234)
		if !b.IsControl() || !b.IsTransactional() || b.ProducerID() != 42 || b.ProducerEpoch() != 5 || b.BaseSequence() != -1 || b.MaxTimestamp() != 1234 {
			t.Error(b)
		}
		got, ok, err := ParseEndMarker(collect(t, b)[0])
		if got != m || !ok || err != nil {
			t.Error(got, ok, err)
		}
	}
	for _, c := range []struct {
		key, value string
		ok         bool
		err        error
	}{
		{"\x00\x00\x00", "", false, ErrInvalidRecord},
		{"\x80\x00\x00\x01", "", false, ErrInvalidRecord},
		{"\x00\x00\x00\x02", "", false, nil},
		{"\x00\x00\x7f\x02", "", false, nil},
		{"\x00\x00\x00\x01", "\x00\x00\x00\x00\x00", false, ErrInvalidRecord},
		{"\x00\x00\x00\x01", "\xff\x00\x00\x00\x00\x00", false, ErrInvalidRecord},
		{"\x00\x05\x00\x01more", "\x00\x09\x00\x00\x00\x01more", true, nil},
	} {
		_, ok, err := ParseEndMarker(Record{Key: []byte(c.key), Value: []byte(c.value)})
		if ok != c.ok || !errors.Is(err, c.err) {
			t.Errorf("%q %q: %v %v", c.key, c.value, ok, err)
		}
	}
}

func TestVarints(t *testing.T) {
	for _, v := range []int64{0, -1, 1, 63, 64, -64, -65, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		b := appendVarint(nil, v)
		if len(b) != varintSize(v) {
			t.Errorf("%d: %d bytes, said %d", v, len(b), varintSize(v))
		}
		if got, n := varint64(b); got != v || n != len(b) {
			t.Errorf("%d: %d in %d of %d bytes", v, got, n, len(b))
		}
		if v == int64(int32(v)) {
			if got, n := varint32(b); int64(got) != v || n != len(b) {
				t.Errorf("%d: %d in %d of %d bytes", v, got, n, len(b))
			}
		}
		if _, n := varint64(b[:len(b)-1]); n != 0 {
			t.Errorf("%d cut off: %d", v, n)
		}
	}
	long := bytes.Repeat([]byte{0x80}, 11)
	if _, n := varint32(long[:5]); n != -1 {
		t.Error("five bytes and no end:", n)
	}
	if _, n := varint64(long); n != -1 {
		t.Error("eleven bytes and no end:", n)
	}
}
