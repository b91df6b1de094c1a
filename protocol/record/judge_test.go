package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var writeCases = flag.Bool("write-cases", false, "write testdata/judge-cases.tsv anew; then ask Kafka again as testdata/README.md says")

// judgeNow is the time of every case.
const judgeNow = 1700000100000

// kafkaErrors are Kafka's names of the errors that Judge.java prints.
var kafkaErrors = map[string]error{
	"CORRUPT_MESSAGE":                ErrCorrupt,
	"INVALID_RECORD":                 ErrInvalidRecord,
	"INVALID_TIMESTAMP":              ErrInvalidTimestamp,
	"UNSUPPORTED_COMPRESSION_TYPE":   ErrUnsupportedCompression,
	"UNSUPPORTED_FOR_MESSAGE_FORMAT": ErrUnsupportedForFormat,
	"UNKNOWN_SERVER_ERROR":           ErrCodec,
}

// differs are the cases in which ours does something else on purpose.
var differs = map[string]string{
	"deltas-lz4":            "Kafka fails when it is to put offsets right of which it kept no keys and values; TestWrongDeltas has what ours does",
	"plain-0-other-magic-1": "INVALID_RECORD too, but with a list of records, which the answers of such old requests cannot carry",
	"plain-1-other-magic-0": "the same",
	"length-large":          "Kafka overflows an int; here it is a batch that is not whole",
	"body-4-none":           "Kafka has no code for a varint that is too long in an uncompressed batch; here it is INVALID_RECORD in any",
	"body-13-gzip":          "Kafka does not compare a skimmed record's size with its content, and consumers then fail",
}

// TestJudge holds Validate and DownConvert to what Kafka's own classes say of the same bytes.
func TestJudge(t *testing.T) {
	if *writeCases {
		var out strings.Builder
		for _, c := range judgeCases(t) {
			fmt.Fprintf(&out, "%s\t%s\t%s\t%s\n", c.name, c.verb, c.params, hex.EncodeToString(c.data))
		}
		if err := os.WriteFile("testdata/judge-cases.tsv", []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		t.SkipNow()
	}
	answers := map[string][]string{}
	for _, line := range lines(t, "testdata/judge-answers.tsv") {
		f := strings.Split(line, "\t")
		answers[f[0]] = f[1:]
	}
	for _, line := range lines(t, "testdata/judge-cases.tsv") {
		f := strings.Split(line, "\t")
		data, err := hex.DecodeString(f[3])
		if err != nil {
			t.Fatal(err)
		}
		t.Run(f[0], func(t *testing.T) {
			want := answers[f[0]]
			if reason := differs[f[0]]; reason != "" {
				t.Skip(reason)
			}
			if len(want) == 0 {
				t.Fatal("Kafka was not asked")
			}
			if f[1] == "down" {
				judgeDown(t, f[2], data, want)
			} else {
				judgeValidate(t, f[2], data, want)
			}
		})
	}
}

func judgeDown(t *testing.T, params string, data []byte, want []string) {
	var magic int8
	var from int64
	if _, err := fmt.Sscan(params, &magic, &from); err != nil {
		t.Fatal(err)
	}
	got, err := DownConvert(data, magic, from)
	if want[0] == "error" {
		judgeError(t, err, want)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	judgeBytes(t, got, unhex(t, want[1]))
}

func judgeValidate(t *testing.T, params string, data []byte, want []string) {
	p := strings.Fields(params)
	r := Rules{Partition: "t-0", Now: judgeNow, LogAppend: p[2] == "append", Compacted: p[4] == "1"}
	if p[0] != "client" {
		r.Origin = Coordinator
	}
	version, _ := strconv.Atoi(p[1])
	r.RequestVersion = int16(version)
	r.BeforeMax, _ = strconv.ParseInt(p[5], 10, 64)
	r.AfterMax, _ = strconv.ParseInt(p[6], 10, 64)
	var err error
	if r.Codec, err = ParseCodec(p[3]); err != nil {
		t.Fatal(err)
	}
	v, err := Validate(data, r)
	if want[0] == "error" {
		judgeError(t, err, want)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := strconv.FormatInt(v.MaxTimestamp, 10); got != want[2] {
		t.Errorf("max timestamp %s, want %s", got, want[2])
	}
	for b := range v.Batches() {
		b.SetLeaderEpoch(0)
	}
	judgeBytes(t, v.Records, unhex(t, want[1]))
}

func judgeError(t *testing.T, err error, want []string) {
	t.Helper()
	if !errors.Is(err, kafkaErrors[want[1]]) || err == nil {
		t.Fatalf("error %v, want %s", err, want[1:])
	}
	var re *RecordError
	if errors.As(err, &re) {
		if re.Message != want[2] {
			t.Errorf("message\n%q, want\n%q", re.Message, want[2])
		}
		var faults []string
		for _, f := range re.Records {
			faults = append(faults, fmt.Sprintf("%d:%s", f.Index, f.Message))
		}
		if d := cmp.Diff(want[3:], faults); d != "" {
			t.Error(d)
		}
	} else if len(want) > 3 {
		t.Errorf("%v names no records, Kafka does: %q", err, want[3:])
	}
}

// judgeBytes wants equal bytes, but for what an encoder may do in its own way.
func judgeBytes(t *testing.T, got, want []byte) {
	t.Helper()
	for {
		g, gotRest, gotErr := next(got)
		w, wantRest, wantErr := next(want)
		if gotErr != nil || wantErr != nil {
			t.Fatal(gotErr, wantErr)
		}
		if g == nil || w == nil {
			if len(got) != 0 || len(want) != 0 {
				t.Fatalf("entries: got %v and %d bytes, want %v and %d bytes", g, len(got), w, len(want))
			}
			return
		}
		got, want = gotRest, wantRest
		if g.Codec() == None {
			if !bytes.Equal(g, w) {
				t.Fatalf("got  %x\nwant %x", g, w)
			}
			continue
		}
		if err := checkCRC(g); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(stripped(w), stripped(g)); d != "" {
			t.Error("header:", d)
		}
		if d := cmp.Diff(collect(t, w), collect(t, g)); d != "" {
			t.Error("records:", d)
		}
	}
}

// stripped is an entry's header without its length and checksum, and the codec's own header.
func stripped(b Batch) string {
	if b.Magic() < 2 {
		m, _ := parseMessage(b)
		return fmt.Sprintf("%x, %x, %x, %x", b[:atLength], b[atMagic:atMessageTimestamp], m.timestamp, m.value[:min(7, len(m.value))])
	}
	c := append(Batch(nil), b[:HeaderSize]...)
	c.setLength(entryPrefix)
	c.putInt32(atCRC, 0)
	return fmt.Sprintf("%x", []byte(c))
}

func collect(t testing.TB, b Batch) (all []Record) {
	t.Helper()
	for r, err := range Records(b, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func lines(t testing.TB, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bodies are each one record of a batch; the last and those at 11 and 12 are sound.
var bodies = [][]byte{
	{}, {0}, {2, 0}, {1}, {0x80, 0x80, 0x80, 0x80, 0x80, 1}, {0x0e, 0, 0, 0, 1, 1, 0, 0}, {0x0c, 0, 0, 0, 1, 1, 0, 9},
	{0x0c, 0, 0, 0, 1, 1, 1}, {0x0c, 0, 0, 0, 1, 1, 8}, {0x0c, 0, 0, 0, 8, 1, 0}, {0x10, 0, 0, 0, 1, 1, 2, 1, 1},
	{0x10, 0, 0, 0, 1, 1, 2, 0, 1}, {0x0c, 0, 0, 0, 3, 3, 0}, {0x08, 0, 0, 0, 1, 1, 0}, {0x0c, 0, 0, 0, 1, 1, 0},
}

type judgeCase struct {
	name, verb, params string
	data               []byte
}

// params of a validation: origin, version, time type, codec, compacted, before, after.
const (
	usual     = "client 9 create producer 0 9223372036854775807 9223372036854775807"
	bounded   = "client 9 create producer 0 60000 60000"
	appending = "client 9 append producer 0 9223372036854775807 9223372036854775807"
	compacted = "client 9 create producer 1 9223372036854775807 9223372036854775807"
)

func judgeCases(t *testing.T) (all []judgeCase) {
	add := func(name, verb, params string, data []byte) {
		all = append(all, judgeCase{name, verb, params, append([]byte(nil), data...)})
	}
	with := func(params string, old, new string) string { return strings.Replace(params, old, new, 1) }
	codecs := []Codec{None, Gzip, Snappy, Lz4, Zstd}

	for _, c := range codecs {
		b := sample(c)
		add("keep-"+c.Name(), "validate", usual, b)
		add("append-time-"+c.Name(), "validate", appending, b)
		add("old-request-"+c.Name(), "validate", with(usual, " 9 ", " 2 "), b)
		for _, to := range codecs {
			if to != c {
				add("recode-"+c.Name()+"-"+to.Name(), "validate", with(usual, "producer", to.Name()), b)
			}
		}
		add("recode-append-"+c.Name(), "validate", with(appending, "producer", "gzip"), b)
		add("deltas-"+c.Name(), "validate", with(usual, "producer", "lz4"), wrongDeltas(c))
		add("no-key-"+c.Name(), "validate", compacted, b)
		add("no-key-recode-"+c.Name(), "validate", with(compacted, "producer", "snappy"), b)
		add("out-of-bounds-"+c.Name(), "validate", bounded, b)
		add("max-timestamp-wrong-"+c.Name(), "validate", usual, change(b, func(b Batch) { b.SetMaxTimestamp(5) }))
		add("says-append-time-"+c.Name(), "validate", usual, change(b, func(b Batch) { b.SetAttributes(b.Attributes() | logAppendTimeBit) }))
		add("says-append-time-recode-"+c.Name(), "validate", with(usual, "producer", "gzip"), change(b, func(b Batch) { b.SetAttributes(b.Attributes() | logAppendTimeBit) }))
		add("says-append-time-appending-"+c.Name(), "validate", appending, change(b, func(b Batch) { b.SetAttributes(b.Attributes() | logAppendTimeBit) }))
		add("count-above-"+c.Name(), "validate", usual, change(b, func(b Batch) { b.putInt32(atCount, 5); b.putInt32(atLastOffsetDelta, 4) }))
		add("count-below-"+c.Name(), "validate", usual, change(b, func(b Batch) { b.putInt32(atCount, 3); b.putInt32(atLastOffsetDelta, 2) }))
		add("idempotent-"+c.Name(), "validate", with(usual, "producer", "zstd"), idempotent(c, true))
		for _, magic := range []string{"0", "1"} {
			add("down-"+magic+"-"+c.Name(), "down", magic+" 0", change(b, func(b Batch) { b.SetBaseOffset(100) }))
			add("down-from-"+magic+"-"+c.Name(), "down", magic+" 102", change(b, func(b Batch) { b.SetBaseOffset(100) }))
			add("down-append-"+magic+"-"+c.Name(), "down", magic+" 0", change(b, func(b Batch) { setTime(b, true, 77) }))
		}
		if c == None || c == Zstd {
			continue
		}
		for _, magic := range []int8{0, 1} {
			set := sampleSet(magic, c)
			for _, to := range []string{"producer", "none", "gzip", "zstd"} {
				name := fmt.Sprintf("set-%d-%s-%s", magic, c.Name(), to)
				add(name, "validate", with(with(usual, "producer", to), " 9 ", " 2 "), set)
				add(name+"-append", "validate", with(with(appending, "producer", to), " 9 ", " 2 "), set)
			}
			name := fmt.Sprintf("set-%d-%s", magic, c.Name())
			add(name+"-relative", "validate", with(usual, " 9 ", " 2 "), change(set, func(b Batch) { b.SetBaseOffset(0) }))
			add(name+"-too-low", "validate", with(usual, " 9 ", " 2 "), change(set, func(b Batch) { b.SetBaseOffset(1) }))
			add(name+"-no-key", "validate", with(compacted, " 9 ", " 2 "), set)
			add(name+"-v3", "validate", with(usual, " 9 ", " 3 "), set)
			add(name+"-twice", "validate", with(usual, " 9 ", " 2 "), append(append([]byte(nil), set...), set...))
			add(name+"-down", "down", "0 0", set)
			add(name+"-zstd-inside", "validate", with(usual, " 9 ", " 2 "), change(set, func(b Batch) { b[atMessageAttributes] = 4 }))
			add(name+"-garbage", "validate", with(usual, " 9 ", " 2 "), change(set, func(b Batch) { b[len(b)-30] ^= 0xff; b[len(b)-40] ^= 0xff }))
		}
	}
	for _, magic := range []int8{0, 1} {
		plain := sampleSet(magic, None)
		for _, to := range []string{"none", "gzip", "lz4"} {
			add(fmt.Sprintf("plain-%d-%s", magic, to), "validate", with(with(usual, "producer", to), " 9 ", " 2 "), plain)
			add(fmt.Sprintf("plain-%d-%s-append", magic, to), "validate", with(with(appending, "producer", to), " 9 ", " 1 "), plain)
		}
		name := fmt.Sprintf("plain-%d", magic)
		add(name+"-cut", "validate", with(usual, " 9 ", " 0 "), plain[:len(plain)-3])
		add(name+"-crc", "validate", with(usual, " 9 ", " 0 "), change(plain, func(b Batch) { b[len(b)-1]++ }))
		add(name+"-down", "down", "0 0", plain)
		add(name+"-mixed", "validate", with(usual, " 9 ", " 2 "), append(append([]byte(nil), plain...), sampleSet(1-magic, None)...))
		add(name+"-then-wrapper", "validate", with(usual, " 9 ", " 2 "), append(append([]byte(nil), plain...), sampleSet(magic, Gzip)...))
		for _, inner := range []int8{0, 1} {
			nested := nest(magic, Gzip, sampleSet(inner, Snappy))
			add(fmt.Sprintf("%s-nested-%d", name, inner), "validate", with(usual, " 9 ", " 2 "), nested)
			add(fmt.Sprintf("%s-other-magic-%d", name, inner), "validate", with(usual, " 9 ", " 2 "), nest(magic, Gzip, sampleSet(inner, None)))
		}
		broken := sampleSet(magic, None)
		broken[len(broken)-1]++
		add(name+"-inner-crc", "validate", with(usual, " 9 ", " 2 "), nest(magic, Gzip, broken))
		add(name+"-empty-wrapper", "validate", with(usual, " 9 ", " 2 "), nest(magic, Gzip, nil))
		add(name+"-null-wrapper", "validate", with(usual, " 9 ", " 2 "), appendMessage(nil, magic, 0, 1, int8(Gzip), nil, nil))
		add(name+"-cut-inside", "validate", with(usual, " 9 ", " 2 "), nest(magic, Gzip, sampleSet(magic, None)[:60]))
	}

	b := sample(None)
	add("no-records", "validate", usual, nil)
	add("no-records-old", "validate", with(usual, " 9 ", " 2 "), nil)
	add("cut", "validate", usual, b[:len(b)-1])
	add("two", "validate", usual, append(append([]byte(nil), b...), b...))
	add("two-old", "validate", with(usual, " 9 ", " 1 "), append(append([]byte(nil), b...), b...))
	add("garbage-after", "validate", usual, append(append([]byte(nil), b...), 1, 2, 3, 4, 5))
	add("garbage-length-after", "validate", usual, append(append([]byte(nil), b...), make([]byte, 12)...))
	add("garbage-magic-after", "validate", usual, append(append([]byte(nil), b...), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0, 9))
	add("cut-after", "validate", usual, append(append([]byte(nil), b...), b[:50]...))
	add("magic-3", "validate", usual, change(b, func(b Batch) { b[atMagic] = 3 }))
	add("magic-negative", "validate", usual, change(b, func(b Batch) { b[atMagic] = 255 }))
	add("length-small", "validate", usual, change(b, func(b Batch) { b.putInt32(atLength, 10) }))
	add("length-negative", "validate", usual, change(b, func(b Batch) { b.putInt32(atLength, -1) }))
	add("length-large", "validate", usual, change(b, func(b Batch) { b.putInt32(atLength, math.MaxInt32) }))
	add("crc", "validate", usual, func() []byte { c := append(Batch(nil), b...); c[len(c)-1]++; return c }())
	add("base-offset", "validate", usual, change(b, func(b Batch) { b.SetBaseOffset(7) }))
	add("base-offset-coordinator", "validate", with(usual, "client", "coordinator"), change(b, func(b Batch) { b.SetBaseOffset(7) }))
	add("count-zero", "validate", usual, change(b, func(b Batch) { b.putInt32(atCount, 0) }))
	add("count-negative", "validate", usual, change(b, func(b Batch) { b.putInt32(atCount, -4) }))
	add("count-differs", "validate", usual, change(b, func(b Batch) { b.putInt32(atCount, 3) }))
	add("last-delta-negative", "validate", usual, change(b, func(b Batch) { b.putInt32(atLastOffsetDelta, -2) }))
	add("control", "validate", usual, change(b, func(b Batch) { b.SetAttributes(b.Attributes() | controlBit) }))
	marker := EndMarker{true, 3}.Batch(5, 1, 1700000000000)
	add("marker-client", "validate", usual, marker)
	add("marker", "validate", with(usual, "client", "coordinator"), marker)
	add("marker-gzip-topic", "validate", with(with(usual, "client", "coordinator"), "producer", "gzip"), marker)
	add("marker-down", "down", "1 0", append(append([]byte(nil), marker...), b...))
	add("sequence-negative", "validate", usual, change(b, func(b Batch) { b.putInt64(atProducerID, 9); b.putInt32(atBaseSequence, -1) }))
	add("zstd-version-6", "validate", with(usual, " 9 ", " 6 "), sample(Zstd))
	add("zstd-version-7", "validate", with(usual, " 9 ", " 7 "), sample(Zstd))
	add("zstd-then-down", "down", "1 0", append(append([]byte(nil), b...), sample(Zstd)...))
	for codec := range int16(8) {
		if codec == 0 {
			continue
		}
		add(fmt.Sprintf("rubbish-codec-%d", codec), "validate", usual, change(b, func(b Batch) { b.SetAttributes(b.Attributes() | codec) }))
	}
	add("no-timestamp", "validate", bounded, timed(-1, -1))
	add("no-timestamp-append", "validate", appending, timed(-1, -1))
	add("negative-timestamp", "validate", usual, timed(-5, 5))
	add("bounds", "validate", bounded, timed(judgeNow-60000, judgeNow+60000))
	add("bounds-over", "validate", bounded, timed(judgeNow-60001, judgeNow+60001, judgeNow, judgeNow+86400000))
	add("falling", "validate", usual, timed(100, 50, 99, 10))
	for i, body := range bodies {
		for _, c := range []Codec{None, Gzip} {
			add(fmt.Sprintf("body-%d-%s", i, c.Name()), "validate", usual, raw(c, 1, body))
		}
	}
	return all
}

// sample is a batch of four records as the reference topics have them.
func sample(c Codec) Batch {
	b := NewBuilder(nil, BuilderOptions{Codec: c, LeaderEpoch: -1})
	value := bytes.Repeat([]byte("some value, "), 10)
	b.Add(1700000000000, []byte("k0"), value)
	b.Add(1700000002000, nil, value)
	b.Add(1700000001000, []byte("k2"), nil)
	b.Add(1700000003000, []byte{}, []byte{}, Header{"h", []byte("v")}, Header{"h", nil}, Header{"", []byte{}})
	return b.Finish()
}

func idempotent(c Codec, transactional bool) Batch {
	b := NewBuilder(nil, BuilderOptions{Codec: c, LeaderEpoch: 4, Producer: &ProducerInfo{1234567890123, 12, 2147483646, transactional}})
	for i := range 3 {
		b.Add(1700000000000+int64(i), []byte{byte(i)}, []byte("v"))
	}
	return b.Finish()
}

func timed(times ...int64) Batch {
	b := NewBuilder(nil, BuilderOptions{})
	for _, at := range times {
		b.Add(at, []byte("k"), []byte("v"))
	}
	return b.Finish()
}

// wrongDeltas is a batch whose records all say that they are the first.
func wrongDeltas(c Codec) Batch {
	var body []byte
	for i := range 3 {
		body = appendRecord(body, int64(i), 0, []byte("k"), []byte("v"), nil)
	}
	return raw(c, 3, body)
}

// raw is a batch with any body.
func raw(c Codec, count int32, body []byte) Batch {
	out := sink{b: make([]byte, HeaderSize)}
	w := deflate(c, 0, 2, &out)
	w.Write(body)
	w.Close()
	w.release()
	b := Builder{o: BuilderOptions{Codec: c}, count: count, baseTime: 1700000000000, maxTime: 1700000000000}
	b.header(out.b)
	return out.b
}

// change edits a copy and makes its checksum right.
func change(b Batch, edit func(Batch)) Batch {
	c := append(Batch(nil), b...)
	edit(c)
	if c.Magic() < 2 {
		first, _, err := Split(c)
		if err == nil {
			finishMessage(first)
		}
		return c
	}
	c.UpdateCRC()
	return c
}

// sampleSet is a set of three messages, compressed or not.
func sampleSet(magic int8, c Codec) Batch {
	records := []Record{
		{Offset: 10, Timestamp: 1700000000000, Key: []byte("k0"), Value: []byte("value 0")},
		{Offset: 11, Timestamp: 1700000005000, Value: bytes.Repeat([]byte("value 1"), 20)},
		{Offset: 12, Timestamp: 1700000001000, Key: []byte("k2")},
	}
	if c == None {
		var out []byte
		for _, r := range records {
			out = appendMessage(out, magic, r.Offset, r.Timestamp, 0, r.Key, r.Value)
		}
		return out
	}
	w := newWrapper(nil, magic, c)
	for _, r := range records {
		w.add(r, 0)
	}
	b, _ := w.finish(0, nil)
	return b
}

// nest packs any set into a wrapper.
func nest(magic int8, c Codec, set []byte) Batch {
	w := newWrapper(nil, magic, c)
	w.pack.Write(set)
	w.count = 1
	b, _ := w.finish(0, nil)
	return b
}
