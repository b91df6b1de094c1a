package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ottla/log/vfs"
)

// FuzzScanner walks any bytes as a log: it ends, and what it calls whole lies within them.
func FuzzScanner(f *testing.F) {
	addFiles(f, "*/*.log")
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := vfs.NewMemory()
		if err := writeFile(fsys, "/log", data, false); err != nil {
			t.Fatal(err)
		}
		file, err := fsys.OpenFile("/log", os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, buf := range []int{headerBytes, 100, walkBytes} {
			for _, whole := range []bool{true, false} {
				sc := scanner{f: file, end: int64(len(data)), buf: make([]byte, buf), whole: whole}
				at := int64(0)
				for err = sc.next(); err == nil; err = sc.next() {
					if sc.pos != at || sc.size <= 0 || sc.pos+sc.size > int64(len(data)) {
						t.Fatalf("entry at %d of %d bytes, want it at %d, in %d", sc.pos, sc.size, at, len(data))
					}
					at += sc.size
					if err := sc.check(); err != nil && !torn(err) {
						t.Fatal(err)
					}
					if b, err := sc.entry(); err != nil || int64(len(b)) != sc.size {
						t.Fatalf("%d bytes, %v", len(b), err)
					}
				}
				if err != io.EOF && !torn(err) || err == io.EOF && at != int64(len(data)) {
					t.Fatalf("ends at %d of %d: %v", at, len(data), err)
				}
			}
		}
	})
}

// FuzzCheck checks a directory of which one file has any content. A repair leads to one in which
// nothing is wrong that another repair could do something about, and that a start opens.
func FuzzCheck(f *testing.F) {
	files := []string{"t-0/" + offsetName(0, logSuffix), "t-0/" + offsetName(5, logSuffix), "t-0/" + offsetName(12, logSuffix), "t-0/" + offsetName(5, indexSuffix),
		"t-0/" + offsetName(5, timeSuffix), "t-0/" + offsetName(0, txnSuffix), "t-0/" + offsetName(5, snapshotSuffix), "t-0/" + epochFile, "t-0/" + partitionFile,
		recoveryFile, startFile, watermarkFile}
	own := ownDirectory(f)
	for i, name := range files {
		if exists(own, dataDir+"/"+name) {
			f.Add(uint8(i), fileBytes(f, own, dataDir+"/"+name), true)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte, clean bool) {
		fsys := own.KillClone()
		if err := writeFile(fsys, filepath.Join(dataDir, files[int(which)%len(files)]), data, true); err != nil {
			t.Fatal(err)
		}
		if !clean {
			fsys.Remove(dataDir + "/" + cleanFile)
		}
		r := checkDir(t, fsys)
		if err := r.Repair(t.Context(), func(string) {}); err != nil {
			t.Fatal(err)
		}
		again := checkDir(t, fsys)
		for _, g := range again.Findings {
			if !g.Harmless && g.do != repairNone {
				t.Fatalf("after the repair of\n%s\nthere is %s", findingsOf(r), findingsOf(again))
			}
		}
		m, _, err := openVictim(fsys)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := m.Log("t", 0).Err(); err != nil && !errors.Is(err, ErrFull) {
			t.Fatalf("%v\nfound %s\nthen %s", err, findingsOf(r), findingsOf(again))
		}
	})
}

// TestCheckOfZeros: a log of zeros, or of what looks like batches everywhere, takes no longer than it has to.
func TestCheckOfZeros(t *testing.T) {
	own := ownDirectory(t)
	for name, piece := range map[string][]byte{
		"zeros": make([]byte, 100), "twos": bytes.Repeat([]byte{2}, 100),
		"heads": append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, 3), 200_000), 0, 0, 0, 0, 2, 0, 0),
	} {
		fsys := own.KillClone()
		file := dataDir + "/t-0/" + offsetName(0, logSuffix)
		had := fileBytes(t, fsys, file)
		if err := writeFile(fsys, file, append(slices.Clone(had), bytes.Repeat(piece, 1<<20/len(piece))...), true); err != nil {
			t.Fatal(err)
		}
		reads := &countingFS{FS: fsys}
		r, err := Check(t.Context(), CheckOptions{FS: reads, Dir: dataDir})
		if err != nil || r.Wrong() != 1 || r.Findings[0].Position != int64(len(had)) {
			t.Errorf("%s: %v, %v", name, findingsOf(r), err)
		}
		if reads.bytes > 40<<20 {
			t.Errorf("%s: %d bytes were read", name, reads.bytes)
		}
	}
}
