package cli

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ottla/protocol/record"
)

// testdata/recorded has what Kafka 4.4.0's tool prints of the files that TestDumpRecorded makes; of
// exceptions what they say, and the name of those that say nothing. It is written by
//
//	KAFKA4_LIBS=... go test ./compat/cli -run TestDumpRecorded -record ../shared/kafka/bin/kafka-dump-log
var recordWith = flag.String("record", "", "write testdata/recorded with this `tool`, by its path from the module's root")

const (
	theLog      = "00000000000000000000.log"
	theIndex    = "00000000000000000000.index"
	theTimes    = "00000000000000000000.timeindex"
	theAborted  = "00000000000000000000.txnindex"
	theSnapshot = "00000000000000000000.snapshot"
)

// recordedCase is files and the arguments to dump them with.
type recordedCase struct {
	name  string
	files map[string][]byte
	args  string
	// said is what ottla says where Kafka's tool says something else; more: ottla prints more than
	// Kafka's tool before it fails.
	said string
	more bool
}

// kafkaFile is a file of Kafka's directory of 4.4.0, or of that with the old formats.
func kafkaFile(t testing.TB, name string) []byte {
	t.Helper()
	dir := "kafka-4.4.0-kraft"
	if strings.HasPrefix(name, "fmt-") {
		dir = "kafka-3.9.1-zk-old-formats"
	}
	b, err := os.ReadFile(filepath.Join(kafkaData, dir, "data", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// with is a copy of b with other bytes at a place.
func with(b []byte, at int, bytes ...byte) []byte {
	b = slices.Clone(b)
	copy(b[at:], bytes)
	return b
}

func batch(o record.BuilderOptions, keysAndValues ...[]byte) []byte {
	b := record.NewBuilder(nil, o)
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		b.Add(1700000000000+int64(i), keysAndValues[i], keysAndValues[i+1])
	}
	return b.Finish()
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func recordedCases(t testing.TB) []recordedCase {
	codecs, txn := kafkaFile(t, "codecs-0/"+theLog), kafkaFile(t, "txn-0/00000000000000000004.log")
	codecsIndex, codecsTimes := kafkaFile(t, "codecs-0/"+theIndex), kafkaFile(t, "codecs-0/"+theTimes)
	aborted, producers := kafkaFile(t, "txn-0/00000000000000000004.txnindex"), kafkaFile(t, "txn-0/00000000000000000017.snapshot")
	v0, v1 := kafkaFile(t, "fmt-v0-0/"+theLog), kafkaFile(t, "fmt-v1-0/"+theLog)
	plain := codecs[:571] // its first batch
	one := func(name string, b []byte) map[string][]byte { return map[string][]byte{name: b} }
	log := func(b []byte) map[string][]byte { return one(theLog, b) }
	index := func(b []byte) map[string][]byte { return map[string][]byte{theLog: codecs, theIndex: b} }
	times := func(b []byte) map[string][]byte {
		return map[string][]byte{theLog: codecs, theIndex: codecsIndex, theTimes: b}
	}
	offsetEntry := func(b []byte, offset, position int32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(offset)), uint32(position))
	}
	timeEntry := func(b []byte, time int64, offset int32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, uint64(time)), uint32(offset))
	}
	control := func(kind byte, value []byte) []byte {
		return batch(record.BuilderOptions{Control: true}, []byte{0, 0, 0, kind}, value)
	}
	recrc := func(b []byte) []byte {
		record.Batch(b).UpdateCRC()
		return b
	}
	remote := func(values ...string) []byte {
		var kv [][]byte
		for _, v := range values {
			kv = append(kv, nil, unhex(t, v))
		}
		return batch(record.BuilderOptions{}, kv...)
	}
	const print = "--print-data-log --files " + theLog
	return []recordedCase{
		// options
		{name: "deep-txn", files: one("00000000000000000004.log", txn), args: "--deep-iteration --files 00000000000000000004.log"},
		{name: "deep-v1", files: log(v1), args: "--deep-iteration --files " + theLog},
		{name: "print-v0", files: log(v0), args: print},
		{name: "skip-metadata", files: log(codecs), args: "--skip-record-metadata " + print},
		{name: "skip-metadata-txn", files: one("00000000000000000004.log", txn), args: "--skip-record-metadata --print-data-log --files 00000000000000000004.log"},
		{name: "skip-metadata-deep", files: log(v1), args: "--skip-record-metadata --deep-iteration --files " + theLog},
		{name: "max-bytes", files: log(codecs), args: "--max-bytes 800 --files " + theLog},
		{name: "max-bytes-in-header", files: log(codecs), args: "--max-bytes 590 --files " + theLog},
		{name: "max-message-size", files: index(codecsIndex), args: "--max-message-size 200 --files " + theIndex,
			said: "no batch of at most 200 bytes begins at position 765 of DIR/" + theLog},
		{name: "sanity", files: times(codecsTimes), args: "--index-sanity-check --files " + theIndex + "," + theTimes},
		{name: "verify", files: times(codecsTimes), args: "--verify-index-only --files " + theIndex + "," + theTimes},
		{name: "several", files: times(codecsTimes), args: "--files " + theTimes + ",./" + theIndex + "," + theLog},
		{name: "longs", files: log(batch(record.BuilderOptions{}, []byte("\x00\x00\x00\x05"), []byte("\xff\xff\xff\xff\xff\xff\xff\xfe"), nil, []byte("\x00\x00\x00\x00\x00\x00\x00\x07and more"))),
			args: "--key-decoder-class org.apache.kafka.tools.api.IntegerDecoder --value-decoder-class=org.apache.kafka.tools.api.LongDecoder --files " + theLog},
		{name: "longs-short", files: log(plain), args: "--key-decoder-class org.apache.kafka.tools.api.LongDecoder --files " + theLog,
			said: "LongDecoder needs 8 bytes, and a key or value has 5"},
		{name: "no-utf8", files: log(batch(record.BuilderOptions{}, []byte("\xed\xa0\x80\xff\xe2\x82"), []byte("caf\xc3\xa9 \xf0\x9f\x98\x80 \xf0\x9f\x98"))), args: print},

		// decoders on what is not theirs
		{name: "offsets-null-key", files: log(codecs), args: "--offsets-decoder --files " + theLog},
		{name: "offsets-unknown", files: log(batch(record.BuilderOptions{}, []byte{0, 99, 1}, []byte{0, 0}, []byte{0, 2, 0, 1, 'g'}, nil)), args: "--offsets-decoder --files " + theLog},
		{name: "metadata-damaged", files: log(remote("0002", "0202", "016300", "010209", "010200", "0102000574657374", "01", "", "018080808010")), args: "--cluster-metadata-decoder --files " + theLog},
		{name: "metadata-null", files: log(batch(record.BuilderOptions{}, []byte("k"), nil)), args: "--cluster-metadata-decoder --files " + theLog},
		{name: "offsets-damaged", files: log(batch(record.BuilderOptions{}, unhex(t, "00020001670001"), unhex(t, "0063"), []byte{0}, []byte{0, 0}, unhex(t, "000100016700017400000000"), []byte{0}, unhex(t, "000100016700017400000000"), []byte{})),
			args: "--offsets-decoder --files " + theLog},
		{name: "transactions-damaged", files: log(batch(record.BuilderOptions{}, unhex(t, "0000000174"), unhex(t, "0009"), unhex(t, "0007000174"), nil, unhex(t, "0000000174"), nil)), args: "--transaction-log-decoder --files " + theLog},
		{name: "share-damaged", files: log(batch(record.BuilderOptions{}, unhex(t, "00000001670123456789abcdef0123456789abcdef00000005"), nil, unhex(t, "0009"), nil)), args: "--share-group-state-decoder --files " + theLog},
		{name: "remote-damaged", files: log(remote("0002", "0202", "016300", "010109", "0101", "", "01020007636f6465637365cec72170154d90a807b5e1be4a34370000000300000000010000018bcfe573b8010000")), args: "--remote-log-metadata-decoder --files " + theLog},
		{name: "control-types", files: log(slices.Concat(
			control(2, unhex(t, "0000000000010200000001000200000001"+"0000")), control(5, unhex(t, "0000000100")), control(9, nil))), args: "--deep-iteration --files " + theLog},
		{name: "remote", files: log(remote(
			// RemoteLogMetadataSerde.serialize of 4.4.0
			"01000007636f6465637365cec72170154d90a807b5e1be4a343700000003006486b8949bc646adb93b4d65aacdbbdd000000000000000000000000000000001b000000010000018bcfe568660000018bcfe56be80400000000000000000000000000000000030000000000000002000000001100000000000000050000000607000000",
			"01000007636f6465637365cec72170154d90a807b5e1be4a343700000003006486b8949bc646adb93b4d65aacdbbdd000000000000000000000000000000001b000000020000018bcfe568660000018bcfe56fd00400000000000000000000000000000000030000000000000002000000001100000000000000050000000607040102030100",
			"01010007636f6465637365cec72170154d90a807b5e1be4a343700000003006486b8949bc646adb93b4d65aacdbbdd00000000020000018bcfe56fd0000200",
			"01020007636f6465637365cec72170154d90a807b5e1be4a34370000000300000000010000018bcfe573b80100",
			"0103006486b8949bc646adb93b4d65aacdbbdd0000000000000000000000000000001b000000010000018bcfe568660000018bcfe56be80400000000000000000000000000000000030000000000000002000000001100000000000000050000000607010300",
			"0103006486b8949bc646adb93b4d65aacdbbdd0000000000000000000000000000001b000000010000018bcfe568660000018bcfe56be80400000000000000000000000000000000030000000000000002000000001100000000000000050000000607010301000101",
			"01000007636f6465637365cec72170154d90a807b5e1be4a343700000003006486b8949bc646adb93b4d65aacdbbdd000000000000000000000000000000001b000000010000018bcfe568660000018bcfe56be80400000000000000000000000000000000030000000000000002000000001100000000000000050000000607000001000101",
		)), args: "--remote-log-metadata-decoder --files " + theLog},

		// segments
		{name: "empty", files: log(nil), args: print},
		{name: "few-bytes", files: log(codecs[:17]), args: print},
		{name: "torn", files: log(codecs[:800]), args: print},
		{name: "torn-header", files: log(codecs[:590]), args: print},
		{name: "zeros", files: log(append(slices.Clone(codecs), make([]byte, 100)...)), args: print},
		{name: "crc", files: log(with(codecs, 100, 'X')), args: print},
		{name: "crc-header", files: log(with(codecs, 571+30, 0xff)), args: "--files " + theLog},
		{name: "record-length", files: log(with(plain, 61, 0x7f)), args: print, said: "Invalid record size: -64 is negative"},
		{name: "record-length-negative", files: log(with(plain, 61, 0x01)), args: print, said: "Invalid record size: -1 is negative"},
		{name: "count-more", files: log(with(plain, 57, 0, 0, 0, 9)), args: print},
		{name: "count-fewer", files: log(with(plain, 57, 0, 0, 0, 2)), args: print, more: true},
		{name: "count-negative", files: log(with(plain, 57, 0xff, 0xff, 0xff, 0xff)), args: print},
		{name: "codec", files: log(with(codecs, 571+22, 5)), args: print},
		{name: "magic-3", files: log(with(codecs, 571+16, 3)), args: print},
		{name: "magic-negative", files: log(with(codecs, 571+16, 0xff)), args: print},
		{name: "length-small", files: log(with(codecs, 571+8, 0, 0, 0, 13)), args: print},
		{name: "length-negative", files: log(with(codecs, 571+8, 0xff, 0xff, 0xff, 0xff)), args: print},
		{name: "length-huge", files: log(with(codecs, 571+8, 0x7f, 0xff, 0xff, 0xff)), args: print},
		{name: "below-header", files: log(with(codecs, 571+8, 0, 0, 0, 20)), args: print, said: `the batch at position 571 has 32 bytes, and its header alone needs 61`},
		{name: "gap", files: log(slices.Concat(plain, codecs[765:1001], codecs[1413:])), args: print},
		{name: "back", files: log(slices.Concat(codecs[571:765], plain, codecs[765:1001])), args: "--deep-iteration --files " + theLog},
		{name: "last-below-base", files: log(with(plain, 23, 0xff, 0xff, 0xff, 0xf0)), args: "--files " + theLog},
		{name: "gzip", files: log(with(codecs[571:765], 100, 0, 0, 0)), args: print, said: `Failed to decompress record stream: gzip: gzip: invalid checksum`},
		{name: "append-time", files: log(recrc(with(plain, 21, 0, 8))), args: print},
		{name: "delete-horizon", files: log(recrc(with(plain, 21, 0, 0x40))), args: print},
		{name: "sequence-wraps", files: log(recrc(with(plain, 43, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x7f, 0xff, 0xff, 0xfd))), args: print},
		{name: "v0-crc", files: log(with(v0, 30, 'X')), args: print},
		{name: "v1-inner", files: log(with(v1, 60, 'X')), args: print},
		{name: "v0-key-length", files: log(with(v0, 18, 0, 0, 1, 0)), args: print, said: `Message field of 256 bytes, of which there are 18`},

		// indexes
		{name: "index-empty", files: index(nil), args: "--files " + theIndex},
		{name: "index-zeros", files: index(make([]byte, 64)), args: "--files " + theIndex},
		{name: "index-zeros-after", files: index(append(slices.Clone(codecsIndex), make([]byte, 64)...)), args: "--files " + theIndex},
		{name: "index-offsets", files: index(offsetEntry(offsetEntry(offsetEntry(offsetEntry(nil, 8, 571), 8, 765), 20, 1001), 24, 1215)), args: "--files " + theIndex},
		{name: "index-beyond", files: index(offsetEntry(slices.Clone(codecsIndex), 30, 99999)), args: "--files " + theIndex},
		{name: "index-end", files: index(offsetEntry(slices.Clone(codecsIndex), 30, int32(len(codecs)))), args: "--files " + theIndex, said: `no batch of at most 5242880 bytes begins at position 1543 of DIR/00000000000000000000.log`},
		{name: "index-negative", files: index(offsetEntry(slices.Clone(codecsIndex), 30, -5)), args: "--files " + theIndex},
		{name: "index-within", files: index(offsetEntry(nil, 9, 575)), args: "--files " + theIndex},
		{name: "index-size", files: index(append(slices.Clone(codecsIndex), 1, 2, 3)), args: "--files " + theIndex},
		{name: "index-sanity-size", files: index(append(slices.Clone(codecsIndex), 1, 2, 3)), args: "--index-sanity-check --files " + theIndex},
		{name: "index-sanity-base", files: index(offsetEntry(slices.Clone(codecsIndex), -9, 1)), args: "--index-sanity-check --files " + theIndex},
		{name: "times-empty", files: times(nil), args: "--files " + theTimes},
		{name: "times-mismatch", files: times(timeEntry(timeEntry(nil, 1700000000039, 4), 1700000000102, 27)), args: "--files " + theTimes},
		{name: "times-order", files: times(timeEntry(timeEntry(timeEntry(nil, 1700000000040, 4), 1700000000040, 9), 1700000000040, 14)), args: "--files " + theTimes},
		{name: "times-offsets", files: times(timeEntry(timeEntry(timeEntry(nil, 1700000000040, 3), 1700000000041, 10), 1700000000102, 99)), args: "--files " + theTimes},
		{name: "times-zeros", files: times(append(slices.Clone(codecsTimes), make([]byte, 48)...)), args: "--verify-index-only --files " + theTimes},
		{name: "times-sanity-order", files: times(timeEntry(slices.Clone(codecsTimes), 5, 27)), args: "--index-sanity-check --files " + theTimes},
		{name: "times-sanity-base", files: times(timeEntry(slices.Clone(codecsTimes), 1700000000200, -4)), args: "--index-sanity-check --files " + theTimes},
		{name: "times-sanity-size", files: times(append(slices.Clone(codecsTimes), 0)), args: "--index-sanity-check --files " + theTimes},
		{name: "times-log-damaged", files: map[string][]byte{theLog: with(codecs, 571+8, 0, 0, 0, 1), theIndex: nil, theTimes: codecsTimes}, args: "--files " + theTimes, more: true},
		{name: "aborted", files: one(theAborted, aborted), args: "--files " + theAborted},
		{name: "aborted-torn", files: one(theAborted, aborted[:50]), args: "--files " + theAborted},
		{name: "aborted-version", files: one(theAborted, with(aborted, 34, 0, 1)), args: "--files " + theAborted, more: true},

		// snapshots
		{name: "snapshot", files: one(theSnapshot, producers), args: "--files " + theSnapshot},
		{name: "snapshot-crc", files: one(theSnapshot, with(producers, 20, 9)), args: "--files " + theSnapshot},
		{name: "snapshot-version", files: one(theSnapshot, with(producers, 0, 0, 2)), args: "--files " + theSnapshot},
		{name: "snapshot-empty", files: one(theSnapshot, nil), args: "--files " + theSnapshot},
		{name: "snapshot-short", files: one(theSnapshot, producers[:70]), args: "--files " + theSnapshot},
		{name: "snapshot-head", files: one(theSnapshot, producers[:7]), args: "--files " + theSnapshot},
		{name: "snapshot-many", files: one(theSnapshot, with(producers, 6, 0x7f, 0xff, 0xff, 0xff)), args: "--files " + theSnapshot},
		{name: "snapshot-null", files: one(theSnapshot, with(producers, 6, 0xff, 0xff, 0xff, 0xff)), args: "--files " + theSnapshot},
		{name: "snapshot-more", files: one(theSnapshot, append(slices.Clone(producers), 0)), args: "--files " + theSnapshot},
		{name: "unknown", files: one("00000000000000000000.swap", plain), args: "--files 00000000000000000000.swap"},
	}
}

// TestDumpRecorded prints damaged files, and sound ones with all options, as Kafka's tool does.
func TestDumpRecorded(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range recordedCases(t) {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, b := range c.files {
				if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			name := filepath.Join(wd, "testdata", "recorded", c.name+".txt")
			if *recordWith != "" {
				if err := os.WriteFile(name, recordTool(t, filepath.Join(wd, "../..", *recordWith), dir, c), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			wantOut, rest, _ := strings.Cut(string(b), "---- standard error\n")
			wantErr, status, _ := strings.Cut(rest, "---- status ")
			out, errOut, got := run(t, strings.Fields(c.args)...)
			if fmt.Sprintln(got) != status {
				t.Errorf("status %d, want %s; said %q", got, status, errOut)
			}
			if !strings.HasSuffix(out, "\n") && out != "" {
				t.Errorf("the last line has no end: %q", out)
			}
			errOut, _, _ = strings.Cut(strings.ReplaceAll(errOut, dir, "DIR"), "ottla: ")
			out, wantOut = strings.TrimRight(out, "\n"), strings.TrimRight(wantOut, "\n")
			switch {
			case c.said != "":
				wantErr = c.said + "\n"
				fallthrough
			default:
				sameLines(t, errOut, withoutFalseAlarm(wantErr))
			}
			if c.more && strings.HasPrefix(out, wantOut) {
				wantOut = out
			}
			sameLines(t, out, wantOut)
		})
	}
}

// withoutFalseAlarm takes out what 4.4.0 says of a log that does not begin at offset 0: that before
// its first record there was one with offset -1. 3.9.1 says nothing.
func withoutFalseAlarm(s string) string {
	alarm := regexp.MustCompile(`(?m)^  -1 is followed by \d+\n`)
	alone := regexp.MustCompile(`(?m)^Non-consecutive offsets in .*\n((?:  .*\n)*)`)
	return alone.ReplaceAllStringFunc(alarm.ReplaceAllString(s, ""), func(m string) string {
		if strings.Count(m, "\n") == 1 {
			return ""
		}
		return m
	})
}

// recordTool runs Kafka's tool. What it prints last of a failure has no line end, and here gets one.
func recordTool(t *testing.T, tool, dir string, c recordedCase) []byte {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.Command(tool, strings.Fields(c.args)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errOut
	cmd.Env = append(os.Environ(), "KAFKA_TOOL_OPTS=-Xmx256M -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dstdout.encoding=UTF-8 -Dstderr.encoding=UTF-8")
	cmd.Run()
	if !strings.HasPrefix(out.String(), "Dumping ") {
		t.Fatalf("%s does not work: %s", tool, errOut.String())
	}
	trace := regexp.MustCompile(`^(\tat |\t\.\.\. |Caused by: |$)`)
	exception := regexp.MustCompile(`^Exception in thread "main" (?:[\w.$]+: |[\w.$]*\.)`)
	var b bytes.Buffer
	b.Write(out.Bytes())
	if out.Len() > 0 && !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	b.WriteString("---- standard error\n")
	for line := range strings.Lines(errOut.String()) {
		if !trace.MatchString(strings.TrimSuffix(line, "\n")) {
			b.WriteString(strings.ReplaceAll(exception.ReplaceAllString(line, ""), dir, "DIR"))
		}
	}
	fmt.Fprintf(&b, "---- status %d\n", cmd.ProcessState.ExitCode())
	return b.Bytes()
}
