package cli

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"ottla/log/vfs"
)

// FuzzDump dumps any bytes as any of the files, with any options: it must come to an end, and
// without a panic.
func FuzzDump(f *testing.F) {
	suffixes := []string{".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
	others := []string{"replication-offset-checkpoint", "leader-epoch-checkpoint", "partition.metadata", "meta.properties"}
	options := [][]string{nil, {"--print-data-log"}, {"--offsets-decoder"}, {"--transaction-log-decoder"}, {"--cluster-metadata-decoder"},
		{"--share-group-state-decoder"}, {"--remote-log-metadata-decoder"}, {"--index-sanity-check"}, {"--verify-index-only"},
		{"--value-decoder-class", "LongDecoder", "--key-decoder-class", "DoubleDecoder"}, {"--max-bytes", "700", "--deep-iteration", "--skip-record-metadata"}}
	sound := kafkaFile(f, "codecs-0/"+theLog)
	for _, c := range recordedCases(f) {
		for name, b := range c.files {
			for i, s := range suffixes {
				if filepath.Ext(name) == s {
					f.Add(uint8(i), uint8(1), b)
				}
			}
		}
	}
	for i := range options {
		f.Add(uint8(0), uint8(i), kafkaFile(f, "__consumer_offsets-0/"+theLog))
		f.Add(uint8(0), uint8(i), kafkaFile(f, "__cluster_metadata-0/"+theLog))
	}
	f.Add(uint8(5), uint8(0), []byte("0\n1\ntxn 0 17\n"))
	f.Add(uint8(6), uint8(0), []byte("0\n1\n0 17\n"))
	f.Add(uint8(7), uint8(0), []byte("version: 0\ntopic_id: oYXxpj2cSuCvS1A0rdTlow"))
	f.Add(uint8(8), uint8(0), []byte("#\nversion=1\nnode.id=1\ncluster.id=x\n"))
	f.Fuzz(func(t *testing.T, kind, option uint8, data []byte) {
		m := vfs.NewMemory()
		put := func(name string, b []byte) {
			file, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
			if err == nil {
				_, err = file.WriteAt(b, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			file.Close()
		}
		if err := m.MkdirAll("/t-0", 0o755); err != nil {
			t.Fatal(err)
		}
		put("/t-0/"+theLog, sound)
		put("/t-0/"+theIndex, kafkaFile(t, "codecs-0/"+theIndex))
		if n := int(kind) % (len(suffixes) + len(others)); n < len(suffixes) {
			put("/t-0/00000000000000000000"+suffixes[n], data)
		} else {
			put("/t-0/"+others[n-len(suffixes)], data)
		}
		o, err := parseDumpOptions(append([]string{"/t-0"}, options[int(option)%len(options)]...))
		if err != nil {
			t.Fatal(err)
		}
		dump(m, o, io.Discard, io.Discard)
	})
}

// TestDumpMemory: what a file claims costs no memory.
func TestDumpMemory(t *testing.T) {
	const size = 160 << 20
	dir := t.TempDir()
	sparse := func(name string, head []byte, size int64) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, head, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, size); err != nil {
			t.Fatal(err)
		}
		return name
	}
	head := kafkaFile(t, "codecs-0/"+theLog)[:61]
	binary.BigEndian.PutUint32(head[8:], size-12)
	batch := sparse("00000000000000000000.log", head, size)
	snapshot := kafkaFile(t, "txn-0/00000000000000000017.snapshot")
	binary.BigEndian.PutUint32(snapshot[6:], size/60)
	for _, args := range [][]string{
		{"--print-data-log", batch},
		{sparse("00000000000000000001.snapshot", snapshot, size)},
		{sparse("00000000000000000001.txnindex", nil, 1<<20)},
		{sparse("replication-offset-checkpoint", nil, size)},
		{sparse("meta.properties", nil, size)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o, err := parseDumpOptions(args)
		if err != nil {
			t.Fatal(err)
		}
		err = dump(vfs.OS(), o, io.Discard, io.Discard)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%q: %d bytes allocated (%v)", args, n, err)
		}
	}
}
