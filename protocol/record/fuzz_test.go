package record

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
)

// known holds an error to the sentinels that callers map.
func known(t *testing.T, err error) {
	t.Helper()
	for _, e := range []error{nil, ErrShort, ErrCorrupt, ErrInvalidRecord, ErrInvalidTimestamp, ErrTooLarge, ErrUnsupportedCompression, ErrUnsupportedForFormat, ErrCodec} {
		if errors.Is(err, e) {
			return
		}
	}
	t.Fatalf("an error that nobody knows: %v", err)
}

func seeds(f *testing.F, add func([]byte)) {
	for _, release := range []string{"4.4.0", "3.9.1-old-formats"} {
		for _, log := range logs(f, release) {
			add(log)
			for b := range All(log) {
				add(b)
			}
		}
	}
	for _, c := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
		add(sample(c))
		add(wrongDeltas(c))
		if c != Zstd {
			add(sampleSet(0, c))
			add(sampleSet(1, c))
		}
	}
	add(nest(1, Gzip, sampleSet(1, Snappy)))
	add(EndMarker{true, 1}.Batch(1, 1, 1))
}

// rightCRCs lets the fuzzer past the checksums.
func rightCRCs(data []byte) []byte {
	data = bytes.Clone(data)
	for b := range All(data) {
		if b.Magic() < 2 {
			finishMessage(b)
		} else {
			b.UpdateCRC()
		}
	}
	return data
}

func FuzzValidate(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b, int16(9), uint8(0), int8(-1)); f.Add(b, int16(2), uint8(1), int8(1)) })
	f.Fuzz(func(t *testing.T, data []byte, version int16, flags uint8, target int8) {
		data = rightCRCs(data)
		r := Rules{Now: judgeNow, LogAppend: flags&1 != 0, Compacted: flags&2 != 0, BeforeMax: math.MaxInt64, AfterMax: math.MaxInt64,
			MaxBatchBytes: 1 << 20, MaxDecompressedBytes: 1 << 20, Origin: Origin(flags >> 2 % 3), RequestVersion: version, Codec: Codec(target)}
		if r.Codec != Producer && !r.Codec.Known() {
			r.Codec = Producer
		}
		if flags&0x80 != 0 {
			r.BeforeMax = 60000
		}
		saysAppendTime := false
		for b := range All(data) {
			saysAppendTime = saysAppendTime || b.LogAppendTime() // Kafka believes that and so do we
		}
		v, err := Validate(data, r)
		known(t, err)
		if err != nil {
			return
		}
		// What was accepted can be read, is what it says, and is accepted again.
		count := 0
		for b := range v.Batches() {
			if err := checkCRC(b); err != nil {
				t.Fatal(err)
			}
			if r.Origin == Replication {
				continue
			}
			for rec, err := range Records(b, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if rec.Offset != int64(count) {
					t.Fatalf("offset %d at %d", rec.Offset, count)
				}
				count++
			}
		}
		if r.Origin != Replication && count != v.Count {
			t.Fatalf("%d records, said %d", count, v.Count)
		}
		if r.Origin == Client && len(v.Records) > 0 && !r.LogAppend && !v.Rewritten && !saysAppendTime {
			again, err := Validate(v.Records, r)
			if err != nil || again.Rewritten || again.MaxTimestamp != v.MaxTimestamp {
				t.Fatal(again, err)
			}
		}
	})
}

func FuzzSplit(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, data []byte) {
		total := 0
		for b := range All(data) {
			_ = b.String()
			_, _, _, _ = b.CRC(), b.ComputeCRC(), b.LastSequence(), b.MaxTimestamp()
			total += len(b)
		}
		_, rest, err := Split(data[total:])
		known(t, err)
		if err == nil || len(rest) != len(data)-total {
			t.Fatal("All ended early", err)
		}
		s := NewScanner(bytes.NewReader(data), 0, int64(len(data)), false)
		for s.Next() {
		}
		if s.End() != int64(total) || (s.Err() == nil) != (total == len(data)) {
			t.Fatalf("the scanner got to %d, Split to %d of %d: %v", s.End(), total, len(data), s.Err())
		}
	})
}

func FuzzRecords(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, data []byte) {
		for b := range All(data) {
			n := 0
			for r, err := range Records(b, 1<<20) {
				known(t, err)
				if err == nil && b.IsControl() {
					_, _, err := ParseEndMarker(r)
					known(t, err)
				}
				if n++; n > 10000 {
					break
				}
			}
		}
	})
}

func FuzzDownConvert(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b, int8(0), int64(0)); f.Add(b, int8(1), int64(2)) })
	f.Fuzz(func(t *testing.T, data []byte, magic int8, from int64) {
		if len(data) > 64<<10 {
			return
		}
		out, err := DownConvert(data, magic, from)
		known(t, err)
		for b := range All(out) {
			if b.Magic() > magic {
				t.Fatal(b)
			}
		}
		if total := len(out); total > 0 {
			for b := range All(out) {
				total -= len(b)
			}
			if total != 0 {
				t.Fatal("not whole entries")
			}
		}
	})
}

// FuzzInflate has the readers of all codecs, and compares the snappy check with its library.
func FuzzInflate(f *testing.F) {
	for _, c := range []Codec{Gzip, Snappy, Lz4, Zstd} {
		for _, plain := range pieces() {
			plain = plain[:min(len(plain), 10_000)]
			f.Add(int8(c), int8(2), packed(f, c, 0, 2, plain))
		}
	}
	f.Add(int8(Lz4), int8(0), packed(f, Lz4, 0, 0, []byte("old")))
	f.Add(int8(Snappy), int8(0), []byte("\x0a\x24raw snappy"))
	f.Fuzz(func(t *testing.T, codec, magic int8, body []byte) {
		in, err := inflate(Codec(codec), body, magic, true)
		if err != nil {
			known(t, err)
			return
		}
		defer in.close()
		if _, err := io.Copy(io.Discard, io.LimitReader(in, 32<<20)); err != nil {
			known(t, err)
		}
	})
}

// FuzzRoundTrip packs any bytes with any codec.
func FuzzRoundTrip(f *testing.F) {
	f.Add(int8(1), 0, int8(2), []byte("plain"))
	f.Add(int8(3), 17, int8(0), bytes.Repeat([]byte("plain"), 1000))
	f.Fuzz(func(t *testing.T, codec int8, level int, magic int8, plain []byte) {
		c := Codec(codec)
		if c <= None || c > Zstd || len(plain) == 0 {
			return
		}
		got, err := unpacked(c, packed(t, c, level, magic, plain), magic)
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("%s: %v", c, err)
		}
	})
}
